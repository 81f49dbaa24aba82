//! Typical mistakes of people who know only Smithers' documentation, one file each below `wrong`, and
//! the resulting errors, with which the file starts. `up` is an error before the run starts, `run` the
//! error of a failed run, and `ok` the output of a file that only looks wrong; ` … ` stands for any
//! text. Files with `zod` need it installed.

use std::path::Path;

use serde_json::{Value, json};
use stockade_api::{ListRuns, Workflows as _};

use crate::agents::{self, FakeSandboxes};
use crate::world::World;
use crate::zod;

const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/flows/wrong");

/// The outcome of a file.
async fn error_of(world: &World, file: &Path) -> (&'static str, String) {
    let run = match world.up(file, json!({})).await {
        Ok(run) => world.settled(&run.id).await,
        Err(problem) => {
            return ("up", format!("{}\n{}", problem.message, problem.cause.unwrap_or_default()));
        }
    };
    match run.error {
        Some(error) => {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let frames = error["frames"].as_array().into_iter().flatten().map(text);
            let frames = frames.collect::<Vec<_>>().join("\n");
            ("run", format!("{}\n{frames}", text(&error["message"])))
        }
        None => ("ok", run.output.unwrap_or_default().to_string()),
    }
}

/// JSON in compact form.
fn compact(text: &str) -> String {
    serde_json::from_str::<Value>(text).unwrap().to_string()
}

/// Whether a file needs zod, the kind of its outcome, and the texts that the outcome must contain.
fn expected(source: &str) -> (bool, String, Vec<String>) {
    let lines = source.lines().map_while(|line| line.strip_prefix("// "));
    let (mut is_zod, mut kind, mut told) = (false, String::new(), Vec::new());
    for line in lines {
        let (words, text) = line.split_once(": ").unwrap();
        let word = words.strip_prefix("zod ");
        is_zod |= word.is_some();
        kind = word.unwrap_or(words).to_owned();
        let text = if kind == "ok" { compact(text) } else { text.to_owned() };
        told.extend(text.split(" … ").map(str::to_owned));
    }
    (is_zod, kind, told)
}

#[tokio::test]
async fn what_is_written_wrong_is_told_where_and_how_it_is_put_right() {
    let (mut faults, mut shown) = (Vec::new(), String::new());
    let with_zod = zod::world("wrong::with_zod").await;
    let world = agents::world(&FakeSandboxes::new(|_, _| (0, String::new()))).await;
    world.write("children.tsx", "export const generated = 1;");
    let mut files: Vec<_> =
        std::fs::read_dir(FILES).unwrap().map(|it| it.unwrap().path()).collect();
    files.sort();
    for path in files {
        let source = std::fs::read_to_string(&path).unwrap();
        let (is_zod, kind, expected) = expected(&source);
        let world = if is_zod { with_zod.as_ref() } else { Some(&world) };
        let Some(world) = world else { continue };
        let name = path.file_name().unwrap().to_str().unwrap();
        let file = world.write(name, &source);
        let before = world.workflows.runs(&world.caller, ListRuns { limit: 1_000 }).await.unwrap();
        let (found, text) = error_of(world, &file).await;
        let after = world.workflows.runs(&world.caller, ListRuns { limit: 1_000 }).await.unwrap();
        shown.push_str(&format!("--- {name} ({found})\n{text}\n"));
        let is_told = expected.iter().all(|told| text.contains(told));
        if found != kind || !is_told || (found == "up") != (before.len() == after.len()) {
            faults.push(format!(
                "{name}, {found}: {text}\nwhere this was expected, {kind}: {expected:?}"
            ));
        }
    }
    if let Some(path) = std::env::var_os("STOCKADE_SHOW_WRONG") {
        std::fs::write(path, shown).unwrap();
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

#[tokio::test]
async fn what_is_nested_too_deeply_is_told_before_anything_is_begun() {
    let world = agents::world(&FakeSandboxes::new(|_, _| (0, String::new()))).await;
    let depth = 400_000;
    let source = format!("export default {}1{};\n", "(".repeat(depth), ")".repeat(depth));
    let file = world.write("deep.tsx", &source);
    let (kind, text) = error_of(&world, &file).await;
    assert_eq!(kind, "up", "{text}");
    assert!(text.contains(stockade_script::TOO_DEEP), "{text}");
}
