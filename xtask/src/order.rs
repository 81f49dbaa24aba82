//! `cargo xtask order`: which functions a run calls, written down for the linker, which puts them beside
//! each other. A page of the program that is used for the first time costs some microseconds, and the
//! kernel maps sixteen at once: scattered over the program, a run's functions are a hundred such times.
//!
//! The kernel itself tells what is called (uprobes, `Documentation/trace/uprobetracer.rst`): each function
//! gets a probe, and `stockade run` is started. What is written holds for every build, for it names crates
//! and functions and no hash. A name that is gone is passed over by the linker, and one that is missing
//! costs time and nothing else.

mod map;
mod probes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};

use crate::workspace::Workspace;
use map::{Map, Section};
use probes::Probes;

/// Where it is written, below the root. `crates/cli/build.rs` hands it to the linker.
const ORDER: &str = "crates/cli/order.ld";
/// What is run, in a project of its own. A run goes on with what an earlier one has left.
const RUNS: [&[&str]; 4] = [
    &["run", "--", "true"],
    &["run", "--", "true"],
    &["run", "--discard", "--", "true"],
    &["run", "--discard", "--", "true"],
];
/// How many bytes a pattern may bring along that nobody has called.
const BESIDE_BYTES: u64 = 8 << 10;
/// How many bytes of constants a file may bring along whose functions are called.
const CONSTANT_BYTES: u64 = 64 << 10;

/// Writes the order anew.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<bool> {
    let (program, map) = build(workspace)?;
    let map = Map::read(&map)?;
    ensure_current(&map)?;
    let mut probes = Probes::set(&program, &map)?;
    let project = Project::make()?;
    for arguments in RUNS {
        project.run(&program, arguments)?;
    }
    let called = probes.called()?;
    drop(probes);
    let patterns = patterns(&map, &called);
    let bytes: u64 = patterns.values().map(|(_, bytes)| bytes).sum();
    let mut code: Vec<_> = patterns.into_iter().map(|(text, (at, _))| (at, text)).collect();
    code.sort_unstable();
    let code: Vec<_> = code.into_iter().map(|(_, text)| text).collect();
    let path = workspace.root.join(ORDER);
    std::fs::write(&path, script(&constants(&map, &called), &code))
        .with_context(|| format!("write {}", path.display()))?;
    println!("{} functions called, {} KiB side by side: {ORDER}", called.len(), bytes / 1024);
    Ok(true)
}

/// The program as README builds it, and the linker's map of it.
fn build(workspace: &Workspace) -> anyhow::Result<(PathBuf, PathBuf)> {
    let directory = workspace.target_directory()?.join("release");
    let map = directory.join("stockade.map");
    let mut cargo = workspace.cargo();
    cargo.args(["rustc", "--quiet", "--release", "--package", "stockade-cli", "--bin", "stockade"]);
    cargo.args(["--", "-C", &format!("link-arg=-Wl,-Map={}", map.display())]);
    ensure!(cargo.status()?.success(), "stockade does not build");
    Ok((directory.join("stockade"), map))
}

/// Cargo does not build a crate anew when `.cargo/rustc` changes, and the names of its functions would
/// hold for no other build.
fn ensure_current(map: &Map) -> anyhow::Result<()> {
    let is_ours = |section: &&Section| {
        section.archive.as_ref().is_some_and(|archive| archive.starts_with("libstockade_"))
    };
    // What is copied from another crate has the name that it has there.
    let is_old =
        |section: &&Section| section.name.contains("._ZN") && section.name.contains("stockade_");
    let old = map.sections().filter(is_ours).find(is_old);
    if let Some(Section { archive: Some(archive), .. }) = old {
        bail!("{archive} was built before `.cargo/rustc` changed: cargo clean --release");
    }
    Ok(())
}

/// A pattern for each section that holds something called: when it was called first, and how many
/// bytes the linker puts there for it. One that brings much along names the part of the crate too, and is
/// left out if that is no help.
fn patterns(map: &Map, called: &[u64]) -> BTreeMap<String, (usize, u64)> {
    let mut whole: BTreeMap<String, u64> = BTreeMap::new();
    for section in map.sections() {
        for pattern in BTreeSet::from([false, true].map(|part| pattern(section, part))) {
            *whole.entry(pattern).or_default() += section.bytes;
        }
    }
    let bytes = |pattern: &String| whole.get(pattern).copied().unwrap_or(0);
    let called = called.iter().filter_map(|address| map.section(*address));
    // Each section once, however many of its functions were called.
    let mut seen = BTreeSet::new();
    let mut left: Vec<_> =
        called.enumerate().filter(|(_, section)| seen.insert(section.address)).collect();
    let mut patterns: BTreeMap<String, (usize, u64)> = BTreeMap::new();
    for part in [false, true] {
        let mut used: BTreeMap<String, u64> = BTreeMap::new();
        for (_, section) in &left {
            *used.entry(pattern(section, part)).or_default() += section.bytes;
        }
        left.retain(|(at, section)| {
            let pattern = pattern(section, part);
            let used = used.get(&pattern).copied().unwrap_or(0);
            if bytes(&pattern) > used + BESIDE_BYTES {
                return true;
            }
            let bytes = bytes(&pattern);
            patterns.entry(pattern).or_insert((*at, bytes));
            false
        });
    }
    patterns
}

/// A pattern for the constants of each file that holds something called.
fn constants(map: &Map, called: &[u64]) -> Vec<String> {
    let mut whole: BTreeMap<String, u64> = BTreeMap::new();
    for section in map.sections().filter(|section| !section.is_code()) {
        *whole.entry(file(section)).or_default() += section.bytes;
    }
    let files: BTreeSet<_> = called.iter().filter_map(|at| map.section(*at)).map(file).collect();
    let is_small = |file: &String| whole.get(file).copied().unwrap_or(0) <= CONSTANT_BYTES;
    let small = files.into_iter().filter(is_small);
    small.map(|file| format!("{file}(.rodata .rodata.*)")).collect()
}

/// How a linker script names a section in every build of these sources: by the file, and by the
/// function without what tells builds apart. With `part` the file is one of the parts that the compiler
/// divides a crate into, which is the same as long as the crate changes little.
fn pattern(section: &Section, part: bool) -> String {
    let name = without_build(&section.name);
    let file = file(section);
    match section.object.rfind("-cgu.").filter(|_| part) {
        Some(at) => {
            let file = file.trim_end_matches(".rcgu.o").trim_end_matches('*');
            format!("{file}*{}({name})", &section.object[at..])
        }
        None => format!("{file}({name})"),
    }
}

/// The name of a section in every build: without the hash of an older name, those of the crates in a
/// newer one (rustc's "v0 Symbol Format": `Cs`, the hash, `_`, the length of the crate's name), and
/// the one of what was copied from another part.
fn without_build(name: &str) -> String {
    /// What 64 bits are at most, to the base of 62.
    const DIGITS: usize = 11;
    if let Some(hash) = name.rfind("17h").filter(|_| name.contains("._ZN")) {
        return format!("{}*", &name[..hash + 3]);
    }
    if !name.contains("._R") {
        return name.to_owned();
    }
    let (name, copied) = name.find(".llvm.").map_or((name, ""), |at| (&name[..at], ".llvm.*"));
    let mut without = String::new();
    let mut rest = name;
    while let Some(at) = rest.find("Cs") {
        let (before, crate_name) = rest.split_at(at + 2);
        without.push_str(before);
        let hash = crate_name.chars().take_while(char::is_ascii_alphanumeric).count();
        rest = crate_name;
        let behind = crate_name[hash..].strip_prefix('_').filter(|_| (1..=DIGITS).contains(&hash));
        if behind.is_some_and(|behind| behind.starts_with(|first: char| first.is_ascii_digit())) {
            without.push('*');
            rest = &crate_name[hash..];
        }
    }
    without + rest + copied
}

/// How a linker script names a file in every build: without the hash of its build.
fn file(section: &Section) -> String {
    match (&section.archive, section.object.as_str()) {
        (Some(archive), object) => match archive.strip_suffix(".rlib") {
            Some(rlib) => format!("*{}-*:*", without_hash(rlib)),
            None => format!("*{archive}:{object}"),
        },
        (None, object) if object.ends_with(".rcgu.o") => "*stockade-*.rcgu.o".to_owned(),
        (None, object) => format!("*{object}"),
    }
}

fn without_hash(rlib: &str) -> &str {
    rlib.rsplit_once('-').map_or(rlib, |(name, _)| name)
}

/// The linker script, which adds two sections to those that there are anyway.
fn script(constants: &[String], code: &[String]) -> String {
    let mut script = String::from(
        "/* What `stockade run` calls, in the order of the first calls, and the constants beside it.\n   \
         Written by `cargo xtask order`: see xtask/src/order.rs. */\n",
    );
    for (section, patterns) in [(".rodata", constants), (".text", code)] {
        let _ = writeln!(script, "SECTIONS\n{{\n  {section}.run : {{");
        for pattern in patterns {
            let _ = writeln!(script, "    {pattern}");
        }
        let _ = writeln!(script, "  }}\n}}\nINSERT BEFORE {section};");
    }
    script
}

/// A git project with a data directory, removed in the end.
#[derive(Debug)]
struct Project(PathBuf);

impl Project {
    fn make() -> anyhow::Result<Self> {
        let directory = std::env::temp_dir().join(format!("stockade-order-{}", std::process::id()));
        let project = Self(directory);
        let git = project.0.join("project");
        let made = Command::new("git").args(["init", "--quiet"]).arg(&git).status();
        ensure!(made.context("a git project is needed")?.success(), "git makes no project");
        std::fs::write(git.join("README.md"), "A project.\n")?;
        Ok(project)
    }

    fn run(&self, program: &Path, arguments: &[&str]) -> anyhow::Result<()> {
        // Each function stops at its probe, which takes long.
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", "60"]).arg(program).args(arguments);
        command.current_dir(self.0.join("project")).env("STOCKADE_DATA_DIR", self.0.join("data"));
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
        ensure!(status.success(), "stockade {arguments:?}: {status}");
        Ok(())
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        // Left in the temporary directory, it harms nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "\
             VMA              LMA     Size Align Out     In      Symbol
              80               80       10     1 .rodata
              80               80       10     1         /t/deps/libstockade_jail-efcd.rlib(stockade_jail-efcd.x-cgu.06.rcgu.o):(.rodata..Lanon.1)
             100              100       80    16 .text
             100              100       40    16         /t/deps/libstockade_jail-efcd.rlib(stockade_jail-efcd.x-cgu.06.rcgu.o):(.text._ZN13stockade_jail3run17hfb6aed40219effaaE)
             100              100       40     1                 stockade_jail::run::hfb6aed40219effaa
             140              140       20    16         /usr/lib/libc.a(malloc.o):(.text)
             140              140       10     1                 malloc
             150              150       10     1                 free
             160              160     4000    16         /t/deps/stockade-1ac1.stockade.54c1-cgu.07.rcgu.o:(.text._ZN3vec4from17h0000000000000001E)
            4160             4160     4000    16         /t/deps/stockade-1ac1.stockade.54c1-cgu.08.rcgu.o:(.text._ZN3vec4from17h0000000000000002E)
            8160             8160       10    16         /t/deps/stockade-1ac1.stockade.54c1-cgu.08.rcgu.o:(.text.main)
";

    #[test]
    fn patterns_name_no_build_and_bring_little_along() {
        let map = Map::parse(MAP);
        let found = patterns(&map, &[0x8160, 0x150, 0x100, 0x140, 0x160]);
        let names: Vec<_> = found.keys().map(String::as_str).collect();
        let expected = [
            "*libc.a:malloc.o(.text)",
            "*libstockade_jail-*:*(.text._ZN13stockade_jail3run17h*)",
            // The other one of this name is in another part.
            "*stockade-*-cgu.07.rcgu.o(.text._ZN3vec4from17h*)",
            "*stockade-*.rcgu.o(.text.main)",
        ];
        assert_eq!(names, expected);
        assert_eq!(found["*libc.a:malloc.o(.text)"], (1, 0x20));
        let constants = constants(&map, &[0x100]);
        assert_eq!(constants, ["*libstockade_jail-*:*(.rodata .rodata.*)"]);
    }

    #[test]
    fn a_crate_whose_names_are_of_older_flags_is_told() {
        let told = ensure_current(&Map::parse(MAP)).unwrap_err().to_string();
        assert!(told.starts_with("libstockade_jail-efcd.rlib was built"), "{told}");
        let new = MAP
            .replace("_ZN13stockade_jail3run17hfb6aed40219effaaE", "_RNvCs1_13stockade_jail3run");
        ensure_current(&Map::parse(&new)).unwrap();
    }

    #[test]
    fn names_hold_for_every_build() {
        let names = [
            (".text._ZN3vec4from17h0123456789abcdefE.llvm.7", ".text._ZN3vec4from17h*"),
            (
                ".text._RNvXNtCsjr4_5alloc3vecNtCsgE_4core3CspecialE4fromCsa_8stockade",
                ".text._RNvXNtCs*_5alloc3vecNtCs*_4core3CspecialE4fromCs*_8stockade",
            ),
            (".text._RNvCs1_3std2eq.llvm.655794", ".text._RNvCs*_3std2eq.llvm.*"),
            (".text.main", ".text.main"),
        ];
        for (name, expected) in names {
            assert_eq!(without_build(name), expected);
        }
    }

    #[test]
    fn the_script_adds_sections_before_all_others() {
        let words = |word: &str| vec![word.to_owned()];
        let script = script(&words("*a.o(.rodata)"), &words("*(.text.a)"));
        assert!(script.contains("  .text.run : {\n    *(.text.a)\n  }\n"), "{script}");
        assert!(script.contains("  .rodata.run : {\n    *a.o(.rodata)\n"), "{script}");
        assert!(script.ends_with("INSERT BEFORE .text;\n"));
    }
}
