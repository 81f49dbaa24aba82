//! The scripts with which commands run inside: their output goes to files, and the exit code to
//! another one, which is there when all output is.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use stockade_core::ExecId;
use stockade_runtime::{Command, StandardInput};

/// The directory inside with the files of commands.
pub(crate) const DIRECTORY: &str = "/tmp/.stockade-commands";
/// The files of a command in its directory.
pub(crate) const SCRIPT: &str = "script";
pub(crate) const INPUT: &str = "input";
pub(crate) const OUTPUT: &str = "output";
pub(crate) const ERRORS: &str = "errors";
/// How it ended: a word and a number.
pub(crate) const RESULT: &str = "result";
/// The names of pieces of input, before their numbers, and of the file that ends them.
pub(crate) const PIECE: &str = "piece.";
pub(crate) const CLOSED: &str = "closed";
/// The process group of the command.
pub(crate) const PROCESS: &str = "process";
/// The signals that end a program and that a shell can have a trap for.
const SIGNALS: &str = "1 2 3 10 12 14 15";
/// The words of a result: an exit code, or the error number of what failed before the program ran.
pub(crate) const EXITED: &str = "exited";
pub(crate) const NO_DIRECTORY: &str = "directory";
pub(crate) const NO_PROGRAM: &str = "program";
/// The error numbers of Linux for a path that does not exist, that is not permitted, and that is no
/// directory.
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const ENOTDIR: i32 = 20;

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
    let mut text = Vec::new();
    let mut line = |parts: &[&[u8]]| {
        text.extend(parts.concat());
        text.push(b'\n');
    };
    line(&[format!(
        "mkdir {own}/started 2>/dev/null || {{ {}; \
         while [ ! -e {own}/{RESULT} ] && kill -0 -$(cat {own}/{PROCESS}) 2>/dev/null; do sleep 0.1; done; \
         exit 0; }}",
        until_written(&format!("{own}/{PROCESS}"))
    )
    .as_bytes()]);
    line(&[format!("finish() {{ echo \"$1\" >{own}/{RESULT}.new; mv {own}/{RESULT}.new {own}/{RESULT}; exit 0; }}").as_bytes()]);
    // A signal is for the program: the script lives to report how that ended.
    line(&[format!("trap : {SIGNALS}").as_bytes()]);
    line(&[format!("echo $$ >{own}/{PROCESS}").as_bytes()]);
    let working = command.working_directory.as_ref().map(|path| path.as_path().as_os_str());
    match working.or_else(|| default_directory.map(OsStr::new)) {
        Some(path) => {
            line(&[b"d=", &quoted(path.as_bytes())]);
            line(&[&missing(NO_DIRECTORY, "[ -e \"$d\" ]", ENOENT)]);
            line(&[&missing(NO_DIRECTORY, "[ -d \"$d\" ]", ENOTDIR)]);
            line(&[&missing(NO_DIRECTORY, "cd -- \"$d\" 2>/dev/null", EACCES)]);
        }
        None => line(&[&missing(NO_DIRECTORY, "cd 2>/dev/null || cd /", EACCES)]),
    }
    let path = command.environment.get(OsStr::new("PATH"));
    line(&[b"p=", &quoted(command.arguments[0].as_bytes())]);
    match path {
        Some(path) => line(&[b"s=", &quoted(path.as_bytes())]),
        None => line(&[b"s=$PATH"]),
    }
    // A shell reports what it could not run as an exit code, which a program can have, too.
    line(&[b"found() { set -f; IFS=:; for e in $s; do [ -x \"$e/$p\" ] && [ ! -d \"$e/$p\" ] && return 0; done; return 1; }"]);
    line(&[b"case $p in"]);
    line(&[b"*/*) ", &missing(NO_PROGRAM, "[ -e \"$p\" ]", ENOENT)]);
    line(&[&missing(NO_PROGRAM, "[ ! -d \"$p\" ] && [ -x \"$p\" ]", EACCES)]);
    // The interpreter that the program names must exist, too.
    line(&[b"l=; IFS= read -r l <\"$p\" 2>/dev/null"]);
    line(&[b"case $l in '#!'*) i=${l#'#!'}; i=${i# }; i=${i%% *}"]);
    line(&[&missing(NO_PROGRAM, "[ -e \"$i\" ]", ENOENT), b" ;; esac ;;"]);
    line(&[b"*) ", &missing(NO_PROGRAM, "[ -n \"$p\" ] && (found)", ENOENT), b" ;;"]);
    line(&[b"esac"]);
    let mut words: Vec<Vec<u8>> = Vec::new();
    if !command.environment.is_empty() {
        words.push(b"env".to_vec());
        for (name, value) in &command.environment {
            words.push(quoted(&[name.as_bytes(), b"=", value.as_bytes()].concat()));
        }
    }
    words.extend(command.arguments.iter().map(|word| quoted(word.as_bytes())));
    let streams = format!(" <{own}/{INPUT} >{own}/{OUTPUT} 2>{own}/{ERRORS}");
    let is_fed = command.input == StandardInput::Streamed;
    if is_fed {
        line(&[format!("mkfifo {own}/{INPUT}").as_bytes()]);
        line(&[format!(
            "feed() {{ trap '' {SIGNALS}; n=1; while :; do \
             if [ -e {own}/{PIECE}$n ]; then cat {own}/{PIECE}$n || exit; rm -f {own}/{PIECE}$n; n=$((n+1)); \
             elif [ -e {own}/{CLOSED} ]; then exit; else sleep 0.05; fi; done; }}"
        )
        .as_bytes()]);
        line(&[format!("feed >{own}/{INPUT} 2>/dev/null & f=$!").as_bytes()]);
    }
    // A program of that name, and no word of the shell.
    line(&[b"(exec ", &words.join(&b" "[..]), b")", streams.as_bytes()]);
    line(&[b"code=$?"]);
    if is_fed {
        line(&[b"kill -9 $f 2>/dev/null"]);
    }
    line(&[format!("finish \"{EXITED} $code\"").as_bytes()]);
    text
}

/// A line that ends the script unless a test succeeds.
fn missing(what: &str, test: &str, errno: i32) -> Vec<u8> {
    format!("{test} || finish '{what} {errno}'").into_bytes()
}

/// A word of the shell with exactly these bytes.
pub(crate) fn quoted(bytes: &[u8]) -> Vec<u8> {
    let mut word = vec![b'\''];
    for byte in bytes {
        match byte {
            b'\'' => word.extend(b"'\\''"),
            byte => word.push(*byte),
        }
    }
    word.push(b'\'');
    word
}

/// The same for a text.
pub(crate) fn quoted_text(text: &str) -> String {
    String::from_utf8_lossy(&quoted(text.as_bytes())).into_owned()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    #[test]
    fn words_come_as_they_are() {
        for text in
            ["", "a b", "it's", "$(id)", "`id`", "\\", "\n", "-n", "'", "''", "\"", "*", "~"]
        {
            let mut line = b"printf %s ".to_vec();
            line.extend(quoted(text.as_bytes()));
            let mut shell = std::process::Command::new("sh");
            let output = shell.arg("-c").arg(OsStr::from_bytes(&line)).output().unwrap();
            assert_eq!(output.stdout, text.as_bytes(), "{text:?}");
        }
    }

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
