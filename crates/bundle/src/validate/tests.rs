//! Manifests that are not accepted.

use super::*;
use crate::manifest::{ContentHash, ExecutedBy, ViewKind};
use crate::testing::Random;

fn file(content: &str) -> Node {
    let hash = ContentHash::of(content.as_bytes());
    Node::File { hash, size: content.len() as u64, mode: 0o644 }
}

fn entry(path: &str, change: Change) -> Entry {
    Entry {
        path: RelativePath::new(path).unwrap(),
        change,
        renamed_from: None,
        tree: None,
        ignored: false,
        refused: None,
        executed_by: None,
        conflict: false,
        base_known: false,
    }
}

fn manifest() -> Manifest {
    let mut renamed = entry("new", Change::Add { new: file("same") });
    renamed.renamed_from = Some(RelativePath::new("old").unwrap());
    Manifest {
        version: VERSION,
        project: b"/some/\xffwhere".to_vec(),
        created_at_ms: 5,
        command: vec!["true".to_owned()],
        labels: std::collections::BTreeMap::new(),
        image: None,
        exit_code: 0,
        base_ref: None,
        view: ViewKind::Overlay,
        entries: vec![
            entry("a\nb", Change::Modify { old: file("x"), new: file("yy") }),
            entry("dir", Change::Add { new: Node::Directory { mode: 0o755 } }),
            entry("link", Change::Add { new: Node::Symlink { target: b"a\xff".to_vec() } }),
            renamed,
            entry("old", Change::Delete { old: file("same") }),
        ],
    }
}

const LIMITS: BundleLimits = BundleLimits::RUN;

#[test]
fn a_manifest_survives_being_written() {
    let bytes = manifest().to_bytes(&LIMITS).unwrap();
    assert_eq!(Manifest::parse(&bytes, &LIMITS).unwrap(), manifest());
}

#[test]
fn every_rule_is_checked() {
    let altered = |alter: &dyn Fn(&mut Manifest)| {
        let mut manifest = manifest();
        alter(&mut manifest);
        Manifest::parse(&serde_json::to_vec(&manifest).unwrap(), &LIMITS).unwrap_err()
    };
    assert!(matches!(altered(&|m| m.version = 2), Error::Version(2)));
    assert!(matches!(altered(&|m| m.project = b"relative".to_vec()), Error::Project));
    assert!(matches!(altered(&|m| m.entries.swap(0, 1)), Error::Order(_)));
    assert!(matches!(altered(&|m| m.entries[1] = m.entries[0].clone()), Error::Order(_)));
    let refused: [&dyn Fn(&mut Manifest); 6] = [
        &|m| m.entries[1].change = Change::Add { new: Node::Directory { mode: 0o1777 } },
        &|m| m.entries[2].change = Change::Add { new: Node::Symlink { target: Vec::new() } },
        &|m| m.entries[0].change = Change::Modify { old: file("x"), new: file("x") },
        &|m| m.entries[3].renamed_from = Some(m.entries[0].path.clone()),
        &|m| m.entries[2].renamed_from = Some(m.entries[4].path.clone()),
        &|m| m.entries[0].renamed_from = Some(m.entries[4].path.clone()),
    ];
    for alter in refused {
        let error = altered(alter);
        assert!(matches!(error, Error::Entry { .. }), "{error}");
    }
    let unknown = String::from_utf8(manifest().to_bytes(&LIMITS).unwrap()).unwrap();
    let unknown = unknown.replace("\"operation\":\"add\"", "\"operation\":\"add\",\"extra\":1");
    assert!(matches!(Manifest::parse(unknown.as_bytes(), &LIMITS), Err(Error::Form(_))));
}

#[test]
fn limits_are_named() {
    let bytes = manifest().to_bytes(&LIMITS).unwrap();
    for (limits, name) in [
        (BundleLimits { entries: 4, ..LIMITS }, "entries"),
        (BundleLimits { total_bytes: 5, ..LIMITS }, "total_bytes"),
        (BundleLimits { path_bytes: 3, ..LIMITS }, "path_bytes"),
        (BundleLimits { manifest_bytes: 100, ..LIMITS }, "manifest_bytes"),
    ] {
        match Manifest::parse(&bytes, &limits) {
            Err(Error::Limit(exceeded)) => assert_eq!(exceeded.limit, name),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn marks_that_are_missing_are_added() {
    let mut manifest = manifest();
    manifest.entries = vec![
        entry(".envrc", Change::Add { new: file("x") }),
        entry(".git/config", Change::Add { new: file("x") }),
        entry("link", Change::Add { new: Node::Symlink { target: b"/etc".to_vec() } }),
    ];
    let parsed = Manifest::parse(&serde_json::to_vec(&manifest).unwrap(), &LIMITS).unwrap();
    assert_eq!(parsed.entries[0].executed_by, Some(ExecutedBy::Shell));
    assert_eq!(parsed.entries[1].refused, Some(Refusal::GitDirectory));
    assert_eq!(parsed.entries[2].refused, Some(Refusal::LinkLeaves));
}

#[test]
fn random_damage_never_panics() {
    let bytes = manifest().to_bytes(&LIMITS).unwrap();
    let mut random = Random::new(3);
    for _ in 0..20_000 {
        let mut damaged = bytes.clone();
        for _ in 0..1 + random.below(5) {
            let at = random.below(damaged.len());
            damaged[at] = bytes[random.below(bytes.len())];
        }
        if let Ok(manifest) = Manifest::parse(&damaged, &LIMITS) {
            manifest.validate(&LIMITS).unwrap();
        }
    }
}
