"""Loops and waiting; knows no jobs."""
