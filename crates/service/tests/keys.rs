//! API keys: who may manage them, what is stored of them, and when they are refused.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod harness;

use harness::{Harness, caller};
use stockade_api::{
    ChangeMetadata, CreateKey, CreateSandbox, KeyDirectory as _, ListKeys, ListSandboxes,
    RevokeKey, Sandboxes as _,
};
use stockade_core::{Code, OwnerId};

#[tokio::test]
async fn a_key_is_found_until_it_is_revoked_or_expires() {
    let harness = Harness::new().await;
    let (service, admin) = (&harness.service, caller("me").with_admin());
    assert!(!service.has_keys().await.unwrap());
    let owner_id = Some(OwnerId::new("team").unwrap());
    let request = CreateKey { owner_id, name: Some("ci".to_owned()), ..CreateKey::default() };
    let created = service.create_key(&admin, request).await.unwrap();
    let random = created.key.strip_prefix("e2b_").unwrap();
    assert!(random.len() == 40 && random.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let found = service.find_key(&created.key).await.unwrap().unwrap();
    assert_eq!(found, created.properties);
    assert_eq!((found.owner_id.as_str(), found.admin), ("team", false));
    let id = &found.id;
    assert!(service.find_key_by_id(id).await.unwrap().is_some());
    for wrong in ["", "e2b_", random, &created.key.to_uppercase(), &format!("{}0", created.key)] {
        assert_eq!(service.find_key(wrong).await.unwrap(), None, "{wrong}");
    }
    let (path, stored) = (harness.directory.path(), created.key.as_bytes());
    for file in std::fs::read_dir(path).unwrap() {
        let content = std::fs::read(file.unwrap().path()).unwrap_or_default();
        assert!(!content.windows(stored.len()).any(|part| part == stored), "the key is stored");
    }
    let revoke = RevokeKey { id: id.clone() };
    let revoked = service.revoke_key(&admin, revoke.clone()).await.unwrap();
    assert_eq!(service.revoke_key(&admin, revoke).await.unwrap(), revoked, "it has no effect");
    assert_eq!(service.find_key(&created.key).await.unwrap(), None);
    assert_eq!(service.find_key_by_id(id).await.unwrap(), None);
    assert!(!service.has_keys().await.unwrap());

    let request = CreateKey { expires_in_seconds: Some(0.001), ..CreateKey::default() };
    let short = service.create_key(&admin, request).await.unwrap();
    while service.find_key(&short.key).await.unwrap().is_some() {
        tokio::task::yield_now().await;
    }
    assert_eq!(service.keys(&admin, ListKeys::default()).await.unwrap().keys, []);
    assert_eq!(service.keys(&admin, ListKeys { all: true }).await.unwrap().keys.len(), 2);
}

#[tokio::test]
async fn only_an_admin_manages_keys() {
    let harness = Harness::new().await;
    let (service, other) = (&harness.service, caller("other"));
    let refused = service.create_key(&other, CreateKey::default()).await.unwrap_err();
    assert_eq!(refused.code, Code::Forbidden);
    let refused = service.keys(&other, ListKeys::default()).await.unwrap_err();
    assert_eq!(refused.code, Code::Forbidden);
    let revoke = RevokeKey { id: "key-1".to_owned() };
    assert_eq!(service.revoke_key(&other, revoke.clone()).await.unwrap_err().code, Code::Forbidden);
    let admin = other.with_admin();
    assert_eq!(service.revoke_key(&admin, revoke).await.unwrap_err().code, Code::NotFound);
}

#[tokio::test]
async fn a_repeated_request_replaces_the_key_that_was_not_received() {
    let harness = Harness::new().await;
    let (service, admin) = (&harness.service, caller("me").with_admin().with_key("once"));
    let first = service.create_key(&admin, CreateKey::default()).await.unwrap();
    let second = service.create_key(&admin, CreateKey::default()).await.unwrap();
    assert_eq!(first.properties.id, second.properties.id);
    assert_eq!(service.find_key(&first.key).await.unwrap(), None);
    assert!(service.find_key(&second.key).await.unwrap().is_some());
    // A revoked key stays revoked.
    let revoke = RevokeKey { id: second.properties.id };
    service.revoke_key(&admin, revoke).await.unwrap();
    let third = service.create_key(&admin, CreateKey::default()).await.unwrap_err();
    assert_eq!(third.code, Code::Conflict);
}

#[tokio::test]
async fn the_secret_of_access_tokens_stays_the_same() {
    let harness = Harness::new().await;
    let first = harness.service.token_secret().await.unwrap();
    assert_eq!(harness.service.token_secret().await.unwrap(), first);
    assert_ne!(Harness::new().await.service.token_secret().await.unwrap(), first);
}

#[tokio::test]
async fn labels_are_changed_and_found() {
    let harness = Harness::new().await;
    let (service, me) = (&harness.service, caller("me"));
    let metadata = [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())].into();
    let request = CreateSandbox { metadata, ..CreateSandbox::default() };
    let id = service.create(&me, request).await.unwrap().id;
    let metadata = [("a".to_owned(), None), ("c".to_owned(), Some("3".to_owned()))].into();
    let change = ChangeMetadata { id: id.clone(), metadata };
    let other = service.change_metadata(&caller("other"), change.clone()).await.unwrap_err();
    assert_eq!(other.code, Code::NotFound);
    let changed = service.change_metadata(&me, change).await.unwrap();
    let labels: Vec<_> = changed.metadata.into_iter().collect();
    assert_eq!(labels, [("b".to_owned(), "2".to_owned()), ("c".to_owned(), "3".to_owned())]);
    for (name, value, count) in [("c", "3", 1), ("a", "1", 0)] {
        let metadata = [(name.to_owned(), value.to_owned())].into();
        let request = ListSandboxes { metadata, ..ListSandboxes::default() };
        assert_eq!(service.list(&me, request).await.unwrap().sandboxes.len(), count, "{name}");
    }
}
