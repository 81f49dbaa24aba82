//! Web pages of other origins: those that are allowed use the server with a key or a token, and get nothing from being in
//! the user's browser.

use serde_json::json;

use super::{Response, Server, key};
use crate::harness::World;

const PAGE: &str = "Origin: https://app.example";
const ALLOWED: &str = "access-control-allow-origin: https://app.example";

fn ask_first(server: &Server, path: &str, origin: &str) -> Response {
    let headers = [
        origin,
        "Sec-Fetch-Site: cross-site",
        "Access-Control-Request-Method: POST",
        "Access-Control-Request-Headers: x-api-key,content-type",
        "Access-Control-Request-Private-Network: true",
    ];
    server.request(&format!("OPTIONS {path}"), &headers, b"")
}

fn a_page_of_an_allowed_origin_needs_a_key(world: &World) {
    let server = Server::start(world, &["--allowed-origin", "https://app.example"]);
    let create = json!({ "templateID": "base", "timeout": 60, "allow_internet_access": false });
    let post = |headers: &[&str]| server.json("POST /v2/sandboxes", headers, &create);
    // There is no key yet: the program of the user is served, and no page in the browser of the user.
    for token in [&[PAGE][..], &[PAGE, "X-Access-Token: x"], &[PAGE, "X-API-KEY:"]] {
        let refused = post(token);
        assert_eq!(refused.status, 401, "{token:?} {}", refused.text());
        assert!(refused.head.contains(ALLOWED), "{}", refused.head);
    }
    for path in ["/v2/sandboxes", "/process.Process/Start", "/execute", "/files"] {
        let permitted = ask_first(&server, path, PAGE);
        assert_eq!(permitted.status, 204, "{path} {}", permitted.text());
        for header in [
            ALLOWED,
            "access-control-allow-methods: post",
            "access-control-allow-headers: x-api-key,content-type",
            "access-control-allow-private-network: true",
            "vary: origin",
        ] {
            assert!(permitted.head.contains(header), "{path} {header} {}", permitted.head);
        }
        assert!(!permitted.head.contains("allow-credentials"), "{}", permitted.head);
        for other in ["Origin: https://evil.example", "Origin: null"] {
            assert_eq!(ask_first(&server, path, other).status, 403, "{path} {other}");
        }
    }
    let (key, _) = key(world, &[]);
    let key = format!("X-API-KEY: {key}");
    let site = "Sec-Fetch-Site: cross-site";
    let created = post(&[PAGE, site, &key]);
    assert_eq!(created.status, 201, "{}", created.text());
    assert!(created.head.contains(ALLOWED), "{}", created.head);
    assert!(created.head.contains("access-control-expose-headers: *"), "{}", created.head);
    assert_eq!(post(&["Origin: https://evil.example", site, &key]).status, 403);
    // The interface for files of the sandbox, by the host name of its port.
    let created = created.value();
    let text = |name: &str| created[name].as_str().unwrap().to_owned();
    let (id, token) = (text("sandboxID"), text("envdAccessToken"));
    let host = format!("49983-{id}.localhost:{}", server.port);
    let token = format!("X-Access-Token: {token}");
    let headers = [PAGE, site, &token];
    let head = super::head("GET /files?path=/etc/hosts", &host, &headers, b"");
    let read = server.raw(&head, b"");
    assert_eq!(read.status, 200, "{}", read.text());
    assert!(read.head.contains(ALLOWED), "{}", read.head);
    let other = ["Origin: https://evil.example", site, &token];
    let head = super::head("GET /files?path=/etc/hosts", &host, &other, b"");
    let read = server.raw(&head, b"");
    assert!(!read.head.contains("access-control"), "{}", read.head);
}

fn an_origin_is_named_as_browsers_send_it(world: &World) {
    for origin in ["*", "app.example", "https://app.example/"] {
        let words = ["serve", "--listen", "127.0.0.1:0", "--allowed-origin", origin];
        let refused = world.stockade(&words).finish();
        refused.ends_with(2);
        assert!(refused.stderr.contains("--allowed-origin https://app.example"), "{refused}");
    }
}

as_root_and_as_user!(
    a_page_of_an_allowed_origin_needs_a_key,
    an_origin_is_named_as_browsers_send_it,
);
