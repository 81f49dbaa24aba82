//! `stockade run`: prints the last lines for users, or one JSON object.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stockade_api::BundleChanges;
use stockade_bundle::store::Bundle;
use stockade_core::network::binding::Binding;
use stockade_core::network::{
    AllowedHost, DeniedConnections, Misdirection, Reason, WantedHost, WantedHosts,
};
use stockade_core::{Code, Ending, Problem};
use stockade_review::counts;

use crate::args::Run;
use crate::commands::refused_calls;
use crate::output;
use crate::problem::{self, Failure, short_id};
use crate::review::text;
use crate::run::{self, Conclusion, Report};

/// Runs the command; the exit code is the command's, or 125 if there was a problem with its
/// changes.
pub(crate) fn run(arguments: &Run) -> Result<u8, Failure> {
    let report = run::run(arguments)?;
    if arguments.json {
        print(arguments, &report)?;
    } else {
        print_report(arguments, &report);
    }
    if let Some(error) = &report.write_error {
        return Err(Failure::from_write_error(error));
    }
    Ok(match &report.conclusion {
        Conclusion::NotApplied(..) | Conclusion::ViewKept(..) => 125,
        Conclusion::Nothing | Conclusion::Stored(_) | Conclusion::Applied { .. } => {
            report.exit_code
        }
    })
}

fn print(arguments: &Run, report: &Report) -> Result<(), Problem> {
    let (bundle, view, problem) = conclusion_json(&report.conclusion);
    let network = report.network.as_ref().map(|(policy, secrets, heard)| {
        let secret = |binding: &Binding| json!({ "name": binding.credential, "hosts": binding.hosts, "ports": binding.ports });
        let secrets: Vec<_> = secrets.iter().map(secret).collect();
        let (refused, lost) = (heard.connections(), heard.lost());
        json!({
            "policy": policy,
            "secrets": secrets,
            "misdirected": heard.misdirections(),
            "refused": refused,
            "lost": lost,
        })
    });
    let network = network.or_else(|| wanted(&report.wanted));
    let mut answer = json!({
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
        "profile": report.profile,
        "notes": report.notes,
        "isolation": report.isolation,
        "network": network,
        "memoryPeakBytes": report.memory_peak_bytes,
        "outOfMemoryKills": report.out_of_memory_kills,
        "refusedCalls": report.refused_calls,
        "hint": report.hint,
        "durationMs": u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX),
    });
    if let Some(image) = &report.image {
        let name = image.reference.as_ref().map(ToString::to_string);
        answer["image"] = json!({ "name": name, "digest": image.digest.to_string() });
    }
    if let Some(signatures) = &report.signatures {
        answer["sshAgent"] = signatures.to_json();
    }
    output::print_json(&answer)
}

/// The bundle, the view that was kept, and the problem, for a JSON object.
pub(super) fn conclusion_json(
    conclusion: &Conclusion,
) -> (Value, Option<&PathBuf>, Option<&Problem>) {
    let kept = |bundle: &Bundle| {
        let changes = counts(&bundle.manifest.entries);
        json!({ "id": bundle.id(), "changes": changes, "applied": false })
    };
    match conclusion {
        Conclusion::Nothing => (Value::Null, None, None),
        Conclusion::Stored(bundle) => (kept(bundle), None, None),
        Conclusion::Applied { id, applied, changes, has_skipped: left } => {
            let changes = BundleChanges { applied: applied.changed.len(), ..*changes };
            let answer = json!({ "id": id, "changes": changes, "applied": true, "left": left });
            (answer, None, None)
        }
        Conclusion::NotApplied(bundle, problem) => (kept(bundle), None, Some(problem)),
        Conclusion::ViewKept(view, problem) => (Value::Null, Some(view), Some(problem)),
    }
}

/// What was asked for without network access; `None` if nothing was.
fn wanted(wanted: &WantedHosts) -> Option<Value> {
    let host =
        |one: &WantedHost| json!({ "host": one.host, "port": one.port, "allow": one.allow() });
    let hosts: Vec<_> = wanted.listed().map(host).collect();
    (!wanted.is_empty()).then(|| json!({ "wanted": hosts, "unlisted": wanted.unlisted() }))
}

fn print_report(arguments: &Run, report: &Report) {
    for reason in report.isolation.reasons.iter().chain(&report.notes) {
        eprint_line!("stockade: note: {reason}");
    }
    if let Some(ending) = ending(arguments, &report.ending) {
        eprint_line!("stockade: {ending}");
    }
    if report.out_of_memory_kills > 0 && report.ending != Ending::OutOfMemory {
        let kills = report.out_of_memory_kills;
        eprint_line!("stockade: {kills} of its processes were killed because of the memory limit");
    }
    if let Some(hint) = &report.hint {
        eprint_line!("  hint: {hint}");
    }
    if let Some(note) = refused_calls::note(&report.refused_calls, report.exit_code == 0) {
        eprint_line!("stockade: {note}");
    }
    if let Some((_, _, heard)) = &report.network {
        print_misdirected(heard);
        print_denied(heard);
    }
    for line in report.signatures.iter().flat_map(run::Signatures::lines) {
        eprint_line!("stockade: {line}");
    }
    print_wanted(&report.wanted);
    print_conclusion(&report.conclusion, report.exit_code);
}

/// Prints what happened to the changes, and what can be done about them.
pub(super) fn print_conclusion(conclusion: &Conclusion, exit_code: u8) {
    match conclusion {
        Conclusion::Nothing => {}
        Conclusion::Stored(bundle) => {
            eprint_line!(
                "stockade: {}",
                text::next_steps(&counts(&bundle.manifest.entries), bundle.id())
            );
            if bundle.harvest().is_ok() {
                let id = short_id(bundle.id());
                eprint_line!(
                    "stockade: its commits: show with `stockade diff {id} --commits`, take to a branch with `stockade apply {id} --commits`"
                );
            }
        }
        Conclusion::Applied { id, applied, changes, has_skipped: left } => {
            let (changed, id) = (text::count_paths(applied.changed.len()), short_id(id));
            if *left {
                let left = text::left(changes);
                eprint_line!("stockade: {changed} applied{left}: `stockade diff {id}`");
            } else {
                eprint_line!("stockade: {changed} applied");
            }
        }
        Conclusion::NotApplied(bundle, problem) => {
            problem::print_problem(problem);
            eprint_line!(
                "stockade: {}",
                text::next_steps(&counts(&bundle.manifest.entries), bundle.id())
            );
        }
        Conclusion::ViewKept(view, problem) => {
            problem::print_problem(problem);
            eprint_line!(
                "stockade: the changes are kept in {}; the command itself exited with {}",
                view.display(),
                exit_code
            );
        }
    }
}

fn print_misdirected(heard: &DeniedConnections) {
    for Misdirection { secret, host, port, blocked, times } in heard.misdirections() {
        let times = match times {
            1 => String::new(),
            times => format!(" in {times} connections"),
        };
        let was = if *blocked { "was not sent" } else { "was sent" };
        eprint_line!(
            "stockade: the placeholder of the secret {secret} {was} to {}{times}: the secret is not bound to that host",
            AllowedHost::new(host, Some(*port))
        );
        if !blocked {
            eprint_line!("  hint: --strict-secrets refuses such requests");
        }
    }
}

/// The hosts that programs asked for without network access: one line of arguments that would allow
/// those of the public internet. They are the sandbox's own words, which the line says, so that hosts of
/// private networks are named only.
fn print_wanted(wanted: &WantedHosts) {
    if wanted.is_empty() {
        return;
    }
    let others = wanted.listed().count().saturating_sub(MAX_LISTED);
    let others = wanted.unlisted().saturating_add(others as u64);
    let more = match others {
        0 => String::new(),
        others => format!("; {others} more are not listed here"),
    };
    let (public, private): (Vec<_>, Vec<_>) =
        wanted.listed().take(MAX_LISTED).partition(|host| host.is_public());
    let access = format!("the sandbox has no network access [{}]", Code::EgressDenied);
    if !public.is_empty() {
        eprint_line!(
            "stockade: {access}; its programs asked for these hosts, which you can allow{more}"
        );
        let arguments: Vec<_> = public.into_iter().filter_map(WantedHost::allow).collect();
        eprint_line!("  hint: {}", arguments.join(" "));
    }
    if !private.is_empty() {
        let names: Vec<_> = private.into_iter().map(WantedHost::to_string).collect();
        let names = names.join(", ");
        eprint_line!(
            "stockade: {access}; its programs asked for hosts of a private network: {names}{more}"
        );
    }
}

/// The most denied connections that are printed as text.
const MAX_LISTED: usize = 16;

fn print_denied(denied: &DeniedConnections) {
    for refused in denied.connections().iter().take(MAX_LISTED) {
        let times = match refused.times {
            1 => String::new(),
            times => format!(" ({times} times)"),
        };
        let what = match refused.reason {
            Reason::Unresolved | Reason::Unreachable => "not reached",
            _ => "refused",
        };
        eprint_line!(
            "stockade: {what}{times}: {} [{}] [{}]",
            refused.message,
            refused.reason,
            refused.code
        );
        if let Some(allow) = &refused.allow {
            eprint_line!("  hint: {allow}");
        }
    }
    let others = denied.connections().len().saturating_sub(MAX_LISTED);
    if others > 0 || denied.lost() > 0 {
        let lost = denied.lost().saturating_add(others as u64);
        eprint_line!(
            "stockade: {lost} more connections are not listed here; --json lists {}",
            denied.connections().len()
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
    let text = match ending {
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
    };
    let code = ending.code().map(|code| format!(" [{code}]")).unwrap_or_default();
    Some(text + &code)
}

#[cfg(test)]
mod tests {
    use stockade_core::ending::Step;

    use super::*;

    #[test]
    fn the_texts_of_endings_match_their_snapshots() {
        let arguments = Run { command: vec!["cc".into()], ..Run::default() };
        let endings = [
            Ending::NotRun { errno: 2, step: Step::RunProgram },
            Ending::NotRun { errno: 13, step: Step::EnterDirectory },
            Ending::TimedOut,
            Ending::OutOfMemory,
            Ending::OutputExceeded,
            Ending::LimitExceeded("memory".to_owned()),
            Ending::LimitExceeded("disk".to_owned()),
            Ending::Stopped(15),
            Ending::Killed,
            Ending::SandboxEnded,
            Ending::Unknown,
        ];
        let lines: Vec<_> = endings.iter().filter_map(|end| ending(&arguments, end)).collect();
        stockade_test_support::assert_snapshot("errors/endings", &lines.join("\n"));
    }
}
