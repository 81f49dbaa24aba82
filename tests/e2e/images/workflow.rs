//! `<Sandbox image>` of the runtimes that use the store: the examples that Smithers has for Docker, and
//! images that the server downloads.

use std::net::TcpListener;

use serde_json::json;

use super::sample::{base, busybox, import};
use crate::call::Outcome;
use crate::container_examples::{self, IMAGE, NODE};
use crate::harness::World;
use crate::registry::interrupted::SlowRegistry;
use crate::registry::sample::image;
use crate::sandbox::inspect;

fn call(world: &World, words: &[&str]) -> Outcome {
    world.stockade(words).deadline(120).finish()
}

fn the_examples_for_docker_run_in_an_image_of_the_store(world: &World) {
    let Some(shell) = busybox("images::workflow::examples") else { return };
    let layer = base(&shell, "bin").program("usr/local/bin/node", NODE.as_bytes());
    let config = json!({ "Cmd": ["node"], "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"] });
    import(world, IMAGE, vec![layer], config);
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for example in container_examples::write(world, "bubblewrap", free) {
        let file = example.file.to_str().unwrap();
        let up = call(world, &["up", file, "--run-id", example.name, "--input", example.input]);
        // A host without control groups cannot hold the limits of the first one.
        if up.stderr.contains("cannot be enforced on this host") {
            crate::harness::skip("images::workflow::limits", "no control group for the limits");
            continue;
        }
        up.succeeds();
        let run = inspect(world, example.name);
        assert_eq!(run["run"]["output"], example.output, "{}: {run}", example.name);
        let selected = run["sandboxes"][0]["config"]["selectedImage"].as_str().unwrap();
        assert!(selected.starts_with("node:20-alpine@sha256:"), "{run}");
        let text = call(world, &["inspect", example.name]);
        assert!(text.stdout.contains(selected), "{text}");
    }
}

fn an_image_that_is_missing_is_downloaded_by_the_server(world: &World) {
    let registry = SlowRegistry::start(&image(world, "layout", "of the registry"));
    registry.release();
    let name = format!("{}/team/app:1", registry.host);
    let source = |name: &str| {
        format!(
            "/** @jsxImportSource smithers-orchestrator */\n\
             import {{ createSmithers, Sandbox }} from \"smithers-orchestrator\";\n\
             const {{ Workflow, smithers, outputs }} = createSmithers({{ output: {{}} }});\n\
             export default smithers((ctx) => (\n  <Workflow name=\"pulled\">\n    \
               <Sandbox id=\"box\" output={{outputs.output}} retries={{0}} image=\"{name}\"\n\
                 command={{'echo \"{{\\\\\"is\\\\\": \\\\\"$(cat /etc/name)\\\\\"}}\"'}} />\n  \
             </Workflow>\n));\n"
        )
    };
    let file = world.write("pulled.tsx", source(&name));
    call(world, &["up", file.to_str().unwrap(), "--run-id", "p"]).succeeds();
    let run = inspect(world, "p");
    assert_eq!(run["run"]["output"]["is"], "of the registry", "{run}");
    let selected = run["sandboxes"][0]["config"]["selectedImage"].as_str().unwrap();
    assert!(selected.starts_with(&format!("{name}@sha256:")), "{selected}");
    // Without a tag, the name can mean another image later: a person who follows the run is warned.
    let warned = |outcome: &Outcome| outcome.stderr.contains("neither a tag nor a digest");
    let file = world.write("latest.tsx", source(&format!("{}/team/app", registry.host)));
    let latest = call(world, &["up", file.to_str().unwrap(), "--run-id", "l"]);
    assert!(warned(latest.succeeds()), "{latest}");
    let again = call(world, &["up", world.write("again.tsx", source(&name)).to_str().unwrap()]);
    assert!(!warned(again.succeeds()), "{again}");
    // A sandbox of the API, too: the server knows what the client does not have.
    let missing = "127.0.0.1:1/team/none:1";
    let file = world.write("missing.tsx", source(missing));
    let refused = call(world, &["up", file.to_str().unwrap(), "--run-id", "m"]);
    assert_ne!(refused.code(), 0, "{refused}");
    let all = format!("{}{}", refused.stdout, refused.stderr);
    assert!(all.contains("127.0.0.1:1 cannot be reached"), "{refused}");
}

as_root_and_as_user! {
    the_examples_for_docker_run_in_an_image_of_the_store,
    an_image_that_is_missing_is_downloaded_by_the_server,
}
