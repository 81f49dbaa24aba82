//! Refused operations and their errors: special files, kernel file systems, operations that a user
//! inside may not do, and files that belong to no inside id.

use std::io;
use std::os::unix::fs::symlink;

use rustix::fs::{CWD, FileType, Mode};
use stockade_core::sandbox::User;

use super::{kind, read, write};
use crate::files::testing::{Fixture, chmod, path};
use stockade_runtime::{Error, FileKind, WriteOptions};

const ROOT: User = User { user: 0, group: 0 };

#[test]
fn errors_say_what_callers_expect() {
    for fixture in Fixture::all() {
        write(&fixture, "/project/file", b"").unwrap();
        let list = |at| fixture.root.read_directory(&path(at));
        let make = |at| fixture.root.make_directory(&path(at), WriteOptions::default());
        assert_eq!(kind(read(&fixture, "/project/none")), io::ErrorKind::NotFound);
        assert_eq!(kind(read(&fixture, "/project")), io::ErrorKind::IsADirectory);
        assert_eq!(kind(write(&fixture, "/project", b"")), io::ErrorKind::IsADirectory);
        assert_eq!(kind(write(&fixture, "/", b"")), io::ErrorKind::IsADirectory);
        for at in ["/project/file/below", "/project/file/below/deeper"] {
            assert_eq!(kind(read(&fixture, at)), io::ErrorKind::NotADirectory);
            assert_eq!(kind(write(&fixture, at, b"")), io::ErrorKind::NotADirectory);
            assert_eq!(kind(make(at)), io::ErrorKind::NotADirectory);
            assert_eq!(kind(fixture.root.stat(&path(at))), io::ErrorKind::NotADirectory);
        }
        assert_eq!(kind(list("/project/file")), io::ErrorKind::NotADirectory);
        assert_eq!(kind(list("/project/none")), io::ErrorKind::NotFound);
        assert_eq!(kind(make("/project/file")), io::ErrorKind::AlreadyExists);
        let long = format!("/project/{}", "n".repeat(256));
        assert_eq!(kind(write(&fixture, &long, b"")), io::ErrorKind::InvalidFilename);
    }
}

#[test]
fn special_files_are_never_opened() {
    for fixture in Fixture::all() {
        fixture.as_user(|| {
            let mode = Mode::from_bits_truncate(0o666);
            for (name, kind) in [("pipe", FileType::Fifo), ("socket", FileType::Socket)] {
                rustix::fs::mknodat(CWD, fixture.at("project").join(name), kind, mode, 0).unwrap();
            }
            symlink("pipe", fixture.at("project/to pipe")).unwrap();
        });
        for at in ["/project/pipe", "/project/to pipe", "/project/socket"] {
            assert_eq!(kind(read(&fixture, at)), io::ErrorKind::InvalidInput, "{at}");
            assert_eq!(kind(write(&fixture, at, b"x")), io::ErrorKind::InvalidInput, "{at}");
        }
        assert_eq!(fixture.root.stat(&path("/project/pipe")).unwrap().kind, FileKind::Other);
        fixture.root.remove(&path("/project/pipe")).unwrap();
    }
}

#[test]
fn nothing_of_the_kernels_own_is_opened() {
    for fixture in Fixture::mounted() {
        let refused = io::ErrorKind::InvalidInput;
        for at in ["/proc/self/status", "/proc/1/environ", "/proc/sys/kernel/core_pattern"] {
            let read = read(&fixture, at);
            assert!([refused, io::ErrorKind::NotFound].contains(&kind(read)), "{at}");
        }
        assert_eq!(kind(read(&fixture, "/proc/version")), refused);
        assert_eq!(kind(write(&fixture, "/proc/version", b"")), refused);
        assert_eq!(kind(write(&fixture, "/proc/sys/kernel/core_pattern", b"")), refused);
        assert_eq!(kind(fixture.root.read_directory(&path("/proc"))), refused);
        assert_eq!(kind(fixture.root.remove(&path("/proc/version"))), refused);
        let make = fixture.root.make_directory(&path("/proc/new"), WriteOptions::default());
        assert_eq!(kind(make), refused);
        // A magic link of the kernel would lead to the host's own root.
        let init = format!("/proc/{}/root/etc/passwd", std::process::id());
        let through = read(&fixture, &init).unwrap_err();
        let Error::File { source, .. } = through else { panic!("{through}") };
        assert_eq!(source.raw_os_error(), Some(rustix::io::Errno::LOOP.raw_os_error()));
        assert_eq!(kind(read(&fixture, "/dev/null")), refused);
        assert!(write(&fixture, "/dev/null", b"x").is_err());
        assert!(fixture.root.stat(&path("/proc/version")).is_ok());
        let to = fixture.outside.path().join("collected");
        assert_eq!(kind(fixture.root.collect(&path("/proc"), &to, 1 << 20)), refused);
    }
}

#[test]
fn what_is_mounted_stays() {
    for fixture in Fixture::mounted() {
        let busy = io::ErrorKind::ResourceBusy;
        write(&fixture, "/tmp/file", b"").unwrap();
        for at in ["/dev/null", "/mounted", "/proc"] {
            assert_eq!(kind(fixture.root.remove(&path(at))), busy, "{at}");
            assert_eq!(kind(fixture.root.rename(&path(at), &path("/project/x"))), busy, "{at}");
            assert_eq!(kind(fixture.root.rename(&path("/tmp/file"), &path(at))), busy, "{at}");
        }
        // Also below a removed directory.
        assert_eq!(kind(fixture.root.remove(&path("/dev"))), busy);
        assert!(fixture.at("proc/version").exists(), "still mounted");
        let null = fixture.root.stat(&path("/dev/null")).unwrap();
        assert_eq!(null.kind, FileKind::Other);
    }
}

#[test]
fn what_is_made_is_made_with_the_rights_of_its_owner_alone() {
    for fixture in Fixture::ranged() {
        let denied = io::ErrorKind::PermissionDenied;
        assert_eq!(kind(write(&fixture, "/etc/new", b"")), denied);
        assert_eq!(kind(write(&fixture, "/etc/file", b"")), denied);
        let make = |at| fixture.root.make_directory(&path(at), WriteOptions::default());
        assert_eq!(kind(make("/etc/new")), denied);
        // Also through a symbolic link.
        fixture.as_user(|| symlink("/etc", fixture.at("project/config")).unwrap());
        assert_eq!(kind(write(&fixture, "/project/config/file", b"")), denied);
        // A file that this user may replace, but not write to.
        fixture.put("/project/of root", "old", 0o644, ROOT);
        assert_eq!(kind(write(&fixture, "/project/of root", b"")), denied);
        let source = fixture.outside.path().join("source");
        std::fs::create_dir_all(source.join("etc")).unwrap();
        std::fs::write(source.join("etc/file"), "").unwrap();
        assert_eq!(kind(fixture.root.ship(&source, &path("/"))), denied);
        assert_eq!(read(&fixture, "/etc/file").unwrap(), b"original\n");
        assert_eq!(fixture.leftovers("etc"), Vec::<std::path::PathBuf>::new());

        let options = WriteOptions { owner: Some(ROOT), ..WriteOptions::default() };
        fixture.root.write(&path("/etc/new"), &mut &b""[..], options).unwrap();
        assert_eq!(fixture.owner_and_mode("/etc/new"), (fixture.host(ROOT), 0o644));
    }
}

#[test]
fn a_user_who_is_not_inside_owns_nothing() {
    for fixture in Fixture::all() {
        for id in [65_535, 70_000, u32::MAX] {
            let owner = Some(User { user: id, group: id });
            let options = WriteOptions { owner, ..WriteOptions::default() };
            let refused = fixture.root.write(&path("/project/x"), &mut &b""[..], options);
            match refused.unwrap_err() {
                Error::Invalid(_) if fixture.host_start.is_some() => {}
                Error::Unsupported { .. } if fixture.host_start.is_none() => {}
                error => panic!("{}: {error}", fixture.name),
            }
        }
    }
}

#[test]
fn the_owner_of_a_sandbox_sees_all_that_belongs_to_it() {
    for fixture in Fixture::ranged() {
        fixture.put_directory("/project/locked", 0o700, User { user: 7, group: 7 });
        fixture.put("/project/locked/secret", "7's", 0, User { user: 7, group: 7 });
        chmod(fixture.at("project/locked"), 0);
        assert_eq!(read(&fixture, "/project/locked/secret").unwrap(), b"7's");
        let listed = fixture.root.read_directory(&path("/project/locked")).unwrap();
        assert_eq!((listed[0].owner, listed[0].mode), (User { user: 7, group: 7 }, 0));
        let to = fixture.outside.path().join("collected");
        fixture.root.collect(&path("/project"), &to, 1 << 20).unwrap();
        assert_eq!(std::fs::read(to.join("locked/secret")).unwrap(), b"7's");
    }
}

#[test]
fn the_hosts_own_files_are_read_only_as_far_as_everybody_may() {
    for fixture in Fixture::ranged() {
        let denied = io::ErrorKind::PermissionDenied;
        assert_eq!(read(&fixture, "/foreign/public").unwrap(), b"public");
        let info = fixture.root.stat(&path("/foreign/public")).unwrap();
        assert_eq!(info.owner, User { user: 65_534, group: 65_534 });
        assert_eq!(fixture.root.read_directory(&path("/foreign")).unwrap().len(), 3);
        assert_eq!(kind(read(&fixture, "/foreign/secret")), denied);
        assert_eq!(kind(read(&fixture, "/foreign/private/public")), denied);
        assert_eq!(kind(fixture.root.stat(&path("/foreign/private/public"))), denied);
        assert_eq!(kind(fixture.root.read_directory(&path("/foreign/private"))), denied);
        let to = fixture.outside.path().join("collected");
        for from in ["/foreign", "/foreign/private"] {
            assert_eq!(kind(fixture.root.collect(&path(from), &to, 1 << 20)), denied);
            assert!(!to.exists());
        }
    }
}

#[test]
fn too_many_names_are_refused() {
    let Some(world) = Fixture::mounted().into_iter().find(|world| world.name == "tmpfs") else {
        return;
    };
    let directory = world.at("project/many");
    world.put_directory("/project/many", 0o755, world.user());
    world.as_user(|| {
        std::fs::write(directory.join("first"), "").unwrap();
        for number in 0..100_000 {
            std::fs::hard_link(directory.join("first"), directory.join(number.to_string()))
                .unwrap();
        }
    });
    let refused = world.root.read_directory(&path("/project/many"));
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    std::fs::remove_file(directory.join("0")).unwrap();
    assert_eq!(world.root.read_directory(&path("/project/many")).unwrap().len(), 100_000);
}
