//! Absolute paths inside a sandbox as bytes: their normal form, and which path is below which.

/// The longest path in bytes, as on Linux (`PATH_MAX` without its final NUL).
const MAX_BYTES: usize = 4_095;

/// The path with single slashes, without `.` and without a trailing slash; `/` stays as it is.
pub(super) fn normalize(path: &[u8]) -> Result<Vec<u8>, &'static str> {
    if path.is_empty() {
        return Err("it is empty");
    }
    if path[0] != b'/' {
        return Err("it is not absolute");
    }
    if path.len() > MAX_BYTES {
        return Err("it is longer than 4095 bytes");
    }
    if path.contains(&0) {
        return Err("it contains a NUL byte");
    }
    let mut normal = Vec::with_capacity(path.len());
    for component in path.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => return Err("it contains `..`"),
            name => {
                normal.push(b'/');
                normal.extend_from_slice(name);
            }
        }
    }
    if normal.is_empty() {
        normal.push(b'/');
    }
    Ok(normal)
}

/// Whether a path in normal form equals another one or is below it.
pub(super) fn is_at_or_below(path: &[u8], top: &[u8]) -> bool {
    match path.strip_prefix(top) {
        Some(rest) => rest.is_empty() || rest[0] == b'/' || top == b"/",
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_normal_form() {
        for (path, expected) in [
            ("/", "/"),
            ("///", "/"),
            ("/.", "/"),
            ("/a/", "/a"),
            ("//a//./b/.", "/a/b"),
            ("/a/..b/c..", "/a/..b/c.."),
            ("/%2e%2e/*", "/%2e%2e/*"),
        ] {
            assert_eq!(normalize(path.as_bytes()).unwrap(), expected.as_bytes(), "{path}");
        }
        assert_eq!(normalize(b"/\xff/").unwrap(), b"/\xff");
        assert_eq!(normalize(&[b"/".as_slice(), &[b'a'; 4_094]].concat()).unwrap().len(), 4_095);
        for path in ["", "a", "./a", "~", "/..", "/a/../b", "/a/..", "/a\0", "C:\\"] {
            assert!(normalize(path.as_bytes()).is_err(), "{path:?}");
        }
        assert!(normalize(&[b"/".as_slice(), &[b'a'; 4_095]].concat()).is_err());
    }

    #[test]
    fn below_is_by_component() {
        for (path, top) in [("/a", "/a"), ("/a/b", "/a"), ("/", "/"), ("/a", "/"), ("/*/a", "/*")] {
            assert!(is_at_or_below(path.as_bytes(), top.as_bytes()), "{path} {top}");
        }
        for (path, top) in
            [("/ab", "/a"), ("/a.b", "/a"), ("/", "/a"), ("/a", "/a/b"), ("/A", "/a")]
        {
            assert!(!is_at_or_below(path.as_bytes(), top.as_bytes()), "{path} {top}");
        }
    }
}
