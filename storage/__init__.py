"""Callboard remembers: the model (plain values and rules) and the only SQL.

Lives here: `model` (values, no I/O), `ops` (every write as a value), `Store` (the one door) and the database drivers.
Not here: anything that runs a turn, opens a socket or starts a task; `Store.run()` is a child that the runtime starts.
"""
