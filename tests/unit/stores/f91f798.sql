-- `.dump` of a store that the program of commit f91f798 made, with one waiting message.
BEGIN TRANSACTION;
CREATE TABLE event_block (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    newest_at_ms INTEGER NOT NULL,
    event_count INTEGER NOT NULL,
    packing INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE TABLE event_key (
    redelivery_id TEXT NOT NULL,
    block INTEGER NOT NULL,
    PRIMARY KEY (redelivery_id, block)
) STRICT, WITHOUT ROWID;
CREATE TABLE failure_count (
    bucket_ms INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    failure_group INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (bucket_ms, kind, failure_group, attempt)
) STRICT, WITHOUT ROWID;
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
CREATE TABLE followed (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    position TEXT NOT NULL
) STRICT;
CREATE TABLE group_note (
    id INTEGER PRIMARY KEY,
    destination TEXT NOT NULL,
    cause_group TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    author TEXT NOT NULL,
    text TEXT NOT NULL
) STRICT;
CREATE TABLE group_tally (
    destination INTEGER NOT NULL,
    cause_group INTEGER NOT NULL,
    state INTEGER NOT NULL,
    count INTEGER NOT NULL CHECK (count >= 0),
    PRIMARY KEY (destination, cause_group, state)
) STRICT, WITHOUT ROWID;
INSERT INTO "group_tally" VALUES(4,0,0,1);
CREATE TABLE hold (
    source TEXT PRIMARY KEY,
    remaining INTEGER NOT NULL CHECK (remaining >= 0)
) STRICT, WITHOUT ROWID;
CREATE TABLE journal_segment (
    first_block INTEGER PRIMARY KEY,
    last_block INTEGER NOT NULL,
    stream TEXT NOT NULL,
    number INTEGER NOT NULL,
    event_count INTEGER NOT NULL,
    is_written INTEGER NOT NULL CHECK (is_written IN (0, 1)),
    UNIQUE (stream, number)
) STRICT;
CREATE TABLE message (
    id INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;
INSERT INTO "message" VALUES(1,X'6D6573736167652031');
CREATE TABLE meta (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    instance TEXT NOT NULL,
    uid TEXT NOT NULL,
    finished_cycle INTEGER NOT NULL CHECK (finished_cycle >= 0),
    next_id INTEGER NOT NULL CHECK (next_id > 0),
    event_count INTEGER NOT NULL CHECK (event_count >= 0),
    token_created INTEGER NOT NULL CHECK (token_created IN (0, 1))
) STRICT;
INSERT INTO "meta" VALUES(1,'f64633b0','03542cfb',1,2,0,0);
CREATE TABLE operation (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    is_running INTEGER NOT NULL CHECK (is_running IN (0, 1)),
    ended_at_ms INTEGER,
    body BLOB NOT NULL
) STRICT;
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
CREATE TABLE outbox (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    is_kept INTEGER NOT NULL CHECK (is_kept IN (0, 1)),
    stream TEXT NOT NULL,
    last_number INTEGER NOT NULL,
    last_block INTEGER NOT NULL,
    written_count INTEGER NOT NULL CHECK (written_count >= 0)
) STRICT;
INSERT INTO "outbox" VALUES(1,0,'',0,0,0);
CREATE TABLE queue_observation (
    destination TEXT NOT NULL,
    minute INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (destination, minute)
) STRICT, WITHOUT ROWID;
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
, cause_group INTEGER NOT NULL DEFAULT 0, passes_gates INTEGER NOT NULL DEFAULT 0, gate TEXT, message_group TEXT) STRICT;
INSERT INTO "redelivery" VALUES(1,0,1000,4,0,2,'t-000000000001',1,500,0,1,3,500,9,NULL,'ID:1',NULL,0,0,NULL,NULL);
CREATE TABLE unfinished_cycle (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    cycle INTEGER NOT NULL,
    taken_count INTEGER NOT NULL,
    sent_count INTEGER NOT NULL,
    taken_runs BLOB NOT NULL,
    sent_runs BLOB NOT NULL,
    taken_tally BLOB NOT NULL,
    holds BLOB NOT NULL,
    event_block INTEGER
, failures BLOB) STRICT;
CREATE TABLE word (
    id INTEGER PRIMARY KEY,
    text TEXT NOT NULL UNIQUE,
    uses INTEGER NOT NULL DEFAULT 0 CHECK (uses >= 0)
) STRICT;
INSERT INTO "word" VALUES(1,'policy.yaml:3',1);
INSERT INTO "word" VALUES(2,'queue://DLQ',1);
INSERT INTO "word" VALUES(3,'amqp/1.0',1);
INSERT INTO "word" VALUES(4,'queue://orders',1);
CREATE INDEX word_unused ON word (uses) WHERE uses = 0;
CREATE INDEX redelivery_due ON redelivery (state, due_at_ms) WHERE state = 0;
CREATE INDEX redelivery_kept ON redelivery (state) WHERE state <> 0;
CREATE INDEX redelivery_by_destination ON redelivery (destination);
CREATE INDEX redelivery_by_redelivery_id ON redelivery (redelivery_id);
CREATE INDEX event_block_by_age ON event_block (newest_at_ms, seq, event_count);
CREATE UNIQUE INDEX journal_segment_planned ON journal_segment (is_written) WHERE is_written = 0;
CREATE INDEX redelivery_by_group ON redelivery (destination, cause_group) WHERE cause_group <> 0;
CREATE INDEX redelivery_kept_due ON redelivery (state, due_at_ms) WHERE state <> 0;
CREATE INDEX failure_group_by_age ON failure_group (last_at_ms);
CREATE INDEX failure_count_fine ON failure_count (bucket_ms) WHERE bucket_ms % 3600000 <> 0;
CREATE INDEX operation_running ON operation (is_running) WHERE is_running = 1;
CREATE INDEX operation_ended ON operation (ended_at_ms) WHERE ended_at_ms IS NOT NULL;
CREATE INDEX operation_member_by_outcome ON operation_member (outcome, operation);
CREATE INDEX operation_member_open ON operation_member (redelivery_id) WHERE outcome < 2;
CREATE INDEX operation_member_due ON operation_member (operation, resent_at_ms) WHERE outcome = 1;
CREATE INDEX original_by_redelivery_id ON original (redelivery_id);
CREATE INDEX original_by_age ON original (edited_at_ms);
CREATE INDEX queue_observation_by_age ON queue_observation (at_ms);
CREATE INDEX group_note_by_group ON group_note (destination, cause_group, id);
CREATE INDEX group_note_by_age ON group_note (at_ms);
CREATE INDEX redelivery_gated ON redelivery (destination, gate, due_at_ms) WHERE gate IS NOT NULL;
CREATE INDEX redelivery_in_order ON redelivery (destination, message_group, redelivery_id, is_final)
WHERE message_group IS NOT NULL AND is_final = 0;
DELETE FROM "sqlite_sequence";
COMMIT;
PRAGMA application_id = 1634562419;
PRAGMA user_version = 8;
