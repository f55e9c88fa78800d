-- Rows of one destination and one group of causes, by number.
CREATE INDEX {concurrently} IF NOT EXISTS redelivery_by_group
ON redelivery (left(destination, 200), cause_group, id) WHERE cause_group IS NOT NULL;
