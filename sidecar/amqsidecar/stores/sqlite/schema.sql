-- The schedule in one SQLite file. Times are milliseconds since the epoch, from our own clock.
-- Booleans are 0 or 1. A state is 0 waiting, 1 held, 2 parked, 3 exhausted.

-- What the file as a whole knows; one row.
CREATE TABLE meta (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    instance TEXT NOT NULL,
    uid TEXT NOT NULL,
    finished_cycle INTEGER NOT NULL CHECK (finished_cycle >= 0),
    next_id INTEGER NOT NULL CHECK (next_id > 0),
    event_count INTEGER NOT NULL CHECK (event_count >= 0),
    token_created INTEGER NOT NULL CHECK (token_created IN (0, 1))
) STRICT;

-- Texts that rows repeat: destinations, sources, rules, encodings; and in how many places.
CREATE TABLE word (
    id INTEGER PRIMARY KEY,
    text TEXT NOT NULL UNIQUE,
    uses INTEGER NOT NULL DEFAULT 0 CHECK (uses >= 0)
) STRICT;

CREATE INDEX word_unused ON word (uses) WHERE uses = 0;

-- One row per scheduled message, without its bytes, so that scans don't read them. `cause_group` and
-- `final_queue` are words; 0 = the cause has no group, or no final dead-letter queue was decided.
-- `gate` is the name of the gate that delays it, `message_group` is null where no gate looks at it.
-- `recall` is what becomes of a row with its final queue, by `RECALLS`, for `recall_operation`.
CREATE TABLE redelivery (
    id INTEGER PRIMARY KEY,
    state INTEGER NOT NULL CHECK (state IN (0, 1, 2, 3)),
    due_at_ms INTEGER NOT NULL,
    destination INTEGER NOT NULL,
    is_final INTEGER NOT NULL CHECK (is_final IN (0, 1)),
    source INTEGER NOT NULL,
    redelivery_id TEXT NOT NULL,
    redelivery_count INTEGER NOT NULL,
    delay_ms INTEGER NOT NULL,
    expiration_ms INTEGER NOT NULL,
    rule INTEGER NOT NULL,
    encoding INTEGER NOT NULL,
    received_at_ms INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    cause TEXT,
    message_id TEXT,
    reason TEXT,
    cause_group INTEGER NOT NULL,
    passes_gates INTEGER NOT NULL DEFAULT 0,
    gate TEXT,
    message_group TEXT,
    final_queue INTEGER NOT NULL,
    recall INTEGER NOT NULL DEFAULT 0,
    recall_operation INTEGER NOT NULL DEFAULT 0
) STRICT;

-- Every index ends with the row's id without saying so. The state stands in them because SQLite
-- would read the row to know it.
CREATE INDEX redelivery_due ON redelivery (state, due_at_ms) WHERE state = 0;
CREATE INDEX redelivery_kept ON redelivery (state) WHERE state <> 0;
CREATE INDEX redelivery_kept_due ON redelivery (state, due_at_ms) WHERE state <> 0;
CREATE INDEX redelivery_by_destination ON redelivery (destination);
CREATE INDEX redelivery_by_redelivery_id ON redelivery (redelivery_id);
CREATE INDEX redelivery_by_group ON redelivery (destination, cause_group) WHERE cause_group <> 0;
CREATE INDEX redelivery_gated ON redelivery (destination, gate, due_at_ms) WHERE gate IS NOT NULL;
CREATE INDEX redelivery_exhausted
ON redelivery (destination, final_queue, is_final, received_at_ms, state) WHERE state = 3;
CREATE INDEX redelivery_recall ON redelivery (recall) WHERE recall <> 0;

-- In the order of first deaths; what is final stands in no order. `is_final` as the state elsewhere.
CREATE INDEX redelivery_in_order ON redelivery (destination, message_group, redelivery_id, is_final)
WHERE message_group IS NOT NULL AND is_final = 0;

-- The encoded messages, by number of their row.
CREATE TABLE message (
    id INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;

-- What people discarded can be put back for a while. Its message stays in `message`.
CREATE TABLE discarded (
    id INTEGER PRIMARY KEY,
    operation INTEGER NOT NULL,
    discarded_at_ms INTEGER NOT NULL,
    state INTEGER NOT NULL,
    due_at_ms INTEGER NOT NULL,
    destination INTEGER NOT NULL,
    is_final INTEGER NOT NULL,
    source INTEGER NOT NULL,
    redelivery_id TEXT NOT NULL,
    redelivery_count INTEGER NOT NULL,
    delay_ms INTEGER NOT NULL,
    expiration_ms INTEGER NOT NULL,
    rule INTEGER NOT NULL,
    encoding INTEGER NOT NULL,
    received_at_ms INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    cause TEXT,
    message_id TEXT,
    reason TEXT,
    cause_group INTEGER NOT NULL,
    passes_gates INTEGER NOT NULL,
    gate TEXT,
    message_group TEXT,
    final_queue INTEGER NOT NULL,
    recall INTEGER NOT NULL,
    recall_operation INTEGER NOT NULL
) STRICT;

CREATE INDEX discarded_by_operation ON discarded (operation);
CREATE INDEX discarded_by_age ON discarded (discarded_at_ms, id, size_bytes);

-- How many rows there are, kept by differences; without those of the unfinished cycle.
CREATE TABLE group_tally (
    destination INTEGER NOT NULL,
    cause_group INTEGER NOT NULL,
    state INTEGER NOT NULL,
    count INTEGER NOT NULL CHECK (count >= 0),
    PRIMARY KEY (destination, cause_group, state)
) STRICT, WITHOUT ROWID;

-- How many exhausted rows there are by where they are, kept by differences as `group_tally`.
CREATE TABLE exhausted_tally (
    final_queue INTEGER NOT NULL,
    destination INTEGER NOT NULL,
    is_final INTEGER NOT NULL,
    count INTEGER NOT NULL CHECK (count >= 0),
    PRIMARY KEY (final_queue, destination, is_final)
) STRICT, WITHOUT ROWID;

-- The cycle whose end is not known yet; no row or one. All that it changes stands here, so that
-- finishing and undoing it touch nothing else. Sets of ids are packed runs, tallies packed triples. `failures`
-- is what it adds to the counts of failures; `final_runs` what it sends to final dead-letter queues,
-- which `sent_runs` is without; `renamed` runs of its new rows, each with the number of the row whose
-- place the first one takes.
CREATE TABLE unfinished_cycle (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    cycle INTEGER NOT NULL,
    taken_count INTEGER NOT NULL,
    sent_count INTEGER NOT NULL,
    taken_runs BLOB NOT NULL,
    sent_runs BLOB NOT NULL,
    taken_tally BLOB NOT NULL,
    holds BLOB NOT NULL,
    event_block INTEGER,
    failures BLOB NOT NULL,
    final_runs BLOB NOT NULL,
    renamed BLOB NOT NULL
) STRICT;

-- How many more dead letters of a source are backlog; 0 = none, but seen.
CREATE TABLE hold (
    source TEXT PRIMARY KEY,
    remaining INTEGER NOT NULL CHECK (remaining >= 0)
) STRICT, WITHOUT ROWID;

-- Events, as they were written together: one block per cycle or action, never one row per event.
-- AUTOINCREMENT: a number that a reader has seen never comes back for other events.
CREATE TABLE event_block (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    newest_at_ms INTEGER NOT NULL,
    event_count INTEGER NOT NULL,
    packing INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;

CREATE INDEX event_block_by_age ON event_block (newest_at_ms, seq, event_count);

-- Which blocks tell of a message.
CREATE TABLE event_key (
    redelivery_id TEXT NOT NULL,
    block INTEGER NOT NULL,
    PRIMARY KEY (redelivery_id, block)
) STRICT, WITHOUT ROWID;

-- How far the history is in the journal: what is true of all segments; one row. An empty stream: the next segment begins one. No block up
-- to `last_block` is planned again. `written_count` is how many events of written segments are kept.
CREATE TABLE outbox (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    is_kept INTEGER NOT NULL CHECK (is_kept IN (0, 1)),
    stream TEXT NOT NULL,
    last_number INTEGER NOT NULL,
    last_block INTEGER NOT NULL,
    written_count INTEGER NOT NULL CHECK (written_count >= 0)
) STRICT;

INSERT INTO outbox (one, is_kept, stream, last_number, last_block, written_count)
VALUES (1, 0, '', 0, 0, 0);

-- Segments all of whose events are kept: the blocks of a range, but for numbers that no block has.
CREATE TABLE journal_segment (
    first_block INTEGER PRIMARY KEY,
    last_block INTEGER NOT NULL,
    stream TEXT NOT NULL,
    number INTEGER NOT NULL,
    event_count INTEGER NOT NULL,
    is_written INTEGER NOT NULL CHECK (is_written IN (0, 1)),
    UNIQUE (stream, number)
) STRICT;

-- One is planned at a time.
CREATE UNIQUE INDEX journal_segment_planned ON journal_segment (is_written) WHERE is_written = 0;

-- Deaths of one cause at one destination. Counts of events that have no cause refer to a row
-- with '' and no deaths.
CREATE TABLE failure_group (
    id INTEGER PRIMARY KEY,
    destination TEXT NOT NULL,
    cause_group TEXT NOT NULL,
    first_at_ms INTEGER NOT NULL,
    last_at_ms INTEGER NOT NULL,
    total INTEGER NOT NULL,
    example_id TEXT NOT NULL,
    UNIQUE (destination, cause_group)
) STRICT;

CREATE INDEX failure_group_by_age ON failure_group (last_at_ms);

-- Events by five minutes, old ones by hours. A kind is its place in `model.failure.CountKind`.
CREATE TABLE failure_count (
    bucket_ms INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    failure_group INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (bucket_ms, kind, failure_group, attempt)
) STRICT, WITHOUT ROWID;

CREATE INDEX failure_count_fine ON failure_count (bucket_ms) WHERE bucket_ms % 3600000 <> 0;

-- Operations as JSON.
CREATE TABLE operation (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    is_running INTEGER NOT NULL CHECK (is_running IN (0, 1)),
    ended_at_ms INTEGER,
    body BLOB NOT NULL
) STRICT;

CREATE INDEX operation_running ON operation (is_running) WHERE is_running = 1;
CREATE INDEX operation_ended ON operation (ended_at_ms) WHERE ended_at_ms IS NOT NULL;

-- Messages that operations changed. An outcome is 0 not sent, 1 re-sent, 2 consumed, 3 came back,
-- 4 unknown.
CREATE TABLE operation_member (
    operation INTEGER NOT NULL,
    redelivery_id TEXT NOT NULL,
    destination TEXT NOT NULL,
    changed_at_ms INTEGER NOT NULL,
    resent_at_ms INTEGER,
    outcome INTEGER NOT NULL CHECK (outcome BETWEEN 0 AND 4),
    evidence TEXT NOT NULL,
    PRIMARY KEY (operation, redelivery_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX operation_member_by_outcome ON operation_member (outcome, operation);
CREATE INDEX operation_member_open ON operation_member (redelivery_id) WHERE outcome < 2;
CREATE INDEX operation_member_due ON operation_member (operation, resent_at_ms) WHERE outcome = 1;

-- Up to where events were read for them; no row or one.
CREATE TABLE followed (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    position TEXT NOT NULL
) STRICT;

-- Messages as they were before they were edited.
CREATE TABLE original (
    id INTEGER PRIMARY KEY,
    redelivery_id TEXT NOT NULL,
    row_id INTEGER NOT NULL,
    edited_at_ms INTEGER NOT NULL,
    actor TEXT NOT NULL,
    encoding TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;

CREATE INDEX original_by_redelivery_id ON original (redelivery_id);
CREATE INDEX original_by_age ON original (edited_at_ms);

-- What was seen of destinations, as JSON.
CREATE TABLE queue_observation (
    destination TEXT NOT NULL,
    minute INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (destination, minute)
) STRICT, WITHOUT ROWID;

CREATE INDEX queue_observation_by_age ON queue_observation (at_ms);

-- What people wrote down about groups of failures; the latest note says who has the group, and until
-- when it is snoozed.
CREATE TABLE group_note (
    id INTEGER PRIMARY KEY,
    destination TEXT NOT NULL,
    cause_group TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    author TEXT NOT NULL,
    text TEXT NOT NULL,
    owner TEXT NOT NULL DEFAULT '',
    snoozed_until_ms INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX group_note_by_group ON group_note (destination, cause_group, id);
CREATE INDEX group_note_by_age ON group_note (at_ms);
