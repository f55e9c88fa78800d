-- Exhausted rows of one place by age.
CREATE INDEX {concurrently} IF NOT EXISTS redelivery_exhausted
ON redelivery (left(destination, 200), left(final_queue, 200), is_final, received_at_ms)
WHERE state = 3;
