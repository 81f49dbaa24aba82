//! The cases of `tests/cases/sync.json`, each with the commands.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::process::Command;

use serde_json::Value;

use super::{Scene, list, read, reason};
use crate::cases::{drive, no_driver, same};
use crate::daemons::{kill_server, wait_until};
use crate::harness::{Identity, World};
use crate::served::Server;

type Checked = Result<(), String>;

fn ensure(is_met: bool, what: impl FnOnce() -> String) -> Checked {
    if is_met { Ok(()) } else { Err(what()) }
}

fn cases(world: &World) {
    let scene = Scene::new(world, &[]);
    drive("tests/e2e/sync/cases.rs::cases", "sync.json", |case| match case.name.as_str() {
        "include and exclude" => include_and_exclude(&scene),
        "exclude beats include" => exclude_beats_include(&scene),
        "dotfiles" => dotfiles(&scene),
        "gitignore off" => gitignore_off(&scene),
        "empty directories kept when asked" => empty_directories(&scene),
        "mirror deletes extras" => mirror_deletes(&scene),
        "mirror keeps excluded and ignored at the destination" => mirror_keeps(&scene),
        "mirror with unreadable source refused" => unreadable_source(&scene),
        "commit" => commit(&scene),
        "no change, no commit" => no_change(&scene),
        "conflict: both changed" => both_changed(&scene),
        "conflict: both changed alike" => both_alike(&scene),
        "conflict: deleted here, modified there" => deleted_and_modified(&scene),
        "size limit per file" => size_limit(&scene),
        "symlink inside tree" => link_inside(&scene),
        "symlink leaving tree" => link_leaving(&scene),
        "container plants symlink at destination path" => planted_link(&scene),
        "odd names" => odd_names(&scene),
        "non-UTF-8 name" => no_utf8(&scene),
        "crash in the middle" => crash(&scene),
        "access rules apply per file" => access_rules(world),
        "caller lacks VFS write" => no_write(&scene),
        _ => no_driver(),
    });
}

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|it| (*it).to_owned()).collect()
}

fn include_and_exclude(scene: &Scene<'_>) -> Checked {
    let from = scene.directory("c1", &[("a.txt", "a"), ("b.log", "b"), ("src/c.rs", "c")]);
    let report = scene.copy_in(&["--include", "**/*", "--exclude", "*.log"], &from, "/tmp/c1");
    same(strings(&["a.txt", "src", "src/c.rs"]), scene.list("/tmp/c1"))?;
    same((2, 1), (report["copied"].as_u64().unwrap(), report["skipped"].as_u64().unwrap()))
}

fn exclude_beats_include(scene: &Scene<'_>) -> Checked {
    let from = scene.directory("c2", &[("a/x", "1"), ("a/b/y", "2"), ("z", "3")]);
    scene.copy_in(&["--include", "a/**", "--exclude", "a/b/**"], &from, "/tmp/c2");
    same(strings(&["a", "a/x"]), scene.list("/tmp/c2"))
}

fn dotfiles(scene: &Scene<'_>) -> Checked {
    let from = scene.directory("c3", &[(".env", "e"), (".git/config", "g"), ("a", "a")]);
    let report = scene.copy_in(&[], &from, "/tmp/c3");
    same(strings(&[".env", "a"]), scene.list("/tmp/c3"))?;
    same(Some("git_directory".to_owned()), reason(&report, ".git"))?;
    scene.copy_in(&["--exclude", ".env"], &from, "/tmp/c3b");
    same(strings(&["a"]), scene.list("/tmp/c3b"))?;
    scene.copy_in(&["--git-dirs"], &from, "/tmp/c3c");
    same(strings(&[".env", ".git", ".git/config", "a"]), scene.list("/tmp/c3c"))?;
    // Never out of the sandbox, also under another name for it.
    scene.sh("cd /tmp/c3c && mkdir -p sub/.GIT && echo x > sub/.GIT/config");
    let to = scene.directory("c3-out", &[]);
    scene.out(&[], "/tmp/c3c", &to);
    same(strings(&[".env", "a"]), list(&to))?;
    let refused = scene.sync(&["--git-dirs"], &scene.inside("/tmp/c3c"), to.to_str().unwrap());
    ensure(refused.stdout.contains("INVALID_INPUT"), || refused.to_string())
}

fn gitignore_off(scene: &Scene<'_>) -> Checked {
    let from = scene.directory("c4", &[(".gitignore", "*.log\n"), ("a.log", "1"), ("b", "2")]);
    let report = scene.copy_in(&[], &from, "/tmp/c4");
    same(strings(&[".gitignore", "b"]), scene.list("/tmp/c4"))?;
    same(Some("ignored".to_owned()), reason(&report, "a.log"))?;
    scene.copy_in(&["--no-gitignore"], &from, "/tmp/c4");
    same(strings(&[".gitignore", "a.log", "b"]), scene.list("/tmp/c4"))?;
    // The same out of the sandbox, where the ignore file comes with the files.
    let to = scene.directory("c4-out", &[]);
    scene.out(&[], "/tmp/c4", &to);
    same(strings(&[".gitignore", "b"]), list(&to))?;
    scene.out(&["--no-gitignore"], "/tmp/c4", &to);
    same(strings(&[".gitignore", "a.log", "b"]), list(&to))
}

fn empty_directories(scene: &Scene<'_>) -> Checked {
    let from = scene.directory("c5", &[("e/", ""), ("f", "1")]);
    scene.copy_in(&[], &from, "/tmp/c5");
    same(strings(&["f"]), scene.list("/tmp/c5"))?;
    scene.copy_in(&["--empty-dirs"], &from, "/tmp/c5");
    same(strings(&["e", "f"]), scene.list("/tmp/c5"))?;
    let to = scene.directory("c5-out", &[]);
    scene.out(&[], "/tmp/c5", &to);
    same(strings(&["f"]), list(&to))?;
    scene.out(&["--empty-dirs"], "/tmp/c5", &to);
    same(strings(&["e", "f"]), list(&to))
}

fn mirror_deletes(scene: &Scene<'_>) -> Checked {
    let from = scene.directory("c6", &[("a", "1")]);
    scene.sh("mkdir -p /tmp/c6/deep/er && touch /tmp/c6/old.txt /tmp/c6/deep/er/x");
    let report = scene.copy_in(&["--mirror"], &from, "/tmp/c6");
    same(strings(&["a"]), scene.list("/tmp/c6"))?;
    let deleted = report["deletedPaths"].as_array().unwrap();
    ensure(deleted.contains(&"old.txt".into()), || report.to_string())?;
    same(2, report["deleted"].as_u64().unwrap())?;
    let to = scene.directory("c6-out", &[("old.txt", "o"), ("d/x", "x")]);
    let report = scene.out(&["--mirror"], "/tmp/c6", &to);
    same(strings(&["a"]), list(&to))?;
    same(2, report["deleted"].as_u64().unwrap())
}

fn mirror_keeps(scene: &Scene<'_>) -> Checked {
    let from = scene.directory("c7", &[("a", "1"), (".gitignore", "*.log\n")]);
    scene.sh("mkdir -p /tmp/c7/node_modules; cd /tmp/c7; touch node_modules/x keep.log old");
    let options = ["--mirror", "--exclude", "node_modules/**"];
    scene.copy_in(&options, &from, "/tmp/c7");
    let kept = [".gitignore", "a", "keep.log", "node_modules", "node_modules/x"];
    same(strings(&kept), scene.list("/tmp/c7"))?;
    // The ignore file of the destination protects as well.
    let files =
        [("keep.log", "k"), ("old", "o"), ("node_modules/x", "x"), (".gitignore", "*.log\n")];
    let to = scene.directory("c7-out", &files);
    scene.sh("mkdir /tmp/c7b && cd /tmp/c7b && echo 1 > a");
    scene.out(&options, "/tmp/c7b", &to);
    same(strings(&["a", "keep.log", "node_modules", "node_modules/x"]), list(&to))
}

fn unreadable_source(scene: &Scene<'_>) -> Checked {
    // Inside, the user of commands is not root, also if root runs the test.
    scene.sh("mkdir -p /tmp/c8/secret && cd /tmp/c8 && echo 1 > a && mkfifo pipe");
    scene.sh("chmod 0 /tmp/c8/secret");
    let to = scene.directory("c8-out", &[("old", "o")]);
    let refused = scene.sync(&["--mirror"], &scene.inside("/tmp/c8"), to.to_str().unwrap());
    let is_read = refused.status.success();
    if is_read {
        // A runtime that reads everything finds no error; then it is a mirror as any other.
        return same(strings(&["a"]), list(&to));
    }
    ensure(refused.stdout.contains("ACCESS_DENIED"), || refused.to_string())?;
    same(strings(&["old"]), list(&to))?;
    let report = scene.out(&[], "/tmp/c8", &to);
    same(strings(&["a", "old"]), list(&to))?;
    same(Some("special_file".to_owned()), reason(&report, "pipe"))
}

fn repository(scene: &Scene<'_>, name: &str) -> std::path::PathBuf {
    let directory = scene.directory(name, &[("v", "1")]);
    git(scene, &directory, &["init", "--quiet", "--initial-branch=main"]);
    git(scene, &directory, &["add", "."]);
    git(scene, &directory, &["commit", "--quiet", "--message=start"]);
    directory
}

fn git(scene: &Scene<'_>, directory: &std::path::Path, words: &[&str]) -> String {
    let mut command = Command::new("git");
    command.current_dir(directory).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command.env("HOME", scene.world.home());
    command.args(["-c", "user.name=Test", "-c", "user.email=test@localhost"]).args(words);
    scene.world.identity.assume(&mut command);
    let output = command.output().unwrap();
    assert!(output.status.success(), "git {words:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn commit(scene: &Scene<'_>) -> Checked {
    let to = repository(scene, "c9-out");
    scene.sh(
        "mkdir -p '/tmp/c9/d d' && cd /tmp/c9 && echo 2 > 'd d/n\"w' && echo 3 > x && chmod +x x",
    );
    let report = scene.out(&["--commit", "-m", "m"], "/tmp/c9", &to);
    let id = report["commitId"].as_str().ok_or_else(|| report.to_string())?;
    same(id.to_owned(), git(scene, &to, &["rev-parse", "HEAD"]))?;
    same("m".to_owned(), git(scene, &to, &["log", "-1", "--format=%s"]))?;
    same("2".to_owned(), git(scene, &to, &["rev-list", "--count", "HEAD"]))?;
    same(String::new(), git(scene, &to, &["status", "--porcelain"]))?;
    same(String::new(), git(scene, &to, &["for-each-ref", "refs/stockade"]))?;
    same("100755".to_owned(), git(scene, &to, &["ls-tree", "HEAD", "x"])[..6].to_owned())?;
    let event = scene.event("SYNC_TO_VFS_COMPLETED");
    same(&Value::from(id), &event["data"]["commitId"])?;
    // A directory that is in no repository is refused before anything is copied.
    let plain = scene.directory("c9-plain", &[]);
    let refused = scene.sync(&["--commit"], &scene.inside("/tmp/c9"), plain.to_str().unwrap());
    ensure(refused.stdout.contains("INVALID_INPUT"), || refused.to_string())?;
    same(Vec::<String>::new(), list(&plain))
}

fn no_change(scene: &Scene<'_>) -> Checked {
    let to = repository(scene, "c10-out");
    scene.sh("mkdir /tmp/c10 && echo 2 > /tmp/c10/n");
    scene.out(&["--commit", "-m", "one"], "/tmp/c10", &to);
    let report = scene.out(&["--commit", "-m", "two"], "/tmp/c10", &to);
    same((true, 1), (report["commitId"].is_null(), report["unchanged"].as_u64().unwrap()))?;
    same("one".to_owned(), git(scene, &to, &["log", "-1", "--format=%s"]))
}

fn both_changed(scene: &Scene<'_>) -> Checked {
    let vfs = scene.directory("c11", &[("f", "v1"), ("g", "g1")]);
    scene.copy_in(&[], &vfs, "/tmp/c11");
    scene.world.plant(&vfs.join("f"), "v2");
    scene.sh("cd /tmp/c11 && printf v3 > f && printf g2 > g");
    let outcome = scene.sync(&[], &scene.inside("/tmp/c11"), vfs.to_str().unwrap());
    ensure(outcome.status.code() == Some(1), || outcome.to_string())?;
    let report = outcome.json();
    let conflict = &report["conflictPaths"][0];
    let hashes = ["base", "vfs", "container"].map(|side| conflict[side].as_str().unwrap().len());
    same(([64; 3], false), (hashes, report["completed"].as_bool().unwrap()))?;
    same(("v2".to_owned(), "g1".to_owned()), (read(&vfs.join("f")), read(&vfs.join("g"))))?;
    scene.out(&["--conflict", "skip"], "/tmp/c11", &vfs);
    same(("v2".to_owned(), "g2".to_owned()), (read(&vfs.join("f")), read(&vfs.join("g"))))?;
    let report = scene.out(&["--conflict", "container_wins"], "/tmp/c11", &vfs);
    same("v3".to_owned(), read(&vfs.join("f")))?;
    same((1, 1), (report["conflicts"].as_u64().unwrap(), report["copied"].as_u64().unwrap()))
}

fn both_alike(scene: &Scene<'_>) -> Checked {
    let vfs = scene.directory("c12", &[("f", "v1")]);
    scene.copy_in(&[], &vfs, "/tmp/c12");
    scene.world.plant(&vfs.join("f"), "v2");
    scene.sh("printf v2 > /tmp/c12/f");
    let report = scene.out(&[], "/tmp/c12", &vfs);
    same((0, 1), (report["conflicts"].as_u64().unwrap(), report["unchanged"].as_u64().unwrap()))
}

fn deleted_and_modified(scene: &Scene<'_>) -> Checked {
    let vfs = scene.directory("c13", &[("f", "v1"), ("g", "v1"), ("h", "v1"), ("i", "v1")]);
    scene.copy_in(&["--two-way"], &vfs, "/tmp/c13");
    fs::remove_file(vfs.join("f")).unwrap();
    fs::remove_file(vfs.join("h")).unwrap();
    scene.world.plant(&vfs.join("g"), "v2");
    scene.world.plant(&vfs.join("new"), "n");
    scene.sh("cd /tmp/c13 && printf v2 > f && rm g i && echo m > more");
    let report = scene.copy_in(&["--two-way"], &vfs, "/tmp/c13");
    let both = strings(&["f", "g", "more", "new"]);
    same(both.clone(), scene.list("/tmp/c13"))?;
    same(both, list(&vfs))?;
    same(("v2".to_owned(), "v2".to_owned()), (read(&vfs.join("f")), read(&vfs.join("g"))))?;
    same((0, 2), (report["conflicts"].as_u64().unwrap(), report["deleted"].as_u64().unwrap()))
}

fn size_limit(scene: &Scene<'_>) -> Checked {
    let from = scene.directory("c14", &[("f", "01234567890"), ("g", "0123456789")]);
    let report = scene.copy_in(&["--max-file", "10"], &from, "/tmp/c14");
    same(strings(&["g"]), scene.list("/tmp/c14"))?;
    same(Some("too_large".to_owned()), reason(&report, "f"))?;
    let fail = ["--max-file", "10", "--large-files", "fail"];
    let refused = scene.sync(&fail, from.to_str().unwrap(), &scene.inside("/tmp/c14b"));
    ensure(refused.stdout.contains("SYNC_TOO_LARGE"), || refused.to_string())?;
    same(Vec::<String>::new(), scene.list("/tmp/c14b"))?;
    for options in [["--max-files", "1"], ["--max-size", "12"]] {
        let refused = scene.sync(&options, from.to_str().unwrap(), &scene.inside("/tmp/c14c"));
        ensure(refused.stdout.contains("SYNC_TOO_LARGE"), || refused.to_string())?;
    }
    same(Vec::<String>::new(), scene.list("/tmp/c14c"))
}

fn link_inside(scene: &Scene<'_>) -> Checked {
    let from = scene.directory("c15", &[("a", "1"), ("d/x", "2")]);
    symlink("./a", from.join("l")).unwrap();
    symlink("../a", from.join("d/up")).unwrap();
    scene.copy_in(&[], &from, "/tmp/c15");
    same("./a\n../a\n".to_owned(), scene.sh("cd /tmp/c15; readlink l d/up"))?;
    let to = scene.directory("c15-out", &[]);
    scene.out(&[], "/tmp/c15", &to);
    same(fs::read_link(to.join("l")).unwrap().as_path(), std::path::Path::new("./a"))
}

fn link_leaving(scene: &Scene<'_>) -> Checked {
    let from = scene.directory("c16", &[("a", "1")]);
    symlink("/etc/passwd", from.join("l")).unwrap();
    symlink("../../x", from.join("m")).unwrap();
    let report = scene.copy_in(&[], &from, "/tmp/c16");
    same(strings(&["a"]), scene.list("/tmp/c16"))?;
    same(Some("unsafe_link".to_owned()), reason(&report, "l"))?;
    same(Some("unsafe_link".to_owned()), reason(&report, "m"))?;
    scene.sh(
        "cd /tmp/c16 && ln -s /etc/passwd l && ln -s ../../x m && mkdir d && ln -s a/../../.. d/n",
    );
    let to = scene.directory("c16-out", &[]);
    let report = scene.out(&[], "/tmp/c16", &to);
    same(strings(&["a"]), list(&to))?;
    for path in ["l", "m", "d/n"] {
        same(Some("unsafe_link".to_owned()), reason(&report, path))?;
    }
    Ok(())
}

fn planted_link(scene: &Scene<'_>) -> Checked {
    let from = scene.directory("c17", &[("out/f", "mine")]);
    scene.sh("mkdir -p /tmp/c17/w /tmp/c17/etc && ln -s /tmp/c17/etc /tmp/c17/w/out");
    for options in [&[][..], &["--mirror"]] {
        let refused = scene.sync(options, from.to_str().unwrap(), &scene.inside("/tmp/c17/w"));
        ensure(refused.status.code() == Some(1), || refused.to_string())?;
    }
    let below = from.join("out");
    let refused = scene.sync(&[], below.to_str().unwrap(), &scene.inside("/tmp/c17/w/out"));
    ensure(refused.stdout.contains("PATH_REFUSED"), || refused.to_string())?;
    same(Vec::<String>::new(), scene.list("/tmp/c17/etc"))
}

fn odd_names(scene: &Scene<'_>) -> Checked {
    let names = [
        "a b",
        "\u{fc}",
        "u\u{308}",
        "new\nline",
        "-rf",
        "*.txt",
        "CON",
        "A",
        "a",
        "$(id)",
        "`id`",
    ];
    let files: Vec<_> = names.iter().map(|name| (*name, *name)).collect();
    let from = scene.directory("c18", &files);
    scene.copy_in(&[], &from, "/tmp/c18");
    let to = scene.directory("c18-out", &[]);
    scene.out(&[], "/tmp/c18", &to);
    same(list(&from), list(&to))?;
    for name in names {
        same(name.to_owned(), read(&to.join(name)))?;
    }
    same(
        names.len().to_string(),
        scene.sh("find /tmp/c18 -type f -print0 | tr -dc '\\0' | wc -c").trim().to_owned(),
    )
}

fn no_utf8(scene: &Scene<'_>) -> Checked {
    let from = scene.directory("c19", &[]);
    let name = OsStr::from_bytes(b"a\xff");
    fs::write(from.join(name), "bytes").unwrap();
    scene.world.chown(&from.join(name));
    let report = scene.copy_in(&[], &from, "/tmp/c19");
    same(&serde_json::json!([{ "base64": "Yf8=" }]), &report["copiedPaths"])?;
    let to = scene.directory("c19-out", &[]);
    scene.out(&[], "/tmp/c19", &to);
    same("bytes".to_owned(), fs::read_to_string(to.join(name)).map_err(|it| it.to_string())?)
}

fn crash(scene: &Scene<'_>) -> Checked {
    let text = "0123456789abcdef".repeat(4096);
    let names: Vec<_> = (0..300).map(|number| format!("d{}/f{number}", number % 7)).collect();
    let files: Vec<_> = names.iter().map(|name| (name.as_str(), text.as_str())).collect();
    let from = scene.directory("c20", &files);
    let to = scene.directory("c20-out", &[("d0/f0", "old")]);
    let running = scene.world.data().join("sync/running");
    let (from_text, inside) = (from.to_str().unwrap().to_owned(), scene.inside("/tmp/c20"));
    for (source, target) in
        [(from_text.as_str(), inside.as_str()), (inside.as_str(), to.to_str().unwrap())]
    {
        let words = ["sync", "--mirror", "--json", source, target];
        let started = scene.world.stockade(&words).deadline(120).start();
        wait_until("the synchronization is at work", || {
            fs::read_dir(&running).is_ok_and(|mut entries| entries.next().is_some())
        });
        kill_server(&scene.world.data());
        // The command finds the next server, or fails because its own one was killed.
        drop(started.finish());
        scene.call(&["ls"]).succeeds();
        wait_until("the next server has ended the work", || {
            fs::read_dir(&running).is_ok_and(|mut entries| entries.next().is_none())
        });
    }
    let is_whole = |path: &std::path::Path| read(path) == text;
    ensure(names.iter().all(|name| is_whole(&to.join(name))), || "a file is not whole".to_owned())?;
    same(307, list(&to).len())?;
    same(307, scene.list("/tmp/c20").len())?;
    let events = scene.call(&["events", &scene.id, "--json", "--type", "SYNC_FROM_VFS_COMPLETED"]);
    let of_this = events.stdout.lines().filter(|line| line.contains("\"copied\":300")).count();
    same(1, of_this)?;
    same(300, scene.event("SYNC_TO_VFS_COMPLETED")["data"]["copied"].as_u64().unwrap())
}

fn access_rules(world: &World) -> Checked {
    let rules = ["--access", "allow:readwrite:/tmp", "--access", "deny:read:/tmp/w/secret"];
    let scene = Scene::new(world, &rules);
    let from = scene.directory("c21", &[("a", "1"), ("secret/key", "k"), ("secretly", "s")]);
    let report = scene.copy_in(&[], &from, "/tmp/w");
    same(Some("access_denied".to_owned()), reason(&report, "secret/key"))?;
    let to = scene.directory("c21-out", &[("secret/key", "own")]);
    let report = scene.out(&["--mirror"], "/tmp/w", &to);
    same(strings(&["a", "secret", "secret/key", "secretly"]), list(&to))?;
    same("own".to_owned(), read(&to.join("secret/key")))?;
    if let Some(reason) = reason(&report, "secret") {
        same("access_denied".to_owned(), reason)?;
    }
    Ok(())
}

fn no_write(scene: &Scene<'_>) -> Checked {
    let world = scene.world;
    scene.sh("mkdir -p /tmp/c22 && echo 1 > /tmp/c22/a");
    let to = scene.directory("c22-out", &[]);
    let refused = if world.identity == Identity::User {
        fs::set_permissions(&to, fs::Permissions::from_mode(0o555)).unwrap();
        scene.sync(&[], &scene.inside("/tmp/c22"), to.to_str().unwrap())
    } else {
        // Root may write everywhere; a client of another machine may not.
        let elsewhere = World::new(world.identity);
        let server = Server::start(&elsewhere, &["--allow-no-keys"]);
        let url = format!("http://localhost:{}", server.port);
        let words = ["--server", &url, "sync", "--json", "box:/tmp/c22", to.to_str().unwrap()];
        world.stockade(&words).env("STOCKADE_API_KEY", "none").finish()
    };
    ensure(refused.stdout.contains("VFS_FORBIDDEN"), || refused.to_string())?;
    same(Vec::<String>::new(), list(&to))?;
    same(0, fs::metadata(&to).unwrap().mode() & 0o7000)
}

as_root_and_as_user!(cases);
