-- Who has a group of failures, and until when it is snoozed, as of its latest note; since version 10.
ALTER TABLE group_note ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE group_note ADD COLUMN snoozed_until_ms INTEGER NOT NULL DEFAULT 0;
