//! Which paths are refused or executed by the host.

use std::convert::Infallible;

use super::*;
use crate::manifest::{Change, ContentHash, ExecutedBy};

fn path(text: &str) -> RelativePath {
    RelativePath::new(text).unwrap()
}

fn file() -> Node {
    Node::File { hash: ContentHash::of(b""), size: 0, mode: 0o644 }
}

fn link(target: &str) -> Node {
    Node::Symlink { target: target.as_bytes().to_vec() }
}

fn added(at: &str, new: Node) -> Entry {
    Entry {
        path: path(at),
        change: Change::Add { new },
        renamed_from: None,
        tree: None,
        ignored: false,
        refused: None,
        executed_by: None,
        conflict: false,
        base_known: false,
    }
}

#[test]
fn paths_in_a_git_directory_are_refused() {
    for at in [".git", ".git/config", "sub/.git/hooks/x", "a/.GIT/b", "git~1/x", "x/.git. /y"] {
        assert_eq!(
            refusal(&path(at), Some(&file()), b"/home/me/p"),
            Some(Refusal::GitDirectory),
            "{at}"
        );
        assert_eq!(refusal(&path(at), None, b"/home/me/p"), Some(Refusal::GitDirectory), "{at}");
    }
    for at in [".gitignore", "git/config", "a/x.git/config"] {
        assert_eq!(refusal(&path(at), Some(&file()), b"/home/me/p"), None, "{at}");
    }
}

#[test]
fn links_to_programs_and_into_the_project_do_not_leave() {
    for (at, target) in [
        ("bin/env", "/usr/bin/env"),
        (".venv/bin/python", "/usr//bin/./python3"),
        ("a", "/lib64/ld.so"),
        ("a", "/home/me/p/src/x"),
        ("d/a", "/home/me/p/d"),
        ("d/a", "../../p/x"),
    ] {
        assert_eq!(refusal(&path(at), Some(&link(target)), b"/home/me/p"), None, "{at} {target}");
    }
    for (at, target) in [
        ("a", "/usr"),
        ("a", "/usr/"),
        ("a", "/usr/../etc/passwd"),
        ("a", "/usr/bin/../../root"),
        ("a", "/usrx/bin"),
        ("a", "/home/me/p"),
        ("a", "/home/me/px/y"),
        ("a", "/home/me/p/../q"),
        ("a", "../q/x"),
        ("a", "../../../../../../usr/bin/env"),
    ] {
        let refused = refusal(&path(at), Some(&link(target)), b"/home/me/p");
        assert_eq!(refused, Some(Refusal::LinkLeaves), "{at} {target}");
    }
    let hooks = link("/home/me/p/.git/hooks");
    let refused = refusal(&path("a"), Some(&hooks), b"/home/me/p");
    assert_eq!(refused, Some(Refusal::GitDirectory));
}

#[test]
fn links_may_not_leave() {
    for (at, target) in [
        ("a", "/etc/passwd"),
        ("a", "/"),
        ("a", ".."),
        ("a", "../x"),
        ("d/a", "../../x"),
        ("d/a", ".././../x"),
        ("d/a", "x/../y"),
        ("d/a", "x/.."),
        ("d/a", "../x/.."),
        ("a", ""),
    ] {
        assert_eq!(
            refusal(&path(at), Some(&link(target)), b"/home/me/p"),
            Some(Refusal::LinkLeaves),
            "{at} {target}"
        );
    }
    for (at, target) in [
        ("a", "b"),
        ("a", "./b//c/"),
        ("d/a", "../b"),
        ("d/a", ".."),
        ("d/e/a", "../../b/c"),
        ("a", "..."),
    ] {
        assert_eq!(refusal(&path(at), Some(&link(target)), b"/home/me/p"), None, "{at} {target}");
    }
    assert_eq!(
        refusal(&path("a"), Some(&link(".git/hooks")), b"/home/me/p"),
        Some(Refusal::GitDirectory)
    );
    assert_eq!(
        refusal(&path("a"), Some(&link("sub/.GIT")), b"/home/me/p"),
        Some(Refusal::GitDirectory)
    );
}

#[test]
fn files_that_host_tools_run_are_known() {
    let cases = [
        (
            ExecutedBy::Hooks,
            vec![".husky/pre-commit", ".husky", "web/.husky/_/x", ".githooks/pre-push"],
        ),
        (ExecutedBy::Hooks, vec![".hg/hgrc", "lib/.HG/requires", ".jj/repo/config.toml", ".svn/x"]),
        (ExecutedBy::Hooks, vec![".pre-commit-config.yaml", "lefthook.yml", "lefthook.toml"]),
        (ExecutedBy::Hooks, vec![".gitmodules", ".gitattributes", "sub/.gitattributes"]),
        (ExecutedBy::Shell, vec![".envrc", "sub/.envrc", ".ENVRC", ".envrc.", ".mise.toml"]),
        (ExecutedBy::Shell, vec![".tool-versions", "mise.toml", ".config/mise/config.toml"]),
        (
            ExecutedBy::Editor,
            vec![".vscode/tasks.json", ".vscode/settings.json", ".vscode/launch.json"],
        ),
        (ExecutedBy::Editor, vec!["x.code-workspace", ".idea/workspace.xml", ".vim/x", ".exrc"]),
        (
            ExecutedBy::Editor,
            vec![".nvim.lua", ".devcontainer/devcontainer.json", ".devcontainer.json"],
        ),
        (
            ExecutedBy::Editor,
            vec![".claude/settings.json", ".cursor/rules/x", ".mcp.json", ".codex/x"],
        ),
        (ExecutedBy::Ci, vec![".github/workflows/ci.yml", ".github/actions/x/action.yml"]),
        (ExecutedBy::Ci, vec![".gitlab-ci.yml", ".circleci/config.yml", "Jenkinsfile", ".ci/run"]),
        (ExecutedBy::Ci, vec!["azure-pipelines.yml", ".travis.yml", "Jenkinsfile.release"]),
        (ExecutedBy::Build, vec![".cargo/config.toml", "a/.cargo/config", ".npmrc", ".yarnrc.yml"]),
        (
            ExecutedBy::Build,
            vec![
                "stockade.toml",
                "sub/Stockade.toml",
                ".pnpmfile.cjs",
                ".yarn/releases/yarn.cjs",
                "rust-toolchain.toml",
            ],
        ),
    ];
    let more = [
        (
            ExecutedBy::Shell,
            vec![".envrc.local", ".envrc-ci", "mise.production.toml", ".foo-version"],
        ),
        (
            ExecutedBy::Editor,
            vec![
                "AGENTS.md",
                "deep/in/CLAUDE.md",
                "GEMINI.md",
                "CLAUDE.local.md",
                ".qwen/settings.json",
                ".luarc.json",
                ".newagentrules",
                ".newagent/settings.json",
                ".newagent/mcp.json",
                ".newagent/hooks/start.sh",
                ".newagent/skills/x/run.py",
                ".newlintrc.cjs",
                ".cursorrules",
            ],
        ),
        (
            ExecutedBy::Ci,
            vec![".github/hooks/start.json", ".github/CODEOWNERS", ".readthedocs.yaml"],
        ),
        (ExecutedBy::Ci, vec![".new-ci.yml", ".newci/config", "release-pipeline.yaml"]),
        (
            ExecutedBy::Build,
            vec![".pnp.cjs", ".pnp.loader.mjs", ".yarnrc.new", "a/conf.gradle", "pip.conf"],
        ),
    ];
    for (by, paths) in cases.into_iter().chain(more) {
        for at in paths {
            assert_eq!(executed_by(&path(at), false), Some(by), "{at}");
        }
    }
    for at in [
        "src/main.rs",
        "config.toml",
        ".gitignore",
        "README.md",
        "github/workflows/x",
        "package.json",
        ".env",
        ".config",
        "Makefile",
        "docs/guide.md",
        "settings.json",
        "hooks/use.ts",
        "src/agents/list.rs",
        "vscode/tasks.json",
    ] {
        assert_eq!(executed_by(&path(at), false), None, "{at}");
    }
}

#[test]
fn a_link_in_the_place_of_a_known_directory_counts() {
    for (at, by) in [
        (".github", ExecutedBy::Ci),
        ("gradle", ExecutedBy::Build),
        (".vscode", ExecutedBy::Editor),
        (".cargo", ExecutedBy::Build),
        ("sub/.config", ExecutedBy::Hooks),
    ] {
        assert_eq!(executed_by(&path(at), true), Some(by), "{at}");
    }
    assert_eq!(executed_by(&path("docs"), true), None);
}

/// The paths refused as a bare repository when `new` is added to a project that contains `base`.
fn bare(base: &[&str], new: &[&str]) -> Vec<String> {
    let mut entries: Vec<Entry> = new.iter().map(|at| added(at, file())).collect();
    let holds =
        |at: &RelativePath| Ok::<_, Infallible>(base.iter().any(|have| path(have).is_within(at)));
    refuse_bare_repositories(&mut entries, holds).unwrap();
    let refused = entries.iter().filter(|e| e.refused == Some(Refusal::BareRepository));
    refused.map(|e| e.path.to_string()).collect()
}

#[test]
fn bare_repositories_are_refused_whole() {
    let all = ["d/HEAD", "d/objects/x", "d/refs/heads/main", "d/config", "d/hooks/x"];
    assert_eq!(bare(&[], &all), all);
    assert_eq!(bare(&["other"], &["d/HEAD", "d/objects", "d/config"]), Vec::<String>::new());
    assert_eq!(bare(&["d/objects/x", "d/refs/y"], &["d/HEAD", "a"]), ["d/HEAD"]);
    assert_eq!(bare(&["d/HEAD", "d/objects/x", "d/refs/y"], &["d/config", "e"]), ["d/config"]);
    assert_eq!(
        bare(&["d/HEAD", "d/refs"], &["d/sub/deep/x", "d/Objects/y"]),
        ["d/sub/deep/x", "d/Objects/y"]
    );
    assert_eq!(bare(&[], &["HEAD", "objects", "refs", "x"]), ["HEAD", "objects", "refs", "x"]);
    assert_eq!(
        bare(&[], &["d/head", "d/commondir", "d/config"]),
        ["d/head", "d/commondir", "d/config"]
    );
}
