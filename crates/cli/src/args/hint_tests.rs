//! Every hint of every crate is a command or a flag that the command line accepts as it is printed, with
//! the names of objects filled in; or it is prose, whose commands exist.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::CommandFactory as _;

use super::Arguments;
use crate::programs::FRONT;

/// The starts of calls whose argument is a hint.
const CALLS: [&str; 2] = ["remedied_by(", "remedy: Some("];
/// Commands that a hint of flags alone may be meant for, each with what it needs.
const HOSTS: [[&str; 3]; 4] =
    [["run", "--", "true"], ["create", "", ""], ["snippet", "check", "x"], ["snippet", "run", "x"]];

fn sources(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The text of the literal at the start, with each placeholder filled in.
fn literal(text: &str) -> Option<String> {
    let text = text.trim_start().strip_prefix("format!(").unwrap_or(text).trim_start();
    let text = text.strip_prefix('"')?;
    let mut filled = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => return Some(filled),
            '\\' => match letters.next()? {
                '\n' => letters = letters.as_str().trim_start().chars(),
                escaped => filled.push(escaped),
            },
            '{' => {
                let name: String = letters.by_ref().take_while(|letter| *letter != '}').collect();
                // A placeholder beside a word stands for further flags, or for nothing.
                if filled.ends_with([' ', ':', '=']) {
                    filled.push_str(match name.as_str() {
                        "user" => "7",
                        "port" => "8080",
                        "secret" => "TOKEN@api.example.com",
                        _ => "demo",
                    });
                }
            }
            letter => filled.push(letter),
        }
    }
    None
}

fn parses(words: &[&str]) -> Result<(), String> {
    let words: Vec<_> = words.iter().filter(|word| !word.is_empty()).map(OsString::from).collect();
    match Arguments::parse(FRONT, &words) {
        Err(error) if error.exit_code() != 0 => Err(error.to_string()),
        _ => Ok(()),
    }
}

#[test]
fn every_hint_can_be_pasted() {
    let mut files = Vec::new();
    for krate in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap() {
        sources(&krate.unwrap().path().join("src"), &mut files);
    }
    let commands = Arguments::command();
    let is_command = |name: &str| commands.find_subcommand(name).is_some();
    let mut checked = 0;
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        let shown = file.display();
        let hints = CALLS.iter().flat_map(|call| text.split(call).skip(1)).filter_map(literal);
        for hint in hints {
            // The shell reads what follows `<`.
            let hint = hint.split(" < ").next().unwrap_or_default();
            let words: Vec<_> = hint.split(' ').collect();
            match words[..] {
                // The verb itself is filled in.
                ["stockade", "demo", ..] => {}
                ["stockade", ..] => {
                    let parsed = parses(&words[1..]);
                    assert_eq!(parsed, Ok(()), "{shown}: {hint}");
                    checked += 1;
                }
                [flag, ..] if flag.starts_with("--") && words.len() <= 2 => {
                    let accepted = HOSTS.iter().any(|[command, first, second]| {
                        let line = [&[*command][..], &words, &[*first, *second]].concat();
                        let other = [&[*command, *first][..], &words, &[*second]].concat();
                        parses(&line).is_ok() || parses(&other).is_ok()
                    });
                    assert!(accepted, "{shown}: {hint}");
                    checked += 1;
                }
                _ => {}
            }
            for quoted in hint.split('`').skip(1).step_by(2) {
                if let Some(line) = quoted.strip_prefix("stockade ") {
                    let name = line.split(' ').next().unwrap_or_default();
                    assert!(is_command(name) || name == "demo", "{shown}: {quoted}");
                }
            }
        }
    }
    assert!(checked > 25, "{checked} hints were found");
}

#[test]
fn a_literal_is_filled_in() {
    assert_eq!(literal("\"stockade ls\")").as_deref(), Some("stockade ls"));
    assert_eq!(
        literal("format!(\n  \"stockade diff {id}{} --stat\", x").as_deref(),
        Some("stockade diff demo --stat")
    );
    assert_eq!(literal("format!(\"--allow {}\", x").as_deref(), Some("--allow demo"));
    assert_eq!(literal("text)"), None);
}
