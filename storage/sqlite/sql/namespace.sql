-- Paths that move, rules by prefix, navigation, handoffs.

-- name: session_move
-- Give a session another path.
UPDATE session SET path = ? WHERE id = ?

-- name: redirect_at
-- The living session that an old path leads to.
SELECT s.id, s.agent, s.path FROM redirect AS r JOIN session AS s ON s.id = r.session
WHERE r.scope = ? AND r.path = ? AND r.expires > ? AND s.deleted_at IS NULL

-- name: redirect_put
-- An old path leads to its session from now on.
INSERT INTO redirect (scope, path, session, expires) VALUES (?, ?, ?, ?)
ON CONFLICT (scope, path) DO UPDATE SET session = excluded.session, expires = excluded.expires

-- name: redirect_drop
-- A path that is given to somebody leads nowhere else.
DELETE FROM redirect WHERE scope = ? AND path = ?

-- name: redirects_forget
-- Old paths whose time is over.
DELETE FROM redirect WHERE expires <= ?

-- name: redirects_of_session
-- Nothing leads to a deleted session.
DELETE FROM redirect WHERE session = ?

-- name: policy_rules
-- The rules of a project.
SELECT prefix, edge, agents, handoff, confirm FROM policy WHERE scope = ? ORDER BY prefix

-- name: session_place
-- Where a session stands: its path, and the session it was started for.
SELECT path, parent FROM session WHERE id = ? AND scope = ?

-- name: policy_put
-- Set what holds at a prefix.
INSERT INTO policy (scope, prefix, edge, agents, handoff, confirm) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (scope, prefix) DO UPDATE
SET edge = excluded.edge, agents = excluded.agents, handoff = excluded.handoff, confirm = excluded.confirm

-- name: policy_drop
-- A prefix of which nothing more is said.
DELETE FROM policy WHERE scope = ? AND prefix = ?

-- name: frontiers
-- The newest event of each session that has a path, as far as the first so many paths.
SELECT s.id, m.last_event FROM session AS s JOIN mailbox AS m ON m.id = s.mailbox
WHERE s.scope = ? AND s.path IS NOT NULL AND s.deleted_at IS NULL AND s.kind <> 'internal' ORDER BY s.path LIMIT ?

-- name: frontiers_of
-- The newest event of sessions of a project that are named.
WITH v (id, scope) AS (VALUES :rows)
SELECT s.id, m.last_event FROM v CROSS JOIN session AS s ON s.id = v.id AND s.scope = v.scope JOIN mailbox AS m ON m.id = s.mailbox
WHERE s.deleted_at IS NULL AND s.kind <> 'internal'

-- name: navigation_put
-- Where a client went last.
INSERT INTO navigation (scope, principal, client, session, frontiers, at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (scope, principal, client) DO UPDATE
SET session = excluded.session, frontiers = excluded.frontiers, at = excluded.at

-- name: navigation_frontiers
-- What was noted when a client went somewhere.
SELECT frontiers FROM navigation WHERE scope = ? AND principal = ? AND client = ?

-- name: navigations_limit
-- Clients of one principal beyond so many, the oldest.
DELETE FROM navigation WHERE id IN (
    SELECT id FROM navigation WHERE scope = ? AND principal = ? ORDER BY at DESC, id DESC LIMIT -1 OFFSET ?
)

-- name: navigations_forget
-- Clients that have not come back.
DELETE FROM navigation WHERE at < ?

-- name: mailbox_handoff
-- What the running turn has handed over to.
UPDATE mailbox SET handoff = ? WHERE id = ?

-- name: entry_handoff
-- What the turn of an answer has handed over to.
UPDATE entry SET handoff = ? WHERE mailbox = ? AND seq = ?
