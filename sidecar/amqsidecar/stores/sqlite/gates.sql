-- What gates have to do with rows; since version 7.

-- 1: a person said that it goes now.
ALTER TABLE redelivery ADD COLUMN passes_gates INTEGER NOT NULL DEFAULT 0;

-- The name of the gate that lets it wait; NULL: none does.
ALTER TABLE redelivery ADD COLUMN gate TEXT;

CREATE INDEX redelivery_gated ON redelivery (destination, gate, due_at_ms) WHERE gate IS NOT NULL;
