//! `stockade login` and `stockade logout`: the API keys for servers at URLs.

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use stockade_api::SecretValue;
use stockade_core::{Code, Problem};

use super::print::notify;
use crate::args::login::{Login, Logout};
use crate::problem::{Failure, caused};
use crate::remote::chosen::{self, ChosenServer};
use crate::remote::credentials::{self, Credentials, checked_key};
use crate::remote::{block_on, connect};
use crate::terminal;

/// The longest key with what surrounds it.
const MAX_BYTES: u64 = 16 << 10;

/// Stores the key for a server that accepts it.
pub(super) fn login(arguments: &Login) -> Result<u8, Failure> {
    let server = chosen::at(&arguments.url)?;
    // Before the key is read: a user who types it learns at once that it could not be stored.
    let mut stored = Credentials::read()?;
    let key = key(arguments.key_file.as_deref(), &server)?;
    let client = connect::client_with(&server, Some(&key))?;
    block_on(async {
        client.health().await.map_err(|problem| match problem.code {
            Code::Unauthenticated => problem.remedied_by("on the server: stockade keys create"),
            _ => problem,
        })?;
        Ok(())
    })?;
    let url = server.url.clone();
    let login = credentials::Login { key, tls_ca: server.authorities };
    let is_default = !arguments.no_default;
    stored.store(&url, login, is_default)?;
    let path = stored.path().display();
    notify(&match is_default {
        true => format!(
            "logged in to {url}; the key is in {path}; commands about sandboxes use this server now; \
             for this machine: --server local"
        ),
        false => format!(
            "logged in to {url}; the key is in {path}; use the server: export {}={url}",
            chosen::SERVER
        ),
    });
    Ok(0)
}

/// Removes the key for a server, or for all.
pub(super) fn logout(arguments: &Logout) -> Result<u8, Failure> {
    let url = arguments.url.as_deref().map(chosen::parse).transpose()?;
    let removed = Credentials::read()?.remove(url.as_ref())?;
    if let (Some(url), true) = (&url, removed.is_empty()) {
        let message = format!("there is no key for {url}");
        return Err(Problem::new(Code::NotFound, message).into());
    }
    for url in removed {
        notify(&format!("logged out of {url}"));
    }
    Ok(0)
}

/// The key from a file, or from standard input: without echo if that is a terminal.
fn key(file: Option<&Path>, server: &ChosenServer) -> Result<SecretValue, Problem> {
    let mut text = SecretValue::new(String::new());
    let (name, read) = match file {
        Some(path) => {
            let read = std::fs::File::open(path)
                .and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text.0));
            (path.display().to_string(), read.map(drop))
        }
        None if terminal::is_on_input() => {
            let read = prompt(&format!("API key for {}: ", server.url), &mut text);
            ("standard input".to_owned(), read)
        }
        None => {
            let input = std::io::stdin().lock().take(MAX_BYTES);
            ("standard input".to_owned(), { input }.read_to_string(&mut text.0).map(drop))
        }
    };
    read.map_err(|error| {
        let problem = caused(Code::InvalidInput, &error);
        Problem { message: format!("the API key cannot be read from {name}: {error}"), ..problem }
    })?;
    checked_key(&text.0).ok_or_else(|| {
        Problem::new(Code::InvalidInput, format!("there is no API key in {name}"))
            .because("a key is one line of visible ASCII characters")
            .remedied_by(format!("stockade login {} --key-file FILE", server.url))
    })
}

/// Reads a line from the terminal on standard input, which does not show it.
pub(super) fn prompt(question: &str, to: &mut SecretValue) -> std::io::Result<()> {
    let input = std::io::stdin();
    let before = tcgetattr(input.as_fd())?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    silent.local_modes.insert(LocalModes::ECHONL);
    let mut messages = std::io::stderr();
    messages.write_all(question.as_bytes()).and_then(|()| messages.flush())?;
    tcsetattr(input.as_fd(), OptionalActions::Flush, &silent)?;
    let read = input.read_line(&mut to.0);
    tcsetattr(input.as_fd(), OptionalActions::Drain, &before)?;
    read.map(drop)
}
