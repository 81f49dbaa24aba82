//! `cp`: what arrives is what was sent, and nothing but the target is written.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::{call, create, refused, sh};
use crate::call::Outcome;
use crate::harness::World;
use crate::host::Tree;
use crate::servants::kill_server;
use crate::tty::Terminal;

/// Contents that copying has gone wrong with somewhere.
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
        world.own(&there);
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
    let said = cp(world, &source, inside(&id, "/tmp/new"));
    said.succeeds();
    assert!(said.stderr.contains("8 files"), "{said}");
    assert_eq!(sh(world, &id, "cat /tmp/new/deep/er/b; stat -c %a /tmp/new/a").stdout, "2750\n");
    // Into a directory that exists it is copied under its own name.
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

/// What a sandbox holds can be anything. Of what is copied out, only plain files and directories
/// come to be, and only below the target.
fn a_hostile_tree_writes_nothing_but_files_below_the_target(world: &World) {
    let id = create(world, &[]);
    let (target, secret) = (world.path("taken"), world.outside().join("secret"));
    world.plant(&secret, "untouched\n");
    fs::create_dir(&target).unwrap();
    world.own(&target);
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
    let said = cp(world, inside(&id, "/tmp/t"), &target);
    said.succeeds();
    assert!(said.stderr.contains("5 links, special files"), "{said}");
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
    // A name by itself leads nowhere either.
    let alone = cp(world, inside(&id, "/tmp/t/link"), target.join("alone"));
    alone.succeeds();
    assert!(!target.join("alone").exists(), "{alone}");
    assert_eq!(fs::read_to_string(secret).unwrap(), "untouched\n");
}

/// A link of the host that lies where a directory is to be is not followed out of the target.
fn links_of_the_target_are_not_followed(world: &World) {
    let id = create(world, &[]);
    sh(world, &id, "mkdir -p /tmp/t/sub && echo new > /tmp/t/sub/file").succeeds();
    let target = world.path("taken");
    fs::create_dir_all(target.join("t")).unwrap();
    std::os::unix::fs::symlink(world.outside(), target.join("t/sub")).unwrap();
    for path in [&target, &target.join("t"), &target.join("t/sub")] {
        world.own(path);
    }
    let outcome = cp(world, inside(&id, "/tmp/t"), &target);
    assert_ne!(outcome.code(), 0, "{outcome}");
    assert!(!world.outside().join("file").exists(), "{outcome}");
}

fn what_is_not_there_is_said(world: &World) {
    let id = create(world, &[]);
    let missing = world.path("missing");
    refused(&cp(world, &missing, inside(&id, "/tmp/x")), 1, "FILE_NOT_FOUND");
    refused(&cp(world, inside(&id, "/tmp/none"), &missing), 1, "FILE_NOT_FOUND");
    refused(&cp(world, inside("nobody", "/tmp/x"), &missing), 1, "NOT_FOUND");
    refused(&cp(world, Path::new("/tmp"), Path::new("/tmp")), 2, "INVALID_INPUT");
    assert!(!missing.exists());
}

/// Progress is for who watches: a terminal sees some, and nothing else does.
fn progress_is_for_terminals(world: &World) {
    let id = create(world, &[]);
    let source = world.path("large");
    fs::write(&source, vec![7; 32 << 20]).unwrap();
    world.own(&source);
    let said = cp(world, &source, inside(&id, "/tmp/large"));
    said.succeeds();
    assert_eq!(said.stdout, "");
    assert!(!said.stderr.contains(['\u{1b}', '\r']), "{said}");
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
    world.own(&file);
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

as_root_and_as_user![
    a_file_goes_to_standard_output,
    a_file_whose_server_dies_is_written_again,
    files_arrive_as_they_are_both_ways,
    directories_go_with_all_that_is_in_them,
    a_hostile_tree_writes_nothing_but_files_below_the_target,
    links_of_the_target_are_not_followed,
    what_is_not_there_is_said,
    progress_is_for_terminals,
];
