//! Checksums, in the form that `sha256sum --check` reads.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use sha2::{Digest as _, Sha256};

use super::layout;

/// The SHA-256 as hexadecimal digits.
pub(super) fn sha256(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn line(path: &Path, name: &str) -> anyhow::Result<String> {
    let content = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    Ok(format!("{}  {name}\n", sha256(&content)))
}

/// A line for each file below a directory but the list itself.
pub(super) fn of_directory(directory: &Path) -> anyhow::Result<String> {
    let files = layout::files(directory)?;
    let files = files.iter().filter(|file| *file != layout::SUMS);
    files.map(|file| line(&directory.join(file), file)).collect()
}

/// Writes the checksum of an archive into a file beside it.
pub(super) fn write_beside(archive: &Path) -> anyhow::Result<()> {
    let name = archive.file_name().and_then(|name| name.to_str()).context("an archive's name")?;
    let directory = archive.parent().context("an archive's directory")?;
    layout::write(directory, &format!("{name}.sha256"), line(archive, name)?.as_bytes())
}

/// Checks that a directory holds exactly the files of its list.
pub(super) fn check(directory: &Path) -> anyhow::Result<()> {
    let listed = fs::read_to_string(directory.join(layout::SUMS)).context(layout::SUMS)?;
    ensure!(listed == of_directory(directory)?, "the files differ from {}", layout::SUMS);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_and_an_added_file_are_found() {
        let place = tempfile::tempdir().unwrap();
        layout::write(place.path(), "sub/a", b"abc").unwrap();
        let sums = of_directory(place.path()).unwrap();
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sums, format!("{abc}  sub/a\n"));
        layout::write(place.path(), layout::SUMS, sums.as_bytes()).unwrap();
        check(place.path()).unwrap();
        layout::write(place.path(), "b", b"").unwrap();
        check(place.path()).unwrap_err();
        fs::remove_file(place.path().join("b")).unwrap();
        layout::write(place.path(), "sub/a", b"abd").unwrap();
        check(place.path()).unwrap_err();
    }
}
