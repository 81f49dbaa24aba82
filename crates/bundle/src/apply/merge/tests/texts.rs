//! Texts, against `git merge-file`.

use std::path::Path;
use std::process::Command;

use crate::apply::merge::text::{Favor, Labels, MergedText, merge};
use crate::testing::{Random, skipped};

pub(super) fn labels() -> Labels {
    Labels { ours: "host".to_owned(), theirs: "bundle".to_owned() }
}

fn merged(base: &str, ours: &str, theirs: &str) -> MergedText {
    merge(base.as_bytes(), ours.as_bytes(), theirs.as_bytes(), None, &labels())
}

#[test]
fn separate_changes_are_both_taken() {
    let base: String = (1..=200).map(|number| format!("line {number}\n")).collect();
    let ours = base.replace("line 10\n", "mine\n");
    let theirs = base.replace("line 150\n", "theirs\n");
    let result = merged(&base, &ours, &theirs);
    assert_eq!(result.conflicts, 0);
    assert_eq!(result.text, ours.replace("line 150\n", "theirs\n").into_bytes());
}

#[test]
fn equal_changes_are_taken_once_and_touching_ones_are_a_conflict() {
    let text = |lines: &str| lines.split(' ').map(|line| format!("{line}\n")).collect::<String>();
    let base = text("a b c d e f g");
    let equal = merged(&base, &text("a X c d e f g"), &text("a X c d e f Z"));
    assert_eq!(equal.text, text("a X c d e f Z").into_bytes());
    let touching = merged(&base, &text("a X c d e f g"), &text("a b Y d e f g"));
    assert_eq!(touching.conflicts, 1);
    let expected = "a\n<<<<<<< host\nX\nc\n=======\nb\nY\n>>>>>>> bundle\nd\ne\nf\ng\n";
    assert_eq!(String::from_utf8(touching.text).unwrap(), expected);
}

#[test]
fn the_favored_side_decides_only_conflicts() {
    let (base, ours, theirs) = (b"a\nb\nc\nd\ne\n", b"A\nb\nc\nd\ne\n", b"B\nb\nc\nd\nE\n");
    let with = |favor| merge(base, ours, theirs, Some(favor), &labels());
    assert_eq!(with(Favor::Ours).text, b"A\nb\nc\nd\nE\n");
    assert_eq!(with(Favor::Theirs).text, b"B\nb\nc\nd\nE\n");
    assert_eq!(with(Favor::Theirs).conflicts, 0);
}

/// A text of few different lines, which are hard to tell apart.
pub(super) fn random_text(random: &mut Random) -> Vec<String> {
    (0..random.below(40)).map(|_| random_line(random)).collect()
}

fn random_line(random: &mut Random) -> String {
    match random.below(6) {
        0 => "}".to_owned(),
        1 => String::new(),
        2 => "    return".to_owned(),
        _ => format!("    step {}", random.below(400)),
    }
}

pub(super) fn edited(random: &mut Random, lines: &[String]) -> Vec<String> {
    let mut lines = lines.to_vec();
    for _ in 0..random.below(5) {
        let at = random.below(lines.len() + 1);
        let end = (at + random.below(4)).min(lines.len());
        let moved: Vec<String> = match random.below(4) {
            0 => Vec::new(),
            1 if !lines.is_empty() => {
                let from = random.below(lines.len());
                lines[from..(from + 3).min(lines.len())].to_vec()
            }
            _ => (0..random.below(3)).map(|_| random_line(random)).collect(),
        };
        lines.splice(at..end, moved);
    }
    lines
}

pub(super) fn joined(random: &mut Random, lines: &[String], end: &str) -> String {
    let mut text: String = lines.iter().map(|line| format!("{line}{end}")).collect();
    if random.below(8) == 0 {
        text.truncate(text.trim_end_matches(['\r', '\n']).len());
    }
    text
}

fn by_git(root: &Path, texts: [&str; 3]) -> (String, bool) {
    for (name, text) in ["ours", "base", "theirs"].iter().zip(texts) {
        std::fs::write(root.join(name), text).unwrap();
    }
    let output = Command::new("git")
        .args(["merge-file", "-p", "-q", "--diff-algorithm=histogram", "-L", "host", "-L", "base"])
        .args(["-L", "bundle", "ours", "base", "theirs"])
        .current_dir(root)
        .output()
        .unwrap();
    (String::from_utf8(output.stdout).unwrap(), output.status.success())
}

#[test]
fn random_texts_are_merged_as_git_does() {
    let directory = tempfile::tempdir().unwrap();
    if Command::new("git").args(["merge-file", "-h"]).output().is_err() {
        skipped("git is not installed");
        return;
    }
    let mut others = 0;
    for seed in 0..600 {
        let mut random = Random::new(seed);
        let base = random_text(&mut random);
        let (ours, theirs) = (edited(&mut random, &base), edited(&mut random, &base));
        let end = if random.below(5) == 0 { "\r\n" } else { "\n" };
        let [base, ours, theirs] = [base, ours, theirs].map(|it| joined(&mut random, &it, end));
        let (expected, is_clean) = by_git(directory.path(), [&ours, &base, &theirs]);
        let result = merged(&base, &ours, &theirs);
        let text = String::from_utf8(result.text).unwrap();
        if result.conflicts == 0 || is_clean {
            assert_eq!(
                (text, result.conflicts == 0),
                (expected, is_clean),
                "seed {seed}\n--- base\n{base}--- ours\n{ours}--- theirs\n{theirs}"
            );
        } else {
            others += usize::from(text != expected);
        }
    }
    assert!(others <= 6, "{others} conflicts are written in another way than by git");
}
