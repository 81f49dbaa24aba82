//! The caches of package managers and build tools: where each tool keeps what it has downloaded, so
//! that a directory of Stockade can take that place. Only data.
//!
//! A directory in which a tool also looks for its configuration or credentials is not shared: it is
//! in memory, and only its caches below it are shared, with the files on which the tool locks them.

use std::path::{Path, PathBuf};

use crate::id::VolumeName;
use crate::sandbox::CacheMount;

/// The label of a cache's volume with the name of the cache.
pub const LABEL: &str = "stockade.cache";
/// The label of a cache's volume with the project whose cache it is.
pub const PROJECT_LABEL: &str = "stockade.project";

/// The name of the cache with the ignored directories that runs of a project leave for each other. It is
/// not mounted.
pub const IGNORED: &str = "ignored";

/// A tool with a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tool {
    /// Its name in `--cache`.
    pub name: &'static str,
    /// What is shared.
    pub shared: &'static [Shared],
    /// A directory in memory around what is shared, for the tool's configuration.
    pub home: Option<&'static str>,
    /// The variables with which the tool finds it.
    pub variables: &'static [(&'static str, &'static str)],
    /// The page of the tool's documentation that defines this, without `https:`.
    pub source: &'static str,
}

/// A directory or file of a cache that is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shared {
    /// Its name in the volume.
    pub name: &'static str,
    /// Its path inside.
    pub inside: &'static str,
    /// Its places below the home directory, where a tool that ignores the variables looks.
    pub home: &'static [&'static str],
    /// Whether it is a file, such as the one that a tool locks.
    pub is_file: bool,
}

const fn directory(
    name: &'static str,
    inside: &'static str,
    home: &'static [&'static str],
) -> Shared {
    Shared { name, inside, home, is_file: false }
}

const fn file(name: &'static str, inside: &'static str, home: &'static [&'static str]) -> Shared {
    Shared { name, inside, home, is_file: true }
}

/// The tools that `--cache` knows.
pub const TOOLS: [Tool; 14] = [
    Tool {
        name: "npm",
        shared: &[directory("npm", "/var/cache/stockade/npm", &[".npm"])],
        home: None,
        variables: &[("npm_config_cache", "/var/cache/stockade/npm")],
        source: "docs.npmjs.com/cli/using-npm/config#cache",
    },
    Tool {
        name: "yarn",
        shared: &[directory(
            "yarn",
            "/var/cache/stockade/yarn",
            &[".cache/yarn", ".yarn/berry/cache"],
        )],
        home: None,
        // Without the second one, later versions use a directory of each project.
        variables: &[
            ("YARN_CACHE_FOLDER", "/var/cache/stockade/yarn"),
            ("YARN_ENABLE_GLOBAL_CACHE", "false"),
        ],
        source: "yarnpkg.com/configuration/yarnrc#cacheFolder",
    },
    Tool {
        name: "pnpm",
        shared: &[
            directory("store", "/var/cache/stockade/pnpm/store", &[".local/share/pnpm/store"]),
            directory("metadata", "/var/cache/stockade/pnpm/metadata", &[".cache/pnpm"]),
        ],
        home: None,
        variables: &[
            ("npm_config_store_dir", "/var/cache/stockade/pnpm/store"),
            ("npm_config_cache_dir", "/var/cache/stockade/pnpm/metadata"),
        ],
        source: "pnpm.io/settings#storedir",
    },
    Tool {
        name: "bun",
        shared: &[directory("bun", "/var/cache/stockade/bun", &[".bun/install/cache"])],
        home: None,
        variables: &[("BUN_INSTALL_CACHE_DIR", "/var/cache/stockade/bun")],
        source: "bun.sh/docs/install/cache",
    },
    Tool {
        name: "deno",
        shared: &[directory("deno", "/var/cache/stockade/deno", &[".cache/deno"])],
        home: None,
        variables: &[("DENO_DIR", "/var/cache/stockade/deno")],
        source: "docs.deno.com/runtime/reference/env_variables/",
    },
    Tool {
        name: "pip",
        shared: &[directory("pip", "/var/cache/stockade/pip", &[".cache/pip"])],
        home: None,
        variables: &[("PIP_CACHE_DIR", "/var/cache/stockade/pip")],
        source: "pip.pypa.io/en/stable/topics/caching/",
    },
    Tool {
        name: "uv",
        shared: &[directory("uv", "/var/cache/stockade/uv", &[".cache/uv"])],
        home: None,
        // The cache is on another mount than the environment, so nothing can be hard linked.
        variables: &[("UV_CACHE_DIR", "/var/cache/stockade/uv"), ("UV_LINK_MODE", "copy")],
        source: "docs.astral.sh/uv/concepts/cache/",
    },
    Tool {
        name: "cargo",
        shared: &[
            directory("registry", "/var/cache/stockade/cargo/registry", &[".cargo/registry"]),
            directory("git", "/var/cache/stockade/cargo/git", &[".cargo/git"]),
            file(
                "package-cache",
                "/var/cache/stockade/cargo/.package-cache",
                &[".cargo/.package-cache"],
            ),
            file(
                "package-cache-mutate",
                "/var/cache/stockade/cargo/.package-cache-mutate",
                &[".cargo/.package-cache-mutate"],
            ),
        ],
        home: Some("/var/cache/stockade/cargo"),
        variables: &[("CARGO_HOME", "/var/cache/stockade/cargo")],
        source: "doc.rust-lang.org/cargo/guide/cargo-home.html",
    },
    Tool {
        name: "sccache",
        shared: &[directory("sccache", "/var/cache/stockade/sccache", &[".cache/sccache"])],
        home: None,
        variables: &[("SCCACHE_DIR", "/var/cache/stockade/sccache")],
        source: "github.com/mozilla/sccache/blob/main/docs/Local.md",
    },
    Tool {
        name: "go",
        shared: &[
            directory("mod", "/var/cache/stockade/go/mod", &["go/pkg/mod"]),
            directory("build", "/var/cache/stockade/go/build", &[".cache/go-build"]),
        ],
        home: None,
        variables: &[
            ("GOMODCACHE", "/var/cache/stockade/go/mod"),
            ("GOCACHE", "/var/cache/stockade/go/build"),
        ],
        source: "go.dev/ref/mod#environment-variables",
    },
    Tool {
        name: "maven",
        shared: &[directory("repository", "/var/cache/stockade/maven", &[".m2/repository"])],
        home: None,
        variables: &[("MAVEN_OPTS", "-Dmaven.repo.local=/var/cache/stockade/maven")],
        source: "maven.apache.org/configure.html",
    },
    Tool {
        name: "gradle",
        shared: &[
            directory("caches", "/var/cache/stockade/gradle/caches", &[".gradle/caches"]),
            directory("wrapper", "/var/cache/stockade/gradle/wrapper", &[".gradle/wrapper"]),
        ],
        home: Some("/var/cache/stockade/gradle"),
        variables: &[("GRADLE_USER_HOME", "/var/cache/stockade/gradle")],
        source: "docs.gradle.org/current/userguide/directory_layout.html",
    },
    Tool {
        name: "composer",
        shared: &[directory(
            "composer",
            "/var/cache/stockade/composer",
            &[".cache/composer", ".composer/cache"],
        )],
        home: None,
        variables: &[("COMPOSER_CACHE_DIR", "/var/cache/stockade/composer")],
        source: "getcomposer.org/doc/03-cli.md#composer-cache-dir",
    },
    Tool {
        name: "nuget",
        shared: &[
            directory("packages", "/var/cache/stockade/nuget/packages", &[".nuget/packages"]),
            directory("http", "/var/cache/stockade/nuget/http", &[".local/share/NuGet/http-cache"]),
        ],
        home: None,
        variables: &[
            ("NUGET_PACKAGES", "/var/cache/stockade/nuget/packages"),
            ("NUGET_HTTP_CACHE_PATH", "/var/cache/stockade/nuget/http"),
        ],
        source: "learn.microsoft.com/nuget/consume-packages/managing-the-global-packages-and-cache-folders",
    },
];

/// The tool of that name.
pub fn tool(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| tool.name == name)
}

impl CacheMount {
    /// The tool whose cache it is; none if it has a path of its own.
    pub fn tool(&self) -> Option<&'static Tool> {
        self.inside.is_none().then(|| tool(self.name.as_str())).flatten()
    }

    /// The variables with which the tool finds the cache.
    pub fn variables(&self) -> &'static [(&'static str, &'static str)] {
        self.tool().map_or(&[], |tool| tool.variables)
    }
}

/// The name of a cache's volume: `hash` is that of the project.
///
/// # Errors
/// [`crate::id::InvalidId`] if the name of the cache is too long.
pub fn volume_name(
    cache: &VolumeName,
    hash: Option<&str>,
) -> Result<VolumeName, crate::id::InvalidId> {
    match hash {
        Some(hash) => VolumeName::new(format!("cache-{cache}-{hash}")),
        None => VolumeName::new(format!("cache-{cache}")),
    }
}

/// The path inside of a shared part, for a tool, or of a cache with its own path.
pub fn mount_points(cache: &CacheMount) -> Vec<PathBuf> {
    match (&cache.inside, cache.tool()) {
        (Some(inside), _) => vec![inside.clone()],
        (None, Some(tool)) => {
            tool.shared.iter().map(|shared| Path::new(shared.inside).to_owned()).collect()
        }
        (None, None) => Vec::new(),
    }
}

/// The places of a tool's cache below the home directory, each with what is shared there.
pub fn places_at_home(cache: &CacheMount) -> impl Iterator<Item = (&'static Shared, &'static str)> {
    let shared = cache.tool().map_or(&[][..], |tool| tool.shared);
    shared.iter().flat_map(|shared| shared.home.iter().map(move |below| (shared, *below)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tool_is_listed_once_and_finds_what_is_mounted() {
        assert_eq!(tool(IGNORED), None);
        for (number, one) in TOOLS.iter().enumerate() {
            assert!(VolumeName::new(one.name).is_ok());
            assert!(TOOLS[number + 1..].iter().all(|other| other.name != one.name));
            assert!(one.source.contains('/'), "{}", one.name);
            for shared in one.shared {
                assert!(!shared.name.contains(['/', '.']), "{}", shared.name);
                assert!(Path::new(shared.inside).is_absolute());
                assert!(one.home.is_none_or(|home| Path::new(shared.inside).starts_with(home)));
            }
            // Each path that a variable names is mounted, or contains what is mounted.
            for (name, value) in one.variables {
                let Some(at) = value.find('/') else { continue };
                let path = Path::new(&value[at..]);
                let is_mounted = one.home.is_some_and(|home| Path::new(home) == path)
                    || one.shared.iter().any(|shared| Path::new(shared.inside) == path);
                assert!(is_mounted, "{name}");
            }
        }
    }

    #[test]
    fn the_places_at_home_are_apart_and_hold_no_configuration() {
        let all: Vec<_> = TOOLS
            .iter()
            .flat_map(|tool| tool.shared.iter().flat_map(|shared| shared.home))
            .collect();
        for (number, one) in all.iter().enumerate() {
            let one = Path::new(one);
            assert!(one.is_relative() && one.file_name().is_some(), "{}", one.display());
            for other in &all[number + 1..] {
                let apart = !one.starts_with(other) && !Path::new(other).starts_with(one);
                assert!(apart, "{} and {other}", one.display());
            }
        }
        for tool in TOOLS {
            assert!(tool.shared.iter().all(|shared| !shared.home.is_empty()), "{}", tool.name);
        }
        // The directories in which the tools have their configuration, credentials or programs.
        for own in
            [".cargo", ".m2", ".gradle", ".bun", ".nuget", ".yarn", ".composer", "go", ".cache"]
        {
            assert!(!all.iter().any(|place| **place == own), "{own}");
        }
    }

    #[test]
    fn a_cache_with_its_own_path_is_no_tool() {
        let owner = crate::OwnerId::from_uid(1);
        let name = VolumeName::new("npm").unwrap();
        let mut cache = CacheMount { owner, name, project: None, inside: None };
        assert_eq!(cache.tool().unwrap().name, "npm");
        assert_eq!(mount_points(&cache), [Path::new("/var/cache/stockade/npm")]);
        cache.inside = Some("/x".into());
        assert_eq!((cache.tool(), cache.variables()), (None, &[][..]));
        assert_eq!(mount_points(&cache), [Path::new("/x")]);
        assert_eq!(places_at_home(&cache).count(), 0);
    }
}
