//! The scripts that run inside: commands, whose output goes to files and whose exit code to another one,
//! which is there when all output is; and the ones that start, follow and end commands.

pub(crate) use remote::{
    CLOSED, ERRORS, EXITED, INPUT, NO_DIRECTORY, NO_PROGRAM, OUTPUT, PIECE, SCRIPT, quoted,
};
use remote::{PROCESS, RESULT, Setting};
use stockade_core::ExecId;
use stockade_runtime::{Command, Offsets};
use stockade_runtime_remote::script as remote;

/// The variable by which all processes of a command are found.
const MARK: &str = "STOCKADE_COMMAND";
/// The file with the environment of the sandbox, as assignments.
pub(crate) const ENVIRONMENT: &str = "environment";
/// Stands for a result that is not there: of a command that runs, and of one that does not.
pub(crate) const RUNS: &str = "-";
pub(crate) const LOST: &str = "lost";
/// How much of each stream is read at once.
pub(crate) const READ_BYTES: u64 = 1 << 20;

/// The directory of a command below that of its sandbox.
pub(crate) fn directory(top: &str, exec: &ExecId) -> String {
    format!("{top}/commands/{exec}")
}

/// Makes the directory of a sandbox, and stores its environment from the input.
pub(crate) fn prepare(top: &str, length: usize) -> String {
    format!(
        "umask 077; mkdir -p {top}/commands && [ -O {top} ] && [ ! -L {top} ] || exit 1; {}",
        store(&format!("{top}/{ENVIRONMENT}"), length)
    )
}

/// Stores the input, which has this length, as a file: wholly or not at all, because a connection that
/// is lost looks like its end.
pub(crate) fn store(path: &str, length: usize) -> String {
    format!(
        "umask 077; cat >{path}.new && [ $(wc -c <{path}.new) -eq {length} ] || {{ rm -f {path}.new; exit 1; }}; mv {path}.new {path}"
    )
}

/// Makes the directory of a command.
pub(crate) fn make(own: &str) -> String {
    format!("umask 077; mkdir -p {own} || exit 1; ")
}

/// Starts the script of a command in a session of its own. The script runs the command once: whoever
/// makes the directory `started` first.
pub(crate) fn start(own: &str) -> String {
    format!(
        "; [ -e {own}/{INPUT} ] || : >{own}/{INPUT}; \
         {MARK}={own} setsid sh {own}/{SCRIPT} </dev/null >/dev/null 2>&1 &"
    )
}

/// Kills all processes of a command, until none is left. One that has not started never does.
pub(crate) fn kill(own: &str) -> String {
    format!(
        "[ -d {own} ] || exit 0; mkdir {own}/started 2>/dev/null; n=0; \
         while [ $n -lt 200 ]; do \
         l=$(grep -lszx -e {MARK}={own} /proc/[0-9]*/environ | cut -d / -f 3); \
         [ -n \"$l\" ] || exit 0; kill -9 $l 2>/dev/null; n=$((n+1)); done; exit 1"
    )
}

/// Sends a signal to the process group of a command. Its number is known a moment after the start.
pub(crate) fn send_signal(own: &str, signal: i32) -> String {
    format!(
        "f={own}/{PROCESS}; n=0; while [ ! -s $f ] && [ $n -lt 50 ]; do sleep 0.1; n=$((n+1)); done; \
         kill -{signal} -$(cat $f)"
    )
}

/// Prints the result of a command, or what stands for it, the lengths of its streams, and the next bytes
/// of each.
pub(crate) fn look(own: &str, from: Offsets) -> String {
    let Offsets { output, error } = from;
    format!(
        "cd {own} 2>/dev/null || {{ echo {LOST} 0 0; exit; }}; r={RUNS}; \
         if [ ! -e {RESULT} ] && [ -s {PROCESS} ]; then kill -0 $(cat {PROCESS}) 2>/dev/null || r={LOST}; fi; \
         [ -e {RESULT} ] && r=$(head -c 64 {RESULT} | tr ' \\n' '_ '); \
         o=$(stat -c %s {OUTPUT} 2>/dev/null || echo 0); e=$(stat -c %s {ERRORS} 2>/dev/null || echo 0); \
         echo $r $o $e; \
         part() {{ n=$(($2-$3)); [ $n -gt {READ_BYTES} ] && n={READ_BYTES}; \
         [ $n -le 0 ] || tail -c +$(($3+1)) $1 | head -c $n; }}; \
         part {OUTPUT} $o {output}; part {ERRORS} $e {error}"
    )
}

/// The script of a command.
pub(crate) fn script(
    top: &str,
    own: &str,
    command: &Command,
    default_directory: Option<&str>,
) -> Vec<u8> {
    // Where the connections come from is nothing for the command.
    let setup = format!("unset SSH_CLIENT SSH_CONNECTION SSH_TTY\n. {top}/{ENVIRONMENT}");
    remote::script(own, command, Setting { otherwise: "", setup: &setup, default_directory })
}

/// The assignments of variables, as a shell reads them.
pub(crate) fn assignments<'a>(variables: impl Iterator<Item = (&'a str, &'a [u8])>) -> Vec<u8> {
    variables.fold(Vec::new(), |mut text, (name, value)| {
        text.extend([b"export ", name.as_bytes(), b"=", &quoted(value), b"\n"].concat());
        text
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::{OsStr, OsString};
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::Path;

    use super::*;

    fn shell(text: &[u8]) -> std::process::Output {
        let mut shell = std::process::Command::new("sh");
        shell.arg("-c").arg(OsStr::from_bytes(text)).output().unwrap()
    }

    fn run(top: &Path, command: &Command) -> String {
        let top = top.to_str().unwrap();
        let own = directory(top, &ExecId::new("one").unwrap());
        std::fs::create_dir_all(&own).unwrap();
        let own_file = |name: &str| format!("{own}/{name}");
        std::fs::write(
            format!("{top}/{ENVIRONMENT}"),
            assignments([("X", &b"it's"[..])].into_iter()),
        )
        .unwrap();
        if !Path::new(&own_file(INPUT)).exists() {
            std::fs::write(own_file(INPUT), "input\n").unwrap();
        }
        assert!(shell(&script(top, &own, command, Some("/usr"))).status.success());
        let looked = shell(look(&own, Offsets::default()).as_bytes());
        String::from_utf8(looked.stdout).unwrap()
    }

    fn command(arguments: &[&str]) -> Command {
        let arguments = arguments.iter().map(OsString::from).collect();
        Command { arguments, ..Command::default() }
    }

    #[test]
    fn a_script_runs_once_with_its_input_and_says_how_it_ended() {
        let top = tempfile::tempdir().unwrap();
        let text = "cat; echo $X \"$A\"; echo error >&2; pwd; exit 7";
        let command = Command {
            environment: [("A".into(), "a b".into())].into(),
            ..command(&["sh", "-c", text])
        };
        for _ in 0..2 {
            let looked = run(top.path(), &command);
            assert_eq!(looked, "exited_7 20 6\ninput\nit's a b\n/usr\nerror\n");
        }
    }

    #[test]
    fn what_cannot_be_run_is_told_from_what_ends_so() {
        for (program, expected) in [
            ("no-such-program", "program_2 "),
            ("/usr/none", "program_2 "),
            ("/etc/passwd", "program_13 "),
            ("/etc", "program_13 "),
            ("", "program_2 "),
            ("true", "exited_0 "),
        ] {
            let top = tempfile::tempdir().unwrap();
            let looked = run(top.path(), &command(&[program]));
            assert!(looked.starts_with(expected), "{program}: {looked}");
        }
    }

    #[test]
    fn what_is_cut_off_is_not_stored() {
        use std::io::Write as _;
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("file");
        for (length, is_stored) in [(5, false), (4, true)] {
            let text = store(path.to_str().unwrap(), length);
            let mut shell = std::process::Command::new("sh");
            let shell = shell.arg("-c").arg(text).stdin(std::process::Stdio::piped());
            let mut child = shell.spawn().unwrap();
            child.stdin.take().unwrap().write_all(b"four").unwrap();
            assert_eq!(child.wait().unwrap().success(), is_stored);
            assert_eq!(path.exists(), is_stored);
        }
    }

    #[test]
    fn a_command_that_was_ended_before_it_started_never_does() {
        let top = tempfile::tempdir().unwrap();
        let own = directory(top.path().to_str().unwrap(), &ExecId::new("one").unwrap());
        std::fs::create_dir_all(&own).unwrap();
        assert!(shell(kill(&own).as_bytes()).status.success());
        let looked = run(top.path(), &command(&["echo", "run"]));
        assert_eq!(looked, "- 0 0\n");
    }
}
