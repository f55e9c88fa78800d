-- Held rows by the event that they wait for.
CREATE INDEX {concurrently} redelivery_awaited ON redelivery (gate, id)
WHERE gate IS NOT NULL AND state = 1;
