//! Git's index: compared with git itself, and damaged at every byte.

use std::path::Path;
use std::process::Command;

use super::*;
use crate::testing::Random;

fn git(root: &Path, arguments: &[&str]) -> Option<Vec<u8>> {
    let output = Command::new("git")
        .args(["-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "core.excludesFile="])
        .args(arguments)
        .current_dir(root)
        .output()
        .ok()?;
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    Some(output.stdout)
}

fn load(root: &Path) -> Index {
    let mut index = Index::parse(&std::fs::read(root.join(".git/index")).unwrap()).unwrap();
    if let Some(shared) = index.shared().map(str::to_owned) {
        let content = std::fs::read(root.join(".git").join(shared)).unwrap();
        index.join(Index::parse(&content).unwrap());
    }
    index
}

#[test]
fn every_version_agrees_with_git() {
    if Command::new("git").arg("--version").output().is_err() {
        crate::testing::skipped("git is not installed");
        return;
    }
    for (format, settings) in [
        ("sha1", &["update-index", "--index-version=2"][..]),
        ("sha1", &["update-index", "--index-version=3"]),
        ("sha1", &["update-index", "--index-version=4"]),
        ("sha1", &["update-index", "--split-index"]),
        ("sha256", &["update-index", "--index-version=2"]),
        ("sha256", &["update-index", "--index-version=4"]),
    ] {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        git(root, &["init", "-q", &format!("--object-format={format}")]);
        let mut random = Random::new(7);
        for number in 0..120 {
            let directory = format!("d{}/e é{}", random.below(4), random.below(3));
            std::fs::create_dir_all(root.join(&directory)).unwrap();
            let name = "x".repeat(random.below(200));
            std::fs::write(root.join(format!("{directory}/{number}{name}")), "").unwrap();
        }
        git(root, &["add", "-A"]);
        git(root, settings);
        std::fs::write(root.join("later"), "").unwrap();
        std::fs::write(root.join("untracked"), "").unwrap();
        git(root, &["add", "--intent-to-add", "later"]);

        let index = load(root);
        let listed = git(root, &["ls-files", "-z"]).unwrap();
        let listed: BTreeSet<Vec<u8>> =
            listed.split(|b| *b == 0).filter(|n| !n.is_empty()).map(<[u8]>::to_vec).collect();
        assert_eq!(index.paths, listed, "{format} {settings:?}");
        assert!(index.tracks(&RelativePath::new("later").unwrap()));
        assert!(index.tracks(&RelativePath::new("d1").unwrap()));
        assert!(!index.tracks(&RelativePath::new("d").unwrap()));
        assert!(!index.tracks(&RelativePath::new("untracked").unwrap()));
    }
}

/// One entry of version 2 named `a`.
fn small() -> Vec<u8> {
    let mut content = b"DIRC\0\0\0\x02\0\0\0\x01".to_vec();
    content.extend([0; 60]);
    content.extend(b"\0\x01a\0\0\0\0\0\0\0\0\0");
    content.truncate(12 + 64);
    content.extend([0; 20]);
    content
}

#[test]
fn damage_is_an_error() {
    assert_eq!(Index::parse(&small()).unwrap().len(), 1);
    assert_eq!(Index::parse(b"DIRX\0\0\0\x02"), Err(Error::Signature));
    assert_eq!(Index::parse(b"DIRC\0\0\0\x05\0\0\0\0"), Err(Error::Version(5)));
    assert_eq!(Index::parse(b""), Err(Error::Damaged));
    for length in 0..small().len() {
        assert!(Index::parse(&small()[..length]).is_err(), "{length}");
    }
    let mut huge = small();
    huge[8..12].fill(0xFF);
    assert_eq!(Index::parse(&huge), Err(Error::Damaged));
    let mut climbing = small();
    climbing[74] = b'/';
    assert_eq!(Index::parse(&climbing), Err(Error::Damaged));
}

#[test]
fn random_damage_never_panics() {
    let mut random = Random::new(1);
    for _ in 0..20_000 {
        let mut content = small();
        for _ in 0..1 + random.below(4) {
            let at = random.below(content.len());
            content[at] = u8::try_from(random.below(256)).unwrap();
        }
        content.truncate(random.below(content.len() + 1));
        let _ = Index::parse(&content);
    }
}
