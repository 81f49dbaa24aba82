//! `stockade run`: the last lines for people, or one JSON object.

use serde_json::{Value, json};
use stockade_jail::Ending;

use crate::args::Run;
use crate::problem::Failure;
use crate::run::{self, Report};

/// Runs; the exit code is the command's.
pub(crate) fn run(arguments: &Run) -> Result<u8, Failure> {
    let report = run::run(arguments)?;
    if arguments.json {
        print(&report);
    } else {
        tell(arguments, &report);
    }
    Ok(report.exit_code)
}

#[expect(clippy::print_stdout, reason = "the answer is data")]
fn print(report: &Report) {
    let signal = match report.ending {
        Ending::Signaled(signal) | Ending::Stopped(signal) => Value::from(signal),
        _ => Value::Null,
    };
    let answer = json!({
        "exitCode": report.exit_code,
        "signal": signal,
        "outcome": run::outcome(report.ending),
        "stdout": run::lossy(&report.output),
        "stdoutTruncated": report.output.truncated,
        "stderr": run::lossy(&report.error),
        "stderrTruncated": report.error.truncated,
        "bundle": Value::Null,
        "isolation": report.isolation,
        "hint": report.hint,
        "durationMs": u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX),
    });
    println!("{answer:#}");
}

#[expect(clippy::print_stderr, reason = "what is not data goes to stderr")]
fn tell(arguments: &Run, report: &Report) {
    for reason in &report.isolation.reasons {
        eprintln!("stockade: note: {reason}");
    }
    let name = arguments.command.first().map(|name| name.to_string_lossy()).unwrap_or_default();
    match report.ending {
        Ending::Exited(_) | Ending::Signaled(_) => {}
        Ending::NotRun(errno) => {
            let error = std::io::Error::from_raw_os_error(errno);
            eprintln!("stockade: cannot run `{name}`: {error}");
        }
        Ending::TimedOut => eprintln!("stockade: the command was ended by --timeout"),
        Ending::OutOfMemory => eprintln!("stockade: the command ran out of memory"),
        Ending::OutputExceeded => eprintln!("stockade: the command was ended by --max-output"),
        Ending::LimitExceeded(limit) => {
            eprintln!("stockade: the command was ended for using too much {limit}");
        }
        Ending::Stopped(_) => {
            eprintln!("stockade: the command did not end when asked to, and was killed");
        }
    }
    if let Some(hint) = &report.hint {
        eprintln!("  hint: {hint}");
    }
}
