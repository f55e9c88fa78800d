-- Messages are taken back out of their final queues while the service runs. An older program that
-- takes one back removes the row that knew of it, and keeps what it took: nothing is lost.

-- What becomes of a row with its final queue, by number, and the operation that wants it so.
ALTER TABLE redelivery ADD COLUMN recall smallint NOT NULL DEFAULT 0;
ALTER TABLE redelivery ADD COLUMN recall_operation bigint NOT NULL DEFAULT 0;

-- New rows of the cycle, and the rows whose places they take.
ALTER TABLE unfinished_cycle ADD COLUMN renamed_ids bigint[] NOT NULL DEFAULT '{}';
ALTER TABLE unfinished_cycle ADD COLUMN renamed_to_ids bigint[] NOT NULL DEFAULT '{}';
