//! Copies of a small tree in the place of the system directories.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

struct Host {
    dir: tempfile::TempDir,
    data: DataDir,
}

impl Host {
    /// A `usr` with a program under two names, a link, a private file, a pipe and set-id bits.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let usr = dir.path().join("usr");
        fs::create_dir_all(usr.join("bin")).unwrap();
        fs::create_dir_all(usr.join("local/lib/a")).unwrap();
        fs::write(usr.join("bin/tool"), "program").unwrap();
        fs::hard_link(usr.join("bin/tool"), usr.join("bin/other")).unwrap();
        symlink("tool", usr.join("bin/link")).unwrap();
        fs::write(usr.join("bin/private"), "secret").unwrap();
        fs::write(usr.join("bin/setuid"), "s").unwrap();
        let set_mode = |name: &str, mode: u32| {
            fs::set_permissions(usr.join(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        set_mode("bin/tool", 0o755);
        set_mode("bin/private", if rustix::process::geteuid().is_root() { 0o600 } else { 0 });
        set_mode("bin/setuid", 0o6755);
        let pipe = usr.join("bin/pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o644);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let data = DataDir::open(&dir.path().join("data")).unwrap();
        Self { dir, data }
    }

    fn usr(&self) -> PathBuf {
        self.dir.path().join("usr")
    }

    fn ensure(&self) -> Base {
        ensure(&self.data, &[&self.usr()], &mut |_| {}).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let listed = fs::read_dir(self.dir.path().join("data/bases")).unwrap();
        let names = listed.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != "lock").collect()
    }
}

#[test]
fn a_copy_has_the_same_files_in_inodes_of_its_own() {
    let host = Host::new();
    let base = host.ensure();
    let copy = base.directory(&host.usr());
    let stat = |path: PathBuf| fs::symlink_metadata(path).unwrap();
    let (old, new) = (stat(host.usr().join("bin/tool")), stat(copy.join("bin/tool")));
    assert_ne!((old.dev(), old.ino()), (new.dev(), new.ino()));
    assert_eq!(
        (old.mode(), old.mtime(), old.mtime_nsec()),
        (new.mode(), new.mtime(), new.mtime_nsec())
    );
    assert_eq!((old.uid(), old.gid()), (new.uid(), new.gid()));
    assert_eq!(stat(copy.join("bin/other")).ino(), new.ino());
    assert_eq!(stat(copy.join("bin")).mtime(), stat(host.usr().join("bin")).mtime());
    assert_eq!(fs::read_link(copy.join("bin/link")).unwrap(), Path::new("tool"));
    assert_eq!(stat(copy.join("bin/setuid")).mode() & 0o7777, 0o755);
    assert!(!copy.join("bin/private").exists() && !copy.join("bin/pipe").exists());
    assert_eq!((base.content().unreadable, base.content().special), (1, 1));
    // What is written to the copy is not in the host's file.
    fs::write(copy.join("bin/tool"), "changed").unwrap();
    assert_eq!(fs::read(host.usr().join("bin/tool")).unwrap(), b"program");
}

#[test]
fn a_copy_is_made_once_for_each_state() {
    let host = Host::new();
    assert!(matches!(current(&host.data, &[&host.usr()]), Err(Error::Missing)));
    let first = host.ensure();
    assert_eq!(host.ensure().path(), first.path());
    assert_eq!(current(&host.data, &[&host.usr()]).unwrap().path(), first.path());
    fs::write(host.usr().join("local/lib/new"), "").unwrap();
    let second = host.ensure();
    assert_ne!(second.path(), first.path());
    assert!(second.directory(&host.usr()).join("local/lib/new").exists());
    // The first is in use.
    assert_eq!(host.names().len(), 2);
    drop(first);
    let pruned = prune(&host.data, &[&host.usr()], false).unwrap();
    assert_eq!((pruned.removed, pruned.in_use), (1, 0));
    let pruned = prune(&host.data, &[&host.usr()], true).unwrap();
    assert_eq!((pruned.removed, pruned.in_use), (0, 1));
    let held = second.hold().unwrap();
    drop(second);
    assert_eq!(prune(&host.data, &[&host.usr()], true).unwrap().in_use, 1);
    drop(held);
    assert_eq!(prune(&host.data, &[&host.usr()], true).unwrap().removed, 1);
    assert!(host.names().is_empty());
}

#[test]
fn a_renewed_copy_has_what_was_overwritten_in_place() {
    let host = Host::new();
    let first = host.ensure();
    fs::write(host.usr().join("bin/setuid"), "new").unwrap();
    let unnoticed = host.ensure();
    assert_eq!(unnoticed.path(), first.path());
    let renewed = renew(&host.data, &[&host.usr()], &mut |_| {}).unwrap();
    assert_eq!(fs::read(renewed.directory(&host.usr()).join("bin/setuid")).unwrap(), b"new");
    // The one in use stays, under another name.
    assert_eq!(host.names().iter().filter(|name| name.starts_with("old-")).count(), 1);
    drop((first, unnoticed));
    prune(&host.data, &[&host.usr()], false).unwrap();
    assert_eq!(host.names().len(), 1);
}

#[test]
fn two_makers_make_one_and_what_a_killed_one_left_is_removed() {
    let host = Host::new();
    let left = host.dir.path().join("data/bases/new-1-0/root/usr");
    host.data.bases().unwrap();
    fs::create_dir_all(left).unwrap();
    let copies = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let data = DataDir::open(&host.dir.path().join("data")).unwrap();
                let mut report = |progress| {
                    if progress == Progress::Counting {
                        copies.fetch_add(1, Ordering::Relaxed);
                    }
                };
                ensure(&data, &[&host.usr()], &mut report).unwrap();
            });
        }
    });
    assert_eq!(copies.load(Ordering::Relaxed), 1);
    assert_eq!(host.names().len(), 1);
}

#[test]
fn a_state_that_changes_while_it_is_copied_is_copied_again() {
    let host = Host::new();
    let mut changes = 0;
    let base = ensure(&host.data, &[&host.usr()], &mut |progress| {
        if progress == Progress::Writing && changes == 0 {
            changes += 1;
            fs::write(host.usr().join("local/late"), "").unwrap();
        }
    });
    assert!(base.unwrap().directory(&host.usr()).join("local/late").exists());
    let mut number = 0;
    fs::write(host.usr().join("local/again"), "").unwrap();
    let refused = ensure(&host.data, &[&host.usr()], &mut |progress| {
        if progress == Progress::Writing {
            number += 1;
            fs::write(host.usr().join(format!("local/{number}")), "").unwrap();
        }
    });
    assert!(matches!(refused, Err(Error::Changing)));
    assert!(host.names().iter().all(|name| !name.starts_with("new-")));
}

#[test]
fn a_failure_leaves_nothing() {
    let host = Host::new();
    let mut deep = host.usr().join("share");
    for _ in 0..210 {
        deep.push("d");
    }
    fs::create_dir_all(&deep).unwrap();
    let refused = ensure(&host.data, &[&host.usr()], &mut |_| {});
    assert!(matches!(refused, Err(Error::TooDeep(_))), "{refused:?}");
    assert!(host.names().is_empty());
}

#[test]
fn a_top_that_is_a_link_or_missing_is_not_copied() {
    let host = Host::new();
    let link = host.dir.path().join("bin");
    symlink("usr/bin", &link).unwrap();
    let missing = host.dir.path().join("lib32");
    let base = ensure(&host.data, &[&host.usr(), &link, &missing], &mut |_| {}).unwrap();
    assert!(!base.directory(&link).exists() && !base.directory(&missing).exists());
}
