//! The identity of the command: no user of the host, and no permission to become one.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::{Comparison, assert_blocked};
use crate::harness::{Identity, World};
use crate::host;

/// The lowest host id that a sandbox started by root may use.
const LOWEST_MAPPED_ID: u32 = 0x7000_0000;

fn privileges(world: &World) {
    assert_blocked(world, Comparison::Unshared, &["privileges"]);
}

/// What the host's kernel reports about a process in the sandbox.
fn seen_from_the_host(world: &World) {
    let (first, second) = host::token();
    let word = format!("{first}{second}");
    let running = world.stockade(&["run", "--discard", "--", "./probe", "linger", &word]).start();
    let pid = host::wait_for_process(&word);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_start_matches(':').split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    for name in ["Uid", "Gid"] {
        for id in field(name) {
            let id: u32 = id.parse().unwrap();
            match world.identity {
                Identity::Root => assert!(id >= LOWEST_MAPPED_ID, "{name}: {id}"),
                Identity::User => assert_eq!(id, world.identity.uid(), "{name}"),
            }
        }
    }
    for id in field("Groups") {
        let id: u32 = id.parse().unwrap();
        assert!(id != 0 && (id >= LOWEST_MAPPED_ID || world.identity == Identity::User), "{id}");
    }
    for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(field(name), ["0000000000000000"], "{name}");
    }
    assert_eq!(field("NoNewPrivs"), ["1"]);
    assert_eq!(field("Seccomp"), ["2"]);
    for name in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"] {
        let inside = fs::read_link(format!("/proc/{pid}/ns/{name}")).unwrap();
        assert_ne!(inside.display().to_string(), host::namespace(name), "{name}");
    }
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    // 1 means "not even through a pipe" (core(5) leaves pipes unlimited).
    assert!(matches!(core.split_whitespace().nth(4), Some("0" | "1")), "{core}");
    drop(running);
    host::assert_none_survives(&word);
}

fn gain_ids(world: &World) {
    assert_blocked(world, Comparison::Root, &["gain-ids"]);
}

/// A set-user-id file in the project, owned by root where the tests can create one.
fn set_user_id_file(world: &World) {
    let path = world.project.join("set-id");
    crate::harness::copy_program(&world.probe(), &path);
    world.chown(&path);
    // Which other user is the file owner does not matter.
    if crate::harness::tests_run_as_root() {
        std::os::unix::fs::chown(&path, Some(5), Some(5)).unwrap();
    }
    fs::set_permissions(&path, PermissionsExt::from_mode(0o6755)).unwrap();
    if crate::harness::tests_run_as_root() {
        world.on_host(&path, &["effective-ids"]).finish().escaped();
    }
    world.run(&["--discard"], &["./set-id", "effective-ids"]).is_blocked();
}

/// CVE-2021-3493 and CVE-2023-0386: permissions of a file that is copied up, or created, in the
/// view.
fn set_id_files_do_not_leave(world: &World) {
    let path = world.write("tool", "#!/bin/sh\n");
    fs::set_permissions(&path, PermissionsExt::from_mode(0o4755)).unwrap();
    let script = "echo echo >> tool; chmod 6755 tool; cp /bin/sh shell; chmod 6777 shell; \
                  mkdir bits; chmod 7777 bits; echo x > bits/x; ls -ld tool shell bits";
    world.review(script);
    let with_bits = |root: &std::path::Path| {
        host::Tree::of(root)
            .entries
            .into_iter()
            .filter(|(_, entry)| entry.mode & 0o6000 != 0)
            .map(|(path, _)| path)
            .collect::<Vec<_>>()
    };
    assert_eq!(with_bits(&world.data()), Vec::<std::path::PathBuf>::new(), "in the data directory");
    let apply = ["apply", "latest", "--allow-executed", "--allow-unseen"];
    world.stockade(&apply).finish().succeeds();
    let applied: Vec<_> = with_bits(&world.project);
    let new: Vec<_> = applied.iter().filter(|path| !path.ends_with("tool")).collect();
    assert!(new.is_empty(), "new set-id files were applied: {new:?}");
    for (path, entry) in host::Tree::of(&world.project).entries {
        let is_own = entry.uid == world.identity.uid() || path.ends_with("probe");
        assert!(is_own, "{} belongs to {}", path.display(), entry.uid);
    }
}

/// A directory that was mounted writable can be written, but not with files that would give their
/// file owner's permissions to any user who runs them on the host. As root that owner would be
/// root.
fn set_id_files_in_a_writable_mount(world: &World) {
    let given = world.path("given");
    world.plant(&given.join("there"), "#!/bin/sh\n");
    let option = format!("{}:/given", given.display());
    let words = ["set-id-files", "/given"];
    world.attack_bare(&["set-id-files", given.to_str().unwrap()]).escaped();
    for entry in fs::read_dir(&given).unwrap().flatten() {
        fs::remove_file(entry.path()).unwrap();
    }
    world.plant(&given.join("there"), "#!/bin/sh\n");
    let outcome = world.attack_with(&["--mount", &option], &words);
    for (path, entry) in host::Tree::of(&given).entries {
        assert_eq!(entry.mode & 0o6000, 0, "{} has set-id bits: {outcome}", path.display());
    }
    outcome.is_blocked();
}

fn file_capabilities(world: &World) {
    assert_blocked(world, Comparison::Root, &["file-capabilities"]);
}

fn hard_links_to_system_files(world: &World) {
    world.attack(&["link-system-file"]).is_blocked();
}

fn host_name_is_hidden(world: &World) {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    world.attack_bare(&["host-identity", &name]).escaped();
    world.attack(&["host-identity", &name, machine.trim()]).is_blocked();
}

/// Root runs a command on the project of an ordinary user: the command has neither identity.
fn project_of_another_user(world: &World) {
    if world.identity == Identity::User {
        return;
    }
    world.chown_tree(&world.project, |_| 1000);
    let outcome =
        world.run(&["--review"], &["sh", "-c", "id -u; echo new > new; ls -ln a.txt new"]);
    outcome.succeeds();
    assert_eq!(outcome.stdout.lines().next(), Some("1000"), "{outcome}");
    world.stockade(&["apply", "latest"]).finish().succeeds();
    let new = host::Tree::of(&world.project.join("new"));
    assert_eq!(new.entries.values().next().map(|entry| (entry.uid, entry.gid)), Some((1000, 1000)));
    world.attack(&["gain-ids"]).is_blocked();
    world.attack(&["privileges"]).is_blocked();
}

as_root_and_as_user![
    privileges,
    seen_from_the_host,
    gain_ids,
    set_user_id_file,
    set_id_files_do_not_leave,
    set_id_files_in_a_writable_mount,
    file_capabilities,
    hard_links_to_system_files,
    host_name_is_hidden,
    project_of_another_user,
];
