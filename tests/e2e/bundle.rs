//! Bundles: every kind of change, displayed, applied or rejected.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::harness::World;
use crate::host::Tree;

fn apply_latest(world: &World) {
    world.stockade(&["apply", "latest"]).finish().succeeds();
}

fn mode(world: &World, name: &str) -> u32 {
    fs::symlink_metadata(world.project.join(name)).unwrap().permissions().mode() & 0o7777
}

/// One run with every kind of change: the project is untouched until they are applied, and has
/// exactly these changes afterwards.
fn every_kind_of_change(world: &World) {
    world.write("old/name", "moved content, long enough to be told by\n");
    world.write("bits", "b\n");
    world.write("gone", "g\n");
    world.write("gone-directory/x/y", "g\n");
    world.write("becomes-directory", "f\n");
    world.write("becomes-file/x", "d\n");
    world.write("becomes-link", "l\n");
    std::os::unix::fs::symlink("a.txt", world.project.join("link")).unwrap();
    world.chown(&world.project.join("link"));
    let before = Tree::of(&world.project);
    let script = r#"
        echo beta >> a.txt; mkdir new && echo n > new/file; rm gone; rm -r gone-directory
        mv old/name moved; rmdir old; chmod 755 bits; : > empty; mkdir -p empty-directory/nested
        head -c 100000 /dev/urandom > binary; ln -s new/file inside; ln -sfn src link
        echo s > 'with space'; echo s > "$(printf 'with\nnewline')"; echo s > "$(printf 'raw\377')"
        rm becomes-directory; mkdir becomes-directory; echo x > becomes-directory/x
        rm -r becomes-file; echo x > becomes-file; rm becomes-link; ln -s a.txt becomes-link
        chmod 700 src/deep; printf 'no newline' > src/deep/er/file.txt; echo x > -dash; echo x > '*'
        chmod 600 new/file; cp -r /usr/share/zoneinfo/UTC zone 2>/dev/null || echo z > zone
        cksum binary
    "#;
    let outcome = world.review(script);
    before.assert_same(&Tree::of(&world.project), "the project, before apply");
    let stat = world.stockade(&["diff", "latest", "--stat"]).finish();
    stat.succeeds();
    for name in
        ["a.txt", "new/file", "gone", "moved", "bits", "empty", "binary", "with space", "link"]
    {
        assert!(stat.stdout.contains(name), "{name}: {stat}");
    }
    before.assert_same(&Tree::of(&world.project), "the project, after diff");
    apply_latest(world);
    assert_eq!(world.read("a.txt"), "alpha\nbeta\n");
    assert_eq!(world.read("new/file"), "n\n");
    assert_eq!(mode(world, "new/file"), 0o600);
    for name in ["gone", "gone-directory", "old"] {
        assert!(!world.has(name), "{name}");
    }
    assert_eq!(world.read("moved"), "moved content, long enough to be told by\n");
    assert_eq!(mode(world, "bits"), 0o755);
    assert_eq!(world.read("empty"), "");
    assert!(world.project.join("empty-directory/nested").is_dir());
    assert_eq!(fs::read_link(world.project.join("inside")).unwrap(), Path::new("new/file"));
    assert_eq!(fs::read_link(world.project.join("link")).unwrap(), Path::new("src"));
    for name in ["with space", "with\nnewline", "-dash", "*"] {
        assert!(world.has(name), "{name:?}");
    }
    assert!(world.project.join(OsStr::from_bytes(b"raw\xff")).exists());
    assert_eq!(world.read("becomes-directory/x"), "x\n");
    assert_eq!(world.read("becomes-file"), "x\n");
    assert_eq!(fs::read_link(world.project.join("becomes-link")).unwrap(), Path::new("a.txt"));
    assert_eq!(mode(world, "src/deep"), 0o700);
    assert_eq!(world.read("src/deep/er/file.txt"), "no newline");
    let sum = world.on_host("/usr/bin/cksum".as_ref(), &["binary"]).finish();
    assert!(outcome.stdout.contains(sum.stdout.trim()), "{sum} {outcome}");
    for (path, entry) in Tree::of(&world.project).entries {
        let is_own = entry.uid == world.identity.uid() || path.ends_with("probe");
        assert!(is_own, "{} belongs to {}", path.display(), entry.uid);
    }
    assert!(
        world.bundles().is_empty() || world.bundles()[0].get("state").is_some(),
        "applied is not pending"
    );
}

fn apply_and_discard_at_once(world: &World) {
    let before = Tree::of(&world.project);
    world.run(&["--discard"], &["sh", "-c", "echo x > x; rm a.txt"]).succeeds();
    before.assert_same(&Tree::of(&world.project), "after --discard");
    assert!(world.bundles().is_empty());
    world.run(&["--apply"], &["sh", "-c", "echo x > x; rm a.txt"]).succeeds();
    assert!(world.has("x") && !world.has("a.txt"));
    // The changes of a command that fails are not applied silently, but they are not lost either.
    let outcome = world.run(&["--apply"], &["sh", "-c", "echo y > y; exit 9"]);
    outcome.ends_with(9);
    assert!(world.has("y") || world.bundles().len() == 1, "{outcome}");
}

fn reject(world: &World) {
    let before = Tree::of(&world.project);
    world.review("echo x > new; rm -r src");
    world.stockade(&["reject", "latest", "--yes"]).finish().succeeds();
    before.assert_same(&Tree::of(&world.project), "after reject");
    assert!(world.bundles().is_empty());
    world.stockade(&["apply", "latest"]).finish().ends_with(1);
    world.stockade(&["reject", "latest", "--yes"]).finish().ends_with(1);
}

fn ids_prefixes_and_latest(world: &World) {
    world.review("echo 1 > one");
    world.review("echo 2 > two");
    let bundles = world.bundles();
    let ids: Vec<_> =
        bundles.iter().map(|bundle| bundle["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids.len(), 2);
    let latest = world.stockade(&["diff", "latest"]).finish();
    assert!(
        latest.stdout.contains("two") && !latest.stdout.contains("one"),
        "newest first: {latest}"
    );
    for id in [ids[1].as_str(), &ids[1][..12]] {
        let outcome = world.stockade(&["diff", id]).finish();
        assert!(outcome.stdout.contains("one"), "{outcome}");
    }
    let common: String =
        ids[0].chars().zip(ids[1].chars()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect();
    if !common.is_empty() {
        world.stockade(&["diff", &common]).finish().ends_with(1);
    }
    world.stockade(&["diff", "ffffffffffff"]).finish().ends_with(1);
    world.stockade(&["apply", &ids[1][..12]]).finish().succeeds();
    assert!(world.has("one") && !world.has("two"));
    world.stockade(&["apply", "latest"]).finish().succeeds();
    assert!(world.has("two"));
}

fn diff_is_a_unified_diff(world: &World) {
    world.review(
        "echo beta >> a.txt; echo n > new; rm src/main.rs; head -c 2000 /dev/urandom > bin",
    );
    let diff = world.stockade(&["diff", "latest"]).finish();
    diff.succeeds();
    for line in ["+beta", " alpha", "+n", "-fn main() {}"] {
        assert!(diff.stdout.lines().any(|l| l == line), "{line}: {diff}");
    }
    assert!(!diff.stdout.contains('\u{1b}'), "no colour but on a terminal: {diff}");
    // Git on the host accepts the diff as a patch.
    let patch = world.path("patch");
    let text = world.stockade(&["diff", "latest", "a.txt", "new", "src"]).finish().stdout;
    assert!(!text.contains("bin"), "{text}");
    fs::write(&patch, text).unwrap();
    world.git(&["apply", "--check", patch.to_str().unwrap()]);
    let json = world.stockade(&["diff", "latest", "--json"]).finish().json();
    let entries = json["entries"].as_array().expect("entries");
    let paths: Vec<_> = entries.iter().map(|entry| entry["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["a.txt", "bin", "new", "src/main.rs"]);
}

fn some_paths_only(world: &World) {
    world.review("echo x > one; echo x > two; mkdir d; echo x > d/a; echo x > d/b; rm a.txt");
    world.stockade(&["apply", "latest", "one", "d"]).finish().succeeds();
    assert!(world.has("one") && world.has("d/a") && world.has("d/b"));
    assert!(!world.has("two") && world.has("a.txt"));
    world.stockade(&["apply", "latest", "no-such-path"]).finish().ends_with(1);
    world.stockade(&["apply", "latest", "../outside"]).finish().is_refused();
}

/// The host changed a file that the bundle touches: nothing at all is applied.
fn conflicts(world: &World) {
    for (name, edit) in [
        ("edited", "echo host >> a.txt"),
        ("removed", "rm a.txt"),
        ("replaced by a directory", "rm a.txt; mkdir a.txt"),
        ("replaced by a link", "rm a.txt; ln -s src/main.rs a.txt"),
        ("the new name is taken", "echo host > new"),
        ("a directory is in the way", "mkdir -p new"),
        ("the parent is gone", "rm -r src"),
        ("the mode", "chmod 755 src/main.rs"),
    ] {
        let world = World::new(world.identity);
        world.review(
            "echo inside >> a.txt; echo inside > new; echo inside >> src/main.rs; echo x > other",
        );
        world.on_host("/bin/sh".as_ref(), &["-c", edit]).finish().succeeds();
        let before = Tree::of(&world.project);
        let outcome = world.stockade(&["apply", "latest"]).finish();
        outcome.ends_with(1);
        before.assert_same(&Tree::of(&world.project), name);
        let named = ["a.txt", "new", "src"].iter().any(|path| outcome.stderr.contains(path));
        assert!(named, "{name}: the conflict is named: {outcome}");
        assert_eq!(world.bundles().len(), 1, "{name}: the bundle stays");
    }
}

/// A change on the host to a file that the bundle does not touch is no conflict.
fn other_edits_of_the_host_are_kept(world: &World) {
    world.review("echo inside >> a.txt; mkdir d; echo x > d/x");
    world.write("host-file", "host\n");
    world.write("src/main.rs", "host\n");
    apply_latest(world);
    assert_eq!(world.read("src/main.rs"), "host\n");
    assert_eq!(world.read("a.txt"), "alpha\ninside\n");
}

/// The host edits while the command runs, before the bundle exists.
fn edit_during_the_run(world: &World) {
    for (name, inside, host) in [
        ("before the command does", "read x; echo inside > a.txt", "a.txt"),
        ("after the command did", "echo inside > a.txt; echo ready; read x", "a.txt"),
        ("a file that it deletes", "read x; rm a.txt", "a.txt"),
        ("a file that it makes", "read x; echo inside > fresh", "fresh"),
        ("a file that it renames", "mv a.txt b.txt; echo ready; read x", "a.txt"),
        ("a file that it moved", "mv a.txt b.txt; echo n >> b.txt; echo ready; read x", "a.txt"),
        ("where it moves one", "mv a.txt b.txt; echo n >> b.txt; echo ready; read x", "b.txt"),
        ("where it links one", "echo n >> a.txt; ln a.txt b.txt; echo ready; read x", "b.txt"),
    ] {
        let world = World::new(world.identity);
        let script = format!("echo ready; {inside}");
        let mut running = world.stockade(&["run", "--review", "--", "sh", "-c", &script]).start();
        running.wait_for_output("ready");
        std::thread::sleep(std::time::Duration::from_millis(100));
        world.write(host, "edited on the host\n");
        running.send(b"go\n");
        running.finish();
        let before = Tree::of(&world.project);
        world.stockade(&["apply", "latest"]).finish().ends_with(1);
        before.assert_same(&Tree::of(&world.project), name);
        assert_eq!(world.read(host), "edited on the host\n", "{name}");
    }
}

/// The host creates files where the command renames and links others: no conflict.
fn edit_beside_what_is_renamed(world: &World) {
    for (inside, expected) in [
        ("mv a.txt b.txt; echo n >> b.txt", &[("b.txt", "alpha\nn\n")][..]),
        ("mv a.txt b.txt; echo n > b.txt", &[("b.txt", "n\n")]),
        ("mv a.txt src/b.txt; echo n >> src/b.txt", &[("src/b.txt", "alpha\nn\n")]),
        ("echo n >> a.txt; ln a.txt g", &[("a.txt", "alpha\nn\n"), ("g", "alpha\nn\n")]),
    ] {
        let world = World::new(world.identity);
        let script = format!("{inside}; echo ready; read x");
        let mut running = world.stockade(&["run", "--review", "--", "sh", "-c", &script]).start();
        running.wait_for_output("ready");
        for name in ["of-host", "src/of-host"] {
            world.write(name, "h\n");
        }
        running.send(b"go\n");
        running.finish().succeeds();
        apply_latest(&world);
        for (name, content) in expected {
            assert_eq!(world.read(name), *content, "{inside}: {name}");
        }
        let was_renamed = inside.starts_with("mv");
        assert_eq!(world.has("a.txt"), !was_renamed, "{inside}");
        assert!(world.has("of-host") && world.has("src/of-host"), "{inside}");
    }
}

/// What git has of a file from the start of a run is the base of the change, whatever the host wrote to
/// the file meanwhile; where git has none, that is said.
fn the_base_is_what_was_there_at_the_start(world: &World) {
    let lines = |changed: &[(usize, &str)]| {
        let line = |n: usize| changed.iter().find(|(at, _)| *at == n).map_or("line", |(_, it)| it);
        (0..20).map(|n| format!("{} {n}\n", line(n))).collect::<String>()
    };
    world.write("both.txt", lines(&[]));
    world.write("same.txt", "same\n");
    world.write("gone.txt", "gone\n");
    world.write("removed.txt", "removed\n");
    world.git(&["add", "-A"]);
    world.git(&["commit", "-qm", "files"]);
    world.write("unknown.txt", "unknown\n");
    // An index that was written in the same tick as its files proves nothing.
    std::thread::sleep(std::time::Duration::from_millis(50));
    world.git(&["update-index", "--refresh"]);
    let script = "sed -i 's/line 15/agent 15/' both.txt; echo agent > unknown.txt; touch same.txt; \
                  rm removed.txt; echo agent >> gone.txt; echo ready; read x";
    let mut running = world.stockade(&["run", "--review", "--", "sh", "-c", script]).start();
    running.wait_for_output("ready");
    std::thread::sleep(std::time::Duration::from_millis(100));
    world.write("both.txt", lines(&[(3, "human")]));
    for name in ["same.txt", "removed.txt", "unknown.txt"] {
        world.write(name, "human\n");
    }
    std::fs::remove_file(world.project.join("gone.txt")).unwrap();
    running.send(b"go\n");
    running.finish().succeeds();
    let diff = world.stockade(&["diff", "latest"]).finish();
    assert!(diff.stdout.contains("-line 15") && diff.stdout.contains("+agent 15"), "{diff}");
    assert!(!diff.stdout.contains("-human 3") && !diff.stdout.contains("same.txt"), "{diff}");
    assert!(
        diff.stdout.contains("-removed") && diff.stdout.contains("what it was before is unknown")
    );
    let entries = world.stockade(&["diff", "latest", "--json"]).finish().json();
    let known = |path: &str| {
        let entries = entries["entries"].as_array().unwrap();
        let entry = entries
            .iter()
            .find(|entry| entry["path"] == path)
            .unwrap_or_else(|| panic!("{path} is not in {entries:?}"));
        assert_eq!(entry["conflict"], true, "{entry}");
        entry["baseKnown"] == true
    };
    assert!(known("both.txt") && known("removed.txt") && !known("unknown.txt"));
    let apply = world.stockade(&["apply", "latest"]).finish();
    assert!(apply.stderr.contains("BUNDLE_CONFLICT"), "{apply}");
    let merge = world.stockade(&["apply", "latest", "--merge", "both.txt"]).finish();
    merge.succeeds();
    assert_eq!(world.read("both.txt"), lines(&[(3, "human"), (15, "agent")]));
}

/// The host removes what the command edits or renames: a conflict, whatever else the command did.
fn removal_during_the_run(world: &World) {
    for (inside, removed) in [
        ("echo n >> a.txt; rm src/main.rs", "a.txt"),
        ("mv a.txt b.txt; echo n >> b.txt", "a.txt"),
        ("echo n >> src/main.rs; mv a.txt b.txt", "src"),
    ] {
        let world = World::new(world.identity);
        let script = format!("{inside}; echo ready; read x");
        let mut running = world.stockade(&["run", "--review", "--", "sh", "-c", &script]).start();
        running.wait_for_output("ready");
        let removed = world.project.join(removed);
        if removed.is_dir() { fs::remove_dir_all(&removed) } else { fs::remove_file(&removed) }
            .unwrap();
        running.send(b"go\n");
        running.finish().succeeds();
        let before = Tree::of(&world.project);
        let refused = world.stockade(&["apply", "latest"]).finish();
        refused.ends_with(1);
        assert!(refused.stderr.contains("BUNDLE_CONFLICT"), "{inside}: {refused}");
        before.assert_same(&Tree::of(&world.project), inside);
    }
}

/// Git's own rules, nested; tracked files are not ignored.
fn ignored_files(world: &World) {
    world.write("tracked.log", "t\n");
    world.git(&["add", "--force", "tracked.log"]);
    world.write("src/.gitignore", "*.tmp\n!keep.tmp\n");
    world.review(
        "echo x > x.log; mkdir build; echo x > build/out; echo x > src/a.tmp; echo x > src/keep.tmp; \
         echo more >> tracked.log; echo x > a.tmp; echo fine > fine",
    );
    apply_latest(world);
    for name in ["x.log", "build/out", "src/a.tmp"] {
        assert!(!world.has(name), "{name} is ignored and was applied");
    }
    for name in ["src/keep.tmp", "a.tmp", "fine"] {
        assert!(world.has(name), "{name} was not applied");
    }
    assert_eq!(world.read("tracked.log"), "t\nmore\n", "a tracked file is not ignored");
}

/// In a submodule, and in a clone that git ignores, the rules and index of that repository count.
fn ignored_files_of_other_repositories(world: &World) {
    let source = world.path("source");
    let source = source.to_str().unwrap();
    world.git(&["init", "--quiet", source]);
    for (name, content) in [("keep.log", "k\n"), (".gitignore", "*.tmp\n")] {
        world.plant(&Path::new(source).join(name), content);
        world.git(&["-C", source, "add", name]);
    }
    world.git(&["-C", source, "commit", "--quiet", "--message=start"]);
    let allowed = ["-c", "protocol.file.allow=always"];
    world.git(&[&allowed[..], &["submodule", "--quiet", "add", source, "sub"]].concat());
    world.git(&["clone", "--quiet", source, "build/clone"]);
    world.review(
        "for place in . sub build/clone; do
            for name in keep.log q.log q.tmp; do echo x >> $place/$name; done
        done",
    );
    apply_latest(world);
    for dir in ["sub", "build/clone"] {
        assert_eq!(world.read(&format!("{dir}/keep.log")), "k\nx\n");
        let status = world.git(&["-C", dir, "status", "--porcelain"]);
        assert_eq!(status, " M keep.log\n?? q.log\n", "{dir}");
        assert!(!world.has(&format!("{dir}/q.tmp")), "{dir}/q.tmp is ignored and was applied");
    }
    assert!(!world.has("q.log") && world.has("q.tmp"));
}

/// Whether matching is case-sensitive is a setting of the project.
fn ignored_files_in_any_case(world: &World) {
    for (setting, applied) in [("false", true), ("true", false)] {
        let world = World::new(world.identity);
        world.git(&["config", "core.ignorecase", setting]);
        world.review("echo x > X.LOG; mkdir Build; echo x > Build/out; echo fine > fine");
        apply_latest(&world);
        assert_eq!([world.has("X.LOG"), world.has("Build/out")], [applied; 2], "{setting}");
        assert!(world.has("fine"));
    }
}

/// The command cannot hide its changes with ignore rules that it writes itself.
fn rules_written_inside(world: &World) {
    world.review(
        "printf '*\\n' >> .gitignore; echo evil >> a.txt; echo evil > evil; \
        mkdir -p .git/info; echo '*' >> .git/info/exclude",
    );
    let stat = world.stockade(&["diff", "latest", "--stat"]).finish();
    assert!(stat.stdout.contains("a.txt") && stat.stdout.contains("evil"), "{stat}");
}

fn too_large(world: &World) {
    let outcome = world.run(
        &["--review", "--max-bundle", "1M"],
        &["sh", "-c", "head -c 3000000 /dev/urandom > large"],
    );
    assert!(outcome.stderr.contains("--max-bundle"), "the limit is named: {outcome}");
    let kept = Tree::of(&world.data()).entries.into_iter().any(|(path, _)| {
        fs::symlink_metadata(path)
            .is_ok_and(|metadata| metadata.is_file() && metadata.len() == 3_000_000)
    });
    assert!(kept, "the view is kept: {outcome}");
    assert!(!world.has("large"));
}

/// An apply that fails changes nothing, even if nothing in the bundle can ever be applied.
fn what_cannot_be_applied_stays(world: &World) {
    world.review("echo x > .git/evil; mkfifo pipe");
    let id = world.bundles()[0]["id"].as_str().unwrap().to_owned();
    for words in [&["apply", &id][..], &["apply", &id, "--include-ignored", "--allow-executed"]] {
        let failed = world.stockade(words).finish();
        failed.ends_with(1);
        assert!(failed.stderr.contains("PATH_REFUSED"), "{failed}");
        world.stockade(&["diff", &id]).finish().succeeds();
    }
    // The project has the changes already.
    world.review("echo beta > a.txt");
    let id = world.bundles()[0]["id"].as_str().unwrap().to_owned();
    world.write("a.txt", "beta\n");
    world.stockade(&["apply", &id]).finish().ends_with(1);
    assert_eq!(world.bundles().len(), 2);
    world.stockade(&["diff", &id]).finish().succeeds();
    let kept = world.run(&["--apply"], &["sh", "-c", "echo x > .git/evil"]);
    kept.succeeds();
    assert_eq!(world.bundles().len(), 3, "{kept}");
}

/// A directory that git ignores counts as one path.
fn many_ignored_files(world: &World) {
    world.write(".gitignore", "node_modules\n/probe\n");
    let script = "mkdir -p node_modules/p; cd node_modules/p; seq 1 3000 | split -l 1 -a 4; \
                  cd ../..; echo hours > work.txt; exit 7";
    let outcome = world.run(&["--review", "--max-paths", "100"], &["sh", "-c", script]);
    outcome.ends_with(7);
    let id = world.bundles()[0]["id"].as_str().unwrap().to_owned();
    let detail = world.stockade(&["diff", &id, "--json"]).finish().json();
    let paths: Vec<_> =
        detail["entries"].as_array().unwrap().iter().map(|it| &it["path"]).collect();
    assert_eq!(paths, ["node_modules", "work.txt"], "{detail}");
    world.stockade(&["apply", &id]).finish().succeeds();
    assert!(world.read("work.txt") == "hours\n" && !world.has("node_modules"));
    world.stockade(&["apply", &id, "--include-ignored"]).finish().succeeds();
    assert_eq!(world.read("node_modules/p/xaaaa"), "1\n");
    assert!(world.bundles().is_empty());
}

/// More paths than the limit: the message has the exit code and a command that makes the bundle.
fn too_many_paths(world: &World) {
    let script = "seq 1 20 | split -l 1; exit 7";
    let outcome = world.run(&["--review", "--max-paths", "10"], &["sh", "-c", script]);
    outcome.ends_with(125);
    assert!(outcome.stderr.contains("exited with 7"), "{outcome}");
    assert!(outcome.stderr.contains("stockade bundles --max-paths 10000000"), "{outcome}");
    world.stockade(&["bundles", "--max-paths", "10000000"]).finish().succeeds();
    let bundles = world.bundles();
    assert_eq!((&bundles[0]["changes"]["total"], &bundles[0]["exitCode"]), (&20.into(), &7.into()));
}

fn fifty_thousand_files(world: &World) {
    let run = ["run", "--review", "--", "./probe", "many-files", "many", "50000"];
    world.stockade(&run).deadline(240).finish().is_blocked();
    let json = world.stockade(&["diff", "latest", "--json"]).deadline(120).finish().json();
    let files = json["entries"].as_array().unwrap().len();
    assert!(files >= 50_000, "{files}");
    world.stockade(&["apply", "latest"]).deadline(240).finish().succeeds();
    assert_eq!(world.read("many/many-49/49999"), "49999");
    let count = Tree::of(&world.project.join("many")).entries.len();
    assert_eq!(count, 1 + 50 + 50_000);
    let remove = ["run", "--apply", "--", "rm", "-r", "many"];
    world.stockade(&remove).deadline(240).finish().succeeds();
    assert!(!world.has("many"));
}

fn one_gigabyte(world: &World) {
    let script = "head -c 1073741824 /dev/zero | tr '\\0' x > large; cksum large";
    let run = ["run", "--review", "--", "sh", "-c", script];
    let outcome = world.stockade(&run).deadline(300).finish();
    outcome.succeeds();
    world.stockade(&["diff", "latest"]).deadline(120).finish().succeeds();
    let unseen = world.stockade(&["apply", "latest"]).deadline(120).finish();
    assert!(unseen.stderr.contains("[UNSEEN_CONTENT]"), "{unseen}");
    let apply = ["apply", "latest", "--allow-unseen"];
    world.stockade(&apply).deadline(300).finish().succeeds();
    let sum = world.on_host("/usr/bin/cksum".as_ref(), &["large"]).deadline(120).finish();
    assert_eq!(sum.stdout, outcome.stdout);
}

/// A bundle that was altered on disk is neither applied nor displayed as if it were unaltered.
fn altered_bundles(world: &World) {
    world.review("echo inside > new; echo more >> a.txt");
    let before = Tree::of(&world.project);
    let unaltered = world.stockade(&["diff", "latest"]).finish().stdout;
    let list = |path: &Path| fs::read_dir(path).unwrap().next().unwrap().unwrap().path();
    let bundle = list(&world.data().join("bundles"));
    let (mut refused_to_apply, mut refused_to_show) = (0, 0);
    for (path, entry) in Tree::of(&bundle).entries {
        if entry.mode & 0o170_000 != 0o100_000 {
            continue;
        }
        let original = fs::read(&path).unwrap();
        let permissions = fs::metadata(&path).unwrap().permissions();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        let mut altered = original.clone();
        let middle = altered.len() / 2;
        altered[middle] ^= 1;
        for content in [altered, original[..original.len() - 1].to_vec(), Vec::new()] {
            fs::write(&path, content).unwrap();
            let diff = world.stockade(&["diff", "latest"]).finish();
            refused_to_show += u32::from(diff.code() != 0);
            // The content before the change is only stored for display. In place of an altered one,
            // the file of the project is shown.
            if path.parent().is_some_and(|parent| parent.ends_with("base")) {
                assert_eq!(diff.stdout, unaltered, "{}: {diff}", path.display());
                continue;
            }
            let outcome = world.stockade(&["apply", "latest"]).finish();
            assert_ne!(outcome.code(), 0, "{}: {outcome}", path.display());
            assert!(!outcome.stderr.contains("panicked"), "{outcome}");
            before.assert_same(&Tree::of(&world.project), "the project");
            refused_to_apply += 1;
        }
        fs::write(&path, original).unwrap();
        fs::set_permissions(&path, permissions).unwrap();
    }
    assert!(refused_to_apply >= 9 && refused_to_show >= 3, "{refused_to_apply} {refused_to_show}");
    apply_latest(world);
    assert_eq!(world.read("new"), "inside\n");
}

/// If a directory cannot be written, an apply leaves everything as it was.
fn unwritable_project(world: &World) {
    world.review("echo x > src/new; echo more >> a.txt");
    if world.identity.uid() == 0 {
        return;
    }
    fs::set_permissions(world.project.join("src"), PermissionsExt::from_mode(0o555)).unwrap();
    let before = Tree::of(&world.project);
    let outcome = world.stockade(&["apply", "latest"]).finish();
    assert_ne!(outcome.code(), 0, "{outcome}");
    before.assert_same(&Tree::of(&world.project), "the project");
    fs::set_permissions(world.project.join("src"), PermissionsExt::from_mode(0o755)).unwrap();
    apply_latest(world);
    assert!(world.has("src/new"));
}

/// Metadata updates that are no change create no bundle, and times are not applied.
fn touching_is_no_change(world: &World) {
    world.review(
        "touch a.txt; touch src; cp a.txt b && cat b > a.txt && rm b; chmod 644 a.txt; \
        mkdir t && rmdir t; mv a.txt c && mv c a.txt",
    );
    assert!(world.bundles().is_empty(), "{:?}", world.bundles());
}

as_root_and_as_user![
    every_kind_of_change,
    apply_and_discard_at_once,
    reject,
    ids_prefixes_and_latest,
    diff_is_a_unified_diff,
    some_paths_only,
    conflicts,
    other_edits_of_the_host_are_kept,
    edit_during_the_run,
    edit_beside_what_is_renamed,
    the_base_is_what_was_there_at_the_start,
    removal_during_the_run,
    ignored_files,
    ignored_files_of_other_repositories,
    ignored_files_in_any_case,
    rules_written_inside,
    too_large,
    what_cannot_be_applied_stays,
    many_ignored_files,
    too_many_paths,
    fifty_thousand_files,
    #[ignore = "slow: writes a gigabyte three times"]
    one_gigabyte,
    altered_bundles,
    unwritable_project,
    touching_is_no_change,
];
