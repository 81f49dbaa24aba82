//! Measured costs: the numbers of a file that `cargo xtask bench durable --postgres --json FILE` has written.

use anyhow::{Context as _, ensure};
use serde_json::Value;

/// The file that is in the repository, written on the machine that `SPECIFICATION.md` names.
const KEPT: &str = include_str!("../../../benches/postgres/costs.json");

/// What the parts of a server's work cost the database: its processor time, in seconds for each.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Costs {
    /// The renewal of a lease, with the search for workflows of dead servers.
    pub(crate) lease: f64,
    /// A look into the queue that finds nothing.
    pub(crate) queue: f64,
    /// A read of one row.
    pub(crate) read: f64,
    /// A workflow with one step, from its start to its end.
    pub(crate) workflow: f64,
    /// The delivery of a notification to one server.
    pub(crate) notification: f64,
    /// How many commits one connection makes in a second, one after the other.
    pub(crate) commits_in_turn: f64,
}

impl Costs {
    /// Those in the repository.
    pub(crate) fn kept() -> anyhow::Result<Self> {
        Self::read(KEPT).context("read benches/postgres/costs.json")
    }

    /// Those of a file.
    pub(crate) fn read(text: &str) -> anyhow::Result<Self> {
        let file: Value = serde_json::from_str(text)?;
        ensure!(
            file["benchmark"] == "durable-postgres",
            "it was not written by `cargo xtask bench durable --postgres`"
        );
        let rows = |list: &str, name: &str, member: &str| {
            let rows = file[list].as_array().map(Vec::as_slice).unwrap_or_default();
            let row = rows.iter().find(|row| row["name"] == name);
            let value = row.and_then(|row| row[member].as_f64());
            value.with_context(|| format!("it has no {member} of `{name}`"))
        };
        let seconds = |name| rows("costs", name, "microseconds").map(|it| it / 1e6);
        Ok(Self {
            lease: seconds("lease")?,
            queue: seconds("queue")?,
            read: seconds("read")?,
            workflow: seconds("workflow")?,
            notification: seconds("notification")?,
            commits_in_turn: rows("rows", "plain transactions", "median")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kept_costs_are_costs() {
        let costs = Costs::kept().unwrap();
        for cost in [costs.lease, costs.queue, costs.read, costs.workflow] {
            assert!(cost > 1e-6 && cost < 0.1, "{costs:?}");
        }
        assert!(costs.notification < costs.workflow && costs.commits_in_turn > 10.0, "{costs:?}");
    }

    #[test]
    fn a_file_of_another_benchmark_is_refused() {
        assert!(Costs::read(r#"{"benchmark": "durable", "rows": []}"#).is_err());
        let missing = Costs::read(r#"{"benchmark": "durable-postgres", "rows": []}"#).unwrap_err();
        assert!(missing.to_string().contains("lease"), "{missing}");
    }
}
