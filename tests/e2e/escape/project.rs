//! What a command can leave in the project's view, and what of it is applied.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt};

use crate::harness::World;
use crate::host::Tree;

/// Reviews the changes of a script, applies all that can be applied, and returns the manifest.
fn apply_all(world: &World, script: &str) -> serde_json::Value {
    world.review(script);
    let diff = world.stockade(&["diff", "latest", "--json"]).finish();
    diff.succeeds();
    world.stockade(&["apply", "latest", "--allow-executed"]).finish();
    diff.json()
}

fn special_files(world: &World) {
    let script = "mkfifo pipe src/pipe; python3 -c \
        'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")' 2>/dev/null; \
        mknod device c 1 3; mknod disk b 8 0; echo fine > fine; true";
    apply_all(world, script);
    assert_eq!(world.read("fine"), "fine\n", "what is harmless is applied");
    for (path, _) in Tree::of(&world.project).entries {
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        assert!(
            !kind.is_fifo()
                && !kind.is_socket()
                && !kind.is_char_device()
                && !kind.is_block_device(),
            "{} was applied",
            path.display()
        );
    }
}

/// A FIFO instead of a file: neither the bundle nor the diff may block on a writer.
fn pipe_instead_of_a_file(world: &World) {
    let script = "rm a.txt; mkfifo a.txt; rm -r src; mkfifo src; rm .gitignore; mkfifo .gitignore";
    let outcome =
        world.stockade(&["run", "--review", "--", "sh", "-c", script]).deadline(30).finish();
    outcome.succeeds();
    world.stockade(&["diff", "latest"]).deadline(30).finish().succeeds();
    world.stockade(&["apply", "latest"]).deadline(30).finish();
    for name in ["a.txt", "src", ".gitignore"] {
        let is_pipe = fs::symlink_metadata(world.project.join(name))
            .is_ok_and(|metadata| metadata.file_type().is_fifo());
        assert!(!is_pipe, "{name} is a pipe");
    }
}

/// The project itself contains a FIFO and a socket, created by the host.
fn pipes_of_the_host(world: &World) {
    let path = world.project.join("host-pipe");
    world.on_host("/usr/bin/mkfifo".as_ref(), &[&path]).finish().succeeds();
    let outcome = world.run(&["--review"], &["sh", "-c", "echo x > new; rm a.txt"]);
    outcome.succeeds();
    world.stockade(&["apply", "latest"]).deadline(30).finish().succeeds();
    assert!(fs::symlink_metadata(&path).unwrap().file_type().is_fifo());
    assert!(world.has("new"));
}

fn links_that_leave(world: &World) {
    world.plant(&world.outside().join("canary"), "host\n");
    let outside = Tree::of(&world.outside());
    let script = "ln -s /etc/passwd absolute; ln -s ../outside up; ln -s ../outside/canary file; \
        ln -s src/../../outside roundabout; mkdir d; ln -s ../../outside d/deep; \
        ln -s /proc/self/root root; ln -s \"$PWD\" self; ln -s src inside; ln -s missing dangling; \
        ln -s inside/../../outside through; rm -r src/deep; ln -s ../../outside src/deep";
    apply_all(world, script);
    for (path, _) in Tree::of(&world.project).entries {
        let Ok(target) = fs::read_link(&path) else { continue };
        let lexical = path.parent().unwrap().join(&target);
        assert!(target.is_relative(), "{} -> {} was applied", path.display(), target.display());
        if let Ok(real) = fs::canonicalize(&lexical) {
            assert!(
                real.starts_with(fs::canonicalize(&world.project).unwrap()),
                "{} leads to {}",
                path.display(),
                real.display()
            );
        }
    }
    assert!(world.has("inside"), "a link that stays is applied");
    outside.assert_same(&Tree::of(&world.outside()), "what is outside");
}

/// Two bundles: the first creates a symbolic link, the second writes through it.
fn link_then_write_through_it(world: &World) {
    let outside = Tree::of(&world.outside());
    apply_all(world, "ln -s ../outside way; ln -s src alias");
    apply_all(world, "mkdir -p way; echo x > way/made; echo x > alias/made; rm -f way/canary");
    outside.assert_same(&Tree::of(&world.outside()), "what is outside");
}

fn hard_links(world: &World) {
    let script = "ln a.txt linked; ln src/main.rs src/again; echo more >> linked; \
        echo one > one; ln one two; ln one src/three";
    apply_all(world, script);
    assert_eq!(world.read("linked"), "alpha\nmore\n");
    for (path, _) in Tree::of(&world.project).entries {
        let metadata = fs::symlink_metadata(&path).unwrap();
        if metadata.is_file()
            && !path.ends_with("probe")
            && !path.starts_with(world.project.join(".git"))
        {
            assert_eq!(metadata.nlink(), 1, "{} shares its inode", path.display());
        }
    }
}

/// A hard link to a file outside the project: a write inside does not change that file.
fn hard_link_of_the_host(world: &World) {
    let twin = world.outside().join("twin");
    fs::hard_link(world.project.join("a.txt"), &twin).unwrap();
    apply_all(world, "echo changed > a.txt; chmod 600 a.txt");
    assert_eq!(world.read("a.txt"), "changed\n");
    assert_eq!(fs::read_to_string(&twin).unwrap(), "alpha\n", "written through the hard link");
}

/// Hooks and configuration run on the host: nothing of `.git` is ever applied, under any name that
/// some file system treats as equal.
fn git_directory_is_never_applied(world: &World) {
    let git = Tree::of(&world.project.join(".git"));
    let script = "printf '#!/bin/sh\\ntouch /tmp/owned\\n' > .git/hooks/post-checkout; \
        chmod +x .git/hooks/post-checkout; git config core.fsmonitor 'touch /tmp/owned'; \
        echo '[core] sshCommand = touch /tmp/owned' >> .git/config; rm -f .git/index; \
        echo evil > .git/HEAD; mkdir -p sub/.git/hooks; echo x > sub/.git/hooks/pre-commit; \
        echo 'gitdir: /tmp/elsewhere' > src/.git; mkdir -p a/.GIT/hooks; echo x > a/.GIT/config; \
        mkdir b; echo x > b/.Git; mkdir \"c\"; echo x > 'c/.git '; echo x > 'c/.git.'; \
        echo x > 'c/git~1'; echo x > \"$(printf 'c/.g\\342\\200\\214it')\"; \
        mkdir -p bare/objects bare/refs bare/hooks; echo 'ref: refs/heads/x' > bare/HEAD; \
        printf '[core]\\n\\tfsmonitor = touch /tmp/owned\\n' > bare/config; \
        ln -s .git/hooks hooks-link; echo fine > fine; true";
    apply_all(world, script);
    git.assert_same(&Tree::of(&world.project.join(".git")), "the repository");
    assert_eq!(world.read("fine"), "fine\n");
    for (path, _) in Tree::of(&world.project).entries {
        let name = path.file_name().unwrap().to_string_lossy().to_lowercase();
        let disguised: String = name
            .chars()
            .filter(|c| *c != '\u{200c}')
            .collect::<String>()
            .trim_end_matches([' ', '.'])
            .to_owned();
        let is_own = path == world.project.join(".git");
        assert!(is_own || !matches!(disguised.as_str(), ".git" | "git~1"), "{}", path.display());
        if path != world.project.join(".git") {
            let bare = path.join("HEAD").exists()
                && path.join("objects").exists()
                && path.join("refs").exists();
            assert!(!bare, "{} is a bare repository", path.display());
        }
    }
    // Git on the host sees a valid repository and runs nothing.
    world.git(&["status"]);
    assert!(!std::path::Path::new("/tmp/owned").exists());
}

/// The project's root is itself made a bare repository, beside its existing `.git`.
fn root_as_bare_repository(world: &World) {
    apply_all(
        world,
        "mkdir objects refs; echo 'ref: refs/heads/x' > HEAD; \
        printf '[core]\\n\\tbare = true\\n\\tfsmonitor = touch /tmp/owned\\n' > config; true",
    );
    let bare = ["HEAD", "objects", "refs", "config"].map(|name| world.has(name));
    assert!(bare.contains(&false), "the root is a bare repository");
    world.git(&["status"]);
    assert!(!std::path::Path::new("/tmp/owned").exists());
}

/// A bare repository in parts, each from a separate run that did not see the others: each part
/// alone was harmless when it was made, in whichever order they are applied.
fn bare_repository_in_parts(world: &World) {
    let config =
        "[core]\\n\\tbare = false\\n\\tworktree = .\\n\\tfsmonitor = touch /tmp/owned; false\\n";
    let head = format!(
        "mkdir -p lib/x; echo 'ref: refs/heads/x' > lib/HEAD; printf '{config}' > lib/config; true"
    );
    let rest = "mkdir -p lib/objects lib/refs; touch lib/objects/.keep lib/refs/.keep";
    for parts in [[head.as_str(), rest], [rest, head.as_str()]] {
        let made = parts.map(|script| {
            world.review(script).succeeds();
            let newest = &world.bundles()[0];
            newest["id"].as_str().unwrap().to_owned()
        });
        for id in &made {
            world.stockade(&["apply", id]).finish();
        }
        let lib = world.project.join("lib");
        let whole = ["HEAD", "objects", "refs"].iter().all(|name| lib.join(name).exists());
        assert!(!whole, "lib is a repository of a sandbox's making");
        let mut git = std::process::Command::new("git");
        git.arg("status").current_dir(&lib).output().unwrap();
        assert!(!std::path::Path::new("/tmp/owned").exists());
        fs::remove_dir_all(lib).unwrap();
        for bundle in world.bundles() {
            world.stockade(&["reject", bundle["id"].as_str().unwrap()]).finish().succeeds();
        }
    }
}

/// A repository that the command deleted inside still exists.
fn deleting_the_repository(world: &World) {
    let git = Tree::of(&world.project.join(".git"));
    world.review("rm -rf .git a.txt");
    world.stockade(&["apply", "latest"]).finish();
    git.assert_same(&Tree::of(&world.project.join(".git")), "the repository");
}

/// Extended attributes that the overlay interprets: `opaque` would delete, `redirect` would fetch.
fn overlay_attributes(world: &World) {
    world.write("kept/one", "1\n");
    world.write("kept/two", "2\n");
    let script = "./probe overlay-attributes kept; ./probe overlay-attributes src; \
        ./probe overlay-attributes .; echo 3 > kept/three; touch src/new";
    apply_all(world, script);
    for name in ["kept/one", "kept/two", "kept/three", "src/main.rs", "src/new", "a.txt"] {
        assert!(world.has(name), "{name} is gone");
    }
    assert!(!world.has("kept/passwd") && !world.has("src/passwd"));
}

/// A redirect is trusted only where nothing inside can write it: an invented one neither shows what is
/// elsewhere nor removes anything, before and after a rename that the overlay records.
fn invented_renames(world: &World) {
    world.write("kept/one", "1\n");
    world.write("moved/two", "2\n");
    let before = Tree::of(&world.project.join("kept"));
    let probe = world.shell("mkdir fake && ./probe host-attributes fake kept src .");
    assert!(probe.stdout.contains("held:"), "{probe}");
    let set = |path: &str| {
        format!(
            "python3 -c 'import os, sys; [os.setxattr(\"{path}\", \"user.overlay.\" + name, value) \
             for name, value in [(\"redirect\", b\"/kept\"), (\"opaque\", b\"y\")]]' || true; "
        )
    };
    let script = format!(
        "mkdir fake; {} {} mv moved away; {} ./probe host-attributes away fake .; ls fake",
        set("fake"),
        set("moved"),
        set("away"),
    );
    let outcome = world.review(&script);
    assert!(!outcome.stdout.contains("one"), "{outcome}");
    world.stockade(&["apply", "latest"]).finish().succeeds();
    before.assert_same(&Tree::of(&world.project.join("kept")), "the other directory");
    assert!(world.has("away/two") && !world.has("moved") && !world.has("fake/one"));
}

/// Names that the overlay itself uses for deleted files.
fn whiteout_names(world: &World) {
    let script = "touch .wh.a.txt src/.wh..wh..opq; mkdir work index; touch '#1' '#work'";
    apply_all(world, script);
    assert!(world.has("a.txt") && world.has("src/main.rs"));
    assert!(world.has(".wh.a.txt"));
}

/// The owner can review and reject files that they may not read or enter.
fn unreadable_files(world: &World) {
    let script = "mkdir -p dark/er; echo x > dark/er/file; echo secret > closed; chmod 000 closed; \
        chmod 000 dark/er; chmod 000 dark; chmod 000 src; chmod 000 a.txt; chmod 1777 . 2>/dev/null; true";
    let outcome = world.run(&["--discard"], &["sh", "-c", script]);
    outcome.succeeds();
    let left: Vec<_> =
        fs::read_dir(world.data().join("views")).into_iter().flatten().flatten().collect();
    assert!(left.is_empty(), "a discarded view is left: {left:?}");
    world.review(script);
    world.stockade(&["apply", "latest"]).finish().succeeds();
    let closed = fs::symlink_metadata(world.project.join("closed")).unwrap();
    assert_eq!((closed.permissions().mode() & 0o777, closed.size()), (0, 7));
    for name in ["src", "dark", "dark/er"] {
        fs::set_permissions(world.project.join(name), PermissionsExt::from_mode(0o755)).unwrap();
    }
    assert_eq!(world.read("dark/er/file"), "x\n");
    let left: Vec<_> =
        fs::read_dir(world.data().join("views")).into_iter().flatten().flatten().collect();
    assert!(left.is_empty(), "an applied view is left: {left:?}");
}

/// Paths longer than any system call accepts.
fn deep_directories(world: &World) {
    let outcome = world
        .stockade(&["run", "--discard", "--", "./probe", "deep-directories", "1500"])
        .deadline(60)
        .finish();
    outcome.is_blocked();
    let left: Vec<_> =
        fs::read_dir(world.data().join("views")).into_iter().flatten().flatten().collect();
    assert!(left.is_empty(), "a discarded view is left: {left:?}");
    let outcome = world
        .stockade(&["run", "--review", "--", "./probe", "deep-directories", "1500"])
        .deadline(60)
        .finish();
    assert!(matches!(outcome.code(), 0 | 1 | 125), "{outcome}");
    assert!(!outcome.stderr.contains("panicked"), "{outcome}");
    world.on_host("/bin/rm".as_ref(), &["-rf".as_ref(), world.data().as_os_str()]).finish();
}

/// A sparse file of one hole with a huge size.
fn sparse_file(world: &World) {
    let size = (1_u64 << 40).to_string();
    let outcome = world
        .stockade(&["run", "--review", "--", "./probe", "sparse-file", "huge", &size])
        .deadline(60)
        .finish();
    assert!(!world.has("huge"));
    assert!(
        outcome.stdout.contains("refused") || outcome.stderr.contains("--max-bundle"),
        "the limit is named: {outcome}"
    );
    let used: u64 = Tree::of(&world.data())
        .entries
        .keys()
        .map(|path| fs::symlink_metadata(path).map_or(0, |metadata| metadata.blocks() * 512))
        .sum();
    assert!(used < 64 << 20, "{used} bytes on disk");
}

as_root_and_as_user![
    special_files,
    pipe_instead_of_a_file,
    pipes_of_the_host,
    links_that_leave,
    link_then_write_through_it,
    hard_links,
    hard_link_of_the_host,
    git_directory_is_never_applied,
    root_as_bare_repository,
    bare_repository_in_parts,
    deleting_the_repository,
    overlay_attributes,
    invented_renames,
    whiteout_names,
    unreadable_files,
    deep_directories,
    sparse_file,
];
