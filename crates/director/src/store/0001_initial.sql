CREATE TABLE attributes (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

CREATE TABLE stemcells (
    id {id},
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    cpi TEXT NOT NULL,
    cid TEXT NOT NULL,
    operating_system TEXT NOT NULL,
    sha1 TEXT NOT NULL,
    api_version BIGINT,
    UNIQUE (name, version, cpi)
);

CREATE TABLE configs (
    id {id},
    type TEXT NOT NULL,
    name TEXT NOT NULL,
    content TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    deleted BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE deployments (
    name TEXT PRIMARY KEY,
    manifest TEXT,
    created_at BIGINT NOT NULL
);

CREATE TABLE deployment_stemcells (
    deployment TEXT NOT NULL REFERENCES deployments (name),
    stemcell BIGINT NOT NULL REFERENCES stemcells (id),
    PRIMARY KEY (deployment, stemcell)
);

CREATE TABLE deployment_configs (
    deployment TEXT NOT NULL REFERENCES deployments (name),
    config BIGINT NOT NULL REFERENCES configs (id),
    PRIMARY KEY (deployment, config)
);

CREATE TABLE instances (
    id TEXT PRIMARY KEY,
    deployment TEXT NOT NULL REFERENCES deployments (name),
    instance_group TEXT NOT NULL,
    position BIGINT NOT NULL,
    az TEXT,
    bootstrap BIGINT NOT NULL,
    state TEXT NOT NULL,
    spec TEXT,
    converged BIGINT NOT NULL,
    UNIQUE (deployment, instance_group, position)
);

CREATE TABLE vms (
    cid TEXT PRIMARY KEY,
    instance TEXT NOT NULL REFERENCES instances (id),
    agent_id TEXT NOT NULL UNIQUE,
    cpi TEXT NOT NULL,
    record TEXT NOT NULL,
    ready BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE TABLE disks (
    cid TEXT PRIMARY KEY,
    instance TEXT NOT NULL REFERENCES instances (id),
    cpi TEXT NOT NULL,
    size BIGINT NOT NULL,
    cloud_properties TEXT NOT NULL,
    active BIGINT NOT NULL,
    vm TEXT,
    mounted BIGINT NOT NULL DEFAULT 0,
    hint TEXT,
    created_at BIGINT NOT NULL
);

CREATE TABLE orphan_disks (
    cid TEXT PRIMARY KEY,
    cpi TEXT NOT NULL,
    size BIGINT NOT NULL,
    cloud_properties TEXT NOT NULL,
    az TEXT,
    deployment TEXT NOT NULL,
    instance TEXT NOT NULL,
    orphaned_at BIGINT NOT NULL
);

CREATE TABLE addresses (
    address TEXT PRIMARY KEY,
    instance TEXT NOT NULL REFERENCES instances (id),
    network TEXT NOT NULL
);

CREATE TABLE tasks (
    id {id},
    state TEXT NOT NULL,
    type TEXT NOT NULL,
    description TEXT NOT NULL,
    username TEXT NOT NULL,
    deployment TEXT,
    context_id TEXT NOT NULL,
    job TEXT NOT NULL,
    result TEXT,
    owner TEXT,
    created_at BIGINT NOT NULL,
    started_at BIGINT,
    finished_at BIGINT
);

CREATE INDEX tasks_state ON tasks (state);

CREATE TABLE plans (
    task BIGINT PRIMARY KEY REFERENCES tasks (id),
    deployment TEXT NOT NULL,
    plan TEXT NOT NULL
);

CREATE TABLE locks (
    name TEXT PRIMARY KEY,
    task BIGINT NOT NULL,
    owner TEXT NOT NULL,
    expires_at BIGINT NOT NULL
);

CREATE TABLE intents (
    id TEXT PRIMARY KEY,
    task BIGINT,
    cpi TEXT NOT NULL,
    stemcell_version BIGINT,
    change_json TEXT NOT NULL,
    child TEXT,
    doubt TEXT,
    opened_at BIGINT NOT NULL
)
