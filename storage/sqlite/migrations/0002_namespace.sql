-- The namespace: paths that have moved, rules by prefix of a path, where each client last went, and what a turn has handed over to.

-- An old path leads to its session until `expires`; meanwhile only an operator gives it to another one.
CREATE TABLE redirect (
    id INTEGER PRIMARY KEY,
    scope INTEGER NOT NULL REFERENCES scope (id),
    path TEXT NOT NULL,
    session TEXT NOT NULL REFERENCES session (id),
    expires REAL NOT NULL
);
CREATE UNIQUE INDEX redirect_path ON redirect (scope, path);
CREATE INDEX redirect_session ON redirect (session);
CREATE INDEX redirect_expires ON redirect (expires);

-- The rule of `/` is the project's. What a rule leaves NULL comes from the nearest prefix above it that says something.
CREATE TABLE policy (
    id INTEGER PRIMARY KEY,
    scope INTEGER NOT NULL REFERENCES scope (id),
    prefix TEXT NOT NULL,
    edge TEXT CHECK (edge IN ('collaborate', 'handoff_only')),
    agents TEXT CHECK (agents IN ('none', 'create', 'rename')),
    handoff INTEGER,
    confirm INTEGER
);
CREATE UNIQUE INDEX policy_prefix ON policy (scope, prefix);

-- The last explicit navigation of each client of a principal. frontiers: JSON {session: its newest event then}.
CREATE TABLE navigation (
    id INTEGER PRIMARY KEY,
    scope INTEGER NOT NULL REFERENCES scope (id),
    principal TEXT NOT NULL,
    client TEXT NOT NULL,
    session TEXT NOT NULL,
    frontiers TEXT NOT NULL,
    at REAL NOT NULL
);
CREATE UNIQUE INDEX navigation_client ON navigation (scope, principal, client);
CREATE INDEX navigation_at ON navigation (at);

-- As it was opened, like first_title: a path may be changed since.
ALTER TABLE session ADD COLUMN first_path TEXT;
UPDATE session SET first_path = path;

-- JSON {turn, path, channel_id, …} of the newest turn here that has handed over. It names its turn, so nobody has to clear it.
ALTER TABLE mailbox ADD COLUMN handoff TEXT;
-- JSON {path, channel_id, …} of the turn that this answer ends.
ALTER TABLE entry ADD COLUMN handoff TEXT;
