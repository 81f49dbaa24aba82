//! How a test reports that it did not run, or not in full. A runner prints no output of a test that
//! passes, so the report also goes to a file, from which `cargo xtask ci` lists the skipped tests.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;

/// The environment variable that names the file.
const LOG: &str = "STOCKADE_SKIP_LOG";

/// Reports that a test did not run, or not in full, and why: on standard error, and in the file
/// that `STOCKADE_SKIP_LOG` names.
///
/// # Panics
///
/// When the file cannot be written: the test would count as one that ran.
#[track_caller]
pub fn skip(test: &str, reason: &str) {
    let line = format!("SKIPPED: {test}: {reason}\n");
    // The line is for users; the file is for `cargo xtask ci`.
    let _ = io::stderr().write_all(line.as_bytes());
    let Some(path) = std::env::var_os(LOG) else { return };
    if let Err(error) = append(Path::new(&path), &line) {
        panic!("{}: {error}", path.display());
    }
}

fn append(path: &Path, line: &str) -> io::Result<()> {
    OpenOptions::new().append(true).create(true).open(path)?.write_all(line.as_bytes())
}

/// The same for the running test.
#[track_caller]
pub fn skipped(reason: &str) {
    skip(std::thread::current().name().unwrap_or("a test"), reason);
}

#[cfg(test)]
mod tests {
    use super::append;

    #[test]
    fn lines_are_added() {
        let log = std::env::temp_dir().join(format!("stockade-skips-{}", std::process::id()));
        append(&log, "SKIPPED: a: why\n").unwrap();
        append(&log, "SKIPPED: b: why\n").unwrap();
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "SKIPPED: a: why\nSKIPPED: b: why\n");
        std::fs::remove_file(log).unwrap();
    }
}
