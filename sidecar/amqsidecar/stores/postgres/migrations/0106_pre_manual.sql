-- The patterns that each sidecar leaves to a person; see `InstanceView`.
ALTER TABLE instance ADD COLUMN manual text[] NOT NULL DEFAULT '{}';
