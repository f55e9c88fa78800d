-- What people look at and act through. Older programs write rows, cycles and events without it:
-- their events are not counted, and rows are kept by cause groups only once none of them is an
-- instance any more (`0003_post_groups.sql`).

-- Its transaction, so that who follows the events knows what became visible since it looked last;
-- null: from before this was kept. Older programs write it as well, without knowing.
ALTER TABLE event_block ADD COLUMN xid xid8;
ALTER TABLE event_block ALTER COLUMN xid SET DEFAULT pg_current_xact_id();
CREATE INDEX event_block_by_xid ON event_block (xid, seq) WHERE xid IS NOT NULL;

-- What it died of; null: it was taken before causes were grouped.
ALTER TABLE redelivery ADD COLUMN cause_group text;

-- What the cycle adds to three tables below; null: nothing, or an older program began it.
ALTER TABLE unfinished_cycle ADD COLUMN counts jsonb;

-- How many events there were in five minutes, or in an hour long ago. As of all counts, only the sum
-- over all instances means something, and texts are cut to what an index takes.
CREATE TABLE failure_count (
    bucket_ms bigint NOT NULL,
    kind text NOT NULL,
    destination text NOT NULL,
    cause_group text NOT NULL,
    attempt bigint NOT NULL,
    instance integer NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (bucket_ms, kind, destination, cause_group, attempt, instance)
) WITH (fillfactor = 70);

-- What is not merged to hours yet.
CREATE INDEX failure_count_unmerged ON failure_count (bucket_ms)
WHERE bucket_ms % 3600000 <> 0 OR instance <> 0;

-- Failures of one cause at one destination.
CREATE TABLE failure_group (
    instance integer NOT NULL,
    destination text NOT NULL,
    cause_group text NOT NULL,
    first_at_ms bigint NOT NULL,
    last_at_ms bigint NOT NULL,
    total bigint NOT NULL,
    example_id text NOT NULL,
    PRIMARY KEY (instance, destination, cause_group)
) WITH (fillfactor = 50);

-- How many rows with a cause group there are; all others are what is left of the tally.
CREATE TABLE group_tally (
    instance integer NOT NULL,
    destination text NOT NULL,
    state smallint NOT NULL,
    cause_group text NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (instance, destination, state, cause_group)
) WITH (fillfactor = 50);

-- What people do to many messages; all of it is in `body`, as JSON.
CREATE TABLE operation (
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    state text NOT NULL,
    ended_at_ms bigint,
    body bytea NOT NULL
) WITH (fillfactor = 50);

CREATE INDEX operation_by_state ON operation (state, id);

-- Messages that an operation changed, and what became of them. An outcome is null, or a word.
CREATE TABLE operation_member (
    operation bigint NOT NULL,
    redelivery_id text COLLATE "C" NOT NULL,
    destination text NOT NULL,
    changed_at_ms bigint NOT NULL,
    resent_at_ms bigint,
    outcome text,
    evidence text NOT NULL DEFAULT '',
    PRIMARY KEY (operation, redelivery_id)
);

-- By outcome; by what is seen of those whose outcome is wanted still; by age of those re-sent.
CREATE INDEX operation_member_by_outcome ON operation_member (operation, outcome, redelivery_id);
CREATE INDEX operation_member_open ON operation_member (redelivery_id)
WHERE outcome IS NULL OR outcome = 're-sent';
CREATE INDEX operation_member_due ON operation_member (operation, resent_at_ms, redelivery_id)
WHERE outcome = 're-sent';

-- Up to where events were looked at for members; no row or one.
CREATE TABLE followed (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    position text NOT NULL
);

-- Messages as they were before a person edited them.
CREATE TABLE original (
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    redelivery_id text NOT NULL,
    row_id bigint NOT NULL,
    edited_at_ms bigint NOT NULL,
    actor text NOT NULL,
    encoding text NOT NULL,
    message bytea NOT NULL
);

CREATE INDEX original_by_redelivery_id ON original (redelivery_id, id);
CREATE INDEX original_by_age ON original (edited_at_ms);

-- What was seen of destinations: the latest of each minute; all of it is in `body`, as JSON.
CREATE TABLE queue_observation (
    destination text NOT NULL,
    minute bigint NOT NULL,
    at_ms bigint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (destination, minute)
) WITH (fillfactor = 70);

CREATE INDEX queue_observation_by_age ON queue_observation (minute);

-- Why: as of the tables before.
ALTER TABLE failure_count SET (
    autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000
);
ALTER TABLE failure_group SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000
);
ALTER TABLE group_tally SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000
);
ALTER TABLE operation SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200
);
