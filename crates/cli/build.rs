//! Identifies the build by a hash of the sources that both programs share; each program refuses to
//! work with one of another build. The hash covers only sources of this crate and of its dependencies,
//! so it triggers no additional rebuilds.

use std::collections::BTreeSet;
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::Hasher as _;
use std::io;
use std::path::{Path, PathBuf};

fn main() -> io::Result<()> {
    let mut crates = BTreeSet::new();
    add_crate("cli", &mut crates)?;
    let mut files = Vec::new();
    for name in crates {
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
    // Where a copy of the program that is mounted into a container finds its libraries
    // (`crates/runtime-docker/src/programs.rs`). It does not exist on the host.
    println!("cargo::rustc-link-arg-bins=-Wl,-rpath,/opt/stockade/lib");
    write_error_pages()
}

/// Writes a list of the pages in `docs/errors`, for `stockade explain`.
fn write_error_pages() -> io::Result<()> {
    let directory = Path::new("../../docs/errors").canonicalize()?;
    println!("cargo::rerun-if-changed={}", directory.display());
    let mut list = "&[\n".to_owned();
    let mut pages = Vec::new();
    find(&directory, &mut pages)?;
    pages.sort();
    for page in pages {
        println!("cargo::rerun-if-changed={}", page.display());
        let name = page.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if name != "README" && page.extension().is_some_and(|extension| extension == "md") {
            list += &format!("({name:?}, include_str!({:?})),\n", page.display().to_string());
        }
    }
    let out = std::env::var_os("OUT_DIR").unwrap_or_default();
    fs::write(Path::new(&out).join("error_pages.rs"), list + "]")
}

/// Adds a crate of this workspace and all that its manifest lists under `[dependencies]`, except
/// optional ones: those are for tests.
fn add_crate(name: &str, crates: &mut BTreeSet<String>) -> io::Result<()> {
    if !crates.insert(name.to_owned()) {
        return Ok(());
    }
    let manifest = Path::new("..").join(name).join("Cargo.toml");
    println!("cargo::rerun-if-changed={}", manifest.display());
    let mut is_dependency = false;
    for line in fs::read_to_string(&manifest)?.lines() {
        if line.starts_with('[') {
            is_dependency = line.trim_end() == "[dependencies]";
        } else if is_dependency
            && let Some(rest) = line.strip_prefix("stockade-")
            && !line.contains("optional = true")
        {
            let end = rest.find(['.', ' ', '=']).unwrap_or(rest.len());
            add_crate(&rest[..end], crates)?;
        }
    }
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
