//! What a shell, or a tool in its prompt, executes when the user enters a directory.
//! Patterns are explained in the parent module.

use super::{Family, family};
use crate::manifest::ExecutedBy::Shell;

pub(super) const FAMILIES: &[Family] = &[
    family(Shell, "https://direnv.net/", &[".envrc*", ".direnv/", ".direnvrc"]),
    family(
        Shell,
        "https://mise.jdx.dev/configuration.html",
        &[
            ".mise/",
            ".mise.toml",
            "mise.toml",
            ".mise.*.toml",
            "mise.*.toml",
            "mise/config.toml",
            "mise/config.*.toml",
            "mise/conf.d/",
            ".config/mise/",
            ".config/mise.toml",
            ".config/mise.*.toml",
            ".miserc.toml",
            ".rtx.*",
            ".mise-tasks/",
            "mise-tasks/",
        ],
    ),
    family(
        Shell,
        "https://asdf-vm.com/manage/configuration.html",
        &[".tool-versions", ".tool-versions.*", ".asdfrc"],
    ),
    family(
        Shell,
        "https://github.com/hyperupcall/autoenv",
        &[".autoenv", ".autoenv.*", ".autoenv_leave.*", ".env.leave", ".env.enter"],
    ),
    family(Shell, "https://github.com/cxreg/smartcd", &[".smartcd/", ".smartcd_config"]),
    family(Shell, "https://ondir.sourceforge.net/", &[".ondirrc"]),
    family(Shell, "https://shopify.github.io/shadowenv/", &[".shadowenv.d/"]),
    family(Shell, "https://rvm.io/workflow/projects", &[".rvmrc", ".versions.conf"]),
    family(
        Shell,
        "https://github.com/nvm-sh/nvm#deeper-shell-integration",
        &[
            ".nvmrc",
            ".*-version",
            ".sdkmanrc",
            ".jabbarc",
            ".jvmrc",
            ".ruby-gemset",
            ".perl-version",
        ],
    ),
    family(
        Shell,
        "https://github.com/nix-community/nix-direnv",
        &["flake.nix", "shell.nix", "default.nix"],
    ),
    family(
        Shell,
        "https://devenv.sh/automatic-shell-activation/",
        &["devenv.nix", "devenv.yaml", "devenv.*.nix", "devenv.*.yaml"],
    ),
    family(Shell, "https://www.jetify.com/docs/devbox/", &["devbox.json", "devbox.d/"]),
    family(Shell, "https://flox.dev/docs/", &[".flox/"]),
    family(Shell, "https://pixi.sh/", &[".pixi/"]),
    family(
        Shell,
        "https://www.gnu.org/software/bash/manual/bash.html#Bash-Startup-Files",
        &[
            ".bashrc*",
            ".bash_profile*",
            ".bash_login",
            ".bash_logout",
            ".bash_aliases",
            ".profile",
            ".inputrc",
        ],
    ),
    family(
        Shell,
        "https://zsh.sourceforge.io/Doc/Release/Files.html",
        &[".zshrc*", ".zshenv*", ".zprofile*", ".zlogin*", ".zlogout"],
    ),
    family(
        Shell,
        "https://fishshell.com/docs/current/language.html#configuration",
        &["config.fish", "fish/conf.d/", "fish/functions/"],
    ),
    family(
        Shell,
        "https://man.openbsd.org/ksh",
        &[".kshrc", ".cshrc", ".tcshrc", ".login", ".logout"],
    ),
    family(Shell, "https://virtualenv.pypa.io/", &[".venv/", "pyvenv.cfg"]),
    family(
        Shell,
        "https://github.com/michaeldfallen/git-radar",
        &[".git-prompt.sh", ".gitprompt.sh"],
    ),
];
