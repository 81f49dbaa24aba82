//! The scripts with which commands run inside: their output goes to files, and the exit code to
//! another one, which is there when all output is.

use remote::Setting;
pub(crate) use remote::{
    CLOSED, ERRORS, EXITED, INPUT, NO_DIRECTORY, NO_PROGRAM, OUTPUT, PIECE, PROCESS, RESULT,
    SCRIPT, quoted_text,
};
use stockade_core::ExecId;
use stockade_runtime::Command;
use stockade_runtime_remote::script as remote;

/// The directory inside with the files of commands.
pub(crate) const DIRECTORY: &str = "/tmp/.stockade-commands";

/// The directory of a command.
pub(crate) fn directory(exec: &ExecId) -> String {
    format!("{DIRECTORY}/{exec}")
}

/// The command line that runs a script. The command in it runs once: the script that makes the directory
/// `started` runs it, and each later script waits for that one, so that it ends with the command.
pub(crate) fn start(exec: &ExecId) -> String {
    format!("exec sh {}/{SCRIPT}", directory(exec))
}

/// The command line that kills the process group of a command. One that has not started never does. Signals
/// have no `--` before the group: shells do not agree about it.
pub(crate) fn kill(exec: &ExecId) -> String {
    format!(
        "d={}; [ ! -d $d ] || mkdir $d/started 2>/dev/null || {{ {}; kill -9 -$(cat $d/{PROCESS}) 2>/dev/null; }}; :",
        directory(exec),
        until_written(&format!("$d/{PROCESS}"))
    )
}

/// The command line that sends a signal to it. Its number is known a moment after the start.
pub(crate) fn send_signal(exec: &ExecId, signal: i32) -> String {
    format!("f={}/{PROCESS}; {}; kill -{signal} -$(cat $f)", directory(exec), until_written("$f"))
}

/// Waits until a file has something, at most five seconds.
fn until_written(file: &str) -> String {
    format!("n=0; while [ ! -s {file} ] && [ $n -lt 50 ]; do sleep 0.1; n=$((n+1)); done")
}

/// The script of a command.
pub(crate) fn script(exec: &ExecId, command: &Command, default_directory: Option<&str>) -> Vec<u8> {
    let own = directory(exec);
    let otherwise = format!(
        "{}; while [ ! -e {own}/{RESULT} ] && kill -0 -$(cat {own}/{PROCESS}) 2>/dev/null; do sleep 0.1; done;",
        until_written(&format!("{own}/{PROCESS}"))
    );
    remote::script(&own, command, Setting { otherwise: &otherwise, setup: "", default_directory })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use stockade_runtime::StandardInput;

    use super::*;

    #[test]
    fn a_script_runs_once_with_its_input_and_says_how_it_ended() {
        let own = tempfile::tempdir().unwrap();
        let exec = ExecId::new("one").unwrap();
        let arguments = ["sh", "-c", "cat; echo \"$A B\"; echo error >&2; pwd; exit 7"];
        let command = Command {
            arguments: arguments.map(OsString::from).into(),
            environment: [("A".into(), "it's".into())].into(),
            ..Command::default()
        };
        let text = String::from_utf8(script(&exec, &command, Some("/usr"))).unwrap();
        let here = own.path().to_str().unwrap();
        let text = text.replace(&directory(&exec), here);
        std::fs::write(own.path().join(INPUT), "input\n").unwrap();
        for _ in 0..2 {
            let ended = std::process::Command::new("sh").arg("-c").arg(&text).status().unwrap();
            assert!(ended.success());
        }
        let read = |name: &str| std::fs::read_to_string(own.path().join(name)).unwrap();
        assert_eq!(read(OUTPUT), "input\nit's B\n/usr\n");
        assert_eq!((read(ERRORS).as_str(), read(RESULT).as_str()), ("error\n", "exited 7\n"));
    }

    #[test]
    fn a_second_script_waits_for_the_command_of_the_first_one() {
        use std::os::unix::process::CommandExt as _;
        let own = tempfile::tempdir().unwrap();
        let exec = ExecId::new("one").unwrap();
        let runs = own.path().join("runs");
        let text = format!("echo run >>{}; sleep 1", runs.display());
        let arguments = ["sh", "-c", text.as_str()].map(OsString::from).into();
        let command = Command { arguments, ..Command::default() };
        let text = String::from_utf8(script(&exec, &command, Some("/"))).unwrap();
        let text = text.replace(&directory(&exec), own.path().to_str().unwrap());
        std::fs::write(own.path().join(INPUT), "").unwrap();
        let start = || {
            let mut shell = std::process::Command::new("sh");
            // Each command of a server has a process group of its own.
            shell.arg("-c").arg(&text).process_group(0).spawn().unwrap()
        };
        let mut first = start();
        while !runs.exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let mut second = start();
        assert!(second.wait().unwrap().success());
        assert_eq!(std::fs::read_to_string(own.path().join(RESULT)).unwrap(), "exited 0\n");
        assert_eq!(std::fs::read_to_string(&runs).unwrap(), "run\n");
        assert!(first.wait().unwrap().success());
    }

    #[test]
    fn streamed_input_arrives_in_order_and_ends() {
        let own = tempfile::tempdir().unwrap();
        let exec = ExecId::new("one").unwrap();
        let command = Command {
            arguments: ["cat"].map(OsString::from).into(),
            input: StandardInput::Streamed,
            ..Command::default()
        };
        let text = String::from_utf8(script(&exec, &command, Some("/"))).unwrap();
        let text = text.replace(&directory(&exec), own.path().to_str().unwrap());
        let mut shell = std::process::Command::new("sh");
        let mut running = shell.arg("-c").arg(&text).spawn().unwrap();
        for (name, content) in [("piece.2", "two\n"), ("piece.1", "one\n"), (CLOSED, "")] {
            std::fs::write(own.path().join(format!("{name}.new")), content).unwrap();
            std::fs::rename(own.path().join(format!("{name}.new")), own.path().join(name)).unwrap();
        }
        assert!(running.wait().unwrap().success());
        let read = |name: &str| std::fs::read_to_string(own.path().join(name)).unwrap();
        assert_eq!((read(OUTPUT).as_str(), read(RESULT).as_str()), ("one\ntwo\n", "exited 0\n"));
    }

    #[test]
    fn what_cannot_be_run_differs_from_what_ends_with_that_code() {
        let exec = ExecId::new("one").unwrap();
        for (program, path, expected) in [
            ("no-such-program", None, "program 2"),
            ("/usr/none", None, "program 2"),
            ("/etc/passwd", None, "program 13"),
            ("/etc", None, "program 13"),
            ("", None, "program 2"),
            ("true", Some("/nowhere"), "program 2"),
            ("true", None, "exited 0"),
        ] {
            let own = tempfile::tempdir().unwrap();
            let path = path.map(|path: &str| ("PATH".into(), path.into()));
            let command = Command {
                arguments: vec![program.into()],
                environment: path.into_iter().collect(),
                ..Command::default()
            };
            let text = String::from_utf8(script(&exec, &command, Some("/"))).unwrap();
            let text = text.replace(&directory(&exec), own.path().to_str().unwrap());
            std::fs::write(own.path().join(INPUT), "").unwrap();
            std::process::Command::new("sh").arg("-c").arg(&text).status().unwrap();
            let result = std::fs::read_to_string(own.path().join(RESULT)).unwrap();
            assert_eq!(result.trim(), expected, "{program}");
        }
    }
}
