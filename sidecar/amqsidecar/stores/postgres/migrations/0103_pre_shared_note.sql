-- Notes of consumers that one instance read and another one may need: a few of one instance in a row,
-- as JSON. By the server's clock.
CREATE TABLE shared_note (
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    instance integer NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    body bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
