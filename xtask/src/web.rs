//! `cargo xtask web`: builds the pages of the server from their sources in `web`, with Node. The result
//! is checked in, together with a hash of all of it, so that a build of the server needs no Node and
//! `tidy` finds pages that are not those of their sources.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use sha2::{Digest as _, Sha256};

use crate::workspace::{Workspace, is_installed};

/// The sources of the pages.
pub(crate) const SOURCES: &str = "web/";
/// The built pages.
pub(crate) const PAGES: &str = "crates/server/pages/";
/// The file with the hashes of both.
pub(crate) const HASHES: &str = "crates/server/pages/hashes.txt";

/// Builds the pages. With `only_check`, they are built elsewhere, and compared with those that are
/// checked in.
pub(crate) fn run(workspace: &Workspace, only_check: bool) -> anyhow::Result<bool> {
    ensure!(is_installed("npm"), "npm is not installed: apt-get install nodejs npm");
    let directory = workspace.root.join(SOURCES);
    let install = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
    npm(&directory, &install)?;
    let pages = workspace.root.join(PAGES);
    if only_check {
        let built = tempfile::tempdir()?;
        npm(&directory, &["exec", "--", "vite", "build", "--outDir", path(built.path())?])?;
        let equal = hash(&files_of(built.path())?) == hash(&files_of(&pages)?);
        if !equal {
            println!("the pages are not those of their sources: cargo xtask web");
        }
        return Ok(equal);
    }
    npm(&directory, &["exec", "--", "vite", "build", "--outDir", path(&pages)?])?;
    let sources = sources(workspace)?;
    let text = hashes(&sources, &files_of(&pages)?);
    std::fs::write(workspace.root.join(HASHES), text).context("write the hashes")?;
    Ok(true)
}

fn path(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("a path that is not UTF-8")
}

fn npm(directory: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let status = Command::new("npm").args(arguments).current_dir(directory).status();
    ensure!(status.context("start npm")?.success(), "npm {} failed", arguments.join(" "));
    Ok(())
}

/// A file: its name, and its content.
pub(crate) type File = (String, Vec<u8>);

fn sources(workspace: &Workspace) -> anyhow::Result<Vec<File>> {
    let files = workspace.files()?.into_iter().filter(|path| path.starts_with(SOURCES));
    files
        .map(|path| {
            let content = std::fs::read(workspace.root.join(&path));
            Ok((path.clone(), content.with_context(|| format!("read {path}"))?))
        })
        .collect()
}

/// The built files, without the hashes.
fn files_of(directory: &Path) -> anyhow::Result<Vec<File>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !HASHES.ends_with(&format!("/{name}")) {
            files.push((format!("{PAGES}{name}"), std::fs::read(entry.path())?));
        }
    }
    Ok(files)
}

/// The content of the file with the hashes.
pub(crate) fn hashes(sources: &[File], pages: &[File]) -> String {
    format!("sources {}\npages {}\n", hash(sources), hash(pages))
}

/// The hash of files, in any order.
fn hash(files: &[File]) -> String {
    let mut sorted: Vec<_> = files.iter().collect();
    sorted.sort();
    let mut hasher = Sha256::new();
    for (name, content) in sorted {
        hasher.update((name.len() as u64).to_be_bytes());
        hasher.update(name);
        hasher.update((content.len() as u64).to_be_bytes());
        hasher.update(content);
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
