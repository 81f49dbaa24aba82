//! The packages that cargo knows, and which depends on which: what `cargo metadata` says.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Deserialize;

use super::build::Target;
use crate::workspace::{Workspace, output};

/// A package.
#[derive(Debug, Deserialize)]
pub(super) struct Package {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) version: String,
    /// The licences as an SPDX expression, in older packages with `/` for `OR`.
    #[serde(rename = "license")]
    expression: Option<String>,
    /// A file of the licence with a name of its own.
    pub(super) license_file: Option<PathBuf>,
    pub(super) authors: Vec<String>,
    /// The registry; none for a package of this workspace.
    source: Option<String>,
    manifest_path: PathBuf,
    targets: Vec<CargoTarget>,
    #[serde(skip)]
    pub(super) checksum: Option<String>,
}

#[derive(Debug, Deserialize)]
struct CargoTarget {
    kind: Vec<String>,
}

impl Package {
    pub(super) const fn is_of_workspace(&self) -> bool {
        self.source.is_none()
    }

    /// The directory of its sources.
    pub(super) fn directory(&self) -> anyhow::Result<&Path> {
        self.manifest_path.parent().with_context(|| format!("{} has no directory", self.name))
    }

    /// The licences as an SPDX expression.
    pub(super) fn expression(&self) -> anyhow::Result<String> {
        let expression = self.expression.as_deref();
        let expression = expression.with_context(|| format!("{} has no licence", self.name))?;
        Ok(expression.replace(" / ", " OR ").replace('/', " OR "))
    }

    /// Whether the compiler runs it: nothing of it is in a program.
    pub(super) fn is_macro(&self) -> bool {
        self.targets.iter().any(|target| target.kind.iter().any(|kind| kind == "proc-macro"))
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Metadata {
    pub(super) packages: Vec<Package>,
    pub(super) resolve: Resolve,
}

#[derive(Debug, Deserialize)]
pub(super) struct Resolve {
    pub(super) nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Node {
    pub(super) id: String,
    pub(super) deps: Vec<Edge>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Edge {
    #[serde(rename = "pkg")]
    pub(super) id: String,
    dep_kinds: Vec<EdgeKind>,
}

#[derive(Debug, Deserialize)]
struct EdgeKind {
    /// None for a normal dependency; `build`, `dev`.
    kind: Option<String>,
}

impl Edge {
    pub(super) fn has(&self, kind: Option<&str>) -> bool {
        self.dep_kinds.iter().any(|one| one.kind.as_deref() == kind)
    }
}

/// The directory into which cargo unpacks the packages of the registry.
pub(super) fn sources_of_registry(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let metadata = metadata(workspace)?;
    let package = metadata.packages.iter().find(|package| !package.is_of_workspace());
    let directory = package.context("there are no packages from outside")?.directory()?;
    Ok(directory.parent().context("a package lies in the root")?.to_owned())
}

pub(super) fn metadata(workspace: &Workspace) -> anyhow::Result<Metadata> {
    let mut cargo = workspace.cargo();
    cargo.args(["metadata", "--locked", "--format-version", "1"]);
    for target in [Target::Gnu, Target::Musl] {
        cargo.args(["--filter-platform", target.triple()]);
    }
    serde_json::from_str(&output(&mut cargo)?).context("read what `cargo metadata` says")
}
