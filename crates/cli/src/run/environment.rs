//! The environment of a command: an allowlist of the caller's, values of the
//! sandbox's own, and what was asked for by name.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use stockade_core::{Code, Problem};

/// Variables of the caller that say how to speak, never what to reach.
const KEPT: [&str; 7] = ["COLORTERM", "FORCE_COLOR", "LANG", "LANGUAGE", "NO_COLOR", "TERM", "TZ"];
/// Where programs are, inside.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Builds the whole environment, as `NAME=VALUE` strings.
pub(super) fn build(
    host: impl Iterator<Item = (OsString, OsString)>,
    asked: &[OsString],
    user: &str,
    home: &Path,
    network: &[(&str, String)],
) -> Result<Vec<CString>, Problem> {
    let mut variables: BTreeMap<Vec<u8>, Vec<u8>> = host
        .filter(|(name, _)| is_kept(name))
        .map(|(name, value)| (name.into_vec(), value.into_vec()))
        .collect();
    let own: [(&str, &OsStr); 7] = [
        ("HOME", home.as_os_str()),
        ("LOGNAME", user.as_ref()),
        ("PATH", PATH.as_ref()),
        ("SHELL", "/bin/sh".as_ref()),
        ("STOCKADE", "1".as_ref()),
        ("TMPDIR", "/tmp".as_ref()),
        ("USER", user.as_ref()),
    ];
    for (name, value) in own {
        variables.insert(name.as_bytes().to_vec(), value.as_bytes().to_vec());
    }
    for (name, value) in network {
        if variables.insert(name.as_bytes().to_vec(), value.as_bytes().to_vec()).is_some() {
            let message = format!("{name} cannot be a secret: it is set for every command");
            return Err(Problem::new(Code::InvalidInput, message));
        }
    }
    for assignment in asked {
        let bytes = assignment.as_bytes();
        let refused = || {
            let shown = assignment.to_string_lossy();
            Problem::new(Code::InvalidInput, format!("`--env {shown}` is not NAME=VALUE"))
                .remedied_by("--env NAME=VALUE")
        };
        let at = bytes.iter().position(|b| *b == b'=').filter(|at| *at > 0).ok_or_else(refused)?;
        variables.insert(bytes[..at].to_vec(), bytes[at + 1..].to_vec());
    }
    variables
        .into_iter()
        .map(|(name, value)| {
            CString::new([name, b"=".to_vec(), value].concat())
                .map_err(|_| Problem::new(Code::InvalidInput, "a variable holds a NUL byte"))
        })
        .collect()
}

fn is_kept(name: &OsStr) -> bool {
    KEPT.iter().any(|kept| name == *kept) || name.as_bytes().starts_with(b"LC_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build_from(host: &[(&str, &str)], asked: &[&str]) -> Result<Vec<String>, Problem> {
        let host = host.iter().map(|(n, v)| (OsString::from(n), OsString::from(v)));
        let asked: Vec<_> = asked.iter().map(OsString::from).collect();
        let built = build(host, &asked, "user", Path::new("/home/user"), &[])?;
        Ok(built.into_iter().map(|s| s.into_string().unwrap()).collect())
    }

    #[test]
    fn only_what_is_named_passes() {
        let host = [
            ("AWS_SECRET", "x"),
            ("LANG", "C"),
            ("LC_ALL", "C"),
            ("SSH_AUTH_SOCK", "/x"),
            ("PATH", "/evil"),
        ];
        let built = build_from(&host, &["A=b=c", "EMPTY="]).unwrap();
        let names: Vec<_> = built.iter().map(|s| s.split('=').next().unwrap()).collect();
        let expected = [
            "A", "EMPTY", "HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "STOCKADE",
            "TMPDIR", "USER",
        ];
        assert_eq!(names, expected);
        assert!(built.contains(&"A=b=c".to_owned()));
        assert!(!built.iter().any(|s| s.contains("evil")));
    }

    #[test]
    fn a_secret_takes_the_place_of_nothing() {
        let with = |name: &str| {
            let secret = [(name, "placeholder".to_owned())];
            build(std::iter::empty(), &[], "user", Path::new("/home/user"), &secret)
        };
        assert!(with("API_KEY").unwrap().contains(&c"API_KEY=placeholder".to_owned()));
        assert_eq!(with("PATH").unwrap_err().code, Code::InvalidInput);
    }

    #[test]
    fn what_is_asked_for_wins_and_must_be_an_assignment() {
        assert!(build_from(&[], &["PATH=/x"]).unwrap().contains(&"PATH=/x".to_owned()));
        for bad in ["", "=x", "NAME"] {
            assert_eq!(build_from(&[], &[bad]).unwrap_err().code, Code::InvalidInput, "{bad}");
        }
    }
}
