-- The newest block of events when an event outside was reported: a message with a later block died,
-- or began to wait, after that.
ALTER TABLE signal ADD COLUMN last_block bigint NOT NULL DEFAULT 0;
