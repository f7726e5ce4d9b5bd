"""The SQLite driver. Lives here: everything that knows `sqlite3`. Not here: the model, and any decision about turns."""
