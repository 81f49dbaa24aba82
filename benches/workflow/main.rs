//! What a run of a workflow costs, as a person has it: the whole process of `stockade up`, with a
//! server that runs already, beside the start of the binary and a commit of the same disk.
//! `cargo xtask bench workflow` builds and starts it.
//!
//! The contenders take turns, so that whatever else the machine does hits them alike.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool speaks here")]

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde_json::json;
use stockade_measure::{Goal, Report, Series, Unit};

/// What went wrong, for people.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Rounds that are run and not counted.
const WARM_UP: usize = 3;
/// How many tasks the large runs have.
const TASKS: usize = 1_000;
/// In which rounds those are run: they are long.
const LARGE_EVERY: usize = 10;
/// Names a directory of packages with zod in it; without it nothing is measured of zod.
const PACKAGES: &str = "STOCKADE_BENCH_PACKAGES";

const FLOOR: &str = "stockade --version";

const ONE: &str = r#"
import { createSmithers } from "stockade";
const { Workflow, Task, smithers, outputs } =
  createSmithers({ output: { type: "object", required: ["n"], properties: { n: { type: "integer" } } } });
export default smithers(() => (
  <Workflow name="one"><Task id="t" output={outputs.output}>{{ n: 1 }}</Task></Workflow>
));
"#;

const ZOD: &str = r#"
import { createSmithers } from "stockade";
import { z } from "zod";
const { Workflow, Task, smithers, outputs } = createSmithers({ output: z.object({ n: z.int() }) });
export default smithers(() => (
  <Workflow name="zod"><Task id="t" output={outputs.output}>{{ n: 1 }}</Task></Workflow>
));
"#;

/// The smallest workflow with another one in a sandbox.
const SANDBOX: &str = r#"
import { createSmithers, Sandbox } from "stockade";
const { Workflow, Task, smithers, outputs } =
  createSmithers({ output: { type: "object", required: ["n"], properties: { n: { type: "integer" } } } });
const child = smithers(() => (
  <Workflow name="child"><Task id="t" output={outputs.output}>{{ n: 1 }}</Task></Workflow>
));
export default smithers(() => (
  <Workflow name="sandbox"><Sandbox id="s" workflow={child} output={outputs.output} /></Workflow>
));
"#;

/// The same with a command.
const COMMAND: &str = r#"
import { createSmithers, Sandbox } from "stockade";
const { Workflow, smithers, outputs } = createSmithers({ output: { type: "object" } });
export default smithers(() => (
  <Workflow name="command"><Sandbox id="s" command="echo '{}'" output={outputs.output} /></Workflow>
));
"#;

/// A run of many tasks, one after another; `last` are attributes of one more.
fn many(content: &str, last: &str) -> String {
    format!(
        "import {{ createSmithers }} from \"stockade\";\n\
         const {{ Workflow, Task, smithers, outputs }} = createSmithers({{ part: {{}}, output: {{}} }});\n\
         export default smithers((ctx) => (\n\
           <Workflow name=\"many\">\n\
             {{Array.from({{ length: {TASKS} }}, (_, n) =>\n\
               <Task id={{`t${{n}}`}} output={{outputs.part}}>{{{content}}}</Task>)}}\n\
             <Task id=\"end\" output={{outputs.output}} {last}>{{{{ n: {TASKS} }}}}</Task>\n\
           </Workflow>\n\
         ));\n"
    )
}

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [program, runs, json] = words.as_slice() else {
        eprintln!("usage: bench-workflow PROGRAM RUNS JSON-FILE-OR-EMPTY");
        return ExitCode::from(2);
    };
    let runs = runs.to_str().and_then(|runs| runs.parse().ok()).unwrap_or(100);
    let file = Some(Path::new(json)).filter(|_| !json.is_empty());
    match run(Path::new(program), runs, file) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench workflow: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// A project, a data directory, and its server, which go with the value.
struct Scene {
    place: PathBuf,
    program: PathBuf,
    raw: Connection,
}

impl Drop for Scene {
    fn drop(&mut self) {
        // An idle server ends by itself in a second; what is left in the temporary directory harms
        // nobody.
        std::thread::sleep(Duration::from_secs(2));
        let _ = fs::remove_dir_all(&self.place);
    }
}

impl Scene {
    fn set(program: &Path) -> Result<Self, Failure> {
        let place = std::env::temp_dir().join(format!("stockade-bench-{}", std::process::id()));
        fs::create_dir(&place)?;
        fs::DirBuilder::new().mode(0o700).create(place.join("data"))?;
        let project = place.join("project");
        fs::create_dir(&project)?;
        fs::write(project.join("package.json"), "{}")?;
        fs::write(project.join("one.tsx"), ONE)?;
        fs::write(project.join("zod.tsx"), ZOD)?;
        fs::write(project.join("sandbox.tsx"), SANDBOX)?;
        fs::write(project.join("command.tsx"), COMMAND)?;
        fs::write(project.join("static.tsx"), many("{ n }", ""))?;
        fs::write(project.join("compute.tsx"), many("() => ({ n })", ""))?;
        let reading = many("() => ({ n })", "meta={{ seen: ctx.outputs(outputs.part).length }}");
        fs::write(project.join("reading.tsx"), reading)?;
        if let Some(packages) = std::env::var_os(PACKAGES) {
            symlink(packages, project.join("node_modules"))?;
        }
        let raw = Connection::open(place.join("raw.db"))?;
        raw.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
             CREATE TABLE rows (number INTEGER PRIMARY KEY, name TEXT, value TEXT) STRICT;",
        )?;
        Ok(Self { place, program: program.to_owned(), raw })
    }

    fn stockade(&self, words: &[&str]) -> Result<Duration, Failure> {
        let mut command = Command::new(&self.program);
        command
            .args(words)
            .current_dir(self.place.join("project"))
            .env("STOCKADE_DATA_DIR", self.place.join("data"))
            .env("STOCKADE_SERVER_IDLE_SECONDS", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let begun = Instant::now();
        let status = command.status()?;
        let time = begun.elapsed();
        if status.success() { Ok(time) } else { Err(format!("{words:?}: {status}").into()) }
    }

    /// The floor of what is recorded: one insert, and its way to the disk.
    fn commit(&self) -> Result<Duration, Failure> {
        let begun = Instant::now();
        let mut insert = self.raw.prepare_cached("INSERT INTO rows VALUES (NULL, 'x', 'y')")?;
        insert.execute([])?;
        Ok(begun.elapsed())
    }

    fn has_zod(&self) -> bool {
        self.place.join("project/node_modules/zod/package.json").exists()
    }
}

/// What is measured, each round.
struct Samples {
    floor: Series,
    commit: Series,
    one: Series,
    zod: Series,
    sandbox: Series,
    command: Series,
    known: Series,
    computed: Series,
    reading: Series,
}

impl Samples {
    const fn new() -> Self {
        Self {
            floor: Series::new(FLOOR),
            commit: Series::new("a commit of SQLite, FULL"),
            one: Series::new("up of one static task"),
            zod: Series::new("the same, with zod from source"),
            sandbox: Series::new("up of the smallest <Sandbox>"),
            command: Series::new("the same, with a command"),
            known: Series::new("a task of 1000 static ones"),
            computed: Series::new("a task of 1000 computed ones"),
            reading: Series::new("the same, each rendering reads all outputs"),
        }
    }

    fn measure(&mut self, scene: &Scene, round: usize) -> Result<(), Failure> {
        self.floor.push_time(scene.stockade(&["--version"])?);
        self.commit.push_time(scene.commit()?);
        self.one.push_time(scene.stockade(&["up", "one.tsx"])?);
        if scene.has_zod() {
            self.zod.push_time(scene.stockade(&["up", "zod.tsx"])?);
        }
        self.sandbox.push_time(scene.stockade(&["up", "sandbox.tsx"])?);
        self.command.push_time(scene.stockade(&["up", "command.tsx"])?);
        if !round.is_multiple_of(LARGE_EVERY) {
            self.known.pause();
            self.computed.pause();
            self.reading.pause();
            return Ok(());
        }
        let each = |time: Duration| time.as_secs_f64() * 1e3 / TASKS as f64;
        self.known.push(each(scene.stockade(&["up", "static.tsx"])?));
        self.computed.push(each(scene.stockade(&["up", "compute.tsx"])?));
        self.reading.push(each(scene.stockade(&["up", "reading.tsx"])?));
        Ok(())
    }

    fn report(self) -> Report {
        let mut series = vec![
            self.floor,
            self.commit,
            self.one.with_goal(Goal::MedianAtMost(40.0)),
            self.sandbox.with_goal(Goal::MedianAtMost(60.0)),
            self.command,
            self.known.with_goal(Goal::MedianAtMost(1.0)),
            self.computed.with_goal(Goal::MedianAtMost(1.0)),
            self.reading,
        ];
        if self.zod.count() > 0 {
            series.insert(3, self.zod);
        }
        Report { what: "whole process, or a task", unit: Unit::Milliseconds, base: FLOOR, series }
    }
}

fn run(program: &Path, runs: usize, file: Option<&Path>) -> Result<(), Failure> {
    let scene = Scene::set(program)?;
    let mut samples = Samples::new();
    for round in 0..WARM_UP {
        samples.measure(&scene, round + 1)?;
    }
    samples = Samples::new();
    for round in 0..runs {
        samples.measure(&scene, round)?;
    }
    if !scene.has_zod() {
        println!(
            "zod is not measured: `cargo xtask ci` installs it, or {PACKAGES} names where it is"
        );
    }
    let report = samples.report();
    println!("{}", report.table());
    if let Some(file) = file {
        report.write(file, "workflow", &json!({ "rounds": runs, "tasks": TASKS }))?;
    }
    Ok(())
}
