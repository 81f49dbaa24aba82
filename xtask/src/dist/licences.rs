//! The licences of what the programs are linked with: of each package its name, version and
//! expression, and the texts that its sources have.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::graph::Graph;
use super::packages::Package;
use crate::workspace::output;

/// What names of files with licences begin with, in capitals.
const NAMES: &[&str] = &["LICENSE", "LICENCE", "UNLICENSE", "COPYING", "COPYRIGHT", "NOTICE"];
/// Extensions of files that are no text of a licence, whatever their name.
const OTHERS: &[&str] = &["rs", "c", "h", "js", "ts", "json", "toml", "py", "sh", "html"];
/// Directories whose content is not part of a program.
const NOT_LINKED: &[&str] = &["benches", "docs", "examples", "fuzz", "target", "tests"];
/// How far below the directory of a package the C sources lie that it has with it.
const DEPTH: usize = 3;

/// For packages that have the licence and not its text. The notice of their authors stands above it.
const MIT: &str = include_str!("texts/MIT.txt");

/// The other one: that of this workspace too.
const APACHE: &str = include_str!("../../../LICENSE");

/// The file for all packages of a program or more, without those of this workspace.
pub(super) fn text(
    graph: &Graph,
    linked: &BTreeSet<String>,
    is_static: bool,
) -> anyhow::Result<String> {
    let mut list = String::new();
    let mut texts: BTreeMap<String, (usize, Vec<String>)> = BTreeMap::new();
    for id in linked {
        let package = graph.package(id)?;
        if package.is_of_workspace() {
            continue;
        }
        let label = format!("{} {}", package.name, package.version);
        writeln!(list, "{label}: {}", package.expression()?)?;
        for text in of_package(package)? {
            let number = texts.len() + 1;
            let known = texts.entry(text).or_insert_with(|| (number, Vec::new()));
            known.1.push(label.clone());
        }
    }
    if is_static {
        list.push_str("musl: MIT\n");
        let notice = format!("Copyright (c) 2005-2020 Rich Felker, et al.\n\n{MIT}");
        let number = texts.len() + 1;
        texts.entry(notice).or_insert((number, Vec::new())).1.push("musl".to_owned());
    }
    let mut file = format!(
        "The programs of Stockade {} are linked with these packages, each under its licence.\n\
         The texts follow. Those of Rust's standard library are in {}.\n\n{list}",
        super::VERSION,
        super::layout::RUST_LICENCES
    );
    let mut texts: Vec<_> = texts.into_iter().collect();
    texts.sort_by_key(|(_, (number, _))| *number);
    for (text, (_, labels)) in texts {
        let line = "=".repeat(80);
        write!(file, "\n{line}\n{}\n{line}\n\n{text}", labels.join(", "))?;
    }
    Ok(file)
}

/// The texts of a package. None is an error: a licence says that its text goes with the program.
fn of_package(package: &Package) -> anyhow::Result<BTreeSet<String>> {
    let directory = package.directory()?;
    let mut files = Vec::new();
    find(directory, DEPTH, &mut files)?;
    files.extend(package.license_file.as_ref().map(|file| directory.join(file)));
    let mut texts = BTreeSet::new();
    for file in files {
        let text = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
        texts.insert(normalized(&String::from_utf8_lossy(&text)));
    }
    texts.remove("\n");
    if texts.is_empty() {
        let expression = package.expression()?;
        let has = |name| expression.split(" OR ").any(|licence| licence == name);
        if has("Apache-2.0") && !has("MIT") {
            // Its text names neither the package nor its authors.
            texts.insert(normalized(APACHE));
            return Ok(texts);
        }
        ensure!(has("MIT"), "{} has no text of its licence, {expression}", package.name);
        let authors = match package.authors.join(", ") {
            authors if authors.is_empty() => format!("the authors of {}", package.name),
            authors => authors,
        };
        texts.insert(format!("Copyright (c) {authors}\n\n{MIT}"));
    }
    Ok(texts)
}

/// Texts that differ in nothing but spaces at the ends of lines are one.
fn normalized(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    format!("{}\n", lines.join("\n").trim_matches('\n'))
}

fn find(directory: &Path, depth: usize, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().to_uppercase());
        if entry.file_type()?.is_dir() {
            let is_linked = !NOT_LINKED.contains(&name.to_lowercase().as_str());
            if is_linked && depth > 1 {
                find(&path, depth - 1, found)?;
            }
            continue;
        }
        let extension = path.extension().and_then(|extension| extension.to_str());
        let is_text = !extension.is_some_and(|extension| OTHERS.contains(&extension));
        let is_in_folder =
            directory.file_name().is_some_and(|folder| folder.eq_ignore_ascii_case("licenses"));
        if is_text && (is_in_folder || NAMES.iter().any(|start| name.starts_with(start))) {
            found.push(path);
        }
    }
    found.sort();
    Ok(())
}

/// The licences of the standard library and of what it is linked with, which the toolchain has.
pub(super) fn of_the_standard_library() -> anyhow::Result<PathBuf> {
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let file = Path::new(sysroot.trim()).join("share/doc/rust/COPYRIGHT-library.html");
    ensure!(file.is_file(), "the toolchain has no {}; one of rustup has it", file.display());
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::graph::tests::of_this_workspace;

    #[test]
    fn each_package_has_a_licence_and_its_text() {
        let (graph, all) = of_this_workspace();
        let linked = graph.closure("stockade-host", &all).unwrap().linked;
        let file = text(&graph, &linked, false).unwrap();
        for id in &linked {
            let package = graph.package(id).unwrap();
            let label = format!("{} {}", package.name, package.version);
            // In the list, and above a text.
            let expected = if package.is_of_workspace() { 0 } else { 2 };
            assert!(file.matches(&label).count() >= expected, "{label}");
            assert_eq!(file.contains(&format!("\n{label}: ")), expected > 0, "{label}");
        }
        for part in ["Fabrice Bellard", "Permission is hereby granted", "Apache License"] {
            assert!(file.contains(part), "{part}");
        }
        let notice = "Copyright (c) 2005-2020 Rich Felker, et al.";
        assert!(!file.contains(notice));
        assert!(text(&graph, &linked, true).unwrap().contains(notice));
    }

    #[test]
    fn a_text_stands_there_once() {
        assert_eq!(normalized("\n a \r\nb\t\n\n"), " a\nb\n");
        let (graph, all) = of_this_workspace();
        let linked = graph.closure("stockade-host", &all).unwrap().linked;
        let file = text(&graph, &linked, false).unwrap();
        let line = format!("\n{}\n", "=".repeat(80));
        let parts = file.split(&line);
        // Between them are the names of the packages, which may have several texts.
        let mut texts: Vec<_> = parts.filter(|part| part.starts_with('\n')).collect();
        let count = texts.len();
        texts.sort_unstable();
        texts.dedup();
        assert!(count > 10);
        assert_eq!(texts.len(), count);
    }
}
