//! Ports of the host and ports inside, as arguments.

use std::net::{IpAddr, Ipv4Addr};

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
}
