//! What each program is made of: the packages that it is linked with, and those that only build it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};

use super::build::Artifacts;
use super::lockfile::checksums;
use super::packages::{Edge, Metadata, Package, metadata};
use crate::workspace::Workspace;

/// All packages, and which uses which.
#[derive(Debug)]
pub(super) struct Graph {
    packages: BTreeMap<String, Package>,
    edges: BTreeMap<String, Vec<Edge>>,
}

/// The ids of the packages that one program needs.
#[derive(Debug)]
pub(super) struct Closure {
    /// The package of the program.
    pub(super) root: String,
    /// Those that the program is linked with, and itself.
    pub(super) linked: BTreeSet<String>,
    /// Those that only build it: build scripts, macros, and what those use.
    pub(super) build_only: BTreeSet<String>,
}

impl Graph {
    pub(super) fn read(workspace: &Workspace) -> anyhow::Result<Self> {
        let Metadata { packages, resolve } = metadata(workspace)?;
        let lockfile = std::fs::read_to_string(workspace.root.join("Cargo.lock"))?;
        let mut checksums = checksums(&lockfile);
        let packages = packages.into_iter().map(|mut package| {
            let key = (package.name.clone(), package.version.clone());
            package.checksum = checksums.remove(&key);
            (package.id.clone(), package)
        });
        let edges = resolve.nodes.into_iter().map(|node| (node.id, node.deps));
        Ok(Self { packages: packages.collect(), edges: edges.collect() })
    }

    pub(super) fn package(&self, id: &str) -> anyhow::Result<&Package> {
        self.packages.get(id).with_context(|| format!("cargo knows no package {id}"))
    }

    /// What a package uses directly when it runs or is built.
    pub(super) fn uses(&self, id: &str) -> BTreeSet<&str> {
        let used = self.edges.get(id).into_iter().flatten();
        let used = used.filter(|edge| edge.has(None) || edge.has(Some("build")));
        used.map(|edge| edge.id.as_str()).collect()
    }

    /// What the program of a package needs. `cargo metadata` also lists what other packages of the
    /// workspace enable, so only what cargo has compiled counts.
    pub(super) fn closure(&self, name: &str, compiled: &Artifacts) -> anyhow::Result<Closure> {
        let root = self.packages.values().find(|one| one.name == name && one.is_of_workspace());
        let root = root.with_context(|| format!("there is no package {name}"))?.id.clone();
        let linked = self.reach(&root, |edge| {
            let is_macro = self.packages.get(&edge.id).is_some_and(Package::is_macro);
            edge.has(None) && !is_macro && compiled.of_target.contains(&edge.id)
        });
        let all = self.reach(&root, |edge| {
            let is_compiled =
                compiled.of_host.contains(&edge.id) || compiled.of_target.contains(&edge.id);
            is_compiled && (edge.has(None) || edge.has(Some("build")))
        });
        ensure!(linked.len() > 1, "nothing of {name} was compiled");
        let build_only = all.difference(&linked).cloned().collect();
        Ok(Closure { root, linked, build_only })
    }

    fn reach(&self, root: &str, follows: impl Fn(&Edge) -> bool) -> BTreeSet<String> {
        let mut seen = BTreeSet::new();
        let mut pending = vec![root];
        while let Some(id) = pending.pop() {
            if seen.insert(id.to_owned()) {
                let edges = self.edges.get(id).into_iter().flatten();
                pending.extend(edges.filter(|edge| follows(edge)).map(|edge| edge.id.as_str()));
            }
        }
        seen
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The graph of this workspace, and everything as if it was compiled.
    pub(in super::super) fn of_this_workspace() -> (Graph, Artifacts) {
        let graph = Graph::read(&Workspace::find().unwrap()).unwrap();
        let all: BTreeSet<_> = graph.packages.keys().cloned().collect();
        (graph, Artifacts { of_target: all.clone(), of_host: all })
    }

    fn names<'g>(graph: &'g Graph, ids: &BTreeSet<String>) -> BTreeSet<&'g str> {
        ids.iter().map(|id| graph.package(id).unwrap().name.as_str()).collect()
    }

    #[test]
    fn each_program_has_a_closure_of_its_own() {
        let (graph, all) = of_this_workspace();
        let front = graph.closure("stockade-cli", &all).unwrap();
        let server = graph.closure("stockade-host", &all).unwrap();
        let (front_names, server_names) =
            (names(&graph, &front.linked), names(&graph, &server.linked));
        for engine in ["rusqlite", "libsqlite3-sys", "rustls", "rquickjs", "stockade-service"] {
            assert!(!front_names.contains(engine), "{engine}");
            assert!(server_names.contains(engine), "{engine}");
        }
        assert!(front_names.contains("clap") && server_names.contains("clap"));
        for tool in ["serde_derive", "syn", "cc"] {
            assert!(names(&graph, &server.build_only).contains(tool), "{tool}");
            assert!(!server_names.contains(tool), "{tool}");
        }
        for name in ["proptest", "tempfile", "xtask"] {
            assert!(!names(&graph, &front.build_only).contains(name), "{name} is for tests");
        }
        assert!(graph.package(&front.root).unwrap().is_of_workspace());
    }

    #[test]
    fn only_what_was_compiled_counts() {
        let (graph, mut all) = of_this_workspace();
        let is_clap = |id: &String| graph.package(id).unwrap().name == "clap";
        all.of_target.retain(|id| !is_clap(id));
        let front = graph.closure("stockade-cli", &all).unwrap();
        assert!(!names(&graph, &front.linked).contains("clap"));
        assert!(graph.closure("stockade-cli", &Artifacts::default()).is_err());
        assert!(graph.closure("no-such-package", &all).is_err());
    }
}
