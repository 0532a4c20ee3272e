-- What an errand ran on when it last succeeded everywhere.
CREATE TABLE errand_runs (
    deployment TEXT NOT NULL REFERENCES deployments (name),
    errand TEXT NOT NULL,
    succeeded_on TEXT NOT NULL,
    PRIMARY KEY (deployment, errand)
)
