//! The policy that `--net learn` writes: what a run has connected to and, where its requests were read,
//! which requests it has made. Nothing else is allowed by it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;

use stockade_core::network::binding::{Binding, CredentialSlot};
use stockade_core::network::request_match::MAX_REQUESTS;
use stockade_core::network::{Host, MAX_PORTS, MAX_RULES, PathPattern};
use stockade_core::{Code, Problem};

use crate::egress::Requested;

/// How many rules one port of a host may have. Past that, its rule names methods alone.
const MAX_RULES_OF_PORT: usize = 16;

/// A rule about requests: methods, and paths.
type Requests = (Vec<String>, Vec<String>);

/// Writes the policy that allows exactly what was done. Returns notes about rules that are wider.
///
/// # Errors
/// [`Code::Io`] if the file cannot be written, [`Code::Conflict`] if it exists.
pub(crate) fn write(
    path: &Path,
    used: &BTreeMap<(Host, u16), Requested>,
    secrets: &[Binding],
) -> Result<Vec<String>, Problem> {
    let (text, notes) = text(used, secrets);
    let failed = |cause: String| {
        Problem::new(Code::Io, format!("cannot write {}", path.display())).because(cause)
    };
    let mut file = std::fs::File::create_new(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Problem::new(Code::Conflict, format!("{} exists", path.display()))
        }
        _ => failed(error.to_string()),
    })?;
    file.write_all(text.as_bytes()).map_err(|error| failed(error.to_string()))?;
    Ok(notes)
}

fn text(used: &BTreeMap<(Host, u16), Requested>, secrets: &[Binding]) -> (String, Vec<String>) {
    let placeholders: Vec<_> = secrets
        .iter()
        .filter_map(|binding| match &binding.place {
            CredentialSlot::Placeholder(text) => Some(text.as_str()),
            CredentialSlot::Header { .. } | CredentialSlot::Query { .. } => None,
        })
        .collect();
    let mut notes = Vec::new();
    // Ports of a host with the same requests have one rule.
    let mut rules: BTreeMap<(String, Vec<Requests>), Vec<u16>> = BTreeMap::new();
    for ((host, port), of_port) in used {
        let requests = requests(of_port, &placeholders, &mut |why| {
            notes.push(format!("the learned rule about {host}:{port} is wider than needed: {why}"));
        });
        rules.entry((host.to_string(), requests)).or_default().push(*port);
    }
    let count: usize = rules.keys().map(|(_, requests)| requests.len().max(1)).sum();
    if count > MAX_RULES {
        notes = vec![format!(
            "the learned rules name hosts alone: with requests they would be {count}"
        )];
        let mut hosts: BTreeMap<(String, Vec<Requests>), Vec<u16>> = BTreeMap::new();
        for (host, port) in used.keys() {
            hosts.entry((host.to_string(), Vec::new())).or_default().push(*port);
        }
        rules = hosts;
    }
    let mut text = "default = \"deny\"\n".to_owned();
    for ((host, requests), ports) in rules {
        for ports in ports.chunks(MAX_PORTS) {
            let all = [(Vec::new(), Vec::new())];
            for (methods, paths) in if requests.is_empty() { &all[..] } else { &requests } {
                let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
                // A host has no character that would need an escape.
                text.push_str(&format!(
                    "\n[[allow]]\nhost = \"{host}\"\nports = [{}]\n",
                    ports.join(", ")
                ));
                for (name, words) in [("methods", methods), ("paths", paths)] {
                    if !words.is_empty() {
                        // Visible ASCII is quoted in TOML as it is in Rust.
                        text.push_str(&format!("{name} = {words:?}\n"));
                    }
                }
            }
        }
    }
    (text, notes)
}

/// The rules about the requests to a port; none if all of them are allowed.
fn requests(
    of_port: &Requested,
    placeholders: &[&str],
    is_wider: &mut dyn FnMut(&str),
) -> Vec<Requests> {
    if of_port.has_unread {
        return Vec::new();
    }
    let mut paths: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (method, path) in &of_port.requests {
        paths.entry(method).or_default().insert(pattern(path, placeholders, is_wider));
    }
    // Methods with the same paths have one rule.
    let mut methods: BTreeMap<BTreeSet<String>, Vec<String>> = BTreeMap::new();
    for (method, paths) in paths {
        methods.entry(paths).or_default().push(method.to_owned());
    }
    let count: usize = methods.keys().map(|paths| paths.len().div_ceil(MAX_REQUESTS)).sum();
    if count > MAX_RULES_OF_PORT {
        is_wider("there were too many paths, so it names methods alone");
        let methods: BTreeSet<_> =
            of_port.requests.iter().map(|(method, _)| method.clone()).collect();
        return vec![(methods.into_iter().collect(), Vec::new())];
    }
    let mut rules = Vec::new();
    for (paths, methods) in methods {
        let paths: Vec<_> = paths.into_iter().collect();
        for paths in paths.chunks(MAX_REQUESTS) {
            rules.push((methods.clone(), paths.to_vec()));
        }
    }
    rules
}

/// A path as a rule names it: what a rule cannot name becomes all paths of its directory.
fn pattern(path: &str, placeholders: &[&str], is_wider: &mut dyn FnMut(&str)) -> String {
    let secret = placeholders.iter().filter_map(|placeholder| path.find(placeholder)).min();
    let is_pattern = path.parse::<PathPattern>().is_ok() && !path.ends_with("/*");
    let (end, why) = match secret {
        Some(at) => (at, "a path contains a secret"),
        None if is_pattern => return path.to_owned(),
        None => {
            let end = path.find('*').unwrap_or(path.len()).min(512);
            (end, "no rule can name one of its paths")
        }
    };
    is_wider(why);
    let directory = path.get(..end).and_then(|before| before.rfind('/')).unwrap_or(0);
    format!("{}/*", &path[..directory])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy_file::{policy, read, refuse_existing};
    use stockade_core::network::Name;

    fn host(text: &str) -> Host {
        Host::parse(text).unwrap()
    }

    fn requested(requests: &[(&str, &str)]) -> Requested {
        let requests =
            requests.iter().map(|(method, path)| ((*method).to_owned(), (*path).to_owned()));
        Requested { requests: requests.collect(), has_unread: false }
    }

    #[test]
    fn what_was_learned_is_a_policy() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("policy.toml");
        let many: Vec<_> = (0..100).map(|number| format!("/many/{number}")).collect();
        let many: Vec<_> = many.iter().map(|path| ("GET", path.as_str())).collect();
        let plain = requested(&[("GET", "/a"), ("HEAD", "/a"), ("POST", "/b\"c"), ("GET", "/x/*")]);
        let used = BTreeMap::from([
            ((host("a.example"), 443), Requested { has_unread: true, ..plain.clone() }),
            ((host("a.example"), 22), Requested::default()),
            ((host("a.example"), 80), plain),
            ((host("many.example"), 80), requested(&many)),
            ((host("9.9.9.9"), 53), Requested::default()),
        ]);
        let notes = write(&path, &used, &[]).unwrap();
        assert_eq!(notes.len(), 1, "{notes:?}");
        let read = policy(&read(path.to_str().unwrap()).unwrap()).unwrap();
        for (host, port) in used.keys() {
            assert!(read.check(host, *port).is_ok(), "{host} {port}");
        }
        assert!(read.check(&host("a.example"), 8080).is_err());
        assert!(read.check(&host("b.example"), 443).is_err());
        let (name, other) =
            (Name::parse("a.example").unwrap(), Name::parse("many.example").unwrap());
        for (method, path, is_allowed) in [
            ("GET", "/a?b=c", true),
            ("HEAD", "/a", true),
            ("POST", "/b\"c", true),
            ("GET", "/x/y", true),
            ("POST", "/a", false),
            ("GET", "/b\"c", false),
            ("GET", "/a/b", false),
            ("DELETE", "/a", false),
        ] {
            assert_eq!(read.check_request(&name, 80, (method, path)).is_ok(), is_allowed, "{path}");
        }
        assert!(read.check_request(&name, 443, ("DELETE", "/")).is_ok());
        assert!(read.check_request(&other, 80, ("GET", "/many/99")).is_ok());
        assert!(read.check_request(&other, 80, ("GET", "/many/100")).is_err());
        assert_eq!(refuse_existing(&path).unwrap_err().code, Code::Conflict);
        assert!(write(&path, &BTreeMap::new(), &[]).is_err());
    }

    #[test]
    fn a_placeholder_is_in_no_rule() {
        let wider = &mut |_: &str| {};
        assert_eq!(pattern("/bot/stockade-1/send", &["stockade-1"], wider), "/bot/*");
        assert_eq!(pattern("/botstockade-1/send", &["stockade-1"], wider), "/*");
        assert_eq!(pattern("/bot/send", &["stockade-1"], wider), "/bot/send");
    }

    #[test]
    fn what_is_too_much_is_wider_and_told() {
        let paths: Vec<_> = (0..2000).map(|number| format!("/{number}")).collect();
        let paths: Vec<_> = paths.iter().map(|path| ("GET", path.as_str())).collect();
        let used = BTreeMap::from([((host("a.example"), 80), requested(&paths))]);
        let (text, notes) = text(&used, &[]);
        assert!(text.contains("methods = [\"GET\"]") && !text.contains("paths"), "{text}");
        assert_eq!(notes.len(), 1);
        let used = (0..600).map(|number| {
            let requests = requested(&[("GET", "/a")]);
            ((host(&format!("h{number}.example")), 80), requests)
        });
        let (_, notes) = super::text(&used.collect(), &[]);
        assert!(notes[0].contains("hosts alone"), "{notes:?}");
    }
}
