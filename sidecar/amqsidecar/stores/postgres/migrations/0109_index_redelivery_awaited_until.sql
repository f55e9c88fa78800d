-- Held rows that wait for an event, by the end of their wait.
CREATE INDEX {concurrently} redelivery_awaited_until ON redelivery (due_at_ms, id)
WHERE gate IS NOT NULL AND state = 1;
