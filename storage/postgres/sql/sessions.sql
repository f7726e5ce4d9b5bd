-- Sessions and upkeep.

-- name: scope_insert
-- A tenant's project on first use.
INSERT INTO scope (tenant, project) VALUES ($1, $2) ON CONFLICT DO NOTHING

-- name: scope_id
-- The row of a scope.
SELECT id FROM scope WHERE tenant = $1 AND project = $2

-- name: mailbox_insert
-- A new mailbox, idle.
INSERT INTO mailbox (scope, recipient, updated_at) SELECT * FROM unnest($1::bigint[], $2::text[], $3::float8[])
RETURNING id

-- name: session_insert
-- A new session.
INSERT INTO session (id, scope, mailbox, kind, agent, path, title, first_title, parent, child_state, deadline, created_at,
    first_path)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)

-- name: session_at_path
-- The living session that a path names.
SELECT id, agent, kind FROM session WHERE scope = $1 AND path = $2 AND deleted_at IS NULL

-- name: session_row
-- A session as ops return it.
SELECT s.id, c.tenant, c.project, s.kind, s.agent, s.path, s.title, s.parent, s.child_state, s.created_at, m.updated_at,
    (m.head IS NOT NULL OR (
        SELECT 1 FROM session AS x WHERE x.parent = s.id AND x.scope = s.scope AND x.child_state = 'running' LIMIT 1
    ) IS NOT NULL)::int,
    m.last_event, m.last_seq, s.deleted_at, s.mailbox, s.scope, m.recipient, m.epoch, m.last_event, s.first_title, s.first_path
FROM session AS s JOIN mailbox AS m ON m.id = s.mailbox JOIN scope AS c ON c.id = s.scope
WHERE s.id = $1 AND s.scope = $2

-- name: children_running
-- How many children a parent has running, and how many its project.
SELECT (SELECT count(*) FROM session WHERE parent = $1 AND scope = $2 AND child_state = 'running'),
    (SELECT count(*) FROM session WHERE scope = $2 AND child_state = 'running')

-- name: session_rename
-- Set a title.
UPDATE session SET title = $1 WHERE id = $2

-- name: session_delete
-- The session answers as not existing from now on, and its path is free.
UPDATE session SET deleted_at = $1, child_state = CASE WHEN child_state = 'running' THEN 'deleted' ELSE child_state END
WHERE id = $2 AND deleted_at IS NULL

-- name: mailbox_close
-- Fence every holder out of a deleted session's mailbox; nothing of its lease, its turn or its stop is left. A stuck task still lives.
UPDATE mailbox SET due = NULL, epoch = epoch + 1, holder = NULL, holder_kind = NULL, nonce = NULL, head = NULL, depth = 0,
    taken = 0, block = 0, stop_at = NULL, stop_grace = NULL, stop_key = NULL, stop_key_turn = NULL, handoff = NULL,
    updated_at = $1
WHERE id = $2

-- name: open_rows
-- All open messages of a mailbox, oldest first.
SELECT id, uid, message_id, status, claims, kind, sender, sender_kind FROM message
WHERE mailbox = $1 AND status IN ('pending', 'processing') ORDER BY id

-- name: stop_target
-- What a stop needs to know of a session's running turn.
SELECT m.id, m.head, m.stop_at, h.uid, m.last_event, s.deleted_at, s.kind, m.stop_key, m.stop_key_turn
FROM (SELECT * FROM mailbox AS x WHERE x.recipient = $1 OFFSET 0) AS m
LEFT JOIN session AS s ON s.mailbox = m.id LEFT JOIN message AS h ON h.id = m.head
WHERE m.scope = $2

-- name: stop_store
-- Store a stop for the running turn; the first one stands.
UPDATE mailbox SET stop_at = $1, stop_grace = $2, updated_at = $3 WHERE id = $4 AND head = $5 AND stop_at IS NULL

-- name: stop_key_store
-- Remember which turn a caller's key has stopped: its repeat must not stop the next one.
UPDATE mailbox SET stop_key = $1, stop_key_turn = $2 WHERE id = $3

-- name: stop_forget
-- The turn that a stop waited for will not run again.
UPDATE mailbox SET stop_at = NULL, stop_grace = NULL WHERE id = $1 AND head IS NULL

-- name: absorbed_forget
-- What a turn had taken in that will not run again is a message like any other.
UPDATE message SET absorbed_by = NULL WHERE mailbox = $1 AND status IN ('pending', 'processing') AND absorbed_by = $2

-- name: stuck_clear
-- A stuck task of this process has ended.
UPDATE mailbox SET stuck = NULL WHERE id = $1 AND stuck = $2

-- name: meta_get
-- A value of the store itself.
SELECT value FROM meta WHERE key = $1

-- name: meta_put
-- Set a value of the store itself.
INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value

-- name: events_to_prune
-- Old events in the order they were written, from where the last pruning stopped.
SELECT id, mailbox, n, kind FROM (SELECT id, mailbox, n, kind, at FROM event WHERE id > $1 ORDER BY id LIMIT $3) AS e
WHERE at < $2 ORDER BY id

-- name: event_last
-- The newest event that is left at or before a place.
SELECT coalesce(max(id), 0) FROM event WHERE id <= $1

-- name: event_delete
-- Forget events.
DELETE FROM event USING unnest($1::bigint[]) AS v (id) WHERE event.id = v.id

-- name: floor_raise
-- Ids at or below the floor may be gone. The mailboxes are locked in the one order that all transactions take.
WITH v AS (SELECT * FROM unnest($1::bigint[], $2::bigint[]) AS v (floor, id)),
    m AS MATERIALIZED (SELECT id FROM mailbox WHERE id IN (SELECT id FROM v) ORDER BY id FOR NO KEY UPDATE)
UPDATE mailbox SET event_floor = greatest(event_floor, v.floor) FROM v JOIN m USING (id) WHERE mailbox.id = v.id

-- name: integrity
-- The database's own opinion of itself: of the pages it has read, whether one was not as it had been written.
SELECT CASE WHEN coalesce(checksum_failures, 0) = 0 THEN 'ok' ELSE checksum_failures || ' damaged pages were read' END
FROM pg_stat_database WHERE datname = current_database()

-- name: waiting_rows
-- Messages of a mailbox that wait behind its running turn, oldest first.
SELECT id, uid, message_id, status, claims, kind, sender, sender_kind FROM message
WHERE mailbox = $1 AND status IN ('pending', 'processing') AND status = 'pending' ORDER BY id
