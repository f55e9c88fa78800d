-- What people look at and act through; since version 5.

-- The word of the group of its cause; 0: it was taken before causes were grouped.
ALTER TABLE redelivery ADD COLUMN cause_group INTEGER NOT NULL DEFAULT 0;

CREATE INDEX redelivery_by_group ON redelivery (destination, cause_group) WHERE cause_group <> 0;
CREATE INDEX redelivery_kept_due ON redelivery (state, due_at_ms) WHERE state <> 0;

-- How many rows there are, kept by differences; without those of the unfinished cycle.
CREATE TABLE group_tally (
    destination INTEGER NOT NULL,
    cause_group INTEGER NOT NULL,
    state INTEGER NOT NULL,
    count INTEGER NOT NULL CHECK (count >= 0),
    PRIMARY KEY (destination, cause_group, state)
) STRICT, WITHOUT ROWID;

INSERT INTO group_tally (destination, cause_group, state, count)
SELECT destination, 0, state, count FROM tally;

DROP TABLE tally;

-- Its rows tell what goes out of the tallies.
ALTER TABLE unfinished_cycle DROP COLUMN sent_tally;

-- What the cycle adds to the counts of failures, packed; NULL: it was begun before version 5.
ALTER TABLE unfinished_cycle ADD COLUMN failures BLOB;

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
