-- What gates let wait. An older program that holds a row leaves the name of its gate there.
CREATE INDEX {concurrently} IF NOT EXISTS redelivery_gated
ON redelivery (left(destination, 200), gate, due_at_ms) WHERE gate IS NOT NULL AND state = 0;
