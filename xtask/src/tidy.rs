//! `cargo xtask tidy`: the project's rules that no compiler checks. Each rule is one file whose
//! `check` returns what it found; it passes only if the list is empty.

mod attacks;
mod cases;
mod clients;
mod crate_dependencies;
mod documents;
mod error_pages;
mod module_cycles;
mod modules;
mod packages;
mod pages;
mod phrases;
mod rust_text;
mod sources;
mod sql;
mod stockade_dependencies;
mod tests_named;
mod text;
mod type_names;

use anyhow::Context as _;

use crate::workspace::Workspace;

/// The project's files as the checks see them.
#[derive(Debug)]
struct Tree {
    files: Vec<File>,
}

/// One file of the project.
#[derive(Debug)]
struct File {
    /// The path below the root.
    path: String,
    /// Its content; bytes that are not UTF-8 are replaced.
    text: String,
}

/// One broken rule: the location, and what is wrong.
type Finding = String;

impl Tree {
    fn read(workspace: &Workspace) -> anyhow::Result<Self> {
        let files = workspace.files()?.into_iter().map(|path| {
            let bytes = std::fs::read(workspace.root.join(&path))
                .with_context(|| format!("read {path}"))?;
            Ok(File { path, text: String::from_utf8_lossy(&bytes).into_owned() })
        });
        Ok(Self { files: files.collect::<anyhow::Result<_>>()? })
    }

    fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }

    #[cfg(test)]
    fn of(files: &[(&str, &str)]) -> Self {
        let own = |(path, text): &(&str, &str)| File {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
        };
        Self { files: files.iter().map(own).collect() }
    }
}

/// Runs every check and prints the findings; true when there are none.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<bool> {
    let findings = findings(workspace)?;
    for finding in &findings {
        println!("tidy: {finding}");
    }
    println!("tidy: {}", sources::summary(&Tree::read(workspace)?));
    println!("tidy: {} broken rules", findings.len());
    Ok(findings.is_empty())
}

fn findings(workspace: &Workspace) -> anyhow::Result<Vec<Finding>> {
    let tree = Tree::read(workspace)?;
    let mut findings = crate_dependencies::check(&workspace.metadata(false)?);
    let metadata = workspace.metadata(true)?;
    findings.extend(packages::check(&tree, &metadata));
    findings.extend(stockade_dependencies::check(&metadata));
    findings.extend(sources::check(&tree));
    findings.extend(module_cycles::check(&tree));
    findings.extend(sql::check(&tree));
    findings.extend(text::check(&tree));
    findings.extend(documents::check(&tree));
    findings.extend(phrases::check(&tree));
    findings.extend(type_names::check(&tree));
    findings.extend(attacks::check(&tree));
    findings.extend(error_pages::check(&tree));
    findings.extend(cases::check(&tree));
    findings.extend(clients::check(&tree));
    findings.extend(pages::check(&tree));
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_tree_is_tidy() {
        let findings = findings(&Workspace::find().unwrap()).unwrap();
        assert!(findings.is_empty(), "{}", findings.join("\n"));
    }
}
