-- Whose a deployment was that is gone: its variables keep their values. An empty team stands for none.
CREATE TABLE former_deployments (
    deployment TEXT NOT NULL,
    team TEXT NOT NULL,
    PRIMARY KEY (deployment, team)
);
