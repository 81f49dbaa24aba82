//! The arguments of `stockade mcp`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use stockade_core::network::AllowedHost;
use stockade_core::{OrNone, parse_duration_or_none};

use super::examples;
use super::sandbox_flags::{SandboxFlags, SecretFlags};
use super::snippet::Libraries;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Mcp {
    #[command(subcommand)]
    pub what: Option<McpCommand>,
    /// Serve only tools on one sandbox, which sees this directory copy-on-write: its changes stay in the
    /// sandbox until they are applied. A later session with the same directory finds the sandbox again
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Terminate the sandbox of --workspace when the session ends; its changes become a bundle
    #[arg(long, requires = "workspace")]
    pub end: bool,
    /// Let agents apply and reject bundles without asking the user
    #[arg(long)]
    pub allow_apply: bool,
    /// Let new sandboxes connect to this host; the sandbox of --workspace may connect to it from the start.
    /// Can be repeated. For others the user is asked
    #[arg(long, value_name = "HOST[:PORT]")]
    pub allow: Vec<AllowedHost>,
    /// Let new sandboxes see this directory, or one below it, as a workspace. Can be repeated
    #[arg(long, value_name = "DIR", conflicts_with = "workspace")]
    pub allow_workspace: Vec<PathBuf>,
    #[command(flatten)]
    pub libraries: Libraries,
}

#[derive(Debug, Subcommand)]
pub enum McpCommand {
    /// Run an MCP server of standard streams in a sandbox, for any host program
    #[command(after_help = examples::MCP_WRAP)]
    Wrap(Box<Wrap>),
}

#[derive(Debug, Args)]
pub struct Wrap {
    /// Let the server see this directory copy-on-write; its changes become a bundle. Without it, the server
    /// starts in an empty directory, and its changes are deleted
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    #[command(flatten)]
    pub sandbox: SandboxFlags,
    #[command(flatten)]
    pub secrets: SecretFlags,
    /// Time limit of the whole session, such as 8h, or `none`
    #[arg(long, value_name = "DURATION", value_parser = parse_duration_or_none)]
    pub timeout: Option<OrNone<Duration>>,
    /// The server and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "SERVER")]
    pub command: Vec<OsString>,
}
