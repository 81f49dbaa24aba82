//! Compares what workers logged with the content of the database. Each check reads the lines that
//! were added since the last one, while no worker runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use crate::Failure;
use crate::log::{self, Line};

/// The result of the audit.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    pub(crate) faults: Vec<String>,
    pub(crate) workflows: u64,
    pub(crate) steps: u64,
    /// Steps that ran again and had not been recorded before.
    pub(crate) repeated: u64,
    /// Steps that were recorded at the last check.
    recorded: BTreeSet<String>,
    effects: BTreeMap<String, u64>,
    started: BTreeSet<String>,
    read: usize,
}

impl Audit {
    /// Adds the result of another audit.
    pub(crate) fn add(&mut self, other: Self) {
        self.faults.extend(other.faults);
        self.workflows += other.workflows;
        self.steps += other.steps;
        self.repeated += other.repeated;
    }

    /// Checks after each kill: no promised record may be missing, and no step that was recorded at
    /// the last check may have run since.
    pub(crate) fn update(&mut self, dir: &Path) -> Result<(), Failure> {
        let (lines, read) = log::read(dir, self.read)?;
        self.read = read;
        // Killed before the database was created.
        let Some(database) = open(dir)? else { return Ok(()) };
        let sql = "SELECT workflow_uuid || ':' || function_id FROM operation_outputs";
        let now: BTreeSet<String> = texts(&database, sql)?.into_iter().collect();
        let known: BTreeSet<String> =
            texts(&database, "SELECT workflow_uuid FROM workflow_status")?.into_iter().collect();
        for line in lines {
            match line {
                Line::Effect(key) => {
                    if self.recorded.contains(&key) {
                        self.faults.push(format!("{key} ran again behind its record"));
                    }
                    *self.effects.entry(key).or_default() += 1;
                }
                Line::Recorded(key) if !now.contains(&key) => {
                    self.faults.push(format!("{key} was promised and is not on record"));
                }
                Line::Started(id) if !known.contains(&id) => {
                    self.faults.push(format!("{id} was promised and is not known"));
                }
                Line::Started(id) => drop(self.started.insert(id)),
                Line::Recorded(_) => {}
            }
        }
        let lost = self.recorded.difference(&now).map(|key| format!("{key} is lost"));
        self.faults.extend(lost.collect::<Vec<_>>());
        self.recorded = now;
        Ok(())
    }

    /// Checks at the end: every workflow succeeded and left all its results, each once.
    pub(crate) fn finish(&mut self, dir: &Path) -> Result<(), Failure> {
        let Some(database) = open(dir)? else { return Ok(()) };
        let check = texts(&database, "PRAGMA integrity_check")?;
        if check != ["ok"] {
            self.faults.push(format!("integrity: {check:?}"));
        }
        for (what, sql) in FAULTS {
            let found = texts(&database, sql)?;
            self.faults.extend(found.into_iter().map(|one| format!("{one}: {what}")));
        }
        let ended = texts(&database, "SELECT workflow_uuid FROM workflow_status")?;
        self.workflows = ended.len() as u64;
        let ended: BTreeSet<String> = ended.into_iter().collect();
        let lost = self.started.difference(&ended).map(|id| format!("{id} is lost"));
        self.faults.extend(lost.collect::<Vec<_>>());
        let effects = texts(
            &database,
            "SELECT workflow_uuid || ':' || function_id FROM operation_outputs \
             WHERE function_name IN ('effect', 'row')",
        )?;
        self.steps = effects.len() as u64;
        let undone = effects.iter().filter(|key| !self.effects.contains_key(*key));
        self.faults.extend(undone.map(|key| format!("{key} is on record and never ran")));
        self.repeated = self.effects.values().filter(|count| **count > 1).count() as u64;
        Ok(())
    }
}

/// Queries that must return nothing at the end: each row breaks the rule of its query.
const FAULTS: &[(&str, &str)] = &[
    (
        "did not end well",
        "SELECT workflow_uuid || ' ' || status FROM workflow_status WHERE status <> 'SUCCESS'",
    ),
    (
        "has not the steps that it should",
        "SELECT workflow_uuid FROM workflow_status AS w WHERE (SELECT COUNT(*) FROM \
         operation_outputs AS o WHERE o.workflow_uuid = w.workflow_uuid) <> iif(name = 'child', 2, 8)",
    ),
    (
        "has not its two children",
        "SELECT workflow_uuid FROM workflow_status AS w WHERE name = 'parent' AND (SELECT COUNT(*) \
         FROM workflow_status WHERE parent_workflow_id = w.workflow_uuid) <> 2",
    ),
    (
        "did not write its stream once and in order",
        "SELECT workflow_uuid FROM workflow_status AS w WHERE name = 'parent' AND (SELECT \
         group_concat(\"offset\" || value) FROM (SELECT \"offset\", value FROM streams AS s WHERE \
         s.workflow_uuid = w.workflow_uuid ORDER BY \"offset\")) IS NOT '0\"before\",1\"after\"'",
    ),
    (
        "left no row at its end",
        "SELECT workflow_uuid FROM workflow_status WHERE workflow_uuid || ' end' NOT IN deeds",
    ),
    (
        "left no row of its step",
        "SELECT workflow_uuid FROM workflow_status WHERE name = 'parent' \
         AND workflow_uuid || ' row' NOT IN deeds",
    ),
];

fn open(dir: &Path) -> Result<Option<Connection>, Failure> {
    let path = dir.join("durable.db");
    if !path.exists() {
        return Ok(None);
    }
    let database = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // Killed before the application's own tables were created.
    Ok(Some(database).filter(|database| database.table_exists(None, "deeds").unwrap_or(false)))
}

fn texts(database: &Connection, sql: &str) -> Result<Vec<String>, Failure> {
    let mut statement = database.prepare(sql)?;
    let rows = statement.query_map([], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
