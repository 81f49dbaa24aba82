//! FireFlow's nodes: the examples of `examples/fireflow` as workflow files, and the types of
//! `sdk/typescript`.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{World, skip};

/// An application for tests of ports.
const APP: &str = include_str!("../packages/port_app.py");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs an example with an input, and returns the outputs of its tasks by their ids.
fn outputs(world: &World, example: &str, input: &Value, exit: i32) -> Value {
    let source = std::fs::read_to_string(root().join("examples/fireflow").join(example)).unwrap();
    let file = world.write(example, source);
    let (file, input) = (file.to_str().unwrap(), input.to_string());
    let words = ["up", file, "--run-id", "nodes", "--input", input.as_str()];
    let ran = world.stockade(&words).deadline(180).finish();
    ran.ends_with(exit);
    let inspected = world.stockade(&["inspect", "nodes", "--json"]).finish();
    inspected.succeeds();
    let tasks = inspected.json()["tasks"].as_array().unwrap().clone();
    let entries = tasks.into_iter().map(|task| {
        let value =
            if task["output"].is_null() { task["error"].clone() } else { task["output"].clone() };
        (task["id"].as_str().unwrap().to_owned(), value)
    });
    Value::Object(entries.collect())
}

fn the_nodes_of_a_life(world: &World) {
    let outputs = outputs(world, "lifecycle.tsx", &json!({}), 0);
    let id = &outputs["create"]["sandboxId"];
    assert!(id.is_string(), "{outputs}");
    for task in ["run", "renew", "pause", "resume", "status", "kill", "ended"] {
        assert_eq!(&outputs[task]["sandboxId"], id, "{task}: {outputs}");
        assert_eq!(outputs[task]["accessRules"].as_array().unwrap().len(), 3, "{task}: {outputs}");
    }
    let run = &outputs["run"];
    assert_eq!((&run["stdout"], &run["stderr"]), (&"hello\n".into(), &"oops\n".into()));
    assert_eq!((&run["exitCode"], &run["timedOut"]), (&3.into(), &false.into()));
    let status = |task: &str| outputs[task]["status"].as_str().unwrap();
    assert_eq!(["pause", "resume", "kill"].map(status), ["paused", "running", "terminated"]);
    let row = &outputs["status"]["sandbox"];
    for column in ["owner_id", "access_rules", "proxy_config", "visibility", "resource_spec"] {
        assert!(row.get(column).is_some(), "{column}: {row}");
    }
    assert_eq!(
        (&outputs["ended"]["isAlive"], &outputs["status"]["isAlive"]),
        (&false.into(), &true.into())
    );
}

fn a_stream_is_split(world: &World) {
    let outputs = outputs(world, "stream.tsx", &json!({}), 0);
    let split = &outputs["split"];
    let joined = |name: &str| {
        let chunks = split[name].as_array().unwrap().iter();
        chunks.map(|chunk| chunk.as_str().unwrap()).collect::<String>()
    };
    assert_eq!((joined("stdout"), joined("stderr")), ("a\nc\n".into(), "b\n".into()), "{outputs}");
    assert_eq!((&split["exit"], &split["error"]), (&json!([3]), &Value::Null), "{outputs}");
    assert!(outputs["start"]["workflowId"].is_string(), "{outputs}");
}

fn files_go_in_and_come_back(world: &World) {
    let (directory, results) = (world.outside().join("in"), world.outside().join("out"));
    world.plant(&directory.join("a.txt"), "1");
    world.plant(&directory.join("b.log"), "2");
    world.plant(&results.join("old"), "3");
    let outputs =
        outputs(world, "files.tsx", &json!({ "directory": directory, "results": results }), 0);
    assert_eq!(outputs["send"]["copied"], 1, "{outputs}");
    let receive = &outputs["receive"];
    assert_eq!((&receive["copied"], &receive["deleted"]), (&1.into(), &1.into()), "{outputs}");
    assert!(!results.join("old").exists());
    let names = std::fs::read_to_string(results.join("names.txt")).unwrap();
    assert_eq!(names, "a.txt\nresults\n");
}

fn ports_are_reached_along_the_chain(world: &World) {
    let directory = world.outside().join("app");
    world.plant(&directory.join("port_app.py"), APP);
    let outputs = outputs(world, "ports.tsx", &json!({ "directory": directory }), 0);
    let page = &outputs["page"];
    assert_eq!((&page["statusCode"], &page["markdown"]), (&200.into(), &true.into()), "{outputs}");
    let body = page["body"].as_str().unwrap();
    assert!(body.contains("# Title") && body.contains("[link](/more)"), "{body}");
    assert!(!body.contains("alert") && !body.contains("color"), "{body}");
    let chunks = outputs["chunks"]["chunks"].as_array().unwrap().iter();
    let text: String = chunks.map(|chunk| chunk.as_str().unwrap()).collect();
    assert!(text.contains("<h1>Title</h1>"), "{outputs}");
    assert_eq!(outputs["socket"]["messages"], json!(["one", "two"]), "{outputs}");
    assert_eq!(outputs["socket"]["proxyConfig"]["defaultPort"], 3000, "{outputs}");
}

fn a_secret_becomes_a_file(world: &World) {
    let value = "value-of-the-secret-5c81f02e";
    let set = world.stockade(&["secrets", "set", "deploy"]).input(value.to_owned()).finish();
    set.succeeds();
    let outputs = outputs(world, "secret.tsx", &json!({ "secret": "deploy" }), 0);
    assert_eq!(outputs["write"]["path"], "/run/secrets/key", "{outputs}");
    assert!(world.files_with(&world.data(), value).is_empty());
}

fn a_secret_that_is_not_stored_is_refused(world: &World) {
    let outputs = outputs(world, "secret.tsx", &json!({ "secret": "other" }), 1);
    assert_eq!(outputs["write"]["code"], "SECRET_NOT_FOUND", "{outputs}");
}

as_root_and_as_user!(
    the_nodes_of_a_life,
    a_stream_is_split,
    files_go_in_and_come_back,
    ports_are_reached_along_the_chain,
    a_secret_becomes_a_file,
    a_secret_that_is_not_stored_is_refused,
);

/// The compiler checks the package and its uses.
#[test]
fn the_types_of_the_package_are_right() {
    let name = concat!(module_path!(), "::the_types_of_the_package_are_right");
    let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages/npm/node_modules");
    let compiler = packages.join("typescript/bin/tsc");
    if !compiler.exists() {
        skip(name, "typescript is not installed: cargo xtask ci installs it");
        return;
    }
    let package = root().join("sdk/typescript");
    // The examples, with the declarations for editors.
    let examples = tempfile::tempdir().unwrap();
    let options = r#"{ "compilerOptions": { "target": "ES2022", "module": "ESNext", "strict": true,
        "moduleResolution": "Bundler", "noEmit": true, "jsx": "react-jsx", "types": [],
        "lib": ["ES2022", "DOM"], "jsxImportSource": "smithers-orchestrator" }, "include": ["*"] }"#;
    std::fs::write(examples.path().join("tsconfig.json"), options).unwrap();
    let mut files = vec![root().join("crates/cli/src/first/stockade.d.ts")];
    let found = std::fs::read_dir(root().join("examples/fireflow")).unwrap();
    files.extend(found.map(|file| file.unwrap().path()));
    for file in files {
        std::fs::copy(&file, examples.path().join(file.file_name().unwrap())).unwrap();
    }
    for directory in [package.as_path(), examples.path()] {
        let mut checked = Command::new("node");
        checked.arg(&compiler).arg("-p").arg(directory);
        let checked = checked.arg("--typeRoots").arg(packages.join("@types")).output();
        let checked = match checked {
            Ok(checked) => checked,
            Err(error) => {
                skip(name, &format!("node cannot be started: {error}"));
                return;
            }
        };
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    }
}
