//! The checksums in `Cargo.lock`, which cargo checks each package from outside against.

use std::collections::BTreeMap;

/// The SHA-256 of each package by name and version.
pub(super) fn checksums(lockfile: &str) -> BTreeMap<(String, String), String> {
    let packages = lockfile.split("[[package]]").skip(1);
    let known = packages.filter_map(|package| {
        let field = |name: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.strip_prefix(" = \"")?.strip_suffix('"')?.to_owned())
        };
        Some(((field("name")?, field("version")?), field("checksum")?))
    });
    known.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_the_registry_have_checksums() {
        let known = checksums(include_str!("../../../Cargo.lock"));
        assert!(known.len() > 100);
        assert!(known.values().all(|sum| sum.len() == 64));
        assert!(known.keys().all(|(name, _)| !name.starts_with("stockade")));
    }
}
