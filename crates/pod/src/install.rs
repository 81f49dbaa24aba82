//! The init container: copies this program to a directory that the sandbox mounts read-only.

use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::PROGRAM;

/// Copies the program; returns the exit code.
pub(crate) fn run(to: &Path) -> u8 {
    match install(to) {
        Ok(()) => 0,
        Err(error) => {
            let _ = writeln!(io::stderr(), "cannot install the program: {error}");
            1
        }
    }
}

fn install(to: &Path) -> io::Result<()> {
    // A pod may start its init container again: what is there is complete or replaced.
    let new = to.join(format!(".{PROGRAM}.new"));
    std::fs::copy(std::env::current_exe()?, &new)?;
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o555))?;
    std::fs::rename(&new, to.join(PROGRAM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_installed_again_and_again() {
        let place = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            assert_eq!(run(place.path()), 0);
        }
        let installed = place.path().join(PROGRAM);
        assert_eq!(installed.metadata().unwrap().permissions().mode() & 0o777, 0o555);
        assert_eq!(place.path().read_dir().unwrap().count(), 1);
        assert_eq!(run(&place.path().join("missing")), 1);
    }
}
