-- What people wrote down about groups of failures; since version 6.
CREATE TABLE group_note (
    id INTEGER PRIMARY KEY,
    destination TEXT NOT NULL,
    cause_group TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    author TEXT NOT NULL,
    text TEXT NOT NULL
) STRICT;

CREATE INDEX group_note_by_group ON group_note (destination, cause_group, id);
CREATE INDEX group_note_by_age ON group_note (at_ms);
