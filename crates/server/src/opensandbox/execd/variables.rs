//! The file inside a sandbox with variables for later commands. Clients append lines `NAME='VALUE'`
//! or `NAME="VALUE"` to it through a command.

use std::collections::BTreeMap;

use stockade_api::{Bytes, Execute, ReadFile, Result};
use stockade_core::Code;
use tokio::io::AsyncReadExt as _;

use super::super::target::{PortState, Target, VARIABLES, VARIABLES_FILE};

/// The path of the file, unless the environment of the sandbox names another one.
const FILE: &str = "/tmp/.opensandbox/environment";
/// The most bytes of it that are read.
const FILE_BYTES: u64 = 1 << 20;

/// Adds the variables of the file to a command, and the path of the file. Variables that the command
/// has already stay.
pub(super) async fn add(state: &PortState, target: &Target, execute: &mut Execute) -> Result<()> {
    let file = target.sandbox.metadata.get(VARIABLES_FILE).map_or(FILE, String::as_str);
    let file = Bytes(file.as_bytes().to_vec());
    let request = ReadFile {
        sandbox_id: target.sandbox.id.clone(),
        path: file.clone(),
        offset: 0,
        length: Some(FILE_BYTES),
    };
    let mut text = Vec::new();
    match state.sandboxes.read_file(&target.caller, request).await {
        Ok(mut content) => drop(content.0.read_to_end(&mut text).await),
        Err(problem) if problem.code == Code::FileNotFound => {}
        // The command itself reports what is wrong with its sandbox.
        Err(problem) if problem.code == Code::AccessDenied => {}
        // The path may be a directory, or none at all.
        Err(problem) if problem.code == Code::InvalidInput => {}
        Err(problem) => return Err(problem),
    }
    for (name, value) in parse(&String::from_utf8_lossy(&text)) {
        execute.environment.entry(name).or_insert_with(|| Bytes(value.into_bytes()));
    }
    execute.environment.entry(VARIABLES.to_owned()).or_insert(file);
    Ok(())
}

/// The variables of a file. The last line of a name counts; a line of another form is left out.
fn parse(text: &str) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    let mut rest = text;
    while !rest.is_empty() {
        let line = rest.trim_start_matches(['\n', '\r', ' ', '\t']);
        let (line_end, has_name) = (line.find('\n').unwrap_or(line.len()), line.find('='));
        let name = has_name.filter(|at| *at < line_end).map(|at| &line[..at]);
        let name = name.map(|name| name.strip_prefix("export ").unwrap_or(name).trim());
        let Some(name) = name.filter(|name| is_name(name)) else {
            rest = &line[line_end..];
            continue;
        };
        let value = &line[has_name.map_or(line_end, |at| at + 1)..];
        let (value, after) = value_of(value);
        variables.insert(name.to_owned(), value);
        // What follows the value in its line is left out.
        rest = after.find('\n').map_or("", |at| &after[at..]);
    }
    variables
}

pub(super) fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// A value, and what follows it.
fn value_of(text: &str) -> (String, &str) {
    if let Some(quoted) = text.strip_prefix('\'') {
        let end = quoted.find('\'').unwrap_or(quoted.len());
        return (quoted[..end].to_owned(), &quoted[end..]);
    }
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find('\n').unwrap_or(text.len());
        return (text[..end].trim().to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &quoted[at..]),
            '\\' => match characters.next().map(|(_, escaped)| escaped) {
                Some('n') => value.push('\n'),
                Some('r') => value.push('\r'),
                Some('t') => value.push('\t'),
                Some(other @ ('"' | '\\' | '$' | '`')) => value.push(other),
                Some(other) => value.extend(['\\', other]),
                None => {}
            },
            other => value.push(other),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_clients_are_read() {
        let text = "A='1'\nB=\"it's \\\"x\\\"\\n\"\n# no=1\nexport C = 3 \nD='two\nlines'\nA='2'\n\
                    1X=3\nE=\nF='' trailing\nnot a line\nG='open";
        let found = parse(text);
        let found: Vec<_> =
            found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let expected = [
            ("A", "2"),
            ("B", "it's \"x\"\n"),
            ("C", "3"),
            ("D", "two\nlines"),
            ("E", ""),
            ("F", ""),
            ("G", "open"),
        ];
        assert_eq!(found, expected);
    }
}
