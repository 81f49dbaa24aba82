//! The hunt at the doors of other clients: tools of MCP, secrets of E2B, API keys, and keys of ssh.

use std::path::Path;

use serde_json::{Value, json};

use super::{Hunt, forms};
use crate::daemons::{kill_server, servers, wait_until};
use crate::harness::{World, tests_run_as_root};
use crate::mcp::over_http::{call, open};
use crate::served::{Server, key};
use crate::ssh_agent::{Keys, has_programs};

/// MCP and E2B, through a server that is killed in the end.
fn no_value_of_mcp_or_e2b_is_left_anywhere(world: &World) {
    let hunt = Hunt::new();
    let server = Server::start(world, &[]);
    let (api_key, _) = key(world, &["--owner", "me"]);
    let own = format!("x-api-key: {api_key}");
    let ask = |line: &str, body: &Value| {
        let answer = server.json(line, &[&own], body);
        assert!(hunt.forms_in(answer.text().as_bytes()).is_empty(), "{}", answer.text());
        answer
    };
    let created = ask("POST /secrets", &json!({"name": "one", "value": hunt.of("e2b")}));
    assert_eq!(created.status, 201, "{}", created.text());
    let secret = created.value()["secretID"].as_str().unwrap().to_owned();
    hunt.finds_nothing(world, "after a secret of E2B");
    let again = ask(&format!("POST /secrets/{secret}"), &json!({"value": hunt.of("e2b-2")}));
    assert_eq!(again.status, 200, "{}", again.text());
    let refused = json!({"name": "a b", "value": hunt.of("e2b-refused")});
    assert!((400..502).contains(&ask("POST /secrets", &refused).status));
    let headers = json!({"Authorization": "Bearer ${e2b.secrets.one}"});
    let rules = json!({"api.example.com": [{"transform": {"headers": headers}}]});
    let sandbox = json!({"templateID": "base", "network": {"rules": rules}});
    let made = ask("POST /sandboxes", &sandbox);
    assert_eq!(made.status, 201, "{}", made.text());
    hunt.finds_nothing(world, "after a sandbox with a secret of E2B");

    let session = open(*server, &own);
    let headers = [own.as_str(), session.as_str()];
    let created = call(*server, &headers, "create", &json!({}));
    let id = created["structuredContent"]["sandbox"].as_str().unwrap().to_owned();
    let value = hunt.of("mcp");
    let run = json!({"sandbox": id, "command": "echo ${#TOKEN}", "env": { "TOKEN": value }});
    let ran = call(*server, &headers, "exec", &run);
    let told = ran["structuredContent"]["stdout"].as_str().unwrap().to_owned();
    assert_eq!(told, format!("{}\n", value.len()), "{ran}");
    // What is no request is kept nowhere either.
    call(*server, &headers, "exec", &json!({"sandbox": id, "env": hunt.of("mcp-wrong")}));
    hunt.finds_nothing(world, "after commands of MCP");

    assert!(hunt.forms_in(server.running.stderr().as_bytes()).is_empty());
    assert!(hunt.forms_in(server.running.stdout().as_bytes()).is_empty());
    if tests_run_as_root() {
        assert_eq!(hunt.memory(server.running.pid()), Vec::<String>::new());
    }
    server.running.signal(rustix::process::Signal::KILL);
    drop(server);
    hunt.finds_nothing(world, "after the end of the server");
    assert!(world.files_with(&world.data(), &api_key).is_empty(), "an API key is stored");
}

/// A private key of ssh in the vault, which an agent of the server uses.
fn no_key_of_ssh_is_left_anywhere(world: &World) {
    if !has_programs("canary::dialects::no_key_of_ssh_is_left_anywhere") {
        return;
    }
    let keys = Keys::new(world);
    let path = keys.directory.join("own");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    // The line with the private half, without its beginning and end, which other keys may share.
    let line = text.lines().nth(4).unwrap()[8..40].to_owned();
    let hunt = Hunt { patterns: forms(line.as_bytes()), prefix: line };
    let stored = world.stockade(&["secrets", "set", "deploy", "--type", "ssh"]).input(text);
    stored.finish().succeeds();
    hunt.finds_nothing(world, "after a key was stored");
    let fingerprint = keys.fingerprint("own");
    let permissions = keys.directory.join("permissions.toml");
    world.plant(
        &permissions,
        &format!(
            "secrets = [\"deploy\"]\n[[allow]]\nkey = \"{fingerprint}\"\nnamespaces = [\"git\"]\n"
        ),
    );
    let file = permissions.to_str().unwrap();
    let made = world.stockade(&["create", "--ssh-agent", file]).finish();
    made.succeeds();
    let id = made.stdout.trim().to_owned();
    let script = format!(
        "echo '{}' > /tmp/key.pub; echo x > /tmp/text; ssh-keygen -Y sign -n git -f /tmp/key.pub /tmp/text",
        keys.public("own")
    );
    let sign = || world.stockade(&["exec", &id, "--", "sh", "-c", &script]).finish();
    sign().succeeds();
    hunt.finds_nothing(world, "after a signature");
    kill_server(&world.data());
    wait_until("the server has ended", || servers(&world.data()).is_empty());
    sign().succeeds();
    hunt.finds_nothing(world, "after the end of the server");
    world.stockade(&["kill", &id]).finish().succeeds();
    hunt.finds_nothing(world, "at the end");
    assert!(!Path::new(&path).exists());
}

as_root_and_as_user![no_value_of_mcp_or_e2b_is_left_anywhere, no_key_of_ssh_is_left_anywhere];
