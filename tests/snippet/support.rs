//! Runners for tests, and functions that observe their processes from outside.

use std::path::PathBuf;

use stockade_script::worker::Program;
use stockade_snippet::{Input, Options, Runner, Transcript};

/// The options of a runner whose program is the example `snippets`.
pub(crate) fn options() -> Options {
    let path = stockade_test_support::program("snippets");
    Options::new(Program { path, arguments: Vec::new() })
}

/// Runs one source until it ends.
pub(crate) async fn run(runner: &Runner, source: &str, timeout_ms: f64) -> Transcript {
    let source = Some(source.to_owned());
    let input = Input { source, timeout_ms: Some(timeout_ms), ..Input::default() };
    runner.run(input, std::future::pending()).await.unwrap()
}

/// The processes that a process has started and not reaped.
pub(crate) fn children_of(process: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let lists = tasks.filter_map(|task| {
        let path: PathBuf = task.ok()?.path().join("children");
        std::fs::read_to_string(path).ok()
    });
    let all: String = lists.collect::<Vec<_>>().join(" ");
    all.split_ascii_whitespace().map(|id| id.parse().unwrap()).collect()
}

/// The zygote: the child of the only child of this process.
pub(crate) fn zygote() -> u32 {
    let outer = children_of(std::process::id());
    let [outer] = outer.as_slice() else { panic!("{outer:?}") };
    let inner = children_of(*outer);
    let [inner] = inner.as_slice() else { panic!("{inner:?}") };
    *inner
}
