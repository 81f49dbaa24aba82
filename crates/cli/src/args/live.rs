//! The arguments of the commands that work on commands that run, and on ports inside.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use clap::Args;
use stockade_core::parse_duration;

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

/// A port of the host and the port inside that it leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortPair {
    pub host: u16,
    pub inside: u16,
}

impl std::str::FromStr for PortPair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
            true => text.parse::<u16>().map_err(|_| format!("`{text}` is not a port number")),
            false => Err(format!("`{text}` is not a port number")),
        };
        let pair = match text.split_once(':') {
            Some((host, inside)) => Self { host: number(host)?, inside: number(inside)? },
            None => {
                let port = number(text)?;
                Self { host: port, inside: port }
            }
        };
        match pair.inside {
            0 => Err("the port inside must be a number from 1 to 65535".to_owned()),
            _ => Ok(pair),
        }
    }
}

/// A port of the host that leads to a port inside, as docker writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishedPort {
    pub address: IpAddr,
    pub ports: PortPair,
}

/// Reads `HOST:INSIDE`, with an address before it if there is one.
pub fn published_port(text: &str) -> Result<PublishedPort, String> {
    let mut parts = text.rsplitn(3, ':');
    let (Some(inside), Some(host)) = (parts.next(), parts.next()) else {
        return Err("expected HOST:INSIDE, such as 8080:80".to_owned());
    };
    let address = match parts.next() {
        None => IpAddr::V4(Ipv4Addr::LOCALHOST),
        Some(address) => {
            let bare = address.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
            let parsed = bare.unwrap_or(address).parse();
            parsed.map_err(|_| format!("`{address}` is not an address"))?
        }
    };
    let ports = format!("{host}:{inside}");
    let ports: PortPair = ports.parse()?;
    match ports.host {
        0 => Err("a published port of the host must be a number from 1 to 65535".to_owned()),
        _ => Ok(PublishedPort { address, ports }),
    }
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
    fn ports_are_read_strictly() {
        let pair = |text: &str| text.parse::<PortPair>();
        assert_eq!(pair("3000:80"), Ok(PortPair { host: 3000, inside: 80 }));
        assert_eq!(pair("80"), Ok(PortPair { host: 80, inside: 80 }));
        assert_eq!(pair("0:80"), Ok(PortPair { host: 0, inside: 80 }));
        for bad in
            ["", ":", "80:", ":80", "80:0", "0", "+1:2", "1:2:3", "65536:1", "1:65536", "a:b"]
        {
            assert!(pair(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn published_ports_are_written_as_docker_writes_them() {
        let read =
            |text: &str| published_port(text).map(|port| (port.address.to_string(), port.ports));
        let pair = PortPair { host: 8080, inside: 80 };
        assert_eq!(read("8080:80"), Ok(("127.0.0.1".to_owned(), pair)));
        assert_eq!(read("0.0.0.0:8080:80"), Ok(("0.0.0.0".to_owned(), pair)));
        assert_eq!(read("[::1]:8080:80"), Ok(("::1".to_owned(), pair)));
        for bad in ["", "80", "0:80", "80:0", "x:1:2", "localhost:1:2", ":1:2", "8080:80/udp"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

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
