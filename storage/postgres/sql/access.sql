-- Who may come in. Credentials are looked up before it is known in which project they act: by a digest that nobody can guess, or by id.
-- Listings are the operator's and name the tenant.

-- name: member_insert
-- A member's place in a project; a suspension holds for all of them.
INSERT INTO member (scope, name, created_at, suspended_at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING

-- name: member_places
-- The projects of a member.
SELECT c.project, m.created_at, m.suspended_at
FROM scope AS c JOIN member AS m ON m.scope = c.id WHERE c.tenant = $1 AND m.name = $2 ORDER BY c.project

-- name: member_suspend
-- Suspend a member in every project of a tenant, or lift it.
UPDATE member SET suspended_at = $1 WHERE name = $2 AND scope IN (SELECT id FROM scope WHERE tenant = $3)

-- name: members_list
-- Members by name; the cursor is the last name seen.
SELECT m.name, string_agg(c.project, ','), min(m.created_at), max(m.suspended_at)
FROM scope AS c JOIN member AS m ON m.scope = c.id
WHERE c.tenant = :tenant AND (:after::text IS NULL OR m.name > :after::text)
GROUP BY m.name ORDER BY m.name LIMIT :limit

-- name: token_insert
-- A new token, or the cookie that a ticket was exchanged for.
INSERT INTO token (id, scope, carrier, digest, kind, member, bound, label, parent, created_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)

-- name: token_row
-- A credential as people may see it.
SELECT t.id, t.carrier, t.kind, t.member, t.bound, c.tenant, c.project, t.label, t.created_at, t.used_at, t.expires_at,
    t.revoked_at
FROM token AS t JOIN scope AS c ON c.id = t.scope WHERE t.id = $1 AND c.tenant = $2

-- name: tokens_list
-- Credentials, newest first; the cursor is the row of the last one seen.
SELECT t.id, t.carrier, t.kind, t.member, t.bound, c.tenant, c.project, t.label, t.created_at, t.used_at, t.expires_at,
    t.revoked_at, t.n
FROM scope AS c JOIN token AS t ON t.scope = c.id
WHERE c.tenant = :tenant AND (:before::bigint IS NULL OR t.n < :before::bigint) ORDER BY t.n DESC LIMIT :limit

-- name: token_revoke
-- Make a credential invalid; the first time stands.
UPDATE token SET revoked_at = coalesce(revoked_at, $1) WHERE id = $2

-- name: token_use
-- Note that a credential was used.
UPDATE token SET used_at = $1 WHERE id = $2 AND coalesce(used_at, -1e18) <= $3

-- name: standing_by_digest
-- A valid credential by its secret, with the projects of the member behind it.
SELECT t.id, t.carrier, t.kind, t.member, t.bound, c.tenant, c.project, t.label, t.used_at, t.parent,
    (SELECT string_agg(x.project, ',') FROM member AS m JOIN scope AS x ON x.id = m.scope
     WHERE m.name = t.member AND x.tenant = c.tenant AND m.suspended_at IS NULL)
FROM token AS t JOIN scope AS c ON c.id = t.scope LEFT JOIN token AS p ON p.id = t.parent
WHERE t.digest = :digest AND t.carrier = :carrier AND t.revoked_at IS NULL AND p.revoked_at IS NULL
    AND (t.expires_at IS NULL OR t.expires_at > :now)

-- name: standing_by_id
-- The same of a credential that was good a while ago.
SELECT t.id, t.carrier, t.kind, t.member, t.bound, c.tenant, c.project, t.label, t.used_at, t.parent,
    (SELECT string_agg(x.project, ',') FROM member AS m JOIN scope AS x ON x.id = m.scope
     WHERE m.name = t.member AND x.tenant = c.tenant AND m.suspended_at IS NULL)
FROM token AS t JOIN scope AS c ON c.id = t.scope LEFT JOIN token AS p ON p.id = t.parent
WHERE t.id = :id AND t.revoked_at IS NULL AND p.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > :now)

-- name: ticket_insert
-- A new ticket.
INSERT INTO ticket (scope, digest, purpose, kind, member, bound, maker, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)

-- name: ticket_row
-- A ticket by its secret, with the place it was made in. It is locked: two processes may be asked to use it up at once.
SELECT t.purpose, t.kind, t.member, t.bound, t.maker, t.expires_at, t.used_by, c.tenant, c.project, t.scope
FROM ticket AS t JOIN scope AS c ON c.id = t.scope WHERE t.digest = $1 FOR NO KEY UPDATE OF t

-- name: ticket_use
-- Use a ticket up.
UPDATE ticket SET used_by = $1 WHERE digest = $2

-- name: tickets_forget
-- Tickets that ended long ago.
DELETE FROM ticket WHERE expires_at < $1

-- name: cookies_forget
-- Cookies that ended long ago.
DELETE FROM token WHERE carrier = 'cookie' AND expires_at < $1
