//! The servers that runs of workflows have named, each with the key that was given with it. They are in the
//! memory of this process only: after its end, `stockade resume` gives a key again.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use stockade_core::sandbox::ServerElsewhere;
use stockade_runtime::Error;
use stockade_runtime_remote::{Failure, Protocol};

use crate::address::{Address, TIMEOUT, is_authority};
use crate::lifecycle::Server;

/// How a server is used that a run has named.
#[derive(Clone, Default)]
pub struct Access {
    /// The key that it requires, if it does.
    pub key: Option<String>,
    /// Authorities that its certificate may be of besides those of the system, in PEM format.
    pub authorities: Option<Arc<str>>,
}

impl fmt::Debug for Access {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}

/// Why a server cannot be used that a run has named.
#[derive(Debug, thiserror::Error)]
pub enum NamingError {
    /// The URL or the key cannot be used: why.
    #[error("{0}")]
    Invalid(String),
    /// The server refuses the key, or wants one.
    #[error("the server refused the API key: {0}")]
    Refused(String),
    /// The server does not answer as one does.
    #[error("{0}")]
    Unreachable(String),
}

/// The servers that runs have named.
#[derive(Debug, Default)]
pub(crate) struct NamedServers(Mutex<HashMap<ServerElsewhere, Server>>);

impl NamedServers {
    /// Adds a server, in place of the one with another key, once it has accepted the key.
    pub(crate) async fn add(
        &self,
        named: ServerElsewhere,
        access: &Access,
    ) -> Result<(), NamingError> {
        let server = server(&named.url, access).map_err(NamingError::Invalid)?;
        match server.check().await {
            Ok(()) => {}
            Err(failure @ Failure::Refused { status: 401 | 403, .. }) => {
                return Err(NamingError::Refused(failure.to_string()));
            }
            Err(failure) => return Err(NamingError::Unreachable(described(&failure))),
        }
        match server.is_stockade().await {
            Ok(true) => {}
            Ok(false) => {
                let why = "it is not a server of Stockade, so its sandboxes may have a network";
                return Err(NamingError::Invalid(why.to_owned()));
            }
            Err(failure) => return Err(NamingError::Unreachable(described(&failure))),
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(named, server);
        Ok(())
    }

    /// Lets a run use the server of another one, if that is known.
    pub(crate) fn copy(&self, from: &ServerElsewhere, to: ServerElsewhere) {
        let mut servers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = servers.get(from).cloned() {
            servers.insert(to, server);
        }
    }

    pub(crate) fn find(&self, named: &ServerElsewhere) -> Option<Server> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(named).cloned()
    }
}

/// A failure with its cause.
fn described(failure: &Failure) -> String {
    match std::error::Error::source(failure) {
        Some(source) => format!("{failure}: {source}"),
        None => failure.to_string(),
    }
}

fn server(url: &str, access: &Access) -> Result<Server, String> {
    let (protocol, domain) = match url.split_once("://") {
        Some(("https", domain)) => (Protocol::Https, domain),
        Some(("http", domain)) => (Protocol::Http, domain),
        _ => return Err("it is no URL of the form https://HOST[:PORT]".to_owned()),
    };
    if !is_authority(domain) {
        return Err("it is no URL of the form https://HOST[:PORT]".to_owned());
    }
    Server::new(&Address {
        domain: domain.to_owned(),
        protocol,
        key: access.key.clone(),
        // Nothing but the server itself was named.
        use_server_proxy: true,
        authorities: access.authorities.clone(),
        timeout: TIMEOUT,
    })
}

/// The command that gives the key of a run again.
pub(crate) fn key_remedy(run: &str) -> String {
    format!("STOCKADE_API_KEY=KEY stockade resume {run}")
}

/// The error where this process does not have the key of a server.
pub(crate) fn unknown(named: &ServerElsewhere) -> Error {
    Error::Unavailable {
        what: format!("the server {} of the run {}", named.url, named.run),
        reason: "its API key is stored nowhere, and was not given to this process".to_owned(),
        remedy: key_remedy(&named.run),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_urls_of_servers_are_accepted() {
        for url in ["http://127.0.0.1:8080", "https://box.example", "http://[::1]:80"] {
            assert!(server(url, &Access::default()).is_ok(), "{url}");
        }
        for url in ["box.example", "ftp://box.example", "http://", "http://a/b", "http://u:p@a"] {
            assert!(server(url, &Access::default()).is_err(), "{url}");
        }
        let access = Access { key: Some("sec\nret".to_owned()), authorities: None };
        let refused = server("http://a", &access).unwrap_err();
        assert!(!refused.contains("sec") && !format!("{access:?}").contains("sec"), "{refused}");
    }

    #[tokio::test]
    async fn a_server_that_does_not_answer_is_not_used() {
        let servers = NamedServers::default();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let named = ServerElsewhere { url, run: "r".to_owned() };
        let refused = servers.add(named.clone(), &Access::default()).await;
        assert!(matches!(refused, Err(NamingError::Unreachable(_))), "{refused:?}");
        assert!(servers.find(&named).is_none());
        let error = unknown(&named).to_string();
        assert!(error.contains("stored nowhere"), "{error}");
    }
}
