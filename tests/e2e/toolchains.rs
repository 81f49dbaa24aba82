//! `--tools` shows the programs and libraries of a toolchain in the home directory, and nothing that lies
//! beside them.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::harness::World;

as_root_and_as_user![a_toolchain_is_shown_without_its_configuration];

const CANARY: &str = "a canary";

/// Programs, each with what it prints.
const PROGRAMS: [(&str, &str); 5] = [
    (".nvm/versions/node/v20/bin/node", "node"),
    (".rustup/toolchains/stable/bin/rustc", "rustc"),
    (".pyenv/versions/3.12/bin/python3.12", "python"),
    (".local/share/uv/tools/ruff/bin/ruff", "ruff"),
    (".sdkman/candidates/maven/3.9/bin/mvn", "maven"),
];

/// What tools store beside their programs.
const SECRETS: [&str; 16] = [
    ".npmrc",
    ".nvm/versions/node/v20/etc/npmrc",
    ".nvm/versions/node/v20/.npmrc",
    ".cargo/credentials.toml",
    ".cargo/config.toml",
    ".rustup/toolchains/stable/etc/token",
    ".pypirc",
    ".config/pip/pip.conf",
    ".pyenv/versions/3.12/pip.conf",
    ".pyenv/versions/3.12/.condarc",
    ".local/share/uv/credentials/x",
    ".local/share/uv/tools/ruff/uv-receipt.toml",
    ".config/go/env",
    ".m2/settings.xml",
    ".sdkman/candidates/maven/3.9/conf/settings.xml",
    ".sdkman/etc/config",
];

fn a_toolchain_is_shown_without_its_configuration(world: &World) {
    let home = world.home();
    for (name, text) in PROGRAMS {
        let path = home.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\necho {text}\n")).unwrap();
        fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    for name in SECRETS {
        let path = home.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, CANARY).unwrap();
    }
    world.chown_tree(&home, |_| world.identity.uid());
    let bins = PROGRAMS.map(|(name, _)| home.join(name).parent().unwrap().display().to_string());
    let path = format!("{}:/usr/bin:/bin", bins.join(":"));
    let tools = ["node", "cargo", "uv", "pyenv", "jvm"].map(|name| format!("--tools={name}"));
    let mut words = vec!["run", "--discard"];
    words.extend(tools.iter().map(String::as_str));
    let script = "for program in node rustc python3.12 ruff mvn; do $program; done; \
                  grep -rl \"$1\" \"$2\"; echo done";
    let home = home.to_str().unwrap();
    words.extend(["--", "sh", "-c", script, "sh", CANARY, home]);
    let outcome = world.stockade(&words).env("PATH", &path).finish();
    assert_eq!(outcome.stdout, "node\nrustc\npython\nruff\nmaven\ndone\n", "{outcome}");
}
