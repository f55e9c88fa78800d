-- What services did; the latest marks of each instance are kept.
-- Why IF NOT EXISTS: development versions made schemas of version 1 that have the table.
CREATE TABLE IF NOT EXISTS service_mark (
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    at_ms bigint NOT NULL,
    instance text NOT NULL,
    kind text NOT NULL,
    rules_digest text NOT NULL
);

CREATE INDEX IF NOT EXISTS service_mark_by_instance ON service_mark (instance, id);
