-- Exhausted messages stay in sight; since version 9. State 3 is exhausted.

-- Why anew: SQLite can't change a CHECK. `final_queue` is the word of its final dead-letter queue;
-- 0 = none was decided, and it is not final.
CREATE TABLE redelivery_9 (
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
    final_queue INTEGER NOT NULL
) STRICT;

INSERT INTO redelivery_9
SELECT id, state, due_at_ms, destination, is_final, source, redelivery_id, redelivery_count,
    delay_ms, expiration_ms, rule, encoding, received_at_ms, size_bytes, cause, message_id, reason,
    cause_group, passes_gates, gate, message_group, iif(is_final, destination, 0)
FROM redelivery;

UPDATE word SET uses = uses + f.count FROM (
    SELECT final_queue, count(*) AS count FROM redelivery_9 WHERE final_queue <> 0 GROUP BY 1
) AS f WHERE word.id = f.final_queue;

DROP TABLE redelivery;

ALTER TABLE redelivery_9 RENAME TO redelivery;

CREATE INDEX redelivery_due ON redelivery (state, due_at_ms) WHERE state = 0;
CREATE INDEX redelivery_kept ON redelivery (state) WHERE state <> 0;
CREATE INDEX redelivery_by_destination ON redelivery (destination);
CREATE INDEX redelivery_by_redelivery_id ON redelivery (redelivery_id);
CREATE INDEX redelivery_by_group ON redelivery (destination, cause_group) WHERE cause_group <> 0;
CREATE INDEX redelivery_kept_due ON redelivery (state, due_at_ms) WHERE state <> 0;
CREATE INDEX redelivery_gated ON redelivery (destination, gate, due_at_ms) WHERE gate IS NOT NULL;
CREATE INDEX redelivery_in_order ON redelivery (destination, message_group, redelivery_id, is_final)
WHERE message_group IS NOT NULL AND is_final = 0;

CREATE INDEX redelivery_exhausted
ON redelivery (destination, final_queue, is_final, received_at_ms, state) WHERE state = 3;

-- How many exhausted rows there are by where they are, kept by differences as `group_tally`.
CREATE TABLE exhausted_tally (
    final_queue INTEGER NOT NULL,
    destination INTEGER NOT NULL,
    is_final INTEGER NOT NULL,
    count INTEGER NOT NULL CHECK (count >= 0),
    PRIMARY KEY (final_queue, destination, is_final)
) STRICT, WITHOUT ROWID;

-- Of what the cycle sends, what goes to a final dead-letter queue; `sent_runs` is without it.
-- NULL: it was begun before version 9, when all that was sent was removed.
ALTER TABLE unfinished_cycle ADD COLUMN final_runs BLOB;
