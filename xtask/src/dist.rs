//! `cargo xtask dist`: makes the archive that is shipped, with both programs and everything that
//! belongs to them. Here is the order of the steps; each step has a file of its own.

mod archive;
mod build;
mod graph;
mod layout;
mod licences;
mod lockfile;
mod packages;
mod pages;
mod sbom;
mod source;
mod sums;
mod verify;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;

use self::build::{RustWorkflow, Target};
use self::graph::Graph;
use self::source::Source;
use crate::arguments::DistOptions;
use crate::workspace::Workspace;

/// The version of Stockade, which is that of every package of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Builds the archive, verifies it and prints its path.
pub(crate) fn run(workspace: &Workspace, options: &DistOptions) -> anyhow::Result<bool> {
    let start = Instant::now();
    let source = Source::read(workspace, options.allow_dirty)?;
    let target = Target::choose(options.target.as_deref())?;
    let out = match &options.out {
        Some(out) => std::path::absolute(out)?,
        None => workspace.target_directory()?.join("archives"),
    };
    progress(&format!("build for {}", target.triple()));
    let built = build::programs(workspace, target)?;
    let name = format!("stockade-{VERSION}-{}", target.triple());
    let directory = out.join(&name);
    progress(&format!("fill {}", directory.display()));
    fill(workspace, &source, &built, &directory)?;
    let path = out.join(format!("{name}.tar.gz"));
    archive::write(&directory, &path, source.time)?;
    sums::write_beside(&path)?;
    progress("verify the archive");
    let private = [
        workspace.root.clone(),
        workspace.target_directory()?,
        packages::sources_of_registry(workspace)?,
    ];
    verify::archive(&path, &name, target, &private)?;
    summary(&directory, &path, start)?;
    println!("{}", path.display());
    Ok(true)
}

/// Puts into an empty directory what is shipped.
fn fill(
    workspace: &Workspace,
    source: &Source,
    built: &RustWorkflow,
    directory: &Path,
) -> anyhow::Result<()> {
    layout::empty(directory)?;
    for document in layout::DOCUMENTS {
        layout::copy(&workspace.root.join(document), &directory.join(document))?;
    }
    for program in &built.programs {
        layout::copy(&program.path, &layout::program(directory, program.name))?;
    }
    pages::write(directory)?;
    let graph = Graph::read(workspace)?;
    let mut linked = std::collections::BTreeSet::new();
    for program in &built.programs {
        let closure = graph.closure(program.package, &built.artifacts)?;
        let sbom = sbom::of(program.name, &graph, &closure, source)?;
        layout::write(directory, &format!("sbom/{}.cdx.json", program.name), sbom.as_bytes())?;
        linked.extend(closure.linked);
    }
    let licences = licences::text(&graph, &linked, built.target.is_static())?;
    layout::write(directory, layout::LICENCES, licences.as_bytes())?;
    layout::copy(&licences::of_the_standard_library()?, &directory.join(layout::RUST_LICENCES))?;
    layout::write(directory, layout::SUMS, sums::of_directory(directory)?.as_bytes())
}

fn progress(step: &str) {
    eprintln!("dist: {step}");
}

/// Says how large the result is, and how long it took.
fn summary(directory: &Path, archive: &Path, start: Instant) -> anyhow::Result<()> {
    let front = layout::program(directory, build::FRONT);
    let server = layout::program(directory, build::SERVER);
    for path in [front, server, archive.to_owned()] {
        let bytes = std::fs::metadata(&path).context(path.display().to_string())?.len();
        let name = path.file_name().map(PathBuf::from).unwrap_or_default();
        progress(&format!("{}: {bytes} bytes", name.display()));
    }
    progress(&format!("{} s", start.elapsed().as_secs()));
    Ok(())
}
