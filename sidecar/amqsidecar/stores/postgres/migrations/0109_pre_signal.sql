-- Events outside that were reported, for held rows that wait for them, which `gate` names.
CREATE TABLE signal (
    name text PRIMARY KEY,
    at_ms bigint NOT NULL,
    author text NOT NULL
);

CREATE INDEX signal_by_age ON signal (at_ms);
