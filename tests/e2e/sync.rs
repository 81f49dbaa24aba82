//! `stockade sync` and `stockade workspace`: directories of sandboxes and of the host, and workspaces,
//! become equal. `cases` has the cases of upstream, `hostile` attacks and accidents, `workspaces` the
//! other side.

mod cases;
mod hostile;
mod workspaces;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::call::Outcome;
use crate::harness::World;

/// A sandbox, and a directory of the host for it.
struct Scene<'w> {
    world: &'w World,
    id: String,
}

impl<'w> Scene<'w> {
    fn new(world: &'w World, options: &[&str]) -> Self {
        let made = world.stockade(&[&["create"], options].concat()).finish();
        made.succeeds();
        Self { world, id: made.stdout.trim_end().to_owned() }
    }

    /// A new directory of the host with these files; a name with a slash at its end is a directory.
    fn directory(&self, name: &str, files: &[(&str, &str)]) -> PathBuf {
        let directory = self.world.outside().join(name);
        self.make(&directory);
        for (file, text) in files {
            match file.strip_suffix('/') {
                Some(below) => self.make(&directory.join(below)),
                None => self.world.plant(&directory.join(file), text),
            }
        }
        directory
    }

    fn make(&self, directory: &Path) {
        if !directory.exists() {
            self.make(directory.parent().unwrap());
            fs::create_dir(directory).unwrap();
            self.world.chown(directory);
        }
    }

    /// A path in the sandbox.
    fn inside(&self, path: &str) -> String {
        format!("{}:{path}", self.id)
    }

    fn call(&self, words: &[&str]) -> Outcome {
        self.world.stockade(words).deadline(120).finish()
    }

    /// Runs `sync OPTIONS FROM TO`.
    fn sync(&self, options: &[&str], from: &str, to: &str) -> Outcome {
        self.call(&[&["sync", "--json"], options, &[from, to]].concat())
    }

    /// Copies a directory of the host into the sandbox, and returns the report.
    fn copy_in(&self, options: &[&str], from: &Path, to: &str) -> Value {
        self.report(options, from.to_str().unwrap(), &self.inside(to))
    }

    /// Copies a directory of the sandbox to the host, and returns the report.
    fn out(&self, options: &[&str], from: &str, to: &Path) -> Value {
        self.report(options, &self.inside(from), to.to_str().unwrap())
    }

    #[track_caller]
    fn report(&self, options: &[&str], from: &str, to: &str) -> Value {
        let outcome = self.sync(options, from, to);
        let code = outcome.status.code();
        assert!(code == Some(0) || outcome.stdout.contains("completed"), "{outcome}");
        outcome.json()
    }

    fn sh(&self, script: &str) -> String {
        let outcome = self.call(&["exec", &self.id, "--", "sh", "-c", script]);
        outcome.succeeds();
        outcome.stdout
    }

    /// All files and links below a directory of the sandbox, sorted.
    fn list(&self, path: &str) -> Vec<String> {
        let script = format!(
            "cd {path} 2>/dev/null || exit 0; find . -mindepth 1 | sed 's|^./||' | LC_ALL=C sort"
        );
        self.sh(&script).lines().map(str::to_owned).collect()
    }

    /// The data of the newest event of a kind.
    fn event(&self, kind: &str) -> Value {
        let events = self.call(&["events", &self.id, "--json", "--type", kind]);
        events.succeeds();
        let last = events.stdout.lines().last().unwrap_or_else(|| panic!("no {kind}"));
        serde_json::from_str::<Value>(last).unwrap()
    }
}

/// All files and links below a directory of the host, sorted.
fn list(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(at) = waiting.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                waiting.push(entry.path());
            }
            let path = entry.path();
            found.push(path.strip_prefix(directory).unwrap().to_string_lossy().into_owned());
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The reason for which a path was skipped, if it was.
fn reason(report: &Value, path: &str) -> Option<String> {
    let skipped = report["skippedPaths"].as_array().unwrap();
    let found = skipped.iter().find(|it| it["path"] == path)?;
    Some(found["reason"].as_str().unwrap().to_owned())
}
