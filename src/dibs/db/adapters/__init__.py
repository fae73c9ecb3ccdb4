"""Runs calls on connections of the caller: of psycopg, asyncpg, SQLAlchemy or Django."""
