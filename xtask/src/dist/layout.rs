//! Where each file lies in the directory that is shipped. `bin` and `share` can be copied to
//! `/usr/local` as they are.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// The documents of the repository that are shipped.
pub(super) const DOCUMENTS: &[&str] =
    &["README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md", "SPECIFICATION.md"];
/// The licences of all packages that are linked.
pub(super) const LICENCES: &str = "THIRD-PARTY";
/// Those of Rust's standard library, as its toolchain has them.
pub(super) const RUST_LICENCES: &str = "THIRD-PARTY-RUST.html";
/// The checksums of all other files.
pub(super) const SUMS: &str = "SHA256SUMS";
/// The directory of the manual pages.
pub(super) const PAGES: &str = "share/man/man1";
/// Each shell with the file that its completions are in.
pub(super) const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "share/bash-completion/completions/stockade"),
    ("zsh", "share/zsh/site-functions/_stockade"),
    ("fish", "share/fish/vendor_completions.d/stockade.fish"),
];

/// The path of a program. Both lie in one directory, where they find each other.
pub(super) fn program(directory: &Path, name: &str) -> PathBuf {
    directory.join("bin").join(name)
}

/// Makes a directory, without what an earlier call has left there.
pub(super) fn empty(directory: &Path) -> anyhow::Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory).with_context(|| format!("remove {}", directory.display()))?;
    }
    fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))
}

/// Copies a file with its permissions.
pub(super) fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    make_parent(to)?;
    let context = || format!("copy {} to {}", from.display(), to.display());
    fs::copy(from, to).map(|_| ()).with_context(context)
}

/// Writes a file that is no program.
pub(super) fn write(directory: &Path, name: &str, content: &[u8]) -> anyhow::Result<()> {
    let path = directory.join(name);
    make_parent(&path)?;
    fs::write(&path, content).with_context(|| format!("write {}", path.display()))
}

fn make_parent(path: &Path) -> anyhow::Result<()> {
    let parent = path.parent().context("a file without a directory")?;
    fs::create_dir_all(parent).with_context(|| format!("make {}", parent.display()))
}

/// Whether the owner may execute a file.
pub(super) fn is_executable(path: &Path) -> anyhow::Result<bool> {
    Ok(fs::metadata(path)?.permissions().mode() & 0o100 != 0)
}

/// All files below a directory, as paths below it with `/`, sorted.
pub(super) fn files(directory: &Path) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    walk(directory, "", &mut found)?;
    found.sort();
    Ok(found)
}

fn walk(directory: &Path, prefix: &str, found: &mut Vec<String>) -> anyhow::Result<()> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_str().with_context(|| format!("{name:?} is not UTF-8"))?;
        let path = format!("{prefix}{name}");
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), &format!("{path}/"), found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}
