//! Texts for users: why a path of a bundle is treated in a certain way; and quoting of paths for a
//! shell.

use stockade_api::SkippedPath;
use stockade_bundle::RelativePath;
use stockade_bundle::apply::{NotRestored, Skip};
use stockade_bundle::manifest::{ExecutedBy, Refusal};
use stockade_core::printable::is_printable;

/// Why an entry is never applied.
pub fn refusal(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::GitDirectory => "is a `.git` directory or inside one",
        Refusal::BareRepository => "creates or changes a bare git repository",
        Refusal::LinkLeaves => "is a link that leaves the project",
        Refusal::SpecialFile => "is a socket, pipe or device",
        Refusal::PathTooLong => "has a path that is too long",
    }
}

/// Which tool executes a file automatically.
pub fn executed_by(by: ExecutedBy) -> &'static str {
    match by {
        ExecutedBy::Hooks => "executed by git or a hook manager",
        ExecutedBy::Shell => "executed by the shell on entering the directory",
        ExecutedBy::Editor => "executed by an editor or agent on opening the directory",
        ExecutedBy::Ci => "executed by continuous integration",
        ExecutedBy::Build => "executed by a build tool or package manager",
    }
}

/// Why an entry was left out.
pub fn skip(skip: &Skip) -> String {
    match skip {
        Skip::Refused(refused) => refusal(*refused).to_owned(),
        Skip::Reserved => "has a name that is reserved for Stockade".to_owned(),
        Skip::Ignored => "is ignored by git".to_owned(),
        Skip::Executed(by) => format!("is {}", executed_by(*by)),
        Skip::Unseen => "has new content that the diff does not show".to_owned(),
        Skip::MissingDependency(path) => format!("needs {path}, which is skipped"),
        Skip::NotEmpty => "is a directory that contains other files".to_owned(),
    }
}

/// What was skipped, on one line.
pub fn skipped(skip: &SkippedPath) -> String {
    let path = RelativePath::new(skip.path.0.as_slice());
    let path = path.map_or_else(|_| ".".to_owned(), |path| path.to_string());
    match skip.paths {
        1 => format!("{path} {}", skip.reason),
        count => format!("{path}/: {count} paths, each {}", skip.reason),
    }
}

/// What an undo could not restore.
pub fn not_restored(left: &NotRestored) -> String {
    let path = &left.path;
    match &left.preserved_at {
        Some(kept) => {
            format!("{path} has changed since and was not restored; its old content is in {kept}")
        }
        None => format!("{path} has changed since and was not restored"),
    }
}

/// Quotes bytes as one shell word that expands to exactly these bytes.
pub fn shell_quote(bytes: &[u8]) -> String {
    let is_plain =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+,:@%=".contains(byte) || *byte >= 0x80;
    let text = std::str::from_utf8(bytes).ok().filter(|text| is_printable(text));
    match text {
        Some(text) if !text.is_empty() && bytes.iter().all(is_plain) => text.to_owned(),
        Some(text) => format!("'{}'", text.replace('\'', "'\\''")),
        None => {
            let escaped: String = bytes
                .iter()
                .map(|byte| match byte {
                    b'\'' | b'\\' => format!("\\{}", char::from(*byte)),
                    0x20..0x7f => char::from(*byte).to_string(),
                    byte => format!("\\x{byte:02x}"),
                })
                .collect();
            format!("$'{escaped}'")
        }
    }
}

/// Paths as shell arguments, at most `at_most` of them.
pub fn shell_arguments<'a>(
    paths: impl Iterator<Item = &'a RelativePath>,
    at_most: usize,
) -> String {
    let argument = |path: &RelativePath| match path.as_bytes() {
        // A path that starts with a dash must not be parsed as an option.
        bytes @ [b'-', ..] => shell_quote(&[b"./", bytes].concat()),
        bytes => shell_quote(bytes),
    };
    paths.take(at_most).map(argument).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_back_what_was_written() {
        for bytes in [
            &b"plain/path.rs"[..],
            b"with space",
            b"it's",
            b"$(rm -rf x)`y`",
            b"new\nline",
            b"\xff\xfe'\\\"",
            b"a*?[b]",
            "grün".as_bytes(),
        ] {
            let script = format!("printf %s {}", shell_quote(bytes));
            let output = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
            assert_eq!(output.stdout, bytes, "{script}");
        }
        let odd = RelativePath::new("-r f").unwrap();
        assert_eq!(shell_arguments([&odd, &odd].into_iter(), 1), "'./-r f'");
    }
}
