//! Where the engine listens: `DOCKER_HOST`, else the context that `DOCKER_CONTEXT` or the client's
//! configuration names, else the usual socket. Only Unix sockets are accepted: the engine must be on
//! this machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The socket of an engine that nothing else names.
const SOCKET: &str = "/var/run/docker.sock";
/// The context that means that socket.
const DEFAULT_CONTEXT: &str = "default";

/// The address of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Its socket.
    pub socket: PathBuf,
}

/// Why an address cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressError {
    /// The reason, in one sentence.
    pub reason: String,
    /// How to fix it: a command that can be pasted.
    pub remedy: String,
}

/// The parts of the client's configuration and of a context that are used.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Configuration {
    current_context: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Context {
    name: String,
    endpoints: Endpoints,
}

#[derive(Debug, Deserialize)]
struct Endpoints {
    docker: Option<Endpoint>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Endpoint {
    host: Option<String>,
}

impl Address {
    /// The address in this process's environment.
    ///
    /// # Errors
    /// For an engine on another machine, or a context that does not exist.
    pub fn from_environment() -> Result<Self, AddressError> {
        Self::find(&|name| std::env::var_os(name))
    }

    /// The address in an environment.
    ///
    /// # Errors
    /// As [`Address::from_environment`].
    pub fn find(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Self, AddressError> {
        let text = |name: &str| {
            let value = variable(name)?.to_string_lossy().into_owned();
            (!value.is_empty()).then_some(value)
        };
        if let Some(host) = text("DOCKER_HOST") {
            return Self::parse(&host, "DOCKER_HOST");
        }
        let home = text("HOME").map(|home| Path::new(&home).join(".docker"));
        let directory = text("DOCKER_CONFIG").map(PathBuf::from).or(home);
        let named = text("DOCKER_CONTEXT").or_else(|| current_context(directory.as_deref()?));
        match named.filter(|name| name != DEFAULT_CONTEXT) {
            None => Ok(Self { socket: SOCKET.into() }),
            Some(name) => {
                let host = directory.as_deref().and_then(|path| host_of_context(path, &name));
                let host = host.ok_or_else(|| AddressError {
                    reason: format!("the Docker context {name:?} does not exist"),
                    remedy: "docker context ls".to_owned(),
                })?;
                Self::parse(&host, &format!("the Docker context {name:?}"))
            }
        }
    }

    fn parse(host: &str, source: &str) -> Result<Self, AddressError> {
        match host.strip_prefix("unix://") {
            Some(path) if path.starts_with('/') => Ok(Self { socket: path.into() }),
            _ => Err(AddressError {
                reason: format!(
                    "{source} names {host:?}, but only an engine on this machine can be used"
                ),
                remedy: format!("export DOCKER_HOST=unix://{SOCKET}"),
            }),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the Docker engine at {}", self.socket.display())
    }
}

fn current_context(directory: &Path) -> Option<String> {
    let text = std::fs::read(directory.join("config.json")).ok()?;
    serde_json::from_slice::<Configuration>(&text).ok()?.current_context
}

/// The address in a context. The directories of contexts have hashes as names, so each is read.
fn host_of_context(directory: &Path, name: &str) -> Option<String> {
    let entries = std::fs::read_dir(directory.join("contexts/meta")).ok()?;
    let contexts = entries.flatten().filter_map(|entry| {
        let text = std::fs::read(entry.path().join("meta.json")).ok()?;
        serde_json::from_slice::<Context>(&text).ok()
    });
    let found = contexts.into_iter().find(|context| context.name == name)?;
    found.endpoints.docker?.host
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(variables: &[(&str, &str)]) -> Result<Address, AddressError> {
        Address::find(&|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn a_socket_is_named_by_a_variable_or_a_context() {
        let usual = Address { socket: SOCKET.into() };
        assert_eq!(find(&[]), Ok(usual.clone()));
        assert_eq!(find(&[("DOCKER_HOST", "")]), Ok(usual.clone()));
        let named = find(&[("DOCKER_HOST", "unix:///run/x.sock"), ("DOCKER_CONTEXT", "y")]);
        assert_eq!(named, Ok(Address { socket: "/run/x.sock".into() }));

        let place = tempfile::tempdir().unwrap();
        let meta = place.path().join("contexts/meta/abc");
        std::fs::create_dir_all(&meta).unwrap();
        let context = |host: &str| {
            let text = format!(
                r#"{{"Name":"mine","Metadata":{{}},"Endpoints":{{"docker":{{"Host":"{host}"}}}}}}"#
            );
            std::fs::write(meta.join("meta.json"), text).unwrap();
        };
        context("unix:///run/mine.sock");
        let directory = place.path().to_str().unwrap();
        let mine = Ok(Address { socket: "/run/mine.sock".into() });
        assert_eq!(find(&[("DOCKER_CONFIG", directory), ("DOCKER_CONTEXT", "mine")]), mine);
        std::fs::write(place.path().join("config.json"), r#"{"currentContext":"mine"}"#).unwrap();
        assert_eq!(find(&[("DOCKER_CONFIG", directory)]), mine);
        let default = [("DOCKER_CONFIG", directory), ("DOCKER_CONTEXT", "default")];
        assert_eq!(find(&default), Ok(usual));
        context("ssh://elsewhere");
        let far = find(&[("DOCKER_CONFIG", directory)]).unwrap_err();
        assert!(far.reason.contains("ssh://elsewhere"), "{far:?}");
    }

    #[test]
    fn another_machine_and_an_unknown_context_are_refused_with_a_remedy() {
        for host in ["tcp://127.0.0.1:2375", "ssh://me@there", "unix://relative", "/run/x.sock"] {
            let refused = find(&[("DOCKER_HOST", host)]).unwrap_err();
            assert!(refused.reason.contains(host), "{refused:?}");
            assert_eq!(refused.remedy, "export DOCKER_HOST=unix:///var/run/docker.sock");
        }
        let unknown = find(&[("DOCKER_CONTEXT", "none"), ("HOME", "/nowhere")]).unwrap_err();
        assert_eq!(unknown.remedy, "docker context ls");
    }
}
