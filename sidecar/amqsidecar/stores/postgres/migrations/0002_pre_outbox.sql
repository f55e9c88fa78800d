-- How far the history is in the journal. Older programs write blocks that are in no segment; none of
-- them uses the schedule any more when the first segment is planned (`PostgresOutbox`).

-- The id of the segment that a block is in; null = in none yet.
ALTER TABLE event_block ADD COLUMN segment bigint;

CREATE INDEX event_block_by_segment ON event_block (segment, seq);

-- Why: each block is written once more, to say its segment.
ALTER TABLE event_block SET (
    autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 20000
);

-- What is true of all segments; one row. An empty stream: the next segment begins one.
-- `written_count` is how many events of written segments are kept.
CREATE TABLE outbox (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    is_kept boolean NOT NULL DEFAULT false,
    stream text NOT NULL DEFAULT '',
    last_number bigint NOT NULL DEFAULT 0,
    written_count bigint NOT NULL DEFAULT 0
);

INSERT INTO outbox (one) VALUES (true);

-- Segments all of whose events are kept.
CREATE TABLE journal_segment (
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    stream text NOT NULL,
    number bigint NOT NULL,
    event_count bigint NOT NULL,
    is_written boolean NOT NULL DEFAULT false,
    UNIQUE (stream, number)
);

-- One is planned at a time.
CREATE UNIQUE INDEX journal_segment_planned ON journal_segment (is_written) WHERE NOT is_written;
