CREATE TABLE problems (
    id {id},
    deployment TEXT NOT NULL,
    resource TEXT NOT NULL,
    problem TEXT NOT NULL,
    found_at BIGINT NOT NULL
);

CREATE INDEX problems_deployment ON problems (deployment)
;

ALTER TABLE instances ADD COLUMN ignored BIGINT NOT NULL DEFAULT 0
