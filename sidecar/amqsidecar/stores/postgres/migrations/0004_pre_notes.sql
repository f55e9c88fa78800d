-- What people wrote down about groups of failures. Older programs neither write nor show them.
CREATE TABLE group_note (
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    destination text NOT NULL,
    cause_group text NOT NULL,
    at_ms bigint NOT NULL,
    author text NOT NULL,
    text text NOT NULL
);

CREATE INDEX group_note_by_group ON group_note (destination, cause_group, id);
CREATE INDEX group_note_by_age ON group_note (at_ms);
