//! Codes and sessions of browsers: for whom they are, and when they end.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod harness;
#[path = "../../../tests/cases/support.rs"]
mod support;

use harness::{Harness, caller};
use stockade_api::{CreateSandbox, KillSandbox, OpenPort, PortAccess as _, PortName, PortSite};
use stockade_api::{Proxy, Sandboxes as _};
use stockade_core::{Code, SandboxId};
use support::{drive, no_driver, same};

fn name(id: &SandboxId, port: u16) -> PortName {
    PortName { sandbox_id: id.clone(), port: Some(port) }
}

#[test]
fn cases() {
    drive("crates/service/tests/browsers.rs::cases", "endpoint_proxy.json", |case| {
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let (verifier, challenge) = (text(&case.given["verifier"]), text(&case.expect));
        match case.name.as_str() {
            "PKCE vector" => {
                let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
                let redeemed = runtime.unwrap().block_on(async {
                    let harness = Harness::new().await;
                    let name = name(&harness.sandbox().await, 80);
                    let (service, owner) = (&harness.service, caller("u1").owner);
                    let code = service.create_code(&owner, &name, Some(&challenge)).await.unwrap();
                    for wrong in [None, Some("another"), Some(challenge.as_str())] {
                        let refused = service.redeem_code(&name, &code, wrong).await.unwrap_err();
                        assert_eq!(refused.code, Code::InvalidInput, "{wrong:?}");
                    }
                    service.redeem_code(&name, &code, Some(&verifier)).await.map(drop)
                });
                same(Ok(()), redeemed)
            }
            _ => no_driver(),
        }
    });
}

#[tokio::test]
async fn a_session_is_for_one_port_of_one_owner() {
    let harness = Harness::new().await;
    let service = &harness.service;
    let id = harness.sandbox().await;
    let (owner, other) = (caller("u1").owner, caller("other").owner);
    let web = name(&id, 80);
    // Another owner gets the same response as for a sandbox that does not exist.
    let hidden = service.create_code(&other, &web, None).await.unwrap_err();
    let absent = name(&SandboxId::new("absent").unwrap(), 80);
    let absent = service.create_code(&other, &absent, None).await.unwrap_err();
    assert_eq!((hidden.code, absent.code), (Code::NotFound, Code::NotFound));
    let code = service.create_code(&owner, &web, None).await.unwrap();
    let elsewhere = service.redeem_code(&name(&id, 81), &code, None).await.unwrap_err();
    assert_eq!(elsewhere.code, Code::InvalidInput);
    let session = service.redeem_code(&web, &code, None).await.unwrap();
    let found = service.find_session(&web, &session.token).await.unwrap().unwrap();
    assert_eq!((found.caller.owner, found.port), (owner, 80));
    assert!(service.find_session(&name(&id, 81), &session.token).await.unwrap().is_none());
    assert!(service.find_session(&web, "other").await.unwrap().is_none());
    for file in std::fs::read_dir(harness.directory.path()).unwrap() {
        let content = std::fs::read(file.unwrap().path()).unwrap_or_default();
        for secret in [code.as_bytes(), session.token.as_bytes()] {
            assert!(!content.windows(secret.len()).any(|part| part == secret), "it is stored");
        }
    }
    // A code that is sent again ends the session that it gave.
    let again = service.redeem_code(&web, &code, None).await.unwrap_err();
    assert!(again.message.contains("invalid_grant"), "{again:?}");
    assert!(service.find_session(&web, &session.token).await.unwrap().is_none());
}

#[tokio::test]
async fn a_later_sandbox_with_the_same_id_has_other_sessions() {
    let harness = Harness::new().await;
    let service = &harness.service;
    let me = caller("u1");
    let id = SandboxId::new("box").unwrap();
    let request = CreateSandbox { id: Some(id.clone()), ..CreateSandbox::default() };
    service.create(&me, request.clone()).await.unwrap();
    let web = name(&id, 80);
    let code = service.create_code(&me.owner, &web, None).await.unwrap();
    let session = service.redeem_code(&web, &code, None).await.unwrap();
    service.kill(&me, KillSandbox::discarding(id.clone())).await.unwrap();
    while service.create(&me, request.clone()).await.is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(service.find_session(&web, &session.token).await.unwrap().is_none());
}

#[tokio::test]
async fn a_link_is_for_an_exposed_port_of_a_running_sandbox() {
    let harness = Harness::new().await;
    let (service, me) = (&harness.service, caller("u1"));
    let proxy = Proxy { default_port: Some(80), exposed_ports: [80, 81].into() };
    let request = CreateSandbox { proxy: Some(proxy), ..CreateSandbox::default() };
    let id = service.create(&me, request).await.unwrap().id;
    let open = |port, path: &str| {
        let path = Some(path.to_owned());
        service.open_port(&me, OpenPort { sandbox_id: id.clone(), port, path })
    };
    let unserved = open(None, "/").await.unwrap_err();
    assert_eq!(unserved.code, Code::Unsupported);
    let (scheme, domain) = ("http".to_owned(), "localhost".to_owned());
    service.set_port_site(PortSite { scheme, domain, port: Some(8080) });
    let opened = open(Some(81), "/a?b").await.unwrap();
    let start = format!("http://81-{id}.localhost:8080/.stockade/open?code=");
    assert!(opened.url.starts_with(&start), "{}", opened.url);
    assert!(opened.url.ends_with("&path=/a%3Fb"), "{}", opened.url);
    assert_eq!(open(Some(22), "/").await.unwrap_err().code, Code::NotFound);
    for path in ["//evil.example", "a", "/\\evil.example"] {
        assert_eq!(open(Some(80), path).await.unwrap_err().code, Code::InvalidInput, "{path}");
    }
    let stranger = OpenPort { sandbox_id: id.clone(), port: Some(80), path: None };
    let refused = service.open_port(&caller("other"), stranger).await.unwrap_err();
    assert_eq!(refused.code, Code::NotFound);
    service.kill(&me, KillSandbox::discarding(id.clone())).await.unwrap();
    assert_eq!(open(Some(80), "/").await.unwrap_err().code, Code::SandboxTerminated);
}

#[tokio::test]
async fn an_open_connection_ends_with_the_run_of_its_sandbox() {
    let harness = Harness::new().await;
    let (service, me) = (&harness.service, caller("u1"));
    let request = || CreateSandbox::default();
    let first = service.create(&me, request()).await.unwrap();
    let second = service.create(&me, request()).await.unwrap();
    let pause = stockade_api::ById { id: first.id.clone() };
    let change = async {
        service.pause(&me, pause).await.unwrap();
        service.kill(&me, KillSandbox::discarding(second.id.clone())).await.unwrap();
    };
    tokio::join!(
        service.wait_until_closed(&me, &first),
        service.wait_until_closed(&me, &second),
        change
    );
    // It is not that of another caller at any time.
    service.wait_until_closed(&caller("other"), &first).await;
}
