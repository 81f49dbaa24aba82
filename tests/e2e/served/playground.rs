//! The playground: `POST /api/sandbox`, the page in Chromium, and links to it.

use serde_json::{Value, json};

use super::browsers::Browser;
use super::{Server, key};
use crate::harness::World;

fn a_snippet_is_run(world: &World) {
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &[]);
    let key = format!("x-api-key: {key}");
    let run = |body: &Value| server.json("POST /api/sandbox", &[&key], body);
    let source = "console.log('a', 1 + 1);";
    let ran = run(&json!({ "source": source }));
    assert_eq!(ran.status, 200, "{}", ran.text());
    let result = ran.value();
    let fields: Vec<_> = result.as_object().unwrap().keys().cloned().collect();
    let mut expected = ["logs", "facts", "derived", "errors", "durationMs", "timedOut"];
    let mut fields: Vec<_> = fields.iter().map(String::as_str).collect();
    expected.sort_unstable();
    fields.sort_unstable();
    assert_eq!(fields, expected);
    assert_eq!(result["logs"], json!(["[log] a 2"]), "{result}");
    assert_eq!((&result["facts"], &result["errors"]), (&json!({}), &json!([])));
    assert_eq!(result["timedOut"], false);
    let files = json!([{ "path": "src/main.ts", "source": "import { a } from './a.js'; console.log(a);" },
        { "path": "src/a.ts", "source": "export const a = 'b';" }]);
    assert_eq!(run(&json!({ "files": files })).value()["logs"], json!(["[log] b"]));
    let endless = run(&json!({ "source": "while (true) {}", "timeoutMs": 200 })).value();
    assert_eq!(endless["timedOut"], true, "{endless}");
    let refused = run(&json!({ "source": "import fs from 'node:fs'; fs" })).value();
    assert_ne!(refused["errors"], json!([]), "{refused}");
    for bad in [
        json!({}),
        json!([]),
        json!({ "source": source, "files": files }),
        json!({ "files": [{ "path": "../x.ts", "source": "1" }] }),
        json!({ "source": "x".repeat(200_001) }),
    ] {
        let refused = run(&bad);
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert_ne!(refused.value()["errors"], json!([]), "{}", refused.text());
        assert_eq!(refused.value()["timedOut"], false, "{}", refused.text());
    }
    for bad in [json!({ "source": 1 }), json!({ "source": "1", "more": 1 })] {
        let refused = run(&bad);
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert_eq!(refused.value()["code"], "INVALID_INPUT", "{}", refused.text());
    }
    // As each other operation, it needs a key, JSON, and a request of its own page.
    let body = json!({ "source": source });
    assert_eq!(server.json("POST /api/sandbox", &[], &body).status, 401);
    let plain = server.request("POST /api/sandbox", &[&key, "content-type: text/plain"], b"{}");
    assert_eq!(plain.status, 400, "{}", plain.text());
    let cross = [key.as_str(), "origin: http://evil.example"];
    assert_eq!(server.json("POST /api/sandbox", &cross, &body).status, 403);
    assert_eq!(server.request("GET /api/sandbox", &[&key], b"").status, 405);

    let page = server.request("GET /playground", &[], b"");
    assert_eq!(page.status, 200, "{}", page.text());
    for part in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"] {
        assert!(page.head.contains(part), "{}", page.head);
    }
    assert!(!page.head.contains("unsafe"), "{}", page.head);
    let navigation =
        ["sec-fetch-site: cross-site", "sec-fetch-mode: navigate", "sec-fetch-dest: document"];
    assert_eq!(server.request("GET /playground", &navigation, b"").status, 200);
    assert_eq!(server.request("GET /playground", &navigation[..1], b"").status, 403);
    for file in ["app.js", "app.css", "icon.svg"] {
        let found = server.request(&format!("GET /playground/{file}"), &[], b"");
        assert_eq!(found.status, 200, "{file}");
        let tag = found.raw_head.lines().find(|line| line.starts_with("etag: ")).unwrap();
        let known = format!("if-none-match: {}", &tag["etag: ".len()..]);
        let again = server.request(&format!("GET /playground/{file}"), &[&known], b"");
        assert_eq!((again.status, again.body.len()), (304, 0), "{file}");
    }
    assert_eq!(server.request("GET /playground/..%2fCargo.toml", &[], b"").status, 404);
}

/// The link that the tool `playground_link` makes.
fn link(world: &World, arguments: &Value) -> String {
    let requests = [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" } } }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call",
            "params": { "name": "playground_link", "arguments": arguments } }),
    ];
    let input: String = requests.iter().map(|request| format!("{request}\n")).collect();
    let outcome = world.stockade(&["mcp"]).input(input).finish();
    let lines = outcome.succeeds().stdout.lines();
    let mut answers = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let answer = answers.rfind(|answer| answer["id"] == 2).unwrap();
    answer["result"]["structuredContent"]["url"].as_str().unwrap().to_owned()
}

#[test]
fn the_page_is_used_by_keyboard() {
    let test = "served::playground::the_page_is_used_by_keyboard";
    let Some(browser) = Browser::find(test) else { return };
    let world = super::browsers::world();
    let source = "console.log(\"linked\");\n";
    // Without a server, the link leads to the site of the reference.
    let arguments = json!({ "source": source, "mode": "instant", "title": "A b" });
    let elsewhere = link(&world, &arguments);
    assert!(elsewhere.starts_with("https://directive.run/run#src="), "{elsewhere}");
    let server = Server::start(&world, &[]);
    let origin = format!("http://localhost:{}", server.port);
    let own = link(&world, &arguments);
    assert!(own.starts_with(&format!("{origin}/run#src=")), "{own}");
    let shots =
        std::env::var("STOCKADE_SCREENSHOTS").map_or_else(|_| world.path("shots"), Into::into);
    std::fs::create_dir_all(&shots).unwrap();
    let (key, _) = key(&world, &[]);
    let scenario = json!({ "server": origin, "shots": shots, "link": own, "key": key });
    let report = browser.drive(&world, "playground", scenario);
    assert_eq!(report["problems"], json!([]), "errors and violations of the policy: {report}");
    let text = |name: &str| report[name].as_str().unwrap_or_default().to_owned();
    assert!(text("status").contains("Succeeded"), "{report}");
    assert!(text("status").contains("snippet ") && text("status").contains("request "), "{report}");
    for part in ["Facts", "count", "2", "Derivations", "isPositive", "true"] {
        assert!(text("facts").contains(part), "{part}: {report}");
    }
    assert!(text("logs").contains("[settled] count = 2"), "{report}");
    assert_eq!((text("focused"), text("errors")), ("tab-Errors".into(), "No errors.".into()));
    assert!(text("shared").starts_with(&format!("{origin}/playground#src=")), "{report}");
    assert!(
        text("linked").contains("linked") || text("linkedStatus").contains("Succeeded"),
        "{report}"
    );
    assert!(text("failed").contains("node:fs"), "{report}");
}

as_root_and_as_user!(a_snippet_is_run);
