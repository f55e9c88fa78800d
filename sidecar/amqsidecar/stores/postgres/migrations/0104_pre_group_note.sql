-- A group is muted until more die of it than in the hour before, and may be merged into another one of
-- its destination.
ALTER TABLE group_note ADD COLUMN muted_deaths bigint;
ALTER TABLE group_note ADD COLUMN merged_into text NOT NULL DEFAULT '';
