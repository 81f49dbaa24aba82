//! The programs that every fake sandbox has.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use super::process::Process;
use crate::exec::{Ending, Stream};

/// The names of the programs.
pub(super) const NAMES: &[&str] = &["true", "false", "echo", "cat", "sleep", "exit", "env", "pwd"];

/// Runs one of them.
pub(super) async fn run(name: &str, process: Process) -> Ending {
    match name {
        "false" => Ending::Exited(1),
        "echo" => echo(&process),
        "cat" => cat(process).await,
        "sleep" => sleep(&process).await,
        "exit" => Ending::Exited(number(&process).unwrap_or(0)),
        "env" => env(&process),
        "pwd" => {
            line(&process, process.working_directory.as_os_str().as_bytes());
            Ending::Exited(0)
        }
        _ => Ending::Exited(0),
    }
}

fn line(process: &Process, bytes: &[u8]) {
    process.write(Stream::Output, &[bytes, b"\n"].concat());
}

fn number<T: std::str::FromStr>(process: &Process) -> Option<T> {
    process.arguments.get(1)?.to_str()?.parse().ok()
}

fn echo(process: &Process) -> Ending {
    let words: Vec<&[u8]> = process.arguments.iter().skip(1).map(|word| word.as_bytes()).collect();
    line(process, &words.join(&b' '));
    Ending::Exited(0)
}

/// Prints its input, or the files in its arguments.
async fn cat(mut process: Process) -> Ending {
    if process.arguments.len() == 1 {
        while let Some(bytes) = process.read().await {
            process.write(Stream::Output, &bytes);
        }
        return Ending::Exited(0);
    }
    let mut code = 0;
    for name in process.arguments.iter().skip(1) {
        if let Some(content) = process.read_file(name) {
            process.write(Stream::Output, &content);
        } else {
            let text = format!("cat: {}: No such file or directory\n", name.display());
            process.write(Stream::Error, text.as_bytes());
            code = 1;
        }
    }
    Ending::Exited(code)
}

async fn sleep(process: &Process) -> Ending {
    let seconds = number(process).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let Some(duration) = seconds else { return Ending::Exited(1) };
    tokio::time::sleep(duration).await;
    Ending::Exited(0)
}

fn env(process: &Process) -> Ending {
    for (name, value) in &process.environment {
        let words: [&OsStr; 2] = [name, value];
        line(process, &words.map(OsStr::as_bytes).join(&b'='));
    }
    Ending::Exited(0)
}
