//! The arguments of the commands that work on commands that run, and on ports inside.

use std::net::IpAddr;
use std::time::Duration;

use clap::Args;
use stockade_core::parse_duration;

use super::ports::PortPair;
use super::sandbox::ServerMode;

#[derive(Debug, Args)]
pub struct Ps {
    /// Only commands of this sandbox: its id, a unique prefix of it, or `latest`
    pub id: Option<String>,
    /// Include commands that have ended
    #[arg(long, short)]
    pub all: bool,
    /// Print only ids
    #[arg(long, short, conflicts_with = "json")]
    pub quiet: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct Attach {
    /// The command, as `stockade ps` prints it; or a sandbox in which one command runs
    #[arg(value_name = "ID/COMMAND")]
    pub command: String,
    /// Do not send standard input to the command
    #[arg(long)]
    pub no_stdin: bool,
    /// The keys that leave a command with a terminal, without ending it
    #[arg(long, value_name = "KEYS", default_value = "ctrl-p,ctrl-q")]
    pub detach_keys: DetachKeys,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct Wait {
    /// The commands, as `stockade ps` prints them; or sandboxes in which one command runs
    #[arg(value_name = "ID/COMMAND", required = true)]
    pub commands: Vec<String>,
    /// Give up after this time, such as 30s; the commands continue
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub timeout: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct Forward {
    /// The sandbox's id, a unique prefix of it, or `latest`
    pub id: String,
    /// The ports: that of the host, and that inside; one number for both; 0 for any free port of
    /// the host
    #[arg(value_name = "HOST:INSIDE", required = true)]
    pub ports: Vec<PortPair>,
    /// The address of the host to listen on. Only this user's processes may connect, except over
    /// an address that is not of the loopback
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub address: IpAddr,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct Open {
    /// The sandbox's id, a unique prefix of it, or `latest`
    pub id: String,
    /// The port inside; the default port of the sandbox when absent
    pub port: Option<std::num::NonZero<u16>>,
    /// The path and query that the browser shows
    #[arg(long, value_name = "PATH")]
    pub path: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A sequence of keys, as docker writes it: letters and `ctrl-` with a letter, separated by commas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetachKeys(pub Vec<u8>);

impl std::str::FromStr for DetachKeys {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let keys = text.split(',').map(|key| match key.as_bytes() {
            [key] if key.is_ascii_graphic() => Ok(*key),
            [b'c', b't', b'r', b'l', b'-', key] => match key.to_ascii_uppercase() {
                upper @ b'@'..=b'_' => Ok(upper - b'@'),
                _ => Err(unknown_key(key_text(*key))),
            },
            _ => Err(unknown_key(key.to_owned())),
        });
        Ok(Self(keys.collect::<Result<_, _>>()?))
    }
}

fn key_text(key: u8) -> String {
    format!("ctrl-{}", char::from(key))
}

fn unknown_key(key: String) -> String {
    format!("`{key}` is not a key: use letters and ctrl-LETTER, separated by commas")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_written_as_docker_writes_them() {
        let keys = |text: &str| text.parse::<DetachKeys>().map(|keys| keys.0);
        assert_eq!(keys("ctrl-p,ctrl-q"), Ok(vec![16, 17]));
        assert_eq!(keys("ctrl-P"), Ok(vec![16]));
        assert_eq!(keys("ctrl-@,a,ctrl-\\"), Ok(vec![0, b'a', 28]));
        for bad in ["", "ctrl-", "ctrl-1", "ctrl-pq", "ab", "a,,b"] {
            assert!(keys(bad).is_err(), "{bad}");
        }
    }
}
