-- Values that are kept by name; one is the position of what was followed. The table of that stays,
-- for older programs.
CREATE TABLE kept_value (
    name text PRIMARY KEY,
    body bytea NOT NULL
);

INSERT INTO kept_value SELECT 'followed', convert_to(position, 'UTF8') FROM followed;
