//! `runArgs`: flags of `docker run`, of which those are accepted that a sandbox has too.

use std::ffi::OsString;

use clap::{Args as _, Command, FromArgMatches as _};

use crate::args::sandbox_flags::SandboxFlags;

/// The flags of Docker that are accepted, with their names here.
const FLAGS: [(&str, &str); 16] = [
    ("--memory", "--memory"),
    ("-m", "--memory"),
    ("--cpus", "--cpus"),
    ("--pids-limit", "--pids"),
    ("--shm-size", "--shm"),
    ("--env", "--env"),
    ("-e", "--env"),
    ("--label", "--label"),
    ("-l", "--label"),
    ("--volume", "--volume"),
    ("-v", "--volume"),
    ("--mount", "--mount"),
    ("--user", "--user"),
    ("-u", "--user"),
    ("--workdir", "--cwd"),
    ("-w", "--cwd"),
];

/// The flags of a sandbox for these arguments.
///
/// # Errors
/// Which argument is refused, and why.
pub(super) fn flags(arguments: &[String]) -> Result<SandboxFlags, String> {
    let mut words: Vec<OsString> = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let (name, value) = match argument.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
            _ => (argument.as_str(), None),
        };
        // What every sandbox is.
        if value.is_none() && matches!(name, "--init" | "--rm") {
            continue;
        }
        if matches!(name, "--network" | "--net") {
            let value = value.or_else(|| rest.next().cloned());
            if value.as_deref() == Some("none") {
                continue;
            }
            return Err(format!(
                "{name:?} is refused: what a sandbox may connect to is said by --allow"
            ));
        }
        let Some((_, own)) = FLAGS.iter().find(|(docker, _)| *docker == name) else {
            return Err(format!("{name:?} is refused: a sandbox has no such option"));
        };
        let value = value.or_else(|| rest.next().cloned());
        let value = value.ok_or_else(|| format!("{name:?} needs a value"))?;
        words.push(format!("{own}={value}").into());
    }
    let command = SandboxFlags::augment_args(Command::new("runArgs").no_binary_name(true));
    let matches = command.try_get_matches_from(words).map_err(|error| {
        let text = error.to_string();
        text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
    })?;
    SandboxFlags::from_arg_matches(&matches).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<SandboxFlags, String> {
        flags(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn flags_have_their_own_names_and_others_are_refused() {
        let flags = read(&["--memory=1g", "--cpus", "0.5", "-e", "A=b", "--init", "-v", "a:/a"]);
        let flags = flags.unwrap();
        assert_eq!(flags.memory.unwrap().0, Some(1 << 30));
        assert_eq!(flags.cpus.unwrap().0, Some(500));
        assert_eq!((flags.variables.env[0].to_str(), flags.volume.len()), (Some("A=b"), 1));
        read(&["--network", "none", "--network=none"]).unwrap();
        for (words, part) in [
            (&["--privileged"][..], "--privileged"),
            (&["--cap-add=SYS_PTRACE"], "--cap-add"),
            (&["--security-opt", "seccomp=unconfined"], "--security-opt"),
            (&["--network=host"], "--network"),
            (&["--device", "/dev/kvm"], "--device"),
            (&["--profile", "x"], "--profile"),
            (&["--allow", "x"], "--allow"),
            (&["--memory"], "needs a value"),
            (&["--memory", "much"], "much"),
            (&["image"], "image"),
        ] {
            let error = read(words).unwrap_err();
            assert!(error.contains(part), "{words:?}: {error}");
        }
    }
}
