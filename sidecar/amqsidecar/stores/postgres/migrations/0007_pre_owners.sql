-- Who has a group of failures, and until when it is snoozed, as of its latest note.
ALTER TABLE group_note ADD COLUMN owner text NOT NULL DEFAULT '';
ALTER TABLE group_note ADD COLUMN snoozed_until_ms bigint NOT NULL DEFAULT 0;
