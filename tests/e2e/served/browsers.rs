//! Pages of sandboxes in Chromium: through a login at an OpenID provider, and through a link that works
//! once. A page tries to reach another sandbox and the server.

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::port_app::{App, start_app};
use super::{Server, key};
use crate::harness::{Identity, World, skip, tests_run_as_root};

/// The programs that drive a browser.
pub(super) struct Browser {
    modules: PathBuf,
    chromium: PathBuf,
}

impl Browser {
    /// Finds them; if one is missing, the test is skipped.
    pub(super) fn find(test: &str) -> Option<Self> {
        let modules = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages/browser/node_modules");
        if !modules.join("playwright-core").exists() {
            skip(test, "the driver of browsers is not installed: cargo xtask ci installs it");
            return None;
        }
        let named = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
        let Some(chromium) = named.iter().map(PathBuf::from).find(|path| path.exists()) else {
            skip(test, "Chromium is not installed: apt-get install chromium");
            return None;
        };
        Some(Self { modules, chromium })
    }

    /// Runs a scenario, and returns its report.
    pub(super) fn drive(&self, world: &World, name: &str, mut scenario: Value) -> Value {
        scenario["name"] = json!(name);
        scenario["chromium"] = json!(self.chromium);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packages/browser/drive.mjs");
        let words =
            [script.to_str().unwrap(), self.modules.to_str().unwrap(), &scenario.to_string()];
        let node = ["/usr/bin/node", "/usr/local/bin/node"].map(Path::new);
        let node = node.into_iter().find(|path| path.exists()).unwrap();
        let outcome = world.on_host(node, &words).deadline(180).finish();
        outcome.succeeds().json()
    }
}

/// The packages are installed for the user of the tests.
pub(super) fn world() -> World {
    stockade_test_support::require_nextest();
    World::new(if tests_run_as_root() { Identity::Root } else { Identity::User })
}

#[test]
fn a_page_is_opened_through_a_login_and_reaches_nothing_else() {
    let test = "served::browsers::a_page_is_opened_through_a_login_and_reaches_nothing_else";
    let Some(browser) = Browser::find(test) else { return };
    let world = world();
    let provider_port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = world.path("serve.toml");
    let owner = format!("uid:{}", world.identity.uid());
    let text = format!(
        "[login]\nissuer = \"http://127.0.0.1:{provider_port}\"\nclient-id = \"stockade\"\n\
         [login.owners]\nalice = \"{owner}\"\n"
    );
    std::fs::write(&config, text).unwrap();
    let server = Server::start(&world, &["--config", config.to_str().unwrap()]);
    let (key, _) = key(&world, &[]);
    let ids = [0, 1].map(|_| start_app(&server, &key, &["3000"], &Value::Null));
    let [first, second] =
        [0, 1].map(|at: usize| format!("http://3000-{}.localhost:{}", ids[at], server.port));
    let report = browser.drive(
        &world,
        "login",
        json!({
            "first": first, "second": second, "providerPort": provider_port,
            "server": format!("http://localhost:{}", server.port),
        }),
    );
    assert_eq!(report["atProvider"], true, "{report}");
    assert_eq!(report["url"], format!("{first}/page?x=1"), "{report}");
    // The session is this host name's alone, and the page does not see it.
    let cookies = report["cookies"].as_array().unwrap();
    let session = cookies.iter().find(|it| it["name"] == "__Host-stockade-session").unwrap();
    let host = format!("3000-{}.localhost", ids[0]);
    let expected = json!({
        "name": "__Host-stockade-session", "domain": host, "httpOnly": true, "secure": true
    });
    assert_eq!(*session, expected);
    assert_eq!(report["visible"], "page=1", "{report}");
    // The other sandbox gets a session of its own, and no cookie of the first one.
    let other = &report["second"];
    assert_eq!(other["visible"], "page=1", "its own: {report}");
    let headers = other["headers"].as_str().unwrap();
    assert!(!headers.contains("wide=") && !headers.contains("stockade-"), "{headers}");
    let attacks = report["attacks"].as_object().unwrap();
    for (attack, result) in attacks {
        match attack.as_str() {
            "socket" => assert_eq!(result, "refused", "{report}"),
            "frame" => assert_eq!(result, "closed", "{report}"),
            attack if attack.starts_with("no-cors") => {
                // An opaque response, whose content the page does not see; or none.
                let is_closed = result.is_string() || *result == json!(["opaque", 0]);
                assert!(is_closed, "{attack}: {result}");
            }
            attack => assert!(result.is_string(), "{attack}: {result}"),
        }
    }
    let stranger = report["stranger"].as_str().unwrap();
    assert!(stranger.contains("NOT_FOUND"), "{stranger}");
}

#[test]
fn a_link_opens_a_page_once() {
    let Some(browser) = Browser::find("served::browsers::a_link_opens_a_page_once") else { return };
    let world = world();
    let app = App::start(&world, &[], &Value::Null);
    let url = app.link(&["3000", "--path", "/page?x=1"]);
    let report = browser.drive(&world, "link", json!({ "url": url }));
    assert_eq!(report["url"], format!("http://{}/page?x=1", app.host(3000)), "{report}");
    assert_eq!(report["again"], 400, "{report}");
}
