//! Whose data directory is accepted, and that nothing is created before.

use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};

use super::*;
use crate::testing::chmod;

const OTHER: u32 = 1000;

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        stockade_test_support::skipped("only root can make files of another user");
    }
    is_root
}

fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn it_is_made_private_and_refused_when_it_is_not() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("a/b");
    assert!(DataDir::find(&path).unwrap().is_none());
    let data = DataDir::open(&path).unwrap();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
    data.views().unwrap();
    data.views().unwrap();
    assert_eq!((mode(&path), mode(&path.join("views"))), (0o700, 0o700));
    assert!(DataDir::find(&path).unwrap().is_some());
    assert_eq!(
        data.entry("views").canonicalize().unwrap(),
        path.canonicalize().unwrap().join("views")
    );

    let real = data.real_path().unwrap();
    assert!(data.is_at(&real) && !data.is_at(scratch.path()));
    std::fs::rename(&path, scratch.path().join("moved")).unwrap();
    assert!(!data.is_at(&real) && data.is_at(&data.real_path().unwrap()));
    std::fs::rename(scratch.path().join("moved"), &path).unwrap();

    for bad in [0o770, 0o702, 0o777] {
        chmod(&path, bad);
        let refused = DataDir::open(&path).unwrap_err();
        assert!(matches!(refused, Error::Writable { mode, .. } if mode == bad), "{refused}");
        assert_eq!(refused.hint().unwrap(), format!("chmod go-w {}", path.display()));
        assert!(matches!(DataDir::find(&path), Err(Error::Writable { .. })));
    }
    chmod(&path, 0o755);
    DataDir::open(&path).unwrap();
    chmod(path.join("views"), 0o777);
    assert!(
        matches!(data.views(), Err(Error::Writable { path: named, .. }) if named == path.join("views"))
    );
    if !rustix::process::geteuid().is_root() {
        assert!(matches!(DataDir::open(Path::new("/")), Err(Error::Foreign { .. })));
    }
}

#[test]
fn a_directory_of_another_user_stays_as_it_is() {
    if !is_root() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("theirs");
    std::fs::create_dir(&path).unwrap();
    lchown(&path, Some(OTHER), Some(OTHER)).unwrap();
    for path in [path.clone(), path.join("below"), path.join("below/deeper")] {
        let opened = DataDir::open(&path).unwrap_err();
        assert!(
            matches!(
                opened,
                Error::Foreign { owner: OTHER, .. } | Error::ForeignParent { owner: OTHER, .. }
            ),
            "{opened}"
        );
        assert!(opened.hint().unwrap().starts_with("export STOCKADE_DATA_DIR="));
    }
    assert_eq!(names(&path), [""; 0]);
    // A part of a directory of one's own.
    let own = scratch.path().join("own");
    let data = DataDir::open(&own).unwrap();
    data.bundles().unwrap();
    lchown(own.join("bundles"), Some(OTHER), None).unwrap();
    assert!(matches!(data.bundles(), Err(Error::Foreign { owner: OTHER, .. })));
}

#[test]
fn only_links_of_ones_own_lead_to_it() {
    let scratch = tempfile::tempdir().unwrap();
    let top = scratch.path();
    std::fs::create_dir_all(top.join("real/home")).unwrap();
    symlink("real", top.join("link")).unwrap();
    symlink(top.join("link/home"), top.join("absolute")).unwrap();
    symlink("../../link", top.join("real/home/up")).unwrap();
    for (way, real) in [
        ("link/home/a", "real/home/a"),
        ("absolute/b", "real/home/b"),
        ("absolute/up/home/c", "real/home/c"),
        ("link/../real/home/d/e", "real/home/d/e"),
    ] {
        DataDir::open(&top.join(way)).unwrap();
        assert!(top.join(real).is_dir(), "{way}");
        DataDir::open(&top.join(way)).unwrap();
    }
    symlink("loop", top.join("loop")).unwrap();
    symlink("nowhere", top.join("dangling")).unwrap();
    for bad in ["loop", "loop/a", "new/../a", "real/home/a/../none/../b"] {
        assert!(DataDir::open(&top.join(bad)).is_err(), "{bad}");
    }
    if !is_root() {
        return;
    }
    let before = names(&top.join("real/home"));
    for link in ["link", "absolute"] {
        lchown(top.join(link), Some(OTHER), Some(OTHER)).unwrap();
    }
    for (way, link) in [("link/home/a", "link"), ("link/new", "link"), ("absolute", "absolute")] {
        match DataDir::open(&top.join(way)).unwrap_err() {
            Error::ForeignLink { link: named, owner: OTHER, .. } => {
                assert_eq!(named.file_name().unwrap(), link, "{way}");
            }
            other => panic!("{way}: {other}"),
        }
    }
    assert_eq!(names(&top.join("real/home")), before);
    let refused = DataDir::open(&top.join("link/home/a")).unwrap_err();
    let real = top.join("real/home/a").canonicalize().unwrap();
    assert_eq!(refused.hint().unwrap(), format!("export STOCKADE_DATA_DIR={}", real.display()));
}

#[test]
fn a_link_inside_is_not_followed() {
    let scratch = tempfile::tempdir().unwrap();
    let victim = scratch.path().join("victim");
    std::fs::create_dir(&victim).unwrap();
    let path = scratch.path().join("data");
    let data = DataDir::open(&path).unwrap();
    type Part = fn(&DataDir) -> Result<Dir, Error>;
    let parts: [(&str, Part); 8] = [
        ("views", DataDir::views),
        ("bundles", DataDir::bundles),
        ("journals", DataDir::journals),
        ("histories", DataDir::histories),
        ("runtime", DataDir::runtime),
        ("runtime-bwrap", DataDir::runtime_bwrap),
        ("runtime-docker", DataDir::runtime_docker),
        ("images", DataDir::images),
    ];
    for (name, open) in parts {
        symlink(&victim, path.join(name)).unwrap();
        assert!(matches!(open(&data), Err(Error::Use { .. })), "{name}");
    }
    assert_eq!(names(&victim), [""; 0]);
}

#[test]
fn many_processes_may_create_it_at_once() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("a/b/c/d");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| DataDir::open(&path).unwrap());
        }
    });
}
