-- The schedule in one SQLite file. Times are milliseconds since the epoch, from our own clock.
-- Booleans are 0 or 1. A state is 0 waiting, 1 held, 2 parked.

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

-- One row per scheduled message, without its bytes, so that scans don't read them.
CREATE TABLE redelivery (
    id INTEGER PRIMARY KEY,
    state INTEGER NOT NULL CHECK (state IN (0, 1, 2)),
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
    reason TEXT
) STRICT;

-- Every index ends with the row's id without saying so. The state stands in them because SQLite
-- would read the row to know it.
CREATE INDEX redelivery_due ON redelivery (state, due_at_ms) WHERE state = 0;
CREATE INDEX redelivery_kept ON redelivery (state) WHERE state <> 0;
CREATE INDEX redelivery_by_destination ON redelivery (destination);
CREATE INDEX redelivery_by_redelivery_id ON redelivery (redelivery_id);

-- The encoded messages, by number of their row.
CREATE TABLE message (
    id INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;

-- How many rows there are, kept by differences; without those of the unfinished cycle.
CREATE TABLE tally (
    destination INTEGER NOT NULL,
    state INTEGER NOT NULL,
    count INTEGER NOT NULL CHECK (count >= 0),
    PRIMARY KEY (destination, state)
) STRICT, WITHOUT ROWID;

-- The cycle whose end is not known yet; no row or one. All that it changes stands here, so that
-- finishing and undoing it touch nothing else. Sets of ids are packed runs, tallies packed triples.
CREATE TABLE unfinished_cycle (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    cycle INTEGER NOT NULL,
    taken_count INTEGER NOT NULL,
    sent_count INTEGER NOT NULL,
    taken_runs BLOB NOT NULL,
    sent_runs BLOB NOT NULL,
    taken_tally BLOB NOT NULL,
    sent_tally BLOB NOT NULL,
    holds BLOB NOT NULL,
    event_block INTEGER
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
