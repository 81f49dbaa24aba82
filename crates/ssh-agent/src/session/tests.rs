//! Attacks of a program inside on one connection.

use proptest::prelude::*;
use signature::Signer as _;
use ssh_key::PrivateKey;
use ssh_key::private::{Ed25519Keypair, KeypairData};

use super::*;
use crate::policy::{Allowed, Policy};
use crate::stored_key::StoredKey;

fn key(seed: u8) -> PrivateKey {
    let pair = Ed25519Keypair::from_seed(&[seed; 32]);
    PrivateKey::new(KeypairData::Ed25519(pair), "a@b").unwrap()
}

fn print(key: &PrivateKey) -> String {
    key.fingerprint(HashAlg::Sha256).to_string()
}

const OWN: u8 = 1;
const HOST: u8 = 2;
const OTHER: u8 = 3;

/// A session whose policy lets the key `OWN` log in at `HOST` as `git`, and sign for `git`.
fn session() -> Session {
    let own = print(&key(OWN));
    let policy = Policy {
        allow: vec![
            Allowed {
                key: own.clone(),
                host_keys: vec![print(&key(HOST))],
                users: vec!["git".to_owned()],
                ..Allowed::default()
            },
            Allowed { key: own, namespaces: vec!["git".to_owned()], ..Allowed::default() },
        ],
        ..Policy::default()
    };
    let text = key(OWN).to_openssh(ssh_key::LineEnding::LF).unwrap();
    Session::new(Arc::new(Shared {
        policy: policy.checked().unwrap(),
        signer: Box::new(StoredKey::parse(&text).unwrap()),
        records: Records::default(),
    }))
}

fn blob(seed: u8) -> Vec<u8> {
    key(seed).public_key().to_bytes().unwrap()
}

fn bind(host: u8, signed_by: u8, session: &[u8], is_forwarding: u8) -> Vec<u8> {
    let signature = key(signed_by).try_sign(session).unwrap();
    let mut message = vec![wire::EXTENSION];
    put(&mut message, SESSION_BIND.as_bytes());
    put(&mut message, &blob(host));
    put(&mut message, session);
    put(&mut message, &Vec::try_from(signature).unwrap());
    message.push(is_forwarding);
    message
}

fn login(session: &[u8], user: &str, seed: u8, host: Option<u8>) -> Vec<u8> {
    let mut data = Vec::new();
    put(&mut data, session);
    data.push(50);
    put(&mut data, user.as_bytes());
    put(&mut data, b"ssh-connection");
    let bound = "publickey-hostbound-v00@openssh.com";
    put(&mut data, if host.is_some() { bound } else { "publickey" }.as_bytes());
    data.push(1);
    put(&mut data, b"ssh-ed25519");
    put(&mut data, &blob(seed));
    if let Some(host) = host {
        put(&mut data, &blob(host));
    }
    data
}

fn message(namespace: &str) -> Vec<u8> {
    let mut data = b"SSHSIG".to_vec();
    for part in [namespace.as_bytes(), b"", b"sha512", &[7; 64]] {
        put(&mut data, part);
    }
    data
}

fn sign(seed: u8, data: &[u8], flags: u32) -> Vec<u8> {
    let mut message = vec![wire::SIGN_REQUEST];
    put(&mut message, &blob(seed));
    put(&mut message, data);
    message.extend_from_slice(&flags.to_be_bytes());
    message
}

const ID: [u8; 32] = [7; 32];

#[test]
fn what_is_named_is_signed() {
    let mut session = session();
    let listed = session.answer(&[wire::REQUEST_IDENTITIES]);
    assert_eq!(wire::identities(&listed), Some(vec![blob(OWN)]));
    assert!(!String::from_utf8_lossy(&listed).contains("a@b"), "the caller's comment");
    assert_eq!(session.answer(&bind(HOST, HOST, &ID, 0)), [wire::SUCCESS]);
    for data in [login(&ID, "git", OWN, None), login(&ID, "git", OWN, Some(HOST)), message("git")] {
        let answer = session.answer(&sign(OWN, &data, 0));
        let mut reader = Reader(&answer);
        assert_eq!(reader.byte(), Some(wire::SIGN_RESPONSE));
        let signature = Signature::try_from(reader.string().unwrap()).unwrap();
        key(OWN).public_key().key_data().verify(&data, &signature).unwrap();
    }
    let (records, _) = session.shared.records.take();
    assert_eq!(records.len(), 3);
    assert!(records.iter().all(|record| record.decision == Decision::Signed));
    assert!(records.iter().all(|record| record.key == Some(print(&key(OWN)))));
}

#[test]
fn everything_else_is_refused_and_recorded() {
    let bound = bind(HOST, HOST, &ID, 0);
    let git = login(&ID, "git", OWN, None);
    let extension = |name: &str| {
        let mut message = vec![wire::EXTENSION];
        put(&mut message, name.as_bytes());
        message
    };
    // The messages of a connection; the last one is refused.
    let attacks: Vec<Vec<Vec<u8>>> = vec![
        vec![sign(OWN, b"any text", 0)],
        vec![sign(OWN, &[0; 32], 0)],
        vec![sign(OWN, &git, 0)],
        vec![bound.clone(), sign(OWN, &login(&ID, "root", OWN, None), 0)],
        vec![bound.clone(), sign(OWN, &login(&[8; 32], "git", OWN, None), 0)],
        vec![bound.clone(), sign(OWN, &login(&ID, "git", OTHER, None), 0)],
        vec![bound.clone(), sign(OTHER, &login(&ID, "git", OTHER, None), 0)],
        vec![bound.clone(), sign(OWN, &login(&ID, "git", OWN, Some(OTHER)), 0)],
        vec![bound.clone(), sign(OWN, &git, 1)],
        vec![bound.clone(), [sign(OWN, &git, 0), vec![0]].concat()],
        vec![bind(OTHER, OTHER, &ID, 0), sign(OWN, &git, 0)],
        vec![bind(HOST, OTHER, &ID, 0)],
        vec![bind(HOST, OTHER, &ID, 0), sign(OWN, &git, 0)],
        vec![bind(HOST, HOST, &ID, 1)],
        vec![bind(HOST, HOST, &ID, 1), sign(OWN, &git, 0)],
        vec![bound.clone(), bind(HOST, HOST, &[9; 32], 0)],
        vec![bound, bind(OTHER, OTHER, &ID, 0), sign(OWN, &git, 0)],
        vec![sign(OWN, &message("file"), 0)],
        vec![sign(OWN, &message("git2"), 0)],
        vec![sign(OTHER, &message("git"), 0)],
        vec![extension("query")],
        vec![extension("restrict-destination-v00@openssh.com")],
        vec![vec![wire::REQUEST_IDENTITIES, 0]],
        vec![Vec::new()],
        vec![vec![17, 0, 0]],
        vec![vec![18]],
        vec![vec![19]],
        vec![vec![20]],
        vec![vec![22, 0, 0, 0, 1, b'x']],
        vec![vec![23]],
        vec![vec![25]],
        vec![vec![26]],
        vec![vec![255]],
    ];
    for messages in attacks {
        let mut session = session();
        let mut answer = Vec::new();
        for message in &messages {
            answer = session.answer(message);
        }
        let refusals = [vec![wire::FAILURE], vec![wire::EXTENSION_FAILURE]];
        assert!(refusals.contains(&answer), "{messages:?}");
        let (records, _) = session.shared.records.take();
        let last = records.last().unwrap();
        assert!(matches!(last.decision, Decision::Refused(_)), "{last:?}");
    }
}

proptest! {
    #[test]
    fn nothing_that_arrives_panics_or_is_signed(
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..128), 0..8),
        kind in prop::sample::select(vec![wire::SIGN_REQUEST, wire::EXTENSION, 0]),
    ) {
        let mut session = session();
        for message in messages {
            let answer = session.answer(&[vec![kind], message].concat());
            prop_assert_ne!(answer.first(), Some(&wire::SIGN_RESPONSE));
        }
    }
}
