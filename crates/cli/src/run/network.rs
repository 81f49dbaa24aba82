//! What the command reaches: nothing but its own loopback, or what `--allow` names.

use stockade_core::access::Effect;
use stockade_core::network::{Policy, Rule};
use stockade_core::{Code, Problem};
use stockade_jail::network::PROXY_PORT;

use crate::args::{Network, Run};

/// What is reached without a proxy: the sandbox's own loopback.
const OWN: &str = "localhost,127.0.0.1,::1";

/// The policy of a run; none where there is to be no way out at all.
pub(super) fn policy(arguments: &Run) -> Result<Option<Policy>, Problem> {
    match (arguments.net, arguments.allow.as_slice()) {
        (None | Some(Network::Off), []) => Ok(None),
        (Some(Network::Off), _) => {
            Err(Problem::new(Code::InvalidInput, "`--net off` and `--allow` exclude each other")
                .remedied_by("leave `--net off` out: `--allow` lets through what it names alone"))
        }
        (None | Some(Network::Policy), rules) => {
            Ok(Some(Policy::new(Effect::Deny, rules.to_vec())?))
        }
    }
}

/// The variables by which programs find the proxy.
pub(super) fn variables() -> Vec<(&'static str, String)> {
    let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
    let proxies =
        ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
    let mut variables: Vec<_> = proxies.map(|name| (name, proxy.clone())).into();
    variables.extend(["NO_PROXY", "no_proxy"].map(|name| (name, OWN.to_owned())));
    variables
}

/// Reads what `--allow` is followed by: `HOST`, `HOST:PORT`, and addresses of IPv6 in brackets where
/// there is a port.
pub(crate) fn parse_allowed(text: &str) -> Result<Rule, String> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => {
            let port =
                port.strip_prefix(':').ok_or("after `]` comes nothing, or a colon and a port")?;
            (host, Some(port))
        }
        None => match text.split_once(':') {
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            _ => (text, None),
        },
    };
    let port = port.map(|port| {
        let number = port.parse().ok().filter(|port: &u16| *port > 0);
        number.ok_or_else(|| format!("`{port}` is no port"))
    });
    let ports = port.transpose()?.into_iter().collect();
    Ok(Rule { action: Effect::Allow, target: host.parse()?, ports })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_may_have_a_port() {
        let read = |text: &str| {
            let rule = parse_allowed(text)?;
            Ok::<_, String>((rule.target.to_string(), rule.ports))
        };
        for (text, target, ports) in [
            ("API.example.com", "api.example.com", vec![]),
            ("api.example.com:443", "api.example.com", vec![443]),
            ("*.example.com:443", "*.example.com", vec![443]),
            ("10.1.2.3:5432", "10.1.2.3", vec![5432]),
            ("10.0.0.0/8", "10.0.0.0/8", vec![]),
            ("2001:db8::1", "2001:db8::1", vec![]),
            ("2001:db8::/32", "2001:db8::/32", vec![]),
            ("[2001:db8::1]", "2001:db8::1", vec![]),
            ("[2001:db8::1]:443", "2001:db8::1", vec![443]),
        ] {
            assert_eq!(read(text), Ok((target.to_owned(), ports)), "{text}");
        }
        for text in ["", "*", ":443", "a.example:", "a.example:0", "a.example:65536", "a.example:x"]
        {
            assert!(read(text).is_err(), "{text}");
        }
        for text in ["https://a.example", "a.example/path", "[2001:db8::1]443", "a b", "0x7f.1"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
