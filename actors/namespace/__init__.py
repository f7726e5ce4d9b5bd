"""The namespace of a project: which sessions have a path, and what a path is short for. Not here: rows (storage), handing over (session)."""
