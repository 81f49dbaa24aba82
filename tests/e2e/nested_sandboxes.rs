//! Nested sandboxes: the host creates the inner ones on the content of the outer sandbox's
//! workspace, and their changes go there and nowhere else. A child can never request more than the
//! outer sandbox has, and nothing of an inner sandbox is left when the outer one ends, whichever
//! process is killed.

use serde_json::{Value, json};

use crate::call::Outcome;
use crate::daemons::{kill_server, wait_until};
use crate::harness::World;
use crate::sandbox::{call, events, finished_run, inspect, is_clean};

/// A workflow file whose only task is a sandbox with these attributes and with this child inside.
fn flow(world: &World, name: &str, attributes: &str, child: &str) -> String {
    let source = format!(
        "/** @jsxImportSource smithers-orchestrator */\n\
         import {{ createSmithers, Sandbox }} from \"smithers-orchestrator\";\n\
         const child = createSmithers({{ a: {{}}, b: {{}}, result: {{}} }});\n\
         const {{ Workflow, Task, Sequence, Parallel, Approval, Subflow, outputs }} = child;\n\
         const asks = child.smithers((ctx) => <Workflow name=\"asks\">\n\
           <Approval id=\"deploy\" output={{outputs.result}} />\n\
         </Workflow>);\n\
         const deep = (left) => child.smithers((ctx) => <Workflow name=\"deep\">\n\
           {{left === 0 ? <Task id=\"end\" output={{outputs.result}}>{{{{ n: 7 }}}}</Task>\n\
             : <Sandbox id={{`in-${{left}}`}} allowNested retries={{0}} workflow={{levels[left - 1]}} output={{outputs.result}} />}}\n\
         </Workflow>);\n\
         const levels = [];\n\
         for (let left = 0; left < 5; left += 1) levels.push(deep(left));\n\
         const outer = child.smithers((ctx) => <Workflow name=\"outer\">{child}</Workflow>);\n\
         const parent = createSmithers({{ output: {{}} }});\n\
         export default parent.smithers((ctx) => <parent.Workflow name=\"{name}\">\n\
           <Sandbox id=\"box\" output={{parent.outputs.output}} retries={{0}} {attributes} />\n\
         </parent.Workflow>);\n"
    );
    world.write(&format!("{name}.tsx"), source).to_str().unwrap().to_owned()
}

/// A workflow file whose child has one sandbox, which executes a script.
fn inner(world: &World, name: &str, outer: &str, inner: &str, script: &str) -> String {
    let outer = format!("workflow={{outer}} {outer}");
    let command = json!(script);
    let child = format!(
        "<Sandbox id=\"in\" retries={{0}} output={{outputs.result}} command={{{command}}} {inner} />"
    );
    flow(world, name, &outer, &child)
}

fn up(world: &World, file: &str, run: &str) -> Outcome {
    call(world, &["up", file, "--run-id", run])
}

/// The row of a sandbox of a run, by its address.
fn row(run: &Value, id: &str) -> Value {
    let rows = run["sandboxes"].as_array().unwrap();
    rows.iter().find(|row| row["sandboxId"] == id).cloned().unwrap_or_default()
}

fn nodes(run: &Value) -> Vec<&str> {
    run["waits"].as_array().unwrap().iter().map(|wait| wait["node"].as_str().unwrap()).collect()
}

fn inner_changes_are_decided_about_and_go_to_the_workspace_around(world: &World) {
    world.write("a.txt", "one\n");
    world.write("b.txt", "one\n");
    let script = "echo two >> a.txt; echo two >> b.txt; echo new > new.txt; chmod 755 new.txt; \
                  echo x >> runs.txt; printf '{\"secret\": \"%s\", \"outer\": %d}' \"$SECRET\" \
                  \"$(ls /result | wc -l)\"";
    let outer = "allowNested env={{ SECRET: \"hunter2\" }}";
    let file = inner(world, "w", outer, "allowNested", script);
    up(world, &file, "r").ends_with(3);
    let run = inspect(world, "r");
    assert_eq!(nodes(&run), ["box/in"], "{run}");
    assert_eq!(row(&run, "box/in")["status"], "review", "{run}");
    // Its project is the workspace of the outer sandbox, so `latest` is not of it.
    let listed = call(world, &["bundles", "--all", "--json"]).json();
    let diff = call(world, &["diff", listed["bundles"][0]["id"].as_str().unwrap()]);
    assert!(diff.stdout.contains("+two") && diff.stdout.contains("new.txt"), "{diff}");
    kill_server(&world.data());
    let some = ["a.txt", "new.txt", "runs.txt"].map(|path| ["--only", path]).concat();
    call(world, &[&["approve", "r", "box/in"], some.as_slice()].concat()).succeeds();
    wait_until("the outer one waits", || nodes(&inspect(world, "r")) == ["box"]);
    assert_eq!((world.read("a.txt").as_str(), world.has("new.txt")), ("one\n", false));
    let run = inspect(world, "r");
    let (outer, inner) = (row(&run, "box"), row(&run, "box/in"));
    assert_eq!((&outer["depth"], &inner["depth"]), (&json!(0), &json!(1)), "{run}");
    assert_eq!(inner["parentSandboxId"], outer["remoteRunId"], "{run}");
    call(world, &["approve", "r", "box"]).succeeds();
    let run = finished_run(world, "r");
    // Of the outer sandbox, only its workspace is visible in the inner one.
    assert_eq!(run["run"]["output"], json!({ "secret": "", "outer": 0 }), "{run}");
    let read = |name: &str| world.read(name);
    assert_eq!((read("a.txt"), read("b.txt")), ("one\ntwo\n".to_owned(), "one\n".to_owned()));
    assert_eq!((read("new.txt").as_str(), read("runs.txt").as_str()), ("new\n", "x\n"));
    let recorded = events(world, "r");
    let of_inner = recorded.iter().filter(|event| event["sandboxId"] == "box/in");
    for event in of_inner {
        let lineage = (&event["rootRunId"], &event["depth"], &event["nodeId"]);
        assert_eq!(lineage, (&json!("r"), &json!(1), &json!("box")), "{event}");
    }
    let request = ".smithers/sandboxes/r/box/nested/in/request-bundle/README.md";
    let request: Value = serde_json::from_str(&world.read(request)).unwrap();
    assert_eq!(request["lineage"]["rootRunId"], "r", "{request}");
    assert_eq!(world.bundles().len(), 0);
    is_clean(world);

    up(world, &file, "no").ends_with(3);
    call(world, &["deny", "no", "box/in", "--note", "not now"]).succeeds();
    let run = finished_run(world, "no");
    assert!(run["run"]["error"].to_string().contains("not now"), "{run}");
    assert_eq!(world.read("a.txt"), "one\ntwo\n");
    is_clean(world);
}

fn it_is_off_unless_the_inner_one_allows_it(world: &World) {
    for (name, outer, attribute) in [("neither", "", ""), ("outer", "allowNested", "")] {
        let file = inner(world, name, outer, attribute, "touch ran; echo '{}'");
        up(world, &file, name).ends_with(1);
        let run = inspect(world, name);
        let message = run["run"]["error"].to_string();
        assert!(message.contains("disabled by default"), "{name}: {message}");
        assert_eq!(run["sandboxes"].as_array().unwrap().len(), 1, "{run}");
    }
    let file = inner(world, "inner", "", "allowNested", "touch ran; echo '{}'");
    up(world, &file, "inner").ends_with(3);
    call(world, &["approve", "inner", "box/in"]).succeeds();
    wait_until("the outer one waits", || nodes(&inspect(world, "inner")) == ["box"]);
    call(world, &["approve", "inner", "box"]).succeeds();
    finished_run(world, "inner");
    assert!(world.has("ran"));
    is_clean(world);
}

/// A script that requests a sandbox of this description from the host, including requests that a
/// child's engine would never make, and prints the response.
fn approval_task(described: &str, more: &str) -> String {
    let name = "ab".repeat(20);
    let at = format!("/result/nested/{name}");
    let wait = json!({
        "run": "x",
        "waits": [{ "kind": "sandbox", "node": "in", "attempt": 1, "request": name }],
    });
    format!(
        "if [ -f /result/answers.json ]; then printf '{{\"given\": %s}}' \"$(cat {at}/result/README.md)\"; \
         rm -r /result/nested; exit 0; fi; mkdir -p {at}/request; printf '%s' '{described}' > {at}/request/sandbox.json; \
         {more} printf '%s' '{wait}' > /result/waiting.json; exit 3"
    )
}

fn describe(config: &Value) -> String {
    let mut config = config.clone();
    config["allowNested"] = true.into();
    let sandbox = json!({ "name": "ab".repeat(20), "node": "in", "iteration": 0, "attempt": 1 });
    json!({ "sandbox": sandbox, "config": config }).to_string()
}

fn nobody_gets_more_than_is_around(world: &World) {
    let command = |more: Value| {
        let mut config = json!({ "command": "touch ran; echo '{}'".replace('\'', "\"") });
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        describe(&config)
    };
    let etc = json!({ "volumes": [{ "host": "/etc", "container": "/mnt" }] });
    let link = "cd /result/nested/*/request; ln -sf /etc/passwd sandbox.json; cd /;";
    let pipe = "cd /result/nested/*/request; mkfifo bundle.tsx; cd /;";
    let many = "cd /result/nested/*/request; seq 5000 | xargs touch; cd /;";
    let cases = [
        ("network", command(json!({ "allowNetwork": true })), "", "allowNetwork"),
        ("memory", command(json!({ "memoryLimit": "2g" })), "", "memoryLimit 2g, maximum 1g"),
        ("volume", command(etc), "", "/etc"),
        ("runtime", command(json!({ "runtime": "docker" })), "", "`docker`"),
        ("ports", command(json!({ "ports": [{ "host": 1, "container": 1 }] })), "", "ports"),
        ("provider", command(json!({ "provider": "p" })), "", "provider"),
        ("secret", command(json!({ "egress": { "secretBindings": { "a": "b" } } })), "", "secret"),
        ("nothing", describe(&json!({})), "", "no workflow and no command"),
        ("no-json", "{".to_owned(), "", "EOF"),
        ("link", command(json!({})), link, "symlinks"),
        ("pipe", command(json!({})), pipe, "special files"),
        ("many", command(json!({})), many, "more than 4096"),
    ];
    for (name, described, more, told) in cases {
        let script = approval_task(&described, more);
        let limit = if name == "memory" { "memoryLimit=\"1g\"" } else { "" };
        let attributes = format!("allowNested {limit} command={{{}}}", json!(script));
        let file = flow(world, name, &attributes, "");
        let outcome = up(world, &file, name);
        let run = inspect(world, name);
        if name == "memory" && outcome.code() == 1 {
            // A limit that cannot be enforced here is refused before all this.
            let error = run["run"]["error"].to_string();
            assert!(error.contains("memory"), "{error}");
            continue;
        }
        outcome.succeeds();
        let given = run["run"]["output"]["given"].clone();
        assert_eq!(given["status"], "failed", "{name}: {run}");
        let message = given["outputs"]["error"]["message"].as_str().unwrap();
        assert!(message.contains(told), "{name}: {message}");
        // Nothing was started for it.
        assert_eq!(run["sandboxes"].as_array().unwrap().len(), 1, "{name}: {run}");
    }
    let plain = command(json!({}));
    let refused = |name: &str, attributes: &str, script: String, told: &str| {
        let attributes = format!("{attributes} command={{{}}}", json!(script));
        up(world, &flow(world, name, &attributes, ""), name).ends_with(1);
        let error = inspect(world, name)["run"]["error"].clone();
        assert_eq!(error["code"], "INVALID_INPUT", "{name}: {error}");
        assert!(error["message"].as_str().unwrap().contains(told), "{name}: {error}");
    };
    // A command without the attribute is answered, and gets no sandbox.
    let attributes = format!("command={{{}}}", json!(approval_task(&plain, "")));
    up(world, &flow(world, "off", &attributes, ""), "off").succeeds();
    let run = inspect(world, "off");
    let given = &run["run"]["output"]["given"];
    assert_eq!(given["status"], "failed", "{run}");
    assert_eq!(given["outputs"]["error"]["code"], "INVALID_INPUT", "{run}");
    assert!(given.to_string().contains("disabled by default"), "{run}");
    assert_eq!(run["sandboxes"].as_array().unwrap().len(), 1, "{run}");
    let away =
        approval_task(&plain, "").replace(&format!("\"{}\"", "ab".repeat(20)), "\"../../../etc\"");
    refused("away", "allowNested", away, "the identity of");
    let wait = |n: usize| {
        let name = format!("{n:040x}");
        json!({ "kind": "sandbox", "node": format!("n{n}"), "attempt": 1, "request": name })
    };
    let waits: Vec<Value> = (0..17).map(wait).collect();
    let waiting = json!({ "run": "x", "waits": waits });
    let crowd = format!("printf '%s' '{waiting}' > /result/waiting.json; exit 3");
    refused("crowd", "allowNested", crowd, "more than 16");
    assert!(!world.has("ran"));
    is_clean(world);
}

/// A child requests a sandbox again while changes of the same sandbox wait: those are discarded.
fn who_asks_anew_gives_up_what_was_asked_before(world: &World) {
    let name = |letter: &str| letter.repeat(40);
    let ask = |letter: &str, more: Value| {
        let mut config = json!({ "allowNested": true, "command": "echo x > made; echo {}" });
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let sandbox = json!({ "name": name(letter), "node": "in", "iteration": 0, "attempt": 1 });
        let described = json!({ "sandbox": sandbox, "config": config });
        let at = format!("/result/nested/{}/request", name(letter));
        format!("mkdir -p {at}; printf '%s' '{described}' > {at}/sandbox.json;")
    };
    let wait = |node: &str, letter: &str| json!({ "kind": "sandbox", "node": node, "attempt": 1, "request": name(letter) });
    let waits = |waits: Value| {
        let waiting = json!({ "run": "x", "waits": waits });
        format!("printf '%s' '{waiting}' > /result/waiting.json; exit 3;;")
    };
    let auto = json!({ "autoAcceptDiffs": true });
    let script = [
        "n=$(cat /tmp/n 2>/dev/null); echo x$n > /tmp/n; case \"$n\" in '')".to_owned(),
        ask("a", json!({})),
        ask("b", auto.clone()),
        waits(json!([wait("in", "a"), wait("other", "b")])),
        "x)".to_owned(),
        ask("c", auto),
        waits(json!([wait("in", "c")])),
        "*) rm -r /result/nested; echo '{\"n\": 3}';; esac".to_owned(),
    ];
    let attributes = format!("allowNested command={{{}}}", json!(script.join(" ")));
    let outcome = up(world, &flow(world, "w", &attributes, ""), "r");
    outcome.succeeds();
    assert_eq!(outcome.json(), json!({ "n": 3 }), "{outcome}");
    assert_eq!(world.bundles().len(), 0);
    is_clean(world);
    let left = |of: &str| {
        let path = world.project.join(format!(".smithers/sandboxes/r/box/nested/{of}"));
        let names = std::fs::read_dir(path).unwrap();
        let mut names: Vec<_> =
            names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    for of in ["in", "other"] {
        assert_eq!(left(of), ["request-bundle", "result"], "{of}");
    }
}

fn there_is_an_end_to_how_deep_they_are(world: &World) {
    for (name, left, code) in [("three", 3, 0), ("four", 4, 1)] {
        let attributes = format!("allowNested workflow={{levels[{left}]}}");
        let file = flow(world, name, &attributes, "");
        let outcome = up(world, &file, name);
        outcome.ends_with(code);
        let run = inspect(world, name);
        let depth = |row: &Value| row["depth"].as_u64().unwrap();
        let deepest = run["sandboxes"].as_array().unwrap().iter().map(depth).max();
        assert_eq!(deepest, Some(3), "{run}");
        if code == 0 {
            assert_eq!(run["run"]["output"], json!({ "n": 7 }), "{run}");
        } else {
            assert!(run["run"]["error"].to_string().contains("the maximum is 3"), "{run}");
        }
    }
    is_clean(world);
}

/// The parent answers what a child of an inner sandbox waits for, by its address.
fn a_child_in_an_inner_one_is_answered(world: &World) {
    let child = "<Sequence><Sandbox id=\"in\" allowNested workflow={asks} output={outputs.a} />\n\
                 <Task id=\"end\" output={outputs.result}>{() => ({ yes: ctx.output(outputs.a).approved })}</Task></Sequence>";
    let file = flow(world, "w", "allowNested workflow={outer}", child);
    up(world, &file, "r").ends_with(3);
    let run = inspect(world, "r");
    assert_eq!(nodes(&run), ["box/in/deploy"], "{run}");
    kill_server(&world.data());
    call(world, &["approve", "r", "box/in/deploy"]).succeeds();
    let run = finished_run(world, "r");
    assert_eq!(run["run"]["output"], json!({ "yes": true }), "{run}");
    is_clean(world);
}

/// Two sandboxes start with the same workspace and change the same file: the second one conflicts.
fn what_no_longer_fits_is_not_made(world: &World) {
    world.write("a.txt", "one\n");
    let one = |id: &str, table: &str| {
        format!(
            "<Sandbox id=\"{id}\" allowNested autoAcceptDiffs retries={{0}} output={{outputs.{table}}} \
             command=\"echo {id} >> a.txt; echo {id} > {id}.txt; echo '{{}}'\" />"
        )
    };
    let child = format!("<Parallel>{}{}</Parallel>", one("x", "a"), one("y", "b"));
    let file = flow(world, "w", "allowNested workflow={outer}", &child);
    up(world, &file, "r").ends_with(1);
    let run = inspect(world, "r");
    let message = run["run"]["error"].to_string();
    assert!(
        message.contains("the workspace has changed since the nested <Sandbox> started: a.txt"),
        "{message}"
    );
    assert_eq!(world.read("a.txt"), "one\n");
    assert_eq!(world.bundles().len(), 0);
    is_clean(world);
}

/// A time as texts that sort in order of time.
fn comparable_time(time: &str) -> (String, String) {
    let (seconds, fraction) = time.trim_end_matches('Z').split_once('.').unwrap_or((time, "0"));
    (seconds.trim_end_matches('Z').to_owned(), format!("{fraction:0<9}"))
}

/// The sandboxes of a run were terminated, the inner one first.
fn assert_end_order(world: &World, run: &str) {
    let all = call(world, &["ls", "--all", "--label", &format!("stockade.run={run}"), "--json"]);
    let all = all.json();
    let at = |id: &str| {
        let all = all["sandboxes"].as_array().unwrap();
        let found = all.iter().find(|one| one["metadata"]["stockade.sandbox"] == id);
        comparable_time(found.unwrap()["terminatedAt"].as_str().unwrap())
    };
    assert!(at("box/in") <= at("box"), "{all}");
}

fn inner_is_executed(world: &World, run: &str) {
    wait_until("the inner one is executed", || {
        let found = call(world, &["inspect", run, "--json"]);
        found.code() == 0 && row(&found.json(), "box/in")["status"] == "shipped"
    });
}

fn an_inner_one_ends_before_the_one_around_it(world: &World) {
    let file = inner(world, "late", "allowNested timeoutMs={6000}", "allowNested", "sleep 60");
    up(world, &file, "late").ends_with(1);
    let run = inspect(world, "late");
    assert_eq!(run["run"]["error"]["code"], "TASK_TIMEOUT", "{run}");
    assert_eq!(row(&run, "box/in")["status"], "cancelled", "{run}");
    is_clean(world);
    assert_end_order(world, "late");

    let file = inner(world, "long", "allowNested", "allowNested", "touch lost; sleep 60");
    let running = world.stockade(&["up", &file, "--run-id", "long", "--json"]).start();
    inner_is_executed(world, "long");
    call(world, &["cancel", "long"]).succeeds();
    running.finish().ends_with(2);
    let run = inspect(world, "long");
    assert_eq!(row(&run, "box/in")["status"], "cancelled", "{run}");
    is_clean(world);
    assert_end_order(world, "long");

    // With an outstanding decision, too.
    let file = inner(world, "idle", "allowNested", "allowNested", "touch lost; echo '{}'");
    up(world, &file, "idle").ends_with(3);
    call(world, &["cancel", "idle"]).succeeds();
    is_clean(world);
    assert!(!world.has("lost"));
}

fn nothing_is_done_twice_when_the_server_is_killed(world: &World) {
    let script = "echo x >> runs.txt; sleep 2; echo '{\"n\": 3}'";
    let file =
        inner(world, "w", "allowNested reviewDiffs={false}", "allowNested autoAcceptDiffs", script);
    let running = world.stockade(&["up", &file, "--run-id", "r", "--json"]).start();
    inner_is_executed(world, "r");
    kill_server(&world.data());
    running.finish().succeeds();
    assert_eq!(world.read("runs.txt"), "x\n");
    let run = inspect(world, "r");
    assert_eq!(run["run"]["output"], json!({ "n": 3 }), "{run}");
    assert_eq!(row(&run, "box/in")["attempt"], 1, "{run}");
    is_clean(world);
    // It is killed at points from the start to the end of the run.
    for number in 0..6 {
        let name = format!("k{number}");
        let mut running = world.stockade(&["up", &file, "--run-id", &name, "--json"]).start();
        running.wait_for_output("RunStarted");
        std::thread::sleep(std::time::Duration::from_millis(150 + 450 * number));
        kill_server(&world.data());
        running.finish();
        let run = finished_run(world, &name);
        assert_eq!(run["run"]["output"], json!({ "n": 3 }), "{name}: {run}");
        let lines = world.read("runs.txt").lines().count() as u64;
        assert_eq!(lines, number + 2, "{name}: {run}");
    }
    is_clean(world);
    assert_eq!(world.bundles().len(), 0);
}

as_root_and_as_user![
    inner_changes_are_decided_about_and_go_to_the_workspace_around,
    it_is_off_unless_the_inner_one_allows_it,
    nobody_gets_more_than_is_around,
    who_asks_anew_gives_up_what_was_asked_before,
    there_is_an_end_to_how_deep_they_are,
    a_child_in_an_inner_one_is_answered,
    what_no_longer_fits_is_not_made,
    an_inner_one_ends_before_the_one_around_it,
    nothing_is_done_twice_when_the_server_is_killed,
];
