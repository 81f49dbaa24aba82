//! Isolated sessions: what they change is seen outside only after a commit.

use serde_json::{Value, json};

use super::{Response, Server, key};
use crate::harness::World;

/// The standard output of a command of a session, as lines.
fn output(ran: &Response) -> Vec<String> {
    assert_eq!(ran.status, 200, "{}", ran.text());
    let events = ran.events();
    let lines = events.iter().filter(|event| event["type"] == "stdout");
    lines.map(|event| event["text"].as_str().unwrap().to_owned()).collect()
}

fn changes_are_seen_after_a_commit(world: &World) {
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &["--owner", "me"]);
    let id = server.create(&key);
    let token = server.token(&key, &id, 44772);
    let place = format!("/v1/sandboxes/{id}/proxy/44772");
    let ask = |line: &str, body: &Value| {
        let (method, path) = line.split_once(' ').unwrap();
        server.json(&format!("{method} {place}{path}"), &[&token], body)
    };
    let outside = |command: &str| output(&ask("POST /command", &json!({ "command": command })));
    outside("mkdir -p /job/dir; cd /job; echo one > a; echo two > b; echo x > dir/x");
    let capabilities = ask("GET /v1/isolated/capabilities", &Value::Null).value();
    assert_eq!(capabilities["available"], json!(true), "{capabilities}");
    let refused =
        ask("POST /v1/isolated/session", &json!({ "workspace": { "path": "/job", "mode": "rw" } }));
    assert_eq!(refused.status, 501, "{}", refused.text());
    let missing = ask("POST /v1/isolated/session", &json!({ "workspace": { "path": "/none" } }));
    assert_eq!(missing.status, 404, "{}", missing.text());

    let request = json!({ "workspace": { "path": "/job" }, "idle_timeout_seconds": 600 });
    let created = ask("POST /v1/isolated/session", &request);
    assert_eq!(created.status, 201, "{}", created.text());
    let session = created.value()["session_id"].as_str().unwrap().to_owned();
    let one = format!("/v1/isolated/session/{session}");
    let run = |code: &str, more: Value| {
        let mut request = json!({ "code": code });
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ask(&format!("POST {one}/run"), &request)
    };
    let inside = |code: &str| output(&run(code, json!({})));
    assert_eq!(inside("pwd; cat a; cd dir; export KEPT=yes"), ["/job", "one"]);
    assert_eq!(inside("pwd; echo $KEPT"), ["/job/dir", "yes"]);
    let given = run("echo $GIVEN", json!({ "envs": { "GIVEN": "it's so" } }));
    assert_eq!(output(&given), ["it's so"]);
    assert_eq!(inside("echo \"[$GIVEN]\""), ["[]"]);
    inside("cd /job; echo changed > a; rm b; mkdir new; echo f > new/f; ln -s f new/l; rm -r dir");
    assert_eq!(outside("cd /job; cat a b; ls"), ["one", "two", "a", "b", "dir"]);
    let state = ask(&format!("GET {one}"), &Value::Null).value();
    assert_eq!(state["status"], "active");
    assert_eq!(state["workspace"], json!({ "path": "/job", "mode": "overlay" }));
    let listed = ask("GET /v1/isolated/sessions", &Value::Null).value();
    assert_eq!(listed["sessions"][0]["session_id"], session, "{listed}");
    let api_key = format!("x-api-key: {key}");
    let all = server.request("GET /v1/sandboxes", &[&api_key], b"").value();
    assert_eq!(all["pagination"]["totalItems"], 1, "{all}");

    // Files of the session.
    let read = ask(&format!("GET {one}/files/download?path=/job/new/f"), &Value::Null);
    assert_eq!((read.status, read.text().as_str()), (200, "f\n"));
    let gone = ask(&format!("GET {one}/files/info?path=/job/b"), &Value::Null);
    assert_eq!(gone.status, 404, "{}", gone.text());
    assert_eq!(ask("GET /files/info?path=/job/new/f", &Value::Null).status, 404);

    // A command in the background.
    let started = run("echo in the background; exit 7", json!({ "background": true }));
    assert_eq!(started.status, 202, "{}", started.text());
    let run_id = started.value()["run_id"].as_str().unwrap().to_owned();
    let status = (0..400)
        .find_map(|_| {
            let status = ask(&format!("GET {one}/runs/{run_id}"), &Value::Null).value();
            std::thread::sleep(std::time::Duration::from_millis(25));
            (status["running"] == json!(false)).then_some(status)
        })
        .expect("it ends");
    assert_eq!((&status["exit_code"], &status["error"]), (&json!(7), &Value::Null));
    let logs = ask(&format!("GET {one}/runs/{run_id}/logs"), &Value::Null);
    assert_eq!(logs.text(), "in the background\n");
    assert!(logs.head.contains("execd-isolated-tail-cursor: 18"), "{}", logs.head);
    let rest = ask(&format!("GET {one}/runs/{run_id}/logs?cursor=18"), &Value::Null);
    assert_eq!(rest.text(), "");
    assert_eq!(ask(&format!("GET {one}/runs/no-such-run"), &Value::Null).status, 404);

    let diff = ask(&format!("GET {one}/diff"), &Value::Null);
    assert_eq!(diff.status, 200, "{}", diff.text());
    let archive = world.write("diff.tar.gz", &diff.body);
    let tar = std::path::Path::new("/bin/tar");
    let listed = world.on_host(tar, &["-tzf", archive.to_str().unwrap()]).finish();
    listed.succeeds();
    let mut names: Vec<_> = listed.stdout.lines().collect();
    names.sort_unstable();
    assert_eq!(names, [".wh.b", ".wh.dir", "a", "new/", "new/f", "new/l"]);

    // A file that was changed outside is not overwritten.
    outside("echo mine > /job/a");
    let conflict = ask(&format!("POST {one}/commit"), &Value::Null);
    assert_eq!(conflict.status, 409, "{}", conflict.text());
    assert_eq!(outside("cd /job; cat a b"), ["mine", "two"]);
    inside("rm /job/a");
    outside("rm /job/a");
    let committed = ask(&format!("POST {one}/commit"), &Value::Null);
    assert_eq!(committed.status, 200, "{}", committed.text());
    assert_eq!(outside("cd /job; ls; cat new/f; readlink new/l"), ["new", "f", "f"]);
    let nothing = ask(&format!("POST {one}/commit"), &Value::Null).value();
    assert_eq!((&nothing["changed"], &nothing["removed"]), (&json!(0), &json!(0)), "{nothing}");

    assert_eq!(ask(&format!("DELETE {one}"), &Value::Null).status, 200);
    assert_eq!(ask(&format!("DELETE {one}"), &Value::Null).status, 404);
    let other = ask("GET /v1/isolated/session/00000000-0000-0000-0000-000000000000", &Value::Null);
    assert_eq!(other.status, 404);
}

fn a_session_belongs_to_its_sandbox(world: &World) {
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &["--owner", "me"]);
    let ask = |id: &str, line: &str, body: &Value| {
        let token = server.token(&key, id, 44772);
        let (method, path) = line.split_once(' ').unwrap();
        let line = format!("{method} /v1/sandboxes/{id}/proxy/44772{path}");
        server.json(&line, &[&token], body)
    };
    let (id, other) = (server.create(&key), server.create(&key));
    ask(&id, "POST /directories", &json!({ "/job": {} }));
    let request = json!({ "workspace": { "path": "/job", "mode": "ro" } });
    let created = ask(&id, "POST /v1/isolated/session", &request);
    assert_eq!(created.status, 201, "{}", created.text());
    let session = created.value()["session_id"].as_str().unwrap().to_owned();
    let one = format!("/v1/isolated/session/{session}");
    let run = json!({ "code": "echo no > /job/a; echo $?" });
    let ran = ask(&id, &format!("POST {one}/run"), &run);
    assert!(output(&ran).iter().all(|line| line != "0"), "{}", ran.text());
    assert_eq!(ask(&other, &format!("GET {one}"), &Value::Null).status, 404);
    assert_eq!(ask(&other, &format!("POST {one}/run"), &run).status, 404);
    // It ends with its sandbox.
    let api_key = format!("x-api-key: {key}");
    let killed = server.request(&format!("DELETE /v1/sandboxes/{id}"), &[&api_key], b"");
    assert_eq!(killed.status, 204, "{}", killed.text());
    let inner = format!("GET /v1/sandboxes/isolated-{session}");
    let state = server.request(&inner, &[&api_key], b"").value();
    assert_eq!(state["status"]["state"], "Terminated", "{state}");
}

as_root_and_as_user!(changes_are_seen_after_a_commit, a_session_belongs_to_its_sandbox);
