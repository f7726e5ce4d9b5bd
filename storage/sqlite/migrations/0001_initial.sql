-- The first schema. Every row carries its scope (tenant and project). Times are REAL seconds of store time.
-- Event, entry and marker tables are rowid tables with a unique index: measured twice as fast as WITHOUT ROWID.

CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;

CREATE TABLE scope (
    id INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    project TEXT NOT NULL,
    UNIQUE (tenant, project)
);

-- The hot row of a recipient, and the only lock: lease, fencing epoch, counters.
-- due: when it next needs a look (now if a waking row is pending, retry time, lease end while held; NULL if idle).
-- id: part of a lease, so no restore may give one out again (restored.sql): its holder would write into somebody else's mailbox.
CREATE TABLE mailbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    scope INTEGER NOT NULL REFERENCES scope (id),
    recipient TEXT NOT NULL UNIQUE,
    due REAL,
    epoch INTEGER NOT NULL DEFAULT 0,
    holder TEXT,
    holder_kind TEXT,
    nonce TEXT,
    head INTEGER,
    stop_at REAL,
    stop_grace REAL,
    stop_key TEXT,  -- the key of the newest stop that had one, and the turn it stopped
    stop_key_turn TEXT,
    last_seq INTEGER NOT NULL DEFAULT 0,
    last_event INTEGER NOT NULL DEFAULT 0,
    event_floor INTEGER NOT NULL DEFAULT 0,
    depth INTEGER NOT NULL DEFAULT 0,
    taken INTEGER NOT NULL DEFAULT 0,
    block INTEGER NOT NULL DEFAULT 0,
    stuck TEXT,
    updated_at REAL NOT NULL
);
CREATE INDEX mailbox_due ON mailbox (due) WHERE due IS NOT NULL;
-- Listings go along it, newest change first. Kept with each change of a mailbox: about 1 percent of a turn.
CREATE INDEX mailbox_recent ON mailbox (scope, updated_at);

CREATE TABLE session (
    id TEXT PRIMARY KEY,
    scope INTEGER NOT NULL REFERENCES scope (id),
    mailbox INTEGER NOT NULL REFERENCES mailbox (id),
    kind TEXT NOT NULL,
    agent TEXT NOT NULL,
    path TEXT,
    title TEXT NOT NULL DEFAULT '',
    first_title TEXT NOT NULL DEFAULT '',  -- as it was opened: what tells a repeated opening from another one
    parent TEXT REFERENCES session (id),
    child_state TEXT CHECK (child_state IN ('running', 'completed', 'failed', 'stopped', 'deleted')),
    deadline REAL,
    created_at REAL NOT NULL,
    deleted_at REAL
) WITHOUT ROWID;
CREATE UNIQUE INDEX session_path ON session (scope, path) WHERE path IS NOT NULL AND deleted_at IS NULL;
CREATE UNIQUE INDEX session_mailbox ON session (mailbox);
CREATE INDEX session_children ON session (parent) WHERE child_state = 'running';
CREATE INDEX session_running ON session (scope) WHERE child_state = 'running';

CREATE TABLE message (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    scope INTEGER NOT NULL,
    mailbox INTEGER NOT NULL REFERENCES mailbox (id),
    uid TEXT NOT NULL UNIQUE,
    message_id TEXT,
    principal TEXT NOT NULL,
    digest BLOB NOT NULL,
    transport TEXT NOT NULL CHECK (transport IN ('local', 'suzent_peer')),
    destination_peer TEXT,
    sender TEXT NOT NULL,
    sender_kind TEXT NOT NULL,
    sender_label TEXT NOT NULL,
    kind TEXT NOT NULL,
    wakes INTEGER NOT NULL,
    steers INTEGER NOT NULL,
    payload TEXT,
    status TEXT NOT NULL CHECK (status IN ('pending', 'processing', 'delivered', 'failed')),
    outcome TEXT,
    reason TEXT,
    seq INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    max_attempts INTEGER NOT NULL CHECK (max_attempts >= 1),
    takeovers INTEGER NOT NULL DEFAULT 0,
    claims INTEGER NOT NULL DEFAULT 0,
    absorbed_by INTEGER,
    available_at REAL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    leased_at REAL,
    surfaced_at REAL,
    delivered_at REAL,
    last_error TEXT,
    chain TEXT NOT NULL,
    hops INTEGER NOT NULL,
    reply_to TEXT,
    requeued_from TEXT
);
-- "Open" rows only: the head of a mailbox is its oldest open waking row, also while it is processing or backs off.
CREATE INDEX message_head ON message (mailbox, wakes, id) WHERE status IN ('pending', 'processing');
CREATE UNIQUE INDEX message_key ON message (scope, message_id, principal) WHERE message_id IS NOT NULL;
CREATE INDEX message_pair ON message (mailbox, sender, created_at) WHERE kind = 'agent_message';
CREATE INDEX message_failed ON message (scope, id) WHERE status = 'failed';

CREATE TABLE entry (
    id INTEGER PRIMARY KEY,
    scope INTEGER NOT NULL,
    mailbox INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('user', 'assistant', 'notice')),
    content TEXT NOT NULL,
    message INTEGER NOT NULL,
    at REAL NOT NULL
);
CREATE UNIQUE INDEX entry_seq ON entry (mailbox, seq);

-- seq: the entry whose content belongs to the event; it is joined at reading, so text is stored once.
CREATE TABLE event (
    id INTEGER PRIMARY KEY,
    scope INTEGER NOT NULL,
    mailbox INTEGER NOT NULL,
    n INTEGER NOT NULL,
    kind TEXT NOT NULL,
    turn TEXT,
    seq INTEGER,
    data TEXT NOT NULL,
    at REAL NOT NULL
);
CREATE UNIQUE INDEX event_n ON event (mailbox, n);

-- One row for each message that a committed turn consumed: it is what makes a second turn impossible (INB-8, INB-9).
-- seq and due are what the commit returned, for the same commit again.
CREATE TABLE marker (
    id INTEGER PRIMARY KEY,
    scope INTEGER NOT NULL,
    mailbox INTEGER NOT NULL,
    message INTEGER NOT NULL,
    turn TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    seq INTEGER,
    due REAL
);
CREATE UNIQUE INDEX marker_message ON marker (mailbox, message);

-- How each attempt that did not commit has ended: the repeat rule of Retry, Fail and HandBack, and the history that people read.
CREATE TABLE attempt (
    id INTEGER PRIMARY KEY,
    scope INTEGER NOT NULL,
    mailbox INTEGER NOT NULL,
    message INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    ending TEXT NOT NULL,
    detail TEXT,
    status TEXT NOT NULL,
    due REAL,
    at REAL NOT NULL
);
CREATE UNIQUE INDEX attempt_epoch ON attempt (mailbox, epoch);
CREATE INDEX attempt_message ON attempt (message);

-- The step log of a turn (RT-10); key is an action id, round:N, steer:N or reconcile:EPOCH.
CREATE TABLE step (
    id INTEGER PRIMARY KEY,
    scope INTEGER NOT NULL,
    mailbox INTEGER NOT NULL,
    message INTEGER NOT NULL,
    key TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('round', 'call', 'steer', 'reconcile')),
    ordinal INTEGER NOT NULL,
    done INTEGER NOT NULL,
    data TEXT NOT NULL,
    result TEXT,
    at REAL NOT NULL
);
CREATE UNIQUE INDEX step_key ON step (message, key);

-- What a model made of a session's older entries: those up to number `upto` are told by it. A session has at most one.
CREATE TABLE summary (
    mailbox INTEGER PRIMARY KEY,
    scope INTEGER NOT NULL,
    upto INTEGER NOT NULL,
    text TEXT NOT NULL,
    at REAL NOT NULL
);

-- The last claim of each process: a repeated claim is known by its nonce.
CREATE TABLE process (
    holder TEXT PRIMARY KEY,
    nonce TEXT NOT NULL,
    seen_at REAL NOT NULL
) WITHOUT ROWID;

-- Calls that a person must allow (EVT-6); key is the call's action id. A turn that waits for one may be claimed by another holder meanwhile.
CREATE TABLE approval (
    id TEXT PRIMARY KEY,
    scope INTEGER NOT NULL,
    mailbox INTEGER NOT NULL,
    message INTEGER NOT NULL,
    key TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'approved', 'denied', 'expired')),
    expires REAL NOT NULL,
    answered_at REAL,
    answered_by TEXT
) WITHOUT ROWID;
CREATE UNIQUE INDEX approval_key ON approval (message, key);

-- Retention (INB-4, INB-12): a final message loses its body first; key, digest and marker stay until a repeat need not be known any more.
-- Then its row goes, and origin is what its entries still show of it.
ALTER TABLE message ADD COLUMN pruned_at REAL;
ALTER TABLE entry ADD COLUMN origin TEXT;
CREATE INDEX message_final ON message (scope, updated_at) WHERE pruned_at IS NULL AND status IN ('delivered', 'failed');
CREATE INDEX message_pruned ON message (scope, pruned_at) WHERE pruned_at IS NOT NULL;

-- Who may come in. A member has a row for each project that is theirs.
CREATE TABLE member (
    id INTEGER PRIMARY KEY,
    scope INTEGER NOT NULL REFERENCES scope (id),
    name TEXT NOT NULL,
    created_at REAL NOT NULL,
    suspended_at REAL
);
CREATE UNIQUE INDEX member_name ON member (name, scope);

-- Tokens, and the cookies of browsers; of each only the digest of its secret. bound: good for the project of its scope alone.
-- parent: the token that a cookie came from, which takes the cookie with it when it is revoked.
CREATE TABLE token (
    n INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    scope INTEGER NOT NULL REFERENCES scope (id),
    carrier TEXT NOT NULL CHECK (carrier IN ('bearer', 'cookie')),
    digest BLOB NOT NULL UNIQUE,
    kind TEXT NOT NULL CHECK (kind IN ('operator', 'project', 'member')),
    member TEXT,
    bound INTEGER NOT NULL,
    label TEXT NOT NULL,
    parent TEXT,
    created_at REAL NOT NULL,
    used_at REAL,
    expires_at REAL,
    revoked_at REAL,
    CHECK ((kind = 'member') = (member IS NOT NULL))
);
CREATE INDEX token_expires ON token (expires_at) WHERE carrier = 'cookie';

-- maker: the credential that asked for the ticket; NULL for the operator's own token.
CREATE TABLE ticket (
    id INTEGER PRIMARY KEY,
    scope INTEGER NOT NULL REFERENCES scope (id),
    digest BLOB NOT NULL UNIQUE,
    purpose TEXT NOT NULL CHECK (purpose IN ('ws', 'console')),
    kind TEXT NOT NULL,
    member TEXT,
    bound INTEGER NOT NULL,
    maker TEXT,
    expires_at REAL NOT NULL,
    used_by TEXT
);
CREATE INDEX ticket_expires ON ticket (expires_at);
