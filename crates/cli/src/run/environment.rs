//! The environment of a run's command: the variables that are passed from the caller, the
//! placeholders of secrets, and the requested variables.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use stockade_core::sandbox::User;
use stockade_core::{Code, Problem, SandboxSpec};
use stockade_plan::environment::{self, Account, RESERVED};

/// Variables of the caller that affect presentation or name the author of commits, and give access
/// to nothing.
const INHERITED: [&str; 11] = [
    "COLORTERM",
    "FORCE_COLOR",
    "GIT_AUTHOR_EMAIL",
    "GIT_AUTHOR_NAME",
    "GIT_COMMITTER_EMAIL",
    "GIT_COMMITTER_NAME",
    "LANG",
    "LANGUAGE",
    "NO_COLOR",
    "TERM",
    "TZ",
];

/// The whole environment, as `NAME=VALUE` strings.
///
/// # Errors
/// [`Code::InvalidInput`] for a secret with the name of a variable that every command has.
pub(super) fn build(
    caller: impl Iterator<Item = (OsString, OsString)>,
    network: &[(&'static str, String)],
    placeholders: &[(&str, String)],
    spec: &SandboxSpec,
    own: User,
) -> Result<Vec<CString>, Problem> {
    for (name, _) in placeholders {
        if RESERVED.contains(name) || network.iter().any(|(taken, _)| taken == name) {
            let message = format!("{name} cannot be a secret: Stockade sets it for every command");
            return Err(Problem::new(Code::InvalidInput, message));
        }
    }
    let passed = caller.filter(|(name, _)| is_inherited(name));
    let passed =
        passed.map(|(name, value)| environment::line(name.into_vec(), value.into_vec())).collect();
    let set = network.iter().chain(placeholders);
    let set = set.map(|(name, value)| environment::line(name, value)).collect();
    let requested = spec.environment.iter();
    let requested = requested.map(|(name, value)| environment::line(name, value)).collect();
    let layers: [Vec<Vec<u8>>; 3] = [passed, set, requested];
    environment::build(Account { user: own, own }, layers)
        .into_iter()
        .map(|line| {
            CString::new(line).map_err(|_| {
                Problem::new(Code::InvalidInput, "an environment variable contains a NUL byte")
            })
        })
        .collect()
}

fn is_inherited(name: &OsStr) -> bool {
    INHERITED.iter().any(|passed| name == *passed) || name.as_bytes().starts_with(b"LC_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: User = User { user: 1000, group: 1000 };

    fn build_from(caller: &[(&str, &str)], requested: &[(&str, &str)]) -> Vec<String> {
        let caller = caller.iter().map(|(n, v)| (OsString::from(n), OsString::from(v)));
        let environment = requested.iter().map(|(n, v)| ((*n).to_owned(), (*v).into()));
        let spec = SandboxSpec { environment: environment.collect(), ..SandboxSpec::default() };
        let built = build(caller, &[], &[], &spec, USER).unwrap();
        built.into_iter().map(|line| line.into_string().unwrap()).collect()
    }

    #[test]
    fn only_what_is_named_passes() {
        let caller = [
            ("AWS_SECRET", "x"),
            ("LANG", "C"),
            ("LC_ALL", "C"),
            ("SSH_AUTH_SOCK", "/x"),
            ("PATH", "/evil"),
        ];
        let built = build_from(&caller, &[("A", "b=c"), ("EMPTY", "")]);
        let names: Vec<_> = built.iter().map(|line| line.split('=').next().unwrap()).collect();
        let expected = [
            "A", "EMPTY", "HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "STOCKADE",
            "TMPDIR", "USER",
        ];
        assert_eq!(names, expected);
        assert!(built.contains(&"A=b=c".to_owned()) && built.contains(&"LANG=C".to_owned()));
        assert!(!built.iter().any(|line| line.contains("evil")));
    }

    #[test]
    fn a_secret_takes_the_place_of_nothing() {
        let with = |name: &'static str| {
            let secret = [(name, "placeholder".to_owned())];
            let network = [("HTTP_PROXY", "proxy".to_owned())];
            build(std::iter::empty(), &network, &secret, &SandboxSpec::default(), USER)
        };
        assert!(with("API_KEY").unwrap().contains(&c"API_KEY=placeholder".to_owned()));
        for taken in ["PATH", "HTTP_PROXY"] {
            assert_eq!(with(taken).unwrap_err().code, Code::InvalidInput, "{taken}");
        }
    }

    #[test]
    fn what_is_requested_wins() {
        assert!(
            build_from(&[("LANG", "C")], &[("PATH", "/x"), ("LANG", "de")])
                .iter()
                .all(|line| !line.starts_with("PATH=") || line == "PATH=/x")
        );
    }
}
