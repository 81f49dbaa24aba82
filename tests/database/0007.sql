-- A database as version 0.1.0 left it, with the first seven migrations: five sandboxes in different
-- states, a snapshot, commands, and two runs of workflows, one of which waits for a decision. It is
-- what `sqlite3 stockade.db .dump` printed, with the header of the file set first. Never edited:
-- later programs must open it as it is.
PRAGMA page_size=2048;
PRAGMA application_id=1398033220;
PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE durable_migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL) STRICT;
INSERT INTO durable_migrations VALUES(1,'engine',1795635591566);
CREATE TABLE workflow_status (
    workflow_uuid TEXT PRIMARY KEY NOT NULL,
    status TEXT NOT NULL,
    name TEXT NOT NULL,
    authenticated_user TEXT,
    inputs TEXT NOT NULL,
    output TEXT,
    error TEXT,
    executor_id TEXT,
    executor_incarnation INTEGER,
    application_version TEXT NOT NULL,
    recovery_attempts INTEGER NOT NULL DEFAULT 0,
    forgiven_attempts INTEGER NOT NULL DEFAULT 0,
    queue_name TEXT,
    deduplication_id TEXT,
    priority INTEGER NOT NULL DEFAULT 0,
    workflow_timeout_ms INTEGER,
    workflow_deadline_epoch_ms INTEGER,
    delay_until_epoch_ms INTEGER,
    parent_workflow_id TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    started_at_epoch_ms INTEGER,
    completed_at INTEGER
) STRICT;
INSERT INTO workflow_status VALUES('key-4118ca5d901f990bd958880ac2bd2a3910ab030c','SUCCESS','sandbox.create','uid:0','{"owner":"uid:0","request":{"id":"held","asked":"231ad45fb0bc6b00b704f9fa61189e7c27ccc257d0001eadfd96f64b5de882f2"}}','{"id":"held","ownerId":"uid:0","state":"running","reason":null,"image":"host","visibility":"private","requestedRuntime":null,"runtime":"native","executionId":null,"workflowId":"key-4118ca5d901f990bd958880ac2bd2a3910ab030c","workspaceId":null,"workspace":{"host":"/srv/project","inside":"/srv/project"},"metadata":{"team":"red"},"accessRules":[{"effect":"allow","level":"readwrite","path":"/"},{"effect":"deny","level":"read","path":"/secret"}],"defaultUid":null,"users":[],"limits":{"memory_bytes":null,"cpu_millis":null,"processes":null,"disk_bytes":null},"proxy":null,"createdAt":"2026-11-25T19:39:51.699Z","expiresAt":null,"terminatedAt":null,"isolation":{"level":"full","walls":[{"name":"user","raised":true},{"name":"pid","raised":true},{"name":"network","raised":true},{"name":"ipc","raised":true},{"name":"hostname","raised":true},{"name":"cgroup","raised":true},{"name":"root","raised":true},{"name":"view","raised":true},{"name":"devices","raised":true},{"name":"proc","raised":true},{"name":"rlimits","raised":true},{"name":"capabilities","raised":true},{"name":"no_new_privs","raised":true},{"name":"landlock","raised":true},{"name":"seccomp","raised":true},{"name":"inheritance","raised":true},{"name":"access","raised":true}],"limits":[{"name":"pids","enforcement":"enforced","by":"rlimit of the user namespace, for each user"}],"reasons":[]}}',NULL,'local',1795635591649,'1',1,0,NULL,NULL,0,NULL,NULL,NULL,NULL,1795635591700,1795635592046,1795635591700,1795635592046);
INSERT INTO workflow_status VALUES('sandbox-watcher:held','PENDING','sandbox.watch','uid:0','{"id":"held"}',NULL,NULL,'local',1795635591649,'1',1,0,NULL,NULL,0,NULL,NULL,NULL,'key-4118ca5d901f990bd958880ac2bd2a3910ab030c',1795635591753,1795635591753,1795635591753,NULL);
INSERT INTO workflow_status VALUES('key-7ebfd88c66e455d6d9af36fb961c792c0b043a9e','SUCCESS','sandbox.session','uid:0','{"owner":"uid:0","request":{"execute":{"sandboxId":"held","command":["sh","-c","echo out; echo err >&2; exit 3"],"environment":{},"workingDirectory":null,"uid":null,"gid":null,"user":null,"timeoutSeconds":null,"outputLimitBytes":null,"queued":false},"terminal":null,"input":true}}','{"ending":"exited","exitCode":3,"reason":null,"durationMs":37,"stdoutBytes":4,"stderrBytes":4}',NULL,'local',1795635591649,'1',1,0,NULL,NULL,0,NULL,NULL,NULL,NULL,1795635592085,1795635592132,1795635592085,1795635592132);
INSERT INTO workflow_status VALUES('key-fa3d55358a3cee5a51577204fbf1e9643073c940','SUCCESS','sandbox.create','uid:0','{"owner":"uid:0","request":{"id":"halted","asked":"8f363b6fb25cc0dc9cac2bf9e6b77aa88901f2c45e722a1e9ba23e70328ea540"}}','{"id":"halted","ownerId":"uid:0","state":"running","reason":null,"image":"host","visibility":"private","requestedRuntime":null,"runtime":"native","executionId":null,"workflowId":"key-fa3d55358a3cee5a51577204fbf1e9643073c940","workspaceId":null,"metadata":{"team":"blue"},"accessRules":[],"defaultUid":null,"users":[],"limits":{"memory_bytes":null,"cpu_millis":null,"processes":null,"disk_bytes":null},"proxy":null,"createdAt":"2026-11-25T19:39:52.155Z","expiresAt":null,"terminatedAt":null,"isolation":{"level":"full","walls":[{"name":"user","raised":true},{"name":"pid","raised":true},{"name":"network","raised":true},{"name":"ipc","raised":true},{"name":"hostname","raised":true},{"name":"cgroup","raised":true},{"name":"root","raised":true},{"name":"view","raised":true},{"name":"devices","raised":true},{"name":"proc","raised":true},{"name":"rlimits","raised":true},{"name":"capabilities","raised":true},{"name":"no_new_privs","raised":true},{"name":"landlock","raised":true},{"name":"seccomp","raised":true},{"name":"inheritance","raised":true}],"limits":[{"name":"pids","enforcement":"enforced","by":"rlimit of the user namespace, for each user"}],"reasons":[]}}',NULL,'local',1795635591649,'1',1,0,NULL,NULL,0,NULL,NULL,NULL,NULL,1795635592155,1795635592162,1795635592155,1795635592162);
INSERT INTO workflow_status VALUES('sandbox-watcher:halted','PENDING','sandbox.watch','uid:0','{"id":"halted"}',NULL,NULL,'local',1795635591649,'1',1,0,NULL,NULL,0,NULL,NULL,NULL,'key-fa3d55358a3cee5a51577204fbf1e9643073c940',1795635592160,1795635592160,1795635592160,NULL);
INSERT INTO workflow_status VALUES('key-b98de6b69760d11461af00b9d17bbf88d6190626','SUCCESS','sandbox.session','uid:0','{"owner":"uid:0","request":{"execute":{"sandboxId":"halted","command":["sh","-c","echo kept > /tmp/x"],"environment":{},"workingDirectory":null,"uid":null,"gid":null,"user":null,"timeoutSeconds":null,"outputLimitBytes":null,"queued":false},"terminal":null,"input":true}}','{"ending":"exited","exitCode":0,"reason":null,"durationMs":13,"stdoutBytes":0,"stderrBytes":0}',NULL,'local',1795635591649,'1',1,0,NULL,NULL,0,NULL,NULL,NULL,NULL,1795635592177,1795635592193,1795635592177,1795635592193);
INSERT INTO workflow_status VALUES('key-bf54236865142e3066608f157ac8f1c0218d855e','SUCCESS','sandbox.stop','uid:0','{"owner":"uid:0","request":{"id":"halted"}}','{"id":"halted","ownerId":"uid:0","state":"stopped","reason":null,"image":"host","visibility":"private","requestedRuntime":null,"runtime":"native","executionId":null,"workflowId":"key-fa3d55358a3cee5a51577204fbf1e9643073c940","workspaceId":null,"metadata":{"team":"blue"},"accessRules":[],"defaultUid":null,"users":[],"limits":{"memory_bytes":null,"cpu_millis":null,"processes":null,"disk_bytes":null},"proxy":null,"createdAt":"2026-11-25T19:39:52.155Z","expiresAt":null,"terminatedAt":null,"isolation":null}',NULL,'local',1795635591649,'1',1,0,NULL,NULL,0,NULL,NULL,NULL,NULL,1795635592207,1795635592238,1795635592207,1795635592238);
INSERT INTO workflow_status VALUES('key-240d1f928f0fc0662c2671af052375e3c0769b64','SUCCESS','sandbox.create','uid:0','{"owner":"uid:0","request":{"id":"resting","asked":"efeba5dcd00b45ba49761cee0bdc3969fb6ceb696689c53aee8a9947164b23b5"}}','{"id":"resting","ownerId":"uid:0","state":"running","reason":null,"image":"host","visibility":"private","requestedRuntime":null,"runtime":"native","executionId":null,"workflowId":"key-240d1f928f0fc0662c2671af052375e3c0769b64","workspaceId":null,"metadata":{},"accessRules":[],"defaultUid":null,"users":[],"limits":{"memory_bytes":null,"cpu_millis":null,"processes":null,"disk_bytes":null},"proxy":null,"createdAt":"2026-11-25T19:39:52.247Z","expiresAt":null,"terminatedAt":null,"isolation":{"level":"full","walls":[{"name":"user","raised":true},{"name":"pid","raised":true},{"name":"network","raised":true},{"name":"ipc","raised":true},{"name":"hostname","raised":true},{"name":"cgroup","raised":true},{"name":"root","raised":true},{"name":"view","raised":true},{"name":"devices","raised":true},{"name":"proc","raised":true},{"name":"rlimits","raised":true},{"name":"capabilities","raised":true},{"name":"no_new_privs","raised":true},{"name":"landlock","raised":true},{"name":"seccomp","raised":true},{"name":"inheritance","raised":true}],"limits":[{"name":"pids","enforcement":"enforced","by":"rlimit of the user namespace, for each user"}],"reasons":[]}}',NULL,'local',1795635591649,'1',1,0,NULL,NULL,0,NULL,NULL,NULL,NULL,1795635592247,1795635592254,1795635592247,1795635592254);
INSERT INTO workflow_status VALUES('sandbox-watcher:resting','PENDING','sandbox.watch','uid:0','{"id":"resting"}',NULL,NULL,'local',1795635591649,'1',1,0,NULL,NULL,0,NULL,NULL,NULL,'key-240d1f928f0fc0662c2671af052375e3c0769b64',1795635592252,1795635592252,1795635592252,NULL);
INSERT INTO workflow_status VALUES('key-d8a241f1792efed50812572276537e426112b4e9','SUCCESS','sandbox.pause','uid:0','{"owner":"uid:0","request":{"id":"resting"}}','{"id":"resting","ownerId":"uid:0","state":"paused","reason":null,"image":"host","visibility":"private","requestedRuntime":null,"runtime":"native","executionId":null,"workflowId":"key-240d1f928f0fc0662c2671af052375e3c0769b64","workspaceId":null,"metadata":{},"accessRules":[],"defaultUid":null,"users":[],"limits":{"memory_bytes":null,"cpu_millis":null,"processes":null,"disk_bytes":null},"proxy":null,"createdAt":"2026-11-25T19:39:52.247Z","expiresAt":null,"terminatedAt":null,"isolation":null}',NULL,'local',1795635591649,'1',1,0,NULL,NULL,0,NULL,NULL,NULL,NULL,1795635592273,1795635592277,1795635592273,1795635592277);
INSERT INTO workflow_status VALUES('key-c5d8930e917cc211070a6e708f5de32a9ef4850c','SUCCESS','sandbox.create','uid:0','{"owner":"uid:0","request":{"id":"ended","asked":"98f587ef8e6a2a91a00be182374ac4b3a248f4e9a2a70dc6ab6909595aa7bcbc"}}','{"id":"ended","ownerId":"uid:0","state":"running","reason":null,"image":"host","visibility":"private","requestedRuntime":null,"runtime":"native","executionId":null,"workflowId":"key-c5d8930e917cc211070a6e708f5de32a9ef4850c","workspaceId":null,"metadata":{},"accessRules":[],"defaultUid":null,"users":[],"limits":{"memory_bytes":null,"cpu_millis":null,"processes":null,"disk_bytes":null},"proxy":null,"createdAt":"2026-11-25T19:39:52.29Z","expiresAt":null,"terminatedAt":null,"isolation":{"level":"full","walls":[{"name":"user","raised":true},{"name":"pid","raised":true},{"name":"network","raised":true},{"name":"ipc","raised":true},{"name":"hostname","raised":true},{"name":"cgroup","raised":true},{"name":"root","raised":true},{"name":"view","raised":true},{"name":"devices","raised":true},{"name":"proc","raised":true},{"name":"rlimits","raised":true},{"name":"capabilities","raised":true},{"name":"no_new_privs","raised":true},{"name":"landlock","raised":true},{"name":"seccomp","raised":true},{"name":"inheritance","raised":true}],"limits":[{"name":"pids","enforcement":"enforced","by":"rlimit of the user namespace, for each user"}],"reasons":[]}}',NULL,'local',1795635591649,'1',1,0,NULL,NULL,0,NULL,NULL,NULL,NULL,1795635592290,1795635592312,1795635592290,1795635592312);
INSERT INTO workflow_status VALUES('sandbox-watcher:ended','SUCCESS','sandbox.watch','uid:0','{"id":"ended"}','null',NULL,'local',1795635591649,'1',1,0,NULL,NULL,0,NULL,NULL,NULL,'key-c5d8930e917cc211070a6e708f5de32a9ef4850c',1795635592296,1795635592360,1795635592296,1795635592360);
INSERT INTO workflow_status VALUES('key-846459ab300ac42af297a2d0224caca52f4f9410','SUCCESS','sandbox.kill','uid:0','{"owner":"uid:0","request":{"id":"ended"}}','{"id":"ended","ownerId":"uid:0","state":"terminated","reason":"requested","image":"host","visibility":"private","requestedRuntime":null,"runtime":"native","executionId":null,"workflowId":"key-c5d8930e917cc211070a6e708f5de32a9ef4850c","workspaceId":null,"metadata":{},"accessRules":[],"defaultUid":null,"users":[],"limits":{"memory_bytes":null,"cpu_millis":null,"processes":null,"disk_bytes":null},"proxy":null,"createdAt":"2026-11-25T19:39:52.29Z","expiresAt":null,"terminatedAt":"2026-11-25T19:39:52.352Z","isolation":null}',NULL,'local',1795635591649,'1',1,0,NULL,NULL,0,NULL,NULL,NULL,NULL,1795635592331,1795635592352,1795635592331,1795635592352);
INSERT INTO workflow_status VALUES('key-903a0c29934b0b08bd289000d2336d7b369a363e','SUCCESS','sandbox.create','uid:0','{"owner":"uid:0","request":{"id":"policy","asked":"f2f37cc52bde4361ad0a12f24b24dd3914ac8ed4380a647e547eaa254b9651a4"}}','{"id":"policy","ownerId":"uid:0","state":"running","reason":null,"image":"host","visibility":"private","requestedRuntime":null,"runtime":"native","executionId":null,"workflowId":"key-903a0c29934b0b08bd289000d2336d7b369a363e","workspaceId":null,"metadata":{},"accessRules":[],"defaultUid":null,"users":[],"limits":{"memory_bytes":null,"cpu_millis":null,"processes":null,"disk_bytes":null},"proxy":null,"network":{"policy":{"default":"deny","rules":[{"action":"allow","target":"example.com"}]},"refused":[],"lost":0,"connections":0,"sentBytes":0,"receivedBytes":0},"createdAt":"2026-11-25T19:39:52.364Z","expiresAt":null,"terminatedAt":null,"isolation":{"level":"full","walls":[{"name":"user","raised":true},{"name":"pid","raised":true},{"name":"network","raised":true,"reason":"by policy: what it allows is reached, through a process outside"},{"name":"ipc","raised":true},{"name":"hostname","raised":true},{"name":"cgroup","raised":true},{"name":"root","raised":true},{"name":"view","raised":true},{"name":"devices","raised":true},{"name":"proc","raised":true},{"name":"rlimits","raised":true},{"name":"capabilities","raised":true},{"name":"no_new_privs","raised":true},{"name":"landlock","raised":true},{"name":"seccomp","raised":true},{"name":"inheritance","raised":true}],"limits":[{"name":"pids","enforcement":"enforced","by":"rlimit of the user namespace, for each user"}],"reasons":[]}}',NULL,'local',1795635591649,'1',1,0,NULL,NULL,0,NULL,NULL,NULL,NULL,1795635592375,1795635592453,1795635592375,1795635592453);
INSERT INTO workflow_status VALUES('sandbox-watcher:policy','PENDING','sandbox.watch','uid:0','{"id":"policy"}',NULL,NULL,'local',1795635591649,'1',1,0,NULL,NULL,0,NULL,NULL,NULL,'key-903a0c29934b0b08bd289000d2336d7b369a363e',1795635592384,1795635592384,1795635592384,NULL);
INSERT INTO workflow_status VALUES('key-474c63b318aa8c765c9061ee5649b3a3792f21e2','SUCCESS','sandbox.snapshot','uid:0','{"owner":"uid:0","request":{"sandbox_id":"held","id":"first"}}','{"id":"first","sandboxId":"held","createdAt":"2026-11-25T19:39:52.483Z","sizeBytes":20480}',NULL,'local',1795635591649,'1',1,0,NULL,NULL,0,NULL,NULL,NULL,NULL,1795635592477,1795635592501,1795635592477,1795635592501);
INSERT INTO workflow_status VALUES('run:hello-1:1','SUCCESS','workflow.run','uid:0','{"run":"hello-1"}','{"letters":13,"text":"Hello, world!"}',NULL,'local-workflows',1795635591660,'1',1,0,NULL,NULL,0,NULL,NULL,NULL,NULL,1795635592622,1795635592648,1795635592622,1795635592648);
INSERT INTO workflow_status VALUES('run:approval-1:1','PENDING','workflow.run','uid:0','{"run":"approval-1"}',NULL,NULL,'local-workflows',1795635591660,'1',1,0,NULL,NULL,0,NULL,NULL,NULL,NULL,1795635592713,1795635592713,1795635592713,NULL);
CREATE TABLE operation_outputs (
    workflow_uuid TEXT NOT NULL,
    function_id INTEGER NOT NULL,
    function_name TEXT NOT NULL,
    output TEXT,
    error TEXT,
    child_workflow_id TEXT,
    started_at_epoch_ms INTEGER NOT NULL,
    completed_at_epoch_ms INTEGER NOT NULL,
    PRIMARY KEY (workflow_uuid, function_id)
) STRICT, WITHOUT ROWID;
INSERT INTO operation_outputs VALUES('key-240d1f928f0fc0662c2671af052375e3c0769b64',0,'acl','null',NULL,NULL,1795635592251,1795635592252);
INSERT INTO operation_outputs VALUES('key-240d1f928f0fc0662c2671af052375e3c0769b64',1,'sandbox.watch','null',NULL,'sandbox-watcher:resting',1795635592252,1795635592252);
INSERT INTO operation_outputs VALUES('key-240d1f928f0fc0662c2671af052375e3c0769b64',2,'create','{"level":"full","walls":[{"name":"user","raised":true},{"name":"pid","raised":true},{"name":"network","raised":true},{"name":"ipc","raised":true},{"name":"hostname","raised":true},{"name":"cgroup","raised":true},{"name":"root","raised":true},{"name":"view","raised":true},{"name":"devices","raised":true},{"name":"proc","raised":true},{"name":"rlimits","raised":true},{"name":"capabilities","raised":true},{"name":"no_new_privs","raised":true},{"name":"landlock","raised":true},{"name":"seccomp","raised":true},{"name":"inheritance","raised":true}],"limits":[{"name":"pids","enforcement":"enforced","by":"rlimit of the user namespace, for each user"}],"reasons":[]}',NULL,NULL,1795635592252,1795635592253);
INSERT INTO operation_outputs VALUES('key-4118ca5d901f990bd958880ac2bd2a3910ab030c',0,'acl','null',NULL,NULL,1795635591751,1795635591752);
INSERT INTO operation_outputs VALUES('key-4118ca5d901f990bd958880ac2bd2a3910ab030c',1,'sandbox.watch','null',NULL,'sandbox-watcher:held',1795635591752,1795635591752);
INSERT INTO operation_outputs VALUES('key-4118ca5d901f990bd958880ac2bd2a3910ab030c',2,'create','{"level":"full","walls":[{"name":"user","raised":true},{"name":"pid","raised":true},{"name":"network","raised":true},{"name":"ipc","raised":true},{"name":"hostname","raised":true},{"name":"cgroup","raised":true},{"name":"root","raised":true},{"name":"view","raised":true},{"name":"devices","raised":true},{"name":"proc","raised":true},{"name":"rlimits","raised":true},{"name":"capabilities","raised":true},{"name":"no_new_privs","raised":true},{"name":"landlock","raised":true},{"name":"seccomp","raised":true},{"name":"inheritance","raised":true},{"name":"access","raised":true}],"limits":[{"name":"pids","enforcement":"enforced","by":"rlimit of the user namespace, for each user"}],"reasons":[]}',NULL,NULL,1795635591752,1795635592045);
INSERT INTO operation_outputs VALUES('key-474c63b318aa8c765c9061ee5649b3a3792f21e2',0,'acl','null',NULL,NULL,1795635592480,1795635592481);
INSERT INTO operation_outputs VALUES('key-474c63b318aa8c765c9061ee5649b3a3792f21e2',1,'acl','null',NULL,NULL,1795635592481,1795635592481);
INSERT INTO operation_outputs VALUES('key-474c63b318aa8c765c9061ee5649b3a3792f21e2',2,'snapshot','{"id":"first","sandboxId":"held","createdAt":"2026-11-25T19:39:52.483Z","sizeBytes":20480}',NULL,NULL,1795635592481,1795635592499);
INSERT INTO operation_outputs VALUES('key-7ebfd88c66e455d6d9af36fb961c792c0b043a9e',0,'acl','null',NULL,NULL,1795635592094,1795635592094);
INSERT INTO operation_outputs VALUES('key-7ebfd88c66e455d6d9af36fb961c792c0b043a9e',1,'session','["x-5a05b76155e23e52559c786e",{"ending":"exited","exitCode":3,"reason":null,"durationMs":37,"stdoutBytes":4,"stderrBytes":4}]',NULL,NULL,1795635592094,1795635592131);
INSERT INTO operation_outputs VALUES('key-846459ab300ac42af297a2d0224caca52f4f9410',0,'acl','null',NULL,NULL,1795635592336,1795635592336);
INSERT INTO operation_outputs VALUES('key-846459ab300ac42af297a2d0224caca52f4f9410',1,'cleanup','null',NULL,NULL,1795635592336,1795635592352);
INSERT INTO operation_outputs VALUES('key-903a0c29934b0b08bd289000d2336d7b369a363e',0,'acl','null',NULL,NULL,1795635592383,1795635592384);
INSERT INTO operation_outputs VALUES('key-903a0c29934b0b08bd289000d2336d7b369a363e',1,'sandbox.watch','null',NULL,'sandbox-watcher:policy',1795635592384,1795635592384);
INSERT INTO operation_outputs VALUES('key-903a0c29934b0b08bd289000d2336d7b369a363e',2,'create','{"level":"full","walls":[{"name":"user","raised":true},{"name":"pid","raised":true},{"name":"network","raised":true,"reason":"by policy: what it allows is reached, through a process outside"},{"name":"ipc","raised":true},{"name":"hostname","raised":true},{"name":"cgroup","raised":true},{"name":"root","raised":true},{"name":"view","raised":true},{"name":"devices","raised":true},{"name":"proc","raised":true},{"name":"rlimits","raised":true},{"name":"capabilities","raised":true},{"name":"no_new_privs","raised":true},{"name":"landlock","raised":true},{"name":"seccomp","raised":true},{"name":"inheritance","raised":true}],"limits":[{"name":"pids","enforcement":"enforced","by":"rlimit of the user namespace, for each user"}],"reasons":[]}',NULL,NULL,1795635592384,1795635592453);
INSERT INTO operation_outputs VALUES('key-b98de6b69760d11461af00b9d17bbf88d6190626',0,'acl','null',NULL,NULL,1795635592179,1795635592180);
INSERT INTO operation_outputs VALUES('key-b98de6b69760d11461af00b9d17bbf88d6190626',1,'session','["x-9cb694b4324f20a366268f93",{"ending":"exited","exitCode":0,"reason":null,"durationMs":13,"stdoutBytes":0,"stderrBytes":0}]',NULL,NULL,1795635592180,1795635592193);
INSERT INTO operation_outputs VALUES('key-bf54236865142e3066608f157ac8f1c0218d855e',0,'acl','null',NULL,NULL,1795635592208,1795635592208);
INSERT INTO operation_outputs VALUES('key-bf54236865142e3066608f157ac8f1c0218d855e',1,'stop','null',NULL,NULL,1795635592208,1795635592237);
INSERT INTO operation_outputs VALUES('key-c5d8930e917cc211070a6e708f5de32a9ef4850c',0,'acl','null',NULL,NULL,1795635592291,1795635592291);
INSERT INTO operation_outputs VALUES('key-c5d8930e917cc211070a6e708f5de32a9ef4850c',1,'sandbox.watch','null',NULL,'sandbox-watcher:ended',1795635592292,1795635592292);
INSERT INTO operation_outputs VALUES('key-c5d8930e917cc211070a6e708f5de32a9ef4850c',2,'create','{"level":"full","walls":[{"name":"user","raised":true},{"name":"pid","raised":true},{"name":"network","raised":true},{"name":"ipc","raised":true},{"name":"hostname","raised":true},{"name":"cgroup","raised":true},{"name":"root","raised":true},{"name":"view","raised":true},{"name":"devices","raised":true},{"name":"proc","raised":true},{"name":"rlimits","raised":true},{"name":"capabilities","raised":true},{"name":"no_new_privs","raised":true},{"name":"landlock","raised":true},{"name":"seccomp","raised":true},{"name":"inheritance","raised":true}],"limits":[{"name":"pids","enforcement":"enforced","by":"rlimit of the user namespace, for each user"}],"reasons":[]}',NULL,NULL,1795635592292,1795635592295);
INSERT INTO operation_outputs VALUES('key-d8a241f1792efed50812572276537e426112b4e9',0,'acl','null',NULL,NULL,1795635592276,1795635592276);
INSERT INTO operation_outputs VALUES('key-d8a241f1792efed50812572276537e426112b4e9',1,'pause','null',NULL,NULL,1795635592276,1795635592277);
INSERT INTO operation_outputs VALUES('key-fa3d55358a3cee5a51577204fbf1e9643073c940',0,'acl','null',NULL,NULL,1795635592159,1795635592160);
INSERT INTO operation_outputs VALUES('key-fa3d55358a3cee5a51577204fbf1e9643073c940',1,'sandbox.watch','null',NULL,'sandbox-watcher:halted',1795635592160,1795635592160);
INSERT INTO operation_outputs VALUES('key-fa3d55358a3cee5a51577204fbf1e9643073c940',2,'create','{"level":"full","walls":[{"name":"user","raised":true},{"name":"pid","raised":true},{"name":"network","raised":true},{"name":"ipc","raised":true},{"name":"hostname","raised":true},{"name":"cgroup","raised":true},{"name":"root","raised":true},{"name":"view","raised":true},{"name":"devices","raised":true},{"name":"proc","raised":true},{"name":"rlimits","raised":true},{"name":"capabilities","raised":true},{"name":"no_new_privs","raised":true},{"name":"landlock","raised":true},{"name":"seccomp","raised":true},{"name":"inheritance","raised":true}],"limits":[{"name":"pids","enforcement":"enforced","by":"rlimit of the user namespace, for each user"}],"reasons":[]}',NULL,NULL,1795635592160,1795635592161);
INSERT INTO operation_outputs VALUES('sandbox-watcher:ended',0,'watch','null',NULL,NULL,1795635592311,1795635592360);
CREATE TABLE streams (
    workflow_uuid TEXT NOT NULL,
    key TEXT NOT NULL,
    "offset" INTEGER NOT NULL,
    value TEXT,
    function_id INTEGER,
    PRIMARY KEY (workflow_uuid, key, "offset")
) STRICT, WITHOUT ROWID;
CREATE TABLE workflow_events (
    workflow_uuid TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (workflow_uuid, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE notifications (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    message_uuid TEXT NOT NULL UNIQUE,
    destination_uuid TEXT NOT NULL,
    topic TEXT NOT NULL,
    message TEXT NOT NULL,
    consumed INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL
) STRICT;
CREATE TABLE queues (
    name TEXT PRIMARY KEY NOT NULL,
    concurrency INTEGER,
    worker_concurrency INTEGER,
    rate_limit_max INTEGER,
    rate_limit_period_ms INTEGER
) STRICT, WITHOUT ROWID;
INSERT INTO queues VALUES('fireflow-sandbox',30,3,NULL,NULL);
CREATE TABLE executors (
    executor_id TEXT PRIMARY KEY NOT NULL,
    incarnation INTEGER NOT NULL,
    application_version TEXT NOT NULL,
    heartbeat_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO executors VALUES('local',1795635591649,'1',0);
INSERT INTO executors VALUES('local-workflows',1795635591660,'1',0);
CREATE TABLE application_versions (
    version TEXT PRIMARY KEY NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO application_versions VALUES('1',1795635591649);
CREATE TABLE application_migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL) STRICT;
INSERT INTO application_migrations VALUES(1,'sandboxes, their events and snapshots',1795635591567);
INSERT INTO application_migrations VALUES(2,'lists of sandboxes by their age',1795635591567);
INSERT INTO application_migrations VALUES(3,'runs of workflows, their tasks and events',1795635591571);
INSERT INTO application_migrations VALUES(4,'what tasks gave, for other runs',1795635591571);
INSERT INTO application_migrations VALUES(5,'what tasks changed in their projects, and when they go on',1795635591572);
INSERT INTO application_migrations VALUES(6,'sandboxes of runs',1795635591572);
INSERT INTO application_migrations VALUES(7,'sandboxes in sandboxes',1795635591573);
CREATE TABLE sandbox_instances (
    id TEXT PRIMARY KEY,
    owner_id TEXT NOT NULL,
    execution_id TEXT,
    workflow_id TEXT,
    image TEXT NOT NULL,
    status TEXT NOT NULL,
    visibility TEXT NOT NULL DEFAULT 'private',
    workspace_id TEXT,
    access_rules TEXT NOT NULL DEFAULT '[]',
    sandbox_users TEXT NOT NULL DEFAULT '[]',
    default_uid INTEGER,
    metadata TEXT NOT NULL DEFAULT '{}',
    resource_spec TEXT NOT NULL DEFAULT '{}',
    proxy_config TEXT,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    terminated_at INTEGER,
    reason TEXT,
    requested_runtime TEXT,
    runtime TEXT NOT NULL,
    spec TEXT NOT NULL,
    idle_timeout_ms INTEGER,
    on_idle TEXT NOT NULL DEFAULT 'pause',
    last_used_at INTEGER NOT NULL,
    idle_paused INTEGER NOT NULL DEFAULT 0,
    files TEXT,
    generation INTEGER NOT NULL DEFAULT 1
);
INSERT INTO sandbox_instances VALUES('held','uid:0',NULL,'key-4118ca5d901f990bd958880ac2bd2a3910ab030c','host','running','private',NULL,'[{"effect":"allow","level":"readwrite","path":"/"},{"effect":"deny","level":"read","path":"/secret"}]','[]',NULL,'{"team":"red"}','{"memory_bytes":null,"cpu_millis":null,"processes":null,"disk_bytes":null}',NULL,1795635591699,NULL,NULL,NULL,NULL,'native','{"id":"held","image":null,"workspace":{"host":"/srv/project","inside":"/srv/project"},"mounts":[],"environment":{"A":"b"},"users":[],"defaultUid":null,"workingDirectory":"/srv/project","limits":{"memory_bytes":null,"cpu_millis":null,"processes":null,"disk_bytes":null},"bestEffort":[],"accessRules":[{"effect":"allow","level":"readwrite","path":"/"},{"effect":"deny","level":"read","path":"/secret"}],"metadata":{"team":"red"},"ttlSeconds":null,"idleTimeoutSeconds":7200.0,"onIdle":"pause","runtime":null,"proxy":null,"workspaceId":null,"stopped":false}',7200000,'pause',1795635592500,0,NULL,2);
INSERT INTO sandbox_instances VALUES('halted','uid:0',NULL,'key-fa3d55358a3cee5a51577204fbf1e9643073c940','host','stopped','private',NULL,'[]','[]',NULL,'{"team":"blue"}','{"memory_bytes":null,"cpu_millis":null,"processes":null,"disk_bytes":null}',NULL,1795635592155,NULL,NULL,NULL,NULL,'native','{"id":"halted","image":null,"workspace":null,"mounts":[],"environment":{},"users":[],"defaultUid":null,"workingDirectory":null,"limits":{"memory_bytes":null,"cpu_millis":null,"processes":null,"disk_bytes":null},"bestEffort":[],"accessRules":[],"metadata":{"team":"blue"},"ttlSeconds":null,"idleTimeoutSeconds":null,"onIdle":"pause","runtime":null,"proxy":null,"workspaceId":null,"stopped":false}',NULL,'pause',1795635592237,0,'stop-key-bf54236865142e3066608f157ac8f1c0218d855e',3);
INSERT INTO sandbox_instances VALUES('resting','uid:0',NULL,'key-240d1f928f0fc0662c2671af052375e3c0769b64','host','paused','private',NULL,'[]','[]',NULL,'{}','{"memory_bytes":null,"cpu_millis":null,"processes":null,"disk_bytes":null}',NULL,1795635592247,NULL,NULL,NULL,NULL,'native','{"id":"resting","image":null,"workspace":null,"mounts":[],"environment":{},"users":[],"defaultUid":null,"workingDirectory":null,"limits":{"memory_bytes":null,"cpu_millis":null,"processes":null,"disk_bytes":null},"bestEffort":[],"accessRules":[],"metadata":{},"ttlSeconds":null,"idleTimeoutSeconds":null,"onIdle":"pause","runtime":null,"proxy":null,"workspaceId":null,"stopped":false}',NULL,'pause',1795635592277,0,NULL,3);
INSERT INTO sandbox_instances VALUES('ended','uid:0',NULL,'key-c5d8930e917cc211070a6e708f5de32a9ef4850c','host','terminated','private',NULL,'[]','[]',NULL,'{}','{"memory_bytes":null,"cpu_millis":null,"processes":null,"disk_bytes":null}',NULL,1795635592290,NULL,1795635592352,'requested',NULL,'native','{"id":"ended","image":null,"workspace":null,"mounts":[],"environment":{},"users":[],"defaultUid":null,"workingDirectory":null,"limits":{"memory_bytes":null,"cpu_millis":null,"processes":null,"disk_bytes":null},"bestEffort":[],"accessRules":[],"metadata":{},"ttlSeconds":null,"idleTimeoutSeconds":null,"onIdle":"pause","runtime":null,"proxy":null,"workspaceId":null,"stopped":false}',NULL,'pause',1795635592352,0,NULL,3);
INSERT INTO sandbox_instances VALUES('policy','uid:0',NULL,'key-903a0c29934b0b08bd289000d2336d7b369a363e','host','running','private',NULL,'[]','[]',NULL,'{}','{"memory_bytes":null,"cpu_millis":null,"processes":null,"disk_bytes":null}',NULL,1795635592364,NULL,NULL,NULL,NULL,'native','{"id":"policy","image":null,"workspace":null,"mounts":[],"environment":{},"users":[],"defaultUid":null,"workingDirectory":null,"limits":{"memory_bytes":null,"cpu_millis":null,"processes":null,"disk_bytes":null},"bestEffort":[],"accessRules":[],"network":{"allow":["example.com"]},"metadata":{},"ttlSeconds":null,"idleTimeoutSeconds":null,"onIdle":"pause","runtime":null,"proxy":null,"workspaceId":null,"stopped":false}',NULL,'pause',1795635592453,0,NULL,2);
CREATE TABLE sandbox_events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    type TEXT NOT NULL,
    sandbox_id TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    execution_id TEXT,
    at INTEGER NOT NULL,
    data TEXT NOT NULL
);
INSERT INTO sandbox_events VALUES(1,'key-4118ca5d901f990bd958880ac2bd2a3910ab030c:SANDBOX_CREATED','SANDBOX_CREATED','held','uid:0',NULL,1795635591752,'{"expiresAt":null,"image":"host"}');
INSERT INTO sandbox_events VALUES(2,'key-7ebfd88c66e455d6d9af36fb961c792c0b043a9e:COMMAND_COMPLETED','COMMAND_COMPLETED','held','uid:0',NULL,1795635592132,'{"durationMs":37,"exitCode":3,"stderrBytes":4,"stdoutBytes":4,"timedOut":false}');
INSERT INTO sandbox_events VALUES(3,'key-fa3d55358a3cee5a51577204fbf1e9643073c940:SANDBOX_CREATED','SANDBOX_CREATED','halted','uid:0',NULL,1795635592160,'{"expiresAt":null,"image":"host"}');
INSERT INTO sandbox_events VALUES(4,'key-b98de6b69760d11461af00b9d17bbf88d6190626:COMMAND_COMPLETED','COMMAND_COMPLETED','halted','uid:0',NULL,1795635592193,'{"durationMs":13,"exitCode":0,"stderrBytes":0,"stdoutBytes":0,"timedOut":false}');
INSERT INTO sandbox_events VALUES(5,'key-bf54236865142e3066608f157ac8f1c0218d855e:SANDBOX_PAUSED','SANDBOX_PAUSED','halted','uid:0',NULL,1795635592237,'{"reason":"requested"}');
INSERT INTO sandbox_events VALUES(6,'key-240d1f928f0fc0662c2671af052375e3c0769b64:SANDBOX_CREATED','SANDBOX_CREATED','resting','uid:0',NULL,1795635592252,'{"expiresAt":null,"image":"host"}');
INSERT INTO sandbox_events VALUES(7,'key-d8a241f1792efed50812572276537e426112b4e9:SANDBOX_PAUSED','SANDBOX_PAUSED','resting','uid:0',NULL,1795635592277,'{"reason":"requested"}');
INSERT INTO sandbox_events VALUES(8,'key-c5d8930e917cc211070a6e708f5de32a9ef4850c:SANDBOX_CREATED','SANDBOX_CREATED','ended','uid:0',NULL,1795635592292,'{"expiresAt":null,"image":"host"}');
INSERT INTO sandbox_events VALUES(9,'key-846459ab300ac42af297a2d0224caca52f4f9410:SANDBOX_KILLED','SANDBOX_KILLED','ended','uid:0',NULL,1795635592352,'{"reason":"requested"}');
INSERT INTO sandbox_events VALUES(10,'key-903a0c29934b0b08bd289000d2336d7b369a363e:SANDBOX_CREATED','SANDBOX_CREATED','policy','uid:0',NULL,1795635592384,'{"expiresAt":null,"image":"host"}');
CREATE TABLE sandbox_snapshots (
    id TEXT PRIMARY KEY,
    owner_id TEXT NOT NULL,
    sandbox_id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    size_bytes INTEGER
);
INSERT INTO sandbox_snapshots VALUES('first','uid:0','held',1795635592477,20480);
CREATE TABLE sandbox_service (
    id TEXT PRIMARY KEY
);
INSERT INTO sandbox_service VALUES('01a21438b9c87549ae070847c031098e');
CREATE TABLE run_programs (
    hash TEXT PRIMARY KEY,
    sources TEXT NOT NULL
);
INSERT INTO run_programs VALUES('c682d1044bd97835c7efb0868b22288dd15b05855412e48af64bffbdfe612597','{"entry":"hello.tsx","files":{"hello.tsx":"/** @jsxImportSource smithers-orchestrator */\n// The smallest workflow: a value that is known, and a function that makes something of it.\n//   stockade up examples/workflows/hello.tsx --input ''{\"name\": \"Ada\"}''\nimport { createSmithers } from \"smithers-orchestrator\";\n\nconst { Workflow, Task, smithers, outputs } = createSmithers({\n  input: { type: \"object\", properties: { name: { type: \"string\" } } },\n  greeting: {\n    type: \"object\",\n    required: [\"text\"],\n    properties: { text: { type: \"string\" } },\n  },\n  output: {\n    type: \"object\",\n    required: [\"text\", \"letters\"],\n    properties: { text: { type: \"string\" }, letters: { type: \"integer\" } },\n  },\n});\n\nexport default smithers((ctx) => (\n  <Workflow name=\"hello\">\n    <Task id=\"greet\" output={outputs.greeting}>\n      {{ text: `Hello, ${ctx.input.name ?? \"world\"}!` }}\n    </Task>\n    <Task id=\"count\" output={outputs.output} deps={{ greet: outputs.greeting }}>\n      {({ greet }) => ({ text: greet.text, letters: greet.text.length })}\n    </Task>\n  </Workflow>\n));\n"},"links":[]}');
INSERT INTO run_programs VALUES('8bf7be6f6cecf04dd03e5a8059c834190dc37bd9b796f89852ec341a15eb54a0','{"entry":"approval.tsx","files":{"approval.tsx":"/** @jsxImportSource smithers-orchestrator */\n// Waits until somebody decides: `stockade approve RUN deploy`, or `deny`.\nimport { createSmithers } from \"smithers-orchestrator\";\n\nconst { Workflow, Task, Approval, smithers, outputs } = createSmithers({\n  decision: { type: \"object\", required: [\"approved\"], properties: { approved: { type: \"boolean\" } } },\n  output: { type: \"object\", required: [\"deployed\"], properties: { deployed: { type: \"boolean\" } } },\n});\n\nexport default smithers((ctx) => (\n  <Workflow name=\"approval\">\n    <Approval\n      id=\"deploy\"\n      output={outputs.decision}\n      request={{ title: \"Deploy?\", summary: \"Version 2 passed its tests.\" }}\n      onDeny=\"continue\"\n    />\n    <Task id=\"result\" output={outputs.output}>\n      {() => ({ deployed: ctx.output(outputs.decision, { nodeId: \"deploy\" }).approved })}\n    </Task>\n  </Workflow>\n));\n"},"links":[]}');
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    owner_id TEXT NOT NULL,
    parent_id TEXT,
    generation INTEGER NOT NULL,
    name TEXT NOT NULL,
    file TEXT NOT NULL,
    program TEXT NOT NULL,
    status TEXT NOT NULL,
    input TEXT NOT NULL,
    environment TEXT NOT NULL,
    max_concurrency INTEGER,
    idempotency_key TEXT,
    output TEXT,
    error TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    finished_at INTEGER
);
INSERT INTO runs VALUES('hello-1','uid:0',NULL,1,'hello','/srv/project/hello.tsx','c682d1044bd97835c7efb0868b22288dd15b05855412e48af64bffbdfe612597','finished','{}','{}',NULL,'01a21438bd4b77d6b1462fe16559f4ea','{"letters":13,"text":"Hello, world!"}',NULL,1795635592621,1795635592642,1795635592642);
INSERT INTO runs VALUES('approval-1','uid:0',NULL,1,'approval','/srv/project/approval.tsx','8bf7be6f6cecf04dd03e5a8059c834190dc37bd9b796f89852ec341a15eb54a0','waiting','{}','{}',NULL,'01a21438bdcf727d99a84b7ad7c240f6',NULL,NULL,1795635592712,1795635592719,NULL);
CREATE TABLE run_tasks (
    run_id TEXT NOT NULL,
    node_id TEXT NOT NULL,
    iteration INTEGER NOT NULL,
    kind TEXT NOT NULL,
    label TEXT NOT NULL,
    status TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    executions INTEGER NOT NULL,
    place INTEGER NOT NULL,
    output_table TEXT,
    output TEXT,
    error TEXT,
    meta TEXT NOT NULL,
    wake_at INTEGER,
    started_at INTEGER NOT NULL,
    finished_at INTEGER, bundle TEXT,
    PRIMARY KEY (run_id, node_id, iteration)
) WITHOUT ROWID;
INSERT INTO run_tasks VALUES('approval-1','deploy',0,'approval','deploy','waiting-approval',1,1,0,'decision',NULL,NULL,'{}',NULL,1795635592719,NULL,NULL);
INSERT INTO run_tasks VALUES('hello-1','count',0,'compute','count','finished',1,1,1,'output','{"letters":13,"text":"Hello, world!"}',NULL,'{}',NULL,1795635592635,1795635592642,NULL);
INSERT INTO run_tasks VALUES('hello-1','greet',0,'static','greet','finished',1,1,0,'greeting','{"text":"Hello, world!"}',NULL,'{}',NULL,1795635592635,1795635592635,NULL);
CREATE TABLE run_loops (
    run_id TEXT NOT NULL,
    loop_id TEXT NOT NULL,
    iteration INTEGER NOT NULL,
    has_ended INTEGER NOT NULL,
    PRIMARY KEY (run_id, loop_id)
) WITHOUT ROWID;
CREATE TABLE run_events (
    run_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    event TEXT NOT NULL,
    PRIMARY KEY (run_id, seq)
) WITHOUT ROWID;
INSERT INTO run_events VALUES('approval-1',0,1795635592712,'{"isolation":{"landlock":7,"namespaces":true},"name":"approval","runId":"approval-1","timestampMs":1795635592712,"type":"RunStarted"}');
INSERT INTO run_events VALUES('approval-1',1,1795635592719,'{"attempt":1,"iteration":0,"label":"deploy","nodeId":"deploy","runId":"approval-1","status":"waiting-approval","summary":"Version 2 passed its tests.","timestampMs":1795635592719,"title":"Deploy?","type":"NodeWaiting"}');
INSERT INTO run_events VALUES('approval-1',2,1795635592719,'{"runId":"approval-1","timestampMs":1795635592719,"type":"RunWaiting"}');
INSERT INTO run_events VALUES('hello-1',0,1795635592621,'{"isolation":{"landlock":7,"namespaces":true},"name":"hello","runId":"hello-1","timestampMs":1795635592621,"type":"RunStarted"}');
INSERT INTO run_events VALUES('hello-1',1,1795635592635,'{"attempt":1,"iteration":0,"label":"greet","nodeId":"greet","runId":"hello-1","status":"running","timestampMs":1795635592635,"type":"NodeStarted"}');
INSERT INTO run_events VALUES('hello-1',2,1795635592635,'{"attempt":1,"iteration":0,"nodeId":"greet","runId":"hello-1","timestampMs":1795635592635,"type":"NodeFinished"}');
INSERT INTO run_events VALUES('hello-1',3,1795635592635,'{"attempt":1,"iteration":0,"label":"count","nodeId":"count","runId":"hello-1","status":"running","timestampMs":1795635592635,"type":"NodeStarted"}');
INSERT INTO run_events VALUES('hello-1',4,1795635592642,'{"attempt":1,"iteration":0,"nodeId":"count","runId":"hello-1","timestampMs":1795635592642,"type":"NodeFinished"}');
INSERT INTO run_events VALUES('hello-1',5,1795635592642,'{"runId":"hello-1","timestampMs":1795635592642,"type":"RunFinished"}');
CREATE TABLE run_answers (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    correlation TEXT,
    payload TEXT NOT NULL,
    at INTEGER NOT NULL,
    used_by TEXT
);
CREATE TABLE run_cache (
    owner_id TEXT NOT NULL,
    key TEXT NOT NULL,
    output TEXT NOT NULL,
    run_id TEXT NOT NULL,
    node_id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    PRIMARY KEY (owner_id, key)
) WITHOUT ROWID;
CREATE TABLE run_sandboxes (
    run_id TEXT NOT NULL,
    sandbox_id TEXT NOT NULL,
    iteration INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    runtime TEXT NOT NULL,
    remote_run_id TEXT,
    workspace_id TEXT,
    container_id TEXT,
    config_json TEXT NOT NULL,
    status TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    heartbeat_at_ms INTEGER,
    shipped_at_ms INTEGER,
    completed_at_ms INTEGER,
    bundle_path TEXT,
    name TEXT NOT NULL,
    base_ref TEXT,
    review TEXT,
    decision TEXT, parent TEXT, depth INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (run_id, sandbox_id, iteration)
) WITHOUT ROWID;
DELETE FROM sqlite_sequence;
INSERT INTO sqlite_sequence VALUES('sandbox_events',10);
CREATE INDEX workflow_status_in_flight ON workflow_status (queue_name, status, priority, created_at)
    WHERE queue_name IS NOT NULL AND completed_at IS NULL;
CREATE INDEX workflow_status_started ON workflow_status (queue_name, started_at_epoch_ms)
    WHERE queue_name IS NOT NULL AND started_at_epoch_ms IS NOT NULL;
CREATE INDEX workflow_status_pending ON workflow_status (executor_id) WHERE status = 'PENDING';
CREATE UNIQUE INDEX workflow_status_deduplication ON workflow_status (queue_name, deduplication_id)
    WHERE deduplication_id IS NOT NULL;
CREATE INDEX workflow_status_parent ON workflow_status (parent_workflow_id)
    WHERE parent_workflow_id IS NOT NULL;
CREATE INDEX workflow_status_owner ON workflow_status (authenticated_user, created_at)
    WHERE authenticated_user IS NOT NULL;
CREATE INDEX workflow_status_completed ON workflow_status (completed_at)
    WHERE completed_at IS NOT NULL;
CREATE INDEX workflow_status_created ON workflow_status (created_at);
CREATE INDEX notifications_waiting ON notifications (destination_uuid, topic, number);
CREATE INDEX sandbox_instances_owner_id ON sandbox_instances (owner_id);
CREATE INDEX sandbox_instances_execution_id ON sandbox_instances (execution_id);
CREATE INDEX sandbox_instances_status ON sandbox_instances (status);
CREATE INDEX sandbox_events_sandbox_id ON sandbox_events (sandbox_id, seq);
CREATE INDEX sandbox_events_owner_id ON sandbox_events (owner_id, seq);
CREATE INDEX sandbox_snapshots_owner_id ON sandbox_snapshots (owner_id);
CREATE INDEX sandbox_instances_owner_age ON sandbox_instances (owner_id, created_at, id);
CREATE INDEX sandbox_instances_owner_alive ON sandbox_instances (owner_id, created_at, id)
    WHERE status <> 'terminated';
CREATE INDEX runs_owner_id ON runs (owner_id, created_at);
CREATE INDEX run_answers_run_id ON run_answers (run_id, seq);
CREATE INDEX run_cache_expires_at ON run_cache (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX run_tasks_wake_at ON run_tasks (run_id, wake_at)
    WHERE wake_at IS NOT NULL AND finished_at IS NULL;
CREATE INDEX run_sandboxes_parent ON run_sandboxes (parent) WHERE parent IS NOT NULL;
COMMIT;
