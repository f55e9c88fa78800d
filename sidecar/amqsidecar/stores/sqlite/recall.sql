-- Messages are taken back out of their final queues while the service runs; since version 11.

-- What becomes of a row with its final queue, by `RECALLS`, and the operation that wants it so.
ALTER TABLE redelivery ADD COLUMN recall INTEGER NOT NULL DEFAULT 0;
ALTER TABLE redelivery ADD COLUMN recall_operation INTEGER NOT NULL DEFAULT 0;

CREATE INDEX redelivery_recall ON redelivery (recall) WHERE recall <> 0;

-- Runs of the cycle's new rows, each with the number of the row whose place the first one takes.
-- NULL: it was begun before version 11.
ALTER TABLE unfinished_cycle ADD COLUMN renamed BLOB;
