-- Every statement that the SQLite store runs. Rows that an unfinished cycle took or sends are named
-- by the caller, because that set is empty or small.

-- fragment: view_columns
-- What a person sees of a row. Older versions wrote texts of any length.
id, state, due_at_ms, destination, is_final, source, redelivery_id, redelivery_count, delay_ms,
rule, substr(cause, 1, 16384) AS cause, substr(message_id, 1, 1024) AS message_id, received_at_ms,
encoding, size_bytes, substr(reason, 1, 2048) AS reason,
cause_group, gate, final_queue, recall, recall_operation

-- fragment: row_columns
-- All of a row.
id, state, due_at_ms, destination, is_final, source, redelivery_id, redelivery_count, delay_ms,
expiration_ms, rule, encoding, received_at_ms, size_bytes, cause, message_id, reason, cause_group,
passes_gates, gate, message_group, final_queue, recall, recall_operation

-- fragment: row_conditions
-- All conditions of a filter, beside the one that chose the index.
-- Why likelihood: else SQLite takes the result for so small that it sorts what comes in order.
    (:destination IS NULL OR destination = :destination)
    AND (:redelivery_id IS NULL OR redelivery_id = :redelivery_id)
    AND (:state IS NULL OR state = :state)
    AND (:received_before_ms IS NULL OR received_at_ms < :received_before_ms)
    AND (:cause_contains IS NULL OR instr(cause, :cause_contains) > 0)
    AND (:cause_group IS NULL OR cause_group = :cause_group)
    AND (:source IS NULL OR source = :source)
    AND (:received_from_ms IS NULL OR received_at_ms >= :received_from_ms)
    AND (:due_before_ms IS NULL OR due_at_ms < :due_before_ms)
    AND (:redelivery_count IS NULL OR redelivery_count = :redelivery_count)
    AND (:count_at_least IS NULL OR redelivery_count >= :count_at_least)
    AND likelihood(:event IS NULL OR (state = 1 AND gate = :event), 1.0)
    AND likelihood(:lies_in IS NULL OR (state = 3 AND is_final AND final_queue = :lies_in), 1.0)
    AND likelihood(
        :destinations IS NULL OR destination IN (SELECT value FROM json_each(:destinations)), 1.0
    )

-- fragment: in_range
-- Rows of a run of numbers.
    id > :after_id AND id <= :until_id

-- fragment: visible
-- Rows that the unfinished cycle has not just taken.
    id NOT IN (SELECT value FROM json_each(:hidden))

-- fragment: not_taken
-- The same of rows that are looked for by an index.
    r.id NOT IN (SELECT value FROM json_each(:hidden))

-- fragment: all
-- No index helps the filter.
FROM redelivery NOT INDEXED WHERE

-- fragment: kept
-- Rows that do not wait for a time.
FROM redelivery INDEXED BY redelivery_kept WHERE state = :kept AND state <> 0 AND

-- fragment: by_destination
-- Rows of one destination.
FROM redelivery INDEXED BY redelivery_by_destination WHERE destination = :destination AND

-- fragment: by_group
-- Rows of one destination and one group of causes.
FROM redelivery INDEXED BY redelivery_by_group
WHERE destination = :destination AND cause_group = :cause_group AND cause_group <> 0 AND

-- fragment: by_redelivery_id
-- The rows of one message.
FROM redelivery INDEXED BY redelivery_by_redelivery_id WHERE redelivery_id = :redelivery_id AND

-- fragment: by_ids
-- Named rows.
FROM redelivery NOT INDEXED WHERE id IN (SELECT value FROM json_each(:ids)) AND

-- fragment: forgettable
-- Blocks that may be forgotten: neither of the unfinished cycle nor kept for the journal.
    seq IS NOT :unfinished AND seq <= :until AND seq NOT BETWEEN :planned_first AND :planned_last

-- name: read_meta
-- What the file as a whole knows.
SELECT instance, finished_cycle, token_created, uid, event_count FROM meta;

-- fragment: of_all_instances
-- The table of one row.
meta

-- name: read_taken_until
-- When the newest row was taken.
SELECT received_at_ms FROM redelivery WHERE id = (SELECT max(id) FROM redelivery);

-- name: create_meta
-- Name the instance of a new store.
INSERT INTO meta (one, instance, uid, finished_cycle, next_id, event_count, token_created)
VALUES (1, ?, ?, 0, 1, 0, 0);

-- name: set_* uid token_created finished_cycle
-- Numbers of rows may have been used by a later state of this store; its first token is in the
-- broker; the last cycle whose end is known.
UPDATE meta SET {variant} = :value;

-- name: reserve_ids
-- Take numbers out of use, for good.
UPDATE meta SET next_id = max(next_id, :at_least) + :count RETURNING next_id;

-- name: add_event_count
-- More events are kept, or fewer.
UPDATE meta SET event_count = event_count + ?;

-- name: find_word
-- The number of a text.
SELECT id FROM word WHERE text = ?;

-- name: add_word
-- Give a text a number.
INSERT INTO word (text) VALUES (?) RETURNING id;

-- name: read_word
-- The text of a number.
SELECT text FROM word WHERE id = ?;

-- name: use_word
-- More places have a text, or fewer.
UPDATE word SET uses = uses + ? WHERE id = ?;

-- name: forget_words
-- Texts that no row has.
DELETE FROM word WHERE id IN (SELECT id FROM word INDEXED BY word_unused WHERE uses = 0 LIMIT ?);

-- name: read_unfinished
-- The cycle whose end is not known.
SELECT cycle, taken_count, sent_count, taken_runs, sent_runs, taken_tally, holds,
    event_block, failures, final_runs, renamed
FROM unfinished_cycle;

-- name: add_unfinished
-- Begin a cycle.
INSERT INTO unfinished_cycle (
    one, cycle, taken_count, sent_count, taken_runs, sent_runs, taken_tally, holds,
    event_block, failures, final_runs, renamed
) VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: delete_unfinished
-- Its end is known.
DELETE FROM unfinished_cycle;

-- name: claim_due
-- Waiting rows that are due, by due time, then number; a large message is NULL.
SELECT r.id, r.due_at_ms, iif(r.is_final, r.final_queue, r.destination), r.is_final, r.redelivery_id, r.redelivery_count,
    r.delay_ms, r.expiration_ms, r.encoding, r.size_bytes,
    iif(r.size_bytes < ?, m.body, NULL), r.passes_gates, r.message_group
FROM redelivery AS r INDEXED BY redelivery_due
CROSS JOIN message AS m ON m.id = r.id
WHERE r.state = 0 AND r.due_at_ms <= ?
ORDER BY r.due_at_ms, r.id
LIMIT ?;

-- name: group_places
-- Places of rows in their groups: the number before them, up to a maximum, and the first row.
SELECT r.id, (
    SELECT count(*) FROM (
        SELECT 1 FROM redelivery AS b INDEXED BY redelivery_in_order
        WHERE b.destination = r.destination AND b.message_group = r.message_group
            AND b.is_final = 0 AND b.redelivery_id < r.redelivery_id
        LIMIT :most
    )
), f.id, f.state, f.due_at_ms, iif(f.state = 1, f.gate, NULL)
FROM json_each(:ids)
CROSS JOIN redelivery AS r NOT INDEXED ON r.id = json_each.value AND r.is_final = 0
CROSS JOIN redelivery AS f NOT INDEXED ON f.id = (
    SELECT h.id FROM redelivery AS h INDEXED BY redelivery_in_order
    WHERE h.destination = r.destination AND h.message_group = r.message_group AND h.is_final = 0
    ORDER BY h.redelivery_id, h.id LIMIT 1
);

-- name: next_due
-- Due times of waiting rows, earliest first.
SELECT id, due_at_ms FROM redelivery INDEXED BY redelivery_due
WHERE state = 0 ORDER BY due_at_ms, id LIMIT ?;

-- name: add_row
-- A row without its message.
INSERT INTO redelivery (
    id, state, due_at_ms, destination, is_final, source, redelivery_id, redelivery_count, delay_ms,
    expiration_ms, rule, encoding, received_at_ms, size_bytes, cause, message_id,
    cause_group, message_group, final_queue, recall, recall_operation, passes_gates, gate
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: add_message
-- The message of a row.
INSERT INTO message (id, body) VALUES (?, ?);

-- name: add_room
-- Room for the message of a row.
INSERT INTO message (id, body) VALUES (?, zeroblob(?));

-- name: kinds_of_* redelivery discarded
-- What tallies and words know of rows with consecutive numbers.
SELECT state, destination, cause_group, final_queue, source, rule, encoding, is_final, count(*)
FROM {variant} WHERE id BETWEEN ? AND ? GROUP BY 1, 2, 3, 4, 5, 6, 7, 8;

-- name: delete_from_* redelivery message
-- Rows or messages with consecutive numbers.
DELETE FROM {variant} WHERE id BETWEEN ? AND ?;

-- name: set_rows_aside
-- What is discarded and can be put back; its messages stay where they are.
INSERT INTO discarded (operation, discarded_at_ms, {row_columns})
SELECT :operation, :at_ms, {row_columns} FROM redelivery
WHERE id IN (SELECT value FROM json_each(:ids));

-- name: discarded_size
-- How much is kept of what was discarded: rows, and bytes of their messages.
SELECT count(*), coalesce(sum(size_bytes), 0) FROM discarded INDEXED BY discarded_by_age;

-- name: oldest_discarded
-- What was discarded before a time, the oldest first.
SELECT id, size_bytes FROM discarded INDEXED BY discarded_by_age
WHERE discarded_at_ms < ? ORDER BY discarded_at_ms, id LIMIT ?;

-- name: discarded_ids
-- Some of what an operation discarded.
SELECT id FROM discarded INDEXED BY discarded_by_operation
WHERE operation = ? ORDER BY id LIMIT ?;

-- name: put_rows_back
-- As they were; what was taken out of its final queue to be discarded goes back there.
INSERT INTO redelivery ({row_columns})
SELECT id, state, due_at_ms, destination, is_final, source, redelivery_id, redelivery_count,
    delay_ms, expiration_ms, rule, encoding, received_at_ms, size_bytes, cause, message_id, reason,
    cause_group, passes_gates, gate, message_group, final_queue,
    CASE recall WHEN 4 THEN 5 WHEN 7 THEN 0 ELSE recall END,
    iif(recall IN (4, 7), 0, recall_operation)
FROM discarded WHERE id IN (SELECT value FROM json_each(?));

-- name: forget_discarded
-- Rows that were discarded; tells which words they had.
DELETE FROM discarded WHERE id IN (SELECT value FROM json_each(?))
RETURNING destination, cause_group, final_queue, source, rule, encoding;

-- name: rename_in_* redelivery message
-- A row takes the place of one that is gone.
UPDATE {variant} SET id = ?2 WHERE id = ?1;

-- name: lying_rows
-- Rows of messages that lie in their final queues.
SELECT {view_columns} FROM redelivery INDEXED BY redelivery_by_redelivery_id
WHERE redelivery_id IN (SELECT value FROM json_each(:redelivery_ids))
    AND state = 3 AND is_final = 1;

-- fragment: order_recalled_number
-- By number.
id

-- fragment: order_recalled_due
-- By due time.
due_at_ms, id

-- name: recalled_by_* number due
-- Rows of one kind, by what becomes of them with their final queue.
SELECT {view_columns} FROM redelivery INDEXED BY redelivery_recall
WHERE recall = ? AND recall <> 0 AND state IN (2, 3) ORDER BY {order_recalled_*} LIMIT ?;

-- fragment: is_planned
-- One is planned at a time.
is_written = 0

-- fragment: segment_id
-- The column that tells segments apart, in the order they were planned.
first_block

-- name: exhaust_rows
-- Rows with consecutive numbers were sent to their final dead-letter queue.
UPDATE redelivery SET state = 3, reason = NULL, gate = NULL, passes_gates = 0,
    due_at_ms = iif(recall IN (8, 9), received_at_ms + delay_ms, due_at_ms)
WHERE id BETWEEN ? AND ? RETURNING destination, cause_group, final_queue;

-- name: tally_of_ids
-- How many of these rows there are by destination and state.
SELECT destination, cause_group, state, count(*) FROM redelivery
WHERE id IN (SELECT value FROM json_each(:ids))
GROUP BY destination, cause_group, state;

-- name: finals_of_ids
-- Which of these rows go to a final dead-letter queue; what lies there already is none.
SELECT id FROM redelivery
WHERE id IN (SELECT value FROM json_each(:ids)) AND is_final = 1 AND state <> 3;

-- name: change_row
-- What an operator's action changes.
UPDATE redelivery SET state = :state, due_at_ms = :due_at_ms, destination = :destination,
is_final = :is_final, reason = :reason, redelivery_count = :redelivery_count,
passes_gates = :passes_gates, final_queue = :final_queue, gate = :gate, recall = :recall,
recall_operation = :recall_operation, cause = coalesce(:cause, cause),
cause_group = coalesce(:cause_group, cause_group)
WHERE id = :id;

-- fragment: of_group_tally
-- What a number of rows is counted by.
destination = :destination AND cause_group = :cause_group AND state = :state

-- fragment: of_exhausted_tally
-- As of_group_tally.
final_queue = :final_queue AND destination = :destination AND is_final = :is_final

-- name: add_group_tally
-- Add a difference.
INSERT INTO group_tally (destination, cause_group, state, count)
VALUES (:destination, :cause_group, :state, :delta)
ON CONFLICT (destination, cause_group, state) DO UPDATE SET count = count + :delta;

-- name: add_exhausted_tally
-- Add a difference.
INSERT INTO exhausted_tally (final_queue, destination, is_final, count)
VALUES (:final_queue, :destination, :is_final, :delta)
ON CONFLICT (final_queue, destination, is_final) DO UPDATE SET count = count + :delta;

-- name: subtract_* group_tally exhausted_tally
-- Subtract a difference from a tally that exists.
UPDATE {variant} SET count = count + :delta WHERE {of_*};

-- name: drop_empty_* group_tally exhausted_tally
-- What has no rows is forgotten.
DELETE FROM {variant} WHERE {of_*} AND count = 0;

-- name: read_exhausted
-- Where exhausted messages are, and since when.
SELECT t.destination, t.final_queue, t.is_final, t.count, (
    SELECT r.received_at_ms FROM redelivery AS r INDEXED BY redelivery_exhausted
    WHERE r.state = 3 AND r.destination = t.destination AND r.final_queue = t.final_queue
        AND r.is_final = t.is_final AND {not_taken}
    ORDER BY r.received_at_ms LIMIT 1
)
FROM exhausted_tally AS t;

-- name: read_tallies
-- All tallies of destinations.
SELECT destination, state, sum(count) FROM group_tally GROUP BY destination, state;

-- name: read_group_tallies
-- All tallies.
SELECT destination, state, cause_group, count FROM group_tally;

-- name: sum_tallies
-- How many rows there are of a destination, a group, a state, or all of them.
SELECT coalesce(sum(count), 0) FROM group_tally
WHERE (:destination IS NULL OR destination = :destination)
    AND (:cause_group IS NULL OR cause_group = :cause_group)
    AND (:state IS NULL OR state = :state);

-- name: destinations_of_group
-- Where there are rows of a group.
SELECT DISTINCT destination FROM group_tally WHERE cause_group = ? LIMIT 2;

-- name: count_down_hold
-- So many were taken of the backlog of a source.
UPDATE hold SET remaining = max(0, remaining - ?2) WHERE source = ?1;

-- name: newest_visible
-- The highest number of a row that counts.
SELECT id FROM redelivery NOT INDEXED WHERE {visible} ORDER BY id DESC LIMIT 1;

-- name: list_* all kept by_destination by_group by_redelivery_id by_ids
-- Rows by number.
SELECT {view_columns} {*} {in_range} AND {row_conditions} ORDER BY id LIMIT :limit;

-- name: count_* all kept by_destination by_group by_redelivery_id by_ids
-- How many rows.
SELECT count(*) {*} {visible} AND {row_conditions};

-- name: window_* all kept by_destination by_group
-- The last row of a window by number.
SELECT id {*} {in_range} ORDER BY id LIMIT 1 OFFSET :window;

-- name: read_message
-- The encoded message of a row.
SELECT m.body, r.size_bytes FROM message AS m CROSS JOIN redelivery AS r ON r.id = m.id
WHERE m.id = ?;

-- name: read_block
-- One block.
SELECT packing, body FROM event_block WHERE seq = ?;

-- name: add_key
-- A block tells of a message.
INSERT INTO event_key (redelivery_id, block) VALUES (?, ?);

-- name: delete_key
-- A block tells nothing more of a message.
DELETE FROM event_key WHERE redelivery_id = ? AND block = ?;

-- name: all_blocks
-- The whole history, the newest first.
SELECT packing, body FROM event_block ORDER BY seq DESC;

-- name: blocks_of_message
-- The blocks that tell of a message, oldest first.
SELECT b.seq, b.packing, b.body
FROM event_key AS k CROSS JOIN event_block AS b ON b.seq = k.block
WHERE k.redelivery_id = ? ORDER BY k.block;

-- name: forget_lives
-- The prefixes are those of `model/life.py`.
DELETE FROM event_key
WHERE (redelivery_id >= 'copy:' AND redelivery_id < 'copy;')
    OR (redelivery_id >= 'dead:' AND redelivery_id < 'dead;');

-- name: known_keys
-- Keys that some block has.
SELECT DISTINCT redelivery_id FROM json_each(?) CROSS JOIN event_key
ON redelivery_id = json_each.value;

-- name: oldest_blocks
-- Blocks all of whose events are older than a time, oldest first, that may be forgotten.
SELECT seq, event_count FROM event_block INDEXED BY event_block_by_age
WHERE newest_at_ms < :before_ms AND {forgettable}
ORDER BY newest_at_ms, seq LIMIT :limit;

-- name: first_blocks
-- Blocks in the order they were written, that may be forgotten.
SELECT seq, event_count FROM event_block
WHERE {forgettable} ORDER BY seq LIMIT :limit;

-- name: read_outbox
-- What is true of all segments.
SELECT is_kept, stream, last_number, last_block FROM outbox;

-- name: planned_range
-- The blocks of the segment that is not written yet.
SELECT first_block, last_block
FROM journal_segment INDEXED BY journal_segment_planned WHERE is_written = 0;

-- name: blocks_between
-- Blocks between two others, in the order they were written.
SELECT seq, event_count FROM event_block WHERE seq > ? AND seq < ? ORDER BY seq;

-- name: add_segment
-- Plan a segment.
INSERT INTO journal_segment (first_block, last_block, stream, number, event_count, is_written)
VALUES (:first_block, :last_block, :stream, :number, :event_count, 0);

-- name: unmark_blocks
-- All is planned up to before this block.
UPDATE outbox SET last_block = :segment - 1;

-- name: find_segment
-- The range of a segment.
SELECT first_block, last_block FROM journal_segment WHERE stream = :stream AND number = :number;

-- name: next_block
-- The next block of a range.
SELECT seq, packing, body FROM event_block WHERE seq > :after AND seq <= :last ORDER BY seq LIMIT 1;

-- name: forget_segment
-- The segment of a block, which is not whole any more.
DELETE FROM journal_segment
WHERE first_block = (SELECT max(first_block) FROM journal_segment WHERE first_block <= :block)
    AND last_block >= :block;

-- name: count_unwritten
-- How many events that count are in no written segment.
SELECT meta.event_count - outbox.written_count
    - coalesce((SELECT event_count FROM event_block WHERE seq = :hidden), 0)
FROM meta, outbox;

-- name: first_unwritten
-- The first block of those.
SELECT packing, body FROM event_block
WHERE seq > :written_until AND seq IS NOT :hidden ORDER BY seq LIMIT 1;
