"""Actors act: what each kind of actor does with a message, and the edges where people and machines come in.

Imports `storage`. Opens no supervisor: what it must have started, it asks of a port. Inside, imports go one way: ports < actor < desk <
session < {dispatch | edges | client}, and those three never import each other: they meet in rows.
"""
