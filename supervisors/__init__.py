"""Keep alive: supervision trees, the runtime that composes everything, settings, command line.

Nothing is imported here, so that `callboard.supervisors.tree` can be used alone.
"""
