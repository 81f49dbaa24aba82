//! Names as the file systems of other machines read them: without letter case, without
//! invisible code points, and without the parts that Windows cuts off.

use stockade_core::printable::is_ignorable;

/// Whether a path component is `.git` to any file system: in any letter case, with ignorable
/// code points in it (HFS+, ext4 with casefold), with trailing dots, spaces or a stream name
/// (NTFS), or as its short name `git~1`. Backslashes separate components, as on Windows.
///
/// Source: git's `is_hfs_dotgit` and `is_ntfs_dotgit`, but with Unicode's whole
/// `Default_Ignorable_Code_Point` set instead of the subset that HFS+ ignores.
pub fn is_git_directory(component: &[u8]) -> bool {
    component
        .split(|b| *b == b'\\')
        .any(|part| matches!(folded(part).as_slice(), b".git" | b"git~1"))
}

/// A component in normal form: ASCII in lower case, ignorable code points removed, cut at the
/// first `:`, without trailing dots and spaces.
pub(super) fn folded(component: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(component.len());
    for chunk in component.utf8_chunks() {
        for c in chunk.valid().chars().filter(|c| !is_ignorable(*c)) {
            let mut buffer = [0; 4];
            plain.extend_from_slice(c.to_ascii_lowercase().encode_utf8(&mut buffer).as_bytes());
        }
        plain.extend_from_slice(chunk.invalid());
    }
    if let Some(colon) = plain.iter().position(|b| *b == b':') {
        plain.truncate(colon);
    }
    while matches!(plain.last(), Some(b'.' | b' ')) {
        plain.pop();
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_is_known_in_every_disguise() {
        for name in [
            ".git",
            ".GIT",
            ".Git",
            ".git.",
            ".git ",
            ".git. . ",
            ".git::$INDEX_ALLOCATION",
            ".git:stream",
            "git~1",
            "GIT~1",
            "git~1.",
            ".g\u{200c}it",
            "\u{feff}.git",
            ".gi\u{2060}t",
            ".git\u{206f}",
            ".g\u{ad}it",
            "a\\.git\\config",
            ".git\\config",
        ] {
            assert!(is_git_directory(name.as_bytes()), "{name:?}");
        }
        for name in [
            ".gitignore",
            "git",
            "git~2",
            ".gitx",
            "..git",
            ".git~1",
            "x.git",
            " .git",
            "g\u{131}t",
            ".g\u{131}t",
        ] {
            assert!(!is_git_directory(name.as_bytes()), "{name:?}");
        }
        assert!(!is_git_directory(b".gi\xfft"));
    }
}
