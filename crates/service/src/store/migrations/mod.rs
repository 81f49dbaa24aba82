//! The tables of the database: one numbered list of migrations for the whole product, one SQL file
//! each. It includes the tables of workflows, because there is one database and one order.
//!
//! A released number, name or text never changes: a database records the numbers and names that
//! were applied. A new migration has the next number, and a file below `sqlite` and `postgres` each.
//!
//! SQL that only one kind of database understands is allowed only here and in `store/dialects.rs`.
//! On PostgreSQL all texts have the collation `C`, so that both databases sort alike. Times are milliseconds since 1970; structured values are JSON.

use stockade_durable::Migration;

/// Every change of the tables so far, in order.
pub const MIGRATIONS: &[Migration] = &[
    Migration {
        number: 1,
        name: "sandboxes, their events and snapshots",
        sql: include_str!("sqlite/0001_sandboxes.sql"),
        postgres: include_str!("postgres/0001_sandboxes.sql"),
    },
    Migration {
        number: 2,
        name: "lists of sandboxes by their age",
        sql: include_str!("sqlite/0002_sandboxes_by_age.sql"),
        postgres: include_str!("postgres/0002_sandboxes_by_age.sql"),
    },
    Migration {
        number: 3,
        name: "runs of workflows, their tasks and events",
        sql: include_str!("sqlite/0003_runs.sql"),
        postgres: include_str!("postgres/0003_runs.sql"),
    },
    Migration {
        number: 4,
        name: "what tasks gave, for other runs",
        sql: include_str!("sqlite/0004_run_cache.sql"),
        postgres: include_str!("postgres/0004_run_cache.sql"),
    },
    Migration {
        number: 5,
        name: "what tasks changed in their projects, and when they go on",
        sql: include_str!("sqlite/0005_run_bundles.sql"),
        postgres: include_str!("postgres/0005_run_bundles.sql"),
    },
    Migration {
        number: 6,
        name: "sandboxes of runs",
        sql: include_str!("sqlite/0006_run_sandboxes.sql"),
        postgres: include_str!("postgres/0006_run_sandboxes.sql"),
    },
    Migration {
        number: 7,
        name: "sandboxes in sandboxes",
        sql: include_str!("sqlite/0007_run_sandbox_parents.sql"),
        postgres: include_str!("postgres/0007_run_sandbox_parents.sql"),
    },
    Migration {
        number: 8,
        name: "stopped sandboxes with their bundles, and when their files are removed",
        sql: include_str!("sqlite/0008_stopped_sandboxes.sql"),
        postgres: include_str!("postgres/0008_stopped_sandboxes.sql"),
    },
    Migration {
        number: 9,
        name: "sandboxes with the id of an ended one",
        sql: include_str!("sqlite/0009_ids_of_ended_sandboxes.sql"),
        postgres: include_str!("postgres/0009_ids_of_ended_sandboxes.sql"),
    },
    Migration {
        number: 10,
        name: "API keys, and secrets of the server",
        sql: include_str!("sqlite/0010_api_keys.sql"),
        postgres: include_str!("postgres/0010_api_keys.sql"),
    },
    Migration {
        number: 11,
        name: "names of snapshots",
        sql: include_str!("sqlite/0011_snapshot_names.sql"),
        postgres: include_str!("postgres/0011_snapshot_names.sql"),
    },
    Migration {
        number: 12,
        name: "codes and sessions of browsers",
        sql: include_str!("sqlite/0012_browsers.sql"),
        postgres: include_str!("postgres/0012_browsers.sql"),
    },
    Migration {
        number: 13,
        name: "audit records of operations that have started",
        sql: include_str!("sqlite/0013_audit_records.sql"),
        postgres: include_str!("postgres/0013_audit_records.sql"),
    },
    Migration {
        number: 14,
        name: "secrets of owners, sealed",
        sql: include_str!("sqlite/0014_secrets.sql"),
        postgres: include_str!("postgres/0014_secrets.sql"),
    },
    Migration {
        number: 15,
        name: "answers to requests about secrets",
        sql: include_str!("sqlite/0015_secret_requests.sql"),
        postgres: include_str!("postgres/0015_secret_requests.sql"),
    },
    Migration {
        number: 16,
        name: "the servers that hold sandboxes",
        sql: include_str!("sqlite/0016_hosts.sql"),
        postgres: include_str!("postgres/0016_hosts.sql"),
    },
    Migration {
        number: 17,
        name: "the servers that have volumes, workspaces and bundles",
        sql: include_str!("sqlite/0017_possessions.sql"),
        postgres: include_str!("postgres/0017_possessions.sql"),
    },
];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn each_file_is_in_the_list_under_its_number() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/migrations");
        for kind in ["sqlite", "postgres"] {
            let files = std::fs::read_dir(folder.join(kind)).unwrap();
            let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
            files.sort();
            assert_eq!(files.len(), MIGRATIONS.len(), "{kind}");
            for ((number, migration), file) in (1..).zip(MIGRATIONS).zip(files) {
                assert_eq!(migration.number, number, "{}", migration.name);
                let name = file.file_name().unwrap().to_str().unwrap();
                assert!(name.starts_with(&format!("{number:04}_")), "{name}");
                let text = if kind == "sqlite" { migration.sql } else { migration.postgres };
                assert_eq!(text, std::fs::read_to_string(&file).unwrap(), "{kind}/{name}");
            }
        }
    }
}
