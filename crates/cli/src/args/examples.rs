//! An example for the help of each command, and the groups in which the help lists them. A test parses
//! every example.

pub const IMAGE: &str = "\
Examples:
  stockade image pull debian:12
  stockade image ls";
pub const IMAGE_PULL: &str = "\
Examples:
  stockade image pull node:20-alpine
  stockade image pull --platform linux/arm64 ghcr.io/owner/name:1.2";
pub const IMAGE_LS: &str = "\
Examples:
  stockade image ls --digests
  stockade image ls -q";
pub const IMAGE_RM: &str = "\
Example:
  stockade image rm node:20-alpine";
pub const IMAGE_INSPECT: &str = "\
Example:
  stockade image inspect node:20-alpine";
pub const IMAGE_IMPORT: &str = "\
Examples:
  stockade image import docker-archive:image.tar
  stockade image import oci:build/image team/name:1.2
  stockade image import rootfs.tar team/rootfs:latest";
pub const IMAGE_EXPORT: &str = "\
Examples:
  stockade image export debian:12 oci-archive:debian.tar
  stockade image export debian:12 -o debian.tar";
pub const IMAGE_PRUNE: &str = "\
Examples:
  stockade image prune
  stockade image prune --all";
pub const RUN: &str = "\
Examples:
  stockade run -- ./agent.sh
  stockade run -it -- bash
  stockade run --timeout 10m -e CI=1 --allow registry.npmjs.org -- npm test
  stockade run -v data:/data --cache pip -- ./train.sh";
pub const BUNDLES: &str = "\
Example:
  stockade bundles --label team=blue";
pub const DIFF: &str = "\
Examples:
  stockade diff latest
  stockade diff latest --stat
  stockade diff latest src/main.rs";
pub const APPLY: &str = "\
Examples:
  stockade apply latest
  stockade apply latest src/main.rs
  stockade apply latest --merge
  stockade apply latest --branch agent-fix";
pub const REJECT: &str = "\
Example:
  stockade reject 30e71e1cf474";
pub const UNDO: &str = "\
Example:
  stockade undo";
pub const HISTORY: &str = "\
Examples:
  stockade history
  stockade history 30e71e1cf474";
pub const TRUST: &str = "\
Examples:
  stockade trust
  stockade trust --accept-secret API_TOKEN@api.example.com";
pub const CREATE: &str = "\
Examples:
  stockade create --id demo --workspace .
  stockade create --id demo --ttl 7d -m 2g -v ~/data:/data:ro";
pub const EXEC: &str = "\
Examples:
  stockade exec demo -- make test
  stockade exec -it -w /tmp demo -- bash
  stockade exec -d -e PORT=8000 demo -- python3 -m http.server";
pub const SHELL: &str = "\
Example:
  stockade shell demo";
pub const LS: &str = "\
Example:
  stockade ls --label team=blue";
pub const SHOW: &str = "\
Example:
  stockade show demo";
pub const CP: &str = "\
Examples:
  stockade cp src demo:/tmp/src
  stockade cp demo:/tmp/result.txt .";
pub const SYNC: &str = "\
Examples:
  stockade sync src demo:/tmp/src
  stockade sync --mirror --commit -m \"Results\" demo:/tmp/out out
  stockade sync --two-way workspace:notes demo:/tmp/notes

A file that both sides have changed since the last time is a conflict and never overwritten, unless
--conflict says which side wins.";
pub const WORKSPACE: &str = "\
Examples:
  stockade workspace create notes
  stockade workspace write notes plan.md plan.md
  stockade workspace commit notes -m \"First plan\"";
pub const WORKSPACE_CREATE: &str = "\
Example:
  stockade workspace create notes";
pub const WORKSPACE_LS: &str = "\
Example:
  stockade workspace ls";
pub const WORKSPACE_RM: &str = "\
Example:
  stockade workspace rm notes";
pub const WORKSPACE_FILES: &str = "\
Example:
  stockade workspace files notes";
pub const WORKSPACE_CAT: &str = "\
Example:
  stockade workspace cat notes plan.md";
pub const WORKSPACE_WRITE: &str = "\
Example:
  stockade workspace write notes plan.md plan.md";
pub const WORKSPACE_MKDIR: &str = "\
Example:
  stockade workspace mkdir notes drafts";
pub const WORKSPACE_DELETE: &str = "\
Example:
  stockade workspace delete notes plan.md";
pub const WORKSPACE_DISCARD: &str = "\
Example:
  stockade workspace discard notes";
pub const WORKSPACE_COMMIT: &str = "\
Example:
  stockade workspace commit notes -m \"First plan\"";
pub const WORKSPACE_LOG: &str = "\
Example:
  stockade workspace log notes";
pub const RM: &str = "\
Example:
  stockade rm demo:/tmp/src";
pub const PS: &str = "\
Examples:
  stockade ps
  stockade ps demo --all";
pub const ATTACH: &str = "\
Example:
  stockade attach demo/3f9c";
pub const WAIT: &str = "\
Example:
  stockade wait demo/3f9c --timeout 5m";
pub const FORWARD: &str = "\
Examples:
  stockade forward demo 8080:3000
  stockade forward demo 0:3000 --json";
pub const OPEN: &str = "\
Examples:
  stockade open demo 3000
  stockade open demo 3000 --path '/docs?page=1' --json

The link works once, within a minute. It needs a server that listens: stockade serve";
pub const LOGS: &str = "\
Example:
  stockade logs -f key-0f8e";
pub const EVENTS: &str = "\
Examples:
  stockade events demo
  stockade events --follow --type sandbox";
pub const START: &str = "\
Example:
  stockade start demo";
pub const STOP: &str = "\
Example:
  stockade stop demo";
pub const PAUSE: &str = "\
Example:
  stockade pause demo";
pub const RESUME: &str = "\
Example:
  stockade resume demo";
pub const RENEW: &str = "\
Example:
  stockade renew demo 2d";
pub const UPDATE: &str = "\
Example:
  stockade update demo --memory 2G --cpus 1.5";
pub const ALLOW: &str = "\
Example:
  stockade allow demo api.example.com:443";
pub const REFUSE: &str = "\
Example:
  stockade refuse demo api.example.com:443";
pub const SECRET: &str = "\
Example:
  stockade secret set demo GITHUB_TOKEN@api.github.com";
pub const SECRET_SET: &str = SECRET;
pub const SECRET_RM: &str = "\
Example:
  stockade secret rm demo GITHUB_TOKEN";
pub const SNAPSHOT: &str = "\
Example:
  stockade snapshot demo --as clean";
pub const COLLECT: &str = "\
Example:
  stockade collect demo --exclude target";
pub const SNAPSHOTS: &str = "\
Example:
  stockade snapshots";
pub const RESTORE: &str = "\
Example:
  stockade restore clean --id again";
pub const KILL: &str = "\
Example:
  stockade kill demo again";
pub const PRUNE: &str = "\
Example:
  stockade prune";
pub const BASE: &str = "\
Example:
  stockade base
  stockade base --renew";
pub const TOOL: &str = "\
Example:
  stockade tool ls";
pub const TOOL_LS: &str = TOOL;
pub const TOOL_RUN: &str = "\
Example:
  stockade tool run demo read_file '{\"path\": \"/etc/hostname\"}'";
pub const SNIPPET: &str = "\
Example:
  stockade snippet run counter.ts";
pub const SNIPPET_RUN: &str = "\
Example:
  stockade snippet run counter.ts --package zod --libraries node_modules";
pub const SNIPPET_CHECK: &str = "\
Example:
  stockade snippet check examples/snippets";
pub const SNIPPET_GATE: &str = "\
Example:
  stockade snippet gate docs --junit report.xml

A code block is an example if its language is ts, typescript, mts, cts, tsx, js, javascript, mjs, cjs or jsx. \
Blocks with `file=PATH` behind the language are files of one example, which runs at its src/main.ts. \
`skip` behind the language, or the line <!-- stockade: skip --> before the block, skips it.";
pub const MCP: &str = "\
Examples:
  stockade mcp
  stockade mcp --workspace .
  stockade mcp wrap -- npx -y @modelcontextprotocol/server-everything

The tools are for a host program of agents, which starts this command: see docs/mcp.md.";
pub const MCP_WRAP: &str = "\
Examples:
  stockade mcp wrap -- ./server.py
  stockade mcp wrap --allow api.example.com --secret API_KEY@api.example.com -- ./server.py
  stockade mcp wrap --mount ./notes:/notes:ro -- ./server.py /notes

Standard input, output and error are the server's. It has no network access and sees no file of \
yours, unless flags allow that. It ends when its input ends. The exit code is the server's, or 125 if \
the sandbox could not be started.";
pub const INIT: &str = "\
Example:
  stockade init flows";
pub const UP: &str = "\
Example:
  stockade up flows/workflow.tsx --input '{\"topic\": \"tests\"}'

With `--server URL` or STOCKADE_SERVER the run is on this machine, and its sandboxes that name no \
runtime are on that server, each with a copy of the project. The API key is stored with no run: after \
the process that executes it has ended, `stockade resume` gives it again.";
pub const RUNS: &str = "\
Example:
  stockade runs --limit 10";
pub const METRICS: &str = "\
Example:
  stockade metrics";
pub const INSPECT: &str = "\
Example:
  stockade inspect latest";
pub const GRAPH: &str = "\
Example:
  stockade graph flows/workflow.tsx";
pub const APPROVE: &str = "\
Example:
  stockade approve latest review --note 'looks good'";
pub const DENY: &str = "\
Example:
  stockade deny latest review --note 'needs a test'";
pub const SIGNAL: &str = "\
Example:
  stockade signal latest deployed --payload '{\"version\": 3}'";
pub const VOLUME: &str = "\
Examples:
  stockade volume create data
  stockade volume ls
  stockade volume rm data";
pub const VOLUME_CREATE: &str = "\
Example:
  stockade volume create data --label team=blue";
pub const VOLUME_LS: &str = "\
Example:
  stockade volume ls --all";
pub const VOLUME_RM: &str = "\
Example:
  stockade volume rm data";
pub const VOLUME_INSPECT: &str = "\
Example:
  stockade volume inspect data";
pub const VOLUME_PRUNE: &str = "\
Example:
  stockade volume prune --all --force";
pub const CACHE: &str = "\
Examples:
  stockade cache ls
  stockade cache rm npm";
pub const CACHE_LS: &str = "\
Example:
  stockade cache ls --all";
pub const CACHE_RM: &str = "\
Example:
  stockade cache rm npm";
pub const CACHE_PRUNE: &str = "\
Example:
  stockade cache prune --force";
pub const CANCEL: &str = "\
Example:
  stockade cancel latest";
/// Includes the environment variables of a server, which also apply to one that is started on demand.
pub const SERVE: &str = "\
Examples:
  stockade serve
  stockade serve --listen 127.0.0.1:9000
  stockade serve --listen 0.0.0.0:8443 --tls-cert cert.pem --tls-key key.pem

Without an API key only processes of this user on this host are served. With one,
each request needs a key: stockade keys create

Each option is also an environment variable, as STOCKADE_TLS_CERT for --tls-cert, and
a member of the configuration file, as tls-cert. A flag precedes a variable, and that
the file. STOCKADE_CONFIG names the file.

Environment variables, also for a server that starts on demand:
  STOCKADE_SERVER_IDLE_SECONDS  after how many idle seconds a server that was
                                started on demand exits [default: 60]
  STOCKADE_MAX_SANDBOXES        maximum number of sandboxes [default: 1000]
  STOCKADE_MAX_SNAPSHOTS        maximum number of snapshots [default: 1000]
  STOCKADE_HOST_PATHS           directories of this host that <Sandbox volumes>
                                and API keys may mount, separated by colons
                                [default: all for the former, if no other host
                                reaches the server; none for API keys]
  STOCKADE_REGISTRIES           registries from which API keys may cause
                                downloads, separated by commas [default: none]
  STOCKADE_POOL                 how many pre-started sandboxes are kept ready
                                after the first request, at most 512
                                [default: 64]";
pub const KEYS: &str = "\
Examples:
  stockade keys create --name ci --expires 30d
  stockade keys list
  stockade keys revoke key-0123456789ab";
pub const KEYS_CREATE: &str = "\
Examples:
  stockade keys create
  stockade keys create --owner team-a --expires 30d --json";
pub const KEYS_LIST: &str = "\
Example:
  stockade keys list --all";
pub const KEYS_REVOKE: &str = "\
Example:
  stockade keys revoke key-0123456789ab";
pub const POLICY: &str = "\
Examples:
  stockade policy check policy.toml
  stockade policy explain policy.toml https://api.example.com/v1/models
  stockade policy diff old.toml new.toml
  stockade run --policy package-registries -- npm install";
pub const POLICY_CHECK: &str = "\
Examples:
  stockade policy check policy.toml
  stockade policy check code-hosts-read-only --json";
pub const POLICY_EXPLAIN: &str = "\
Example:
  stockade policy explain policy.toml -X POST https://api.example.com/v1/models";
pub const POLICY_DIFF: &str = "\
Example:
  stockade policy diff old.toml new.toml";
pub const SECRETS: &str = "\
Examples:
  stockade secrets set github < token.txt
  stockade secrets list
  stockade exec --secret-env GITHUB_TOKEN=github ID -- gh repo list
  stockade secrets rotate github < new-token.txt
  stockade secrets remove github";
pub const SECRETS_SET: &str = "\
Examples:
  stockade secrets set github < token.txt
  stockade secrets set app --type xApp < app.json
  stockade secrets set old --type openai --envelope sealed.json --recipient-key key.txt";
pub const SECRETS_LIST: &str = "\
Example:
  stockade secrets list --json";
pub const SECRETS_ROTATE: &str = "\
Example:
  stockade secrets rotate github < new-token.txt";
pub const SECRETS_REMOVE: &str = "\
Example:
  stockade secrets remove github";
pub const SECRETS_WRITE: &str = "\
Examples:
  stockade secrets write github latest /run/secrets/token
  stockade secrets write app.secretKey latest /run/secrets/app/key --user 1000";
pub const AUDIT: &str = "\
Examples:
  stockade audit ls
  stockade audit verify
  stockade audit export --format ocsf";
pub const AUDIT_LS: &str = "\
Examples:
  stockade audit ls
  stockade audit ls --refused --json";
pub const AUDIT_VERIFY: &str = "\
Example:
  stockade audit verify --json";
pub const AUDIT_EXPORT: &str = "\
Examples:
  stockade audit export
  stockade audit export --format json";
pub const BACKUP: &str = "\
Examples:
  stockade backup /var/backups/stockade.backup
  stockade backup /var/backups
  stockade backup check /var/backups/stockade.backup
  STOCKADE_DATA_DIR=/srv/stockade stockade backup restore /var/backups/stockade.backup

A backup has the records, also those on PostgreSQL, and the files of bundles, volumes,
images, workspaces, snapshots and stopped sandboxes. Secrets stay sealed: the key of the
vault is not in it. No server may use the data directory meanwhile.";
pub const BACKUP_CHECK: &str = "\
Example:
  stockade backup check /var/backups/stockade.backup";
pub const BACKUP_RESTORE: &str = "\
Examples:
  stockade backup restore /var/backups/stockade.backup
  STOCKADE_DATA_DIR=/srv/stockade stockade backup restore /var/backups/stockade.backup

The records become a file in the data directory; for PostgreSQL: stockade migrate.";
pub const MIGRATE: &str = "\
Examples:
  stockade migrate --to postgres://stockade@127.0.0.1:5432/records
  STOCKADE_DATABASE_URL=postgres://user:password@db.example/records stockade migrate --to postgres
  STOCKADE_DATABASE_URL=postgres://user:password@db.example/records stockade migrate --to sqlite

All rows are copied, counted and compared by their hashes before the data directory uses
the other database. The old records are kept. No server may use the data directory
meanwhile.";
pub const LOGIN: &str = "\
Examples:
  stockade login https://box.example:8443
  stockade login https://box.example:8443 --key-file key.txt --tls-ca authority.pem

The key is stored in a file that only you can read. Later commands about sandboxes use
the server, until `stockade logout`; for this machine: `--server local`. `--server URL` and
STOCKADE_SERVER name another one. STOCKADE_API_KEY has a key for one command, without a
login.";
pub const LOGOUT: &str = "\
Examples:
  stockade logout https://box.example:8443
  stockade logout --all";
pub const COMPLETIONS: &str = "\
Example:
  stockade completions bash";
pub const MAN: &str = "\
Examples:
  stockade man run
  stockade man tool run";
pub const DOCTOR: &str = "\
Example:
  stockade doctor";
pub const DF: &str = "\
Example:
  stockade df";
pub const EXPLAIN: &str = "\
Examples:
  stockade explain BUNDLE_CONFLICT
  stockade explain";
pub const HELP: &str = "\
Example:
  stockade help run";

/// The groups of commands in the help of the whole program, each in the order of use.
pub const GROUPS: [(&str, &[&str]); 7] = [
    (
        "Run a command and review its changes",
        &["run", "bundles", "diff", "apply", "reject", "undo", "history", "trust"],
    ),
    (
        "Persistent sandboxes",
        &[
            "create",
            "exec",
            "shell",
            "cp",
            "sync",
            "rm",
            "ls",
            "show",
            "ps",
            "attach",
            "wait",
            "logs",
            "events",
            "forward",
            "open",
            "stop",
            "start",
            "pause",
            "resume",
            "renew",
            "update",
            "allow",
            "refuse",
            "secret",
            "snapshot",
            "snapshots",
            "restore",
            "collect",
            "kill",
            "prune",
        ],
    ),
    ("Images, volumes and workspaces", &["image", "volume", "cache", "workspace"]),
    (
        "Workflows",
        &[
            "init", "up", "runs", "inspect", "graph", "approve", "deny", "signal", "cancel",
            "metrics",
        ],
    ),
    ("Network and secrets", &["policy", "secrets"]),
    ("Agents and snippets", &["tool", "snippet", "mcp"]),
    (
        "Stockade itself",
        &[
            "doctor",
            "df",
            "base",
            "explain",
            "serve",
            "keys",
            "audit",
            "backup",
            "migrate",
            "login",
            "logout",
            "completions",
            "man",
            "help",
        ],
    ),
];

/// The environment variables in the help of the whole program.
pub const ENVIRONMENT: [(&str, &str); 4] = [
    (
        "STOCKADE_DATA_DIR",
        "Where bundles, sandboxes and the database are, an absolute path [default: \
         $XDG_DATA_HOME/stockade, else ~/.local/share/stockade]; see `stockade df`",
    ),
    (
        "STOCKADE_SERVER, STOCKADE_API_KEY",
        "The URL of a server, as with --server, and the API key for it; see `stockade help login`",
    ),
    (
        "XDG_CONFIG_HOME",
        "The directory that contains stockade/config.toml with the profiles of --profile, and the \
         API keys of `stockade login` [default: ~/.config]",
    ),
    ("PAGER, NO_COLOR", "The pager of `stockade diff`, and whether it prints colours"),
];
