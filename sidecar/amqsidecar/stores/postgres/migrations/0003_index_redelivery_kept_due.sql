-- Held and parked rows by due time.
CREATE INDEX {concurrently} IF NOT EXISTS redelivery_kept_due
ON redelivery (state, due_at_ms, id) WHERE state <> 0;
