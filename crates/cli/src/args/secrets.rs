//! The arguments of `secrets`: no value of a secret is among them, for arguments are visible to others.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::examples;
use super::sandbox::ServerMode;
use super::sandbox_flags::UserArgument;

#[derive(Debug, Args)]
pub struct Secrets {
    #[command(subcommand)]
    pub what: SecretsCommand,
}

#[derive(Debug, Subcommand)]
pub enum SecretsCommand {
    /// Store a secret: its value is read from standard input, or typed at a prompt
    #[command(after_help = examples::SECRETS_SET)]
    Set(SetSecret),
    /// List the secrets, without their values
    #[command(alias = "ls", after_help = examples::SECRETS_LIST)]
    List(ListSecrets),
    /// Replace the value of a secret. Commands that have the old one keep it
    #[command(after_help = examples::SECRETS_ROTATE)]
    Rotate(RotateSecret),
    /// Remove a secret. Commands that have it keep it
    #[command(alias = "rm", after_help = examples::SECRETS_REMOVE)]
    Remove(RemoveSecret),
    /// Write a secret to a file in a sandbox, below /run/secrets, which is in memory
    #[command(after_help = examples::SECRETS_WRITE)]
    Write(WriteSecret),
}

#[derive(Debug, Args)]
pub struct SetSecret {
    /// Its name: letters, digits, `-`, `_` and `.`
    pub name: String,
    /// Its type, such as string, openai, anthropic or xApp; a type with several fields takes a JSON
    /// object of them
    #[arg(long = "type", value_name = "TYPE", default_value = "string")]
    pub kind: String,
    /// A JSON file with a secret that FireFlow's predecessor has sealed, instead of a value
    #[arg(long, value_name = "FILE", requires = "recipient_key")]
    pub envelope: Option<PathBuf>,
    /// A file with the private key that it was sealed for, as base64url
    #[arg(long, value_name = "FILE", requires = "envelope")]
    pub recipient_key: Option<PathBuf>,
    #[command(flatten)]
    pub common: SecretsOptions,
}

#[derive(Debug, Args)]
pub struct ListSecrets {
    #[command(flatten)]
    pub common: SecretsOptions,
}

#[derive(Debug, Args)]
pub struct RotateSecret {
    /// Its name or id
    pub name: String,
    #[command(flatten)]
    pub common: SecretsOptions,
}

#[derive(Debug, Args)]
pub struct RemoveSecret {
    /// Its name or id
    pub name: String,
    #[command(flatten)]
    pub common: SecretsOptions,
}

#[derive(Debug, Args)]
pub struct WriteSecret {
    /// Its name or id, or a `.ffsecret` file, and a field if it has several
    #[arg(value_name = "SECRET[#FIELD]")]
    pub secret: String,
    /// The sandbox's id, a unique prefix of it, or `latest`
    pub id: String,
    /// The path in the sandbox, below /run/secrets
    pub path: String,
    /// The owner of the file [default: the user of commands]
    #[arg(long, short, value_name = "UID[:GID]")]
    pub user: Option<UserArgument>,
    #[command(flatten)]
    pub common: SecretsOptions,
}

#[derive(Debug, Args)]
pub struct SecretsOptions {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server_mode: ServerMode,
}

impl Secrets {
    /// The options that all commands have.
    pub(crate) const fn common(&self) -> &SecretsOptions {
        match &self.what {
            SecretsCommand::Set(SetSecret { common, .. })
            | SecretsCommand::List(ListSecrets { common, .. })
            | SecretsCommand::Rotate(RotateSecret { common, .. })
            | SecretsCommand::Remove(RemoveSecret { common, .. })
            | SecretsCommand::Write(WriteSecret { common, .. }) => common,
        }
    }
}
