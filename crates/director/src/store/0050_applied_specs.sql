-- What an instance was last brought to: with `spec`, unless a deploy has not reached it yet, or failed before it did.
ALTER TABLE instances ADD COLUMN applied TEXT;

ALTER TABLE instances ADD COLUMN applied_software TEXT;

UPDATE instances SET applied = spec, applied_software = software;
