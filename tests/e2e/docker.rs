//! Sandboxes that are containers of a Docker Engine: the commands of the command line on them, and
//! workflow files as Smithers' documentation has them. As root, with an engine of the tests' own.

use serde_json::{Value, json};
use stockade_test_support::Engine;

use crate::call::{Call, Outcome};
use crate::container_examples::{self, IMAGE, NODE};
use crate::daemons::{kill_server, wait_until};
use crate::harness::{Identity, World};

/// A world whose server finds the engine of the tests.
struct Place<'a> {
    world: &'a World,
    engine: Engine,
}

/// Runs a test with an engine, or records why there is none.
fn with_engine(name: &str, test: impl FnOnce(&Place<'_>)) {
    Identity::Root.runs(name, |world| match Engine::start() {
        Ok(engine) => {
            let place = Place { world, engine };
            test(&place);
            place.is_clean();
        }
        Err(reason) => crate::harness::skip(name, &reason),
    });
}

impl Place<'_> {
    fn stockade(&self, words: &[&str]) -> Call {
        let host = format!("unix://{}", self.engine.socket().display());
        self.world.stockade(words).env("DOCKER_HOST", host)
    }

    fn call(&self, words: &[&str]) -> Outcome {
        self.stockade(words).deadline(120).finish()
    }

    fn create(&self, options: &[&str]) -> String {
        let words = [&["create", "--runtime", "docker", "--image", "t:1"], options].concat();
        let outcome = self.call(&words);
        outcome.succeeds();
        outcome.stdout.trim_end().to_owned()
    }

    fn sh(&self, id: &str, script: &str) -> Outcome {
        self.call(&["exec", id, "--", "sh", "-c", script])
    }

    /// The ids of our objects of a kind in the engine.
    fn objects(&self, kind: &str) -> Vec<String> {
        let file = self.world.data().join("runtime-docker/engine-id");
        let Ok(id) = std::fs::read_to_string(file) else { return Vec::new() };
        let filter = format!("label=dev.stockade.data={id}");
        let all: &[&str] = if kind == "container" { &["-a"] } else { &[] };
        let words = [&[kind, "ls", "-q", "--filter", &filter][..], all].concat();
        self.engine.docker(&words).lines().map(str::to_owned).collect()
    }

    /// The only container in the engine, as the engine describes it.
    fn container(&self) -> Value {
        let all = self.objects("container");
        let [id] = all.as_slice() else { panic!("not one container: {all:?}") };
        let text = self.engine.docker(&["inspect", id]);
        serde_json::from_str::<Value>(&text).unwrap()[0].clone()
    }

    /// Nothing is left in the engine once no sandbox exists.
    fn is_clean(&self) {
        self.call(&["prune", "--all", "--discard"]);
        wait_until("nothing is left in the engine", || {
            ["container", "volume", "image"].iter().all(|kind| self.objects(kind).is_empty())
        });
    }

    fn up(&self, name: &str, run: &str) -> Outcome {
        let file = self.world.path("project").join(format!("{name}.tsx"));
        self.call(&["up", file.to_str().unwrap(), "--run-id", run])
    }

    fn inspect(&self, run: &str) -> Value {
        self.call(&["inspect", run, "--json"]).json()
    }
}

macro_rules! tests {
    ($($name:ident),+ $(,)?) => {
        mod tests {
            $(#[test]
            fn $name() {
                super::with_engine(concat!(module_path!(), "::", stringify!($name)), super::$name);
            })+
        }
    };
}

fn a_container_is_created_used_and_killed(place: &Place<'_>) {
    let id = place.create(&["--env", "MINE=seen", "--memory", "256M", "--cpus", "0.5"]);
    let found = place.sh(&id, "id -u; echo $MINE; echo out; echo err >&2; exit 7");
    found.ends_with(7);
    assert_eq!(found.stdout, "1000\nseen\nout\n");
    let from = place.world.write("from.txt", "copied\n");
    place.call(&["cp", from.to_str().unwrap(), &format!("{id}:/data/to.txt")]).succeeds();
    assert_eq!(place.sh(&id, "cat /data/to.txt").stdout, "copied\n");
    let back = place.world.path("back.txt");
    place.call(&["cp", &format!("{id}:/data/to.txt"), back.to_str().unwrap()]).succeeds();
    assert_eq!(std::fs::read_to_string(back).unwrap(), "copied\n");
    let container = place.container();
    let host = &container["HostConfig"];
    assert_eq!((&host["Memory"], &host["NanoCpus"]), (&json!(268_435_456), &json!(500_000_000)));
    // The value went to init, not to the engine.
    assert!(!container.to_string().contains("seen"), "{container}");
    let shown = place.call(&["show", &id, "--json"]).json();
    assert_eq!(shown["runtime"], "docker", "{shown}");
    place.call(&["kill", &id, "--discard"]).succeeds();
    wait_until("the container is removed", || place.objects("container").is_empty());
}

fn changes_of_a_workspace_become_a_bundle(place: &Place<'_>) {
    let project = place.world.project.to_str().unwrap();
    let id = place.create(&["--workspace", project]);
    let script =
        format!("cd {project} && echo more >> a.txt && rm src/main.rs && echo new > b.txt");
    place.sh(&id, &script).succeeds();
    // The project itself is unchanged until the bundle is applied.
    assert_eq!(place.world.read("a.txt"), "alpha\n");
    place.call(&["kill", &id]).succeeds();
    place.call(&["apply", "latest"]).succeeds();
    assert_eq!(place.world.read("a.txt"), "alpha\nmore\n");
    assert_eq!(place.world.read("b.txt"), "new\n");
    assert!(!place.world.has("src/main.rs"));
}

fn a_server_that_was_killed_finds_its_containers(place: &Place<'_>) {
    let id = place.create(&[]);
    place.sh(&id, "echo kept > /data/file").succeeds();
    kill_server(&place.world.data());
    assert_eq!(place.sh(&id, "cat /data/file").stdout, "kept\n");
    place.call(&["pause", &id]).succeeds();
    place.call(&["resume", &id]).succeeds();
    place.call(&["stop", &id]).succeeds();
    wait_until("the container is removed", || place.objects("container").is_empty());
    place.call(&["start", &id]).succeeds();
    assert_eq!(place.sh(&id, "cat /data/file").stdout, "kept\n");
}

fn what_cannot_be_is_refused_with_a_remedy(place: &Place<'_>) {
    let refused = |words: &[&str], code: &str, text: &str| {
        let outcome = place.call(&[&["create", "--runtime", "docker"], words].concat());
        assert_ne!(outcome.code(), 0, "{outcome}");
        assert!(outcome.stderr.contains(&format!("[{code}]")), "{outcome}");
        assert!(outcome.stderr.contains(text), "{outcome}");
    };
    refused(&[], "INVALID_INPUT", "image");
    refused(&["--image", "none:1"], "IMAGE_NOT_FOUND", "docker pull none:1");
    let data = place.world.data();
    let mount = format!("{}:/seen", data.display());
    refused(&["--image", "t:1", "--mount", &mount], "PATH_REFUSED", "");
    let far =
        place.world.stockade(&["create", "--runtime", "docker", "--image", "t:1", "--in-process"]);
    let far = far.env("DOCKER_HOST", "tcp://127.0.0.1:2375").finish();
    assert_ne!(far.code(), 0);
}

/// The examples of Smithers' page, with an image of the tests' own.
fn the_examples_with_docker_run(place: &Place<'_>) {
    let node = place.world.path("node");
    std::fs::create_dir(&node).unwrap();
    std::fs::write(node.join("node"), NODE).unwrap();
    place.engine.docker(&["create", "--name", "with-node", "t:1", "true"]);
    let program = node.join("node");
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    place.engine.docker(&["cp", program.to_str().unwrap(), "with-node:/bin/node"]);
    place.engine.docker(&["commit", "with-node", IMAGE]);
    place.engine.docker(&["rm", "with-node"]);
    for example in container_examples::write(place.world, "docker", 3000) {
        let file = example.file.to_str().unwrap();
        place.call(&["up", file, "--run-id", example.name, "--input", example.input]).succeeds();
        let run = place.inspect(example.name);
        assert_eq!(run["run"]["output"], example.output, "{}: {run}", example.name);
        let selected = run["sandboxes"][0]["config"]["selectedImage"].as_str().unwrap();
        assert!(selected.starts_with("node:20-alpine@sha256:"), "{run}");
    }
    place.engine.docker(&["rmi", IMAGE]);
}

/// Kills of the client, the server and the keeper in the middle of a creation.
fn creations_that_are_killed_leave_nothing(place: &Place<'_>) {
    let data = place.world.data();
    let runtime = data.join("runtime-docker/runtime/1");
    let options = ["--runtime", "docker", "--image", "t:1"];
    crate::killed_creations::leave_nothing(
        &data,
        &runtime,
        |words| place.stockade(words).deadline(120),
        &options,
    );
    assert!(runtime.is_dir(), "the test looks at another directory than the runtime has");
    wait_until("nothing is left in the engine", || {
        ["container", "volume", "image"].iter().all(|kind| place.objects(kind).is_empty())
    });
}

/// What a container cannot have is refused before the engine makes anything.
fn a_private_base_and_volumes_are_refused(place: &Place<'_>) {
    for (flags, name) in [
        (&["--private-base"][..], "privateBase"),
        (&["--volume", "data:/data"], "volumes"),
        (&["--cache", "npm"], "caches"),
    ] {
        let words = [&["create", "--runtime", "docker", "--image", "t:1"], flags].concat();
        let refused = place.call(&words);
        assert_ne!(refused.code(), 0, "{refused}");
        assert!(refused.stderr.contains("[INVALID_INPUT]"), "{refused}");
        assert!(refused.stderr.contains(name), "{refused}");
        assert!(refused.stderr.contains("--runtime native"), "{refused}");
        assert!(place.objects("container").is_empty());
    }
    // A run in a container, which ends with its command.
    let words = ["run", "--runtime", "docker", "--image", "t:1", "--", "sh", "-c"];
    let ran = place.call(&[&words[..], &["echo more > b.txt; id -u; exit 5"]].concat());
    ran.ends_with(5);
    assert_eq!(ran.stdout, "1000\n", "{ran}");
    assert!(place.objects("container").is_empty());
}

/// `command` instead of a workflow, with the variables and a volume of the request.
fn a_command_replaces_the_child(place: &Place<'_>) {
    let shared = place.world.outside();
    std::fs::write(shared.join("seen"), "from the host\n").unwrap();
    let source = format!(
        "/** @jsxImportSource smithers-orchestrator */\n\
         import {{ createSmithers, Sandbox }} from \"smithers-orchestrator\";\n\
         const {{ Workflow, smithers, outputs }} = createSmithers({{ output: {{}} }});\n\
         export default smithers((ctx) => (\n  <Workflow name=\"custom\">\n    \
           <Sandbox id=\"custom-run\" output={{outputs.output}} retries={{0}} runtime=\"docker\" image=\"t:1\"\n\
             env={{{{ MODE: \"custom\" }}}} volumes={{[{{ host: {:?}, container: \"/shared\", readonly: true }}]}}\n\
             command={{{:?}}} />\n  \
         </Workflow>\n));\n",
        shared.to_str().unwrap(),
        "touch /shared/no 2>/dev/null && exit 9; echo \"{\\\"mode\\\": \\\"$MODE\\\", \\\"seen\\\": \\\"$(cat /shared/seen)\\\"}\"",
    );
    place.world.write("custom.tsx", source);
    place.up("custom", "c").succeeds();
    let run = place.inspect("c");
    assert_eq!(run["run"]["output"], json!({"mode": "custom", "seen": "from the host"}), "{run}");
}

tests![
    a_container_is_created_used_and_killed,
    changes_of_a_workspace_become_a_bundle,
    a_server_that_was_killed_finds_its_containers,
    what_cannot_be_is_refused_with_a_remedy,
    the_examples_with_docker_run,
    a_private_base_and_volumes_are_refused,
    creations_that_are_killed_leave_nothing,
    a_command_replaces_the_child,
];
