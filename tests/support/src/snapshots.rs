//! Texts that tests compare with the files in `tests/snapshots`, so that a review shows every change of a
//! help text, an error or a JSON form. `cargo xtask snapshots` writes the files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use insta::Settings;

/// The snapshots of one test: the files of one directory below `tests/snapshots`, which no other test
/// uses.
#[derive(Debug)]
pub struct Snapshots {
    directory: PathBuf,
    used: BTreeSet<String>,
}

impl Snapshots {
    /// The snapshots in this directory.
    #[must_use]
    pub fn new(directory: &str) -> Self {
        Self { directory: root().join(directory), used: BTreeSet::new() }
    }

    /// Compares a text with the file `NAME.snap`.
    #[track_caller]
    pub fn assert(&mut self, name: &str, text: &str) {
        assert!(self.used.insert(format!("{name}.snap")), "there are two texts named {name}");
        compare(&self.directory, name, text);
    }

    /// Fails if the directory has a file that the test did not use. An update removes such files.
    pub fn finish(self) {
        let is_update = std::env::var_os("INSTA_UPDATE").is_some_and(|update| update == "always");
        for entry in std::fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            if self.used.contains(entry.file_name().to_string_lossy().as_ref()) {
                continue;
            }
            let path = entry.path();
            assert!(is_update, "no test uses {}: cargo xtask snapshots", path.display());
            std::fs::remove_file(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
    }
}

/// Compares a text with the only file of a test: `tests/snapshots/PATH.snap`.
#[track_caller]
pub fn assert_snapshot(path: &str, text: &str) {
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    compare(&root().join(directory), name, text);
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../snapshots")
}

/// Compares without the white space at the ends of lines, which no file of the project may have.
#[track_caller]
fn compare(directory: &Path, name: &str, text: &str) {
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    let mut settings = Settings::clone_current();
    settings.set_snapshot_path(directory);
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, lines.join("\n")));
}
