//! `stockade run`: prints the last lines for users, or one JSON object.

use std::path::Path;

use serde_json::{Value, json};
use stockade_bundle::store::Bundle;
use stockade_core::network::binding::Binding;
use stockade_core::network::{Reason, Refusals};
use stockade_core::{Ending, Problem};

use crate::args::Run;
use crate::problem::{self, Failure, short};
use crate::review::{output, words};
use crate::run::{self, Conclusion, Report};

/// Runs the command; the exit code is the command's, or 125 if there was a problem with its
/// changes.
pub(crate) fn run(arguments: &Run) -> Result<u8, Failure> {
    let report = run::run(arguments)?;
    if arguments.json {
        print(arguments, &report)?;
    } else {
        tell(arguments, &report);
    }
    if let Some(error) = &report.unwritten {
        return Err(Failure::unwritten(error));
    }
    Ok(match &report.conclusion {
        Conclusion::NotApplied(..) | Conclusion::ViewKept(..) => 125,
        Conclusion::Nothing | Conclusion::Kept(_) | Conclusion::Applied { .. } => report.exit_code,
    })
}

fn print(arguments: &Run, report: &Report) -> Result<(), Problem> {
    let kept = |bundle: &Bundle| {
        let entries = bundle.manifest.entries.len();
        json!({ "id": bundle.id(), "entries": entries, "applied": false })
    };
    let (bundle, view, problem) = match &report.conclusion {
        Conclusion::Nothing => (Value::Null, None, None),
        Conclusion::Kept(bundle) => (kept(bundle), None, None),
        Conclusion::Applied { id, applied, left } => {
            let entries = applied.changed.len() + applied.already.len() + applied.skipped.len();
            let answer = json!({ "id": id, "entries": entries, "applied": true, "left": left });
            (answer, None, None)
        }
        Conclusion::NotApplied(bundle, problem) => (kept(bundle), None, Some(problem)),
        Conclusion::ViewKept(view, problem) => (Value::Null, Some(view), Some(problem)),
    };
    let network = report.network.as_ref().map(|(policy, secrets, heard)| {
        let secret = |binding: &Binding| json!({ "name": binding.credential, "hosts": binding.hosts, "ports": binding.ports });
        let secrets: Vec<_> = secrets.iter().map(secret).collect();
        let (refused, lost) = (heard.refused(), heard.lost());
        json!({ "policy": policy, "secrets": secrets, "refused": refused, "lost": lost })
    });
    let answer = json!({
        "exitCode": report.exit_code,
        "signal": report.ending.signal(),
        "ending": report.ending.kind(),
        "reason": reason(arguments, &report.ending),
        "stdout": run::lossy(&report.output),
        "stdoutBytes": report.output.total_bytes,
        "stdoutTruncated": report.output.truncated,
        "stderr": run::lossy(&report.error),
        "stderrBytes": report.error.total_bytes,
        "stderrTruncated": report.error.truncated,
        "bundle": bundle,
        "view": view,
        "error": problem,
        "notes": report.notes,
        "isolation": report.isolation,
        "network": network,
        "memoryPeakBytes": report.memory_peak_bytes,
        "outOfMemoryKills": report.out_of_memory_kills,
        "hint": report.hint,
        "durationMs": u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX),
    });
    output::print_json(&answer)
}

fn tell(arguments: &Run, report: &Report) {
    for reason in report.isolation.reasons.iter().chain(&report.notes) {
        say!("stockade: note: {reason}");
    }
    if let Some(ending) = ending(arguments, &report.ending) {
        say!("stockade: {ending}");
    }
    if report.out_of_memory_kills > 0 && report.ending != Ending::OutOfMemory {
        let kills = report.out_of_memory_kills;
        say!("stockade: {kills} of its processes were killed because of the memory limit");
    }
    if let Some(hint) = &report.hint {
        say!("  hint: {hint}");
    }
    if let Some((_, _, heard)) = &report.network {
        tell_refused(heard);
    }
    match &report.conclusion {
        Conclusion::Nothing => {}
        Conclusion::Kept(bundle) => {
            say!("stockade: {}", words::next(bundle.manifest.entries.len(), bundle.id()));
        }
        Conclusion::Applied { id, applied, left } => {
            let (changed, id) = (words::paths(applied.changed.len()), short(id));
            if *left {
                let skipped = words::paths(applied.skipped.len());
                say!("stockade: {changed} applied, {skipped} skipped: `stockade diff {id}`");
            } else {
                say!("stockade: {changed} applied");
            }
        }
        Conclusion::NotApplied(bundle, problem) => {
            problem::tell(problem);
            say!("stockade: {}", words::next(bundle.manifest.entries.len(), bundle.id()));
        }
        Conclusion::ViewKept(view, problem) => {
            problem::tell(problem);
            say!(
                "stockade: the changes are kept in {}; `stockade bundles --max-bundle SIZE` makes a bundle of them",
                view.display()
            );
        }
    }
}

/// The most denied connections that are printed as text.
const REFUSALS: usize = 16;

fn tell_refused(heard: &Refusals) {
    for refused in heard.refused().iter().take(REFUSALS) {
        let times = match refused.times {
            1 => String::new(),
            times => format!(" ({times} times)"),
        };
        let what = match refused.reason {
            Reason::Unresolved | Reason::Unreachable => "not reached",
            _ => "refused",
        };
        say!("stockade: {what}{times}: {} [{}]", refused.message, refused.reason);
        if let Some(allow) = &refused.allow {
            say!("  hint: {allow}");
        }
    }
    let others = heard.refused().len().saturating_sub(REFUSALS);
    if others > 0 || heard.lost() > 0 {
        let lost = heard.lost().saturating_add(others as u64);
        say!(
            "stockade: {lost} more connections are not listed here; --json lists {}",
            heard.refused().len()
        );
    }
}

/// Further details of an ending, with the requested names.
fn reason(arguments: &Run, ending: &Ending) -> Option<String> {
    let program = arguments.command.first().map(|name| name.to_string_lossy());
    let directory = arguments.sandbox.cwd.as_deref().map(Path::to_string_lossy);
    ending.reason(program.as_deref(), directory.as_deref())
}

fn ending(arguments: &Run, ending: &Ending) -> Option<String> {
    Some(match ending {
        Ending::Exited(_) | Ending::Signaled(_) => return None,
        Ending::NotRun { .. } => {
            format!("cannot {}", reason(arguments, ending).unwrap_or_default())
        }
        Ending::TimedOut => "the command was killed by --timeout".to_owned(),
        Ending::OutOfMemory => "the command ran out of memory".to_owned(),
        Ending::OutputExceeded => "the command was killed by --max-output".to_owned(),
        Ending::LimitExceeded(limit) => {
            format!("the command was killed because it used too much {limit}")
        }
        Ending::Stopped(_) => "the command did not exit after a signal, and was killed".to_owned(),
        Ending::Killed => "the command was killed".to_owned(),
        Ending::SandboxEnded => "the sandbox ended".to_owned(),
        Ending::Unknown => "the exit status of the command is unknown".to_owned(),
    })
}
