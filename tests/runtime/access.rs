//! Access rules for processes: whatever a command does inside, it can read, change and execute only
//! what the rules of its sandbox allow.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use stockade_core::access::Rules;
use stockade_core::sandbox::{Root, Workspace};
use stockade_core::{Isolation, SandboxId, SandboxSpec, SnapshotId};
use stockade_runtime::{Ending, Error, ReadRange, Runtime as _, SandboxPath, WriteOptions};
use stockade_runtime_native::{Native, Options};

use crate::attacks::SandboxUnderTest;
use crate::support;
use stockade_test_support::program;

/// How often a name is used while it changes.
const ROUNDS: u32 = 2_000;

/// The text that no command may ever output.
const SECRET: &str = "what-nobody-may-read";

crate::identity::scenes! {
    what_is_closed_is_never_read,
    what_is_read_only_is_never_changed,
    what_may_not_be_executed_does_not_run,
    a_denied_path_that_is_missing_stays_denied,
    what_leads_to_a_denied_path_stays_where_it_is,
    a_file_can_have_a_rule_of_its_own,
    what_no_rule_allows_is_not_there,
    an_open_root_may_have_closed_places,
    two_commands_together_do_not_get_further,
    operations_from_outside_meet_the_same_walls,
    operations_from_outside_go_by_where_paths_lead,
    rules_that_cannot_be_held_are_refused,
    a_snapshot_that_lays_traps_is_held_to_the_rules,
}

/// A keeper, and a project that is mounted at `/w` in its sandboxes.
struct AccessFixture {
    native: Native,
    project: std::path::PathBuf,
    sandboxes: std::cell::Cell<u32>,
}

fn run_scene(scene: fn(AccessFixture) -> Pin<Box<dyn Future<Output = ()>>>) {
    let dir = tempfile::Builder::new().prefix("stockade-access-").tempdir().unwrap();
    let project = dir.path().join("project");
    for directory in ["", "secret", "vendor/deep", "src", "programs", "a/b/c"] {
        std::fs::create_dir_all(project.join(directory)).unwrap();
    }
    for (file, content) in [
        ("secret/key", SECRET),
        ("a/b/c/key", SECRET),
        ("secret.txt", SECRET),
        ("vendor/deep/library", "library"),
        ("src/main", "main"),
        ("programs/script", "#!/bin/sh\necho ran\n"),
    ] {
        std::fs::write(project.join(file), content).unwrap();
    }
    std::fs::copy("/bin/echo", project.join("programs/echo")).unwrap();
    open_to_all(dir.path());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let keeper = vec![program("stockade").into(), "__keeper".into()];
        let data = dir.path().join("data");
        let native = Native::open(Options { data, keeper, pool: 1 }).unwrap();
        scene(AccessFixture {
            native: native.clone(),
            project,
            sandboxes: std::cell::Cell::new(0),
        })
        .await;
        for status in native.list(&std::collections::BTreeMap::new()).await.unwrap() {
            native.cleanup(&status.id).await.unwrap();
        }
        native.drain().await.unwrap();
    });
}

/// All file modes allow access: every refusal comes from a rule.
fn open_to_all(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().unwrap().is_dir() {
            open_to_all(&entry.path());
        } else {
            std::fs::set_permissions(entry.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        }
    }
}

impl AccessFixture {
    fn spec(&self, rules: &[(&str, &str, &str)]) -> SandboxSpec {
        let rule = |(effect, level, path): &(&str, &str, &str)| serde_json::json!({"effect": effect, "level": level, "path": path});
        SandboxSpec {
            workspace: Some(Workspace { host: self.project.clone(), inside: "/w".into() }),
            access: Rules::from_values(rules.iter().map(rule).collect()).unwrap(),
            lease: Some(Duration::from_secs(120)),
            ..SandboxSpec::default()
        }
    }

    async fn sandbox(&self, rules: &[(&str, &str, &str)]) -> SandboxUnderTest {
        self.sandboxes.set(self.sandboxes.get() + 1);
        let name = format!("s{}", self.sandboxes.get());
        SandboxUnderTest::create_with(&self.native, &name, &self.spec(rules)).await
    }

    /// The error that creating a sandbox with these rules returns.
    async fn refusal(&self, rules: &[(&str, &str, &str)]) -> Error {
        let id = SandboxId::new("refused").unwrap();
        self.native.create(&id, &self.spec(rules)).await.unwrap_err()
    }
}

/// Rules that allow to execute everything and to change `/w`, followed by these.
fn rules<'a>(more: &[(&'a str, &'a str, &'a str)]) -> Vec<(&'a str, &'a str, &'a str)> {
    let base = [("allow", "execute", "/"), ("allow", "readwrite", "/w")];
    [&base, more].concat()
}

impl SandboxUnderTest {
    /// Each line must fail when it runs alone.
    async fn fails(&self, lines: &[&str]) {
        for line in lines {
            let (ending, written) = self.run(&["sh", "-c", line], None).await;
            assert!(matches!(ending, Ending::Exited(code) if code != 0), "{line}: {written}");
            assert!(!written.contains(SECRET), "{line}: {written}");
        }
    }
}

fn what_is_closed_is_never_read(stage: AccessFixture) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let denied = rules(&[
            ("deny", "read", "/w/secret"),
            ("deny", "read", "/w/secret.txt"),
            ("deny", "read", "/w/a/b/c"),
        ]);
        let sandbox = stage.sandbox(&denied).await;
        sandbox
            .fails(&[
                "cat /w/secret/key",
                "ls /w/secret",
                "cd /w/secret",
                "ln -s /w/secret/key /w/link && cat /w/link",
                "ln -s secret /w/linked && cat /w/linked/key",
                "cat /proc/self/root/w/secret/key",
                "cd /w && cat /proc/self/cwd/secret/key",
                "exec 3</w && cat /proc/self/fd/3/secret/key",
                "ln /w/secret/key /w/hard",
                "mv /w/secret /w/moved",
                "mv /w /moved",
                "mv -T /w/src /w/secret",
                "rmdir /w/secret",
                "rm -rf /w/secret",
                "chmod 777 /w/secret",
                "umount /w/secret",
                "umount -l /w/secret",
                "mount --bind /w /w/src",
                "unshare -r umount /w/secret",
                "echo x >/w/secret/key",
                "touch /w/secret/new",
                "cp -r /w/secret /w/copy",
            ])
            .await;
        let all = sandbox.run(&["sh", "-c", "grep -rs . /w /proc/self/root/w; true"], None).await.1;
        assert!(all.contains("library") && !all.contains(SECRET), "{all}");
        assert_eq!(sandbox.shell("cd /w/src && mv main other && cat other").await, "main");
    })
}

fn what_is_read_only_is_never_changed(stage: AccessFixture) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let sandbox = stage.sandbox(&rules(&[("deny", "readwrite", "/w/vendor")])).await;
        sandbox
            .fails(&[
                "echo x >/w/vendor/deep/library",
                "echo x >>/w/vendor/deep/library",
                "truncate -s 0 /w/vendor/deep/library",
                "rm /w/vendor/deep/library",
                "mv /w/vendor/deep /w/deep",
                "mv /w/vendor /w/other",
                "rm -r /w/vendor",
                "mkdir /w/vendor/new",
                "chmod 000 /w/vendor/deep/library",
                "chmod 000 /w/vendor",
                "touch /w/vendor/deep/library",
                "touch -d yesterday /w/vendor",
                "ln /w/vendor/deep/library /w/hard",
                "ln /w/src/main /w/vendor/hard",
                "mv /w/src/main /w/vendor/deep/library",
                "ln -s /w/vendor/deep/library /w/link && echo x >/w/link",
                "cd /w/vendor/deep && echo x >/proc/self/cwd/library",
                "exec 3</w/vendor/deep/library && echo x >/proc/self/fd/3",
                "mount -o remount,rw /w/vendor",
            ])
            .await;
        assert_eq!(sandbox.shell("cat /w/vendor/deep/library").await, "library");
        assert_eq!(sandbox.shell("echo new >/w/src/main && cat /w/src/main").await, "new\n");
    })
}

fn what_may_not_be_executed_does_not_run(
    stage: AccessFixture,
) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let denied = rules(&[("allow", "execute", "/w"), ("deny", "execute", "/w/programs")]);
        let sandbox = stage.sandbox(&denied).await;
        sandbox
            .fails(&[
                "/w/programs/echo ran",
                "/w/programs/script",
                "for l in /lib64/ld-linux-*.so.* /lib/ld-linux-*.so.*; do
                    [ -e $l ] && exec $l /w/programs/echo ran; done; false",
                "ln -s /w/programs/echo /w/src/link && /w/src/link ran",
                "mv /w/programs /w/moved",
                "ln /w/programs/echo /w/src/hard && /w/src/hard ran",
            ])
            .await;
        // A program there can still be read, and its copy elsewhere has the rights of the new path.
        assert_eq!(sandbox.shell("sh /w/programs/script").await, "ran\n");
        assert_eq!(sandbox.shell("cp /w/programs/echo /w/src/e; /w/src/e ran").await, "ran\n");
        assert_eq!(sandbox.shell("echo x >/w/programs/new; cat /w/programs/new").await, "x\n");

        let data = stage.sandbox(&[("allow", "readwrite", "/w"), ("allow", "execute", "/")]).await;
        assert_eq!(data.shell("/w/programs/echo ran").await, "ran\n", "execute is allowed above");
        let data = stage.sandbox(&[("allow", "readwrite", "/w")]).await;
        data.fails(&["/w/programs/echo ran", "cp /bin/echo /w/mine && /w/mine ran"]).await;
    })
}

fn a_denied_path_that_is_missing_stays_denied(
    stage: AccessFixture,
) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let denied = rules(&[
            ("deny", "read", "/w/later/closed"),
            ("deny", "readwrite", "/w/later/fixed"),
            ("deny", "readwrite", "/w/.git/hooks"),
        ]);
        let sandbox = stage.sandbox(&denied).await;
        sandbox
            .fails(&[
                "rm -rf /w/later",
                "mv /w/later /w/other",
                "mkdir -p /w/later/closed/x",
                "rmdir /w/later/closed && mkdir /w/later/closed",
                "rmdir /w/later/fixed",
                "echo x >/w/later/fixed/file",
                "mv /w/.git /w/git && mkdir -p /w/.git/hooks",
                "echo x >/w/.git/hooks/pre-commit",
                "ln -sfn /w/src /w/.git/hooks/x",
                "ls /w/later/closed",
            ])
            .await;
        assert_eq!(sandbox.shell("echo x >/w/later/open && ls /w/later/fixed").await, "");
    })
}

fn what_leads_to_a_denied_path_stays_where_it_is(
    stage: AccessFixture,
) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let denied =
            rules(&[("deny", "read", "/w/a/b/c"), ("deny", "readwrite", "/w/vendor/deep")]);
        let sandbox = stage.sandbox(&denied).await;
        sandbox
            .fails(&[
                "mv /w/a /w/z",
                "mv /w/a/b /w/z",
                "mv /w/vendor /w/z",
                "cat /w/a/b/c/key",
                "perl -e 'rename(\"/w/a\", \"/w/z\") or exit 1'",
                "rm -rf /w/a",
            ])
            .await;
        // Paths beside it can be moved.
        sandbox.shell("echo x >/w/a/b/file && mv /w/a/b/file /w/a/file && mv /w/src /w/s").await;
    })
}

fn a_file_can_have_a_rule_of_its_own(stage: AccessFixture) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let denied =
            rules(&[("deny", "read", "/w/secret.txt"), ("deny", "readwrite", "/w/src/main")]);
        let sandbox = stage.sandbox(&denied).await;
        sandbox
            .fails(&[
                "cat /w/secret.txt",
                "cp /w/secret.txt /w/copy",
                "mv /w/secret.txt /w/copy",
                "rm -f /w/secret.txt",
                "ln /w/secret.txt /w/hard",
                "echo x >/w/secret.txt",
                "echo x >/w/src/main",
                "rm -f /w/src/main",
                "echo x >/w/src/new && mv /w/src/new /w/src/main",
                "mv /w/src /w/other",
            ])
            .await;
        assert_eq!(sandbox.shell("cat /w/src/main").await, "main");
    })
}

fn what_no_rule_allows_is_not_there(stage: AccessFixture) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let allowed = [
            ("allow", "readwrite", "/w/src"),
            ("allow", "read", "/w/vendor"),
            ("allow", "readwrite", "/made/for/me"),
            ("allow", "execute", "/usr/bin"),
        ];
        let sandbox = stage.sandbox(&allowed).await;
        sandbox
            .fails(&[
                "cat /w/secret/key",
                "ls /w/secret",
                "ls /tmp",
                "ls /root",
                "echo x >/tmp/file",
                "echo x >/file",
                "mkdir /new",
                "mkdir /w/new",
                "echo x >/dev/shm/file",
                "echo x >/w/vendor/file",
                "touch /w/vendor/deep/library",
                "chmod 000 /w/vendor/deep/library",
                "cat ../../w/secret/key",
                "ls /proc/self/root/w/secret",
                "ls /proc/1/root/w/secret",
            ])
            .await;
        let works = "set -e; cat /w/vendor/deep/library /w/src/main; echo x >/w/src/new
            echo y >/made/for/me/file; cat /made/for/me/file >/dev/null; test -r /etc/passwd
            perl -e 'print 42'; /bin/echo; test ! -e /w/secret; test ! -e /w/secret.txt";
        assert_eq!(sandbox.shell(works).await, "librarymain42\n");
        let mounts = sandbox.shell("cut -d' ' -f5 /proc/self/mountinfo").await;
        assert!(!mounts.contains("secret") && mounts.lines().all(|at| at != "/w"), "{mounts}");
    })
}

fn an_open_root_may_have_closed_places(stage: AccessFixture) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let all = [("allow", "readwrite", "/"), ("allow", "execute", "/")];
        let closed = [
            ("deny", "read", "/w/secret"),
            ("deny", "readwrite", "/etc"),
            ("deny", "read", "/usr/share"),
            ("deny", "execute", "/tmp"),
        ];
        let sandbox = stage.sandbox(&[&all[..], &closed[..]].concat()).await;
        sandbox
            .fails(&[
                "cat /w/secret/key",
                "mv /w /x",
                "ls /usr/share",
                "echo x >/etc/new",
                "mv /etc /etc2",
                "cp /bin/echo /tmp/e && /tmp/e ran",
            ])
            .await;
        sandbox.shell("mkdir /new && echo x >/new/f && cp /bin/echo /new/e && /new/e").await;
        sandbox.shell("echo x >/dev/shm/f && cat /dev/shm/f && cat /etc/passwd >/dev/null").await;
    })
}

fn two_commands_together_do_not_get_further(
    stage: AccessFixture,
) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let sandbox = stage.sandbox(&rules(&[("deny", "read", "/w/secret")])).await;
        let flipping = "cd /w; mkdir d; echo ready; while :; do
            mv -T d x; ln -s secret d; rm d; mv -T x d; done 2>/dev/null";
        let (exec, running) = sandbox.assert_alive(flipping, None).await;
        let reading = "i=0; while [ $i -lt 300 ]; do i=$((i+1)); cat /w/d/key; done 2>/dev/null";
        let (_, written) = sandbox.run(&["sh", "-c", reading], None).await;
        assert_eq!(written, "");
        sandbox
            .fails(&["cat /proc/[0-9]*/cwd/secret/key", "cat /proc/[0-9]*/root/w/secret/key"])
            .await;
        sandbox.native.kill(&sandbox.id, &exec).await.unwrap();
        drop(running);
    })
}

fn operations_from_outside_go_by_where_paths_lead(
    stage: AccessFixture,
) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let sandbox = stage.sandbox(&[("allow", "readwrite", "/w")]).await;
        sandbox.shell("ln -s /etc /w/link; mkdir /w/d; echo x >/w/d/f").await;
        let denied = |error: Error| match error {
            Error::File { source, .. } => source.kind() == std::io::ErrorKind::PermissionDenied,
            _ => false,
        };
        let path = |path: &str| SandboxPath::new(path).unwrap();
        let all = ReadRange::default();
        let options = WriteOptions::default();
        let content = || Box::pin(std::io::Cursor::new(b"x".to_vec()));
        let (native, id) = (&sandbox.native, &sandbox.id);
        assert!(native.read_file(id, &path("/w/d/f"), all).await.is_ok());
        let read = native.read_file(id, &path("/w/link/passwd"), all).await;
        assert!(read.err().is_some_and(denied));
        assert!(native.read_directory(id, &path("/w/link")).await.err().is_some_and(denied));
        assert!(native.stat(id, &path("/w/link/passwd")).await.err().is_some_and(denied));
        let written = native.write_file(id, &path("/w/link/f"), content(), options).await;
        assert!(written.err().is_some_and(denied));
        let made = native.make_directory(id, &path("/w/link/new"), options).await;
        assert!(made.err().is_some_and(denied));
        let moved = native.rename(id, &path("/w/d/f"), &path("/w/link/f")).await;
        assert!(moved.err().is_some_and(denied));
        assert!(native.remove(id, &path("/w/link/passwd")).await.err().is_some_and(denied));

        // A name that alternates between a directory and a symbolic link that leads outside.
        let flipping = "cd /w; rm -r d/f; echo ready; while :; do
            mv -T d x; ln -s /etc d; rm d; mv -T x d; done 2>/dev/null";
        let (exec, running) = sandbox.assert_alive(flipping, None).await;
        for _ in 0..ROUNDS {
            assert!(native.read_file(id, &path("/w/d/passwd"), all).await.is_err());
            // It was written or refused, or the directory did not exist.
            let _ = native.write_file(id, &path("/w/d/f"), content(), options).await;
        }
        native.kill(id, &exec).await.unwrap();
        drop(running);
        sandbox.fails(&["cat /etc/f"]).await;
    })
}

fn operations_from_outside_meet_the_same_walls(
    stage: AccessFixture,
) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let denied = rules(&[("deny", "read", "/w/secret"), ("deny", "readwrite", "/w/vendor")]);
        let sandbox = stage.sandbox(&denied).await;
        let (native, id) = (&sandbox.native, &sandbox.id);
        let path = |path: &str| SandboxPath::new(path).unwrap();
        assert!(native.stat(id, &path("/w/secret/key")).await.is_err());
        assert!(native.remove(id, &path("/w/secret")).await.is_err());
        assert!(native.rename(id, &path("/w/secret"), &path("/w/x")).await.is_err());
        let write = |name: &'static str| {
            let content = Box::pin(std::io::Cursor::new(b"x".to_vec()));
            async move {
                let path = SandboxPath::new(name).unwrap();
                native.write_file(id, &path, content, WriteOptions::default()).await
            }
        };
        assert!(write("/w/vendor/file").await.is_err());
        assert!(write("/outside").await.is_err());
        write("/w/src/file").await.unwrap();
        assert_eq!(sandbox.shell("cat /w/src/file").await, "x");
    })
}

fn rules_that_cannot_be_held_are_refused(
    stage: AccessFixture,
) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        std::os::unix::fs::symlink("secret", stage.project.join("link")).unwrap();
        let refused = stage.refusal(&rules(&[("deny", "read", "/w/link/key")])).await;
        assert!(
            matches!(&refused, Error::Invalid(reason) if reason.contains("write it for /w/secret/key")),
            "{refused:?}"
        );
        let refused = stage.refusal(&rules(&[("deny", "read", "/proc/1")])).await;
        assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
        let unreadable = SandboxSpec { access: Rules::from_stored("{"), ..stage.spec(&[]) };
        let id = SandboxId::new("unreadable").unwrap();
        assert!(stage.native.create(&id, &unreadable).await.is_err());
        assert!(stage.native.inspect(&id).await.is_err(), "nothing was made");
        let describe = |isolation: Isolation| {
            let access = isolation.walls.into_iter().find(|wall| wall.name == "access");
            access.map(|wall| (wall.raised, wall.reason))
        };
        let with = stage.sandbox(&rules(&[])).await;
        let status = stage.native.inspect(&with.id).await.unwrap();
        assert_eq!(describe(status.isolation), Some((true, None)));
        let without = stage.sandbox(&[]).await;
        let status = stage.native.inspect(&without.id).await.unwrap();
        assert_eq!(describe(status.isolation), None);
    })
}

fn a_snapshot_that_lays_traps_is_held_to_the_rules(
    stage: AccessFixture,
) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let first = stage.sandbox(&[]).await;
        let traps = format!(
            "mkdir -p /traps/a/closed /traps/b; echo {SECRET} >/traps/a/closed/key
            ln -s a /traps/link; ln -s /traps/a/closed /traps/b/closed; echo x >/traps/file; mkfifo /traps/fifo"
        );
        first.shell(&traps).await;
        let snapshot = SnapshotId::new("traps").unwrap();
        stage.native.snapshot(&first.id, &snapshot).await.unwrap();
        let restored = |rules: &[(&str, &str, &str)]| SandboxSpec {
            root: Root::Snapshot(SnapshotId::new("traps").unwrap()),
            ..stage.spec(rules)
        };
        let everything = [("allow", "readwrite", "/"), ("allow", "execute", "/")];
        let with = |rule| [&everything[..], &[("deny", "read", rule)]].concat();
        let second = SandboxUnderTest::create_with(
            &stage.native,
            "second",
            &restored(&with("/traps/a/closed")),
        )
        .await;
        second
            .fails(&[
                "cat /traps/a/closed/key",
                "cat /traps/link/closed/key",
                "cat /traps/b/closed/key",
                "mv /traps/a /traps/c",
                "mv /traps /other",
            ])
            .await;
        for (number, rule) in
            ["/traps/link/closed", "/traps/b/closed", "/traps/file/x"].into_iter().enumerate()
        {
            let id = SandboxId::new(format!("trapped-{number}")).unwrap();
            let refused = stage.native.create(&id, &restored(&with(rule))).await.unwrap_err();
            assert!(matches!(refused, Error::Wall { .. }), "{rule}: {refused:?}");
        }
        let id = SandboxId::new("pipe").unwrap();
        stage.native.create(&id, &restored(&with("/traps/fifo"))).await.unwrap();
        stage.native.remove_snapshot(&snapshot).await.unwrap();
    })
}

/// The case that tests with processes what the others test with operations.
#[test]
fn cases_of_processes() {
    run_scene(|stage| {
        Box::pin(async move {
            let rules = rules(&[("deny", "read", "/w/secret")]);
            let sandbox = stage.sandbox(&rules).await;
            let (ending, written) = sandbox.run(&["cat", "/w/secret/key"], None).await;
            support::drive(
                "tests/runtime/access.rs::cases_of_processes",
                "access_rules.json",
                |case| {
                    if case.name != "process obeys the same rules as the API" {
                        return support::no_driver();
                    }
                    let given: Rules = serde_json::from_value(case.given["rules"].clone()).unwrap();
                    support::same(&given, &stage.spec(&rules).access)?;
                    support::same(Ending::Exited(1), ending.clone())?;
                    support::same(false, written.contains(SECRET))
                },
            );
        })
    });
}
