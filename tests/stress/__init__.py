"""A stress of the whole SQL core: everything at once and at random, then a judge, then a drain.

``python -m tests.stress --seed 7 --seconds 60 --widened`` runs it by hand.
"""
