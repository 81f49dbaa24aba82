//! The commands and settings of `docs/mcp.md`, as documented.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use super::session::Session;
use crate::harness::World;
use crate::served::{Server, key};

const PAGE: &str = include_str!("../../../docs/mcp.md");

/// The code blocks of the page in a language.
fn blocks(language: &str) -> Vec<&'static str> {
    let open = format!("```{language}\n");
    let blocks = PAGE.split(&open).skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.collect()
}

/// The arguments of the servers in settings of host programs.
fn settings() -> Vec<Value> {
    let mut found = Vec::new();
    for block in blocks("json") {
        let value: Value = serde_json::from_str(block).unwrap();
        let servers = value.get("mcpServers").or_else(|| value.get("servers")).unwrap();
        found.extend(servers.as_object().unwrap().values().cloned());
    }
    found
}

fn host_programs_start_what_the_page_says(world: &World) {
    world.write("f", "one\n");
    let commands = settings();
    let commands: Vec<_> = commands.iter().filter(|it| it.get("command").is_some()).collect();
    assert_eq!(commands.len(), 4, "{commands:?}");
    for setting in commands {
        assert_eq!(setting["command"], "stockade");
        let words = setting["args"].as_array().unwrap();
        let words: Vec<_> = words.iter().map(|word| word.as_str().unwrap()).collect();
        if words.contains(&"wrap") {
            let outcome = world.stockade(&words).input("{}\n").finish();
            outcome.succeeds();
            assert_eq!(outcome.stdout, "{}\n");
            continue;
        }
        let mut session = Session::start(world, &words);
        let arguments = if words.contains(&"--workspace") {
            json!({"command": "cat f"})
        } else {
            let id = session.value("create", &json!({}))["sandbox"].clone();
            json!({"sandbox": id, "command": "echo one"})
        };
        assert_eq!(session.value("exec", &arguments)["stdout"], "one\n", "{words:?}");
        session.end();
    }
    let [settings] = blocks("toml")[..] else { panic!("another number of settings in TOML") };
    assert!(settings.contains("command = \"stockade\"\nargs = [\"mcp\", \"--workspace\", \".\"]"));
}

fn the_url_of_the_page_is_served(world: &World) {
    let setting = settings().into_iter().find(|it| it.get("url").is_some()).unwrap();
    assert!(setting["url"].as_str().unwrap().ends_with(":8080/mcp"), "{setting}");
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &[]);
    let auth = setting["headers"]["Authorization"].as_str().unwrap();
    let auth = format!("authorization: {}", auth.replace("${STOCKADE_API_KEY}", &key));
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"}}});
    let accept = "accept: application/json, text/event-stream";
    let opened = server.json("POST /mcp", &[&auth, accept], &hello);
    assert_eq!(opened.status, 200, "{}", opened.text());
}

fn servers_are_wrapped_as_the_page_says(world: &World) {
    let server =
        world.write("server.py", "#!/bin/sh\ncat $1/note 2>/dev/null; echo $API_KEY; cat\n");
    std::fs::set_permissions(server, Permissions::from_mode(0o755)).unwrap();
    world.write("notes/note", "a note\n");
    let shown = blocks("sh").into_iter().flat_map(str::lines);
    let wrapped: Vec<_> = shown.filter(|line| line.contains("mcp wrap")).collect();
    assert_eq!(wrapped.len(), 3, "{wrapped:?}");
    for line in wrapped {
        let words: Vec<_> = line.split(' ').skip(1).collect();
        // The page's server is a program of the host; here it is one of the project.
        let mut words: Vec<_> = words.into_iter().map(str::to_owned).collect();
        let at = words.iter().position(|word| word == "./server.py").unwrap();
        words[at] = "/server/server.py".to_owned();
        let mount = ["--mount".to_owned(), format!("{}:/server:ro", world.project.display())];
        words.splice(2..2, mount);
        let outcome =
            world.stockade(&words).env("API_KEY", "sk-Zq83hTnw04LxvUe7").input("{}\n").finish();
        outcome.succeeds();
        assert!(outcome.stdout.ends_with("{}\n"), "{outcome}");
        assert!(!outcome.stdout.contains("sk-Zq83"), "{outcome}");
        assert_eq!(outcome.stdout.contains("a note"), line.contains("--mount"), "{outcome}");
    }
}

as_root_and_as_user![
    host_programs_start_what_the_page_says,
    the_url_of_the_page_is_served,
    servers_are_wrapped_as_the_page_says,
];
