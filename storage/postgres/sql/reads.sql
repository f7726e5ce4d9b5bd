-- Reads. Each one names tenant and project, so that no row is read without both (NS-5).

-- name: session_by_id
-- One session.
SELECT s.id, c.tenant, c.project, s.kind, s.agent, s.path, s.title, s.parent, s.child_state, s.created_at, m.updated_at,
    (m.head IS NOT NULL OR (
        SELECT 1 FROM session AS x WHERE x.parent = s.id AND x.scope = s.scope AND x.child_state = 'running' LIMIT 1
    ) IS NOT NULL)::int,
    m.last_event, m.last_seq
FROM session AS s JOIN mailbox AS m ON m.id = s.mailbox JOIN scope AS c ON c.id = s.scope
WHERE s.id = :id AND c.tenant = :tenant AND c.project = :project AND s.deleted_at IS NULL AND s.kind <> 'internal'

-- name: session_by_path
-- The living session that a path names.
SELECT s.id, c.tenant, c.project, s.kind, s.agent, s.path, s.title, s.parent, s.child_state, s.created_at, m.updated_at,
    (m.head IS NOT NULL OR (
        SELECT 1 FROM session AS x WHERE x.parent = s.id AND x.scope = s.scope AND x.child_state = 'running' LIMIT 1
    ) IS NOT NULL)::int,
    m.last_event, m.last_seq
FROM scope AS c CROSS JOIN LATERAL (
    SELECT * FROM session AS x WHERE x.scope = c.id AND x.path = :path AND x.deleted_at IS NULL OFFSET 0
) AS s JOIN mailbox AS m ON m.id = s.mailbox
WHERE c.tenant = :tenant AND c.project = :project AND s.kind <> 'internal'

-- name: sessions_list
-- Living sessions, or only the idle ones, newest change first, along the index of changes; the cursor is (updated, mailbox) of the last seen.
SELECT s.id, c.tenant, c.project, s.kind, s.agent, s.path, s.title, s.parent, s.child_state, s.created_at, m.updated_at,
    b.busy::int,
    m.last_event, m.last_seq, m.id
FROM scope AS c JOIN mailbox AS m ON m.scope = c.id JOIN session AS s ON s.mailbox = m.id
CROSS JOIN LATERAL (
    SELECT m.head IS NOT NULL OR coalesce(s.child_state, '') = 'running'
        OR (
            SELECT 1 FROM session AS x WHERE x.parent = s.id AND x.scope = s.scope AND x.child_state = 'running' LIMIT 1
        ) IS NOT NULL
) AS b (busy)
WHERE c.tenant = :tenant AND c.project = :project AND s.deleted_at IS NULL AND s.kind <> 'internal'
    AND (:idle::int = 0 OR NOT b.busy)
    AND m.updated_at <= :updated AND (m.updated_at < :updated OR m.id < :row)
ORDER BY m.updated_at DESC, m.id DESC LIMIT :limit

-- name: sessions_active
-- The same of the active ones: found by what makes them active, as they are few, and then sorted (hence the zero). A mailbox
-- with a turn is always due, if only at the end of its lease.
SELECT s.id, c.tenant, c.project, s.kind, s.agent, s.path, s.title, s.parent, s.child_state, s.created_at, m.updated_at,
    b.busy::int,
    m.last_event, m.last_seq, m.id
FROM scope AS c JOIN mailbox AS m ON m.scope = c.id JOIN session AS s ON s.mailbox = m.id
CROSS JOIN LATERAL (
    SELECT m.head IS NOT NULL OR coalesce(s.child_state, '') = 'running'
        OR (
            SELECT 1 FROM session AS x WHERE x.parent = s.id AND x.scope = s.scope AND x.child_state = 'running' LIMIT 1
        ) IS NOT NULL
) AS b (busy)
WHERE c.tenant = :tenant AND c.project = :project AND s.deleted_at IS NULL AND s.kind <> 'internal'
    AND m.id IN (
        SELECT id FROM mailbox WHERE due IS NOT NULL AND head IS NOT NULL
        UNION SELECT x.mailbox FROM session AS x WHERE x.child_state = 'running'
        UNION SELECT p.mailbox FROM session AS x JOIN session AS p ON p.id = x.parent WHERE x.child_state = 'running'
    )
    AND m.updated_at <= :updated AND (m.updated_at < :updated OR m.id < :row)
ORDER BY m.updated_at + 0 DESC, m.id DESC LIMIT :limit

-- name: transcript
-- Entries above a number, each with the state of its message; an answer names what it answers.
SELECT t.seq, t.role, t.content, t.at, h.uid, h.message_id, h.status, h.sender, h.sender_kind, h.sender_label, s.id, s.agent,
    t.origin, t.handoff
FROM scope AS c JOIN session AS s ON s.scope = c.id JOIN entry AS t ON t.mailbox = s.mailbox
LEFT JOIN message AS h ON h.id = t.message
WHERE s.id = :id AND c.tenant = :tenant AND c.project = :project AND t.seq > :after
ORDER BY t.seq LIMIT :limit

-- name: transcript_tail
-- The newest entries that people and agents see, newest first.
SELECT t.seq, t.role, t.content, t.at, h.uid, h.message_id, h.status, h.sender, h.sender_kind, h.sender_label, s.id, s.agent,
    t.origin, t.handoff
FROM scope AS c JOIN session AS s ON s.scope = c.id JOIN entry AS t ON t.mailbox = s.mailbox
LEFT JOIN message AS h ON h.id = t.message
WHERE s.id = :id AND c.tenant = :tenant AND c.project = :project AND t.role IN ('user', 'assistant')
ORDER BY t.seq DESC LIMIT :limit

-- name: entries_count
-- How many visible entries a session has.
SELECT count(*) FROM scope AS c JOIN session AS s ON s.scope = c.id JOIN entry AS t ON t.mailbox = s.mailbox
WHERE s.id = :id AND c.tenant = :tenant AND c.project = :project AND t.role IN ('user', 'assistant')

-- name: message_named
-- Messages by our id or by a sender's own id; several senders may use the same, so what the caller means comes first.
SELECT h.uid, h.message_id, coalesce(s.id, m.recipient), h.sender, h.sender_kind, h.sender_label, h.kind, h.status, h.outcome,
    h.reason, h.seq, h.created_at, h.leased_at, h.surfaced_at, h.delivered_at, h.claims, h.attempts, h.max_attempts,
    h.takeovers, h.available_at, h.updated_at, CASE WHEN h.pruned_at IS NULL THEN t.content END, h.chain, h.hops, h.transport, h.destination_peer, h.payload,
    h.last_error, h.reply_to, h.requeued_from, h.principal,
    CASE WHEN h.status = 'processing' THEN m.holder END, CASE WHEN h.status = 'processing' THEN m.due END,
    CASE WHEN h.status = 'processing' THEN m.epoch END, h.id,
    coalesce((SELECT k.turn FROM marker AS k WHERE k.mailbox = h.mailbox AND k.message = h.id),
        (SELECT 'turn_' || substr(a.uid, 5) FROM message AS a WHERE a.id = h.absorbed_by)),
    h.pruned_at
FROM scope AS c CROSS JOIN LATERAL (
    SELECT * FROM message AS x WHERE x.scope = c.id AND x.uid = :id
    UNION ALL SELECT * FROM message AS x WHERE x.scope = c.id AND x.message_id = :id AND x.uid <> :id
) AS h JOIN mailbox AS m ON m.id = h.mailbox
LEFT JOIN session AS s ON s.mailbox = m.id LEFT JOIN entry AS t ON t.mailbox = h.mailbox AND t.seq = h.seq
WHERE c.tenant = :tenant AND c.project = :project AND coalesce(s.kind, '') <> 'internal'
ORDER BY h.uid = :id DESC, h.principal = :principal DESC LIMIT 3

-- name: inbox_list
-- Messages, newest first, by target, state, peer and age; the cursor is the row of the last one seen.
SELECT h.uid, h.message_id, coalesce(s.id, m.recipient), h.sender, h.sender_kind, h.sender_label, h.kind, h.status, h.outcome,
    h.reason, h.seq, h.created_at, h.leased_at, h.surfaced_at, h.delivered_at, h.claims, h.attempts, h.max_attempts,
    h.takeovers, h.available_at, h.updated_at, CASE WHEN h.pruned_at IS NULL THEN t.content END, h.chain, h.hops, h.transport, h.destination_peer, h.payload,
    h.last_error, h.reply_to, h.requeued_from, h.principal,
    CASE WHEN h.status = 'processing' THEN m.holder END, CASE WHEN h.status = 'processing' THEN m.due END,
    CASE WHEN h.status = 'processing' THEN m.epoch END, h.id,
    coalesce((SELECT k.turn FROM marker AS k WHERE k.mailbox = h.mailbox AND k.message = h.id),
        (SELECT 'turn_' || substr(a.uid, 5) FROM message AS a WHERE a.id = h.absorbed_by)),
    h.pruned_at
FROM scope AS c JOIN message AS h ON h.scope = c.id JOIN mailbox AS m ON m.id = h.mailbox
LEFT JOIN session AS s ON s.mailbox = m.id LEFT JOIN entry AS t ON t.mailbox = h.mailbox AND t.seq = h.seq
WHERE c.tenant = :tenant AND c.project = :project AND coalesce(s.kind, '') <> 'internal'
    AND (:target::text IS NULL OR s.id = :target::text) AND (:status::text IS NULL OR h.status = :status::text)
    AND (:peer::text IS NULL OR h.destination_peer = :peer::text) AND (:before::float8 IS NULL OR h.created_at < :before::float8)
    AND (:row::bigint IS NULL OR h.id < :row::bigint)
ORDER BY h.id DESC LIMIT :limit

-- name: attempts_of
-- How the attempts of a message ended, oldest first.
SELECT a.attempt, a.ending, a.detail, a.status, a.due, a.at
FROM scope AS c JOIN message AS h ON h.scope = c.id JOIN attempt AS a ON a.message = h.id
WHERE c.tenant = :tenant AND c.project = :project AND h.uid = :id ORDER BY a.id

-- name: events_after
-- Events above a cursor with the text that belongs to them, and the session's counters in the same snapshot.
SELECT e.n, e.kind, e.turn, e.data, e.at, t.content
FROM scope AS c JOIN session AS s ON s.scope = c.id JOIN event AS e ON e.mailbox = s.mailbox
LEFT JOIN entry AS t ON t.mailbox = e.mailbox AND t.seq = e.seq
WHERE s.id = :id AND c.tenant = :tenant AND c.project = :project AND e.n > :after
ORDER BY e.n LIMIT :limit

-- name: turn_events_after
-- Whether a turn has an event above a cursor.
SELECT e.n FROM scope AS c JOIN session AS s ON s.scope = c.id JOIN event AS e ON e.mailbox = s.mailbox
WHERE s.id = :id AND c.tenant = :tenant AND c.project = :project AND e.turn = :turn AND e.n > :after
ORDER BY e.n LIMIT 1

-- name: event_counters
-- The prune floor and the newest event of a session, and whether it was deleted.
SELECT m.event_floor, m.last_event, (s.deleted_at IS NOT NULL)::int
FROM scope AS c JOIN session AS s ON s.scope = c.id JOIN mailbox AS m ON m.id = s.mailbox
WHERE s.id = :id AND c.tenant = :tenant AND c.project = :project AND s.kind <> 'internal'

-- name: event_known
-- Whether a session has an event of a number, or the one behind it.
SELECT e.n FROM scope AS c JOIN session AS s ON s.scope = c.id JOIN event AS e ON e.mailbox = s.mailbox
WHERE s.id = :id AND c.tenant = :tenant AND c.project = :project AND e.n BETWEEN :n AND :n + 1
ORDER BY e.n LIMIT 1

-- name: steps_of
-- The step log of the turn whose head is a message.
SELECT p.key, p.kind, p.ordinal, p.done, p.data, p.result
FROM scope AS c JOIN message AS h ON h.scope = c.id JOIN step AS p ON p.message = h.id
WHERE c.tenant = :tenant AND c.project = :project AND h.uid = :id ORDER BY p.ordinal, p.id

-- name: tokens_of
-- The text that one attempt of a turn has streamed.
SELECT e.data FROM scope AS c JOIN session AS s ON s.scope = c.id JOIN event AS e ON e.mailbox = s.mailbox
WHERE s.id = :id AND c.tenant = :tenant AND c.project = :project AND e.kind = 'turn.token' AND e.turn = :turn AND e.n > :after
ORDER BY e.n

-- name: stop_of
-- A stop that is stored for a session's running turn.
SELECT m.stop_at, m.stop_grace, m.epoch, m.holder
FROM scope AS c JOIN session AS s ON s.scope = c.id JOIN mailbox AS m ON m.id = s.mailbox
WHERE s.id = :id AND c.tenant = :tenant AND c.project = :project

-- name: approval_by_id
-- A question to a person.
SELECT a.id, s.id, a.state, a.expires
FROM scope AS c JOIN approval AS a ON a.scope = c.id LEFT JOIN session AS s ON s.mailbox = a.mailbox
WHERE c.tenant = :tenant AND c.project = :project AND a.id = :id

-- name: session_by_redirect
-- The living session that an old path still leads to.
SELECT s.id, c.tenant, c.project, s.kind, s.agent, s.path, s.title, s.parent, s.child_state, s.created_at, m.updated_at,
    (m.head IS NOT NULL OR (
        SELECT 1 FROM session AS x WHERE x.parent = s.id AND x.scope = s.scope AND x.child_state = 'running' LIMIT 1
    ) IS NOT NULL)::int,
    m.last_event, m.last_seq
FROM scope AS c CROSS JOIN LATERAL (
    SELECT * FROM redirect AS x WHERE x.scope = c.id AND x.path = :path OFFSET 0
) AS r JOIN session AS s ON s.id = r.session JOIN mailbox AS m ON m.id = s.mailbox
WHERE c.tenant = :tenant AND c.project = :project AND r.expires > :now AND s.deleted_at IS NULL AND s.kind <> 'internal'

-- name: sessions_by_path
-- Living sessions that have a path, in the order of paths, above the last one seen.
SELECT s.id, c.tenant, c.project, s.kind, s.agent, s.path, s.title, s.parent, s.child_state, s.created_at, m.updated_at,
    (m.head IS NOT NULL OR (
        SELECT 1 FROM session AS x WHERE x.parent = s.id AND x.scope = s.scope AND x.child_state = 'running' LIMIT 1
    ) IS NOT NULL)::int,
    m.last_event, m.last_seq
FROM scope AS c CROSS JOIN LATERAL (
    SELECT * FROM session AS x
    WHERE x.scope = c.id AND x.path > :after AND x.deleted_at IS NULL AND x.kind <> 'internal' ORDER BY x.path LIMIT :limit
) AS s JOIN mailbox AS m ON m.id = s.mailbox
WHERE c.tenant = :tenant AND c.project = :project ORDER BY s.path

-- name: policy_of
-- The rules of a project.
SELECT p.prefix, p.edge, p.agents, p.handoff, p.confirm FROM scope AS c JOIN policy AS p ON p.scope = c.id
WHERE c.tenant = :tenant AND c.project = :project ORDER BY p.prefix

-- name: navigation_of
-- Where a client of a principal went last.
SELECT n.session, n.frontiers, n.at FROM scope AS c CROSS JOIN LATERAL (
    SELECT * FROM navigation AS x WHERE x.scope = c.id AND x.principal = :principal AND x.client = :client OFFSET 0
) AS n
WHERE c.tenant = :tenant AND c.project = :project

-- name: project_known
-- Whether anything was ever opened in a project, or anybody let in.
SELECT 1 FROM scope AS c WHERE c.tenant = :tenant AND c.project = :project
