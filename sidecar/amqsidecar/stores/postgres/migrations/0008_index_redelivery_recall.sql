-- What is to be taken back, or went or goes back, by number.
CREATE INDEX {concurrently} IF NOT EXISTS redelivery_recall
ON redelivery (recall, id) WHERE recall <> 0;
