//! The files that a host tool runs automatically: hooks, shell entry files, editor and agent
//! configuration, continuous integration, build configuration.
//!
//! This is a list of well-known names, at any depth; it excludes files that a user runs
//! explicitly.

use crate::manifest::ExecutedBy;
use crate::path::RelativePath;

use super::names::folded;

/// Directories whose whole content counts.
const DIRECTORIES: &[(&str, ExecutedBy)] = &[
    (".husky", ExecutedBy::Hooks),
    (".githooks", ExecutedBy::Hooks),
    (".git-hooks", ExecutedBy::Hooks),
    (".lefthook", ExecutedBy::Hooks),
    (".lefthook-local", ExecutedBy::Hooks),
    (".hg", ExecutedBy::Hooks),
    (".jj", ExecutedBy::Hooks),
    (".sl", ExecutedBy::Hooks),
    (".svn", ExecutedBy::Hooks),
    (".bzr", ExecutedBy::Hooks),
    ("_darcs", ExecutedBy::Hooks),
    (".mise", ExecutedBy::Shell),
    (".config/mise", ExecutedBy::Shell),
    (".direnv", ExecutedBy::Shell),
    (".vscode", ExecutedBy::Editor),
    (".vscode-test", ExecutedBy::Editor),
    (".idea", ExecutedBy::Editor),
    (".fleet", ExecutedBy::Editor),
    (".zed", ExecutedBy::Editor),
    (".vs", ExecutedBy::Editor),
    (".helix", ExecutedBy::Editor),
    (".vim", ExecutedBy::Editor),
    (".nvim", ExecutedBy::Editor),
    (".devcontainer", ExecutedBy::Editor),
    (".claude", ExecutedBy::Editor),
    (".claude-plugin", ExecutedBy::Editor),
    (".cursor", ExecutedBy::Editor),
    (".codex", ExecutedBy::Editor),
    (".gemini", ExecutedBy::Editor),
    (".windsurf", ExecutedBy::Editor),
    (".continue", ExecutedBy::Editor),
    (".cline", ExecutedBy::Editor),
    (".roo", ExecutedBy::Editor),
    (".kiro", ExecutedBy::Editor),
    (".amazonq", ExecutedBy::Editor),
    (".opencode", ExecutedBy::Editor),
    (".goose", ExecutedBy::Editor),
    (".junie", ExecutedBy::Editor),
    (".trae", ExecutedBy::Editor),
    (".agents", ExecutedBy::Editor),
    (".github/workflows", ExecutedBy::Ci),
    (".github/actions", ExecutedBy::Ci),
    (".gitea/workflows", ExecutedBy::Ci),
    (".forgejo/workflows", ExecutedBy::Ci),
    (".gitlab/ci", ExecutedBy::Ci),
    (".circleci", ExecutedBy::Ci),
    (".ci", ExecutedBy::Ci),
    (".buildkite", ExecutedBy::Ci),
    (".teamcity", ExecutedBy::Ci),
    (".semaphore", ExecutedBy::Ci),
    (".azure-pipelines", ExecutedBy::Ci),
    (".woodpecker", ExecutedBy::Ci),
    (".tekton", ExecutedBy::Ci),
    (".builds", ExecutedBy::Ci),
    (".yarn", ExecutedBy::Build),
    (".mvn", ExecutedBy::Build),
    (".bundle", ExecutedBy::Build),
    ("gradle/wrapper", ExecutedBy::Build),
];

/// Files, by name or by the last two components.
const FILES: &[(&str, ExecutedBy)] = &[
    (".gitmodules", ExecutedBy::Hooks),
    (".gitattributes", ExecutedBy::Hooks),
    (".pre-commit-config.yaml", ExecutedBy::Hooks),
    (".pre-commit-config.yml", ExecutedBy::Hooks),
    (".pre-commit-hooks.yaml", ExecutedBy::Hooks),
    (".overcommit.yml", ExecutedBy::Hooks),
    (".simple-git-hooks.js", ExecutedBy::Hooks),
    (".simple-git-hooks.cjs", ExecutedBy::Hooks),
    (".simple-git-hooks.json", ExecutedBy::Hooks),
    ("captainhook.json", ExecutedBy::Hooks),
    (".envrc", ExecutedBy::Shell),
    (".mise.toml", ExecutedBy::Shell),
    ("mise.toml", ExecutedBy::Shell),
    (".mise.local.toml", ExecutedBy::Shell),
    ("mise.local.toml", ExecutedBy::Shell),
    ("mise/config.toml", ExecutedBy::Shell),
    (".config/mise.toml", ExecutedBy::Shell),
    (".rtx.toml", ExecutedBy::Shell),
    (".tool-versions", ExecutedBy::Shell),
    (".autoenv", ExecutedBy::Shell),
    (".autoenv.zsh", ExecutedBy::Shell),
    (".rvmrc", ExecutedBy::Shell),
    (".devcontainer.json", ExecutedBy::Editor),
    (".exrc", ExecutedBy::Editor),
    (".vimrc", ExecutedBy::Editor),
    ("_vimrc", ExecutedBy::Editor),
    (".gvimrc", ExecutedBy::Editor),
    (".lvimrc", ExecutedBy::Editor),
    (".nvimrc", ExecutedBy::Editor),
    (".nvim.lua", ExecutedBy::Editor),
    (".dir-locals.el", ExecutedBy::Editor),
    (".dir-locals-2.el", ExecutedBy::Editor),
    (".mcp.json", ExecutedBy::Editor),
    (".clinerules", ExecutedBy::Editor),
    (".cursorrules", ExecutedBy::Editor),
    (".windsurfrules", ExecutedBy::Editor),
    (".aider.conf.yml", ExecutedBy::Editor),
    ("opencode.json", ExecutedBy::Editor),
    ("opencode.jsonc", ExecutedBy::Editor),
    (".gitpod.yml", ExecutedBy::Editor),
    (".gdbinit", ExecutedBy::Editor),
    (".lldbinit", ExecutedBy::Editor),
    (".gitlab-ci.yml", ExecutedBy::Ci),
    (".gitlab-ci.yaml", ExecutedBy::Ci),
    ("jenkinsfile", ExecutedBy::Ci),
    ("azure-pipelines.yml", ExecutedBy::Ci),
    ("azure-pipelines.yaml", ExecutedBy::Ci),
    (".travis.yml", ExecutedBy::Ci),
    ("appveyor.yml", ExecutedBy::Ci),
    (".appveyor.yml", ExecutedBy::Ci),
    (".drone.yml", ExecutedBy::Ci),
    (".drone.jsonnet", ExecutedBy::Ci),
    (".woodpecker.yml", ExecutedBy::Ci),
    (".woodpecker.yaml", ExecutedBy::Ci),
    ("bitbucket-pipelines.yml", ExecutedBy::Ci),
    (".cirrus.yml", ExecutedBy::Ci),
    (".cirrus.star", ExecutedBy::Ci),
    (".build.yml", ExecutedBy::Ci),
    (".taskcluster.yml", ExecutedBy::Ci),
    (".zuul.yaml", ExecutedBy::Ci),
    ("buildspec.yml", ExecutedBy::Ci),
    ("cloudbuild.yaml", ExecutedBy::Ci),
    ("cloudbuild.yml", ExecutedBy::Ci),
    ("cloudbuild.json", ExecutedBy::Ci),
    ("wercker.yml", ExecutedBy::Ci),
    (".cargo/config", ExecutedBy::Build),
    (".cargo/config.toml", ExecutedBy::Build),
    ("rust-toolchain", ExecutedBy::Build),
    ("rust-toolchain.toml", ExecutedBy::Build),
    (".npmrc", ExecutedBy::Build),
    (".yarnrc", ExecutedBy::Build),
    (".yarnrc.yml", ExecutedBy::Build),
    (".pnpmfile.cjs", ExecutedBy::Build),
    (".pnpmfile.mjs", ExecutedBy::Build),
    (".pnpmfile.js", ExecutedBy::Build),
    ("bunfig.toml", ExecutedBy::Build),
    (".bazelrc", ExecutedBy::Build),
    (".buckconfig", ExecutedBy::Build),
    (".sbtopts", ExecutedBy::Build),
    (".jvmopts", ExecutedBy::Build),
    (".ghci", ExecutedBy::Build),
    (".rprofile", ExecutedBy::Build),
    (".irbrc", ExecutedBy::Build),
    (".pryrc", ExecutedBy::Build),
    (".iex.exs", ExecutedBy::Build),
    (".pdbrc", ExecutedBy::Build),
];

/// Files by the start of their name.
const PREFIXES: &[(&str, ExecutedBy)] = &[
    ("lefthook.", ExecutedBy::Hooks),
    (".lefthook.", ExecutedBy::Hooks),
    ("lefthook-local.", ExecutedBy::Hooks),
    (".lefthook-local.", ExecutedBy::Hooks),
    (".huskyrc", ExecutedBy::Hooks),
    (".lintstagedrc", ExecutedBy::Hooks),
    ("jenkinsfile.", ExecutedBy::Ci),
];

/// Files by the end of their name.
const SUFFIXES: &[(&str, ExecutedBy)] =
    &[(".code-workspace", ExecutedBy::Editor), (".sublime-project", ExecutedBy::Editor)];

/// The kind of host tool that runs the file at `path` automatically, if any. Names are compared
/// as the most lenient file system would (see [`super::is_git_directory`]), at any depth.
///
/// With `is_link`, a link that replaces a directory on the way to such a file counts as well: a
/// link `.github` decides what `.github/workflows` is.
pub fn executed_by(path: &RelativePath, is_link: bool) -> Option<ExecutedBy> {
    let parts: Vec<Vec<u8>> = path.components().map(folded).collect();
    let (name, parents) = parts.split_last()?;
    for (directory, by) in DIRECTORIES {
        if contains(&parts, directory) {
            return Some(*by);
        }
    }
    for (file, by) in FILES {
        let found = match file.split_once('/') {
            None => name == file.as_bytes(),
            Some((parent, file)) => {
                name == file.as_bytes() && parents.last().is_some_and(|p| p == parent.as_bytes())
            }
        };
        if found {
            return Some(*by);
        }
    }
    let by_start = PREFIXES.iter().find(|(start, _)| name.starts_with(start.as_bytes()));
    let by_end = SUFFIXES.iter().find(|(end, _)| name.ends_with(end.as_bytes()));
    let by_link = DIRECTORIES.iter().chain(FILES).find(|(rule, _)| {
        is_link && rule.split_once('/').is_some_and(|(parent, _)| name == parent.as_bytes())
    });
    by_start.or(by_end).or(by_link).map(|(_, by)| *by)
}

/// Whether the components of `directory` (one or two) occur consecutively in `parts`.
fn contains(parts: &[Vec<u8>], directory: &str) -> bool {
    match directory.split_once('/') {
        None => parts.iter().any(|part| part == directory.as_bytes()),
        Some((first, second)) => {
            parts.windows(2).any(|pair| pair[0] == first.as_bytes() && pair[1] == second.as_bytes())
        }
    }
}
