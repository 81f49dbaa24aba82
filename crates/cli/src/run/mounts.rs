//! `--mount HOST:PATH[:ro]`: what of the host is shown inside because it was asked for.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use stockade_core::{Code, Problem};
use stockade_jail::{Access, HostTree, Mount, Owners, Source};

/// Places inside that belong to the sandbox itself.
const RESERVED: [&str; 3] = ["/dev", "/proc", "/sys"];

/// One mount that was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) host: PathBuf,
    pub(super) inside: PathBuf,
    pub(super) access: Access,
}

/// Reads one argument.
pub(super) fn parse(argument: &OsStr) -> Result<Asked, Problem> {
    let refused = |why: &str| {
        let shown = argument.to_string_lossy();
        Problem::new(Code::InvalidInput, format!("`--mount {shown}`: {why}"))
            .remedied_by("--mount /path/on/host:/path/inside:ro")
    };
    let bytes = argument.as_bytes();
    let (bytes, access) = match bytes.strip_suffix(b":ro") {
        Some(rest) => (rest, Access::Read),
        None => (bytes.strip_suffix(b":rw").unwrap_or(bytes), Access::Write),
    };
    // The path inside is absolute, so the last `:/` parts the two even where names hold colons.
    let at = bytes
        .windows(2)
        .rposition(|pair| pair == b":/")
        .filter(|at| *at > 0)
        .ok_or_else(|| refused("no absolute path inside is named"))?;
    let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
    let (host, inside) = (path(&bytes[..at]), path(&bytes[at + 1..]));
    if !inside.components().all(|c| matches!(c, Component::RootDir | Component::Normal(_))) {
        return Err(refused("the path inside has a `..`"));
    }
    if inside == Path::new("/") {
        return Err(refused("the root is not replaced by a mount").remedied_by("--image DIR"));
    }
    if RESERVED.iter().any(|reserved| inside.starts_with(reserved)) {
        return Err(refused("that place belongs to the sandbox itself"));
    }
    Ok(Asked { host, inside, access })
}

impl Asked {
    /// The mount, where the host has what was named and it is nothing of Stockade's own.
    pub(super) fn open(self, data: &Path, project: &Path) -> Result<(PathBuf, Mount), Problem> {
        let shown = self.host.display().to_string();
        let unreadable = |e: std::io::Error| {
            Problem::new(Code::InvalidInput, format!("cannot mount {shown}")).because(e.to_string())
        };
        let host = std::fs::canonicalize(&self.host).map_err(unreadable)?;
        if host.starts_with(data) || data.starts_with(&host) {
            return Err(Problem::new(
                Code::PathRefused,
                format!("{shown} holds Stockade's own data, which is never shown inside"),
            ));
        }
        // A mount point that is missing from the project would have to be made in its view, and
        // would come back as a change.
        if let Ok(below) = self.inside.strip_prefix(project)
            && std::fs::symlink_metadata(project.join(below)).is_err()
        {
            return Err(Problem::new(
                Code::InvalidInput,
                format!("{} does not exist in the project", self.inside.display()),
            )
            .remedied_by("mount outside the project, or make the file or directory first"));
        }
        let tree = HostTree::open(&host).map_err(unreadable)?;
        let source = Source::Host { tree, access: self.access, owners: Owners::OnDisk };
        Ok((self.inside, Mount::Tree(source)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_text(text: &str) -> Result<Asked, Problem> {
        parse(OsStr::new(text))
    }

    #[test]
    fn both_paths_and_the_access_are_read() {
        let asked = |host: &str, inside: &str, access| Asked {
            host: host.into(),
            inside: inside.into(),
            access,
        };
        assert_eq!(parse_text("/a:/b").unwrap(), asked("/a", "/b", Access::Write));
        assert_eq!(parse_text("a:/b:ro").unwrap(), asked("a", "/b", Access::Read));
        assert_eq!(parse_text("/a:b:/c:rw").unwrap(), asked("/a:b", "/c", Access::Write));
    }

    #[test]
    fn what_would_hide_the_sandbox_is_refused() {
        for bad in ["", "/a", "/a:b", ":/b", "/a:/", "/a:/proc", "/a:/dev/x", "/a:/b/../c", "/a:ro"]
        {
            assert!(parse_text(bad).is_err(), "{bad}");
        }
    }
}
