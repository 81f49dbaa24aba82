//! The flags that describe a sandbox. `run`, `create` and `restore` share them, so that each has one
//! spelling and one meaning.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use stockade_core::network::AllowedHost;
use stockade_core::{parse_bytes, parse_cpus, sandbox};

#[derive(Debug, Default, Args)]
pub struct SandboxFlags {
    /// Use this directory or tar archive as the root file system instead of the host's programs
    #[arg(long, value_name = "DIR|TAR")]
    pub image: Option<PathBuf>,
    /// Bind mount a file or directory of the host; writable unless `:ro` is added
    #[arg(long, value_name = "HOST:PATH[:ro]")]
    pub mount: Vec<OsString>,
    /// Show a toolchain of your home directory, read-only: its programs and libraries, never its
    /// configuration or credentials
    #[arg(long, value_name = "NAME", value_enum)]
    pub tools: Vec<Tool>,
    /// Set an environment variable
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<OsString>,
    /// Add a label, which lists can be filtered by
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub label: Vec<Pair>,
    /// The user id of commands [default: the owner of the project or workspace]
    #[arg(long, value_name = "UID")]
    pub user: Option<u32>,
    /// The working directory of commands [default: the current directory if it is visible inside]
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Memory limit of all processes together, such as 512M
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// Processor limit of all processes together, such as 0.5
    #[arg(long, value_name = "NUMBER", value_parser = parse_cpus)]
    pub cpus: Option<u64>,
    /// Maximum number of processes and threads
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub pids: Option<u64>,
    /// Disk limit of the sandbox's files, such as 1G; `run` then keeps the view in memory
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub disk: Option<u64>,
    /// Size of /dev/shm, such as 1G [default: 256M, or a quarter of --memory if that is less]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub shm: Option<u64>,
    /// Maximum size of standard output and standard error of each command together
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub max_output: Option<u64>,
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
    /// below it, an address or an address block. Can be repeated; everything else is denied
    #[arg(long, value_name = "HOST[:PORT]")]
    pub allow: Vec<AllowedHost>,
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

/// The network of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Network {
    /// No network except the sandbox's own loopback
    Off,
    /// The hosts that --allow names; denied connections are listed
    Policy,
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
