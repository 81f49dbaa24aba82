//! The script with which a command runs on another machine: its output goes to files in a directory of its
//! own, and how it ended to another file, which is there when all output is. Names of ours begin with `__`,
//! because the variables of a sandbox are in the same shell.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use stockade_runtime::{Command, StandardInput};

/// The script.
pub const SCRIPT: &str = "script";
/// The input of the command.
pub const INPUT: &str = "input";
/// What it has written to its output.
pub const OUTPUT: &str = "output";
/// What it has written to its errors.
pub const ERRORS: &str = "errors";
/// How it ended: a word and a number.
pub const RESULT: &str = "result";
/// The names of pieces of input, before their numbers.
pub const PIECE: &str = "piece.";
/// The file that ends the input.
pub const CLOSED: &str = "closed";
/// The process group of the command.
pub const PROCESS: &str = "process";
/// The signals that end a program and that a shell can have a trap for.
const SIGNALS: &str = "1 2 3 10 12 14 15";
/// The word of a result with an exit code.
pub const EXITED: &str = "exited";
/// The word of a result with the error number of the working directory.
pub const NO_DIRECTORY: &str = "directory";
/// The word of a result with the error number of the program.
pub const NO_PROGRAM: &str = "program";
/// The error numbers of Linux for a path that does not exist, that is not permitted, and that is no
/// directory.
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const ENOTDIR: i32 = 20;

/// What differs between the machines.
#[derive(Debug, Clone, Copy, Default)]
pub struct Setting<'a> {
    /// Commands of the shell, each with its `;`, of a script that finds another one of the same command
    /// started.
    pub otherwise: &'a str,
    /// Lines of the shell before the command.
    pub setup: &'a str,
    /// The working directory of a command that names none; that of the user if absent.
    pub default_directory: Option<&'a str>,
}

/// The script of a command whose files are in the directory `own`, which needs no quoting. It runs the
/// command once, however often it is started.
pub fn script(own: &str, command: &Command, setting: Setting<'_>) -> Vec<u8> {
    let Setting { otherwise, setup, default_directory } = setting;
    let mut text = Vec::new();
    let mut line = |parts: &[&[u8]]| {
        text.extend(parts.concat());
        text.push(b'\n');
    };
    line(&[format!("mkdir {own}/started 2>/dev/null || {{ {otherwise} exit 0; }}").as_bytes()]);
    line(&[format!("__end() {{ echo \"$1\" >{own}/{RESULT}.new; mv {own}/{RESULT}.new {own}/{RESULT}; exit 0; }}").as_bytes()]);
    // A signal is for the program: the script lives to report how that ended.
    line(&[format!("trap : {SIGNALS}").as_bytes()]);
    line(&[format!("echo $$ >{own}/{PROCESS}").as_bytes()]);
    line(&[setup.as_bytes()]);
    let working = command.working_directory.as_ref().map(|path| path.as_path().as_os_str());
    match working.or_else(|| default_directory.map(OsStr::new)) {
        Some(path) => {
            line(&[b"__d=", &quoted(path.as_bytes())]);
            line(&[&missing(NO_DIRECTORY, "[ -e \"$__d\" ]", ENOENT)]);
            line(&[&missing(NO_DIRECTORY, "[ -d \"$__d\" ]", ENOTDIR)]);
            line(&[&missing(NO_DIRECTORY, "cd -- \"$__d\" 2>/dev/null", EACCES)]);
        }
        None => line(&[&missing(NO_DIRECTORY, "cd 2>/dev/null || cd /", EACCES)]),
    }
    line(&[b"__p=", &quoted(command.arguments[0].as_bytes())]);
    match command.environment.get(OsStr::new("PATH")) {
        Some(path) => line(&[b"__s=", &quoted(path.as_bytes())]),
        None => line(&[b"__s=$PATH"]),
    }
    // A shell reports what it could not run as an exit code, which a program can have, too.
    line(&[b"__found() { set -f; IFS=:; for e in $__s; do [ -x \"$e/$__p\" ] && [ ! -d \"$e/$__p\" ] && return 0; done; return 1; }"]);
    line(&[b"case $__p in"]);
    line(&[b"*/*) ", &missing(NO_PROGRAM, "[ -e \"$__p\" ]", ENOENT)]);
    line(&[&missing(NO_PROGRAM, "[ ! -d \"$__p\" ] && [ -x \"$__p\" ]", EACCES)]);
    // The interpreter that the program names must exist, too.
    line(&[b"__l=; IFS= read -r __l <\"$__p\" 2>/dev/null"]);
    line(&[b"case $__l in '#!'*) __i=${__l#'#!'}; __i=${__i# }; __i=${__i%% *}"]);
    line(&[&missing(NO_PROGRAM, "[ -e \"$__i\" ]", ENOENT), b" ;; esac ;;"]);
    line(&[b"*) ", &missing(NO_PROGRAM, "[ -n \"$__p\" ] && (__found)", ENOENT), b" ;;"]);
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
        line(&[format!("rm -f {own}/{INPUT}; mkfifo {own}/{INPUT}").as_bytes()]);
        line(&[format!(
            "__feed() {{ trap '' {SIGNALS}; n=1; while :; do \
             if [ -e {own}/{PIECE}$n ]; then cat {own}/{PIECE}$n || exit; rm -f {own}/{PIECE}$n; n=$((n+1)); \
             elif [ -e {own}/{CLOSED} ]; then exit; else sleep 0.05; fi; done; }}"
        )
        .as_bytes()]);
        line(&[format!("__feed >{own}/{INPUT} 2>/dev/null & __f=$!").as_bytes()]);
    }
    // A program of that name, and no word of the shell.
    line(&[b"(exec ", &words.join(&b" "[..]), b")", streams.as_bytes()]);
    line(&[b"__c=$?"]);
    if is_fed {
        line(&[b"kill -9 $__f 2>/dev/null"]);
    }
    line(&[format!("__end \"{EXITED} $__c\"").as_bytes()]);
    text
}

/// A line that ends the script unless a test succeeds.
fn missing(what: &str, test: &str, errno: i32) -> Vec<u8> {
    format!("{test} || __end '{what} {errno}'").into_bytes()
}

/// A word of the shell with exactly these bytes.
pub fn quoted(bytes: &[u8]) -> Vec<u8> {
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
pub fn quoted_text(text: &str) -> String {
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
            line.extend(quoted_text(text).into_bytes());
            let mut shell = std::process::Command::new("sh");
            let output = shell.arg("-c").arg(OsStr::from_bytes(&line)).output().unwrap();
            assert_eq!(output.stdout, text.as_bytes(), "{text:?}");
        }
    }

    #[test]
    fn a_command_has_the_variables_of_its_sandbox_whatever_their_names() {
        let names =
            ["c", "code", "d", "e", "f", "feed", "found", "i", "l", "n", "o", "p", "r", "s"];
        for input in [StandardInput::Empty, StandardInput::Streamed] {
            let own = tempfile::tempdir().unwrap();
            let file = |name: &str| own.path().join(name);
            let arguments = ["env"].map(OsString::from).into();
            let command = Command { arguments, input: input.clone(), ..Command::default() };
            std::fs::write(file(CLOSED), "").unwrap();
            if input == StandardInput::Empty {
                std::fs::write(file(INPUT), "").unwrap();
            }
            let setting = Setting { default_directory: Some("/"), ..Setting::default() };
            let text = script(own.path().to_str().unwrap(), &command, setting);
            let mut shell = std::process::Command::new("sh");
            shell.arg("-c").arg(OsStr::from_bytes(&text)).envs(names.map(|name| (name, "kept")));
            assert!(shell.status().unwrap().success());
            let output = std::fs::read_to_string(file(OUTPUT)).unwrap();
            for name in names {
                let line = format!("{name}=kept");
                assert!(output.lines().any(|found| found == line), "{name}: {output}");
            }
        }
    }
}
