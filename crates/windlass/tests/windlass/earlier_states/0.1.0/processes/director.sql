BEGIN TRANSACTION;
CREATE TABLE addresses (
    address TEXT PRIMARY KEY,
    instance TEXT NOT NULL REFERENCES instances (id),
    network TEXT NOT NULL
);
INSERT INTO "addresses" VALUES('127.251.2.10','48dece83-a6d5-5a89-bfaf-b4a3b308c6d9','default');
INSERT INTO "addresses" VALUES('127.251.2.11','7f2477b1-be86-5c25-8c73-b0bd256f4da0','default');
INSERT INTO "addresses" VALUES('127.251.2.12','6b9b39f8-010e-5121-a9d5-68771fa2ac17','default');
INSERT INTO "addresses" VALUES('127.251.2.13','d726f265-aef8-5de7-88c3-7f88a8318380','default');
CREATE TABLE attributes (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
);
INSERT INTO "attributes" VALUES('uuid','95300423-c729-4cb7-8e5c-6cf53a522890');
INSERT INTO "attributes" VALUES('admin_password','c933349ab85d43d99fa96ea435f76508');
INSERT INTO "attributes" VALUES('generation','3');
CREATE TABLE configs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    type TEXT NOT NULL,
    name TEXT NOT NULL,
    content TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    deleted BIGINT NOT NULL DEFAULT 0
);
INSERT INTO "configs" VALUES(1,'cloud','default','azs: [{name: z1}]
vm_types: [{name: small}, {name: large, cloud_properties: {ram: 2}}]
disk_types: [{name: disk, disk_size: 64}, {name: larger, disk_size: 128}]
networks:
- name: default
  subnets: [{range: 127.251.2.0/24, gateway: 127.251.2.1, azs: [z1], reserved: [127.251.2.2 - 127.251.2.9], static: [127.251.2.200 - 127.251.2.220]}]
',1794847488,0);
CREATE TABLE deployment_configs (
    deployment TEXT NOT NULL REFERENCES deployments (name),
    config BIGINT NOT NULL REFERENCES configs (id),
    PRIMARY KEY (deployment, config)
);
INSERT INTO "deployment_configs" VALUES('steady',1);
INSERT INTO "deployment_configs" VALUES('killed',1);
CREATE TABLE deployment_stemcells (
    deployment TEXT NOT NULL REFERENCES deployments (name),
    stemcell BIGINT NOT NULL REFERENCES stemcells (id),
    PRIMARY KEY (deployment, stemcell)
);
INSERT INTO "deployment_stemcells" VALUES('steady',1);
INSERT INTO "deployment_stemcells" VALUES('steady',2);
INSERT INTO "deployment_stemcells" VALUES('killed',2);
CREATE TABLE deployments (
    name TEXT PRIMARY KEY,
    manifest TEXT,
    created_at BIGINT NOT NULL
);
INSERT INTO "deployments" VALUES('steady','name: steady
stemcells:
- {alias: new, os: new, version: ''1''}
- {alias: old, os: old, version: ''1''}
update: {canaries: 1, max_in_flight: 2, canary_watch_time: 1-30000, update_watch_time: 1-30000}
instance_groups:
- {name: db, instances: 2, azs: [z1], vm_type: small, stemcell: new, networks: [{name: default}], persistent_disk_type: disk}
- {name: old, instances: 1, azs: [z1], vm_type: small, stemcell: old, networks: [{name: default}], persistent_disk_type: disk}
',1794847488);
INSERT INTO "deployments" VALUES('killed','name: killed
stemcells:
- {alias: new, os: new, version: ''1''}
- {alias: old, os: old, version: ''1''}
update: {canaries: 1, max_in_flight: 2, canary_watch_time: 1-30000, update_watch_time: 1-30000}
instance_groups:
- {name: db, instances: 1, azs: [z1], vm_type: small, stemcell: new, networks: [{name: default}], persistent_disk_type: disk}
',1794847490);
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
, name TEXT NOT NULL DEFAULT '');
INSERT INTO "disks" VALUES('disk-1f6722e2-49d5-4e4c-bab9-b6671ba404f2','48dece83-a6d5-5a89-bfaf-b4a3b308c6d9','',64,'{}',1,'vm-3468ed1f-c0ba-483e-a366-2364a535b292',1,'{"path":"@FOLDER@/state/cloud/disks/disk-1f6722e2-49d5-4e4c-bab9-b6671ba404f2/data"}',1794847489,'');
INSERT INTO "disks" VALUES('disk-1bcd45c1-15c0-4299-8f0d-d270ba55b1be','7f2477b1-be86-5c25-8c73-b0bd256f4da0','',64,'{}',1,'vm-48e85fea-2c3b-4c28-aa6f-27ada7ad956c',1,'{"path":"@FOLDER@/state/cloud/disks/disk-1bcd45c1-15c0-4299-8f0d-d270ba55b1be/data"}',1794847489,'');
INSERT INTO "disks" VALUES('disk-5cfa6206-36a1-429b-a0f2-9b2dde188d03','6b9b39f8-010e-5121-a9d5-68771fa2ac17','',64,'{}',1,'vm-88b67b34-b40b-41c1-a8e7-560a5b240cb6',1,'{"path":"@FOLDER@/state/cloud/disks/disk-5cfa6206-36a1-429b-a0f2-9b2dde188d03/data"}',1794847490,'');
INSERT INTO "disks" VALUES('disk-1dd85dcb-61b1-46fd-b3f4-4505a1bba8af','d726f265-aef8-5de7-88c3-7f88a8318380','',64,'{}',1,NULL,0,NULL,1794847490,'');
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    parent BIGINT,
    happened_at BIGINT NOT NULL,
    username TEXT NOT NULL,
    action TEXT NOT NULL,
    object_type TEXT NOT NULL,
    object_name TEXT,
    task BIGINT,
    deployment TEXT,
    instance TEXT,
    error TEXT,
    context TEXT NOT NULL
);
INSERT INTO "events" VALUES(1,NULL,1794847487,'_director','start','director','windlass',NULL,NULL,NULL,NULL,'{"version":"0.1.0"}');
INSERT INTO "events" VALUES(2,NULL,1794847488,'admin','create','stemcell','old/1',1,NULL,NULL,NULL,'{}');
INSERT INTO "events" VALUES(3,2,1794847488,'admin','create','stemcell','sc-f1acdef9-bcda-4f7e-9553-7ebb9a16bca0',1,NULL,NULL,NULL,'{}');
INSERT INTO "events" VALUES(4,NULL,1794847488,'admin','create','stemcell','new/1',2,NULL,NULL,NULL,'{}');
INSERT INTO "events" VALUES(5,4,1794847488,'admin','create','stemcell','sc-00623a56-c154-46dc-90b7-a86221c13494',2,NULL,NULL,NULL,'{}');
INSERT INTO "events" VALUES(6,NULL,1794847488,'admin','update','cloud-config','default',NULL,NULL,NULL,NULL,'{}');
INSERT INTO "events" VALUES(7,NULL,1794847488,'admin','create','deployment','steady',3,'steady',NULL,NULL,'{}');
INSERT INTO "events" VALUES(8,NULL,1794847488,'admin','acquire','lock','lock:deployment:steady',3,'steady',NULL,NULL,'{}');
INSERT INTO "events" VALUES(9,NULL,1794847489,'admin','create','vm',NULL,3,'steady','db/7f2477b1-be86-5c25-8c73-b0bd256f4da0',NULL,'{}');
INSERT INTO "events" VALUES(10,NULL,1794847489,'admin','create','vm',NULL,3,'steady','old/6b9b39f8-010e-5121-a9d5-68771fa2ac17',NULL,'{}');
INSERT INTO "events" VALUES(11,NULL,1794847489,'admin','create','vm',NULL,3,'steady','db/48dece83-a6d5-5a89-bfaf-b4a3b308c6d9',NULL,'{}');
INSERT INTO "events" VALUES(12,9,1794847489,'admin','create','vm','vm-48e85fea-2c3b-4c28-aa6f-27ada7ad956c',3,'steady','db/7f2477b1-be86-5c25-8c73-b0bd256f4da0',NULL,'{}');
INSERT INTO "events" VALUES(13,11,1794847489,'admin','create','vm','vm-3468ed1f-c0ba-483e-a366-2364a535b292',3,'steady','db/48dece83-a6d5-5a89-bfaf-b4a3b308c6d9',NULL,'{}');
INSERT INTO "events" VALUES(14,10,1794847489,'admin','create','vm','vm-88b67b34-b40b-41c1-a8e7-560a5b240cb6',3,'steady','old/6b9b39f8-010e-5121-a9d5-68771fa2ac17',NULL,'{}');
INSERT INTO "events" VALUES(15,NULL,1794847489,'admin','create','instance','db/48dece83-a6d5-5a89-bfaf-b4a3b308c6d9',3,'steady','db/48dece83-a6d5-5a89-bfaf-b4a3b308c6d9',NULL,'{}');
INSERT INTO "events" VALUES(16,NULL,1794847489,'admin','create','disk',NULL,3,'steady','db/48dece83-a6d5-5a89-bfaf-b4a3b308c6d9',NULL,'{}');
INSERT INTO "events" VALUES(17,16,1794847489,'admin','create','disk','disk-1f6722e2-49d5-4e4c-bab9-b6671ba404f2',3,'steady','db/48dece83-a6d5-5a89-bfaf-b4a3b308c6d9',NULL,'{}');
INSERT INTO "events" VALUES(18,15,1794847489,'admin','create','instance','db/48dece83-a6d5-5a89-bfaf-b4a3b308c6d9',3,'steady','db/48dece83-a6d5-5a89-bfaf-b4a3b308c6d9',NULL,'{}');
INSERT INTO "events" VALUES(19,NULL,1794847489,'admin','create','instance','db/7f2477b1-be86-5c25-8c73-b0bd256f4da0',3,'steady','db/7f2477b1-be86-5c25-8c73-b0bd256f4da0',NULL,'{}');
INSERT INTO "events" VALUES(20,NULL,1794847489,'admin','create','disk',NULL,3,'steady','db/7f2477b1-be86-5c25-8c73-b0bd256f4da0',NULL,'{}');
INSERT INTO "events" VALUES(21,20,1794847489,'admin','create','disk','disk-1bcd45c1-15c0-4299-8f0d-d270ba55b1be',3,'steady','db/7f2477b1-be86-5c25-8c73-b0bd256f4da0',NULL,'{}');
INSERT INTO "events" VALUES(22,19,1794847490,'admin','create','instance','db/7f2477b1-be86-5c25-8c73-b0bd256f4da0',3,'steady','db/7f2477b1-be86-5c25-8c73-b0bd256f4da0',NULL,'{}');
INSERT INTO "events" VALUES(23,NULL,1794847490,'admin','create','instance','old/6b9b39f8-010e-5121-a9d5-68771fa2ac17',3,'steady','old/6b9b39f8-010e-5121-a9d5-68771fa2ac17',NULL,'{}');
INSERT INTO "events" VALUES(24,NULL,1794847490,'admin','create','disk',NULL,3,'steady','old/6b9b39f8-010e-5121-a9d5-68771fa2ac17',NULL,'{}');
INSERT INTO "events" VALUES(25,24,1794847490,'admin','create','disk','disk-5cfa6206-36a1-429b-a0f2-9b2dde188d03',3,'steady','old/6b9b39f8-010e-5121-a9d5-68771fa2ac17',NULL,'{}');
INSERT INTO "events" VALUES(26,23,1794847490,'admin','create','instance','old/6b9b39f8-010e-5121-a9d5-68771fa2ac17',3,'steady','old/6b9b39f8-010e-5121-a9d5-68771fa2ac17',NULL,'{}');
INSERT INTO "events" VALUES(27,NULL,1794847490,'admin','release','lock','lock:deployment:steady',3,'steady',NULL,NULL,'{}');
INSERT INTO "events" VALUES(28,7,1794847490,'admin','create','deployment','steady',3,'steady',NULL,NULL,'{}');
INSERT INTO "events" VALUES(29,NULL,1794847490,'admin','create','deployment','killed',4,'killed',NULL,NULL,'{}');
INSERT INTO "events" VALUES(30,NULL,1794847490,'admin','acquire','lock','lock:deployment:killed',4,'killed',NULL,NULL,'{}');
INSERT INTO "events" VALUES(31,NULL,1794847490,'admin','create','vm',NULL,4,'killed','db/d726f265-aef8-5de7-88c3-7f88a8318380',NULL,'{}');
INSERT INTO "events" VALUES(32,31,1794847490,'admin','create','vm','vm-eaa02198-2b4d-45fe-a868-af39957d2724',4,'killed','db/d726f265-aef8-5de7-88c3-7f88a8318380',NULL,'{}');
INSERT INTO "events" VALUES(33,NULL,1794847490,'admin','create','instance','db/d726f265-aef8-5de7-88c3-7f88a8318380',4,'killed','db/d726f265-aef8-5de7-88c3-7f88a8318380',NULL,'{}');
INSERT INTO "events" VALUES(34,NULL,1794847490,'admin','create','disk',NULL,4,'killed','db/d726f265-aef8-5de7-88c3-7f88a8318380',NULL,'{}');
INSERT INTO "events" VALUES(35,34,1794847490,'admin','create','disk','disk-1dd85dcb-61b1-46fd-b3f4-4505a1bba8af',4,'killed','db/d726f265-aef8-5de7-88c3-7f88a8318380',NULL,'{}');
INSERT INTO "events" VALUES(36,33,1794847491,'admin','create','instance','db/d726f265-aef8-5de7-88c3-7f88a8318380',4,'killed','db/d726f265-aef8-5de7-88c3-7f88a8318380',NULL,'{}');
INSERT INTO "events" VALUES(37,NULL,1794847491,'admin','release','lock','lock:deployment:killed',4,'killed',NULL,NULL,'{}');
INSERT INTO "events" VALUES(38,29,1794847491,'admin','create','deployment','killed',4,'killed',NULL,NULL,'{}');
INSERT INTO "events" VALUES(39,NULL,1794847491,'admin','update','deployment','killed',7,'killed',NULL,NULL,'{}');
INSERT INTO "events" VALUES(40,NULL,1794847491,'admin','acquire','lock','lock:deployment:killed',7,'killed',NULL,NULL,'{}');
INSERT INTO "events" VALUES(41,NULL,1794847491,'admin','recreate','instance','db/d726f265-aef8-5de7-88c3-7f88a8318380',7,'killed','db/d726f265-aef8-5de7-88c3-7f88a8318380',NULL,'{}');
INSERT INTO "events" VALUES(42,NULL,1794847492,'admin','delete','vm','vm-eaa02198-2b4d-45fe-a868-af39957d2724',7,'killed','db/d726f265-aef8-5de7-88c3-7f88a8318380',NULL,'{}');
INSERT INTO "events" VALUES(43,42,1794847492,'admin','delete','vm','vm-eaa02198-2b4d-45fe-a868-af39957d2724',7,'killed','db/d726f265-aef8-5de7-88c3-7f88a8318380',NULL,'{}');
INSERT INTO "events" VALUES(44,NULL,1794847492,'admin','create','vm',NULL,7,'killed','db/d726f265-aef8-5de7-88c3-7f88a8318380',NULL,'{}');
CREATE TABLE instances (
    id TEXT PRIMARY KEY,
    deployment TEXT NOT NULL REFERENCES deployments (name),
    instance_group TEXT NOT NULL,
    position BIGINT NOT NULL,
    az TEXT,
    bootstrap BIGINT NOT NULL,
    state TEXT NOT NULL,
    spec TEXT,
    converged BIGINT NOT NULL, ignored BIGINT NOT NULL DEFAULT 0,
    UNIQUE (deployment, instance_group, position)
);
INSERT INTO "instances" VALUES('48dece83-a6d5-5a89-bfaf-b4a3b308c6d9','steady','db',0,'z1',1,'started','{"cpi":"","stemcell_cid":"sc-00623a56-c154-46dc-90b7-a86221c13494","stemcell":{"name":"new","version":"1","api_version":2},"vm_type":"small","cloud_properties":{},"networks":{"default":{"type":"manual","ip":"127.251.2.10","prefix":"32","netmask":"255.255.255.0","gateway":"127.251.2.1","default":["dns","gateway"],"cloud_properties":{}}},"disks":[{"name":"","size":64,"cloud_properties":{}}],"env":{},"tags":{}}',1,0);
INSERT INTO "instances" VALUES('7f2477b1-be86-5c25-8c73-b0bd256f4da0','steady','db',1,'z1',0,'started','{"cpi":"","stemcell_cid":"sc-00623a56-c154-46dc-90b7-a86221c13494","stemcell":{"name":"new","version":"1","api_version":2},"vm_type":"small","cloud_properties":{},"networks":{"default":{"type":"manual","ip":"127.251.2.11","prefix":"32","netmask":"255.255.255.0","gateway":"127.251.2.1","default":["dns","gateway"],"cloud_properties":{}}},"disks":[{"name":"","size":64,"cloud_properties":{}}],"env":{},"tags":{}}',1,0);
INSERT INTO "instances" VALUES('6b9b39f8-010e-5121-a9d5-68771fa2ac17','steady','old',0,'z1',1,'started','{"cpi":"","stemcell_cid":"sc-f1acdef9-bcda-4f7e-9553-7ebb9a16bca0","stemcell":{"name":"old","version":"1","api_version":1},"vm_type":"small","cloud_properties":{},"networks":{"default":{"type":"manual","ip":"127.251.2.12","prefix":"32","netmask":"255.255.255.0","gateway":"127.251.2.1","default":["dns","gateway"],"cloud_properties":{}}},"disks":[{"name":"","size":64,"cloud_properties":{}}],"env":{},"tags":{}}',1,0);
INSERT INTO "instances" VALUES('d726f265-aef8-5de7-88c3-7f88a8318380','killed','db',0,'z1',1,'started','{"cpi":"","stemcell_cid":"sc-00623a56-c154-46dc-90b7-a86221c13494","stemcell":{"name":"new","version":"1","api_version":2},"vm_type":"small","cloud_properties":{},"networks":{"default":{"type":"manual","ip":"127.251.2.13","prefix":"32","netmask":"255.255.255.0","gateway":"127.251.2.1","default":["dns","gateway"],"cloud_properties":{}}},"disks":[{"name":"","size":64,"cloud_properties":{}}],"env":{},"tags":{}}',0,0);
CREATE TABLE intents (
    id TEXT PRIMARY KEY,
    task BIGINT,
    cpi TEXT NOT NULL,
    stemcell_version BIGINT,
    change_json TEXT NOT NULL,
    child TEXT,
    doubt TEXT,
    opened_at BIGINT NOT NULL
, event BIGINT);
INSERT INTO "intents" VALUES('ea3739ec-4dd4-4151-83be-399ff8d0a978',7,'',2,'{"change":"create_vm","vm":{"agent_id":"80c3d7f3-7399-4db3-9136-665d1102cbfe","instance":"d726f265-aef8-5de7-88c3-7f88a8318380","cpi":"","stemcell_cid":"sc-00623a56-c154-46dc-90b7-a86221c13494","stemcell":{"name":"new","version":"1","api_version":2},"cloud_properties":{},"networks":{"default":{"type":"manual","ip":"127.251.2.13","prefix":"32","netmask":"255.255.255.0","gateway":"127.251.2.1","default":["dns","gateway"],"cloud_properties":{}}},"disk_cids":["disk-1dd85dcb-61b1-46fd-b3f4-4505a1bba8af"],"env":{"bosh":{"mbus":{"urls":["https://director:f85f1e44e6a44d87842ea1edfbf93abf@0.0.0.0:6868"],"cert":{"ca":"-----BEGIN CERTIFICATE-----\nMIIBdTCCARugAwIBAgIURIQG/0ffkaZFWgBzFVrnrCVgHAswCgYIKoZIzj0EAwIw\nFjEUMBIGA1UEAwwLV2luZGxhc3MgQ0EwIBcNMjYxMTE2MTU0NDQ3WhgPMjEyNjEw\nMjMxNjQ0NDdaMBYxFDASBgNVBAMMC1dpbmRsYXNzIENBMFkwEwYHKoZIzj0CAQYI\nKoZIzj0DAQcDQgAE56mBnyHYA3lfK8KxlFaj1SrL0rVl9hZHvd9lNSoulPDkMxTZ\nI2DmUj8JfoahGzf4ZxuUTZZN5wPiD1TqT0Nu8aNFMEMwDgYDVR0PAQH/BAQDAgEG\nMB0GA1UdDgQWBBQUitiX5yY/bquSHqR0Jj+pWNZy1zASBgNVHRMBAf8ECDAGAQH/\nAgEAMAoGCCqGSM49BAMCA0gAMEUCIHPlSxdeZC8WsOPqRURSt/i7mNK3P6ChQm/J\n/0kWBdi8AiEA6mg/FxwNLLAAEseuZ5huEHRplOg56spk0cYtWgMOCn8=\n-----END CERTIFICATE-----\n","certificate":"-----BEGIN CERTIFICATE-----\nMIIB8zCCAZigAwIBAgIULn1xhL6QlCu26h0y5XXCozMwftgwCgYIKoZIzj0EAwIw\nFjEUMBIGA1UEAwwLV2luZGxhc3MgQ0EwIBcNMjYxMTE2MTU0NDUyWhgPMjEyNjEw\nMjIxNjQ0NTJaMEMxQTA/BgNVBAMMODgwYzNkN2YzLTczOTktNGRiMy05MTM2LTY2\nNWQxMTAyY2JmZS5hZ2VudC5ib3NoLWludGVybmFsMFkwEwYHKoZIzj0CAQYIKoZI\nzj0DAQcDQgAEUKpUcD1dNF9BSZ8HqNuwg7WhOFohNxMt6HO9XCYOkBm0MNpfa/SC\nD24RTFZs4sTIsOhAwGWsEm7zfv/TyJc8DqOBlDCBkTAfBgNVHSMEGDAWgBQUitiX\n5yY/bquSHqR0Jj+pWNZy1zBJBgNVHREEQjBAgjg4MGMzZDdmMy03Mzk5LTRkYjMt\nOTEzNi02NjVkMTEwMmNiZmUuYWdlbnQuYm9zaC1pbnRlcm5hbIcEf/sCDTAOBgNV\nHQ8BAf8EBAMCBaAwEwYDVR0lBAwwCgYIKwYBBQUHAwEwCgYIKoZIzj0EAwIDSQAw\nRgIhAN9R2wsSghjgqu85SE9eMzBCcPe66YvUYU8KIl8jc/D2AiEAtKBafRJ70JJ0\nfEox3oNjth+6hz6JJXDwAj6VDUiNu24=\n-----END CERTIFICATE-----\n","private_key":"-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgCWJdXAi0+o61gwrE\nFIoflQGJVEnHdmYGgVBSGLUTTD2hRANCAARQqlRwPV00X0FJnweo27CDtaE4WiE3\nEy3oc71cJg6QGbQw2l9r9IIPbhFMVmzixMiw6EDAZawSbvN+/9PIlzwO\n-----END PRIVATE KEY-----\n"},"require_client_cert":true},"blobstores":[{"provider":"local","options":{"blobstore_path":"/var/vcap/micro_bosh/data/cache"}}],"ntp":[],"group":"windlass-killed-db","groups":["windlass","killed","db","windlass-killed","killed-db","windlass-killed-db"]}},"wanted_env":{},"mbus_user":"director","mbus_password":"f85f1e44e6a44d87842ea1edfbf93abf","certificate":{"issued_at":1794847492,"expires_at":4948361092,"trusts":"f2bc9d70e31061e2fdb96cf84868363e81118bb0c021bfedc39c5eb16b5b48b6"},"spare":false}}','{"pid":21650,"start_time":373364}',NULL,1794847492,44);
CREATE TABLE locks (
    name TEXT PRIMARY KEY,
    task BIGINT NOT NULL,
    owner TEXT NOT NULL,
    expires_at BIGINT NOT NULL
);
INSERT INTO "locks" VALUES('deployment:killed',7,'95300423-c729-4cb7-8e5c-6cf53a522890',1794847551);
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
CREATE TABLE orphaned_vms (
    cid TEXT PRIMARY KEY,
    cpi TEXT NOT NULL,
    record TEXT NOT NULL,
    az TEXT,
    deployment TEXT NOT NULL,
    instance TEXT NOT NULL,
    orphaned_at BIGINT NOT NULL
);
CREATE TABLE plans (
    task BIGINT PRIMARY KEY REFERENCES tasks (id),
    deployment TEXT NOT NULL,
    plan TEXT NOT NULL
);
INSERT INTO "plans" VALUES(3,'steady','{"deployment":"steady","warnings":[],"removed":[],"groups":[{"name":"db","canaries":1,"max_in_flight":2,"serial":true,"zones_at_once":false,"canary_watch_time":{"min":1,"max":30000},"update_watch_time":{"min":1,"max":30000},"lifecycle":"service","strategy":"delete-create","instances":[{"id":"48dece83-a6d5-5a89-bfaf-b4a3b308c6d9","group":"db","index":0,"az":"z1","bootstrap":true,"state":"started","spec":{"cpi":"","stemcell_cid":"sc-00623a56-c154-46dc-90b7-a86221c13494","stemcell":{"name":"new","version":"1","api_version":2},"vm_type":"small","cloud_properties":{},"networks":{"default":{"type":"manual","ip":"127.251.2.10","prefix":"32","netmask":"255.255.255.0","gateway":"127.251.2.1","default":["dns","gateway"],"cloud_properties":{}}},"disks":[{"name":"","size":64,"cloud_properties":{}}],"env":{},"tags":{}},"actions":[{"what":"create_vm","reason":"the instance is new"},{"what":"create_disk","name":"","size":64,"reason":"the instance is new"},{"what":"attach_disk","disk":null,"name":"","reason":"the instance is new"},{"what":"start","reason":"the instance is new"}]},{"id":"7f2477b1-be86-5c25-8c73-b0bd256f4da0","group":"db","index":1,"az":"z1","bootstrap":false,"state":"started","spec":{"cpi":"","stemcell_cid":"sc-00623a56-c154-46dc-90b7-a86221c13494","stemcell":{"name":"new","version":"1","api_version":2},"vm_type":"small","cloud_properties":{},"networks":{"default":{"type":"manual","ip":"127.251.2.11","prefix":"32","netmask":"255.255.255.0","gateway":"127.251.2.1","default":["dns","gateway"],"cloud_properties":{}}},"disks":[{"name":"","size":64,"cloud_properties":{}}],"env":{},"tags":{}},"actions":[{"what":"create_vm","reason":"the instance is new"},{"what":"create_disk","name":"","size":64,"reason":"the instance is new"},{"what":"attach_disk","disk":null,"name":"","reason":"the instance is new"},{"what":"start","reason":"the instance is new"}]}]},{"name":"old","canaries":1,"max_in_flight":2,"serial":true,"zones_at_once":false,"canary_watch_time":{"min":1,"max":30000},"update_watch_time":{"min":1,"max":30000},"lifecycle":"service","strategy":"delete-create","instances":[{"id":"6b9b39f8-010e-5121-a9d5-68771fa2ac17","group":"old","index":0,"az":"z1","bootstrap":true,"state":"started","spec":{"cpi":"","stemcell_cid":"sc-f1acdef9-bcda-4f7e-9553-7ebb9a16bca0","stemcell":{"name":"old","version":"1","api_version":1},"vm_type":"small","cloud_properties":{},"networks":{"default":{"type":"manual","ip":"127.251.2.12","prefix":"32","netmask":"255.255.255.0","gateway":"127.251.2.1","default":["dns","gateway"],"cloud_properties":{}}},"disks":[{"name":"","size":64,"cloud_properties":{}}],"env":{},"tags":{}},"actions":[{"what":"create_vm","reason":"the instance is new"},{"what":"create_disk","name":"","size":64,"reason":"the instance is new"},{"what":"attach_disk","disk":null,"name":"","reason":"the instance is new"},{"what":"start","reason":"the instance is new"}]}]}]}');
INSERT INTO "plans" VALUES(4,'killed','{"deployment":"killed","warnings":[],"removed":[],"groups":[{"name":"db","canaries":1,"max_in_flight":2,"serial":true,"zones_at_once":false,"canary_watch_time":{"min":1,"max":30000},"update_watch_time":{"min":1,"max":30000},"lifecycle":"service","strategy":"delete-create","instances":[{"id":"d726f265-aef8-5de7-88c3-7f88a8318380","group":"db","index":0,"az":"z1","bootstrap":true,"state":"started","spec":{"cpi":"","stemcell_cid":"sc-00623a56-c154-46dc-90b7-a86221c13494","stemcell":{"name":"new","version":"1","api_version":2},"vm_type":"small","cloud_properties":{},"networks":{"default":{"type":"manual","ip":"127.251.2.13","prefix":"32","netmask":"255.255.255.0","gateway":"127.251.2.1","default":["dns","gateway"],"cloud_properties":{}}},"disks":[{"name":"","size":64,"cloud_properties":{}}],"env":{},"tags":{}},"actions":[{"what":"create_vm","reason":"the instance is new"},{"what":"create_disk","name":"","size":64,"reason":"the instance is new"},{"what":"attach_disk","disk":null,"name":"","reason":"the instance is new"},{"what":"start","reason":"the instance is new"}]}]}]}');
INSERT INTO "plans" VALUES(7,'killed','{"deployment":"killed","warnings":[],"removed":[],"groups":[{"name":"db","canaries":1,"max_in_flight":2,"serial":true,"zones_at_once":false,"canary_watch_time":{"min":1,"max":30000},"update_watch_time":{"min":1,"max":30000},"lifecycle":"service","strategy":"delete-create","instances":[{"id":"d726f265-aef8-5de7-88c3-7f88a8318380","group":"db","index":0,"az":"z1","bootstrap":true,"state":"started","spec":{"cpi":"","stemcell_cid":"sc-00623a56-c154-46dc-90b7-a86221c13494","stemcell":{"name":"new","version":"1","api_version":2},"vm_type":"small","cloud_properties":{},"networks":{"default":{"type":"manual","ip":"127.251.2.13","prefix":"32","netmask":"255.255.255.0","gateway":"127.251.2.1","default":["dns","gateway"],"cloud_properties":{}}},"disks":[{"name":"","size":64,"cloud_properties":{}}],"env":{},"tags":{}},"actions":[{"what":"stop","drain":true,"reason":"it was asked for"},{"what":"detach_disk","disk":"disk-1dd85dcb-61b1-46fd-b3f4-4505a1bba8af","reason":"its VM is replaced"},{"what":"delete_vm","vm":"vm-eaa02198-2b4d-45fe-a868-af39957d2724","reason":"it was asked for"},{"what":"create_vm","reason":"it was asked for"},{"what":"attach_disk","disk":"disk-1dd85dcb-61b1-46fd-b3f4-4505a1bba8af","name":"","reason":"it moves to the new VM"},{"what":"start","reason":"it was changed"}]}]}]}');
CREATE TABLE problems (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    deployment TEXT NOT NULL,
    resource TEXT NOT NULL,
    problem TEXT NOT NULL,
    found_at BIGINT NOT NULL
);
CREATE TABLE schema_migrations (number BIGINT PRIMARY KEY, name TEXT NOT NULL);
INSERT INTO "schema_migrations" VALUES(1,'initial');
INSERT INTO "schema_migrations" VALUES(2,'disk names');
INSERT INTO "schema_migrations" VALUES(3,'events');
INSERT INTO "schema_migrations" VALUES(4,'problems');
INSERT INTO "schema_migrations" VALUES(5,'spare VMs');
INSERT INTO "schema_migrations" VALUES(6,'snapshots');
CREATE TABLE snapshots (
    cid TEXT PRIMARY KEY,
    disk TEXT NOT NULL,
    clean BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE TABLE stemcells (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    cpi TEXT NOT NULL,
    cid TEXT NOT NULL,
    operating_system TEXT NOT NULL,
    sha1 TEXT NOT NULL,
    api_version BIGINT,
    UNIQUE (name, version, cpi)
);
INSERT INTO "stemcells" VALUES(1,'old','1','','sc-f1acdef9-bcda-4f7e-9553-7ebb9a16bca0','old','89a6cf0d2496bc52ca35772967bf9aace8d28e0f',1);
INSERT INTO "stemcells" VALUES(2,'new','1','','sc-00623a56-c154-46dc-90b7-a86221c13494','new','3cc8fc3370728cdbdc1fe609649c0feee21f9d64',2);
CREATE TABLE tasks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
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
INSERT INTO "tasks" VALUES(1,'done','update_stemcell','create stemcell','admin',NULL,'','{"job":"update_stemcell","tarball":"@FOLDER@/state/tmp/upload-ad0ff93c-aafc-4792-bc02-6cd923276e6a","fix":false}','/stemcells/old/1',NULL,1794847488,1794847488,1794847488);
INSERT INTO "tasks" VALUES(2,'done','update_stemcell','create stemcell','admin',NULL,'','{"job":"update_stemcell","tarball":"@FOLDER@/state/tmp/upload-87683c77-0b84-4baa-b08b-2f2b1e5a3372","fix":false}','/stemcells/new/1',NULL,1794847488,1794847488,1794847488);
INSERT INTO "tasks" VALUES(3,'done','update_deployment','create deployment','admin','steady','','{"job":"update_deployment","deployment":"steady","manifest":"name: steady\nstemcells:\n- {alias: new, os: new, version: ''1''}\n- {alias: old, os: old, version: ''1''}\nupdate: {canaries: 1, max_in_flight: 2, canary_watch_time: 1-30000, update_watch_time: 1-30000}\ninstance_groups:\n- {name: db, instances: 2, azs: [z1], vm_type: small, stemcell: new, networks: [{name: default}], persistent_disk_type: disk}\n- {name: old, instances: 1, azs: [z1], vm_type: small, stemcell: old, networks: [{name: default}], persistent_disk_type: disk}\n","options":{"recreate":false,"recreate_created_before":null,"recreate_persistent_disks":false,"change_state":null,"skip_drain":"none","fix":false,"dry_run":false,"configs":[1],"canaries":null,"max_in_flight":null,"verbatim":true}}','/deployments/steady',NULL,1794847488,1794847488,1794847490);
INSERT INTO "tasks" VALUES(4,'done','update_deployment','create deployment','admin','killed','','{"job":"update_deployment","deployment":"killed","manifest":"name: killed\nstemcells:\n- {alias: new, os: new, version: ''1''}\n- {alias: old, os: old, version: ''1''}\nupdate: {canaries: 1, max_in_flight: 2, canary_watch_time: 1-30000, update_watch_time: 1-30000}\ninstance_groups:\n- {name: db, instances: 1, azs: [z1], vm_type: small, stemcell: new, networks: [{name: default}], persistent_disk_type: disk}\n","options":{"recreate":false,"recreate_created_before":null,"recreate_persistent_disks":false,"change_state":null,"skip_drain":"none","fix":false,"dry_run":false,"configs":[1],"canaries":null,"max_in_flight":null,"verbatim":true}}','/deployments/killed',NULL,1794847490,1794847490,1794847491);
INSERT INTO "tasks" VALUES(5,'done','vms','retrieve vm-stats','admin','steady','','{"job":"vm_stats","deployment":"steady","instances":false}','',NULL,1794847491,1794847491,1794847491);
INSERT INTO "tasks" VALUES(6,'done','vms','retrieve vm-stats','admin','killed','','{"job":"vm_stats","deployment":"killed","instances":false}','',NULL,1794847491,1794847491,1794847491);
INSERT INTO "tasks" VALUES(7,'processing','update_deployment','create deployment','admin','killed','','{"job":"update_deployment","deployment":"killed","manifest":"name: killed\nstemcells:\n- {alias: new, os: new, version: ''1''}\n- {alias: old, os: old, version: ''1''}\nupdate: {canaries: 1, max_in_flight: 2, canary_watch_time: 1-30000, update_watch_time: 1-30000}\ninstance_groups:\n- {name: db, instances: 1, azs: [z1], vm_type: small, stemcell: new, networks: [{name: default}], persistent_disk_type: disk}\n","options":{"recreate":false,"recreate_created_before":null,"recreate_persistent_disks":false,"change_state":{"selection":{"group":null,"instance":null},"wish":"recreate"},"skip_drain":"none","fix":false,"dry_run":false,"configs":[1],"canaries":null,"max_in_flight":null,"verbatim":false}}',NULL,'95300423-c729-4cb7-8e5c-6cf53a522890',1794847491,1794847491,NULL);
CREATE TABLE vms (
    cid TEXT PRIMARY KEY,
    instance TEXT NOT NULL REFERENCES instances (id),
    agent_id TEXT NOT NULL UNIQUE,
    cpi TEXT NOT NULL,
    record TEXT NOT NULL,
    ready BIGINT NOT NULL,
    created_at BIGINT NOT NULL
, spare BIGINT NOT NULL DEFAULT 0);
INSERT INTO "vms" VALUES('vm-48e85fea-2c3b-4c28-aa6f-27ada7ad956c','7f2477b1-be86-5c25-8c73-b0bd256f4da0','db714794-bc8f-4a31-b718-e8f1a66a11f5','','{"cid":"vm-48e85fea-2c3b-4c28-aa6f-27ada7ad956c","agent_id":"db714794-bc8f-4a31-b718-e8f1a66a11f5","instance":"7f2477b1-be86-5c25-8c73-b0bd256f4da0","cpi":"","stemcell":{"name":"new","version":"1","api_version":2},"networks":{"default":{"type":"manual","ip":"127.251.2.11","prefix":"32","netmask":"255.255.255.0","gateway":"127.251.2.1","default":["dns","gateway"],"cloud_properties":{}}},"cloud_properties":{},"wanted_env":{},"mbus_user":"director","mbus_password":"2d5c313a24194aecaf9d22290a225c62","created_at":1794847489,"ready":false,"spare":false,"certificate":{"issued_at":1794847489,"expires_at":4948361089,"trusts":"f2bc9d70e31061e2fdb96cf84868363e81118bb0c021bfedc39c5eb16b5b48b6"}}',1,1794847489,0);
INSERT INTO "vms" VALUES('vm-3468ed1f-c0ba-483e-a366-2364a535b292','48dece83-a6d5-5a89-bfaf-b4a3b308c6d9','d3788fe7-b1e2-4924-9e98-a65bbad887a7','','{"cid":"vm-3468ed1f-c0ba-483e-a366-2364a535b292","agent_id":"d3788fe7-b1e2-4924-9e98-a65bbad887a7","instance":"48dece83-a6d5-5a89-bfaf-b4a3b308c6d9","cpi":"","stemcell":{"name":"new","version":"1","api_version":2},"networks":{"default":{"type":"manual","ip":"127.251.2.10","prefix":"32","netmask":"255.255.255.0","gateway":"127.251.2.1","default":["dns","gateway"],"cloud_properties":{}}},"cloud_properties":{},"wanted_env":{},"mbus_user":"director","mbus_password":"263c7c4ce29140feb96bf531d1d66200","created_at":1794847489,"ready":false,"spare":false,"certificate":{"issued_at":1794847489,"expires_at":4948361089,"trusts":"f2bc9d70e31061e2fdb96cf84868363e81118bb0c021bfedc39c5eb16b5b48b6"}}',1,1794847489,0);
INSERT INTO "vms" VALUES('vm-88b67b34-b40b-41c1-a8e7-560a5b240cb6','6b9b39f8-010e-5121-a9d5-68771fa2ac17','78972f90-0a05-4283-982d-84a21727a6af','','{"cid":"vm-88b67b34-b40b-41c1-a8e7-560a5b240cb6","agent_id":"78972f90-0a05-4283-982d-84a21727a6af","instance":"6b9b39f8-010e-5121-a9d5-68771fa2ac17","cpi":"","stemcell":{"name":"old","version":"1","api_version":1},"networks":{"default":{"type":"manual","ip":"127.251.2.12","prefix":"32","netmask":"255.255.255.0","gateway":"127.251.2.1","default":["dns","gateway"],"cloud_properties":{}}},"cloud_properties":{},"wanted_env":{},"mbus_user":"director","mbus_password":"fc71b783376b4eaca4cbee5f75861d4f","created_at":1794847489,"ready":false,"spare":false,"certificate":{"issued_at":1794847489,"expires_at":4948361089,"trusts":"f2bc9d70e31061e2fdb96cf84868363e81118bb0c021bfedc39c5eb16b5b48b6"}}',1,1794847489,0);
CREATE INDEX tasks_state ON tasks (state);
CREATE INDEX problems_deployment ON problems (deployment);
CREATE INDEX vms_instance ON vms (instance);
CREATE INDEX disks_instance ON disks (instance);
CREATE INDEX addresses_instance ON addresses (instance);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',44);
INSERT INTO "sqlite_sequence" VALUES('tasks',7);
INSERT INTO "sqlite_sequence" VALUES('stemcells',2);
INSERT INTO "sqlite_sequence" VALUES('configs',1);
COMMIT;
