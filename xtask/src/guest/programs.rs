//! The programs in the machine, as cargo builds them for the tests.

use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::Value;

use crate::programs::arguments;
use crate::workspace::{Workspace, output};

/// The path of each program.
#[derive(Debug)]
pub(super) struct Programs {
    /// The product's program that users start.
    pub(super) stockade: PathBuf,
    /// The product's program with the engines.
    pub(super) server: PathBuf,
    /// The machine's first process.
    pub(super) guest: PathBuf,
    /// The program that runs in sandboxes.
    pub(super) probe: PathBuf,
    /// The unit tests of the jail.
    pub(super) jail_tests: PathBuf,
}

impl Programs {
    /// Builds them for the whole workspace, like all tests, so that nothing is built twice.
    pub(super) fn build(workspace: &Workspace) -> anyhow::Result<Self> {
        let mut messages = String::new();
        let tests = vec!["test", "--quiet", "--workspace", "--lib", "--no-run"];
        for arguments in [arguments(&["guest", "probe"]), tests] {
            let mut cargo = workspace.cargo();
            cargo.args(arguments).args(["--message-format", "json-render-diagnostics"]);
            messages += &output(&mut cargo)?;
        }
        let find = |name, kind, test| {
            find(&messages, name, kind, test).with_context(|| format!("cargo built no {name}"))
        };
        Ok(Self {
            stockade: find("stockade", "bin", false)?,
            server: find("stockade-server", "bin", false)?,
            guest: find("guest", "example", false)?,
            probe: find("probe", "example", false)?,
            jail_tests: find("stockade_jail", "lib", true)?,
        })
    }
}

/// The program that was built from a target, in cargo's JSON lines.
fn find(cargo_output: &str, name: &str, kind: &str, test: bool) -> Option<PathBuf> {
    let mut messages =
        cargo_output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages.find_map(|message| {
        let target = &message["target"];
        let is_it = target["name"] == name
            && target["kind"][0] == kind
            && message["profile"]["test"] == test;
        message["executable"].as_str().filter(|_| is_it).map(PathBuf::from)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_program_is_told_from_its_own_tests() {
        let message = |kind: &str, test: bool, executable: Option<&str>| {
            json!({
                "target": {"name": "stockade", "kind": [kind]},
                "profile": {"test": test},
                "executable": executable,
            })
            .to_string()
        };
        let cargo_output = [
            "Compiling".to_owned(),
            message("bin", true, Some("/tests")),
            message("lib", false, None),
            message("bin", false, Some("/program")),
        ]
        .join("\n");
        assert_eq!(find(&cargo_output, "stockade", "bin", false), Some("/program".into()));
        assert_eq!(find(&cargo_output, "stockade", "bin", true), Some("/tests".into()));
        assert_eq!(find(&cargo_output, "stockade", "lib", false), None);
        assert_eq!(find(&cargo_output, "other", "bin", false), None);
    }
}
