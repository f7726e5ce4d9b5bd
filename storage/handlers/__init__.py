"""What each op does, once for all databases. Lives here: handlers, which are plain functions over a `Tx`; none awaits, none knows SQL.

Not here: statements (each database has its own under the same names), BEGIN and COMMIT (its driver).
"""
