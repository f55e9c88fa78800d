-- Queries of a move out of PostgreSQL and into it; each reads or writes a whole table.

-- fragment: read_row
-- A row; the group of its message is not kept.
SELECT id, state, due_at_ms, destination, is_final, source, redelivery_id, redelivery_count,
    delay_ms, expiration_ms, rule, encoding, received_at_ms, size_bytes, cause, message_id, reason,
    cause_group, passes_gates, gate, NULL,
    CASE WHEN is_final THEN coalesce(final_queue, destination) ELSE final_queue END,
    recall, recall_operation

-- fragment: row_columns
-- The columns of a row.
id, state, due_at_ms, destination, is_final, source, redelivery_id, redelivery_count, delay_ms,
expiration_ms, rule, encoding, received_at_ms, size_bytes, cause, message_id, reason, cause_group,
passes_gates, gate, final_queue, recall, recall_operation

-- fragment: more_of_redelivery
-- None.

-- fragment: more_of_discarded
-- What an operation discarded.
, operation, discarded_at_ms

-- name: read_redelivery
-- All rows.
{read_row} FROM redelivery;

-- name: read_discarded
-- All that can be put back.
{read_row}, operation, discarded_at_ms FROM discarded;

-- name: read_event_block
-- All events, those that the journal has first; the last column says which these are.
SELECT seq, newest_at_ms, event_count, packing, body, segment IS NOT NULL
FROM event_block ORDER BY segment IS NULL, seq;

-- name: read_failure_group
-- All groups.
SELECT destination, cause_group, min(first_at_ms), max(last_at_ms), sum(total)::bigint,
    (array_agg(example_id ORDER BY last_at_ms DESC))[1]
FROM failure_group WHERE total > 0 GROUP BY destination, cause_group;

-- name: read_failure_count
-- All counts.
SELECT bucket_ms, kind, destination, cause_group, attempt, sum(count)::bigint
FROM failure_count GROUP BY bucket_ms, kind, destination, cause_group, attempt;

-- name: read_* message hold event_key operation_member original queue_observation group_note service_mark
-- All of a table.
SELECT * FROM {variant};

-- name: read_operation
-- All operations.
SELECT id, body FROM operation;

-- name: lock_all
-- Nobody writes until the transaction ends: each first locks the row of its instance.
SELECT name, uid, finished_cycle, token_created FROM instance ORDER BY number FOR UPDATE;

-- name: busy
-- Sidecars at work, and cycles without an end.
SELECT name FROM instance AS i WHERE number > 0 AND (
    EXISTS (SELECT FROM unfinished_cycle WHERE instance = number)
    OR holder IS NOT NULL AND EXISTS (
        SELECT FROM pg_stat_activity AS a
        WHERE a.pid = i.backend_pid AND a.backend_start = i.backend_start
    )
);

-- name: read_head
-- What the schedule is as a whole.
SELECT group_key, last_value + CASE WHEN is_called THEN 16384 ELSE 0 END, is_kept, stream, last_number
FROM schema_version, row_number, outbox;

-- name: is_used
-- Whether a service has done anything.
SELECT EXISTS (SELECT FROM redelivery) OR EXISTS (SELECT FROM event_block)
    OR EXISTS (SELECT FROM instance WHERE token_created OR finished_cycle > 0);

-- name: add_* redelivery discarded
-- Rows.
COPY {variant} ({row_columns}{more_of_*}) FROM STDIN;

-- name: add_event_block
-- Events with their numbers.
COPY event_block (seq, newest_at_ms, event_count, packing, body, segment, xid) FROM STDIN;

-- name: add_failure_group
-- Groups.
COPY failure_group (
    destination, cause_group, first_at_ms, last_at_ms, total, example_id, instance
) FROM STDIN;

-- name: add_failure_count
-- Counts.
COPY failure_count (bucket_ms, kind, destination, cause_group, attempt, count, instance)
FROM STDIN;

-- name: add_operation
-- Operations.
COPY operation (id, state, ended_at_ms, body) FROM STDIN;

-- name: add_* message hold event_key operation_member original queue_observation group_note service_mark
-- All of a table.
COPY {variant} FROM STDIN;

-- name: count_rows
-- How many rows there are, by what an index takes.
INSERT INTO tally SELECT 0, left(destination, 500), state, count(*) FROM redelivery GROUP BY 2, 3;

-- name: count_groups
-- How many rows have a cause group.
INSERT INTO group_tally
SELECT 0, left(destination, 400), state, left(cause_group, 200), count(*) FROM redelivery
WHERE cause_group <> '' GROUP BY 2, 3, 4;

-- name: count_exhausted
-- Where exhausted rows are.
INSERT INTO exhausted_tally
SELECT 0, left(destination, 500), left(coalesce(final_queue, ''), 500), is_final, count(*)
FROM redelivery WHERE state = 3 GROUP BY 2, 3, 4;

-- name: set_number
-- The numbers of a table go on after the highest.
SELECT setval(
    pg_get_serial_sequence(%s, CASE %s WHEN 'event_block' THEN 'seq' ELSE 'id' END),
    greatest(1, (SELECT max(seq) FROM event_block), (SELECT max(id) FROM operation),
        (SELECT max(id) FROM original), (SELECT max(id) FROM group_note),
        (SELECT max(id) FROM service_mark))
);

-- name: add_instance
-- An instance of the source.
INSERT INTO instance (name, uid, finished_cycle, token_created) VALUES (%s, %s, %s, %s);

-- name: count_events
-- How many events are kept.
UPDATE instance SET event_count = (SELECT coalesce(sum(event_count), 0) FROM event_block)
WHERE number = 0;

-- name: write_outbox
-- How far the journal is.
UPDATE outbox SET is_kept = %s, stream = %s, last_number = %s, written_count = (
    SELECT coalesce(sum(event_count), 0) FROM event_block WHERE segment IS NOT NULL
);

-- name: write_fence
-- Why nobody may use the schedule, and the oldest program that may without the fence.
WITH gone AS (DELETE FROM fence RETURNING oldest_program)
INSERT INTO fence
SELECT %s, %s, coalesce((SELECT oldest_program FROM gone), oldest_program) FROM schema_version;

-- name: read_tokens
-- Instances with a token.
SELECT name FROM instance WHERE token_created;

-- name: permit_programs
-- The oldest program that may use the schedule without the fence.
UPDATE schema_version SET oldest_program = (SELECT oldest_program FROM fence);
