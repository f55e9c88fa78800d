-- Message groups, where a gate looks at them; since version 8.

-- NULL: it has none, or nobody wanted to know when it was taken.
ALTER TABLE redelivery ADD COLUMN message_group TEXT;

-- In the order of first deaths; what is final stands in no order. `is_final` as the state elsewhere.
CREATE INDEX redelivery_in_order ON redelivery (destination, message_group, redelivery_id, is_final)
WHERE message_group IS NOT NULL AND is_final = 0;
