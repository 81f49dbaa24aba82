//! Projects as people have them: files of other groups, linked worktrees, links to programs, debug
//! tools, servers on low ports, limits that programs see.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;

use crate::harness::{World, skip, tests_run_as_root};
use crate::host::Tree;

/// Files of a group that the sandbox has no id for, as in a directory that a team shares.
fn files_of_another_group(world: &World) {
    if !tests_run_as_root() {
        skip("projects::files_of_another_group", "only root may give files to any group");
        return;
    }
    // As root every usual id has one inside, so it takes one of a directory service.
    let group = if world.identity.uid() == 0 { 1_000_050 } else { 50 };
    for path in Tree::of(&world.project).entries.into_keys() {
        if fs::symlink_metadata(&path).unwrap().is_symlink() {
            continue;
        }
        chown(&path, None, Some(group)).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        let more = if path.is_dir() { 0o2070 } else { 0o060 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode | more)).unwrap();
    }
    let outcome =
        world.review("touch src/new && echo x >> a.txt && rm src/main.rs && mv src/deep d");
    assert!(outcome.stderr.contains("the project was copied"), "{outcome}");
    let applied = world.stockade(&["apply", "latest"]).finish();
    applied.succeeds();
    let expected = [("src/new", true), ("src/main.rs", false), ("d/er/file.txt", true)];
    assert_eq!(expected.map(|(path, _)| (path, world.has(path))), expected, "{outcome}{applied}");
    assert_eq!(world.read("a.txt"), "alpha\nx\n");
    let create = world.stockade(&["create", "--id", "team", "--workspace", "."]).finish();
    create.succeeds();
    let exec = ["exec", "team", "--", "sh", "-c", "echo y >> a.txt && touch src/held"];
    world.stockade(&exec).finish().succeeds();
}

/// In a run; in a held sandbox only as root of the host: an ordinary user's overlay records no renames.
fn directories_can_be_renamed(world: &World) {
    let script = "git mv src lib && echo more >> lib/main.rs && mv lib/deep deeper && mkdir src && echo n > src/new";
    let outcome = world.review(script);
    assert!(!outcome.stderr.contains("--view copy"), "{outcome}");
    let diff = world.stockade(&["diff", "latest"]).finish();
    assert!(diff.stdout.contains("rename from src/deep/er/file.txt"), "{diff}");
    world.stockade(&["apply", "latest"]).finish().succeeds();
    let expect = |world: &World| {
        assert!(world.has("deeper/er/file.txt") && !world.has("src/main.rs"));
        assert_eq!(world.read("lib/main.rs"), "fn main() {}\nmore\n");
        assert_eq!(world.read("src/new"), "n\n");
    };
    expect(world);
    world.git(&["checkout", "-q", "."]);
    world.git(&["clean", "-qfd"]);
    assert!(world.has("src/main.rs") && !world.has("lib"));
    if world.identity.uid() != 0 {
        return;
    }
    // A persistent sandbox, in which the rename is from before a stop and a snapshot.
    world.stockade(&["create", "--id", "box", "--workspace", "."]).finish().succeeds();
    let exec = |id: &str, script: &str| {
        world.stockade(&["exec", id, "--", "sh", "-c", script]).finish().succeeds();
    };
    exec("box", script);
    world.stockade(&["collect", "box"]).finish().succeeds();
    world.stockade(&["apply", "latest"]).finish().succeeds();
    expect(world);
    world.git(&["checkout", "-q", "."]);
    world.git(&["clean", "-qfd"]);
    world.stockade(&["stop", "box"]).finish().succeeds();
    world.stockade(&["start", "box"]).finish().succeeds();
    exec("box", "test -f deeper/er/file.txt && mv lib last && test -f last/main.rs");
    world.stockade(&["snapshot", "box", "--as", "renamed"]).finish().succeeds();
    world.stockade(&["restore", "renamed", "--id", "again"]).finish().succeeds();
    exec("again", "grep more last/main.rs && mv deeper deep && cat deep/er/file.txt");
    // Its changes become a bundle by themselves.
    world.stockade(&["kill", "again"]).finish().succeeds();
    let stat = world.stockade(&["diff", "latest", "--stat"]).finish();
    assert!(stat.stdout.contains("deep/er/file.txt"), "{stat}");
    assert!(stat.stdout.contains("last/main.rs"), "{stat}");
}

fn directories_of_a_copy_can_be_renamed(world: &World) {
    let script = "git mv src lib && ln a.txt two && echo b > two && cat a.txt";
    let outcome = world.run(&["--view", "copy"], &["sh", "-c", script]);
    assert_eq!((outcome.code(), outcome.stdout.as_str()), (0, "b\n"), "{outcome}");
    world.stockade(&["apply", "latest"]).finish().succeeds();
    assert!(world.has("lib/deep/er/file.txt") && !world.has("src"));
}

fn git_works_in_a_linked_worktree(world: &World) {
    world.git(&["worktree", "add", "-q", "../worktree", "-b", "other"]);
    let worktree = world.path("worktree");
    let git = Tree::of(&world.project.join(".git"));
    let script = "echo z > z && git add z && git -c user.name=B -c user.email=b@example.com commit -qm inside \
                  && git log -1 --format=%s";
    let run = |script: &str, flags: &[&str]| {
        let mut words = vec!["run"];
        words.extend(flags);
        words.extend(["--", "sh", "-c", script]);
        world.stockade(&words).current_dir(&worktree).finish()
    };
    let outcome = run(script, &[]);
    assert_eq!((outcome.code(), outcome.stdout.as_str()), (0, "inside\n"), "{outcome}");
    // Nothing of it is in the repository of the host.
    git.assert_same(&Tree::of(&world.project.join(".git")), "the repository");
    // A newer bundle of another project does not matter.
    world.review("echo other > other.txt");
    let applied = world.stockade(&["apply", "latest", "--commits", "--branch", "taken"]);
    applied.current_dir(&worktree).finish().succeeds();
    assert_eq!(world.git(&["log", "-1", "--format=%s", "taken"]), "inside\n");
    let create = ["create", "--id", "tree", "--workspace", "."];
    world.stockade(&create).current_dir(&worktree).finish().succeeds();
    let exec = ["exec", "tree", "--", "sh", "-c", "echo y > y && git add y && git status --short"];
    let held = world.stockade(&exec).finish();
    assert_eq!((held.code(), held.stdout.as_str()), (0, "A  y\n"), "{held}");
    // The sandbox still has what git wrote when it was stopped and started.
    world.stockade(&["stop", "tree"]).finish().succeeds();
    world.stockade(&["start", "tree"]).finish().succeeds();
    world.stockade(&["exec", "tree", "--", "git", "status", "--short"]).finish().succeeds();
}

fn git_knows_the_user_and_no_secret(world: &World) {
    let config = "[user]\nname = Me Myself\nemail = me@example.com\n[credential]\nhelper = !echo canary\n\
                  [core]\nhooksPath = /canary\n[include]\npath = more\n";
    world.plant(&world.home().join(".gitconfig"), config);
    world.plant(&world.home().join("more"), "[http]\nextraHeader = canary\n");
    let script = "echo x > x && git add x && git commit -qm x && git log -1 '--format=%an <%ae>'; \
                  git config --list --show-origin; cat ~/.gitconfig";
    let outcome = world.shell(script);
    assert!(outcome.stdout.starts_with("Me Myself <me@example.com>\n"), "{outcome}");
    assert!(!outcome.stdout.contains("canary"), "{outcome}");
    let own =
        "git config user.name Bot && git commit -q --allow-empty -m y && git log -1 --format=%an";
    assert_eq!(world.shell(own).stdout, "Bot\n");
}

fn links_to_programs_and_into_the_project_are_applied(world: &World) {
    let inside = world.project.join("src").display().to_string();
    let script = format!(
        "mkdir bin && ln -s /usr/bin/env bin/env && ln -s {inside}/main.rs main && \
         ln -s /etc/shadow bad && ln -s ../outside out"
    );
    world.review(&script);
    let applied = world.stockade(&["apply", "latest"]).finish();
    applied.succeeds();
    assert_eq!(fs::read_link(world.project.join("bin/env")).unwrap(), Path::new("/usr/bin/env"));
    assert_eq!(world.read("main"), "fn main() {}\n");
    assert!(!world.has("bad") && !world.has("out"), "{applied}");
}

/// Every link of the programs that leads to a file of `/etc` that everybody may read leads to it
/// inside as well.
fn no_link_of_programs_dangles(world: &World) {
    let outcome =
        world.shell("find -L /usr/bin /usr/lib /usr/share -maxdepth 5 -type l 2> /dev/null");
    let dangling = outcome.stdout.lines().filter(|path| {
        fs::canonicalize(path).is_ok_and(|real| {
            let readable = |path: &Path| {
                fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o004 != 0)
            };
            real.starts_with("/etc") && real.ancestors().all(readable)
        })
    });
    let dangling: Vec<_> = dangling.collect();
    assert!(dangling.is_empty(), "{dangling:?}");
    if Path::new("/usr/bin/java").exists() {
        world.write(
            "A.java",
            "class A { public static void main(String[] a) { System.out.println(7); } }\n",
        );
        let java = world.run(&["--discard"], &["java", "A.java"]);
        assert_eq!(java.stdout, "7\n", "{java}");
    }
}

fn debuggers_trace_programs_of_the_sandbox(world: &World) {
    let found = |program: &str| Path::new("/usr/bin").join(program).exists();
    if found("strace") {
        let traced = world.shell("strace -f -o log true && grep -c execve log");
        assert_eq!((traced.code(), traced.stdout.as_str()), (0, "1\n"), "{traced}");
    }
    if found("gdb") {
        let traced = world.shell("gdb -q -batch -ex run -ex 'info inferiors' /bin/true 2>&1");
        assert!(traced.stdout.contains("exited normally"), "{traced}");
    }
    if found("gcc") {
        world.write("s.c", "int main(void) { return 0; }\n");
        let script = "gcc -fsanitize=address -o s s.c && ./s";
        world.shell(script).succeeds();
    }
    // Init is none of them.
    world.attack(&["trace"]).is_blocked();
}

fn the_umask_of_the_caller_is_taken(world: &World) {
    let binary = world.binary().display().to_string();
    let script = format!(
        "umask 077; {binary} run -- sh -c 'umask; touch q; mkdir d' && {binary} apply latest"
    );
    let outcome = world.on_host(Path::new("/bin/sh"), &["-c", &script]).finish();
    assert!(outcome.code() == 0 && outcome.stdout.starts_with("0077\n"), "{outcome}");
    let mode = |name| fs::metadata(world.project.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("q"), mode("d")), (0o600, 0o700));
}

fn low_ports_are_the_sandboxes_own(world: &World) {
    let script = "import socket\nfor kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):\n \
                  for family, address in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')):\n  \
                  s = socket.socket(family, kind); s.bind((address, 80)); print('bound')";
    let outcome = world.run(&["--discard"], &["python3", "-c", script]);
    assert_eq!(outcome.stdout, "bound\n".repeat(4), "{outcome}");
    // Each of many sandboxes, whose first process may be faster than the one that makes the network.
    let closed = (0..6).filter(|number| {
        let id = format!("low{number}");
        world.stockade(&["create", "--id", &id]).finish().succeeds();
        let exec = ["exec", &id, "--", "python3", "-c", script];
        world.stockade(&exec).finish().stdout != "bound\n".repeat(4)
    });
    assert_eq!(closed.collect::<Vec<_>>(), Vec::<i32>::new());
}

fn shared_memory_has_the_requested_size(world: &World) {
    let script = "head -c 300M /dev/zero > /dev/shm/x && df -B1 --output=size /dev/shm | tail -1";
    let outcome = world.run(&["--discard", "--shm", "320M"], &["sh", "-c", script]);
    assert_eq!(outcome.stdout.trim(), (320 << 20).to_string(), "{outcome}");
    world.stockade(&["create", "--id", "shm", "--shm", "32M"]).finish().succeeds();
    let df = ["exec", "shm", "--", "df", "-B1", "--output=size", "/dev/shm"];
    let held = world.stockade(&df).finish();
    assert!(held.stdout.contains(&(32 << 20).to_string()), "{held}");
    let killed = world.run(&["--discard"], &["sh", "-c", "kill -BUS $$"]);
    assert!(killed.stderr.contains("--shm"), "{killed}");
}

fn programs_run_out_of_room_before_memory(world: &World) {
    let flags = ["--discard", "--memory", "200M"];
    let outcome = world.run(&flags, &["sh", "-c", "head -c 500M /dev/zero > /tmp/x"]);
    if outcome.stderr.contains("LIMIT_UNAVAILABLE") {
        skip("projects::programs_run_out_of_room_before_memory", "no control groups");
        return;
    }
    assert!(outcome.stderr.contains("No space left"), "{outcome}");
    let one = world.run(&["--discard", "--cpus", "1"], &["nproc"]);
    if !one.stderr.contains("LIMIT_UNAVAILABLE") {
        assert_eq!(one.stdout, "1\n", "{one}");
    }
}

fn a_program_behind_a_link_is_named_with_its_mount(world: &World) {
    let real = world.home().join(".tool/bin/python");
    world.plant(&real, "#!/bin/sh\necho it works\n");
    fs::set_permissions(&real, fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir_all(world.project.join(".venv/bin")).unwrap();
    symlink(&real, world.project.join(".venv/bin/python")).unwrap();
    let outcome = world.run(&["--discard"], &[".venv/bin/python"]);
    let directory = world.home().join(".tool").display().to_string();
    let mount = format!("{directory}:{directory}:ro");
    assert!(outcome.stderr.contains(&format!("--mount {mount}")), "{outcome}");
    let mounted = world.run(&["--discard", "--mount", &mount], &[".venv/bin/python"]);
    assert_eq!(mounted.stdout, "it works\n", "{mounted}");
    let path = format!("{}:/usr/bin:/bin", real.parent().unwrap().display());
    fs::rename(&real, real.with_file_name("env")).unwrap();
    let other = world.stockade(&["run", "--discard", "--", "env"]).env("PATH", path).finish();
    assert!(other.stderr.contains("env was /usr/bin/env"), "{other}");
}

as_root_and_as_user! {
    files_of_another_group,
    directories_can_be_renamed,
    directories_of_a_copy_can_be_renamed,
    git_works_in_a_linked_worktree,
    git_knows_the_user_and_no_secret,
    links_to_programs_and_into_the_project_are_applied,
    no_link_of_programs_dangles,
    debuggers_trace_programs_of_the_sandbox,
    the_umask_of_the_caller_is_taken,
    low_ports_are_the_sandboxes_own,
    shared_memory_has_the_requested_size,
    programs_run_out_of_room_before_memory,
    a_program_behind_a_link_is_named_with_its_mount,
}
