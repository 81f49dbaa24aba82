//! The connection to a server at a URL.

use std::sync::Arc;

use stockade_api::SecretValue;
use stockade_client::{Client, Dial};
use stockade_core::{Code, Problem};

use super::chosen::ChosenServer;
use super::connector::{Connector, Plain};
use super::credentials;

/// A client of a server, with the key that belongs to it. Nothing is sent yet.
///
/// # Errors
/// If the stored keys cannot be read, or the other program is missing.
pub(super) fn client(server: &ChosenServer) -> Result<Client, Problem> {
    let login = credentials::login_for(server, |name| std::env::var_os(name))?;
    let mut server = server.clone();
    if server.authorities.is_none() {
        server.authorities = login.as_ref().and_then(|login| login.tls_ca.clone());
    }
    client_with(&server, login.as_ref().map(|login| &login.key))
}

/// The same with a given key.
///
/// # Errors
/// As [`client`].
pub(crate) fn client_with(
    server: &ChosenServer,
    key: Option<&SecretValue>,
) -> Result<Client, Problem> {
    let ChosenServer { url, authorities, .. } = server;
    let dial: Arc<dyn Dial> = match url.is_secure() {
        true => Arc::new(Connector::start(url, authorities.as_deref())?),
        false => Arc::new(Plain(url.clone())),
    };
    Client::of_url(dial, url, key.map(|key| key.0.as_str()))
}

/// A problem as the user of a server elsewhere can solve it: what the server proposes is often about its
/// own machine.
pub(crate) fn explained(problem: Problem, server: &ChosenServer) -> Problem {
    let url = &server.url;
    match problem.code {
        Code::Unauthenticated => {
            let remedy =
                format!("stockade login {url}, with a key of `stockade keys create` there");
            problem.remedied_by(remedy)
        }
        _ => problem,
    }
}
