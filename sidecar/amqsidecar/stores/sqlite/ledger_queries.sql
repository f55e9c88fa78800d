-- Statements of the ledger in the SQLite file; fragments are those of `queries.sql`.

-- fragment: due_after
-- Beyond the end of a page in order of due times.
    (due_at_ms, id) > (:after_due_ms, :after_id)

-- fragment: due_until
-- In the window that is looked at.
    (due_at_ms, id) <= (:until_due_ms, :until_id)

-- fragment: waiting_by_due
-- Waiting rows.
FROM redelivery INDEXED BY redelivery_due WHERE state = 0 AND

-- fragment: kept_by_due
-- Held or parked rows.
FROM redelivery INDEXED BY redelivery_kept_due WHERE state = :kept AND state <> 0 AND

-- fragment: due_page
-- What of a window is on the page, in order of due times.
    {due_after} AND {due_until} AND {row_conditions}
    ORDER BY due_at_ms, id LIMIT :limit

-- fragment: is_about_row
-- Events of a row's message.
k.redelivery_id = r.redelivery_id

-- fragment: is_resent
-- Members that may still come back.
outcome = 1

-- name: newest_* all kept by_destination by_group by_redelivery_id by_ids
-- A page, the newest row first.
SELECT {view_columns} {*} {in_range} AND {row_conditions} ORDER BY id DESC LIMIT :limit;

-- name: lowest_* all kept by_destination by_group
-- The last row of a window, the newest first.
SELECT id {*} {in_range} ORDER BY id DESC LIMIT 1 OFFSET :window;

-- name: due_* waiting kept
-- A page of rows of one state in order of due times.
SELECT {view_columns} {*_by_due} {due_page};

-- name: latest_* waiting kept
-- The last row of a window of rows of one state, by due time.
SELECT due_at_ms, id {*_by_due} {due_after}
ORDER BY due_at_ms, id LIMIT 1 OFFSET :window;

-- name: sorted_* by_destination by_group by_redelivery_id by_ids
-- A page of the few rows of one kind in order of due times.
SELECT {view_columns} {*} {due_page};

-- name: read_gate_tallies
-- What gates let wait; without a gate's name, what waits for events outside.
SELECT destination, gate, count(*), min(due_at_ms), max(due_at_ms)
FROM redelivery INDEXED BY redelivery_gated
WHERE gate IS NOT NULL AND state = 0 AND due_at_ms > :now_ms GROUP BY destination, gate
UNION ALL SELECT destination, '', count(*), min(due_at_ms), max(due_at_ms)
FROM redelivery INDEXED BY redelivery_gated
WHERE gate IS NOT NULL AND state = 1 AND due_at_ms > :now_ms GROUP BY destination;

-- name: count_due
-- How many rows wait for a time in a range.
SELECT count(*) FROM redelivery INDEXED BY redelivery_due
WHERE state = 0 AND due_at_ms >= ? AND due_at_ms < ?;

-- name: due_of_ids
-- Due times of those of these rows that wait.
SELECT due_at_ms FROM redelivery NOT INDEXED
WHERE id IN (SELECT value FROM json_each(?)) AND state = 0;

-- name: add_to_group
-- Deaths of a known group.
UPDATE failure_group SET
    example_id = CASE WHEN :last_at_ms >= last_at_ms THEN :example_id ELSE example_id END,
    first_at_ms = min(first_at_ms, :first_at_ms),
    last_at_ms = max(last_at_ms, :last_at_ms),
    total = total + :total
WHERE destination = :destination AND cause_group = :cause_group RETURNING id;

-- name: add_group
-- Deaths of a new group.
INSERT INTO failure_group (
    destination, cause_group, first_at_ms, last_at_ms, total, example_id
) VALUES (:destination, :cause_group, :first_at_ms, :last_at_ms, :total, :example_id)
RETURNING id;

-- name: count_groups
-- How many groups are remembered; counts so far only.
SELECT count(*) FROM (SELECT 1 FROM failure_group WHERE total > 0 LIMIT ?);

-- name: read_groups
-- Groups of which one died since a time, the latest first.
SELECT destination, cause_group, first_at_ms, last_at_ms, total, example_id
FROM failure_group INDEXED BY failure_group_by_age
WHERE last_at_ms >= :since_ms AND total > 0 ORDER BY last_at_ms DESC, id DESC LIMIT :limit;

-- name: add_failure_count
-- More events of one kind.
INSERT INTO failure_count (bucket_ms, kind, failure_group, attempt, count) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (bucket_ms, kind, failure_group, attempt)
DO UPDATE SET count = count + excluded.count;

-- name: read_failure_counts
-- Counts of some kinds in a range of time, summed up by steps.
SELECT s.bucket_ms, s.kind, g.destination, g.cause_group, s.attempt, s.count
FROM (
    SELECT c.bucket_ms - c.bucket_ms % :step_ms AS bucket_ms, c.kind AS kind,
        c.failure_group AS failure_group, c.attempt AS attempt, sum(c.count) AS count
    FROM failure_count AS c
    WHERE c.bucket_ms >= :from_ms AND c.bucket_ms < :until_ms
        AND c.kind IN (SELECT value FROM json_each(:kinds))
    GROUP BY 1, 2, 3, 4
) AS s CROSS JOIN failure_group AS g ON g.id = s.failure_group;

-- name: fine_counts
-- Counts by less than an hour before a time.
SELECT bucket_ms, kind, failure_group, attempt, count
FROM failure_count INDEXED BY failure_count_fine
WHERE bucket_ms % 3600000 <> 0 AND bucket_ms < ? ORDER BY bucket_ms LIMIT ?;

-- name: minute_counts
-- Counts by the minute in a range of time.
SELECT bucket_ms, kind, failure_group, attempt, count FROM failure_count
WHERE bucket_ms >= ? AND bucket_ms < ? AND bucket_ms % 300000 <> 0 ORDER BY bucket_ms LIMIT ?;

-- name: delete_failure_count
-- One count.
DELETE FROM failure_count
WHERE bucket_ms = ? AND kind = ? AND failure_group = ? AND attempt = ?;

-- name: old_counts
-- Counts before a time.
SELECT bucket_ms, kind, failure_group, attempt FROM failure_count
WHERE bucket_ms < ? ORDER BY bucket_ms LIMIT ?;

-- name: forget_groups
-- Groups whose last death is too old.
DELETE FROM failure_group WHERE id IN (
    SELECT id FROM failure_group INDEXED BY failure_group_by_age
    WHERE last_at_ms < ? ORDER BY last_at_ms LIMIT ?
) RETURNING id;

-- name: add_operation
-- Take a number for an operation.
INSERT INTO operation (is_running, ended_at_ms, body) VALUES (0, NULL, x'') RETURNING id;

-- name: write_operation
-- An operation as it is now.
UPDATE operation SET is_running = :is_running, ended_at_ms = :ended_at_ms, body = :body
WHERE id = :number;

-- name: running_operations
-- Numbers of those that are running.
SELECT id FROM operation INDEXED BY operation_running WHERE is_running = 1;

-- name: next_followed
-- The next number of an operation that has members of an outcome.
SELECT operation FROM operation_member INDEXED BY operation_member_by_outcome
WHERE outcome = ? AND operation > ? ORDER BY operation LIMIT 1;

-- name: count_unsent_members
-- How many of these messages an operation has changed already, and nobody has sent since.
SELECT count(*) FROM operation_member
WHERE operation = ? AND redelivery_id IN (SELECT value FROM json_each(?)) AND outcome = 0;

-- name: add_member
-- An operation changed a message; if it did so before, what became of it then does not count.
INSERT INTO operation_member (
    operation, redelivery_id, destination, changed_at_ms, outcome, evidence
) VALUES (?, ?, ?, ?, 0, '')
ON CONFLICT (operation, redelivery_id) DO UPDATE SET
    destination = excluded.destination, changed_at_ms = excluded.changed_at_ms,
    resent_at_ms = NULL, outcome = 0, evidence = '';

-- name: read_members
-- Members by redelivery id.
SELECT redelivery_id, destination, changed_at_ms, resent_at_ms, outcome, evidence
FROM operation_member WHERE operation = :operation AND redelivery_id > :after
ORDER BY redelivery_id LIMIT :limit;

-- name: read_members_of_outcome
-- Members of one outcome by redelivery id.
SELECT redelivery_id, destination, changed_at_ms, resent_at_ms, outcome, evidence
FROM operation_member INDEXED BY operation_member_by_outcome
WHERE outcome = :outcome AND operation = :operation AND redelivery_id > :after
ORDER BY redelivery_id LIMIT :limit;

-- name: count_members
-- How many members of an operation have an outcome.
SELECT count(*) FROM operation_member INDEXED BY operation_member_by_outcome
WHERE outcome = ? AND operation = ?;

-- name: open_members
-- Members of a message whose outcome is not known.
SELECT operation, destination, changed_at_ms, resent_at_ms, outcome
FROM operation_member INDEXED BY operation_member_open WHERE redelivery_id = ? AND outcome < 2;

-- name: set_outcome
-- What became of a member, unless it is known by now.
UPDATE operation_member SET outcome = ?, evidence = ?
WHERE operation = ? AND redelivery_id = ? AND outcome IN (0, ?);

-- name: set_member
-- What was seen of a member.
UPDATE operation_member SET resent_at_ms = ?, outcome = ?, evidence = ?
WHERE operation = ? AND redelivery_id = ?;

-- name: ended_operations
-- Operations that ended before a time and for which no row is to be discarded, the oldest first.
SELECT id FROM operation INDEXED BY operation_ended
WHERE ended_at_ms IS NOT NULL AND ended_at_ms < ?
    AND id NOT IN (
        SELECT recall_operation FROM redelivery WHERE recall IN (3, 4, 7) AND recall <> 0
    )
ORDER BY ended_at_ms LIMIT ?;

-- name: forget_members
-- Some members of an operation.
DELETE FROM operation_member WHERE operation = :operation AND redelivery_id IN (
    SELECT redelivery_id FROM operation_member WHERE operation = :operation LIMIT :limit
) RETURNING 1;

-- name: forget_operation
-- An operation without members.
DELETE FROM operation WHERE id = ?;

-- name: replace_message
-- Other bytes of a row.
UPDATE message SET body = ? WHERE id = ?;

-- name: set_size
-- The size of a row's message.
UPDATE redelivery SET size_bytes = ? WHERE id = ?;

-- name: row_of_message
-- What an edit has to know of a row.
SELECT r.redelivery_id, r.encoding, r.size_bytes, m.body
FROM redelivery AS r NOT INDEXED CROSS JOIN message AS m ON m.id = r.id WHERE r.id = ?;

-- name: add_original
-- A message as it was.
INSERT INTO original (redelivery_id, row_id, edited_at_ms, actor, encoding, size_bytes, body)
VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: read_originals
-- What a message was, the oldest first.
SELECT row_id, edited_at_ms, actor, encoding, size_bytes, body
FROM original INDEXED BY original_by_redelivery_id WHERE redelivery_id = ? ORDER BY id;

-- name: recent_observations
-- What was seen of all destinations lately, the oldest first.
SELECT body FROM queue_observation INDEXED BY queue_observation_by_age
WHERE at_ms >= :since_ms ORDER BY at_ms;

-- name: forget_observations
-- What was seen too long ago.
DELETE FROM queue_observation WHERE (destination, minute) IN (
    SELECT destination, minute FROM queue_observation INDEXED BY queue_observation_by_age
    WHERE at_ms < ? ORDER BY at_ms LIMIT ?
) RETURNING 1;

-- name: forget_service_marks
-- What it did too long ago, but for the latest mark; and old markers.
DELETE FROM service_mark WHERE id IN (
    SELECT id FROM service_mark WHERE at_ms < ? AND (
        kind = 'marker' OR id < (SELECT max(id) FROM service_mark WHERE kind <> 'marker')
    ) ORDER BY id LIMIT ?
) RETURNING 1;

-- name: last_block
-- The highest number that a block ever had.
SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'event_block';

-- name: blocks_about
-- Blocks above a number that tell of some messages.
SELECT DISTINCT block FROM json_each(:redelivery_ids)
CROSS JOIN event_key ON redelivery_id = json_each.value AND block > :since;
