//! Where toolchains keep programs and libraries. What is not listed here is never shown: beside them lie
//! credentials, tokens, configuration and caches, also in the directory of a version (`etc/npmrc`,
//! `pip.conf`, `conf/settings.xml`, `uv-receipt.toml`).

use crate::args::sandbox_flags::Tool;

/// What a toolchain consists of.
pub(super) struct Layout {
    /// Its programs; where the first of them on the search path is found, its prefix is mounted.
    pub(super) programs: &'static [&'static str],
    /// The directories and files below a prefix that hold programs and libraries.
    pub(super) prefix: &'static [&'static str],
    /// Directories and files below the home directory.
    pub(super) home: &'static [&'static str],
    /// Directories below the home directory with one directory for each version, and what holds programs
    /// and libraries below such a one. A part `*` is every directory of its parent.
    pub(super) versions: &'static [(&'static str, &'static [&'static str])],
    /// Which directories below the home directory are added to the search path.
    pub(super) path: &'static [&'static str],
    /// Variables with directories below the home directory.
    pub(super) variables: &'static [(&'static str, &'static str)],
}

const PREFIX: &[&str] = &["bin", "include", "lib", "lib64", "libexec", "share"];
/// A package of npm with programs.
const PACKAGE: &[&str] = &["bin", "dist", "index.js", "lib", "node_modules", "package.json"];
/// A Python, or a virtual environment: CPython, PyPy and Conda.
const PYTHON: &[&str] = &[
    "bin",
    "condabin",
    "include",
    "lib",
    "lib-python",
    "lib64",
    "lib_pypy",
    "libexec",
    "openssl/bin",
    "openssl/lib",
    "pyvenv.cfg",
    "share",
];
const JAVA: &[&str] = &["bin", "conf", "include", "jmods", "legal", "lib", "release"];
/// A program on Java, such as Maven, Gradle, Kotlin and Groovy.
const ON_JAVA: &[&str] =
    &["bin", "boot", "conf/groovy-starter.conf", "conf/logging", "lib", "libexec", "share"];

pub(super) const fn layout(tool: Tool) -> Layout {
    match tool {
        Tool::Node => Layout {
            programs: &["node"],
            prefix: PREFIX,
            home: &[".volta/bin", ".volta/tools/user"],
            versions: &[
                (".local/share/fnm/node-versions/*/installation", PREFIX),
                (".nvm/versions/*/*", PREFIX),
                (".volta/tools/image/node/*", PREFIX),
                (".volta/tools/image/npm/*", PACKAGE),
                (".volta/tools/image/packages/*", PREFIX),
                (".volta/tools/image/pnpm/*", PACKAGE),
                (".volta/tools/image/yarn/*", PACKAGE),
            ],
            path: &[".volta/bin"],
            variables: &[],
        },
        Tool::Deno => Layout {
            programs: &["deno"],
            prefix: &["bin"],
            home: &[".deno/bin"],
            versions: &[],
            path: &[".deno/bin"],
            variables: &[],
        },
        Tool::Bun => Layout {
            programs: &["bun"],
            prefix: &["bin"],
            home: &[".bun/bin"],
            versions: &[],
            path: &[".bun/bin"],
            variables: &[],
        },
        Tool::Cargo => Layout {
            programs: &[],
            prefix: &[],
            home: &[
                ".cargo/bin",
                ".rustup/settings.toml",
                // Without it rustup ends at once.
                ".rustup/update-hashes",
            ],
            versions: &[(".rustup/toolchains/*", PREFIX)],
            path: &[".cargo/bin"],
            variables: &[("RUSTUP_HOME", ".rustup")],
        },
        Tool::Uv => Layout {
            programs: &["uv", "uvx"],
            prefix: &["bin"],
            home: &[],
            versions: &[(".local/share/uv/python/*", PYTHON), (".local/share/uv/tools/*", PYTHON)],
            path: &[],
            variables: &[],
        },
        Tool::Pyenv => Layout {
            programs: &[],
            prefix: &[],
            home: &[
                ".pyenv/bin",
                ".pyenv/libexec",
                ".pyenv/plugins",
                ".pyenv/shims",
                ".pyenv/version",
            ],
            versions: &[(".pyenv/versions/*", PYTHON)],
            path: &[".pyenv/shims", ".pyenv/bin"],
            variables: &[("PYENV_ROOT", ".pyenv")],
        },
        Tool::Go => Layout {
            programs: &["go"],
            prefix: &["VERSION", "api", "bin", "go.env", "lib", "pkg", "src"],
            home: &["go/bin"],
            versions: &[],
            path: &["go/bin"],
            variables: &[],
        },
        Tool::Jvm => Layout {
            programs: &["java"],
            prefix: JAVA,
            home: &[],
            versions: &[(".sdkman/candidates/java/*", JAVA), (".sdkman/candidates/*/*", ON_JAVA)],
            path: &[
                ".sdkman/candidates/java/current/bin",
                ".sdkman/candidates/maven/current/bin",
                ".sdkman/candidates/gradle/current/bin",
            ],
            variables: &[],
        },
    }
}
