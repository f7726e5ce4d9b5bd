-- Paths that move, rules by prefix, navigation, handoffs.

-- name: session_move
-- Give a session another path.
UPDATE session SET path = $1 WHERE id = $2

-- name: redirect_at
-- The living session that an old path leads to.
SELECT s.id, s.agent, s.path FROM redirect AS r JOIN session AS s ON s.id = r.session
WHERE r.scope = $1 AND r.path = $2 AND r.expires > $3 AND s.deleted_at IS NULL

-- name: redirect_put
-- An old path leads to its session from now on.
INSERT INTO redirect (scope, path, session, expires) VALUES ($1, $2, $3, $4)
ON CONFLICT (scope, path) DO UPDATE SET session = excluded.session, expires = excluded.expires

-- name: redirect_drop
-- A path that is given to somebody leads nowhere else.
DELETE FROM redirect WHERE scope = $1 AND path = $2

-- name: redirects_forget
-- Old paths whose time is over.
DELETE FROM redirect WHERE expires <= $1

-- name: redirects_of_session
-- Nothing leads to a deleted session.
DELETE FROM redirect WHERE session = $1

-- name: policy_rules
-- The rules of a project.
SELECT prefix, edge, agents, handoff, confirm FROM policy WHERE scope = $1 ORDER BY prefix

-- name: session_place
-- Where a session stands: its path, and the session it was started for.
SELECT path, parent FROM session WHERE id = $1 AND scope = $2

-- name: policy_put
-- Set what holds at a prefix.
INSERT INTO policy (scope, prefix, edge, agents, handoff, confirm) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (scope, prefix) DO UPDATE
SET edge = excluded.edge, agents = excluded.agents, handoff = excluded.handoff, confirm = excluded.confirm

-- name: policy_drop
-- A prefix of which nothing more is said.
DELETE FROM policy WHERE scope = $1 AND prefix = $2

-- name: frontiers
-- The newest event of each session that has a path, as far as the first so many paths.
SELECT s.id, m.last_event FROM (
    SELECT * FROM session AS x WHERE x.scope = $1 AND x.path > '' AND x.deleted_at IS NULL AND x.kind <> 'internal'
    ORDER BY x.path LIMIT $2
) AS s JOIN mailbox AS m ON m.id = s.mailbox

-- name: frontiers_of
-- The newest event of sessions of a project that are named.
SELECT s.id, m.last_event FROM unnest($1::text[], $2::bigint[]) AS v (id, scope)
JOIN session AS s ON s.id = v.id AND s.scope = v.scope JOIN mailbox AS m ON m.id = s.mailbox
WHERE s.deleted_at IS NULL AND s.kind <> 'internal'

-- name: navigation_put
-- Where a client went last.
INSERT INTO navigation (scope, principal, client, session, frontiers, at) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (scope, principal, client) DO UPDATE
SET session = excluded.session, frontiers = excluded.frontiers, at = excluded.at

-- name: navigation_frontiers
-- What was noted when a client went somewhere.
SELECT frontiers FROM navigation WHERE scope = $1 AND principal = $2 AND client = $3

-- name: navigations_limit
-- Clients of one principal beyond so many, the oldest.
DELETE FROM navigation WHERE id IN (
    SELECT id FROM navigation WHERE scope = $1 AND principal = $2 ORDER BY at DESC, id DESC OFFSET $3
)

-- name: navigations_forget
-- Clients that have not come back.
DELETE FROM navigation WHERE at < $1

-- name: mailbox_handoff
-- What the running turn has handed over to.
UPDATE mailbox SET handoff = $1 WHERE id = $2

-- name: entry_handoff
-- What the turn of an answer has handed over to.
UPDATE entry SET handoff = $1 WHERE mailbox = $2 AND seq = $3
