-- Exhausted messages stay in sight. State 3 is exhausted. Older programs know neither the state nor
-- `final_queue`: as long as one of them is an instance, what is final has its final queue as its
-- destination, what would be exhausted is parked, and what was sent to a final queue is removed.
ALTER TABLE redelivery DROP CONSTRAINT redelivery_state_check;
ALTER TABLE redelivery ADD CONSTRAINT redelivery_state_check
CHECK (state IN (0, 1, 2, 3)) NOT VALID;

-- Its final dead-letter queue; null: none was decided, or its destination is it.
ALTER TABLE redelivery ADD COLUMN final_queue text;

-- What the cycle sends to final dead-letter queues; `sent_ids` is without it.
ALTER TABLE unfinished_cycle ADD COLUMN final_ids bigint[] NOT NULL DEFAULT '{}';

-- How many exhausted rows there are by where they are; see group_tally.
CREATE TABLE exhausted_tally (
    instance integer NOT NULL,
    destination text NOT NULL,
    queue text NOT NULL,
    is_final boolean NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (instance, destination, queue, is_final)
) WITH (fillfactor = 50);

ALTER TABLE exhausted_tally SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000
);
