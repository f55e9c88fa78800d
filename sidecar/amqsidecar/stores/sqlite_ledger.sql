-- What people look at and act through; since version 5.

-- The word of what it died of; NULL: it was taken before causes were grouped.
ALTER TABLE redelivery ADD COLUMN cause_group INTEGER;
