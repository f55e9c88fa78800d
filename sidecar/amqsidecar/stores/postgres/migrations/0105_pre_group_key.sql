-- The key of the numbers of groups; see `ScheduleView.group_key`.
ALTER TABLE schema_version ADD COLUMN group_key bytea NOT NULL DEFAULT uuid_send(gen_random_uuid());
