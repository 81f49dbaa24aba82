//! Where control groups can be created and where not: what is reported about that, and that the
//! remedies work when they are followed literally.

use std::fs::{create_dir, read_to_string, remove_dir};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::Check;
use crate::caller::{Caller, Outcome};
use crate::groups::{Groups, ROOT, USER, delegate, enable_controllers};
use crate::limits::{HOG, LIMITED, assert_enforced, assert_out_of_memory, limit_report};

pub(crate) const CHECKS: &[Check] = &[
    ("only-version-2", only_version_2),
    ("doctor-as-root", |groups| doctor_holds(&groups.session(0))),
    ("doctor-as-user-with-delegation", |groups| doctor_holds(&groups.scope())),
    ("doctor-as-user-without-delegation", doctor_refuses),
    ("a-scope-with-others-in-it", scope_with_others),
    ("a-session-with-others-in-it", session_with_others),
    ("only-some-controllers", only_some_controllers),
    ("refused-under-systemd", refused_under_systemd),
    ("the-remedy-without-systemd", remedy_without_systemd),
    ("alone-in-a-container", alone_in_a_container),
    ("the-remedy-in-a-container", remedy_in_a_container),
    ("best-effort", best_effort),
    ("nothing-is-left", nothing_is_left),
];

const SCOPE: &str = "systemd-run --user --scope -p Delegate=yes";

const BOTH: &[&str] = &["--memory", "48M", "--cpus", "0.5"];

fn only_version_2(_: &Groups) -> String {
    assert_eq!(read_to_string("/proc/self/cgroup").unwrap(), "0::/init.scope\n");
    let mounts = read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(" - cgroup "), "{mounts}");
    let kernel = read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let controllers = read_to_string(Path::new(ROOT).join("cgroup.controllers")).unwrap();
    format!("Linux {} with {}", kernel.trim(), controllers.trim())
}

/// The report of `doctor`, which must be that every wall is enabled.
fn doctor(caller: &Caller) -> Value {
    let outcome = caller.stockade(&["doctor", "--json"]);
    let json = outcome.json();
    let walls = json["walls"].as_array().unwrap();
    let open: Vec<_> = walls.iter().filter(|wall| wall["raised"] != true).collect();
    assert!(open.is_empty() && walls.len() > 10, "{json}");
    outcome.ends_with(0);
    json
}

fn doctor_holds(caller: &Caller) -> String {
    let json = doctor(caller);
    for name in ["memory", "cpus"] {
        assert_enforced(&json["limits"], name);
    }
    assert_eq!(limit_report(&json["limits"], "pids")["enforcement"], "enforced");
    json["identity"].as_str().unwrap().to_owned()
}

fn doctor_refuses(groups: &Groups) -> String {
    let _systemd = groups.systemd();
    let json = doctor(&groups.session(USER));
    for name in ["memory", "cpus"] {
        let limit = limit_report(&json["limits"], name);
        assert_eq!(
            (&limit["enforcement"], &limit["remediation"]),
            (&"refused".into(), &format!("{SCOPE} stockade doctor").into())
        );
    }
    SCOPE.to_owned()
}

/// The group is created beside the scope, because other processes are in the scope.
fn scope_with_others(groups: &Groups) -> String {
    let scope = groups.scope();
    let _other = scope.start_idle();
    assert_out_of_memory(&scope.run(BOTH, HOG))
}

/// The same as root, and higher up for controllers that the slice does not have.
fn session_with_others(groups: &Groups) -> String {
    let session = groups.session(0);
    let _other = session.start_idle();
    let json = session.run(&["--cpus", "0.5"], &["cat", "/dev/null"]).ends_with(0).json();
    assert_enforced(&json["isolation"]["limits"], "cpus");
    assert_out_of_memory(&session.run(LIMITED, HOG))
}

/// A controller that a group does not have is named, and the others still work.
fn only_some_controllers(_: &Groups) -> String {
    let slice = Path::new(ROOT).join("memory-only.slice");
    let scope = slice.join("user.scope");
    create_dir(&slice).unwrap();
    enable_controllers(&slice, "+memory");
    create_dir(&scope).unwrap();
    delegate(&scope, USER);
    let caller = Caller { user: USER, group: scope };
    let cause = refusal(&caller.run(BOTH, HOG), "cpus").cause;
    let group = caller.group.display();
    let wanted = format!("this process's control group {group} does not have the `cpu` controller");
    assert_eq!(cause, wanted);
    let outcome = caller.run(&[BOTH, &["--best-effort", "cpus"]].concat(), HOG);
    assert_out_of_memory(&outcome);
    assert_eq!(
        limit_report(&outcome.json()["isolation"]["limits"], "cpus")["enforcement"],
        "refused"
    );
    cause
}

/// Why a limit cannot be enforced, and the remedy.
struct Refusal {
    cause: String,
    remedy: String,
}

#[track_caller]
fn refusal(outcome: &Outcome, limit: &str) -> Refusal {
    let json = outcome.ends_with(125).json();
    let error = &json["error"];
    assert_eq!(error["code"], "LIMIT_UNAVAILABLE", "{json}");
    assert!(error["message"].as_str().unwrap().contains(limit), "{json}");
    let text = |name: &str| error[name].as_str().unwrap().to_owned();
    Refusal { cause: text("cause"), remedy: text("remediation") }
}

fn refused_under_systemd(groups: &Groups) -> String {
    let _systemd = groups.systemd();
    let session = groups.session(USER);
    for (option, limit) in [(LIMITED, "memory"), (&["--cpus", "0.5"], "cpus")] {
        let remedy = refusal(&session.run(option, HOG), limit).remedy;
        assert!(remedy.starts_with(&format!("{SCOPE} stockade run ")), "{remedy}");
    }
    refusal(&session.run(LIMITED, HOG), "memory").cause
}

/// The commands of a remedy before the second attempt.
#[track_caller]
fn before(remedy: &str) -> &str {
    remedy.split_once(" && stockade run ").unwrap_or_else(|| panic!("{remedy}")).0
}

/// The script that root runs in a remedy that is typed in the shell with this pid.
#[track_caller]
fn script_of_root(remedy: &str, shell: u32) -> String {
    let script = before(remedy).strip_prefix("sudo sh -c \"");
    let script = script.and_then(|script| script.strip_suffix('"'));
    let script = script.unwrap_or_else(|| panic!("{remedy}"));
    script.replace("\\$", "$").replace("$$", &shell.to_string())
}

fn remedy_without_systemd(groups: &Groups) -> String {
    let session = groups.session(USER);
    let shell = session.start_idle();
    let root = Caller { user: 0, ..session.clone() };
    for (option, limit) in [(LIMITED, "memory"), (BOTH, "cpus")] {
        let caller = Caller { group: groups.group_of(&shell), ..session.clone() };
        let remedy = refusal(&caller.run(option, HOG), limit).remedy;
        let script = script_of_root(&remedy, shell.pid());
        root.program("sh", &["-e", "-c", &script]).ends_with(0);
    }
    // In the same group as the shell, as its children are.
    let caller = Caller { group: groups.group_of(&shell), ..session };
    let path = Path::new(ROOT).join(format!("stockade-{USER}"));
    assert_eq!(caller.group, path.join("shell"));
    let detail = assert_out_of_memory(&caller.run(BOTH, HOG));
    drop(shell);
    remove_dir(&caller.group).unwrap();
    remove_dir(&path).unwrap();
    detail
}

/// Runs a script in a container with its own hierarchy, as container engines create it.
fn in_container(name: &str, script: &str) -> Outcome {
    let group = Path::new(ROOT).join(name);
    create_dir(&group).unwrap();
    let container = Caller { user: 0, group };
    let script = format!("umount /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup; {script}");
    container.program("unshare", &["--cgroup", "--mount", "sh", "-c", &script])
}

const RUN: &str = "stockade run --json --discard --memory 48M -- probe hog-memory 100663296";

/// The only process of the container is moved out of its group.
fn alone_in_a_container(_: &Groups) -> String {
    assert_out_of_memory(&in_container("container-1", &format!("exec {RUN}")))
}

fn remedy_in_a_container(_: &Groups) -> String {
    let refused = refusal(&in_container("container-2", &format!("{RUN}; exit $?")), "memory");
    let script = format!("set -e; {}; {RUN}", before(&refused.remedy));
    assert_out_of_memory(&in_container("container-3", &script));
    refused.cause
}

fn best_effort(groups: &Groups) -> String {
    let options = [BOTH, &["--best-effort", "memory", "--best-effort", "cpus"]].concat();
    let json = groups.session(USER).run(&options, &["cat", "/dev/null"]).ends_with(0).json();
    let limits = &json["isolation"]["limits"];
    assert_eq!(limit_report(limits, "memory")["enforcement"], "watched");
    assert_eq!(limit_report(limits, "cpus")["enforcement"], "refused");
    "memory is watched".to_owned()
}

fn nothing_is_left(groups: &Groups) -> String {
    assert_eq!(groups.stockade_groups(), Vec::<PathBuf>::new());
    "no group of stockade's is left".to_owned()
}
