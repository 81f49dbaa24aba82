//! What to write instead of a text that is no allowed host: for each shape that people paste.

use std::str::FromStr;

use super::allowed_host::parse;
use super::{AllowedHost, HOST_LOOPBACK, Host};

/// The longest text that is repeated.
const TEXT_BYTES: usize = 300;

/// As [`parse`]. A text in another shape is refused with the form that is probably meant.
impl FromStr for AllowedHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).map_err(|reason| for_text(text).unwrap_or(reason))
    }
}

/// What is wrong with a text, and the arguments that are probably meant.
fn for_text(text: &str) -> Option<String> {
    if text.len() > TEXT_BYTES {
        return None;
    }
    let (why, meant) = meant(text)?;
    let valid: Option<Vec<String>> = meant.iter().map(|one| valid(one)).collect();
    let arguments: Vec<_> = valid?.iter().map(|one| argument(one)).collect();
    (!arguments.is_empty()).then(|| format!("{why}: write `{}`", arguments.join(" ")))
}

/// The text in its usual form, if it is an allowed host; of the host's loopback the name for it.
fn valid(text: &str) -> Option<String> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_loopback = match Host::parse(host) {
        Ok(Host::Name(name)) => {
            name.as_str() == "localhost" || name.as_str().ends_with(".localhost")
        }
        Ok(Host::Address(address)) => address.is_loopback(),
        Err(_) => false,
    };
    if is_loopback {
        return Some(format!("{HOST_LOOPBACK}:{}", port.unwrap_or("PORT")));
    }
    let allowed = parse(text).ok()?;
    Some(allowed.to_string())
}

/// The argument as it is pasted into a shell.
fn argument(host: &str) -> String {
    if host.contains(['*', '[']) { format!("--allow '{host}'") } else { format!("--allow {host}") }
}

fn meant(text: &str) -> Option<(&'static str, Vec<String>)> {
    let one = |why, host: String| Some((why, vec![host]));
    let trimmed = text.trim().trim_matches(['"', '\'', '`', '<', '>']);
    if trimmed != text && !trimmed.is_empty() {
        return one("it has quotes or spaces around the host", rewritten(trimmed));
    }
    if text.contains([',', ' ', ';']) {
        let hosts: Vec<_> = text
            .split([',', ' ', ';'])
            .filter(|part| !part.is_empty())
            .map(str::to_owned)
            .collect();
        // Ports in a list belong to the first host.
        let is_port = |text: &String| text.parse::<u16>().is_ok();
        if let [first, ports @ ..] = hosts.as_slice()
            && !ports.is_empty()
            && ports.iter().all(is_port)
            && let Some((host, _)) = first.split_once(':')
        {
            let others = ports.iter().map(|port| format!("{host}:{port}"));
            return Some(("each port is an argument of its own", {
                let mut all = vec![first.clone()];
                all.extend(others);
                all
            }));
        }
        let hosts = hosts.iter().map(|host| rewritten(host)).collect();
        return Some(("each host is an argument of its own", hosts));
    }
    if text.contains("://") {
        return one("it is a URL, not a host", rewritten(text));
    }
    if text.contains('@') {
        return one("it has a user, and a host has none", rewritten(text));
    }
    if text.contains('/') {
        return one("it has a path, and a host has none", rewritten(text));
    }
    if let Some(port) = text.strip_prefix(':') {
        return one("the host is missing; for every public host", format!("*:{port}"));
    }
    if let Some(parent) = text.strip_prefix('.') {
        return one("for everything below a name", format!("*.{parent}"));
    }
    if let Some((host, port)) = text.rsplit_once(':') {
        if host.contains(':') && !host.ends_with(']') {
            return None;
        }
        if let Some(known) = known_port(port) {
            return one("a port is a number", format!("{host}:{known}"));
        }
        if port.is_empty() || matches!(port, "*" | "any" | "all") {
            return one("without a port all ports are allowed", host.to_owned());
        }
        if port.split('-').count() == 2 && port.split('-').all(|end| end.parse::<u16>().is_ok()) {
            return one(
                "a range of ports is not possible; name one port in each `--allow`, or allow all",
                host.to_owned(),
            );
        }
        if host.contains('*') {
            return wildcard(host).map(|host| (ONLY_FIRST, vec![format!("{host}:{port}")]));
        }
    }
    wildcard(text).map(|host| (ONLY_FIRST, vec![host]))
}

const ONLY_FIRST: &str = "`*` stands for whole labels at the beginning";

/// The nearest valid form of a name with an asterisk elsewhere.
fn wildcard(host: &str) -> Option<String> {
    let (_, after) = host.rsplit_once('*')?;
    let parent = after.strip_prefix('.').unwrap_or(after);
    Some(if parent.is_empty() { "*".to_owned() } else { format!("*.{parent}") })
}

/// The host and port of a URL, of `user@host`, of a path after a host, or of the address of a
/// repository.
fn rewritten(text: &str) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (Some(scheme.to_ascii_lowercase()), rest),
        None => (None, text),
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    };
    let scheme = scheme.as_deref();
    let port = match port {
        Some(port) if port.parse::<u16>().is_ok_and(|port| port > 0) => Some(port.to_owned()),
        Some(port) if known_port(port).is_some() => known_port(port).map(|port| port.to_string()),
        // `git@host:owner/repository`.
        Some(_) if user.is_some() => Some("22".to_owned()),
        _ => scheme.and_then(known_port).map(|port| port.to_string()),
    };
    let name = if name.is_empty() { "*" } else { name };
    port.map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"))
}

/// The port of a service, by the name that URLs and `/etc/services` have for it.
fn known_port(name: &str) -> Option<u16> {
    Some(match name.to_ascii_lowercase().as_str() {
        "http" | "ws" => 80,
        "https" | "wss" => 443,
        "ssh" | "sftp" | "git+ssh" | "ssh+git" => 22,
        "git" => 9418,
        "ftp" => 21,
        "postgres" | "postgresql" => 5432,
        "mysql" => 3306,
        "redis" => 6379,
        "mongodb" => 27017,
        "amqp" => 5672,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every form that the text suggests is accepted.
    fn suggested(text: &str) -> Vec<String> {
        let error = text.parse::<AllowedHost>().expect_err(text);
        let (_, arguments) =
            error.split_once("write `").unwrap_or_else(|| panic!("{text}: {error}"));
        let arguments = arguments.strip_suffix('`').unwrap().replace('\'', "");
        let hosts: Vec<_> =
            arguments.split("--allow ").skip(1).map(|one| one.trim().to_owned()).collect();
        for host in &hosts {
            if !host.ends_with("PORT") {
                assert!(host.parse::<AllowedHost>().is_ok(), "{text}: {host}");
            }
        }
        hosts
    }

    #[test]
    fn each_shape_that_people_paste_has_the_right_form() {
        for (text, forms) in [
            ("https://h.example/", "h.example:443"),
            ("HTTPS://H.example", "h.example:443"),
            ("http://h.example:8080/a?b#c", "h.example:8080"),
            ("https://user:pass@h.example/x", "h.example:443"),
            ("https://[2001:db8::1]/", "[2001:db8::1]:443"),
            ("https://[2001:db8::1]:8443/", "[2001:db8::1]:8443"),
            ("ssh://git@h.example/repo", "h.example:22"),
            ("git@github.com:owner/repo.git", "github.com:22"),
            ("user@h.example", "h.example"),
            ("user@h.example:2222", "h.example:2222"),
            ("h.example/path", "h.example"),
            ("h.example:443/path", "h.example:443"),
            ("h.example:443/tcp", "h.example:443"),
            ("tcp://h.example:5432", "h.example:5432"),
            ("unknown://h.example", "h.example"),
            ("h.example:80-90", "h.example"),
            ("h.example:80,443", "h.example:80 h.example:443"),
            ("a.example,b.example", "a.example b.example"),
            ("a.example b.example:443", "a.example b.example:443"),
            ("h.example:https", "h.example:443"),
            ("h.example:*", "h.example"),
            ("h.example:", "h.example"),
            (":443", "*:443"),
            (".example.com", "*.example.com"),
            ("*example.com", "*.example.com"),
            ("https://[::1]:3000/", "host.stockade.internal:3000"),
            ("api.*.example.com", "*.example.com"),
            ("*.*.example.com", "*.example.com"),
            ("**", "*"),
            ("https://*.example.com/", "*.example.com:443"),
            (" h.example ", "h.example"),
            ("\"h.example\"", "h.example"),
            ("localhost", "host.stockade.internal:PORT"),
            ("localhost:9801", "host.stockade.internal:9801"),
            ("LocalHost.:9801", "host.stockade.internal:9801"),
            ("app.localhost:9801", "host.stockade.internal:9801"),
            ("*.localhost:9801", "host.stockade.internal:9801"),
            ("http://localhost:3000/x", "host.stockade.internal:3000"),
            ("http://127.0.0.1:3000", "host.stockade.internal:3000"),
            ("host.stockade.internal", "host.stockade.internal:PORT"),
        ] {
            assert_eq!(suggested(text).join(" "), forms, "{text}");
        }
    }

    #[test]
    fn what_has_no_right_form_has_its_reason() {
        for text in
            ["", "h.example:0", "h.example:65536", "h.example:x", "0x7f.1", "[2001:db8::1]443"]
        {
            let error = text.parse::<AllowedHost>().unwrap_err();
            assert!(!error.is_empty() && !error.contains("write"), "{text}: {error}");
        }
        let long = format!("https://{}/", "a".repeat(1000));
        assert!(!long.parse::<AllowedHost>().unwrap_err().contains("write"), "{long}");
    }
}
