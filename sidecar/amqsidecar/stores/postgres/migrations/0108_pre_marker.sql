-- Markers of people and deployment pipelines, beside what services did.
ALTER TABLE service_mark ADD COLUMN destination text NOT NULL DEFAULT '';
ALTER TABLE service_mark ADD COLUMN text text NOT NULL DEFAULT '';
ALTER TABLE service_mark ADD COLUMN author text NOT NULL DEFAULT '';
