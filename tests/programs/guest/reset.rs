//! The machine is reset while Stockade runs, and booted again with the same disk: no process was
//! notified before, and nothing was written back. Everything that was promised to be stored is
//! there, everything that has ended is reported as ended, and nothing that had only started is
//! taken for running.

use std::fs::{self, File, read_to_string};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use stockade_runtime_native::{Native, Options};

use crate::Check;
use crate::caller::{Caller, Outcome, Running};
use crate::groups::{Groups, USER};

pub(crate) const CHECKS: &[Check] = &[
    ("reset-applies-are-whole-or-nothing", |groups| {
        check_each(groups, applies_are_whole_or_nothing)
    }),
    ("reset-sandboxes-have-ended", |groups| check_each(groups, sandboxes_have_ended)),
    ("reset-operations-have-ended", |groups| check_each(groups, operations_have_ended)),
    ("reset-snapshots-are-restored", |groups| check_each(groups, snapshots_are_restored)),
    ("reset-stopped-sandboxes-start", |groups| check_each(groups, stopped_sandboxes_start)),
    ("reset-bundles-are-applied", |groups| check_each(groups, bundles_are_applied)),
    ("reset-finished-steps-stay-finished", |groups| {
        check_each(groups, finished_steps_stay_finished)
    }),
    ("reset-waiting-runs-go-on", |groups| check_each(groups, waiting_runs_go_on)),
    ("reset-leaves-nothing", leaves_nothing),
];

/// The argument with which this program ends a keeper: `drain DATA`.
pub(crate) const DRAIN: &str = "drain";
/// How long any expected event may take here.
const TIMEOUT: Duration = Duration::from_secs(100);
/// How long a step runs: until after the reset, by a clock that continues meanwhile.
const STARTED_DEADLINE: Duration = Duration::from_secs(120);
/// How many files the bundle that is being applied at the reset changes.
const MANY: usize = 400;
/// A command that runs until it is killed.
const ENDLESS: &str =
    "echo begun; echo run >>/tmp/runs; while :; do probe linger here >/dev/null; done";

/// A user with a project and a data directory on the disk.
struct Scene {
    caller: Caller,
    home: PathBuf,
}

/// Root, and an ordinary user.
fn scenes(groups: &Groups) -> [Scene; 2] {
    [0, USER].map(|user| {
        let home = Path::new("/home").join(user.to_string());
        Scene { caller: groups.session(user), home }
    })
}

/// Executes a check for both; returns their reports.
fn check_each(groups: &Groups, check: fn(&Scene) -> String) -> String {
    let [root, user] = scenes(groups);
    format!("as root: {}; as user: {}", check(&root), check(&user))
}

/// When this returns, Stockade is working, and the machine can be reset.
pub(crate) fn before(groups: &Groups) -> impl Sized {
    let scenes = scenes(groups);
    for scene in &scenes {
        // The first call of a user creates the directories.
        scene.expect_success(&["bundles"]);
        scene.write("kept", "of the host\n");
        for number in 0..MANY {
            scene.write(&format!("many-{number}"), "old\n");
        }
        for (name, body) in [
            (
                "slow",
                "<Task id=\"first\" output={outputs.a}>{() => ({ n: 1 })}</Task>\n\
                 <Task id=\"second\" output=\"output\">\
                 {async () => {\n\
                   while (Date.now() < ctx.input.until) await later(200);\n\
                   return { n: 3 };\n\
                 }}</Task>",
            ),
            (
                "waits",
                "<Task id=\"first\" output={outputs.a}>{() => ({ n: 1 })}</Task>\n\
                 <Approval id=\"ok\" output={outputs.a} />\n\
                 <Task id=\"last\" output=\"output\">{() => ({ done: true })}</Task>",
            ),
        ] {
            scene.write(&format!("{name}.tsx"), &flow(name, body));
        }
    }
    // From here on, each program itself must write what it promises to disk.
    rustix::fs::sync();
    for scene in &scenes {
        scene.start();
    }
    let runs = scenes.each_ref().map(Scene::start_slow_command);
    for scene in &scenes {
        scene.wait_until_started();
    }
    let applies = scenes.each_ref().map(Scene::start_apply);
    // One apply has changed its first files now; the other may be anywhere.
    while scenes.iter().all(|scene| scene.read("many-0") == "old\n") {}
    (runs, applies)
}

fn flow(name: &str, body: &str) -> String {
    format!(
        "/** @jsxImportSource smithers-orchestrator */\n\
         import {{ createSmithers }} from \"smithers-orchestrator\";\n\
         const {{ Workflow, Task, Approval, smithers, outputs }} =\n  \
           createSmithers({{ a: {{}}, output: {{}} }});\n\
         const later = (ms) => new Promise((done) => setTimeout(done, ms));\n\
         export default smithers((ctx) => <Workflow name=\"{name}\">\n{body}\n</Workflow>);\n"
    )
}

impl Scene {
    fn call(&self, words: &[&str]) -> Outcome {
        self.caller.stockade(words)
    }

    #[track_caller]
    fn expect_success(&self, words: &[&str]) -> Outcome {
        let outcome = self.call(words);
        outcome.ends_with(0);
        outcome
    }

    /// The output of a script in a sandbox.
    #[track_caller]
    fn sh(&self, id: &str, script: &str) -> String {
        self.expect_success(&["exec", id, "--", "sh", "-c", script]).stdout
    }

    fn state(&self, id: &str) -> Value {
        self.expect_success(&["show", id, "--json"]).json()["state"].clone()
    }

    /// The tasks of a run: their status, attempts and executions by their ids.
    fn tasks(&self, run: &str) -> Value {
        let describe = |task: &Value| {
            let id = task["id"].as_str().unwrap().to_owned();
            (id, json!([task["status"], task["attempts"], task["executions"]]))
        };
        let inspected = self.expect_success(&["inspect", run, "--json"]).json();
        Value::Object(inspected["tasks"].as_array().unwrap().iter().map(describe).collect())
    }

    fn project(&self, name: &str) -> PathBuf {
        self.home.join("project").join(name)
    }

    fn data(&self) -> PathBuf {
        self.home.join(".local/share/stockade")
    }

    /// The processes that were started with this argument for the data directory.
    fn processes(&self, word: &str) -> Vec<Pid> {
        let (word, data) = (format!("\0{word}\0"), self.data().display().to_string());
        let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap());
        let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let ours = numbers.filter(|number: &i32| {
            let line = read_to_string(format!("/proc/{number}/cmdline")).unwrap_or_default();
            line.contains(&word) && line.contains(&data)
        });
        ours.filter_map(Pid::from_raw).collect()
    }

    /// Writes a file of the project as its owner.
    fn write(&self, name: &str, text: &str) {
        let path = self.project(name);
        fs::write(&path, text).unwrap();
        chown(path, Some(self.caller.user), Some(self.caller.user)).unwrap();
    }

    /// Creates everything that must exist after the reset.
    fn start(&self) {
        for id in ["box", "still", "other", "stopped"] {
            self.expect_success(&["create", "--id", id]);
            self.sh(id, &format!("echo {id} >/tmp/file"));
        }
        self.expect_success(&["pause", "still"]);
        self.expect_success(&["snapshot", "other", "--as", "good"]);
        self.expect_success(&["stop", "stopped"]);
        self.review("few", "echo changed >kept; echo new >new");
        self.review("many", &format!("for n in $(seq 0 {}); do echo new >many-$n; done", MANY - 1));
        self.call(&["up", "waits.tsx", "--run-id", "waits"]).ends_with(3);
        for (name, script) in [("over", "echo over; exit 7"), ("endless", ENDLESS)] {
            let words = ["exec", "--detach", "--json", "box", "--", "sh", "-c", script];
            self.save_id(name, &self.expect_success(&words).json()["workflowId"]);
        }
        self.call(&["logs", &self.saved_id("over"), "--follow"]).ends_with(7);
    }

    /// Creates a bundle of the changes of a script in the project.
    fn review(&self, name: &str, script: &str) {
        self.expect_success(&["run", "--review", "--", "sh", "-c", script]);
        self.save_id(name, &self.expect_success(&["bundles", "--json"]).json()["bundles"][0]["id"]);
    }

    /// Stores an id so that it survives a reset.
    fn save_id(&self, name: &str, id: &Value) {
        let path = self.home.join(name);
        fs::write(&path, id.as_str().unwrap()).unwrap();
        File::open(path).and_then(|file| file.sync_all()).unwrap();
        File::open(&self.home).and_then(|directory| directory.sync_all()).unwrap();
    }

    fn saved_id(&self, name: &str) -> String {
        read_to_string(self.home.join(name)).unwrap()
    }

    /// Starts to change many files.
    fn start_apply(&self) -> Running {
        self.caller.spawn("stockade", &["apply", &self.saved_id("many")])
    }

    fn read(&self, name: &str) -> String {
        read_to_string(self.project(name)).unwrap_or_default()
    }

    fn start_slow_command(&self) -> Running {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let input = json!({ "until": (now + STARTED_DEADLINE).as_millis() }).to_string();
        let words = ["up", "slow.tsx", "--run-id", "slow", "--input", &input];
        self.caller.spawn("stockade", &words)
    }

    /// Waits until the slow run is at its second step, and the endless command has started.
    fn wait_until_started(&self) {
        eventually("the second step", || {
            let outcome = self.call(&["inspect", "slow", "--json"]);
            outcome.code == 0 && self.tasks("slow")["second"][2] == 1
        });
        eventually("a command", || self.sh("box", "cat /tmp/runs 2>/dev/null; true") == "run\n");
    }
}

#[track_caller]
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < end, "it never came to {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Sandboxes that were running or paused are reported as stopped, with the reason: no process of this
/// boot is taken for one of theirs. Their files remain.
fn sandboxes_have_ended(scene: &Scene) -> String {
    for id in ["box", "still", "other"] {
        eventually("the end of a sandbox", || scene.state(id) == "stopped");
        let events = scene.expect_success(&["events", id]).stdout;
        assert!(events.contains("host_restarted"), "{id}: {events}");
        let refused = scene.call(&["exec", id, "--", "true"]);
        assert_ne!(refused.code, 0, "{refused:?}");
    }
    assert_eq!(scene.state("stopped"), "stopped");
    scene.expect_success(&["start", "other"]);
    assert_eq!(scene.sh("other", "echo started"), "started\n");
    scene.expect_success(&["ls"]).stdout.lines().count().to_string() + " lines are listed"
}

/// Commands that had ended are as recorded; those that had not are reported as unknown, and are not
/// started again.
fn operations_have_ended(scene: &Scene) -> String {
    let over = scene.call(&["logs", &scene.saved_id("over"), "--follow"]);
    over.ends_with(7);
    assert_eq!(over.stdout, "over\n");
    let endless = scene.call(&["logs", &scene.saved_id("endless"), "--follow"]);
    assert_ne!(endless.code, 0, "{endless:?}");
    assert!(matches!(endless.stdout.as_str(), "" | "begun\n"), "{endless:?}");
    format!("{} {}", endless.code, endless.stderr)
}

fn snapshots_are_restored(scene: &Scene) -> String {
    scene.expect_success(&["restore", "good", "--id", "again"]);
    assert_eq!(scene.sh("again", "cat /tmp/file"), "other\n");
    "with its files".to_owned()
}

fn stopped_sandboxes_start(scene: &Scene) -> String {
    scene.expect_success(&["start", "stopped"]);
    assert_eq!(scene.sh("stopped", "cat /tmp/file"), "stopped\n");
    "with its files".to_owned()
}

fn bundles_are_applied(scene: &Scene) -> String {
    assert_eq!(scene.read("kept"), "of the host\n");
    scene.expect_success(&["apply", &scene.saved_id("few")]);
    assert_eq!((scene.read("kept"), scene.read("new")), ("changed\n".into(), "new\n".into()));
    "whole".to_owned()
}

/// The first command after the reset finishes or undoes an apply that was interrupted.
fn applies_are_whole_or_nothing(scene: &Scene) -> String {
    let journals = fs::read_dir(scene.data().join("journals")).map_or(0, Iterator::count);
    scene.expect_success(&["bundles"]);
    let count = |text: &str| {
        (0..MANY).filter(|number| scene.read(&format!("many-{number}")) == text).count()
    };
    let (old, new) = (count("old\n"), count("new\n"));
    assert!([(MANY, 0), (0, MANY)].contains(&(old, new)), "{old} are old, {new} are new");
    if new == 0 {
        scene.expect_success(&["apply", &scene.saved_id("many")]);
        assert_eq!(count("new\n"), MANY);
    }
    let came = if new == 0 { "undone, and applied again" } else { "finished" };
    format!("{journals} journals were left, {came}")
}

fn finished_steps_stay_finished(scene: &Scene) -> String {
    let resumed = scene.expect_success(&["resume", "slow"]);
    assert_eq!(resumed.json(), json!({ "n": 3 }));
    let tasks = scene.tasks("slow");
    assert_eq!(tasks["first"], json!(["finished", 1, 1]));
    assert_eq!(tasks["second"], json!(["finished", 1, 2]));
    tasks.to_string()
}

fn waiting_runs_go_on(scene: &Scene) -> String {
    let status =
        || scene.expect_success(&["inspect", "waits", "--json"]).json()["run"]["status"].clone();
    assert_eq!(status(), "waiting");
    scene.expect_success(&["approve", "waits", "ok"]);
    let resumed = scene.expect_success(&["resume", "waits"]);
    assert_eq!(resumed.json(), json!({ "done": true }));
    let tasks = scene.tasks("waits");
    assert_eq!(tasks["first"], json!(["finished", 1, 1]));
    tasks.to_string()
}

/// When the last sandbox has ended and no server runs, no processes, control groups, files or
/// mounts are left.
fn leaves_nothing(groups: &Groups) -> String {
    for scene in scenes(groups) {
        for id in ["again", "stopped", "box", "still", "other"] {
            scene.expect_success(&["kill", id]);
        }
        for server in scene.processes("__server") {
            kill_process(server, Signal::TERM).unwrap();
        }
        eventually("the end of the server", || scene.processes("__server").is_empty());
        let data = scene.data();
        scene.caller.program("/init", &[DRAIN, data.to_str().unwrap()]).ends_with(0);
        eventually("the end of the keeper", || scene.processes("__keeper").is_empty());
        for part in ["runtime/1/sandboxes", "runtime/1/staging", "runtime/1/trash", "journals"] {
            let entries = fs::read_dir(data.join(part)).into_iter().flatten();
            let left: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
            assert!(left.is_empty(), "{left:?}");
        }
    }
    eventually("no control group", || groups.stockade_groups().is_empty());
    let mounts = read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains("stockade"), "{mounts}");
    "neither as root nor as user".to_owned()
}

/// Requests the keeper of a data directory to release its pool and to end.
pub(crate) fn drain(data: PathBuf) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let keeper = ["/usr/bin/stockade", "__keeper"].map(Into::into).to_vec();
    let native = Native::open(Options { data, keeper, pool: 0 }).unwrap();
    runtime.block_on(native.drain()).unwrap();
}
