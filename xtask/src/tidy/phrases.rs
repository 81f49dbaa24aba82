//! The phrases that `docs/glossary.md` lists as banned are in no message, help text or document.
//! Comments in code are not checked here.

use super::rust_text::strings;
use super::{File, Finding, Tree};

const GLOSSARY: &str = "docs/glossary.md";

/// What surrounds the table of phrases, one phrase in the first column of each row.
const MARKERS: (&str, &str) = ("<!-- banned phrases: begin -->", "<!-- banned phrases: end -->");

/// Where clap makes help texts from doc comments.
const HELP: [&str; 2] = ["crates/cli/src/args.rs", "crates/cli/src/args/"];

/// The names of migrations are recorded in databases, so they cannot change.
const RECORDED: &str = "crates/service/src/store/migrations/";

/// Checks the messages and help texts of all crates, all documents and all snapshots of output.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let phrases: Vec<String> =
        first_column(tree, MARKERS).iter().map(|phrase| phrase.to_lowercase()).collect();
    if phrases.is_empty() {
        return vec![format!("{GLOSSARY}: the table of banned phrases has no rows")];
    }
    let mut findings = Vec::new();
    for file in &tree.files {
        let mut add = |line: usize, phrase: &str| {
            findings.push(format!("{}:{line}: `{phrase}`; {GLOSSARY} has other words", file.path));
        };
        let is_text = file.path.ends_with(".md") || file.path.ends_with(".snap");
        if is_text && file.path != GLOSSARY {
            for (line, phrase) in banned(&file.text, &phrases) {
                add(line, phrase);
            }
        }
        if has_messages(file) {
            for (line, text) in messages(file) {
                for (_, phrase) in banned(&text, &phrases) {
                    add(line, phrase);
                }
            }
        }
    }
    findings
}

/// The first column of the table between two markers of the glossary.
pub(super) fn first_column(tree: &Tree, (begin, end): (&str, &str)) -> Vec<String> {
    let glossary = tree.file(GLOSSARY).map_or("", |file| &file.text);
    let table = glossary.split_once(begin).and_then(|(_, rest)| rest.split_once(end));
    let rows = table.map_or("", |(table, _)| table).lines().filter(|line| line.starts_with('|'));
    let cells = rows.skip(2).filter_map(|row| row.split('|').nth(1));
    cells.map(|cell| cell.trim().to_owned()).filter(|cell| !cell.is_empty()).collect()
}

/// Whether a file is a source of a crate, and neither a test nor the suite of all runtimes.
fn has_messages(file: &File) -> bool {
    let path = &file.path;
    let is_test = |part: &str| {
        part.ends_with("tests.rs") || matches!(part, "tests" | "testing.rs" | "conformance")
    };
    path.starts_with("crates/")
        && path.contains("/src/")
        && path.ends_with(".rs")
        && !path.starts_with(RECORDED)
        && !path.split('/').any(is_test)
}

/// The string literals of a source and its help texts, each with its line. Tests, which are last in
/// a source, are left out.
fn messages(file: &File) -> Vec<(usize, String)> {
    let tests = ["\n#[cfg(test)]\nmod tests {", "\n#[cfg(test)]\nmod live_tests {"];
    let end = tests.iter().filter_map(|start| file.text.find(start)).min();
    let code = &file.text[..end.unwrap_or(file.text.len())];
    let literals = strings(code).into_iter().map(|(line, text)| (line, message(&text)));
    let mut found: Vec<_> = literals.collect();
    if HELP.iter().any(|help| file.path.starts_with(help)) {
        let mut open: Option<(usize, String)> = None;
        for (number, line) in (1..).zip(code.lines()) {
            match (line.trim_start().strip_prefix("///"), &mut open) {
                (Some(text), Some((_, help))) => help.push_str(text),
                (Some(text), None) => open = Some((number, text.to_owned())),
                (None, _) => found.extend(open.take()),
            }
        }
    }
    found
}

/// A string literal without its escapes and its placeholders.
fn message(literal: &str) -> String {
    let mut text = String::with_capacity(literal.len());
    let mut chars = literal.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('\n') => while chars.next_if(|c| c.is_whitespace()).is_some() {},
                Some('n' | 'r' | 't') => text.push(' '),
                other => text.extend(other),
            },
            '{' if chars.next_if_eq(&'{').is_some() => text.push('{'),
            '{' => {
                text.push('{');
                text.extend(chars.by_ref().find(|c| *c == '}'));
            }
            _ => text.push(c),
        }
    }
    text
}

/// Where a text has which of the phrases, as whole words in any case, also across lines. What is in
/// backquotes is left out.
fn banned<'a>(text: &str, phrases: &'a [String]) -> Vec<(usize, &'a str)> {
    let text = without_code(text).to_lowercase();
    let mut flat = String::with_capacity(text.len());
    let mut starts = Vec::new();
    for line in text.lines() {
        starts.push(flat.len());
        for word in line.split_whitespace() {
            flat.push_str(word);
            flat.push(' ');
        }
    }
    let mut found = Vec::new();
    for phrase in phrases {
        for (at, _) in flat.match_indices(phrase.as_str()) {
            if stands_alone(&flat[..at], &flat[at + phrase.len()..]) {
                found.push((starts.partition_point(|start| *start <= at), phrase.as_str()));
            }
        }
    }
    found.sort_unstable();
    found
}

/// Whether what is between two texts is whole words, and no value such as `nobody` in SQL and in
/// `/etc/passwd`.
fn stands_alone(before: &str, after: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let mut after = after.chars();
    let (last, first) = (before.chars().next_back(), after.next());
    let is_field = first == Some(':') && after.next().is_some_and(|c| !c.is_whitespace());
    !last.is_some_and(|c| word(c) || matches!(c, '\'' | ':'))
        && !first.is_some_and(word)
        && !is_field
}

/// A text with one backquote in the place of each span of code and its backquotes; lines stay.
fn without_code(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('`') {
        let width = rest[start..].bytes().take_while(|byte| *byte == b'`').count();
        let (fence, inside) = rest[start..].split_at(width);
        plain.push_str(&rest[..start]);
        plain.push('`');
        rest = inside;
        if let Some(length) = fence_end(inside, fence) {
            plain.extend(inside[..length].chars().filter(|c| *c == '\n'));
            rest = &inside[length + width..];
        }
    }
    plain.push_str(rest);
    plain
}

/// Where the next run of backquotes is that is exactly as long as this one.
fn fence_end(text: &str, fence: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        let start = at + text[at..].find('`')?;
        let width = text[start..].bytes().take_while(|byte| *byte == b'`').count();
        if width == fence.len() {
            return Some(start);
        }
        at = start + width;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "<!-- banned phrases: begin -->\n| phrase | write instead |\n|---|---|\n\
                         | nobody | no user |\n| goes on | continues |\n\
                         <!-- banned phrases: end -->\n`nobody` goes on\n";

    fn check_one(path: &str, text: &str) -> Vec<Finding> {
        check(&Tree::of(&[(GLOSSARY, TABLE), (path, text)]))
    }

    fn lines(path: &str, text: &str) -> Vec<String> {
        let lines = check_one(path, text).into_iter().map(|finding| {
            finding.strip_prefix(path).unwrap().split(';').next().unwrap().to_owned()
        });
        lines.collect()
    }

    #[test]
    fn a_phrase_is_found_in_documents() {
        assert_eq!(lines("a.md", "It\nGoes\non; nobody.\n"), [":2: `goes on`", ":3: `nobody`"]);
        assert_eq!(lines("a.md", "a `b` nobody ``c ` d`` nobody").len(), 2);
        assert!(lines("a.txt", "nobody").is_empty());
    }

    #[test]
    fn code_and_parts_of_words_are_left_out() {
        let text = "`nobody` goes `x` on, nobodys\n```text\nnobody ` goes on\n```\n``a ` nobody``";
        assert_eq!(lines("a.md", text), Vec::<String>::new());
    }

    #[test]
    fn a_phrase_is_found_in_messages() {
        let source = "//! Nobody.\n/// Nobody.\n#[error(\"x {y} \\\n    goes \\\n    on\")]\n\
                      const A: &str = r#\"Nobody\"#;\n";
        assert_eq!(lines("crates/a/src/b.rs", source), [":3: `goes on`", ":6: `nobody`"]);
        assert_eq!(lines("crates/a/src/b/tests.rs", source), Vec::<String>::new());
        assert_eq!(lines("crates/a/tests/b.rs", source), Vec::<String>::new());
        assert_eq!(lines("xtask/src/b.rs", source), Vec::<String>::new());
        let tests = "fn a() {}\n\n#[cfg(test)]\nmod tests {\n    const A: &str = \"nobody\";\n}\n";
        assert_eq!(lines("crates/a/src/b.rs", tests), Vec::<String>::new());
    }

    #[test]
    fn placeholders_and_values_are_left_out() {
        let source =
            "f(\"{nobody} `nobody` goes {x} on\"); g(\"a = 'nobody' nobody:x:65534:nobody:/\")";
        assert_eq!(lines("crates/a/src/b.rs", source), Vec::<String>::new());
    }

    #[test]
    fn a_phrase_is_found_in_help_texts() {
        let source = "/// It goes\n/// on\nstruct A;\n";
        assert_eq!(lines("crates/cli/src/args/a.rs", source), [":1: `goes on`"]);
        assert_eq!(lines("crates/cli/src/a.rs", source), Vec::<String>::new());
    }

    #[test]
    fn a_missing_table_is_found() {
        assert_eq!(check(&Tree::of(&[("a.md", "nobody")])).len(), 1);
    }
}
