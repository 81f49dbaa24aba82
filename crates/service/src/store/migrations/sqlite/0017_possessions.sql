-- Which server has a volume, a workspace or a bundle among the files of its data directory.
CREATE TABLE sandbox_possessions (
    owner_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    host TEXT NOT NULL,
    PRIMARY KEY (owner_id, kind, name)
);
CREATE INDEX sandbox_possessions_host ON sandbox_possessions (host, owner_id, kind);
-- What was removed while its server was given up: that one removes the files when it is back.
CREATE TABLE sandbox_removals (
    host TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (host, owner_id, kind, name)
);
