//! Attacks from inside persistent sandboxes: on the kernel, on init and its subreapers, on commands
//! of other users, and of one sandbox on another. The attacks are in `tests/programs/probe`.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking, as tests do"
)]

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use stockade_core::sandbox::{HostMount, User};
use stockade_core::{ExecId, SandboxId, SandboxSpec};
use stockade_runtime::conformance::skipped;
use stockade_runtime::{
    Capability, Command, Ending, Event, Offsets, Runtime as _, StandardInput, State,
};
use stockade_runtime_native::bubblewrap::{self, Launcher};
use stockade_runtime_native::{Native, Options};

use crate::native::keeper;

use stockade_test_support::program;

/// The path of the probe inside.
const PROBE: &str = "/opt/probe/probe";

/// Every attack of the probe that needs no argument about the sandbox: none may work, as any user.
const ATTACKS: &[&[&str]] = &[
    &["syscall", "unshare-user"],
    &["syscall", "unshare-mount", "unshare-network", "unshare-pid"],
    &["syscall", "bpf"],
    &["syscall", "perf_event_open"],
    &["syscall", "userfaultfd"],
    &["syscall", "keyctl", "add_key", "request_key"],
    &["trace"],
    &["syscall", "mount", "umount2", "pivot_root", "chroot"],
    &["syscall", "fsopen", "open_tree", "move_mount", "mount_setattr"],
    &["syscall", "open_by_handle_at"],
    &["syscall", "io_uring_setup", "io_uring_enter", "io_uring_register"],
    &["clone-user-namespace"],
    &["clone3"],
    &["setns"],
    &["pidfd-getfd"],
    &["int80"],
    &["x32"],
    &["terminal-ioctl"],
    &["personality"],
    &["socket-options"],
    &["urgent-data"],
];

/// For each attack one test as root and one as an ordinary user, with each launcher.
macro_rules! attacks {
    ($($name:ident),+ $(,)?) => {
        mod root {
            //! As root.
            $(#[test]
            fn $name() {
                crate::identity::do_as_root(|| super::run_attack(super::Launcher::Own, super::$name));
            })+
        }

        mod user {
            //! As an ordinary user.
            $(#[test]
            fn $name() {
                crate::identity::do_as_user(|| super::run_attack(super::Launcher::Own, super::$name));
            })+
        }

        mod bwrap_root {
            //! With bubblewrap, as root.
            $(#[test]
            fn $name() {
                crate::identity::do_as_root(|| {
                    super::run_attack(super::Launcher::Bubblewrap, super::$name)
                });
            })+
        }

        mod bwrap_user {
            //! With bubblewrap, as an ordinary user.
            $(#[test]
            fn $name() {
                crate::identity::do_as_user(|| {
                    super::run_attack(super::Launcher::Bubblewrap, super::$name)
                });
            })+
        }
    };
}

attacks! {
    every_attack_is_held,
    a_command_inherits_nothing,
    given_input_is_nobodys_to_change,
    init_is_out_of_reach,
    limits_of_init_end_nobody_else,
    users_are_apart,
    sandboxes_are_apart,
    the_keeper_is_out_of_sight,
}

/// Two sandboxes of one keeper, and the path of its data.
struct Scene {
    /// Whether commands may have several users.
    has_users: bool,
    one: SandboxUnderTest,
    other: SandboxUnderTest,
    data: PathBuf,
}

/// Creates the scene and runs an attack in it.
fn run_attack(launcher: Launcher, attack: fn(Scene) -> Pin<Box<dyn Future<Output = ()>>>) {
    if launcher == Launcher::Bubblewrap
        && let Err(unsupported) = bubblewrap::probe()
    {
        return skipped(&unsupported.reason);
    }
    let dir = tempfile::Builder::new().prefix("stockade-attacks-").tempdir().unwrap();
    let data = dir.path().join("data");
    let probe = dir.path().join("probe");
    std::fs::create_dir(&probe).unwrap();
    std::fs::copy(program("probe"), probe.join("probe")).unwrap();
    for path in [&probe, &probe.join("probe")] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options = Options { data: data.clone(), keeper: keeper(launcher), pool: 0 };
        let native = Native::open_for(launcher, options).unwrap();
        let one = SandboxUnderTest::create(&native, "one", &probe).await;
        let other = SandboxUnderTest::create(&native, "other", &probe).await;
        let has_users = native.supports(Capability::Users).await.is_ok();
        attack(Scene { has_users, one, other, data }).await;
        for id in ["one", "other"] {
            native.cleanup(&SandboxId::new(id).unwrap()).await.unwrap();
        }
        native.drain().await.unwrap();
    });
}

fn words(words: &[&str]) -> Command {
    let arguments = words.iter().map(Into::into).collect();
    Command { arguments, timeout: Some(Duration::from_secs(20)), ..Command::default() }
}

/// A sandbox that is attacked from inside.
pub(crate) struct SandboxUnderTest {
    pub(crate) native: Native,
    pub(crate) id: SandboxId,
    commands: std::cell::Cell<u32>,
}

impl SandboxUnderTest {
    /// Creates a sandbox with the probe in it. `probe` is a directory of the host with the probe in
    /// it.
    async fn create(native: &Native, name: &str, probe: &Path) -> Self {
        let spec = SandboxSpec {
            mounts: vec![HostMount {
                host: probe.to_owned(),
                inside: PathBuf::from("/opt/probe"),
                writable: false,
            }],
            lease: Some(Duration::from_secs(120)),
            ..SandboxSpec::default()
        };
        Self::create_with(native, name, &spec).await
    }

    /// Creates a sandbox.
    pub(crate) async fn create_with(native: &Native, name: &str, spec: &SandboxSpec) -> Self {
        let id = SandboxId::new(name).unwrap();
        native.create(&id, spec).await.unwrap();
        Self { native: native.clone(), id, commands: std::cell::Cell::new(0) }
    }

    fn next(&self) -> ExecId {
        self.commands.set(self.commands.get() + 1);
        ExecId::new(format!("c{}", self.commands.get())).unwrap()
    }

    /// Runs a command until it ends: how it ended, and what it wrote to both streams.
    pub(crate) async fn run(&self, words: &[&str], user: Option<User>) -> (Ending, String) {
        self.run_command(&Command { user, ..self::words(words) }).await
    }

    async fn run_command(&self, command: &Command) -> (Ending, String) {
        let exec = self.next();
        let mut running = self.native.execute(&self.id, &exec, command).await.unwrap();
        let mut written = Vec::new();
        loop {
            match running.events.next().await {
                Some(Event::Output { bytes, .. }) => written.extend(bytes),
                Some(Event::Lost { .. } | Event::RefusedCalls(_)) => {}
                Some(Event::Ended(ending)) => {
                    return (ending, String::from_utf8_lossy(&written).into_owned());
                }
                None => panic!("no end was told"),
            }
        }
    }

    /// The output of a script that must succeed.
    pub(crate) async fn shell(&self, script: &str) -> String {
        let (ending, written) = self.run(&["sh", "-c", script], None).await;
        assert_eq!(ending, Ending::Exited(0), "{script}: {written}");
        written
    }

    /// Starts a command that keeps running, and waits until it has written something.
    pub(crate) async fn assert_alive(
        &self,
        script: &str,
        user: Option<User>,
    ) -> (ExecId, stockade_runtime::Exec) {
        let command = Command {
            arguments: ["sh", "-c", script].map(Into::into).to_vec(),
            user,
            ..Command::default()
        };
        let exec = self.next();
        let mut running = self.native.execute(&self.id, &exec, &command).await.unwrap();
        let first = running.events.next().await;
        assert!(matches!(first, Some(Event::Output { .. })), "{first:?}");
        (exec, running)
    }
}

/// The users to attack as: root inside, the ordinary user and another one; if there is only one id,
/// that one.
fn users(scene: &Scene) -> Vec<Option<User>> {
    if scene.has_users {
        [0, 1000, 4000].map(|id| Some(User { user: id, group: id })).to_vec()
    } else {
        vec![None]
    }
}

/// No attack of the probe works through exec, as any user.
fn every_attack_is_held(scene: Scene) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let Scene { one: sandbox, .. } = &scene;
        for user in users(&scene) {
            for attack in ATTACKS {
                let words: Vec<&str> = [PROBE].iter().chain(*attack).copied().collect();
                let (ending, written) = sandbox.run(&words, user).await;
                assert_eq!(ending, Ending::Exited(0), "{attack:?} as {user:?}: {written}");
                assert!(written.starts_with("held:"), "{attack:?} as {user:?}: {written}");
            }
        }
    })
}

/// A command has no open descriptors but its own streams, and no privileges that others lack.
fn a_command_inherits_nothing(scene: Scene) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let Scene { one: sandbox, .. } = &scene;
        for user in users(&scene) {
            let (ending, written) = sandbox.run(&["ls", "/proc/self/fd"], user).await;
            // The fourth is the directory that is being listed.
            assert_eq!((ending, written.as_str()), (Ending::Exited(0), "0\n1\n2\n3\n"));
            let (_, status) = sandbox.run(&["cat", "/proc/self/status"], user).await;
            for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
                assert!(status.contains(&format!("{set}:\t0000000000000000")), "{user:?} {status}");
            }
            assert!(status.contains("NoNewPrivs:\t1"), "{status}");
            assert!(status.contains("Groups:\t \n") || status.contains("Groups:\t\n"), "{status}");
        }
    })
}

/// A command can read its input any number of times, and cannot write to it, whatever it does with
/// the descriptor.
fn given_input_is_nobodys_to_change(scene: Scene) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let Scene { one: sandbox, .. } = &scene;
        // The two streams are collected as they arrive, so an error message could split a line of
        // output.
        let attack = "exec 2>/dev/null; cat; chmod 777 /dev/stdin
            for file in /dev/stdin /proc/self/fd/0; do
                echo bad >&0 && echo wrote; echo bad >$file && echo wrote
                echo bad >>$file && echo wrote; truncate -s 9 $file && echo cut; cat $file
            done; wc -c </dev/stdin";
        for user in users(&scene) {
            let input = StandardInput::Whole(b"good\n".to_vec());
            let command = Command { user, input, ..words(&["sh", "-c", attack]) };
            let (ending, written) = sandbox.run_command(&command).await;
            assert_eq!(written, "good\ngood\ngood\n5\n", "{user:?}: {ending:?}");
        }
    })
}

/// Init cannot be killed, stopped or read from inside, by any user. As root the subreapers cannot
/// either; where there is one id, a command that kills its own subreaper ends completely.
fn init_is_out_of_reach(scene: Scene) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let Scene { one: sandbox, .. } = &scene;
        let attack = "for p in $(grep -ls stockade-init /proc/[0-9]*/comm | cut -d/ -f3); do
                cat /proc/$p/environ /proc/$p/maps /proc/$p/mem; ls /proc/$p/fd /proc/$p/root
                kill -STOP $p; kill -KILL $p
            done 2>/dev/null; sleep 0.1; grep -ls stockade-init /proc/[0-9]*/comm | wc -l";
        for user in users(&scene) {
            let (ending, written) = sandbox.run(&["sh", "-c", attack], user).await;
            if user.is_some() {
                // Init, and the subreaper of this command.
                assert_eq!((ending, written.as_str()), (Ending::Exited(0), "2\n"), "{user:?}");
            } else {
                assert_eq!((ending, written.as_str()), (Ending::Unknown, ""));
            }
        }
        // A command that kills everything that it can is reported, and the sandbox stays.
        sandbox.run(&["sh", "-c", "kill -9 -1; sleep 0.1; exit 5"], None).await;
        assert_eq!(sandbox.shell("echo alive").await, "alive\n");
    })
}

/// Where a command has init's id, it can lower init's limits on descriptors or memory. That ends
/// its own sandbox, and soon.
fn limits_of_init_end_nobody_else(scene: Scene) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let Scene { one, other, .. } = &scene;
        let (exec, running) = one.assert_alive("echo ready; sleep 1000", None).await;
        drop(running);
        for limit in ["--nofile=3:3", "--nofile=12:12", "--as=4096:4096", "--cpu=1:1"] {
            let prlimit = ["prlimit", "--pid", "1", limit];
            let run = one.native.execute(&one.id, &one.next(), &words(&prlimit)).await;
            let next = one.native.execute(&one.id, &one.next(), &words(&["echo", "on"])).await;
            drop((run, next));
        }
        let status = one.native.inspect(&one.id).await.unwrap();
        if scene.has_users {
            assert_eq!(status.state, State::Running);
            assert_eq!(one.shell("echo alive").await, "alive\n");
        } else {
            let mut again = one.native.attach(&one.id, &exec, Offsets::default()).await.unwrap();
            while again.events.next().await.is_some() {}
            assert_eq!(one.native.inspect(&one.id).await.unwrap().state, State::Ended);
        }
        assert_eq!(other.shell("echo alive").await, "alive\n");
    })
}

/// Commands of one user cannot affect those of another.
fn users_are_apart(scene: Scene) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let Scene { one: sandbox, .. } = &scene;
        if !scene.has_users {
            return skipped("there is one user inside");
        }
        let user = |id| Some(User { user: id, group: id });
        let secret = "umask 077; echo secret >/tmp/of-2000; export KEY=secret; exec sh -c 'echo ready; while :; do sleep 1; done'";
        let (exec, mut running) = sandbox.assert_alive(secret, user(2000)).await;
        let attack =
            "cat /tmp/of-2000 /proc/[0-9]*/environ 2>/dev/null; kill -9 -1 2>/dev/null; true";
        for stranger in [3000, 1000] {
            let (_, written) = sandbox.run(&["sh", "-c", attack], user(stranger)).await;
            assert!(!written.contains("secret"), "{written}");
        }
        sandbox.native.kill(&sandbox.id, &exec).await.unwrap();
        assert_eq!(running.events.next().await, Some(Event::Ended(Ending::Killed)));
    })
}

/// Neither sandbox can access the other, by files, processes, ports or abstract sockets.
fn sandboxes_are_apart(scene: Scene) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let Scene { one, other, .. } = &scene;
        let listening = "use IO::Socket::INET; use Socket;
        socket(my $a, PF_UNIX, SOCK_STREAM, 0); bind($a, sockaddr_un(\"\\0shared\")); listen($a, 5);
        my $t = IO::Socket::INET->new(LocalAddr => '0.0.0.0:9000', Listen => 5) or die;
        open(my $f, '>', '/tmp/marker-of-one'); $| = 1; print \"ready\\n\"; sleep 60";
        let script = format!("exec perl -e '{}'", listening.replace('\'', "'\\''"));
        let (_, running) = one.assert_alive(&script, None).await;
        let connecting = "use IO::Socket::INET; use Socket;
        socket(my $a, PF_UNIX, SOCK_STREAM, 0);
        print connect($a, sockaddr_un(\"\\0shared\")) ? \"REACHED\" : \"apart\", \"\\n\";
        print IO::Socket::INET->new(PeerAddr => '127.0.0.1:9000') ? \"REACHED\" : \"apart\", \"\\n\";";
        let (ending, written) = other.run(&["perl", "-e", connecting], None).await;
        assert_eq!((ending, written.as_str()), (Ending::Exited(0), "apart\napart\n"));
        let seen =
            other.shell("ls /tmp; cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '").await;
        assert!(!seen.contains("marker-of-one") && !seen.contains("9000"), "{seen}");
        let (ending, written) = one.run(&["perl", "-e", connecting], None).await;
        assert_eq!((ending, written.as_str()), (Ending::Exited(0), "REACHED\nREACHED\n"));
        drop(running);
    })
}

/// The host directories of sandboxes cannot be seen from inside.
fn the_keeper_is_out_of_sight(scene: Scene) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let Scene { one: sandbox, data, .. } = &scene;
        let name = data.display();
        let script = format!("ls -d {name} 2>&1; cat /proc/self/mountinfo; env");
        let (_, written) = sandbox.run(&["sh", "-c", &script], None).await;
        let first = written.lines().next().unwrap_or_default();
        assert!(first.contains("No such file"), "{written}");
        let rest: String = written.lines().skip(1).collect();
        assert!(!rest.contains(&name.to_string()), "{written}");
        let list = sandbox.native.list(&BTreeMap::new()).await.unwrap();
        assert!(list.iter().any(|status| status.id == sandbox.id));
    })
}
