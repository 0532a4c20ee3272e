-- Who leads, under which number. Every transaction of a leader that writes looks here first (database/src/lead.rs).
CREATE TABLE leadership (
    place BIGINT PRIMARY KEY,
    epoch BIGINT NOT NULL,
    host TEXT NOT NULL,
    address TEXT NOT NULL,
    since BIGINT NOT NULL
);
INSERT INTO leadership (place, epoch, host, address, since) VALUES (1, 0, '', '', 0);

-- Where the CPI of an intent runs, and when it is past its deadline, in Unix seconds.
ALTER TABLE intents ADD COLUMN host TEXT;
ALTER TABLE intents ADD COLUMN child_until BIGINT;
