//! Vulnerabilities of other sandboxes for agents, from their issue trackers and advisories.

use std::fs;
use std::os::unix::fs::symlink;

use crate::harness::World;
use crate::host::Tree;

/// Files that tools of the host execute or apply automatically.
const EXECUTED: [&str; 18] = [
    ".envrc",
    ".claude/settings.json",
    ".claude/settings.local.json",
    ".mcp.json",
    ".cursor/mcp.json",
    ".codex/config.toml",
    ".gemini/settings.json",
    ".vscode/tasks.json",
    ".vscode/settings.json",
    ".idea/workspace.xml",
    ".husky/pre-commit",
    ".pre-commit-config.yaml",
    ".github/workflows/ci.yml",
    ".gitlab-ci.yml",
    ".cargo/config.toml",
    ".npmrc",
    ".git-hooks/pre-commit",
    ".devcontainer/devcontainer.json",
];

/// CVE-2026-25725 and claude-code #92901: a rule for a file has no effect while the file does not
/// exist, so the sandbox creates it and the host applies it.
fn absent_settings_are_not_made(world: &World) {
    for name in EXECUTED {
        let directory = name.rsplit_once('/').map_or(".", |(directory, _)| directory);
        world.review(&format!("mkdir -p {directory} && echo 'touch /tmp/owned' > {name}"));
        let outcome = world.stockade(&["apply", "latest"]).finish();
        assert!(!world.has(name), "{name} was applied without being asked for: {outcome}");
        let reject = world.stockade(&["reject", "latest", "--yes"]).finish();
        reject.succeeds();
    }
}

/// The same for files that already exist.
fn present_settings_are_not_changed(world: &World) {
    for name in EXECUTED {
        world.write(name, "before\n");
    }
    let change: String = EXECUTED.iter().map(|name| format!("echo after > {name}; ")).collect();
    world.review(&format!("{change} echo ordinary > ordinary"));
    world.stockade(&["apply", "latest"]).finish();
    for name in EXECUTED {
        assert_eq!(world.read(name), "before\n", "{name}");
    }
}

/// Claude-code #32226: a pattern that does not match in a subdirectory or another case.
fn settings_in_subdirectories(world: &World) {
    let names = [
        "sub/.envrc",
        "sub/.claude/settings.json",
        "sub/.vscode/tasks.json",
        "packages/x/.husky/pre-push",
        ".ENVRC",
        ".Claude/Settings.json",
        "sub/.MCP.json",
    ];
    for name in names {
        let directory = name.rsplit_once('/').map_or(".", |(directory, _)| directory);
        world.review(&format!("mkdir -p {directory} && echo x > {name}"));
        world.stockade(&["apply", "latest"]).finish();
        assert!(!world.has(name), "{name} was applied without being asked for");
        world.stockade(&["reject", "latest", "--yes"]).finish();
    }
}

/// Codex #18043: masks and mount points leave empty files in the workspace.
fn no_placeholders_are_left(world: &World) {
    let before = Tree::of(&world.project);
    let shared = world.path("shared");
    world.plant(&shared.join("file"), "x");
    let target = world.project.join("not/there/yet");
    let option = format!("{}:{}", shared.display(), target.display());
    for options in [&["--review"][..], &["--discard"], &["--apply"]] {
        world.run(options, &["true"]).succeeds();
        before.assert_same(&Tree::of(&world.project), "the project");
        let mut with_mount = options.to_vec();
        with_mount.extend(["--mount", &option]);
        let outcome = world.run(&with_mount, &["true"]);
        assert!(matches!(outcome.code(), 0 | 2 | 125), "{outcome}");
        before.assert_same(&Tree::of(&world.project), "the project");
    }
    assert!(world.bundles().is_empty(), "a bundle without a change: {:?}", world.bundles());
    assert_eq!(world.git(&["status", "--porcelain"]), "");
}

/// Codex #15725 and #20716, claude-code #45451: a protected directory that is a symbolic link.
fn protected_directory_is_a_link(world: &World) {
    let elsewhere = world.path("elsewhere");
    fs::rename(world.project.join(".git"), &elsewhere).unwrap();
    symlink(&elsewhere, world.project.join(".git")).unwrap();
    symlink(world.outside(), world.project.join(".claude")).unwrap();
    symlink("/does/not/exist", world.project.join(".vscode")).unwrap();
    let before = Tree::of(&elsewhere);
    let outside = Tree::of(&world.outside());
    let outcome = world.run(
        &["--review"],
        &[
            "sh",
            "-c",
            "echo x > new; echo y > .git/hooks/x; \
        echo y > .claude/settings.json; true",
        ],
    );
    assert!(matches!(outcome.code(), 0 | 125), "{outcome}");
    assert!(!outcome.stderr.contains("panicked"), "{outcome}");
    if outcome.code() == 0 {
        world.stockade(&["apply", "latest"]).finish();
    }
    before.assert_same(&Tree::of(&elsewhere), "the repository");
    outside.assert_same(&Tree::of(&world.outside()), "what is outside");
}

/// A worktree: `.git` is a file and the repository is elsewhere; it is visible and read-only.
fn git_worktree(world: &World) {
    let tree = world.path("tree");
    world.git(&["worktree", "add", "--quiet", tree.to_str().unwrap(), "-b", "side"]);
    let repository = Tree::of(&world.project.join(".git"));
    let script = "git log --oneline && git status --porcelain; echo x > ../project/.git/hooks/evil; \
        echo '[core]' >> ../project/.git/config; echo new > new; true";
    let outcome =
        world.stockade(&["run", "--review", "--", "sh", "-c", script]).current_dir(&tree).finish();
    outcome.succeeds();
    assert!(outcome.stdout.contains("start"), "history is visible: {outcome}");
    world.stockade(&["apply", "latest"]).current_dir(&tree).finish().succeeds();
    assert!(tree.join("new").exists());
    repository.assert_same(&Tree::of(&world.project.join(".git")), "the repository");
    assert!(!world.has("new"), "the other tree is not the project");
}

/// A `.git` file that the project itself wrote and that names a foreign directory: it must not make
/// that directory visible.
fn forged_worktree(world: &World) {
    let secret = world.home().join(".ssh");
    world.plant(&secret.join("id_ed25519"), "a secret of the host\n");
    for name in ["HEAD", "commondir", "gitdir"] {
        world.plant(&secret.join(name), "ref: refs/heads/main\n");
    }
    let forged = world.path("forged");
    fs::create_dir(&forged).unwrap();
    world.chown(&forged);
    for target in [secret.display().to_string(), "../home/.ssh".into(), "/".into(), "/etc".into()] {
        world.plant(&forged.join(".git"), &format!("gitdir: {target}\n"));
        let read = format!("cat {}/id_ed25519 /etc/shadow; ls -a /root", secret.display());
        let outcome = world
            .stockade(&["run", "--discard", "--", "sh", "-c", &read])
            .current_dir(&forged)
            .finish();
        assert!(!outcome.stdout.contains("a secret of the host"), "{target}: {outcome}");
        assert!(!outcome.stdout.contains("root:"), "{target}: {outcome}");
    }
}

/// The same where the project is below a directory called `worktrees`, a common place for agents'
/// projects: if a project names itself as its git directory, the directory above must not be taken
/// for the repository.
fn forged_worktree_below_worktrees(world: &World) {
    let secret = world.home().join(".ssh/id_ed25519");
    world.plant(&secret, "a secret of the host\n");
    let forged = world.home().join("worktrees/forged");
    for (name, content) in [
        (".git", "gitdir: .\n"),
        ("gitdir", ".git\n"),
        ("commondir", "../..\n"),
        ("HEAD", "ref: refs/heads/main\n"),
    ] {
        world.plant(&forged.join(name), content);
    }
    let read = format!("cat {}; ls -a {}", secret.display(), world.home().display());
    let outcome = world
        .stockade(&["run", "--discard", "--", "sh", "-c", &read])
        .current_dir(&forged)
        .finish();
    assert!(!outcome.stdout.contains("a secret of the host"), "{outcome}");
    assert!(!outcome.stdout.contains(".ssh"), "{outcome}");
}

/// CVE-2025-59532 (Codex): the boundary followed the working directory that the command chose.
fn boundary_does_not_follow_the_directory(world: &World) {
    let outside = world.outside().display().to_string();
    for directory in ["/", "/etc", "/usr", "..", "../outside", &outside, "/tmp/..", "src/../.."] {
        // A parent of the project is a new directory inside; whether it is writable does not
        // matter, because nothing of it is stored.
        world.run(&["--apply", "--cwd", directory], &["sh", "-c", "echo x > made"]);
        assert!(!world.path("made").exists(), "{directory}");
        assert!(!world.has("made"), "{directory}");
    }
    assert!(Tree::of(&world.outside()).entries.len() == 1);
    let inside = world.run(&["--apply", "--cwd", "src"], &["sh", "-c", "echo x > made"]);
    inside.succeeds();
    assert!(world.has("src/made"));
}

/// Started in a subdirectory, the whole project is the view and the working directory stays.
fn started_in_a_subdirectory(world: &World) {
    let outcome = world
        .stockade(&["run", "--discard", "--", "sh", "-c", "pwd; cat ../a.txt"])
        .current_dir(&world.project.join("src"))
        .finish();
    let wanted = format!("{}\nalpha\n", world.project.join("src").display());
    assert_eq!(outcome.stdout, wanted, "{outcome}");
}

/// An unavailable wall is a refusal: if no namespaces can be created, the command does not run.
fn no_silent_fallback(world: &World) {
    let command =
        format!("ulimit -n 3; exec {} run --discard -- sh -c 'echo ran'", world.binary().display());
    let outcome = world.on_host("/bin/sh".as_ref(), &["-c", &command]).finish();
    assert!(!outcome.stdout.contains("ran") && outcome.code() != 0, "{outcome}");
    assert!(!outcome.stderr.contains("panicked"), "{outcome}");
    // A user namespace without any mapped id, in which no mount or id map can be made.
    let binary = world.binary().display().to_string();
    let outcome = world
        .on_host(
            "/usr/bin/unshare".as_ref(),
            &["-U", &binary, "run", "--discard", "--", "echo", "ran"],
        )
        .finish();
    assert!(!outcome.stdout.contains("ran") || outcome.code() == 0, "{outcome}");
    if outcome.code() != 0 {
        outcome.is_refused();
    }
}

/// CVE-2026-39861 (Claude Code): a file is written through a symbolic link that the sandbox
/// created.
fn write_through_a_planted_link(world: &World) {
    world.plant(&world.outside().join("canary"), "host\n");
    let outside = Tree::of(&world.outside());
    let script = format!(
        "rm a.txt; ln -s {}/canary a.txt; echo owned > a.txt; rm -r src; \
         ln -s {} src; echo owned > src/canary; echo owned > src/made",
        world.outside().display(),
        world.outside().display()
    );
    let outcome = world.run(&["--apply"], &["sh", "-c", &script]);
    drop(outcome);
    outside.assert_same(&Tree::of(&world.outside()), "what is outside");
}

as_root_and_as_user![
    absent_settings_are_not_made,
    present_settings_are_not_changed,
    settings_in_subdirectories,
    no_placeholders_are_left,
    protected_directory_is_a_link,
    git_worktree,
    forged_worktree,
    forged_worktree_below_worktrees,
    boundary_does_not_follow_the_directory,
    started_in_a_subdirectory,
    no_silent_fallback,
    write_through_a_planted_link,
];
