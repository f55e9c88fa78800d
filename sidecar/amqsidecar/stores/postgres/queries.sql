-- Every statement that the PostgreSQL store runs, but for its migrations and its settings.

-- fragment: in_flight
-- Rows that an unfinished cycle took or sends, of any instance.
SELECT unnest(taken_ids || sent_ids || final_ids) FROM unfinished_cycle

-- fragment: taken
-- Rows that don't count yet.
SELECT unnest(taken_ids) FROM unfinished_cycle

-- fragment: hidden_blocks
-- Events that don't count yet.
SELECT event_block FROM unfinished_cycle WHERE event_block IS NOT NULL

-- fragment: not_for_journal
-- Events that are not kept for the journal; those of a planned segment always are.
    CASE WHEN segment IS NULL THEN NOT (SELECT is_kept FROM outbox)
    ELSE segment <> coalesce((SELECT id FROM journal_segment WHERE NOT is_written), 0) END

-- fragment: row_columns
-- All of a row.
id, state, due_at_ms, destination, is_final, source, redelivery_id, redelivery_count, delay_ms,
expiration_ms, rule, encoding, received_at_ms, size_bytes, cause, message_id, reason, cause_group,
passes_gates, gate, final_queue, recall, recall_operation

-- fragment: view_columns
-- What a person sees of a row. Older versions wrote texts of any length.
id, state, due_at_ms, destination, is_final, source, redelivery_id, redelivery_count, delay_ms,
rule, left(cause, 16384) AS cause, left(message_id, 1024) AS message_id, received_at_ms, encoding,
size_bytes, left(reason, 2048) AS reason, cause_group, gate,
CASE WHEN is_final THEN coalesce(final_queue, destination) ELSE final_queue END AS final_queue,
recall, recall_operation

-- fragment: row_conditions
-- All conditions of a filter.
    (%(destination)s::text IS NULL OR destination = %(destination)s)
    AND (%(redelivery_id)s::text IS NULL OR redelivery_id = %(redelivery_id)s)
    AND (%(state)s::smallint IS NULL OR state = %(state)s)
    AND (%(source)s::text IS NULL OR source = %(source)s)
    AND (%(cause_group)s::text IS NULL OR coalesce(cause_group, '') = %(cause_group)s)
    AND (%(redelivery_count)s::bigint IS NULL OR redelivery_count = %(redelivery_count)s)
    AND (%(count_at_least)s::bigint IS NULL OR redelivery_count >= %(count_at_least)s)
    AND (%(received_from_ms)s::bigint IS NULL OR received_at_ms >= %(received_from_ms)s)
    AND (%(received_before_ms)s::bigint IS NULL OR received_at_ms < %(received_before_ms)s)
    AND (%(due_before_ms)s::bigint IS NULL OR due_at_ms < %(due_before_ms)s)
    AND (%(cause_contains)s::text IS NULL OR strpos(cause, %(cause_contains)s) > 0)
    AND (%(lies_in)s::text IS NULL
        OR (state = 3 AND is_final AND coalesce(final_queue, destination) = %(lies_in)s))
    AND (%(event)s::text IS NULL OR (state = 1 AND gate = %(event)s))
    AND (%(destinations)s::text[] IS NULL OR destination = ANY (%(destinations)s::text[]))

-- fragment: of_all
-- The condition that an index serves; a text that is longer stands in the others as well.
true

-- fragment: of_kept
-- Held or parked rows.
state = %(state)s::smallint AND state <> 0

-- fragment: of_by_destination
-- One destination.
left(destination, 200) = %(key)s

-- fragment: of_by_group
-- One destination and one group of causes; the latter stands in no other condition then.
left(destination, 200) = %(key)s AND cause_group = %(group_key)s

-- fragment: of_by_redelivery_id
-- One message.
left(redelivery_id, 200) = %(key)s

-- fragment: of_by_ids
-- Named rows.
id = ANY (%(ids)s::bigint[])

-- fragment: up_all
-- A range of numbers.
id > %(after_id)s AND id <= %(until_id)s

-- fragment: up_kept
-- As up_by_destination, of held or parked rows.
(state, id) > (%(state)s::smallint, %(after_id)s::bigint)
    AND (state, id) <= (%(state)s::smallint, %(until_id)s::bigint) AND state <> 0

-- fragment: up_by_destination
-- A range of one destination. Why not as of_by_destination: the planner could walk all rows by number
-- to find those of it, which may all be far away.
(left(destination, 200), id) > (%(key)s, %(after_id)s::bigint)
    AND (left(destination, 200), id) <= (%(key)s, %(until_id)s::bigint)

-- fragment: up_by_group
-- A range of one destination and group.
{of_by_group} AND {up_all}

-- fragment: up_by_redelivery_id
-- A range of one message.
{of_by_redelivery_id} AND {up_all}

-- fragment: up_by_ids
-- A range of named rows.
{of_by_ids} AND {up_all}

-- fragment: down_all
-- A range of numbers from above.
id < %(before)s AND id >= %(floor)s

-- fragment: down_kept
-- As up_kept, from above.
(state, id) < (%(state)s::smallint, %(before)s::bigint)
    AND (state, id) >= (%(state)s::smallint, %(floor)s::bigint) AND state <> 0

-- fragment: down_by_destination
-- As up_by_destination, from above.
(left(destination, 200), id) < (%(key)s, %(before)s::bigint)
    AND (left(destination, 200), id) >= (%(key)s, %(floor)s::bigint)

-- fragment: down_by_group
-- As up_by_group, from above.
{of_by_group} AND {down_all}

-- fragment: order_all
-- The columns of an index, so that the planner takes it.
id

-- fragment: order_kept
-- As order_all.
state, id

-- fragment: order_by_destination
-- As order_all.
left(destination, 200), id

-- fragment: order_by_group
-- As order_all.
left(destination, 200), cause_group, id

-- fragment: order_by_redelivery_id
-- As order_all.
left(redelivery_id, 200), id

-- fragment: order_by_ids
-- Few rows need no index.
id

-- fragment: back_all
-- As order_all, the highest first.
id DESC

-- fragment: back_kept
-- As back_all.
state DESC, id DESC

-- fragment: back_by_destination
-- As back_all.
left(destination, 200) DESC, id DESC

-- fragment: back_by_group
-- As back_all.
left(destination, 200) DESC, cause_group DESC, id DESC

-- fragment: waiting_by_due
-- Waiting rows above one place in the order of due times.
state = 0 AND (due_at_ms, id) > (%(after_ms)s::bigint, %(after_id)s::bigint)

-- fragment: kept_by_due
-- The same of held or parked rows.
state = %(kept)s AND state <> 0
    AND (due_at_ms, id) > (%(after_ms)s::bigint, %(after_id)s::bigint)

-- fragment: due_order_waiting
-- As order_all.
due_at_ms, id

-- fragment: due_order_kept
-- As order_all.
state, due_at_ms, id

-- fragment: is_about_row
--- Events of a row's message.
k.key = left(r.redelivery_id, 200)

-- fragment: is_resent
-- Members that may still come back.
outcome = 're-sent'

-- fragment: is_free
-- Nobody is this instance now. A backend that is gone proves it, unless the whole server went.
(
    holder IS NULL
    OR renewed_at < clock_timestamp() - lease_s * interval '1 second'
    OR (
        renewed_at > pg_postmaster_start_time()
        AND NOT EXISTS (
            SELECT FROM pg_stat_activity AS a
            WHERE a.pid = i.backend_pid
                AND (a.backend_start IS NULL OR a.backend_start = i.backend_start)
        )
    )
)

-- fragment: held
-- What a holder writes of itself.
holder = %(holder)s, program = %(program)s, lease_s = %(lease_s)s,
renewed_at = clock_timestamp(),
backend_pid = pg_backend_pid(),
backend_start = (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid())

-- name: guard_schema
-- No migration breaks older programs until this transaction has ended.
SELECT oldest_program FROM schema_version FOR SHARE;

-- name: add_instance
-- A new instance, unless another process was faster.
INSERT INTO instance (name, uid) VALUES (%(name)s, %(uid)s) ON CONFLICT (name) DO NOTHING;

-- name: first_instance
-- The oldest one.
SELECT name FROM instance WHERE number > 0 ORDER BY number LIMIT 1;

-- name: hold_named
-- Be this instance if nobody is, or if it is us.
UPDATE instance AS i SET {held}
WHERE name = %(name)s AND (holder = %(last)s OR {is_free});

-- name: hold_same
-- Be the instance again that we were before.
UPDATE instance AS i SET {held} WHERE holder = %(last)s RETURNING name;

-- name: hold_any
-- Be an instance that nobody is: the one that we were before, then one with an unfinished cycle.
UPDATE instance AS i SET {held}
WHERE number = (
    SELECT number FROM instance AS i
    WHERE number > 0 AND {is_free}
    ORDER BY name <> %(last_name)s, NOT EXISTS (SELECT FROM unfinished_cycle WHERE instance = i.number), number
    LIMIT 1 FOR UPDATE SKIP LOCKED
)
RETURNING name;

-- name: holder_of
-- The session that holds this instance.
SELECT backend_pid, a.client_addr::text, a.application_name,
    round(extract(epoch FROM clock_timestamp() - renewed_at))::integer
FROM instance LEFT JOIN pg_stat_activity AS a ON a.pid = backend_pid
WHERE name = %(name)s;

-- name: release
-- Be it no longer.
UPDATE instance SET holder = NULL WHERE holder = %(holder)s;

-- name: renew
-- A sign of life.
UPDATE instance SET renewed_at = clock_timestamp() WHERE name = %(name)s AND holder = %(holder)s;

-- name: abandoned
-- Instances that nobody is and whose last cycle nobody has settled.
SELECT name FROM instance AS i JOIN unfinished_cycle AS u ON u.instance = i.number
WHERE {is_free} ORDER BY number;

-- name: set_manual
-- What it leaves to a person.
UPDATE instance SET manual = %(patterns)s WHERE name = %(name)s AND manual <> %(patterns)s;

-- name: list_instances
-- All of them.
SELECT name, uid, NOT {is_free}, extract(epoch FROM clock_timestamp() - renewed_at)::float8,
    finished_cycle, cycle, manual
FROM instance AS i LEFT JOIN unfinished_cycle AS u ON u.instance = i.number
WHERE number > 0 ORDER BY number;

-- name: oldest_program
-- The oldest program that is some instance now.
SELECT min(program) FROM instance AS i WHERE number > 0 AND NOT {is_free};

-- name: read_state
-- Where things stand with an instance.
SELECT number, uid, finished_cycle, token_created, cycle, cardinality(taken_ids),
    cardinality(sent_ids || final_ids),
    coalesce((SELECT received_at_ms FROM redelivery ORDER BY id DESC LIMIT 1), 0)
FROM instance LEFT JOIN unfinished_cycle ON instance = number
WHERE name = %(name)s;

-- fragment: of_all_instances
-- The table of one row.
schema_version

-- name: lock_instance
-- Write as this instance until the transaction ends; no row = it is somebody else's.
SELECT finished_cycle FROM instance
WHERE number = %(instance)s AND holder IS NOT DISTINCT FROM %(holder)s
FOR NO KEY UPDATE;

-- name: read_unfinished
-- The cycle of an instance whose end is not known.
SELECT cycle, event_block, hold_sources <> '{{}}', counts IS NOT NULL, final_ids <> '{{}}',
    renamed_ids <> '{{}}'
FROM unfinished_cycle
WHERE instance = %(instance)s;

-- name: write_instance
-- What a transaction changed of its instance, and a sign of life.
UPDATE instance SET finished_cycle = %(finished_cycle)s, event_count = event_count + %(events)s,
renewed_at = clock_timestamp()
WHERE number = %(instance)s;

-- name: forget_other_transactions
-- A dump of another database has blocks of transactions that are to come here.
UPDATE event_block SET xid = NULL WHERE xid >= pg_snapshot_xmax(pg_current_snapshot());

-- name: take_ids
-- The first of some blocks of row numbers.
SELECT nextval('row_number') FROM generate_series(1, %(blocks)s);

-- name: skip_ids
-- Set the sequence ahead; only with a lock, else a second process could set it back.
SELECT setval('row_number', nextval('row_number') + %(far)s);

-- name: claim_due
-- Waiting rows that are due, locked; see PostgresTransaction.claim_due.
SELECT id, due_at_ms, destination, is_final, redelivery_id, redelivery_count, delay_ms,
    expiration_ms, encoding, size_bytes, cause_group, passes_gates, final_queue
FROM redelivery
WHERE state = 0 AND due_at_ms <= %(now_ms)s AND id NOT IN ({in_flight})
ORDER BY due_at_ms, id LIMIT %(limit)s
FOR UPDATE SKIP LOCKED;

-- name: savepoint
-- The locks that are taken from here on can be given back.
SAVEPOINT claim;

-- name: back_to_savepoint
-- Give them back.
ROLLBACK TO SAVEPOINT claim;

-- name: ids_of
-- What the unfinished cycle took, and what it sends.
SELECT taken_ids, sent_ids || final_ids FROM unfinished_cycle WHERE instance = %(instance)s;

-- name: in_flight_of
-- Which of these rows are in an unfinished cycle.
SELECT id FROM ({in_flight}) AS f (id) WHERE id = ANY (%(ids)s::bigint[]);

-- name: read_messages
-- The encoded messages of rows.
SELECT id, body FROM message WHERE id = ANY (%(ids)s::bigint[]);

-- name: next_due
-- The earliest due time of a waiting row at rest.
SELECT due_at_ms FROM redelivery WHERE state = 0 AND id NOT IN ({in_flight})
ORDER BY due_at_ms, id LIMIT 1;

-- name: add_rows
-- Rows without their messages.
COPY redelivery (
    id, state, due_at_ms, destination, is_final, source, redelivery_id, redelivery_count, delay_ms,
    expiration_ms, rule, encoding, received_at_ms, size_bytes, cause, message_id, cause_group,
    final_queue, recall, recall_operation, passes_gates, gate
) FROM STDIN (FORMAT binary);

-- name: add_messages
-- The messages of rows.
COPY message (id, body) FROM STDIN (FORMAT binary);

-- name: add_keys
-- A block tells of messages.
COPY event_key (key, block) FROM STDIN (FORMAT binary);

-- name: add_unfinished
-- Begin a cycle.
INSERT INTO unfinished_cycle VALUES (
    %(instance)s, %(cycle)s, %(taken)s::bigint[], %(sent)s::bigint[],
    %(tally_destinations)s::text[], %(tally_states)s::smallint[], %(tally_counts)s::bigint[],
    %(hold_sources)s::text[], %(hold_counts)s::bigint[], %(event_block)s, %(counts)s::jsonb,
    %(final)s::bigint[], %(renamed)s::bigint[], %(renamed_to)s::bigint[]
);

-- fragment: *_ids sent taken final
-- What the unfinished cycle sent, took, or sent to final dead-letter queues.
(SELECT {variant}_ids FROM unfinished_cycle WHERE instance = %(instance)s)::bigint[]

-- fragment: named_ids
-- What the caller names.
%(ids)s::bigint[]

-- name: delete_*_rows sent taken named
-- Rows without their messages.
DELETE FROM redelivery WHERE id = ANY ({*_ids});

-- name: delete_*_messages sent taken final named
-- Messages of rows; the broker has those in final dead-letter queues.
DELETE FROM message WHERE id = ANY ({*_ids});

-- name: exhaust_*_rows final named
-- What was sent to its final dead-letter queue.
UPDATE redelivery SET state = 3, reason = NULL, gate = NULL, passes_gates = false,
    final_queue = coalesce(final_queue, destination),
    due_at_ms = CASE WHEN recall IN (8, 9) THEN received_at_ms + delay_ms ELSE due_at_ms END
WHERE id = ANY ({*_ids});

-- name: rename_in_* redelivery message
-- New rows take the places of those that are gone.
UPDATE {variant} AS r SET id = n.new
FROM unfinished_cycle AS u, unnest(u.renamed_ids, u.renamed_to_ids) AS n (old, new)
WHERE u.instance = %(instance)s AND r.id = n.old;

-- name: set_* uid token_created
-- Numbers of rows may have been used by a later state of this store; its first token is in the broker.
UPDATE instance SET {variant} = %(value)s WHERE number = %(instance)s;

-- fragment: order_recalled_number
-- By number, as an index has them.
recall, id

-- fragment: order_recalled_due
-- By due time.
due_at_ms, id

-- name: recalled_by_* number due
-- Rows of one kind, by what becomes of them with their final queue.
SELECT {view_columns}, false FROM redelivery
WHERE recall = %(recall)s AND recall <> 0 AND state IN (2, 3) AND id NOT IN ({in_flight})
ORDER BY {order_recalled_*} LIMIT %(limit)s;

-- fragment: is_planned
-- One is planned at a time.
NOT is_written

-- fragment: segment_id
-- The column that tells segments apart, in the order they were planned.
id

-- name: lying_rows
-- Rows of messages that lie in their final queues; nobody else changes them.
SELECT {view_columns}, false FROM redelivery
WHERE left(redelivery_id, 200) = ANY (%(keys)s::text[])
    AND redelivery_id = ANY (%(redelivery_ids)s::text[])
    AND state = 3 AND is_final AND id NOT IN ({in_flight})
ORDER BY id FOR UPDATE;

-- name: count_cycle
-- What the unfinished cycle makes of the tallies.
INSERT INTO tally AS t (instance, destination, state, count)
SELECT instance, d.destination, d.state, d.count
FROM unfinished_cycle,
    unnest(tally_destinations, tally_states, tally_counts) AS d (destination, state, count)
WHERE instance = %(instance)s
ON CONFLICT (instance, destination, state) DO UPDATE SET count = t.count + excluded.count;

-- name: count_holds
-- What the unfinished cycle took of backlogs.
UPDATE hold SET remaining = greatest(0, remaining - h.count)
FROM unfinished_cycle, unnest(hold_sources, hold_counts) AS h (source, count)
WHERE instance = %(instance)s AND hold.source = h.source;

-- fragment: counts_at_once
-- What a transaction changes without a cycle.
SELECT %(counts)s::jsonb AS counts

-- fragment: counts_of_cycle
-- What the unfinished cycle changes.
SELECT counts FROM unfinished_cycle WHERE instance = %(instance)s

-- name: add_* counts_at_once counts_of_cycle
-- Adds to the counts (`Counts.packed`). Where too many groups are remembered, new ones are one.
WITH changes AS ({*}),
    deaths AS (
        SELECT c.*, CASE WHEN f.instance IS NULL AND is_full THEN %(more)s ELSE c.cause_group END
            AS known_group
        FROM changes, (
            SELECT EXISTS (
                SELECT FROM failure_group WHERE instance = %(instance)s OFFSET %(groups_max)s - 1
            ) AS is_full
        ) AS room, jsonb_to_recordset(counts -> 'groups') AS c (
            destination text, cause_group text, first_at_ms bigint, last_at_ms bigint,
            total bigint, example_id text
        ) LEFT JOIN failure_group AS f ON (f.instance, f.destination, f.cause_group)
            = (%(instance)s, c.destination, c.cause_group)
    ), events AS (
        INSERT INTO failure_count AS f (
            bucket_ms, kind, destination, cause_group, attempt, instance, count
        )
        SELECT c.bucket_ms, c.kind, c.destination, coalesce(known_group, c.cause_group) AS known,
            c.attempt, %(instance)s, sum(c.count)
        FROM changes, jsonb_to_recordset(counts -> 'events') AS c (
            bucket_ms bigint, kind text, destination text, cause_group text, attempt bigint,
            count bigint
        ) LEFT JOIN deaths USING (destination, cause_group)
        GROUP BY c.bucket_ms, c.kind, c.destination, known, c.attempt
        ON CONFLICT (bucket_ms, kind, destination, cause_group, attempt, instance)
        DO UPDATE SET count = f.count + excluded.count
    ), failures AS (
        INSERT INTO failure_group AS f (
            instance, destination, cause_group, first_at_ms, last_at_ms, total, example_id
        )
        SELECT %(instance)s, destination, known_group, min(first_at_ms), max(last_at_ms),
            sum(total), (array_agg(example_id ORDER BY last_at_ms DESC))[1]
        FROM deaths GROUP BY destination, known_group
        ON CONFLICT (instance, destination, cause_group) DO UPDATE SET
            first_at_ms = least(f.first_at_ms, excluded.first_at_ms),
            last_at_ms = greatest(f.last_at_ms, excluded.last_at_ms),
            total = f.total + excluded.total,
            example_id = CASE WHEN excluded.last_at_ms >= f.last_at_ms THEN excluded.example_id
                ELSE f.example_id END
    ), exhausted AS (
        INSERT INTO exhausted_tally AS t (instance, destination, queue, is_final, count)
        SELECT %(instance)s, c.destination, c.queue, c.is_final, c.count
        FROM changes, jsonb_to_recordset(counts -> 'exhausted') AS c (
            destination text, queue text, is_final boolean, count bigint
        )
        ON CONFLICT (instance, destination, queue, is_final)
        DO UPDATE SET count = t.count + excluded.count
    )
INSERT INTO group_tally AS t (instance, destination, state, cause_group, count)
SELECT %(instance)s, c.destination, c.state, c.cause_group, c.count
FROM changes, jsonb_to_recordset(counts -> 'rows') AS c (
    destination text, state smallint, cause_group text, count bigint
)
ON CONFLICT (instance, destination, state, cause_group)
DO UPDATE SET count = t.count + excluded.count;

-- name: delete_unfinished
-- Its end is known.
DELETE FROM unfinished_cycle WHERE instance = %(instance)s;

-- name: lock_rows
-- Nobody else changes these rows until the transaction ends.
SELECT id, cause_group, destination, is_final, coalesce(final_queue, destination), state
FROM redelivery WHERE id = ANY (%(ids)s::bigint[]) ORDER BY id FOR UPDATE;

-- name: count_rows
-- Count rows in by their destinations, or out, in another state where one is named.
INSERT INTO tally AS t (instance, destination, state, count)
SELECT %(instance)s, left(destination, 500), coalesce(%(state)s::smallint, state),
    %(sign)s * count(*)
FROM redelivery
WHERE id = ANY (%(ids)s::bigint[])
GROUP BY 2, 3
ON CONFLICT (instance, destination, state) DO UPDATE SET count = t.count + excluded.count;

-- name: count_groups
-- Count rows in by their cause groups, or out, in another state where one is named.
INSERT INTO group_tally AS t (instance, destination, state, cause_group, count)
SELECT %(instance)s, left(destination, 400), coalesce(%(state)s::smallint, state), cause_group,
    %(sign)s * count(*)
FROM redelivery
WHERE id = ANY (%(ids)s::bigint[]) AND cause_group IS NOT NULL
GROUP BY 2, 3, 4
ON CONFLICT (instance, destination, state, cause_group)
DO UPDATE SET count = t.count + excluded.count;

-- name: count_exhausted
-- Count exhausted rows in by where they are.
INSERT INTO exhausted_tally AS t (instance, destination, queue, is_final, count)
SELECT %(instance)s, left(destination, 500), left(final_queue, 500), is_final, count(*)
FROM redelivery
WHERE id = ANY (%(ids)s::bigint[]) AND state = 3
GROUP BY 2, 3, 4
ON CONFLICT (instance, destination, queue, is_final)
DO UPDATE SET count = t.count + excluded.count;

-- name: exhausted_tallies
-- Where exhausted rows are, and since when.
SELECT t.destination, t.queue, t.is_final, t.count, coalesce((
    SELECT r.received_at_ms FROM redelivery AS r
    WHERE r.state = 3 AND left(r.destination, 200) = left(t.destination, 200)
        AND left(r.final_queue, 200) = left(t.queue, 200) AND r.is_final = t.is_final
    ORDER BY r.received_at_ms LIMIT 1
), 0)
FROM (
    SELECT destination, queue, is_final, sum(count)::bigint AS count FROM exhausted_tally
    GROUP BY destination, queue, is_final HAVING sum(count) > 0
) AS t;

-- fragment: key_tally
-- What a number of rows is counted by.
destination, state

-- fragment: key_group_tally
-- As key_tally.
destination, state, cause_group

-- fragment: key_exhausted_tally
-- As key_tally.
destination, queue, is_final

-- name: forget_* tally group_tally exhausted_tally
-- What has no rows. Whoever counts there now is left alone, and counts anew otherwise.
WITH empty AS (
    SELECT {key_*}, count(*) AS shares FROM {variant}
    GROUP BY {key_*} HAVING sum(count) = 0 LIMIT %(limit)s
), locked AS (
    SELECT {key_*}, shares, t.count FROM {variant} AS t JOIN empty USING ({key_*})
    FOR UPDATE OF t SKIP LOCKED
), whole AS (
    SELECT {key_*} FROM locked
    GROUP BY {key_*}, shares HAVING count(*) = shares AND sum(count) = 0
)
DELETE FROM {variant} WHERE ({key_*}) IN (SELECT {key_*} FROM whole);

-- name: set_rows_aside
-- What is discarded and can be put back; its messages stay where they are.
WITH gone AS (
    DELETE FROM redelivery WHERE id = ANY (%(ids)s::bigint[]) RETURNING {row_columns}
)
INSERT INTO discarded (operation, discarded_at_ms, {row_columns})
SELECT %(operation)s, %(at_ms)s, {row_columns} FROM gone;

-- name: trim_discarded
-- Removes the oldest discarded messages above the maximum number of bytes.
WITH gone AS (
    DELETE FROM discarded WHERE id IN (
        SELECT id FROM (
            SELECT id, sum(size_bytes + %(row_bytes)s)
                OVER (ORDER BY discarded_at_ms DESC, id DESC) AS total
            FROM discarded
        ) AS summed WHERE total > %(most_bytes)s
    ) RETURNING id
)
DELETE FROM message WHERE id IN (SELECT id FROM gone);

-- name: discarded_size
-- How many bytes count for what is kept of what was discarded.
SELECT coalesce(sum(size_bytes + %(row_bytes)s), 0)::bigint FROM discarded;

-- name: put_rows_back
-- As they were; what was taken out of its final queue to be discarded goes back there.
WITH back AS (
    DELETE FROM discarded WHERE id IN (
        SELECT id FROM discarded WHERE operation = %(number)s ORDER BY id LIMIT %(limit)s
    ) RETURNING *
)
INSERT INTO redelivery ({row_columns})
SELECT id, state, due_at_ms, destination, is_final, source, redelivery_id, redelivery_count,
    delay_ms, expiration_ms, rule, encoding, received_at_ms, size_bytes, cause, message_id, reason,
    cause_group, passes_gates, gate, final_queue,
    CASE recall WHEN 4 THEN 5 WHEN 7 THEN 0 ELSE recall END,
    CASE WHEN recall IN (4, 7) THEN 0 ELSE recall_operation END
FROM back ORDER BY id RETURNING {view_columns}, false;

-- name: forget_discarded
-- What was discarded before a time.
WITH gone AS (
    DELETE FROM discarded WHERE id IN (
        SELECT id FROM discarded WHERE discarded_at_ms < %(before_ms)s
        ORDER BY discarded_at_ms, id LIMIT %(limit)s
    ) RETURNING id
)
DELETE FROM message WHERE id IN (SELECT id FROM gone);

-- name: change_rows
-- What an operator's action makes of rows.
UPDATE redelivery AS r SET state = c.state, due_at_ms = c.due_at_ms, destination = c.destination,
is_final = c.is_final, redelivery_count = c.redelivery_count, reason = c.reason,
passes_gates = c.passes_gates, final_queue = c.final_queue, gate = c.gate, recall = c.recall,
recall_operation = c.recall_operation, cause = coalesce(c.cause, r.cause),
cause_group = coalesce(c.cause_group, r.cause_group)
FROM unnest(
    %(ids)s::bigint[], %(states)s::smallint[], %(dues)s::bigint[], %(destinations)s::text[],
    %(finals)s::boolean[], %(counts)s::bigint[], %(reasons)s::text[], %(passes)s::boolean[],
    %(queues)s::text[], %(recalls)s::smallint[], %(operations)s::bigint[], %(causes)s::text[],
    %(groups)s::text[], %(gates)s::text[]
) AS c (
    id, state, due_at_ms, destination, is_final, redelivery_count, reason, passes_gates,
    final_queue, recall, recall_operation, cause, cause_group, gate
)
WHERE r.id = c.id;

-- name: add_tallies
-- Differences.
INSERT INTO tally AS t (instance, destination, state, count)
SELECT %(instance)s, destination, state, count
FROM unnest(%(destinations)s::text[], %(states)s::smallint[], %(counts)s::bigint[])
    AS d (destination, state, count)
ON CONFLICT (instance, destination, state) DO UPDATE SET count = t.count + excluded.count;

-- name: read_tallies
-- All tallies.
SELECT destination, state, sum(count)::bigint FROM tally
GROUP BY destination, state HAVING sum(count) <> 0 ORDER BY destination, state;

-- name: count_tallied
-- How many rows there are of a destination, a state, both, or at all.
SELECT coalesce(sum(count), 0)::bigint FROM tally
WHERE (%(destination)s::text IS NULL OR destination = %(destination)s)
    AND (%(state)s::smallint IS NULL OR state = %(state)s);

-- name: lock
-- Be the only one with this lock until the transaction ends.
SELECT pg_advisory_xact_lock(%(lock)s);

-- name: read_open_holds
-- Sources, and what is left of their backlog once all unfinished cycles are finished.
SELECT source, greatest(0, remaining - coalesce((
    SELECT sum(h.count) FROM unfinished_cycle, unnest(hold_sources, hold_counts) AS h (source, count)
    WHERE h.source = hold.source
), 0))::bigint
FROM hold;

-- name: list_* all kept by_destination by_group by_redelivery_id by_ids
-- Rows by number.
SELECT {view_columns}, id IN ({in_flight}) FROM redelivery
WHERE {up_*} AND id NOT IN ({taken}) AND {row_conditions}
ORDER BY {order_*} LIMIT %(limit)s;

-- name: newest_* all kept by_destination by_group
-- Rows by number, the highest first.
SELECT {view_columns}, id IN ({in_flight}) FROM redelivery
WHERE {down_*} AND id NOT IN ({taken}) AND {row_conditions}
ORDER BY {back_*} LIMIT %(limit)s;

-- name: count_* all kept by_destination by_group by_redelivery_id by_ids
-- How many rows.
SELECT count(*) FROM redelivery WHERE {of_*} AND id NOT IN ({taken}) AND {row_conditions};

-- name: floor_* all kept by_destination by_group
-- So far down rows are looked at; no row = to the last.
SELECT id FROM redelivery WHERE {down_*} ORDER BY {back_*} OFFSET %(look)s - 1 LIMIT 1;

-- name: ceiling_* all kept by_destination by_group
-- So far up rows are looked at; no row = to the last.
SELECT id FROM redelivery WHERE {up_*} ORDER BY {order_*} OFFSET %(look)s - 1 LIMIT 1;

-- name: due_* waiting kept
-- Rows of one state by due time.
SELECT {view_columns}, id IN ({in_flight}) FROM redelivery
WHERE {*_by_due} AND (due_at_ms, id) <= (%(until_ms)s::bigint, %(until_id)s::bigint)
    AND id NOT IN ({taken}) AND {row_conditions}
ORDER BY {due_order_*} LIMIT %(limit)s;

-- name: until_* waiting kept
-- So far rows of one state are looked at by due time; no row = to the last.
SELECT due_at_ms, id FROM redelivery WHERE {*_by_due}
ORDER BY {due_order_*} OFFSET %(look)s - 1 LIMIT 1;

-- name: gate_tallies
-- What gates let wait; without a gate's name, what waits for events outside.
SELECT left(destination, 200), gate, count(*), min(due_at_ms), max(due_at_ms) FROM redelivery
WHERE gate IS NOT NULL AND state = 0 AND due_at_ms > %(now_ms)s GROUP BY 1, 2
UNION ALL SELECT left(destination, 200), '', count(*), min(due_at_ms), max(due_at_ms)
FROM redelivery WHERE gate IS NOT NULL AND state = 1 AND due_at_ms > %(now_ms)s GROUP BY 1;

-- name: due_counts
-- How many waiting rows are due between which bounds.
SELECT width_bucket(due_at_ms, %(bounds)s::bigint[]), count(*) FROM redelivery
WHERE state = 0 AND due_at_ms >= %(from_ms)s AND due_at_ms < %(until_ms)s AND id NOT IN ({taken})
GROUP BY 1;

-- name: lock_to_change
-- Rows as they are now, those that nobody else has locked.
SELECT {view_columns}, false FROM redelivery
WHERE id = ANY (%(ids)s::bigint[]) AND id NOT IN ({in_flight}) AND {row_conditions}
ORDER BY id FOR UPDATE SKIP LOCKED;

-- name: left_at_rest
-- Which of these rows are in no unfinished cycle.
SELECT id FROM redelivery
WHERE id = ANY (%(ids)s::bigint[]) AND id NOT IN ({in_flight}) AND {row_conditions};

-- name: read_message
-- The encoded message of a row.
SELECT body FROM message AS m WHERE id = %(id)s AND id NOT IN ({taken})
    AND EXISTS (SELECT FROM redelivery AS r WHERE r.id = m.id);

-- name: read_blocks
-- Some blocks.
SELECT seq, packing, body FROM event_block WHERE seq = ANY (%(seqs)s::bigint[]) ORDER BY seq;

-- name: delete_keys
-- A block tells nothing more of these messages.
DELETE FROM event_key WHERE key = ANY (%(keys)s::text[]) AND block = %(block)s;

-- name: blocks_of_message
-- The blocks that tell of a message, oldest first.
SELECT b.packing, b.body FROM event_key AS k JOIN event_block AS b ON b.seq = k.block
WHERE k.key = %(key)s
    AND k.block NOT IN ({hidden_blocks})
ORDER BY k.block;

-- name: read_event_count
-- How many events are kept, with those of unfinished cycles.
SELECT sum(event_count)::bigint FROM instance;

-- name: oldest_blocks
-- Blocks all of whose events are older than a time, oldest first, that may be forgotten.
SELECT seq, event_count, segment FROM event_block
WHERE newest_at_ms < %(before_ms)s
    AND seq NOT IN ({hidden_blocks}) AND {not_for_journal}
ORDER BY newest_at_ms, seq LIMIT %(limit)s;

-- name: blocks_before
-- The history before a block, the newest first.
SELECT seq, packing, body FROM event_block WHERE seq < %(before)s ORDER BY seq DESC LIMIT %(limit)s;

-- name: first_blocks
-- Blocks in the order they were written, that may be forgotten.
SELECT seq, event_count, segment FROM event_block
WHERE seq NOT IN ({hidden_blocks}) AND {not_for_journal}
ORDER BY seq LIMIT %(limit)s;

-- name: read_outbox
-- The last segment.
SELECT stream, last_number FROM outbox;

-- name: unplanned_blocks
-- Finished blocks that are in no segment, in the order they were written.
SELECT seq, event_count FROM event_block
WHERE segment IS NULL AND seq NOT IN ({hidden_blocks})
ORDER BY segment, seq LIMIT %(limit)s;

-- name: add_segment
-- Plan a segment.
INSERT INTO journal_segment (stream, number, event_count)
VALUES (%(stream)s, %(number)s, %(event_count)s) RETURNING id;

-- name: mark_blocks
-- These blocks are in a segment.
UPDATE event_block SET segment = %(segment)s WHERE seq = ANY (%(seqs)s::bigint[]);

-- name: unmark_blocks
-- The blocks of a segment are in none.
UPDATE event_block SET segment = NULL WHERE segment = %(segment)s;

-- name: find_segment
-- The id of a segment.
SELECT id FROM journal_segment WHERE stream = %(stream)s AND number = %(number)s;

-- name: segment_blocks
-- The next blocks of a segment.
SELECT seq, packing, body FROM event_block
WHERE segment = %(segment)s AND seq > %(after)s
ORDER BY seq LIMIT %(limit)s;

-- name: forget_segments
-- Segments that are not whole any more.
DELETE FROM journal_segment WHERE id = ANY (%(ids)s::bigint[]);

-- name: read_lag
-- How many events that count are in no written segment, and the first block of them.
SELECT (
    (SELECT sum(event_count) FROM instance) - written_count
    - coalesce((
        SELECT sum(b.event_count) FROM unfinished_cycle AS u, LATERAL (
            SELECT event_count FROM event_block WHERE seq = u.event_block LIMIT 1
        ) AS b
    ), 0)
)::bigint, packing, body
FROM outbox LEFT JOIN (
    (
        SELECT seq, packing, body FROM event_block
        WHERE segment = (SELECT id FROM journal_segment WHERE NOT is_written)
        ORDER BY seq LIMIT 1
    ) UNION ALL (
        SELECT seq, packing, body FROM event_block
        WHERE segment IS NULL AND seq NOT IN ({hidden_blocks})
        ORDER BY segment, seq LIMIT 1
    ) ORDER BY seq LIMIT 1
) AS unwritten ON true;

-- name: size_bytes
-- The space of all tables with their indexes and large values.
SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r';

-- name: read_groups
-- Groups of failures, the latest death first.
SELECT destination, cause_group, min(first_at_ms), max(last_at_ms), sum(total)::bigint,
    (array_agg(example_id ORDER BY last_at_ms DESC))[1]
FROM failure_group
GROUP BY destination, cause_group HAVING max(last_at_ms) >= %(since_ms)s
ORDER BY max(last_at_ms) DESC, destination, cause_group LIMIT %(limit)s;

-- name: failure_counts
-- Counts by time.
SELECT bucket_ms - mod(bucket_ms, %(step_ms)s::bigint), kind, destination, cause_group, attempt,
    sum(count)::bigint
FROM failure_count
WHERE bucket_ms >= %(from_ms)s AND bucket_ms < %(until_ms)s AND kind = ANY (%(kinds)s::text[])
GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5;

-- fragment: all_group_tallies
-- By cause group; of no group is what the tally has more.
    SELECT left(destination, 400) AS destination, state, '' AS cause_group, count FROM tally
    UNION ALL SELECT destination, state, '', - count FROM group_tally
    UNION ALL SELECT destination, state, cause_group, count FROM group_tally

-- name: group_tallies
-- All tallies by cause group.
SELECT destination, state, cause_group, sum(count)::bigint FROM ({all_group_tallies}) AS t
GROUP BY destination, state, cause_group HAVING sum(count) <> 0
ORDER BY destination, state, cause_group;

-- name: count_grouped
-- How many rows there are of a group, of one destination or all, of one state or any.
SELECT coalesce(sum(count), 0)::bigint FROM ({all_group_tallies}) AS t
WHERE cause_group = %(cause_group)s
    AND (%(destination)s::text IS NULL OR destination = left(%(destination)s, 400))
    AND (%(state)s::smallint IS NULL OR state = %(state)s);

-- name: destinations_of_group
-- Where there are rows of a group; two tell that there are several.
SELECT destination FROM group_tally WHERE cause_group = %(cause_group)s
GROUP BY destination HAVING sum(count) > 0 LIMIT 2;

-- name: tail
-- What is visible now: transactions, but not the events of unfinished cycles.
SELECT pg_current_snapshot()::text, array({hidden_blocks});

-- name: blocks_since
-- Blocks that became visible between two such moments, each in one order for good.
SELECT xid::text, seq, event_count FROM (
    (
        SELECT xid, seq, event_count FROM event_block
        WHERE (xid, seq) > (%(after_xid)s::xid8, %(after_seq)s::bigint)
            AND xid >= pg_snapshot_xmin(%(since)s::pg_snapshot)
            AND xid < pg_snapshot_xmax(%(until)s::pg_snapshot)
            AND NOT pg_visible_in_snapshot(xid, %(since)s::pg_snapshot)
            AND pg_visible_in_snapshot(xid, %(until)s::pg_snapshot)
            AND seq <> ALL (%(hidden_until)s::bigint[])
        ORDER BY xid, seq LIMIT %(limit)s
    ) UNION ALL (
        SELECT coalesce(xid, '0'), seq, event_count FROM event_block
        WHERE seq = ANY (%(hidden_since)s::bigint[]) AND seq <> ALL (%(hidden_until)s::bigint[])
            AND (coalesce(xid, '0'), seq) > (%(after_xid)s::xid8, %(after_seq)s::bigint)
    )
) AS b
ORDER BY xid, seq LIMIT %(limit)s;

-- name: blocks_about
-- Blocks above a number that tell of some messages.
SELECT packing, body FROM event_block WHERE seq IN (
    SELECT block FROM event_key WHERE key = ANY (%(keys)s::text[]) AND block > %(since)s
) ORDER BY seq;

-- name: forget_lives
-- The prefixes are those of `model/life.py`.
DELETE FROM event_key WHERE key LIKE 'copy:%%' OR key LIKE 'dead:%%';

-- name: claim_pairs
-- Waits for whoever inserts one of these and has not ended; in one order, so that nobody waits in a circle.
INSERT INTO event_key (key, block)
SELECT pair, -1 FROM unnest(%(pairs)s::text[]) AS pair ORDER BY pair ON CONFLICT DO NOTHING;

-- name: known_keys
--- Keys that some block has, and whether one is not of an unfinished cycle of another instance.
SELECT key, bool_or(
    NOT EXISTS (SELECT FROM unfinished_cycle WHERE event_block = block AND instance <> %(instance)s)
)
FROM event_key WHERE key = ANY (%(keys)s::text[]) GROUP BY key;

-- name: event_mark
-- The newest block of events.
SELECT coalesce(max(seq), 0) FROM event_block;

-- name: add_operation
-- Keep an operation.
INSERT INTO operation (state, body) VALUES (%(state)s, %(body)s) RETURNING id;

-- name: lock_operation
-- One operation; nobody else changes it until the transaction ends.
SELECT body FROM operation WHERE id = %(number)s FOR NO KEY UPDATE;

-- name: write_operation
-- What an operation is now.
UPDATE operation SET state = %(state)s, ended_at_ms = %(ended_at_ms)s, body = %(body)s
WHERE id = %(number)s;

-- name: open_operations
-- Those that are running, and those with messages of which something is to come still.
SELECT body FROM operation AS o
WHERE state IN ('running', 'undoing')
    OR EXISTS (SELECT FROM operation_member WHERE operation = o.id AND outcome IS NULL)
    OR EXISTS (SELECT FROM operation_member WHERE operation = o.id AND outcome = 're-sent')
ORDER BY id;

-- name: add_members
-- Messages that an operation changed; if it did so before, what became of them then is forgotten.
INSERT INTO operation_member (operation, redelivery_id, destination, changed_at_ms)
SELECT %(number)s, m.redelivery_id, m.destination, m.changed_at_ms
FROM unnest(%(redelivery_ids)s::text[], %(destinations)s::text[], %(changed)s::bigint[])
    AS m (redelivery_id, destination, changed_at_ms)
ON CONFLICT (operation, redelivery_id) DO UPDATE SET destination = excluded.destination,
changed_at_ms = excluded.changed_at_ms, resent_at_ms = NULL, outcome = NULL, evidence = '';

-- name: members_among
-- Which of these messages an operation has changed already.
SELECT redelivery_id, changed_at_ms FROM operation_member
WHERE operation = %(number)s AND redelivery_id = ANY (%(redelivery_ids)s::text[]);

-- name: count_unsent_members
-- How many of these messages an operation has changed already, and nobody has sent since.
SELECT count(*) FROM operation_member
WHERE operation = %(number)s AND redelivery_id = ANY (%(redelivery_ids)s::text[])
    AND resent_at_ms IS NULL;

-- name: list_members
-- Members in the order of their ids.
SELECT redelivery_id, destination, changed_at_ms, resent_at_ms, outcome, evidence
FROM operation_member
WHERE (operation, redelivery_id) > (%(number)s::bigint, %(after)s)
    AND operation <= %(number)s::bigint
    AND (%(outcome)s::text IS NULL OR outcome = %(outcome)s)
ORDER BY operation, redelivery_id LIMIT %(limit)s;

-- name: count_members
-- Members by outcome.
SELECT outcome, count(*) FROM operation_member WHERE operation = %(number)s GROUP BY outcome;

-- name: open_members
-- Members of which something is to come still, among these messages.
SELECT operation, redelivery_id, destination, changed_at_ms, resent_at_ms, outcome, evidence
FROM operation_member
WHERE redelivery_id = ANY (%(redelivery_ids)s::text[])
    AND (outcome IS NULL OR outcome = 're-sent');

-- name: write_member_updates
-- What was seen of members.
UPDATE operation_member AS m SET resent_at_ms = s.resent_at_ms, outcome = s.outcome,
evidence = s.evidence
FROM unnest(
    %(operations)s::bigint[], %(redelivery_ids)s::text[], %(resent)s::bigint[],
    %(outcomes)s::text[], %(evidence)s::text[]
) AS s (operation, redelivery_id, resent_at_ms, outcome, evidence)
WHERE m.operation = s.operation AND m.redelivery_id = s.redelivery_id;

-- name: write_outcomes
-- What became of members, unless it is known by now.
UPDATE operation_member AS m SET outcome = v.outcome, evidence = v.evidence
FROM unnest(%(redelivery_ids)s::text[], %(outcomes)s::text[], %(evidence)s::text[])
    AS v (redelivery_id, outcome, evidence)
WHERE m.operation = %(number)s AND m.redelivery_id = v.redelivery_id
    AND (m.outcome IS NULL OR m.outcome = 're-sent');

-- name: keep_original
-- The message of a row as it is, before it is another.
INSERT INTO original (redelivery_id, row_id, edited_at_ms, actor, encoding, message)
SELECT left(redelivery_id, 200), id, %(edited_at_ms)s, %(actor)s, encoding, body
FROM redelivery JOIN message USING (id) WHERE id = %(id)s;

-- name: replace_message
-- Other bytes for a row.
WITH body AS (UPDATE message SET body = %(body)s WHERE id = %(id)s)
UPDATE redelivery SET size_bytes = length(%(body)s::bytea) WHERE id = %(id)s;

-- name: read_originals
-- What a message was before edits.
SELECT row_id, edited_at_ms, actor, encoding, message FROM original
WHERE redelivery_id = %(redelivery_id)s ORDER BY id;

-- name: recent_observations
-- What was seen of all destinations lately, the oldest first.
SELECT body FROM queue_observation
WHERE minute >= %(since_minute)s AND at_ms >= %(since_ms)s ORDER BY at_ms;

-- name: add_shared_notes
-- Notes for the other instances.
INSERT INTO shared_note (instance, body) VALUES (%(instance)s, %(body)s);

-- name: read_shared_notes
-- Notes since a position, with their age; those of this instance without their bodies.
SELECT id, extract(epoch FROM clock_timestamp() - at)::float8,
    CASE WHEN instance <> %(instance)s OR %(is_first)s THEN body END
FROM shared_note WHERE id > %(position)s ORDER BY id;

-- name: forget_shared_notes
-- Notes that are too old, or too many.
DELETE FROM shared_note WHERE at < clock_timestamp() - make_interval(secs => %(kept_s)s) OR id IN (
    SELECT id FROM (
        SELECT id, sum(octet_length(body)) OVER (ORDER BY id DESC) AS total FROM shared_note
    ) AS sizes WHERE total > %(kept_bytes)s
);

-- name: forget_service_marks
-- What services did before a time, but for the latest mark of each instance that is known; and
-- old markers.
DELETE FROM service_mark WHERE id IN (
    SELECT id FROM service_mark AS m WHERE at_ms < %(before_ms)s AND (
        kind = 'marker' OR EXISTS (SELECT 1 FROM service_mark AS l WHERE l.instance = m.instance AND l.id > m.id)
        OR NOT EXISTS (SELECT 1 FROM instance WHERE name = m.instance)
    )
    ORDER BY id LIMIT %(limit)s
);

-- name: forget_counts
-- Counts from before a time.
DELETE FROM failure_count AS f USING (
    SELECT * FROM failure_count WHERE bucket_ms < %(before_ms)s
    ORDER BY bucket_ms LIMIT %(limit)s FOR UPDATE SKIP LOCKED
) AS old
WHERE (f.bucket_ms, f.kind, f.destination, f.cause_group, f.attempt, f.instance)
    = (old.bucket_ms, old.kind, old.destination, old.cause_group, old.attempt, old.instance);

-- fragment: unmerged_minutes
-- Counts by the minute in a range of time; they become five minutes.
bucket_ms >= %(from_ms)s AND bucket_ms < %(before_ms)s AND bucket_ms %% 300000 <> 0

-- fragment: unmerged_hours
-- Counts of each instance by less than an hour; they become hours of all.
bucket_ms < %(before_ms)s AND (bucket_ms %% 3600000 <> 0 OR instance <> 0)

-- fragment: merged_minutes
-- The time and instance that these are counted under.
bucket_ms - bucket_ms %% 300000 AS step_ms, instance AS counted_as

-- fragment: merged_hours
-- As merged_minutes.
bucket_ms - bucket_ms %% 3600000 AS step_ms, 0 AS counted_as

-- name: merge_* minutes hours
-- Make fewer counts out of those of short times.
WITH old AS (
    SELECT * FROM failure_count WHERE {unmerged_*}
    ORDER BY bucket_ms LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM failure_count AS f USING old
    WHERE (f.bucket_ms, f.kind, f.destination, f.cause_group, f.attempt, f.instance)
        = (old.bucket_ms, old.kind, old.destination, old.cause_group, old.attempt, old.instance)
    RETURNING f.*
), merged AS (
    INSERT INTO failure_count AS f (
        bucket_ms, instance, kind, destination, cause_group, attempt, count
    )
    SELECT {merged_*}, kind, destination, cause_group, attempt, sum(count)
    FROM gone GROUP BY step_ms, counted_as, kind, destination, cause_group, attempt
    ON CONFLICT (bucket_ms, kind, destination, cause_group, attempt, instance)
    DO UPDATE SET count = f.count + excluded.count
)
SELECT count(*) FROM gone;

-- name: forget_failures
-- Groups of which nobody died since a time. Whoever counts there now is left alone.
WITH old AS (
    SELECT destination, cause_group FROM failure_group
    GROUP BY destination, cause_group HAVING max(last_at_ms) < %(before_ms)s LIMIT %(limit)s
), locked AS (
    SELECT f.instance, f.destination, f.cause_group
    FROM failure_group AS f JOIN old USING (destination, cause_group)
    WHERE f.last_at_ms < %(before_ms)s FOR UPDATE OF f SKIP LOCKED
)
DELETE FROM failure_group AS f USING locked
WHERE (f.instance, f.destination, f.cause_group)
    = (locked.instance, locked.destination, locked.cause_group);

-- name: forget_members
-- Members of operations that ended before a time.
DELETE FROM operation_member AS m USING (
    SELECT operation, redelivery_id FROM operation JOIN operation_member ON operation = id
    WHERE ended_at_ms < %(before_ms)s LIMIT %(limit)s
) AS old
WHERE (m.operation, m.redelivery_id) = (old.operation, old.redelivery_id);

-- name: forget_operations
-- Operations that ended before a time, have no members, and for which no row is to be discarded.
DELETE FROM operation WHERE id IN (
    SELECT id FROM operation
    WHERE ended_at_ms < %(before_ms)s
        AND NOT EXISTS (SELECT FROM operation_member WHERE operation = id)
        AND id NOT IN (
            SELECT recall_operation FROM redelivery WHERE recall IN (3, 4, 7) AND recall <> 0
        )
    ORDER BY id LIMIT %(limit)s
);

-- name: forget_observations
-- What was seen before a time.
DELETE FROM queue_observation AS o USING (
    SELECT destination, minute FROM queue_observation
    WHERE minute < %(before_minute)s ORDER BY minute LIMIT %(limit)s FOR UPDATE SKIP LOCKED
) AS old
WHERE (o.destination, o.minute) = (old.destination, old.minute);

-- name: make_reserve
-- With this factor a row of a thousand bytes has a page of its own.
CREATE TABLE reserve (filler text NOT NULL) WITH (fillfactor = 10);
