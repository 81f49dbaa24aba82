//! The arguments of `serve` and `keys`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use stockade_core::{parse_bytes, parse_duration};

use super::examples;
use super::sandbox::ServerMode;

#[derive(Debug, Clone, Default, Args)]
pub struct Serve {
    /// The address and port for clients over TCP [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// A TOML file with these options, such as `listen = "127.0.0.1:8080"`; a flag or a variable
    /// takes precedence
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The PostgreSQL database with the records, as postgres://USER@HOST:PORT/DATABASE, instead of a
    /// file in the data directory. A URL with a password is accepted only in the variable or the
    /// configuration file
    #[arg(long, value_name = "URL")]
    pub database_url: Option<String>,
    /// Share the database with other servers that have the same secret: the file with it
    #[arg(long, value_name = "FILE")]
    pub cluster_secret_file: Option<PathBuf>,
    /// The URL at which those servers reach this one [default: that of the listener, on the loopback]
    #[arg(long, value_name = "URL")]
    pub cluster_url: Option<String>,
    /// The queues that this server works on: `fireflow-sandbox`, or `none` if others hold the sandboxes
    /// [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub queues: Vec<String>,
    /// After how many seconds of silence a server is given up with its sandboxes [default: 120]
    #[arg(long, value_name = "SECONDS")]
    pub host_patience: Option<u32>,
    /// The certificates for TLS, in PEM format
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// The private key for TLS, in PEM format
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Serve requests for this host name, beside those for the loopback. Can be repeated
    #[arg(long, value_name = "NAME")]
    pub allowed_host: Vec<String>,
    /// Serve web pages of this origin, such as https://app.example, that send a key or a token. Can be
    /// repeated
    #[arg(long, value_name = "ORIGIN")]
    pub allowed_origin: Vec<String>,
    /// Let everyone use the ports of programs in sandboxes of E2B's clients who knows the sandbox's id, as at
    /// E2B, unless `allowPublicTraffic` is false
    #[arg(long)]
    pub public_ports: bool,
    /// The domain whose names are those of ports of sandboxes, such as 3000-ID.DOMAIN, for browsers
    /// [default: localhost]
    #[arg(long, value_name = "NAME")]
    pub sandbox_domain: Option<String>,
    /// The URL under which browsers reach this server, such as https://stockade.example [default:
    /// http://localhost with the port]
    #[arg(long, value_name = "URL")]
    pub public_url: Option<String>,
    /// Listen on an address that other hosts reach, without TLS
    #[arg(long)]
    pub allow_plaintext: bool,
    /// Listen on an address that other hosts reach before there is an API key
    #[arg(long)]
    pub allow_no_keys: bool,
    /// How many requests each API key may send in a minute [default: 60000]
    #[arg(long, value_name = "N")]
    pub requests_per_minute: Option<u32>,
    /// How many bytes the requests and responses of each API key may have in a minute; no limit when
    /// absent
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub bytes_per_minute: Option<u64>,
    /// Write a line for each request to the standard error, in this form
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub log: Option<LogFormat>,
    /// Write these lines to a file instead; needs --log. When it is full it is renamed to FILE.1, and older
    /// ones to FILE.2 to FILE.5
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,
    /// When the file of the log is full [default: 64M]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub log_file_size: Option<u64>,
    /// Send a trace of each request to this collector, by OTLP over HTTP, such as
    /// http://localhost:4318; needs a build with the feature `otlp`
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,
    /// Maximum number of sandboxes of an owner [default: 1000]
    #[arg(long, value_name = "NUMBER")]
    pub max_sandboxes: Option<u32>,
    /// Maximum number of snapshots of an owner [default: 1000]
    #[arg(long, value_name = "NUMBER")]
    pub max_snapshots: Option<u32>,
    /// How many sandboxes are started in advance, at most 512 [default: 64]
    #[arg(long, value_name = "NUMBER")]
    pub pool: Option<u32>,
    /// The directories that a `<Sandbox>` may mount, separated by colons; none if it is empty
    /// [default: all]
    #[arg(long, value_name = "DIR:DIR")]
    pub host_paths: Option<OsString>,
}

/// The form of the lines of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object per line
    Json,
}

#[derive(Debug, Args)]
pub struct Keys {
    #[command(subcommand)]
    pub what: KeysCommand,
}

#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Create an API key and print it: it is not shown again
    #[command(after_help = examples::KEYS_CREATE)]
    Create(CreateKey),
    /// List API keys
    #[command(after_help = examples::KEYS_LIST)]
    List(ListKeys),
    /// Revoke an API key: requests with it are refused from then on
    #[command(after_help = examples::KEYS_REVOKE)]
    Revoke(RevokeKey),
}

#[derive(Debug, Args)]
pub struct CreateKey {
    /// What the key is for
    #[arg(long, value_name = "TEXT")]
    pub name: Option<String>,
    /// The owner of the sandboxes that are created with the key; this user when absent
    #[arg(long, value_name = "OWNER")]
    pub owner: Option<String>,
    /// Also allow managing the server: its API keys
    #[arg(long)]
    pub admin: bool,
    /// After how long the key expires, such as `30d`; never when absent
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub expires: Option<Duration>,
    #[command(flatten)]
    pub common: KeysOptions,
}

#[derive(Debug, Args)]
pub struct ListKeys {
    /// Also list keys that have expired or were revoked
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub common: KeysOptions,
}

#[derive(Debug, Args)]
pub struct RevokeKey {
    /// The id of the key, as `stockade keys list` prints it
    pub id: String,
    #[command(flatten)]
    pub common: KeysOptions,
}

#[derive(Debug, Args)]
pub struct KeysOptions {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server_mode: ServerMode,
}

impl Keys {
    /// The options that all commands have.
    pub(crate) const fn common(&self) -> &KeysOptions {
        match &self.what {
            KeysCommand::Create(CreateKey { common, .. })
            | KeysCommand::List(ListKeys { common, .. })
            | KeysCommand::Revoke(RevokeKey { common, .. }) => common,
        }
    }
}
