-- What gates have to do with rows. Older programs know neither: what a person retries while one of
-- them runs may wait for its gates, and what it lets wait is in no count.

-- A person said that it goes now.
ALTER TABLE redelivery ADD COLUMN passes_gates boolean NOT NULL DEFAULT false;

-- The name of the gate that lets it wait; null: none does.
ALTER TABLE redelivery ADD COLUMN gate text;
