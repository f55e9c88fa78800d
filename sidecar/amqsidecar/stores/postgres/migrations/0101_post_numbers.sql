-- Programs of development, which knew numbers up to 9, can't take this schema for theirs any more.
SELECT 1;
