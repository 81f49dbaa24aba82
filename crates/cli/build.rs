//! Identifies the build by a hash of the sources that both programs share; each program refuses to
//! work with one of another build. The hash covers only sources of this crate and of its dependencies,
//! so it triggers no additional rebuilds.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::Hasher as _;
use std::io;
use std::path::{Path, PathBuf};

/// The crates of this workspace that are part of `stockade`.
const CRATES: &[&str] = &[
    "api",
    "bundle",
    "cli",
    "client",
    "core",
    "egress-control",
    "jail",
    "plan",
    "review",
    "runtime",
];

fn main() -> io::Result<()> {
    let mut files = Vec::new();
    for name in CRATES {
        let sources = Path::new("..").join(name).join("src");
        println!("cargo::rerun-if-changed={}", sources.display());
        find(&sources, &mut files)?;
    }
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        hasher.write(file.as_os_str().as_encoded_bytes());
        hasher.write(&fs::read(&file)?);
    }
    println!("cargo::rustc-env=STOCKADE_BUILD={:016x}", hasher.finish());
    Ok(())
}

/// Adds the files in a directory and in all directories below it.
fn find(directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            find(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}
