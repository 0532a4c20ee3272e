-- Whose notices wait, so that those of one deployment do not send those of others away.
ALTER TABLE notices ADD COLUMN deployment TEXT NOT NULL DEFAULT ''
