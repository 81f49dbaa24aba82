//! The two programs of Stockade, `stockade` and `stockade-server`. Each finds the other in the directory
//! of its own executable, and refuses to work with another build.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use stockade_core::{Code, Problem};

/// The executable of this process, even if its file has been replaced.
pub const OWN_EXECUTABLE: &str = "/proc/self/exe";
/// The program for users: it starts the other program for what it cannot do itself.
pub const FRONT: &str = "stockade";
/// The program with the engines and the database.
pub const SERVER: &str = "stockade-server";

/// Identifies the sources that both programs share.
pub const BUILD: &str = concat!(env!("CARGO_PKG_VERSION"), "-", env!("STOCKADE_BUILD"));
/// The prefix of the argument with which a program sends its build to the other.
const BUILD_ARGUMENT: &str = "--build=";

/// The argument that sends this build to the other program; it precedes the other arguments.
#[must_use]
pub fn build_argument() -> OsString {
    format!("{BUILD_ARGUMENT}{BUILD}").into()
}

/// The arguments after the one with the build of the program that started this one. There is no
/// such argument if a user started it.
///
/// # Errors
/// [`Code::Unsupported`] when it is another build.
pub fn check_build(arguments: &[OsString]) -> Result<&[OsString], Problem> {
    let Some((first, rest)) = arguments.split_first() else { return Ok(arguments) };
    match first.to_str().and_then(|first| first.strip_prefix(BUILD_ARGUMENT)) {
        None => Ok(arguments),
        Some(BUILD) => Ok(rest),
        Some(other) => {
            let message =
                format!("{FRONT} and {SERVER} are from different builds, {other} and {BUILD}");
            Err(Problem::new(Code::Unsupported, message).remedied_by("cargo build --release"))
        }
    }
}

/// The path of a program in the directory of this process's executable.
///
/// # Errors
/// [`Code::Unsupported`] when it does not exist.
pub fn sibling_program(name: &str) -> Result<PathBuf, Problem> {
    let ourselves = std::fs::read_link(OWN_EXECUTABLE);
    // If the file was replaced, the kernel appends a mark to the file name, but not to the
    // directory's.
    let path = ourselves.map_err(|error| Problem::caused(Code::Io, &error))?.with_file_name(name);
    if path.is_file() {
        return Ok(path);
    }
    let remedy = match name {
        SERVER => "cargo build --release -p stockade-host",
        _ => "cargo build --release",
    };
    let message = format!("this requires the program {name}, which is missing");
    Err(Problem::new(Code::Unsupported, message)
        .because(format!("there is no {}", path.display()))
        .remedied_by(remedy))
}

/// Executes `stockade-server` in this process, with the same arguments. Returns only if that fails.
pub(crate) fn become_server(arguments: &[OsString]) -> Problem {
    let path = match sibling_program(SERVER) {
        Ok(path) => path,
        Err(problem) => return problem,
    };
    let error = Command::new(&path).arg(build_argument()).args(arguments).exec();
    Problem::new(Code::LaunchFailed, format!("cannot start {}", path.display()))
        .because(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_build_is_refused() {
        let rest = [OsString::from("graph"), OsString::from("--build=x")];
        let ours = [&[build_argument()], rest.as_slice()].concat();
        assert_eq!(check_build(&ours), Ok(rest.as_slice()));
        // A user passes no build.
        assert_eq!(check_build(&rest), Ok(rest.as_slice()));
        assert_eq!(check_build(&[]), Ok([].as_slice()));
        let problem = check_build(&rest[1..]).unwrap_err();
        assert_eq!(problem.code, Code::Unsupported);
        assert_eq!(problem.remediation.as_deref(), Some("cargo build --release"));
    }

    #[test]
    fn a_missing_program_is_named_with_what_builds_it() {
        let problem = sibling_program(SERVER).unwrap_err();
        assert!(problem.message.contains(SERVER), "{problem:?}");
        assert_eq!(problem.remediation.as_deref(), Some("cargo build --release -p stockade-host"));
    }
}
