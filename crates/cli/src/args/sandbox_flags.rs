//! The flags that describe a sandbox. `run`, `create` and `restore` share them, so that each has one
//! spelling and one meaning.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use stockade_core::access::Effect;
use stockade_core::network::secret::BoundSecret;
use stockade_core::network::{AllowedHost, HOST_LOOPBACK, Policy, TrafficLimits};
use stockade_core::{
    OrNone, parse_bytes, parse_bytes_or_none, parse_count_or_none, parse_cpus_or_none, sandbox,
};

use super::image::PullPolicy;

// The secrets of commands. (clap would use a doc comment here as that of every command.)
#[derive(Debug, Clone, Default, Args)]
pub struct SecretFlags {
    /// Let the command use the secret in this environment variable without seeing it: the variable
    /// contains a placeholder, which is replaced in requests to that host. Can be repeated; the
    /// host must be allowed too
    #[arg(long, value_name = "NAME@HOST[:PORT]")]
    pub secret: Vec<BoundSecret>,
    /// Refuse requests that contain the placeholder of a secret and are for a host that the secret
    /// is not bound to. Without this flag they are sent, with the placeholder, and reported
    #[arg(long, requires = "secret")]
    pub strict_secrets: bool,
}

#[derive(Debug, Clone, Default, Args)]
pub struct SandboxFlags {
    /// Use the values of this profile of config.toml or of a trusted stockade.toml, or `none`; other
    /// flags win [default: the profile that the file names as `default`]
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Use the project's devcontainer.json, or the one of this name if there are several; other flags
    /// and profiles win
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub devcontainer: Option<String>,
    /// Use this image of the store, directory or tar archive as the root file system instead of the
    /// host's programs; a path starts with ./ or / or exists
    #[arg(long, value_name = "NAME|DIR|TAR")]
    pub image: Option<PathBuf>,
    /// When the image is downloaded: `missing` (the default), `always` or `never`
    #[arg(long, value_name = "WHEN", value_enum, requires = "image", hide_possible_values = true)]
    pub pull: Option<PullPolicy>,
    /// Take the system directories from a copy instead of from the host's own files, so that a fault
    /// of the kernel cannot reach these through them. The first time this copies gigabytes: see
    /// `stockade base`
    #[arg(long)]
    pub private_base: bool,
    /// Bind mount a file or directory of the host; writable unless `:ro` is added
    #[arg(long, value_name = "HOST:PATH[:ro]")]
    pub mount: Vec<OsString>,
    /// Mount a volume, which is created if missing and outlives the sandbox; writable unless `:ro`
    /// is added. With a path of the host instead of the name, the same as --mount
    #[arg(long, short = 'v', value_name = "NAME:PATH[:ro]")]
    pub volume: Vec<OsString>,
    /// Keep the cache of a tool for later sandboxes of the project, such as `npm`, `pip` or `cargo`, or
    /// a directory of any name
    #[arg(long, value_name = "NAME[:PATH]")]
    pub cache: Vec<String>,
    /// Show a toolchain of your home directory, read-only: its programs and libraries, never its
    /// configuration or credentials
    #[arg(long, value_name = "NAME", value_enum)]
    pub tools: Vec<Tool>,
    #[command(flatten)]
    pub variables: VariableFlags,
    /// Add a label, which lists can be filtered by
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = pair)]
    pub label: Vec<Pair>,
    /// The user id of commands, and the group id if it differs [default: the owner of the project
    /// or workspace]
    #[arg(long, short, value_name = "UID[:GID]")]
    pub user: Option<UserArgument>,
    /// The working directory of commands [default: the current directory if it is visible inside]
    #[arg(long, short = 'w', alias = "workdir", value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Memory limit of all processes together, such as 512M, or `none`
    #[arg(long, short, value_name = "SIZE", value_parser = parse_bytes_or_none)]
    pub memory: Option<OrNone<u64>>,
    /// Processor limit of all processes together, such as 0.5, or `none`
    #[arg(long, value_name = "NUMBER", value_parser = parse_cpus_or_none)]
    pub cpus: Option<OrNone<u64>>,
    /// Maximum number of processes and threads, or `none`
    #[arg(long, value_name = "NUMBER", value_parser = parse_count_or_none)]
    pub pids: Option<OrNone<u64>>,
    /// Disk limit of the sandbox's files, such as 1G, or `none`; with a limit `run` keeps the view in
    /// memory
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes_or_none)]
    pub disk: Option<OrNone<u64>>,
    /// Size of /dev/shm, such as 1G [default: 256M, or a quarter of --memory if that is less]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub shm: Option<u64>,
    /// Maximum size of standard output and standard error of each command together, or `none`
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes_or_none)]
    pub max_output: Option<OrNone<u64>>,
    /// Continue without this wall or limit if the host does not support it, and report that
    #[arg(long, value_name = "NAME", value_enum)]
    pub best_effort: Vec<BestEffort>,
    /// An access rule, such as `allow:read:/src`; without rules every path is allowed
    #[arg(long, value_name = "EFFECT:LEVEL:PATH")]
    pub access: Vec<String>,
    /// The network of commands [default: off, or policy with --allow]
    #[arg(long, value_enum)]
    pub net: Option<Network>,
    /// Allow connections to a host, on one port or on all: a name, `*.example.com` for all names
    /// below it, `*` for every public host, an address or an address block;
    /// `host.stockade.internal:PORT` is the loopback of this machine. Can be repeated; everything else is
    /// denied
    #[arg(long, value_name = "HOST[:PORT]")]
    pub allow: Vec<AllowedHost>,
    /// Use the network policy in this file, or that of a preset: package-registries,
    /// code-hosts-read-only or model-providers. Can be repeated, and used with --allow
    #[arg(long, value_name = "FILE|PRESET")]
    pub policy: Vec<String>,
    /// Allow connections to a name also if it leads to a private network; no other name and no address
    /// is opened. Can be repeated
    #[arg(long, value_name = "NAME[:PORT]", value_parser = internal_host)]
    pub allow_internal: Vec<AllowedHost>,
    #[command(flatten)]
    pub traffic: TrafficFlags,
}

// How much traffic a sandbox may have.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct TrafficFlags {
    /// Maximum number of connections at a time; needs a network policy [default: 256]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=16_384))]
    pub max_connections: Option<u16>,
    /// Maximum traffic of all connections in both directions together, such as 2G; needs a network
    /// policy
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub max_traffic: Option<u64>,
    /// Maximum bandwidth of all connections in both directions together, such as 5M for each second;
    /// needs a network policy
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub max_bandwidth: Option<u64>,
}

impl TrafficFlags {
    /// The limits.
    pub const fn limits(self) -> TrafficLimits {
        let Self { max_connections, max_traffic, max_bandwidth } = self;
        TrafficLimits { connections: max_connections, bytes: max_traffic, bandwidth: max_bandwidth }
    }
}

/// The value of `--allow-internal`.
fn internal_host(text: &str) -> Result<AllowedHost, String> {
    let host: AllowedHost = text.parse().map_err(|error: String| {
        let is_loopback = error.contains(HOST_LOOPBACK);
        if is_loopback { error } else { error.replace("--allow ", "--allow-internal ") }
    })?;
    let rule = host.clone().into_internal_rule()?;
    Policy::new(Effect::Deny, vec![rule]).map_err(|error| error.reason)?;
    Ok(host)
}

/// A toolchain that is often installed in a home directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Tool {
    /// Node and npm, also of nvm, fnm and Volta
    Node,
    Deno,
    Bun,
    /// Rust, of rustup
    Cargo,
    /// uv and its Pythons
    Uv,
    Pyenv,
    Go,
    /// Java, also of SDKMAN
    Jvm,
}

impl Tool {
    /// Its name in `--tools`.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

// The environment variables of commands. (clap would use a doc comment here as that of every command.)
#[derive(Debug, Clone, Default, Args)]
pub struct VariableFlags {
    /// Set an environment variable; without a value, pass on this program's own. Can be repeated
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    pub env: Vec<OsString>,
    /// Set the environment variables that a file lists, one NAME=VALUE or NAME per line; lines that
    /// start with `#` are comments. --env takes precedence. Can be repeated
    #[arg(long, value_name = "FILE")]
    pub env_file: Vec<PathBuf>,
    /// The assignments of a profile, which the others replace.
    #[arg(skip)]
    pub profile: Vec<OsString>,
}

/// The ids that commands run with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserArgument {
    pub user: u32,
    pub group: u32,
}

impl FromStr for UserArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (user, group) = text.split_once(':').unwrap_or((text, text));
        match (user.parse(), group.parse()) {
            (Ok(user), Ok(group)) => Ok(Self { user, group }),
            _ => Err("expected a user id such as 1000, or a user and a group id such as 1000:1000"
                .to_owned()),
        }
    }
}

/// The network of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Network {
    /// No network except the sandbox's own loopback
    Off,
    /// The hosts that --allow names; denied connections are listed
    Policy,
    /// Every public host; the policy that the command would have needed is written to a file
    Learn,
}

/// What a sandbox may do without. Every other wall is always required.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BestEffort {
    Landlock,
    Memory,
    Cpus,
    #[value(alias = "processes")]
    Pids,
    Disk,
}

impl From<BestEffort> for sandbox::BestEffort {
    fn from(named: BestEffort) -> Self {
        match named {
            BestEffort::Landlock => Self::Landlock,
            BestEffort::Memory => Self::Memory,
            BestEffort::Cpus => Self::Cpus,
            BestEffort::Pids => Self::Pids,
            BestEffort::Disk => Self::Disk,
        }
    }
}

/// A name and a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair(pub String, pub String);

pub fn pair(text: &str) -> Result<Pair, String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok(Pair(name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}
