//! Reading of records: page by page, from an offset, and damaged ones.

use serde_json::json;
use stockade_api::{CreateSandbox, ListSandboxes, ReadEvents, Sandboxes as _};
use stockade_core::Code;
use stockade_core::event::Kind;

use crate::call;
use crate::harness::{Harness, caller};

#[tokio::test]
async fn a_list_is_read_page_by_page() {
    let harness = Harness::new().await;
    let mut created = Vec::new();
    for _ in 0..7 {
        created.push(harness.sandbox().await);
    }
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let request = ListSandboxes { after, limit: Some(3), ..ListSandboxes::default() };
        let page = harness.service.list(&caller("u1"), request).await.unwrap();
        listed.extend(page.sandboxes.into_iter().map(|sandbox| sandbox.id));
        if !page.more {
            break;
        }
        after = listed.last().cloned();
    }
    listed.sort();
    created.sort();
    assert_eq!(listed, created);
    let request = ListSandboxes { after: Some(created[0].clone()), ..ListSandboxes::default() };
    assert_eq!(
        harness.service.list(&caller("u2"), request).await.unwrap_err().code,
        Code::NotFound
    );
}

#[tokio::test]
async fn events_are_followed_from_an_offset() {
    let harness = Harness::new().await;
    let id = harness.sandbox().await;
    let first = harness.events().await[0].clone();
    let request = ReadEvents { after: first.seq, follow: true, sandbox_id: Some(id.clone()) };
    let read = harness.run(|s| async move { s.read_events(&caller("u1"), request).await });
    let mut followed = read.await.unwrap();
    harness.sandbox().await;
    for operation in ["pause", "resume", "kill"] {
        call(&harness, operation, json!({"id": id})).await.unwrap();
    }
    let mut received = Vec::new();
    for _ in 0..3 {
        let event = followed.next().await.unwrap().unwrap();
        assert!(event.seq > first.seq);
        received.push(event.payload.kind());
    }
    assert_eq!(received, [Kind::SandboxPaused, Kind::SandboxResumed, Kind::SandboxKilled]);
    let ids: std::collections::BTreeSet<_> =
        harness.events().await.into_iter().map(|event| event.id).collect();
    assert_eq!(ids.len(), 5, "each has an id of its own");
}

#[tokio::test]
async fn damaged_rows_are_good_for_nothing_and_in_nobodys_way() {
    let mut harness = Harness::new().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(harness.sandbox().await);
    }
    for id in &ids {
        harness.write(id, "/w/f", "text").await.unwrap();
    }
    let id = |index: usize| format!("WHERE id = '{}'", ids[index]);
    for sql in [
        format!("UPDATE sandbox_instances SET access_rules = 'no rules' {}", id(0)),
        format!("UPDATE sandbox_instances SET spec = '{{\"from\": \"later\"}}' {}", id(1)),
    ] {
        harness.tamper(sql.leak()).await;
    }
    harness.kill().await;
    let refused = harness.read(&ids[0], "/w/f").await.unwrap_err();
    assert_eq!(refused.code, Code::RuleInvalid);
    let refused = harness.read(&ids[1], "/w/f").await.unwrap_err();
    assert_eq!(refused.code, Code::DatabaseInvalid);
    assert_eq!(harness.read(&ids[2], "/w/f").await.unwrap(), "text");
    let list = harness.service.list(&caller("u1"), ListSandboxes::default()).await.unwrap();
    assert_eq!(list.sandboxes.len(), 3);
    harness.service.sweep().await;
    assert_eq!(harness.sandbox_count().await, 3, "what cannot be read is not removed");
    // Nobody knows what the second one holds.
    let refused = call(&harness, "kill", json!({"id": ids[1]})).await.unwrap_err();
    assert_eq!(refused.code, Code::DatabaseInvalid);
    assert!(refused.remediation.unwrap().contains("--discard"));
    for id in &ids {
        call(&harness, "kill", json!({"id": id, "discard": true})).await.unwrap();
    }
    assert_eq!(harness.sandbox_count().await, 0);
}

#[tokio::test]
async fn a_list_is_of_what_has_all_of_the_metadata() {
    let harness = Harness::new().await;
    let with = async |metadata: &[(&str, &str)]| {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let metadata = metadata.iter().map(pair).collect();
        let request = CreateSandbox { metadata, ..CreateSandbox::default() };
        harness.create(request).await.unwrap().id
    };
    let odd = "a'b\"c\\.$[0]";
    let both = with(&[("team", "red"), (odd, "1")]).await;
    let red = with(&[("team", "red")]).await;
    let damaged = with(&[("team", "red")]).await;
    with(&[("team", "blue"), (odd, "2")]).await;
    let sql = format!("UPDATE sandbox_instances SET metadata = '{{' WHERE id = '{damaged}'");
    harness.tamper(sql.leak()).await;
    for (metadata, expected) in [
        (json!({"team": "red"}), vec![&red, &both]),
        (json!({"team": "red", odd: "1"}), vec![&both]),
        (json!({"team": "green"}), vec![]),
        (json!({odd: 1.to_string()}), vec![&both]),
    ] {
        let list = call(&harness, "list", json!({"metadata": metadata})).await.unwrap();
        let ids: Vec<_> = list["sandboxes"].as_array().unwrap().iter().collect();
        let ids: Vec<_> = ids.into_iter().map(|sandbox| sandbox["id"].as_str().unwrap()).collect();
        let expected: Vec<_> = expected.into_iter().map(|id| id.as_str()).collect();
        assert_eq!((ids, &list["more"]), (expected, &json!(false)), "{metadata}");
    }
    let request = json!({"metadata": {"team": "red"}, "limit": 1});
    let page = call(&harness, "list", request).await.unwrap();
    assert_eq!((&page["sandboxes"][0]["id"], &page["more"]), (&json!(red), &json!(true)));
}
