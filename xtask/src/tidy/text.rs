//! Every text of the project: clean lines, no open tasks, no path or host of a particular machine.

use super::{File, Finding, Tree};

/// The hosts that a text of the project may name.
const HOSTS: &[&str] = &[
    // Links to the playground of the reference lead there; nothing here contacts it.
    "directive.run",
    "doc.rust-lang.org",
    "docs.rs",
    "github.com",
    // The name of Docker's registry in its configuration, and the host that serves it. Tests ask
    // only mirrors on the loopback.
    "index.docker.io",
    "registry-1.docker.io",
    "keepachangelog.com",
    "man7.org",
    "semver.org",
    // Where agents that are models are asked, if the user binds a secret to them. Tests ask a double.
    "api.anthropic.com",
    "api.openai.com",
    "www.apache.org",
    "www.kernel.org",
    "www.rfc-editor.org",
    // Part of the names of formats, such as that of SVG.
    "www.w3.org",
];

/// Where each rule about a tool cites the tool's own documentation. Nothing contacts these hosts.
const SOURCES: &[&str] = &["crates/bundle/src/policy/"];

/// Reserved names that do not resolve, with everything below them (RFC 2606, RFC 6761).
const RESERVED_HOSTS: &[&str] = &["example", "example.com", "example.org", "localhost", "test"];

/// Checks each file that is text.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let texts = tree.files.iter().filter(|file| is_text(file));
    texts
        .flat_map(|file| {
            let mut findings = Vec::new();
            if !file.text.is_empty() && !file.text.ends_with('\n') {
                findings.push(format!("{}: does not end with a line break", file.path));
            }
            let cites = SOURCES.iter().any(|path| file.path.starts_with(path));
            for (number, line) in (1..).zip(file.text.lines()) {
                let problems = line_problems(line, cites);
                findings.extend(problems.map(|what| format!("{}:{number}: {what}", file.path)));
            }
            findings
        })
        .collect()
}

/// Seeds of the fuzzer and cases are data, and built pages the output of a program: they may contain any byte
/// and any path.
fn is_text(file: &File) -> bool {
    let is_data = file.path.starts_with("fuzz/corpus/")
        || file.path.starts_with("crates/server/pages/")
        || file.path.starts_with("tests/cases/") && file.path.ends_with(".json");
    !is_data && !file.text.contains('\0')
}

fn line_problems(line: &str, cites: bool) -> impl Iterator<Item = String> {
    let mut problems = Vec::new();
    if line.ends_with([' ', '\t', '\r']) {
        problems.push("ends with white space".to_owned());
    }
    for word in todo_words() {
        if line.contains(&word) {
            problems.push(format!("holds `{word}`"));
        }
    }
    for path in machine_paths() {
        if absolute_path(line, &path) {
            problems.push(format!("names `{path}`, a path of one machine"));
        }
    }
    for host in hosts(line) {
        if !cites && !HOSTS.contains(&host) && !is_reserved(host) {
            problems.push(format!("names the host `{host}`"));
        }
    }
    problems.into_iter()
}

fn is_reserved(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let below = |name: &&str| {
        host.strip_suffix(*name).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    RESERVED_HOSTS.iter().any(below)
}

/// Written in halves, so that this file does not contain them.
fn todo_words() -> [String; 2] {
    [["TO", "DO"], ["FIX", "ME"]].map(|halves| halves.concat())
}

/// Directories of the machines that Stockade was written on, in halves for the same reason.
fn machine_paths() -> [String; 4] {
    [["/wo", "rk/"], ["/root/.ca", "che"], ["/root/.ca", "rgo"], ["/root/.rus", "tup"]]
        .map(|halves| halves.concat())
}

/// Whether `path` starts a path in `line`, rather than continuing one.
fn absolute_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '}' | '*'))
    })
}

/// The hosts of the web addresses in a line.
fn hosts(line: &str) -> impl Iterator<Item = &str> {
    line.split("://").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-')));
        let host = &rest[..end.unwrap_or(rest.len())];
        // Also in its hexadecimal forms.
        let is_number = |part: &str| {
            let digits = part.strip_prefix("0x").unwrap_or(part);
            digits.bytes().all(|b| b.is_ascii_digit() || digits != part && b.is_ascii_hexdigit())
        };
        let is_address = host.split('.').all(is_number);
        (!is_address && host.contains('.')).then_some(host)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(line: &str) -> Vec<String> {
        line_problems(line, false).collect()
    }

    #[test]
    fn clean_lines_pass() {
        for line in [
            "",
            "    code",
            "a network://",
            "http://127.0.0.1:80",
            "http://0x7f.1/",
            "https://mirror.test/x",
            "see https://docs.rs/x",
        ] {
            assert_eq!(problems(line), Vec::<String>::new(), "{line}");
        }
        assert!(problems(&["target", "/wo", "rk/x"].concat()).is_empty());
    }

    #[test]
    fn each_kind_of_dirt_is_found() {
        let dirt = [
            "code ".to_owned(),
            "code\t".to_owned(),
            ["// TO", "DO later"].concat(),
            ["cd /wo", "rk/tree"].concat(),
            ["\"/root/.ca", "rgo/bin\""].concat(),
            ["https:/", "/mirror.corp/x"].concat(),
        ];
        for line in dirt {
            assert_eq!(problems(&line).len(), 1, "{line}");
        }
    }

    #[test]
    fn a_file_ends_with_a_line_break_unless_it_is_data() {
        let files = [("a.txt", "x"), ("b.bin", "x\0 "), ("fuzz/corpus/patch/c", "x \n")];
        assert_eq!(check(&Tree::of(&files)), ["a.txt: does not end with a line break"]);
        assert_eq!(check(&Tree::of(&[("d.txt", "x \n")])), ["d.txt:1: ends with white space"]);
    }
}
