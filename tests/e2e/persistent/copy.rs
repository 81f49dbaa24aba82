//! `cp`: what arrives is what was sent, and nothing but the target is written.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::{call, create, refused, sh};
use crate::call::Outcome;
use crate::daemons::{kill_server, wait_until};
use crate::harness::{Identity, World};
use crate::host::Tree;
use crate::tty::Terminal;

/// Contents that often cause errors in copying.
fn contents() -> Vec<(&'static str, Vec<u8>)> {
    let bytes =
        |length: u32| (0..length).map(|at| (at.wrapping_mul(7919) >> 5).to_le_bytes()[0]).collect();
    vec![
        ("empty", Vec::new()),
        ("one", vec![0]),
        ("binary", (0..=255).collect()),
        ("before-64k", bytes((64 << 10) - 1)),
        ("64k", bytes(64 << 10)),
        ("after-64k", bytes((64 << 10) + 1)),
        ("megabytes", bytes((3 << 20) + 17)),
    ]
}

fn cp(world: &World, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> Outcome {
    world.stockade(&[OsStr::new("cp"), from.as_ref(), to.as_ref()]).finish()
}

fn inside(id: &str, path: &str) -> String {
    format!("{id}:{path}")
}

fn files_arrive_as_they_are_both_ways(world: &World) {
    let id = create(world, &[]);
    for (name, content) in contents() {
        let (there, back) = (world.path(name), world.path(&format!("{name}.back")));
        fs::write(&there, &content).unwrap();
        world.chown(&there);
        cp(world, &there, inside(&id, "/tmp/file")).succeeds();
        let counted = sh(world, &id, "wc -c < /tmp/file");
        assert_eq!(counted.stdout.trim(), content.len().to_string(), "{name}");
        world.plant(&back, "");
        fs::remove_file(&back).unwrap();
        let out = world.outside().join(name);
        cp(world, inside(&id, "/tmp/file"), &out).succeeds();
        assert!(fs::read(&out).unwrap() == content, "{name} came back different");
    }
}

/// What only one user inside may read can be copied out: the sandbox's owner is above all its users.
fn private_files_of_a_read_only_mount_are_copied(world: &World) {
    let private = world.path("private");
    let set_mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        world.chown(path);
    };
    fs::create_dir_all(private.join("sub")).unwrap();
    fs::write(private.join("sub/file"), "content").unwrap();
    for (path, mode) in [("", 0o700), ("sub", 0o700), ("sub/file", 0o600)] {
        set_mode(&private.join(path), mode);
    }
    let mount = format!("{}:/private:ro", private.display());
    let id = create(world, &["--mount", &mount]);
    let out = world.outside();
    cp(world, inside(&id, "/private/sub/file"), out.join("file")).succeeds();
    cp(world, inside(&id, "/private"), out.join("directory")).succeeds();
    for copied in ["file", "directory/sub/file"] {
        assert_eq!(fs::read_to_string(out.join(copied)).unwrap(), "content", "{copied}");
    }
}

fn what_is_removed_is_gone_and_nothing_else(world: &World) {
    let id = create(world, &[]);
    sh(
        world,
        &id,
        "mkdir -p /tmp/d/e; echo a >/tmp/d/e/f; echo b >/tmp/kept; ln -s kept /tmp/link",
    )
    .succeeds();
    let paths = ["/tmp/d", "/tmp/link"].map(|path| inside(&id, path));
    let removed = call(world, &["rm", &paths[0], &paths[1], "--json"]);
    removed.succeeds();
    let answer: serde_json::Value = serde_json::from_str(&removed.stdout).unwrap();
    let reported: Vec<_> =
        answer["removed"].as_array().unwrap().iter().map(|it| it["path"].clone()).collect();
    assert_eq!(reported, ["/tmp/d", "/tmp/link"]);
    assert_eq!(sh(world, &id, "ls /tmp; cat /tmp/kept").stdout, "kept\nb\n");
    refused(&call(world, &["rm", &inside(&id, "/tmp/none")]), 1, "FILE_NOT_FOUND");
    // A path on the host is never accepted.
    let host = world.path("here");
    fs::write(&host, "here").unwrap();
    refused(&call(world, &["rm", host.to_str().unwrap()]), 2, "INVALID_INPUT");
    assert!(host.exists());
}

fn room_is_made_for_a_sandbox_that_took_too_much(world: &World) {
    let id = create(world, &["--disk", "1m"]);
    for n in 0..10 {
        let more =
            format!("mkdir -p /tmp/large; head -c 3000000 /dev/zero >/tmp/large/{n}; sleep 9");
        let outcome = sh(world, &id, &more);
        // The command before the one that is refused was ended with the same code.
        if outcome.code() == 125 && outcome.stderr.contains("DISK_EXCEEDED") {
            break;
        }
    }
    let refusal = sh(world, &id, "true");
    refused(&refusal, 125, "DISK_EXCEEDED");
    assert!(refusal.stderr.contains("stockade rm"), "{}", refusal.stderr);
    call(world, &["rm", &inside(&id, "/tmp/large")]).succeeds();
    sh(world, &id, "true").succeeds();
}

fn a_file_goes_to_standard_output(world: &World) {
    let id = create(world, &[]);
    sh(world, &id, "printf 'a\\nb' > /tmp/file").succeeds();
    let printed = cp(world, inside(&id, "/tmp/file"), "-");
    printed.succeeds();
    assert_eq!(printed.stdout, "a\nb", "{printed}");
    assert!(!world.has("-"), "a file was made");
    refused(&cp(world, inside(&id, "/tmp/nothing"), "-"), 1, "FILE_NOT_FOUND");
}

fn directories_go_with_all_that_is_in_them(world: &World) {
    let id = create(world, &[]);
    let source = world.path("source");
    for (name, content) in [("a", "1"), ("deep/er/b", "2"), ("deep/.hidden", "3")] {
        world.plant(&source.join(name), content);
    }
    let odd = [&b"new\nline"[..], b"quote'\"$(x)", b"-dash", b"sp ace", b"\xff\xfe"];
    for name in odd {
        world.plant(&source.join(OsStr::from_bytes(name)), "odd");
    }
    fs::set_permissions(source.join("a"), fs::Permissions::from_mode(0o750)).unwrap();
    let output = cp(world, &source, inside(&id, "/tmp/new"));
    output.succeeds();
    assert!(output.stderr.contains("8 files"), "{output}");
    assert_eq!(sh(world, &id, "cat /tmp/new/deep/er/b; stat -c %a /tmp/new/a").stdout, "2750\n");
    // Into an existing directory it is copied under its own name.
    cp(world, &source, inside(&id, "/tmp/new")).succeeds();
    sh(world, &id, "test -e /tmp/new/source/deep/.hidden").succeeds();

    let target = world.outside().join("target");
    cp(world, inside(&id, "/tmp/new/source"), &target).succeeds();
    for name in odd {
        let path = target.join(OsStr::from_bytes(name));
        assert_eq!(fs::read_to_string(&path).unwrap(), "odd", "{}", path.display());
    }
    assert_eq!(fs::read_to_string(target.join("deep/er/b")).unwrap(), "2");
    let mode = fs::metadata(target.join("a")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o750);
    let json = call(world, &["cp", "--json", &inside(&id, "/tmp/new"), target.to_str().unwrap()]);
    assert_eq!(json.json()["files"], 16, "{json}");
}

/// A sandbox can contain anything. Copying from it creates only regular files and directories, and
/// only below the target.
fn a_hostile_tree_writes_nothing_but_files_below_the_target(world: &World) {
    let id = create(world, &[]);
    let (target, secret) = (world.path("taken"), world.outside().join("secret"));
    world.plant(&secret, "untouched\n");
    fs::create_dir(&target).unwrap();
    world.chown(&target);
    let outside = world.outside();
    let script = format!(
        "mkdir -p /tmp/t/sub && cd /tmp/t && echo fine > sub/fine && ln -s {0}/secret link && \
        ln -s {0} dir && ln -s ../../../../../..{0} up && mkfifo pipe && \
        ln -s /etc/shadow shadow && chmod 4755 sub/fine && mkdir -p 'a..' '..b' '...' && \
        echo x > '..b/x'; (exec 3<> pipe; sleep 100) >/dev/null 2>&1 & true",
        outside.display()
    );
    sh(world, &id, &script).succeeds();
    let before = Tree::of(&outside);
    let output = cp(world, inside(&id, "/tmp/t"), &target);
    output.succeeds();
    assert!(output.stderr.contains("5 links, special files"), "{output}");
    before.assert_same(&Tree::of(&outside), "what lies outside the target");
    let mut found: Vec<_> = Tree::of(&target)
        .entries
        .keys()
        .filter_map(|path| Some(path.strip_prefix(&target).ok()?.display().to_string()))
        .collect();
    found.sort();
    let wanted = ["", "t", "t/...", "t/..b", "t/..b/x", "t/a..", "t/sub", "t/sub/fine"];
    assert_eq!(found, wanted);
    let mode = fs::metadata(target.join("t/sub/fine")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7000, 0, "a bit came out that gives somebody's rights away");
    // A symbolic link that is itself the source does not lead outside either.
    let alone = cp(world, inside(&id, "/tmp/t/link"), target.join("alone"));
    refused(&alone, 1, "FILE_NOT_FOUND");
    assert!(!target.join("alone").exists(), "{alone}");
    assert_eq!(fs::read_to_string(secret).unwrap(), "untouched\n");
}

/// A symbolic link of the host in place of a directory is not followed out of the target.
fn links_of_the_target_are_not_followed(world: &World) {
    let id = create(world, &[]);
    sh(world, &id, "mkdir -p /tmp/t/sub && echo new > /tmp/t/sub/file").succeeds();
    let target = world.path("taken");
    fs::create_dir_all(target.join("t")).unwrap();
    std::os::unix::fs::symlink(world.outside(), target.join("t/sub")).unwrap();
    for path in [&target, &target.join("t"), &target.join("t/sub")] {
        world.chown(path);
    }
    let outcome = cp(world, inside(&id, "/tmp/t"), &target);
    assert_ne!(outcome.code(), 0, "{outcome}");
    assert!(!world.outside().join("file").exists(), "{outcome}");
}

/// A process that can write below the target can replace a directory there by a symbolic link at
/// any time. The link is not followed.
fn a_directory_that_becomes_a_link_meanwhile_leads_nowhere(world: &World) {
    let shared = world.path("shared");
    fs::create_dir(&shared).unwrap();
    world.chown(&shared);
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
    let id = create(world, &["--mount", &format!("{}:/shared", shared.display())]);
    let script = "mkdir -p /tmp/t/sub /shared/t/sub && cd /tmp/t/sub && \
        for n in $(seq 200); do echo x > f$n; done";
    sh(world, &id, script).succeeds();
    let outside = world.outside();
    let before = Tree::of(&outside);
    cp(world, world.probe(), inside(&id, "/tmp/probe")).succeeds();
    sh(world, &id, &format!("ln -s {} /shared/t/link", outside.display())).succeeds();
    let words = ["exec", &id, "--", "/tmp/probe", "exchange", "/shared/t/sub", "/shared/t/link"];
    let mut running = world.stockade(&[&words[..], &["3000"]].concat()).start();
    let mut outcomes = Vec::new();
    while running.is_running() {
        outcomes.push(cp(world, inside(&id, "/tmp/t"), &shared));
    }
    let attack = running.finish();
    assert!(!attack.is_blocked().stdout.contains(" 0 swaps"), "{attack}");
    before.assert_same(&Tree::of(&outside), "what lies outside the target");
    // Each copy was refused because of the link, or did not meet one.
    for outcome in outcomes.iter().filter(|outcome| outcome.code() != 0) {
        assert!(outcome.stderr.contains("cannot copy"), "{outcome}");
    }
}

/// Copied directories keep their modes, no wider than those of files, also if they are not
/// writable. Existing directories keep their own modes.
fn directories_come_out_with_their_modes(world: &World) {
    let id = create(world, &[]);
    let script = "mkdir -p /tmp/t/open /tmp/t/own /tmp/t/fixed/below /tmp/t/there && cd /tmp/t && \
        for directory in . open own fixed fixed/below there; do echo x > $directory/file; done && \
        chmod 1777 open && chmod 700 own there && chmod 500 fixed fixed/below .";
    sh(world, &id, script).succeeds();
    let target = world.outside().join("target");
    fs::create_dir_all(target.join("t/there")).unwrap();
    for path in [&target, &target.join("t"), &target.join("t/there")] {
        world.chown(path);
    }
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    cp(world, inside(&id, "/tmp/t"), target.join("new")).succeeds();
    for (name, wanted) in
        [("", 0o500), ("open", 0o755), ("own", 0o700), ("fixed", 0o500), ("fixed/below", 0o500)]
    {
        let path = target.join("new").join(name);
        assert!(path.join("file").exists(), "{name}");
        assert_eq!(mode(&path), wanted, "{name}");
    }
    assert_eq!(fs::read_dir(target.join("new")).unwrap().count(), 5, "something was left there");
    let before = mode(&target.join("t/there"));
    cp(world, inside(&id, "/tmp/t"), &target).succeeds();
    assert!(target.join("t/there/file").exists());
    assert_eq!(mode(&target.join("t/there")), before);
    for path in ["new", "new/fixed", "new/fixed/below", "t/fixed", "t/fixed/below"] {
        fs::set_permissions(target.join(path), fs::Permissions::from_mode(0o700)).unwrap();
    }
    sh(world, &id, "chmod -R u+w /tmp/t").succeeds();
}

/// If the sandbox sees the target itself, the target is not part of what is copied to it.
fn a_copy_does_not_go_into_itself(world: &World) {
    let id = create(world, &["--workspace", world.project.to_str().unwrap()]);
    let project = world.project.file_name().unwrap().to_str().unwrap();
    let from = inside(&id, world.project.to_str().unwrap());
    for (round, made) in [(0, "copy".to_owned()), (1, format!("copy/{project}"))] {
        let output = cp(world, &from, "copy");
        output.succeeds();
        for name in ["a.txt", "src/deep/er/file.txt"] {
            assert_eq!(world.read(&format!("{made}/{name}")), world.read(name), "{round}");
        }
        let left: Vec<_> = Tree::of(&world.project)
            .entries
            .into_keys()
            .filter(|path| path.to_string_lossy().contains(".stockade-"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
    assert!(!world.has("copy/copy"), "a copy of the copy");
    assert!(!world.has(&format!("copy/{project}/copy/{project}")), "a copy of the copy");
    assert!(world.has(&format!("copy/{project}/copy/a.txt")), "what was there is not copied");
}

/// Names of maximum length are copied in both directions.
fn long_names_are_copied(world: &World) {
    let id = create(world, &[]);
    let name = "n".repeat(255);
    let source = world.path("source").join(&name);
    world.plant(&source, "long\n");
    cp(world, &source, inside(&id, &format!("/tmp/{name}"))).succeeds();
    let out = world.outside().join(&name);
    cp(world, inside(&id, &format!("/tmp/{name}")), &out).succeeds();
    assert_eq!(fs::read_to_string(out).unwrap(), "long\n");
}

/// A symbolic link that the caller names in a sandbox is followed there; special files are refused
/// by name.
fn a_link_that_is_named_is_followed_inside(world: &World) {
    let id = create(world, &[]);
    let script = "mkdir -p /tmp/t/sub/er && cd /tmp/t && echo within > sub/file && \
        chmod 640 sub/file && ln -s ../file sub/er/one && ln -s sub/er/one two && \
        ln -s /tmp/t/sub directory && ln -s loop loop && mkfifo pipe && ln -s pipe special";
    sh(world, &id, script).succeeds();
    let target = world.outside().join("target");
    fs::create_dir(&target).unwrap();
    world.chown(&target);
    cp(world, inside(&id, "/tmp/t/two"), &target).succeeds();
    assert_eq!(fs::read_to_string(target.join("two")).unwrap(), "within\n");
    let mode = fs::metadata(target.join("two")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    cp(world, inside(&id, "/tmp/t/directory"), &target).succeeds();
    assert_eq!(fs::read_to_string(target.join("directory/file")).unwrap(), "within\n");
    for (path, exit, code) in [
        ("/tmp/t/pipe", 2, "INVALID_INPUT"),
        ("/tmp/t/special", 2, "INVALID_INPUT"),
        ("/dev/null", 2, "INVALID_INPUT"),
        ("/tmp/t/loop", 2, "PATH_INVALID"),
    ] {
        let output = cp(world, inside(&id, path), target.join("none"));
        refused(&output, exit, code);
        assert!(
            output.stderr.contains(path.rsplit('/').next().unwrap()) || path.ends_with("special")
        );
        assert!(!target.join("none").exists(), "{output}");
    }
    refused(&cp(world, "/dev/null", inside(&id, "/tmp/none")), 2, "INVALID_INPUT");
    // Into a link to a directory, too, a file is copied under its own name.
    cp(world, target.join("two"), inside(&id, "/tmp/t/directory")).succeeds();
    assert_eq!(sh(world, &id, "cat /tmp/t/sub/two").stdout, "within\n");
}

/// Standard input is copied into a file as a stream, with any content and of any length.
fn standard_input_goes_into_a_file(world: &World) {
    let id = create(world, &[]);
    let from_input = |content: Vec<u8>, to: &str| {
        world.stockade(&["cp", "-", &inside(&id, to)]).input(content).finish()
    };
    for (name, content) in contents() {
        from_input(content.clone(), "/tmp/made/here").succeeds();
        let out = world.outside().join(name);
        cp(world, inside(&id, "/tmp/made/here"), &out).succeeds();
        assert!(fs::read(&out).unwrap() == content, "{name} came back different");
    }
    let large: Vec<u8> = (0..u32::try_from(9 << 20).unwrap()).flat_map(u32::to_le_bytes).collect();
    let output = from_input(large.clone(), "/tmp/large");
    output.succeeds();
    assert!(output.stderr.contains(&format!("1 files, {} bytes", large.len())), "{output}");
    let out = world.outside().join("large");
    cp(world, inside(&id, "/tmp/large"), &out).succeeds();
    assert!(fs::read(&out).unwrap() == large, "what is larger than any buffer came back different");
    assert!(!world.has("-"), "a file was made");
    refused(&from_input(b"x".to_vec(), "/tmp"), 2, "INVALID_INPUT");
}

/// Names that a sandbox chose cannot control the terminal, neither in an error nor during a copy.
fn names_from_a_sandbox_do_not_steer_the_terminal(world: &World) {
    let id = create(world, &[]);
    let script = "mkdir -p /tmp/h && cd /tmp/h && \
        name=$(printf 'a\\033[31mEVIL\\007\\r') && head -c 8000000 /dev/zero > \"$name\"";
    sh(world, &id, script).succeeds();
    let target = world.outside().join("target");
    let terminal = Terminal::open(world);
    let on = ["on-terminal", terminal.path()];
    let words = ["cp", &inside(&id, "/tmp/h"), target.to_str().unwrap()];
    world.stockade_by(&on, &words).env("TERM", "xterm").finish().succeeds();
    terminal.wait_for("1 files");
    assert!(terminal.text().contains("EVIL"), "{:?}", terminal.text());
    assert!(!terminal.text().contains("[31mEVIL\u{7}"), "{:?}", terminal.text());
    assert!(!terminal.text().contains("\u{1b}[31m"), "{:?}", terminal.text());
    // A directory of that name blocks the file.
    let name = "a\u{1b}[31mEVIL\u{7}\r";
    fs::remove_file(target.join(name)).unwrap();
    fs::create_dir(target.join(name)).unwrap();
    let output = cp(world, inside(&id, "/tmp/h/."), &target);
    assert_ne!(output.code(), 0, "{output}");
    assert!(!output.stderr.contains(['\u{1b}', '\u{7}', '\r']), "{output}");
    assert!(output.stderr.contains("a\\u{1b}[31mEVIL\\u{7}"), "{output}");
    let from = inside(&id, "/tmp/h/.");
    let json = call(world, &["cp", "--json", &from, target.to_str().unwrap()]);
    let message = json.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains(name), "{message:?}");
    assert!(!json.stdout.contains('\u{1b}'), "{json}");
}

/// A link that the caller names is followed. Links below it are not: wherever they lead, and even
/// if a link is the only entry there, nothing is copied through them.
fn no_link_below_what_is_named_is_followed_into_a_sandbox(world: &World) {
    let id = create(world, &[]);
    let (tree, named) = (world.path("tree"), world.path("named"));
    let secret = world.outside().join("deep/secret");
    world.plant(&secret, "secret\n");
    for (link, target) in [("a/b/x", "deep"), ("a/b/c/file", "deep/secret")] {
        let link = tree.join(link);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(world.outside().join(target), &link).unwrap();
        let output = cp(world, &tree, inside(&id, "/tmp/new"));
        output.succeeds();
        assert!(output.stderr.contains("0 files"), "{output}");
        let found = sh(world, &id, "find /tmp/new ! -type d; rm -r /tmp/new");
        assert_eq!(found.stdout, "", "{found}");
        fs::remove_file(link).unwrap();
    }
    world.plant(&tree.join("a/plain"), "plain\n");
    std::os::unix::fs::symlink("tree/a", &named).unwrap();
    cp(world, &named, inside(&id, "/tmp/new")).succeeds();
    assert_eq!(sh(world, &id, "cat /tmp/new/plain").stdout, "plain\n");
}

/// A directory that is not writable gets its content and its mode.
fn directories_that_are_not_writable_go_in_as_they_are(world: &World) {
    let id = create(world, &[]);
    let tree = world.path("tree");
    world.plant(&tree.join("fixed/below/file"), "within\n");
    let directories = [tree.join("fixed/below"), tree.join("fixed")];
    for directory in &directories {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o555)).unwrap();
    }
    let output = cp(world, &tree, inside(&id, "/tmp/new"));
    for directory in directories.iter().rev() {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    }
    output.succeeds();
    let found = sh(world, &id, "cd /tmp/new/fixed && cat below/file && stat -c %a . below");
    assert_eq!(found.stdout, "within\n555\n555\n", "{found}");
    sh(world, &id, "chmod -R u+w /tmp/new").succeeds();
}

/// Unreadable files are omitted and listed; everything else is copied.
fn files_that_may_not_be_read_are_left_out(world: &World) {
    let id = create(world, &[]);
    let tree = world.path("tree");
    for name in ["a", "b", "c/d", "e/f"] {
        world.plant(&tree.join(name), name);
    }
    for name in ["b", "e"] {
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(0o000)).unwrap();
    }
    let output = cp(world, &tree, inside(&id, "/tmp/new"));
    output.succeeds();
    let found = sh(world, &id, "cd /tmp/new && cat a c/d; chmod -f 700 e; find . -type f | wc -l");
    let (copied, left_out) = match world.identity {
        // Root may read all of them.
        Identity::Root => ("ac/d4\n", None),
        Identity::User => {
            ("ac/d2\n", Some("2 links, special files and unreadable files were skipped"))
        }
    };
    assert_eq!(found.stdout, copied, "{found}");
    assert!(left_out.is_none_or(|text| output.stderr.contains(text)), "{output}");
    let is_named = ["tree/b", "tree/e"].iter().any(|name| output.stderr.contains(name));
    assert_eq!(is_named, left_out.is_some(), "{output}");
    fs::set_permissions(tree.join("e"), fs::Permissions::from_mode(0o755)).unwrap();
}

fn what_is_not_there_is_said(world: &World) {
    let id = create(world, &[]);
    let missing = world.path("missing");
    refused(&cp(world, &missing, inside(&id, "/tmp/x")), 1, "FILE_NOT_FOUND");
    refused(&cp(world, inside(&id, "/tmp/none"), &missing), 1, "FILE_NOT_FOUND");
    refused(&cp(world, inside("nobody", "/tmp/x"), &missing), 1, "NOT_FOUND");
    refused(&cp(world, Path::new("/tmp"), Path::new("/tmp")), 2, "INVALID_INPUT");
    // If listing fails, nothing is created.
    assert_ne!(cp(world, inside(&id, "/proc"), &missing).code(), 0);
    assert!(!missing.exists());
}

/// Only a terminal gets progress output.
fn progress_is_for_terminals(world: &World) {
    let id = create(world, &[]);
    let source = world.path("large");
    fs::write(&source, vec![7; 32 << 20]).unwrap();
    world.chown(&source);
    let output = cp(world, &source, inside(&id, "/tmp/large"));
    output.succeeds();
    assert_eq!(output.stdout, "");
    assert!(!output.stderr.contains(['\u{1b}', '\r']), "{output}");
    let terminal = Terminal::open(world);
    let words = ["cp", source.to_str().unwrap(), &inside(&id, "/tmp/larger")];
    let on = ["on-terminal", terminal.path()];
    world.stockade_by(&on, &words).env("TERM", "xterm").finish().succeeds();
    terminal.wait_for("1 files");
    assert!(terminal.text().contains("MiB"), "{:?}", terminal.text());
}

fn a_file_whose_server_dies_is_written_again(world: &World) {
    let id = create(world, &[]);
    let file = world.outside().join("large");
    std::fs::write(&file, vec![b'x'; 48 << 20]).unwrap();
    world.chown(&file);
    for round in 0..3_u64 {
        let words = ["cp", file.to_str().unwrap(), &format!("{id}:/tmp/large-{round}")];
        let running = world.stockade(&words).start();
        std::thread::sleep(std::time::Duration::from_millis(20 + 40 * round));
        kill_server(&world.data());
        running.finish().succeeds();
        let size = sh(world, &id, &format!("wc -c < /tmp/large-{round}; ls /tmp | wc -l"));
        assert_eq!(size.stdout, format!("{}\n{}\n", 48 << 20, round + 1), "{size}");
    }
    call(world, &["kill", &id]).succeeds();
}

/// Links whose targets are in the copied tree are copied, in both directions; others are reported.
fn links_that_stay_in_the_tree_are_copied(world: &World) {
    let id = create(world, &[]);
    let tree = world.path("tree");
    world.plant(&tree.join("x"), "x\n");
    world.plant(&tree.join("deep/er/y"), "y\n");
    let links = [
        ("near", "x"),
        ("down", "deep/er/y"),
        ("deep/er/up", "../../x"),
        ("dangling", "nothing"),
        ("directory", "deep"),
    ];
    let outside = [
        ("absolute", "/etc/passwd"),
        ("above", "../x"),
        ("deep/far", "../../x"),
        ("through", "directory/../../x"),
    ];
    for (link, target) in links.iter().chain(&outside) {
        std::os::unix::fs::symlink(target, tree.join(link)).unwrap();
    }
    let into = cp(world, &tree, inside(&id, "/tmp/tree"));
    into.succeeds();
    assert!(into.stderr.contains("4 links, special files"), "{into}");
    assert!(into.stderr.contains("leads out of the copied tree"), "{into}");
    assert!(outside.iter().any(|(link, _)| into.stderr.contains(link)), "{into}");
    for (link, target) in links {
        let read = sh(world, &id, &format!("readlink /tmp/tree/{link}"));
        assert_eq!(read.stdout.trim_end(), target, "{read}");
    }
    for (link, target) in outside {
        sh(world, &id, &format!("test ! -L /tmp/tree/{link} && ln -s {target} /tmp/tree/{link}"))
            .succeeds();
    }
    let target = world.outside().join("target");
    let words = ["cp", "--json", &inside(&id, "/tmp/tree"), target.to_str().unwrap()];
    let out = call(world, &words);
    out.succeeds();
    assert_eq!(out.json()["links"], 5, "{out}");
    assert_eq!(out.json()["leftOut"], 4, "{out}");
    for (link, text) in links {
        assert_eq!(fs::read_link(target.join(link)).unwrap(), Path::new(text), "{link}");
    }
    for (link, _) in outside {
        assert!(fs::symlink_metadata(target.join(link)).is_err(), "{link}");
    }
    // Once more: links and files are replaced.
    let again = cp(world, inside(&id, "/tmp/tree/."), &target);
    again.succeeds();
    let twice = cp(world, &tree, inside(&id, "/tmp"));
    twice.succeeds();
    assert_eq!(sh(world, &id, "readlink /tmp/tree/near").stdout, "x\n");
}

/// Files keep the time of their last change, in both directions.
fn files_keep_their_times(world: &World) {
    let id = create(world, &[]);
    let tree = world.path("tree");
    world.plant(&tree.join("old"), "old\n");
    let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 5);
    let file = fs::File::options().write(true).open(tree.join("old")).unwrap();
    file.set_modified(time).unwrap();
    cp(world, &tree, inside(&id, "/tmp/tree")).succeeds();
    assert_eq!(sh(world, &id, "stat -c %Y /tmp/tree/old").stdout, "1000000000\n");
    let target = world.outside().join("target");
    cp(world, inside(&id, "/tmp/tree"), &target).succeeds();
    assert_eq!(fs::metadata(target.join("old")).unwrap().modified().unwrap(), time);
}

/// Thousands of files are one operation, with one event; an error in the middle is reported.
fn many_files_are_one_operation(world: &World) {
    let id = create(world, &[]);
    let tree = world.path("tree");
    fs::create_dir_all(&tree).unwrap();
    for number in 0..3000 {
        fs::write(tree.join(number.to_string()), number.to_string()).unwrap();
    }
    world.chown_tree(&tree, |_| world.identity.uid());
    let into = cp(world, &tree, inside(&id, "/tmp/tree"));
    into.succeeds();
    assert!(into.stderr.contains("3000 files, 10890 bytes"), "{into}");
    let counted = sh(world, &id, "ls /tmp/tree | wc -l; cat /tmp/tree/2999");
    assert_eq!(counted.stdout, "3000\n2999", "{counted}");
    let target = world.outside().join("target");
    let out = cp(world, inside(&id, "/tmp/tree"), &target);
    out.succeeds();
    assert!(out.stderr.contains("3000 files, 10890 bytes"), "{out}");
    assert_eq!(fs::read_dir(&target).unwrap().count(), 3000);
    assert_eq!(fs::read_to_string(target.join("2999")).unwrap(), "2999");
    let copies = copies(world, &id);
    assert_eq!(copies.len(), 2, "{copies:?}");
    // A directory is in the way of a file.
    sh(world, &id, "cd /tmp/tree && rm 1500 && mkdir 1500").succeeds();
    let blocked = cp(world, &tree, inside(&id, "/tmp"));
    assert_ne!(blocked.code(), 0, "{blocked}");
    assert!(blocked.stderr.contains("1500"), "{blocked}");
    let left = sh(world, &id, "ls -a /tmp/tree | grep -c '^[.]stockade'");
    assert_eq!(left.stdout, "0\n", "{left}");
}

/// The events of copies of a sandbox.
fn copies(world: &World, id: &str) -> Vec<serde_json::Value> {
    let events = call(world, &["events", "--json", "--type", "FILES_COPIED", id]);
    events.succeeds();
    events.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Each way in which files cross leaves an event with its direction, paths and bytes.
fn copies_leave_events(world: &World) {
    let id = create(world, &[]);
    let tree = world.path("tree");
    for (name, text) in [("a", "1"), ("deep/b", "22")] {
        world.plant(&tree.join(name), text);
    }
    let file = tree.join("a");
    let target = world.outside().join("target");
    cp(world, &file, inside(&id, "/tmp/file")).succeeds();
    let stdin = world.stockade(&["cp", "-", &inside(&id, "/tmp/stdin")]).input("123").finish();
    stdin.succeeds();
    cp(world, &tree, inside(&id, "/tmp/tree")).succeeds();
    cp(world, inside(&id, "/tmp/file"), &target).succeeds();
    cp(world, inside(&id, "/tmp/stdin"), "-").succeeds();
    cp(world, inside(&id, "/tmp/tree"), world.outside().join("tree")).succeeds();
    let expected = [
        ("in", "/tmp/file", 1, 1),
        ("in", "/tmp/stdin", 1, 3),
        ("in", "/tmp/tree", 3, 3),
        ("out", "/tmp/file", 1, 1),
        ("out", "/tmp/stdin", 1, 3),
        ("out", "/tmp/tree", 3, 3),
    ];
    wait_until("all of them are recorded", || copies(world, &id).len() == expected.len());
    let found = copies(world, &id);
    for (event, (direction, path, paths, bytes)) in found.iter().zip(expected) {
        let data = serde_json::json!({
            "direction": direction, "path": path, "paths": paths, "bytes": bytes,
        });
        assert_eq!(event["data"], data, "{event}");
    }
}

as_root_and_as_user![
    links_that_stay_in_the_tree_are_copied,
    files_keep_their_times,
    many_files_are_one_operation,
    copies_leave_events,
    a_file_goes_to_standard_output,
    a_file_whose_server_dies_is_written_again,
    files_arrive_as_they_are_both_ways,
    room_is_made_for_a_sandbox_that_took_too_much,
    private_files_of_a_read_only_mount_are_copied,
    what_is_removed_is_gone_and_nothing_else,
    directories_go_with_all_that_is_in_them,
    a_hostile_tree_writes_nothing_but_files_below_the_target,
    links_of_the_target_are_not_followed,
    no_link_below_what_is_named_is_followed_into_a_sandbox,
    a_copy_does_not_go_into_itself,
    a_link_that_is_named_is_followed_inside,
    standard_input_goes_into_a_file,
    names_from_a_sandbox_do_not_steer_the_terminal,
    a_directory_that_becomes_a_link_meanwhile_leads_nowhere,
    directories_come_out_with_their_modes,
    long_names_are_copied,
    directories_that_are_not_writable_go_in_as_they_are,
    files_that_may_not_be_read_are_left_out,
    what_is_not_there_is_said,
    progress_is_for_terminals,
];
