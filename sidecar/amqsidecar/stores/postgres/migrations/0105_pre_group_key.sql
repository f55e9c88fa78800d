-- The key of the numbers of groups (`ScheduleView.group_key`); one row.
CREATE TABLE group_key AS SELECT uuid_send(gen_random_uuid()) AS key;
