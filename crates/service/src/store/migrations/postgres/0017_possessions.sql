-- Which server has a volume, a workspace or a bundle among the files of its data directory.
CREATE TABLE sandbox_possessions (
    owner_id TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    host TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (owner_id, kind, name)
);
CREATE INDEX sandbox_possessions_host ON sandbox_possessions (host, owner_id, kind);
-- What was removed while its server was given up: that one removes the files when it is back.
CREATE TABLE sandbox_removals (
    host TEXT COLLATE "C" NOT NULL,
    owner_id TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (host, owner_id, kind, name)
);
