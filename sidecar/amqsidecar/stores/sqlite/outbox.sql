-- How far the history is in the journal; since version 4.

-- What is true of all segments; one row. An empty stream: the next segment begins one. No block up
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
