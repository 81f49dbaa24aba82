//! What a bundle holds, in words for people.

use std::time::{SystemTime, UNIX_EPOCH};

use stockade_bundle::apply::{Left, Skip};
use stockade_bundle::manifest::{ExecutedBy, Refusal};
use stockade_bundle::{Change, Entry, Node, RelativePath};

/// How `git status` would mark an entry: `A`, `M`, `D`, `R`, or `T` for a change of type.
pub(crate) fn letter(entry: &Entry) -> char {
    match &entry.change {
        Change::Add { .. } if entry.renamed_from.is_some() => 'R',
        Change::Add { .. } => 'A',
        Change::Delete { .. } => 'D',
        Change::Modify { old, new }
            if std::mem::discriminant(old) != std::mem::discriminant(new) =>
        {
            'T'
        }
        Change::Modify { .. } => 'M',
    }
}

/// An entry's path, with where it came from when it was renamed and a slash when it is a
/// directory.
pub(crate) fn path(entry: &Entry) -> String {
    let node = entry.change.new_node().or_else(|| entry.change.old());
    let slash = if matches!(node, Some(Node::Directory { .. })) { "/" } else { "" };
    match &entry.renamed_from {
        Some(from) => format!("{from} => {}{slash}", entry.path),
        None => format!("{}{slash}", entry.path),
    }
}

pub(crate) fn refusal(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::GitDirectory => "is or lies in a `.git`",
        Refusal::BareRepository => "makes or alters a bare git repository",
        Refusal::LinkLeaves => "is a link that leaves the project",
        Refusal::SpecialFile => "is a socket, pipe or device",
        Refusal::PathTooLong => "has a path that is too long",
    }
}

pub(crate) fn executed(by: ExecutedBy) -> &'static str {
    match by {
        ExecutedBy::Hooks => "run by git or a hook manager",
        ExecutedBy::Shell => "run by the shell on entering the directory",
        ExecutedBy::Editor => "run by an editor or agent on opening the directory",
        ExecutedBy::Ci => "run by continuous integration",
        ExecutedBy::Build => "run by a build tool or package manager",
    }
}

/// Why an entry was left out.
pub(crate) fn skip(skip: &Skip) -> String {
    match skip {
        Skip::Refused(refused) => refusal(*refused).to_owned(),
        Skip::Reserved => "has a name that Stockade itself uses".to_owned(),
        Skip::Ignored => "is ignored by git".to_owned(),
        Skip::Needs(path) => format!("needs {path}, which is left out"),
        Skip::NotEmpty => "is a directory that holds other files".to_owned(),
    }
}

/// What an undo could not put back.
pub(crate) fn left(left: &Left) -> String {
    let path = &left.path;
    match &left.kept {
        Some(kept) => {
            format!("{path} was changed since and is left so; what it was before is in {kept}")
        }
        None => format!("{path} was changed since and is left so"),
    }
}

/// How long ago a moment was, roughly.
pub(crate) fn age(created_at_ms: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    let seconds = now_ms.saturating_sub(created_at_ms) / 1000;
    let (count, unit) = match seconds {
        0..60 => return "just now".to_owned(),
        60..3_600 => (seconds / 60, "minute"),
        3_600..86_400 => (seconds / 3_600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural} ago")
}

/// A word for a shell, so that it means just these bytes.
pub(crate) fn shell(bytes: &[u8]) -> String {
    let is_plain =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+,:@%=".contains(byte) || *byte >= 0x80;
    let text = std::str::from_utf8(bytes).ok().filter(|text| !text.chars().any(char::is_control));
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

/// Paths as arguments for a shell, at most so many.
pub(crate) fn arguments<'a>(
    paths: impl Iterator<Item = &'a RelativePath>,
    at_most: usize,
) -> String {
    let argument = |path: &RelativePath| match path.as_bytes() {
        // A path that begins with a dash is no option.
        bytes @ [b'-', ..] => shell(&[b"./", bytes].concat()),
        bytes => shell(bytes),
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
            let script = format!("printf %s {}", shell(bytes));
            let output = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
            assert_eq!(output.stdout, bytes, "{script}");
        }
        let odd = RelativePath::new("-r f").unwrap();
        assert_eq!(arguments([&odd, &odd].into_iter(), 1), "'./-r f'");
    }

    #[test]
    fn ages_are_rounded_down() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        let now = u64::try_from(now).unwrap();
        assert_eq!(age(now), "just now");
        assert_eq!(age(now - 61_000), "1 minute ago");
        assert_eq!(age(now - 2 * 86_400_000 - 5_000), "2 days ago");
        assert_eq!(age(u64::MAX), "just now");
    }
}
