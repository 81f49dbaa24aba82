//! Version control and the managers of its hooks.
//! Patterns are explained in the parent module.

use super::{Family, family};
use crate::manifest::ExecutedBy::Hooks;

pub(super) const FAMILIES: &[Family] = &[
    family(
        Hooks,
        "https://git-scm.com/docs/githooks",
        &[".githooks/", ".git-hooks/", "githooks/", ".hooks/"],
    ),
    family(Hooks, "https://git-scm.com/docs/gitattributes", &[".gitattributes"]),
    family(Hooks, "https://git-scm.com/docs/gitmodules", &[".gitmodules"]),
    family(
        Hooks,
        "https://git-scm.com/docs/git-config#FILES",
        &[".gitconfig", ".gitconfig.*", ".gitconfig-*"],
    ),
    family(Hooks, "https://git-lfs.com/", &[".lfsconfig"]),
    family(Hooks, "https://typicode.github.io/husky/", &[".husky/", ".huskyrc*"]),
    family(
        Hooks,
        "https://lefthook.dev/configuration/",
        &[
            "lefthook.*",
            ".lefthook.*",
            "lefthook-local.*",
            ".lefthook-local.*",
            ".lefthook/",
            ".lefthook-local/",
            ".config/lefthook*",
        ],
    ),
    family(
        Hooks,
        "https://pre-commit.com/",
        &[".pre-commit-config.*", ".pre-commit-hooks.*", "prek.toml"],
    ),
    family(Hooks, "https://github.com/sds/overcommit", &[".overcommit.yml", ".overcommit.*"]),
    family(
        Hooks,
        "https://github.com/toplenboren/simple-git-hooks",
        &[".simple-git-hooks.*", "simple-git-hooks.*"],
    ),
    family(Hooks, "https://docs.captainhook.info/", &["captainhook.json", "captainhook.*.json"]),
    family(
        Hooks,
        "https://github.com/phpro/grumphp",
        &["grumphp.yml", "grumphp.yml.dist", "grumphp.yaml"],
    ),
    family(Hooks, "https://alirezanet.github.io/Husky.Net/", &["task-runner.json"]),
    family(
        Hooks,
        "https://github.com/lint-staged/lint-staged",
        &[".lintstagedrc*", "lint-staged.config.*"],
    ),
    family(Hooks, "https://commitlint.js.org/", &[".commitlintrc*", "commitlint.config.*"]),
    family(Hooks, "https://github.com/cachix/git-hooks.nix", &[".git-hooks.nix", "git-hooks.nix"]),
    family(Hooks, "https://www.mercurial-scm.org/doc/hgrc.5.html", &[".hg/", ".hgrc"]),
    family(Hooks, "https://jj-vcs.github.io/jj/latest/config/", &[".jj/"]),
    family(Hooks, "https://sapling-scm.com/docs/introduction/", &[".sl/"]),
    family(Hooks, "https://svnbook.red-bean.com/", &[".svn/"]),
    family(Hooks, "https://documentation.breezy-vcs.org/", &[".bzr/"]),
    family(Hooks, "https://darcs.net/Using", &["_darcs/"]),
    family(Hooks, "https://pijul.org/manual/", &[".pijul/"]),
    family(Hooks, "https://fossil-scm.org/home/doc/trunk/www/hooks.md", &[".fossil-settings/"]),
];
