-- Queries of a move out of a SQLite file and into one; each reads or writes a whole table.

-- fragment: read_row
-- A row with texts in place of words.
SELECT t.id, state, due_at_ms, d.text, is_final, s.text, redelivery_id, redelivery_count, delay_ms,
    expiration_ms, r.text, e.text, received_at_ms, size_bytes, cause, message_id, reason, g.text,
    passes_gates, gate, message_group, f.text, recall, recall_operation

-- fragment: words_of_row
-- The words of a row.
JOIN word AS d ON d.id = t.destination
JOIN word AS s ON s.id = t.source
JOIN word AS r ON r.id = t.rule
JOIN word AS e ON e.id = t.encoding
LEFT JOIN word AS g ON g.id = t.cause_group
LEFT JOIN word AS f ON f.id = t.final_queue

-- name: read_redelivery
-- All rows.
{read_row} FROM redelivery AS t {words_of_row};

-- name: read_discarded
-- All that can be put back.
{read_row}, operation, discarded_at_ms FROM discarded AS t {words_of_row};

-- name: read_message
-- All messages with their size.
SELECT m.id, m.body, coalesce(t.size_bytes, d.size_bytes) FROM message AS m
LEFT JOIN redelivery AS t ON t.id = m.id LEFT JOIN discarded AS d ON d.id = m.id
WHERE t.id IS NOT NULL OR d.id IS NOT NULL;

-- name: read_event_block
-- All events; the last column: whether the journal has them.
SELECT seq, newest_at_ms, event_count, packing, body,
    seq <= (SELECT last_block FROM outbox) FROM event_block ORDER BY seq;

-- name: read_failure_group
-- All groups but those that only hold counts.
SELECT destination, cause_group, first_at_ms, last_at_ms, total, example_id
FROM failure_group WHERE total > 0;

-- name: read_failure_count
-- All counts.
SELECT bucket_ms, kind, destination, cause_group, attempt, count
FROM failure_count JOIN failure_group ON id = failure_group;

-- name: read_* hold event_key operation_member original queue_observation group_note service_mark
-- All of a table.
SELECT * FROM {variant};

-- name: read_operation
-- All operations.
SELECT id, body FROM operation;

-- name: read_head
-- What the file is as a whole.
SELECT group_key, instance, uid, finished_cycle, token_created, next_id, is_kept, stream,
    last_number, (SELECT max(seq) FROM event_block)
FROM meta, outbox;

-- name: write_meta
-- What the file is as a whole.
UPDATE meta SET group_key = ?, instance = ?, uid = ?, finished_cycle = ?, token_created = ?,
    next_id = ?, event_count = (SELECT coalesce(sum(event_count), 0) FROM event_block);

-- name: write_outbox
-- How far the journal is.
UPDATE outbox SET is_kept = :is_kept, stream = :stream, last_number = :last_number,
    last_block = :last_block, written_count = (
        SELECT coalesce(sum(event_count), 0) FROM event_block WHERE seq <= :last_block
    );

-- name: add_redelivery
-- A row.
INSERT INTO redelivery (
    id, state, due_at_ms, destination, is_final, source, redelivery_id, redelivery_count, delay_ms,
    expiration_ms, rule, encoding, received_at_ms, size_bytes, cause, message_id, reason,
    cause_group, passes_gates, gate, message_group, final_queue, recall, recall_operation
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: add_discarded
-- A row that can be put back.
INSERT INTO discarded (
    id, state, due_at_ms, destination, is_final, source, redelivery_id, redelivery_count, delay_ms,
    expiration_ms, rule, encoding, received_at_ms, size_bytes, cause, message_id, reason,
    cause_group, passes_gates, gate, message_group, final_queue, recall, recall_operation,
    operation, discarded_at_ms
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: add_event_block
-- Events with their number.
INSERT INTO event_block VALUES (?, ?, ?, ?, ?);

-- name: add_* hold event_key
-- Two columns.
INSERT INTO {variant} VALUES (?, ?);

-- name: add_* operation queue_observation
-- Four columns.
INSERT INTO {variant} VALUES (?, ?, ?, ?);

-- name: add_service_mark
-- What a service did.
INSERT INTO service_mark VALUES (?, ?, ?, ?, ?);

-- name: add_operation_member
-- A message of an operation.
INSERT INTO operation_member VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: add_original
-- A message before it was edited.
INSERT INTO original VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: add_group_note
-- A note on a group.
INSERT INTO group_note VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: count_rows
-- How many rows there are of a kind.
SELECT destination, state, count(*), cause_group, final_queue, is_final
FROM redelivery GROUP BY destination, state, cause_group, final_queue, is_final;

-- name: count_words
-- How many rows have the same words.
SELECT destination, source, rule, encoding, cause_group, final_queue, count(*) FROM (
    SELECT destination, source, rule, encoding, cause_group, final_queue FROM redelivery
    UNION ALL
    SELECT destination, source, rule, encoding, cause_group, final_queue FROM discarded
) GROUP BY destination, source, rule, encoding, cause_group, final_queue;
