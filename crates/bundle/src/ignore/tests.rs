//! Tests against git's rules: all cases of the oracle, and random trees compared with git itself.

use std::convert::Infallible;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::*;
use crate::testing::Random;

fn path(text: &str) -> RelativePath {
    RelativePath::new(text).unwrap()
}

/// The rules of a tree on disk.
fn rules_of(
    root: &Path,
    case: Case,
) -> Ignore<impl FnMut(&RelativePath) -> Result<Option<Vec<u8>>, Infallible>> {
    let exclude = std::fs::read(root.join(".git/info/exclude")).unwrap_or_default();
    Ignore::new(&exclude, case, move |file: &RelativePath| {
        Ok(std::fs::read(root.join(file.as_os_str())).ok())
    })
}

#[test]
fn the_oracle_cases_hold() {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/gitignore_oracle.json");
    let case: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let root = tempfile::tempdir().unwrap();
    for directory in case["dirs"].as_array().unwrap() {
        std::fs::create_dir_all(root.path().join(directory.as_str().unwrap())).unwrap();
    }
    for (name, content) in case["files"].as_object().unwrap() {
        std::fs::write(root.path().join(name), content.as_str().unwrap()).unwrap();
    }
    let mut ignore = rules_of(root.path(), Case::Distinct);
    let expectations = case["expect"].as_object().unwrap();
    assert!(expectations.len() >= 20);
    for (name, wanted) in expectations {
        let is_directory = root.path().join(name).is_dir();
        let Ok(ignored) = ignore.ignores(&path(name), is_directory);
        assert_eq!(if ignored { "ignored" } else { "kept" }, wanted, "{name}");
    }
}

const NAMES: [&str; 17] = [
    "a", "b", "ab", "foo", "foobar", "x.c", "y.log", "build", "a b", "é", "[x]", "a-b", "A", "aB",
    "Foo", "Y.LOG", "É",
];

const PIECES: [&str; 40] = [
    "*",
    "**",
    "/",
    "/",
    "a",
    "b",
    "foo",
    "bar",
    "?",
    "[ab]",
    "[!a]",
    "[^b]",
    "[a-f]",
    "**/",
    "/**",
    "/**/",
    "\\",
    " ",
    ".c",
    "*.log",
    "build",
    "{a,b}",
    "[[:alpha:]]",
    "[]x]",
    "[x",
    "\\[x]",
    "é",
    "!",
    "#",
    "[\\]x]",
    "A",
    "FOO",
    "\\A",
    "[A]",
    "[A-F]",
    "[!A-F]",
    "[[:upper:]]",
    "[[:lower:]]",
    "*.LOG",
    "[Z-a]",
];

fn pattern(random: &mut Random) -> String {
    let mut line = String::new();
    if random.below(4) == 0 {
        line.push('!');
    }
    for _ in 0..1 + random.below(5) {
        line.push_str(PIECES[random.below(PIECES.len())]);
    }
    if random.below(4) == 0 {
        line.push('/');
    }
    line
}

#[test]
fn random_trees_agree_with_git() {
    compare_random_trees(Case::Distinct);
}

#[test]
fn random_trees_agree_with_git_that_ignores_case() {
    compare_random_trees(Case::Ignored);
}

/// Compares with `git check-ignore` on many small random trees.
fn compare_random_trees(case: Case) {
    if Command::new("git").arg("--version").output().is_err() {
        crate::testing::skipped("git is not installed");
        return;
    }
    let mut compared = 0;
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let init = Command::new("git").args(["init", "-q"]).current_dir(root).status().unwrap();
        assert!(init.success());
        let setting = ["config", "core.ignorecase", &(case == Case::Ignored).to_string()];
        assert!(Command::new("git").args(setting).current_dir(root).status().unwrap().success());
        let mut paths = Vec::new();
        grow(root, "", 0, &mut random, &mut paths);
        let lines: Vec<String> = (0..6).map(|_| pattern(&mut random)).collect();
        std::fs::create_dir_all(root.join(".git/info")).unwrap();
        std::fs::write(root.join(".git/info/exclude"), lines.join("\n")).unwrap();

        let ignored_by_git = check_ignore(root, &paths);
        let mut ignore = rules_of(root, case);
        for name in &paths {
            let is_directory = root.join(name).is_dir();
            let Ok(ours) = ignore.ignores(&path(name), is_directory);
            assert_eq!(
                ours,
                ignored_by_git.contains(name),
                "seed {seed}: {name}\n{}",
                dump(root, &paths)
            );
            compared += 1;
        }
    }
    assert!(compared > 1000, "{compared}");
}

fn grow(root: &Path, below: &str, depth: usize, random: &mut Random, paths: &mut Vec<String>) {
    if random.below(2) == 0 || depth == 0 {
        let lines: Vec<String> = (0..1 + random.below(8)).map(|_| pattern(random)).collect();
        let end = if random.below(2) == 0 { "\r\n" } else { "\n" };
        std::fs::write(root.join(format!("{below}.gitignore")), lines.join(end)).unwrap();
    }
    for name in NAMES {
        let path = format!("{below}{name}");
        match random.below(6) {
            0 if depth < 3 => {
                std::fs::create_dir(root.join(&path)).unwrap();
                grow(root, &format!("{path}/"), depth + 1, random, paths);
            }
            1..=3 => std::fs::write(root.join(&path), "").unwrap(),
            _ => continue,
        }
        paths.push(path);
    }
}

fn check_ignore(root: &Path, paths: &[String]) -> Vec<String> {
    let mut git = Command::new("git")
        .args(["-c", "core.excludesFile=/dev/null", "check-ignore", "-z", "--stdin"])
        .current_dir(root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = git.stdin.take().unwrap();
    let names = paths.join("\0");
    let writer = std::thread::spawn(move || stdin.write_all(names.as_bytes()).unwrap());
    let output = git.wait_with_output().unwrap();
    writer.join().unwrap();
    let names = String::from_utf8(output.stdout).unwrap();
    names.split_terminator('\0').map(str::to_owned).collect()
}

fn dump(root: &Path, paths: &[String]) -> String {
    let files = [".git/info/exclude".to_owned(), ".gitignore".to_owned()];
    let nested = paths.iter().map(|path| format!("{path}/.gitignore"));
    let shown = files.into_iter().chain(nested).filter_map(|file| {
        let content = std::fs::read_to_string(root.join(&file)).ok()?;
        Some(format!("{file}: {content:?}"))
    });
    shown.collect::<Vec<_>>().join("\n")
}
