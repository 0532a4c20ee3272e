CREATE TABLE deployment_teams (
    deployment TEXT NOT NULL REFERENCES deployments (name),
    team TEXT NOT NULL,
    PRIMARY KEY (deployment, team)
);

CREATE TABLE task_teams (
    team TEXT NOT NULL,
    task BIGINT NOT NULL REFERENCES tasks (id),
    PRIMARY KEY (team, task)
);

CREATE INDEX task_teams_task ON task_teams (task);

ALTER TABLE configs ADD COLUMN team TEXT
