-- Sessions and upkeep.

-- name: scope_insert
-- A tenant's project on first use.
INSERT INTO scope (tenant, project) VALUES (?, ?) ON CONFLICT DO NOTHING

-- name: scope_id
-- The row of a scope.
SELECT id FROM scope WHERE tenant = ? AND project = ?

-- name: mailbox_insert
-- A new mailbox, idle.
INSERT INTO mailbox (scope, recipient, updated_at) VALUES :rows
RETURNING id

-- name: session_insert
-- A new session.
INSERT INTO session (id, scope, mailbox, kind, agent, path, title, first_title, parent, child_state, deadline, created_at,
    first_path)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: session_at_path
-- The living session that a path names.
SELECT id, agent, kind FROM session WHERE scope = ? AND path = ? AND deleted_at IS NULL

-- name: session_row
-- A session as ops return it.
SELECT s.id, c.tenant, c.project, s.kind, s.agent, s.path, s.title, s.parent, s.child_state, s.created_at, m.updated_at,
    m.head IS NOT NULL OR EXISTS (SELECT 1 FROM session AS x WHERE x.parent = s.id AND x.child_state = 'running'),
    m.last_event, m.last_seq, s.deleted_at, s.mailbox, s.scope, m.recipient, m.epoch, m.last_event, s.first_title, s.first_path
FROM session AS s JOIN mailbox AS m ON m.id = s.mailbox JOIN scope AS c ON c.id = s.scope
WHERE s.id = ? AND s.scope = ?

-- name: children_running
-- How many children a parent has running, and how many its project.
SELECT (SELECT count(*) FROM session WHERE parent = ? AND child_state = 'running'),
    (SELECT count(*) FROM session WHERE scope = ? AND child_state = 'running')

-- name: session_rename
-- Set a title.
UPDATE session SET title = ? WHERE id = ?

-- name: session_delete
-- The session answers as not existing from now on, and its path is free.
UPDATE session SET deleted_at = ?, child_state = CASE WHEN child_state = 'running' THEN 'deleted' ELSE child_state END
WHERE id = ? AND deleted_at IS NULL

-- name: mailbox_close
-- Fence every holder out of a deleted session's mailbox; nothing of its lease, its turn or its stop is left. A stuck task still lives.
UPDATE mailbox SET due = NULL, epoch = epoch + 1, holder = NULL, holder_kind = NULL, nonce = NULL, head = NULL, depth = 0,
    taken = 0, block = 0, stop_at = NULL, stop_grace = NULL, stop_key = NULL, stop_key_turn = NULL, handoff = NULL,
    updated_at = ?
WHERE id = ?

-- name: open_rows
-- All open messages of a mailbox, oldest first.
SELECT id, uid, message_id, status, claims, kind, sender, sender_kind FROM message
WHERE mailbox = ? AND status IN ('pending', 'processing') ORDER BY id

-- name: stop_target
-- What a stop needs to know of a session's running turn.
SELECT m.id, m.head, m.stop_at, h.uid, m.last_event, s.deleted_at, s.kind, m.stop_key, m.stop_key_turn
FROM mailbox AS m LEFT JOIN session AS s ON s.mailbox = m.id LEFT JOIN message AS h ON h.id = m.head
WHERE m.recipient = ? AND m.scope = ?

-- name: stop_store
-- Store a stop for the running turn; the first one stands.
UPDATE mailbox SET stop_at = ?, stop_grace = ?, updated_at = ? WHERE id = ? AND head = ? AND stop_at IS NULL

-- name: stop_key_store
-- Remember which turn a caller's key has stopped: its repeat must not stop the next one.
UPDATE mailbox SET stop_key = ?, stop_key_turn = ? WHERE id = ?

-- name: stop_forget
-- The turn that a stop waited for will not run again.
UPDATE mailbox SET stop_at = NULL, stop_grace = NULL WHERE id = ? AND head IS NULL

-- name: absorbed_forget
-- What a turn had taken in that will not run again is a message like any other.
UPDATE message SET absorbed_by = NULL WHERE mailbox = ? AND status IN ('pending', 'processing') AND absorbed_by = ?

-- name: stuck_clear
-- A stuck task of this process has ended.
UPDATE mailbox SET stuck = NULL WHERE id = ? AND stuck = ?

-- name: meta_get
-- A value of the store itself.
SELECT value FROM meta WHERE key = ?

-- name: meta_put
-- Set a value of the store itself.
INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value

-- name: events_to_prune
-- Old events in the order they were written, from where the last pruning stopped.
SELECT id, mailbox, n, kind FROM (SELECT id, mailbox, n, kind, at FROM event WHERE id > ?1 ORDER BY id LIMIT ?3) WHERE at < ?2
ORDER BY id

-- name: event_last
-- The newest event that is left at or before a place.
SELECT coalesce(max(id), 0) FROM event WHERE id <= ?

-- name: event_delete
-- Forget one event.
DELETE FROM event WHERE id = ?

-- name: floor_raise
-- Ids at or below the floor may be gone.
UPDATE mailbox SET event_floor = max(event_floor, ?) WHERE id = ?

-- name: integrity
-- The database's own opinion of itself.
PRAGMA quick_check

-- name: waiting_rows
-- Messages of a mailbox that wait behind its running turn, oldest first.
SELECT id, uid, message_id, status, claims, kind, sender, sender_kind FROM message
WHERE mailbox = ? AND status IN ('pending', 'processing') AND status = 'pending' ORDER BY id
