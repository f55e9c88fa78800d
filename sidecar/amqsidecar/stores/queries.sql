-- Statements that both stores run, as SQLite writes them; the PostgreSQL store translates them. The
-- stores define the fragments.

-- name: read_operation
-- One operation.
SELECT body FROM operation WHERE id = :number;

-- name: read_operations
-- Operations, the newest first.
SELECT body FROM operation WHERE id < :before ORDER BY id DESC LIMIT :limit;

-- name: count_discarded
-- How much of what an operation discarded is kept.
SELECT count(*) FROM discarded INDEXED BY discarded_by_operation WHERE operation = :number;

-- name: due_members
-- Members that were sent before a time, the oldest first.
SELECT redelivery_id, destination, changed_at_ms, resent_at_ms, 're-sent', evidence
FROM operation_member INDEXED BY operation_member_due
WHERE operation = :number AND {is_resent} AND resent_at_ms < :before_ms
ORDER BY resent_at_ms, redelivery_id LIMIT :limit;

-- name: read_group_key
-- The key of the numbers of groups.
SELECT group_key FROM {of_all_instances};

-- name: read_value
-- What is kept under a name.
SELECT body FROM kept_value WHERE name = :name;

-- name: swap_value
-- Another value under a name, if the expected one is there; NULL = whatever is there.
INSERT INTO kept_value (name, body) VALUES (:name, :body)
ON CONFLICT (name) DO UPDATE SET body = excluded.body
WHERE coalesce(:expected, kept_value.body) = kept_value.body;

-- name: value_names
-- Names of values that are not empty, and begin so.
SELECT name FROM kept_value
WHERE substr(name, 1, length(:prefix)) = :prefix AND length(body) > 0 ORDER BY name;

-- name: forget_originals
-- What was edited too long ago.
DELETE FROM original WHERE id IN (
    SELECT id FROM original INDEXED BY original_by_age
    WHERE edited_at_ms < :before_ms ORDER BY edited_at_ms LIMIT :limit
);

-- name: add_observation
-- The latest of a minute.
INSERT INTO queue_observation (destination, minute, at_ms, body)
VALUES (:destination, :minute, :at_ms, :body)
ON CONFLICT (destination, minute) DO UPDATE SET at_ms = excluded.at_ms, body = excluded.body
WHERE excluded.at_ms >= queue_observation.at_ms;

-- name: read_observations
-- What was seen of a destination, the oldest first.
SELECT body FROM queue_observation
WHERE destination = :destination AND minute >= :from_ms / 60000 AND minute <= :until_ms / 60000
    AND at_ms >= :from_ms AND at_ms < :until_ms
ORDER BY minute;

-- fragment: note_columns
-- In the order of `GroupNote`.
destination, cause_group, at_ms, author, text, owner, snoozed_until_ms, muted_deaths, merged_into

-- name: add_note
-- A note on a group.
INSERT INTO group_note ({note_columns}) VALUES (
    :destination, :cause_group, :at_ms, :author, :text, :owner, :snoozed_until_ms, :muted_deaths,
    :merged_into
);

-- name: drop_notes
-- The notes on a group before the latest ones.
DELETE FROM group_note WHERE id IN (
    SELECT id FROM group_note INDEXED BY group_note_by_group
    WHERE destination = :destination AND cause_group = :cause_group
    ORDER BY id DESC LIMIT -1 OFFSET :kept
);

-- name: read_notes
-- The notes on a group, the latest first.
SELECT {note_columns} FROM group_note INDEXED BY group_note_by_group
WHERE destination = :destination AND cause_group = :cause_group ORDER BY id DESC;

-- name: latest_notes
-- The latest note of each group, the latest first.
SELECT {note_columns} FROM group_note WHERE id IN (
    SELECT max(id) FROM group_note INDEXED BY group_note_by_group GROUP BY destination, cause_group
) ORDER BY id DESC LIMIT :limit;

-- name: forget_notes
-- Old notes on what nobody knows of any more.
DELETE FROM group_note WHERE id IN (
    SELECT id FROM group_note AS n INDEXED BY group_note_by_age
    WHERE at_ms < :before_ms AND NOT EXISTS (
        SELECT 1 FROM failure_group AS f
        WHERE f.destination = n.destination AND f.cause_group = n.cause_group
    )
    ORDER BY at_ms LIMIT :limit
);

-- name: add_service_mark
-- What a service did, or a marker: without an instance.
INSERT INTO service_mark (at_ms, instance, kind, rules_digest, destination, text, author)
VALUES (:at_ms, :instance, :kind, :rules_digest, :destination, :text, :author);

-- name: drop_service_marks
-- Marks of an instance, or markers of a pattern, before the latest.
DELETE FROM service_mark WHERE id IN (
    SELECT id FROM service_mark WHERE instance = :instance AND destination = :destination
    ORDER BY id DESC LIMIT -1 OFFSET :kept
);

-- name: read_service_marks
-- What services did since a time, or markers, the latest first.
SELECT at_ms, instance, kind, rules_digest, text, destination, author FROM service_mark
WHERE (kind = 'marker') = :is_marker AND at_ms >= :since_ms ORDER BY id DESC LIMIT :limit;

-- name: add_signal
-- The latest report of an event outside, after the newest block of events.
-- Why no time: the clock of a reporter may be wrong; `date_signals` asks that of the schedule.
INSERT INTO signal (name, at_ms, author, last_block)
VALUES (:name, 9223372036854775807, :author, (SELECT coalesce(max(seq), 0) FROM event_block))
ON CONFLICT (name) DO UPDATE
SET at_ms = excluded.at_ms, author = excluded.author, last_block = excluded.last_block;

-- name: ended_waits
-- Held rows whose event was reported since a time, and whether they died or were held after that;
-- and those whose longest wait has passed.
-- Why in this order: few events were reported lately, and many rows may wait.
SELECT r.id, r.gate, s.author,
    EXISTS (SELECT 1 FROM event_key AS k WHERE {is_about_row} AND k.block > s.last_block)
FROM signal AS s CROSS JOIN redelivery AS r INDEXED BY redelivery_awaited
WHERE s.at_ms >= :since_ms AND r.state = 1 AND r.gate = s.name
UNION ALL
SELECT * FROM (
    SELECT id, gate, NULL, FALSE FROM redelivery INDEXED BY redelivery_awaited_until
    WHERE state = 1 AND gate IS NOT NULL AND due_at_ms <= :now_ms ORDER BY due_at_ms LIMIT :limit
) AS late
LIMIT :limit;

-- name: date_signals
-- Events are dated when a service sees them first.
UPDATE signal SET at_ms = :schedule_ms WHERE at_ms > :schedule_ms;

-- name: forget_signals
-- Events that were reported too long ago.
DELETE FROM signal WHERE at_ms < :schedule_ms - :kept_ms;

-- name: set_kept
-- Whether what is not written must not be forgotten.
UPDATE outbox SET is_kept = :is_on WHERE is_kept <> :is_on;

-- name: set_planned
-- The last segment; an empty stream = the next segment begins another.
UPDATE outbox SET stream = :stream, last_number = :number;

-- name: add_written_count
-- More events of written segments are kept, or fewer.
UPDATE outbox SET written_count = written_count + :count;

-- name: written_segments
-- Written segments, in the order they were planned.
SELECT stream, number, event_count FROM journal_segment WHERE is_written ORDER BY {segment_id};

-- name: planned_segment
-- The segment that is not written yet.
SELECT stream, number, event_count
FROM journal_segment INDEXED BY journal_segment_planned WHERE {is_planned};

-- name: set_written
-- The planned segment is written, if it is this one.
UPDATE journal_segment SET is_written = true
WHERE stream = :stream AND number = :number AND {is_planned} RETURNING event_count;

-- name: drop_planned
-- The planned segment is none, if it is this one.
DELETE FROM journal_segment
WHERE stream = :stream AND number = :number AND {is_planned} RETURNING {segment_id};

-- name: add_block
-- Events that were written together.
INSERT INTO event_block (newest_at_ms, event_count, packing, body)
VALUES (:newest_at_ms, :event_count, :packing, :body) RETURNING seq;

-- name: replace_block
-- What is left of a block.
UPDATE event_block SET newest_at_ms = :newest_at_ms, event_count = :event_count,
    packing = :packing, body = :body
WHERE seq = :seq;

-- name: delete_block
-- Forget a block.
DELETE FROM event_block WHERE seq = :seq;

-- name: rows_called
-- Rows of messages with an id that consumers saw.
SELECT redelivery_id FROM redelivery NOT INDEXED WHERE message_id = :message_id LIMIT :limit;

-- name: count_recalled
-- How many rows of one kind lie in their final queues, by queue.
SELECT final_queue, count(*) FROM redelivery INDEXED BY redelivery_recall
WHERE recall = :recall AND recall <> 0 AND state = 3 AND is_final GROUP BY final_queue;

-- name: read_holds
-- Sources, and what is left of their backlog as long as unfinished cycles may be undone.
SELECT source, remaining FROM hold;

-- name: set_hold
-- What is left of the backlog of a source.
INSERT INTO hold (source, remaining) VALUES (:source, :remaining)
ON CONFLICT (source) DO UPDATE SET remaining = excluded.remaining;

-- name: newest_id
-- The highest number of a row.
SELECT coalesce(max(id), 0) FROM redelivery;

-- name: postpone_rows
-- A later due time for waiting rows.
UPDATE redelivery NOT INDEXED SET due_at_ms = :due_at_ms, reason = :reason, gate = :gate
WHERE id IN (SELECT value FROM json_each(:ids)) AND state = 0;

-- name: park_rows
-- Keep rows for a person.
UPDATE redelivery SET state = 2, reason = :reason, gate = NULL
WHERE id IN (SELECT value FROM json_each(:ids));
