//! The same attack programs in a persistent sandbox of each runtime. SECURITY.md says which items each
//! runtime holds.

use crate::harness::{Identity, World, skip};
use crate::host;

/// The sandbox that is attacked.
const ID: &str = "attacked";

/// Attacks of the probe that need no argument about the host. None may work in any runtime. (The files
/// of the root, such as `/etc/passwd`, are the sandbox's own here.)
const ATTACKS: &[&[&str]] = &[
    // System calls.
    &["syscall", "unshare-user"],
    &["syscall", "unshare-mount", "unshare-network", "unshare-pid"],
    &["syscall", "bpf"],
    &["syscall", "perf_event_open"],
    &["syscall", "userfaultfd"],
    &["syscall", "keyctl"],
    &["syscall", "add_key", "request_key"],
    &["syscall", "kcmp"],
    &["syscall", "kexec_load", "kexec_file_load"],
    &["syscall", "init_module", "finit_module", "delete_module"],
    &["syscall", "reboot"],
    &["syscall", "swapon", "swapoff"],
    &["syscall", "acct"],
    &["syscall", "quotactl"],
    &["syscall", "mount", "umount2", "pivot_root", "chroot"],
    &["syscall", "fsopen", "fspick", "fsconfig", "fsmount", "open_tree", "move_mount"],
    &["syscall", "mount_setattr", "open_tree_attr", "open_by_handle_at"],
    &["syscall", "syslog"],
    &["syscall", "iopl", "ioperm"],
    &["syscall", "sethostname", "setdomainname"],
    &["syscall", "vhangup"],
    &["syscall", "modify_ldt"],
    &["syscall", "io_uring_setup", "io_uring_enter", "io_uring_register"],
    &["clone-user-namespace"],
    &["clone3"],
    &["setns"],
    &["pidfd-getfd"],
    &["int80"],
    &["x32"],
    &["terminal-ioctl"],
    &["personality"],
    &["clock-set"],
    &["dirty-pipe", "/etc/passwd"],
    // Knobs of the host.
    &["write-knob", "/proc/sys/kernel/core_pattern"],
    &["write-knob", "/proc/sysrq-trigger"],
    &["cgroup-files"],
    &["write-proc"],
    &["write-sys"],
    &["proc-remount-targets"],
    &["kernel-secrets"],
    &["devices"],
    &["open-devices"],
    &["mknod"],
    // Mounts.
    &["mount-tmpfs"],
    &["bind-mount"],
    &["new-mount-calls"],
    &["mount-in-namespace"],
    &["unmount"],
    &["change-root"],
    &["shared-mounts"],
    &["open-by-handle"],
    // The network.
    &["interfaces"],
    &["socket-options"],
    &["urgent-data"],
    &["socket", "40", "1", "0"],
    &["socket", "17", "3", "768"],
    &["socket", "2", "3", "1"],
    &["socket", "38", "5", "0"],
    &["socket", "2", "5", "132"],
    &["netlink"],
    &["socket-families"],
    // Identity and processes.
    &["privileges"],
    &["gain-ids"],
    &["init-files"],
    &["trace"],
];

/// Creates the sandbox; false if the runtime is not usable here, which is recorded as a skip.
fn create(world: &World, runtime: &str) -> bool {
    let project = world.project.to_str().unwrap();
    let create = ["create", "--id", ID, "--runtime", runtime, "--workspace", project];
    let outcome = world.stockade(&create).finish();
    if outcome.stderr.contains("[UNSUPPORTED]") {
        skip(&format!("escape::runtimes of {runtime}"), &outcome.stderr);
        return false;
    }
    outcome.succeeds();
    true
}

/// The same attacks where the root is an image, whose files belong to nobody on the host.
fn every_attack_is_blocked_in_an_image(world: &World) {
    let probe = world.probe();
    let root = world.path("image-root");
    let script = "set -e; mkdir -p \"$0/bin\" \"$0/etc\" \"$0/tmp\" \"$0/root\" \"$0/usr\"; \
        cp /bin/sh /bin/cat /bin/ls /usr/bin/env \"$0/bin\"; \
        for f in $(ldd /bin/sh /bin/cat /bin/ls /usr/bin/env $1 | grep -o '/[^ ]*so[^ ]*' | sort -u); do \
        mkdir -p \"$0$(dirname $f)\"; cp -L $f \"$0$f\"; done; \
        echo root:x:0:0:root:/root:/bin/sh > \"$0/etc/passwd\"";
    let words = ["-c", script, root.to_str().unwrap(), probe.to_str().unwrap()];
    world.on_host("/bin/sh".as_ref(), &words).finish().succeeds();
    let source = format!("dir:{}", root.display());
    world.stockade(&["image", "import", &source, "attacked:1"]).finish().succeeds();
    let project = world.project.to_str().unwrap();
    let create = ["create", "--id", ID, "--image", "attacked:1", "--workspace", project];
    world.stockade(&create).finish().succeeds();
    for words in ATTACKS {
        attack(world, words).is_blocked();
    }
    let run = ["run", "--discard", "--image", "attacked:1", "--", "./probe"];
    for words in ATTACKS {
        world.stockade(&[&run[..], words].concat()).finish().is_blocked();
    }
    world.stockade(&["kill", ID, "--discard"]).finish().succeeds();
}

fn attack(world: &World, words: &[&str]) -> crate::call::Outcome {
    let mut all = vec!["exec", ID, "--", "./probe"];
    all.extend(words);
    world.stockade(&all).finish()
}

fn every_attack_is_blocked(world: &World, runtime: &str) {
    if !create(world, runtime) {
        return;
    }
    for words in ATTACKS {
        // The kernel lets id 0 of a user namespace list the descriptors and mappings of an undumpable
        // process in it, and open none. In `bwrap` the workspace's owner may have this id, and init has the same.
        let is_own = runtime == "bwrap" && world.identity == Identity::Root;
        if is_own && matches!(words.first(), Some(&("pidfd-getfd" | "init-files"))) {
            let open = "for f in /proc/1/fd/*; do cat $f || readlink $f; done 2>/dev/null | wc -c";
            let outcome = world.stockade(&["exec", ID, "--", "sh", "-c", open]).finish();
            assert_eq!(outcome.stdout.trim(), "0", "{outcome}");
            continue;
        }
        attack(world, words).is_blocked();
    }
    world.stockade(&["kill", ID, "--discard"]).finish().succeeds();
}

/// What needs something of the host to attack: its loopback, its processes, its names.
fn the_host_is_out_of_reach(world: &World, runtime: &str) {
    if !create(world, runtime) {
        return;
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let network = host::namespace("net");
    world.attack_bare(&["connect-tcp", &network, &address]).escaped();
    attack(world, &["connect-tcp", &network, &address]).is_blocked();
    let (processes, own) = (host::namespace("pid"), std::process::id().to_string());
    attack(world, &["kill-host", &processes, &own]).is_blocked();
    let data = world.data().display().to_string();
    let seen = world.stockade(&["exec", ID, "--", "ls", "-a", &data]).finish();
    assert!(!seen.stdout.contains("stockade.db"), "{seen}");
    let environment = world.stockade(&["exec", ID, "--", "env"]).finish();
    assert!(!environment.stdout.contains(&data), "{environment}");
    world.stockade(&["kill", ID, "--discard"]).finish().succeeds();
}

/// A volume: read-only means it, a part is not left through a link, and other sandboxes see what is written.
fn a_volume_is_what_was_given(world: &World, runtime: &str) {
    let call = |words: &[&str]| world.stockade(words).finish();
    let create = |id: &str, flags: &[&str]| {
        call(&[&["create", "--id", id, "--runtime", runtime], flags].concat())
    };
    let writer = create("writer", &["-v", "data:/data"]);
    if writer.stderr.contains("[UNSUPPORTED]") {
        skip(&format!("escape::runtimes of {runtime}"), &writer.stderr);
        return;
    }
    writer.succeeds();
    let script = "mkdir /data/part; echo kept > /data/part/file; ln -s / /data/root; ln -s /etc /data/part/up";
    call(&["exec", "writer", "--", "sh", "-c", script]).succeeds();
    let project = world.project.to_str().unwrap();
    create(ID, &["--workspace", project, "-v", "data:/given:ro"]).succeeds();
    attack(world, &["make-writable", "/given"]).is_blocked();
    let write = "echo x > /given/new; rm -rf /given/part; cat /given/part/file";
    let seen = call(&["exec", ID, "--", "sh", "-c", write]);
    assert_eq!(seen.stdout, "kept\n", "{seen}");
    for bad in ["root", "root/etc", "part/up", "../../..", "part/up/passwd"] {
        let part = format!("type=volume,source=data,target=/part,volume-subpath={bad}");
        let refused = create("part", &["--mount", &part]);
        assert!(!refused.status.success(), "{bad}: {refused}");
    }
    // A cache is not reached by the name of its volume.
    create("cached", &["--workspace", project, "--cache", "npm"]).succeeds();
    let names = call(&["volume", "ls", "--all", "-q"]).stdout;
    let cache = names.lines().find(|name| name.starts_with("cache-npm-")).unwrap();
    let thief = create("thief", &["-v", &format!("{cache}:/cache")]);
    assert!(!thief.status.success() && thief.stderr.contains("is a cache"), "{thief}");
    for id in ["writer", "cached", ID] {
        call(&["kill", id, "--discard"]).succeeds();
    }
}

/// One module for each runtime, with each test as root and as an ordinary user.
macro_rules! in_runtimes {
    ($($runtime:ident),+) => {$(
        mod $runtime {
            use crate::harness::World;

            fn every_attack_is_blocked(world: &World) {
                super::every_attack_is_blocked(world, stringify!($runtime));
            }

            fn the_host_is_out_of_reach(world: &World) {
                super::the_host_is_out_of_reach(world, stringify!($runtime));
            }

            fn a_volume_is_what_was_given(world: &World) {
                super::a_volume_is_what_was_given(world, stringify!($runtime));
            }

            as_root_and_as_user![
                every_attack_is_blocked,
                the_host_is_out_of_reach,
                a_volume_is_what_was_given,
            ];
        }
    )+};
}

in_runtimes!(native, bwrap);

as_root_and_as_user![every_attack_is_blocked_in_an_image];
