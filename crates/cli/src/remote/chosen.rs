//! Which server the operations are requested from: that of the data directory, or the one at a URL that
//! the command line, the environment or the last login names.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

use stockade_client::ServerUrl;
use stockade_core::{Code, Problem};

use crate::args::global::Global;
use crate::problem::caused;

/// The value that stands for the server of the data directory.
const LOCAL: &str = "local";
/// The variable of the server.
pub(crate) const SERVER: &str = "STOCKADE_SERVER";
/// The variable of the file with authorities.
const AUTHORITIES: &str = "STOCKADE_TLS_CA";
/// The variable that allows sending an API key in plain text over a network.
const PLAINTEXT: &str = "STOCKADE_ALLOW_PLAINTEXT";
/// The prefixes of the variables of OpenSandbox' clients: the SDK's, and FireFlow's. The first one that
/// is set counts.
pub(crate) const CLIENT_PREFIXES: [&str; 2] = ["OPEN_SANDBOX_", "OPENSANDBOX_"];

/// A server at a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChosenServer {
    pub(crate) url: ServerUrl,
    /// A file with authorities that its certificate may be of, besides those of the system.
    pub(crate) authorities: Option<PathBuf>,
    pub(crate) source: Source,
}

/// What has named the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// `--server`.
    Flag,
    /// [`SERVER`].
    Variable,
    /// The variables of OpenSandbox' clients, which are not about commands that concern this machine.
    ClientVariable,
    /// The last `stockade login`, for commands that can use a server at a URL.
    Login,
}

/// What the command line and the environment say.
#[derive(Debug, Default)]
struct Choice {
    server: Option<ChosenServer>,
    authorities: Option<PathBuf>,
    allows_plaintext: bool,
}

static CHOICE: OnceLock<Choice> = OnceLock::new();

/// Chooses the server for this process, if `uses` accepts the one that is named; otherwise there is none.
/// `default` is the server of the last login, which counts if none is named.
///
/// # Errors
/// [`Code::InvalidInput`] for an invalid URL, or one to which an API key would be sent in plain text; the
/// error of `uses`.
pub(crate) fn choose(
    global: &Global,
    default: impl FnOnce() -> Result<Option<String>, Problem>,
    uses: impl FnOnce(&ChosenServer) -> Result<bool, Problem>,
) -> Result<(), Problem> {
    let mut found = find(global, |name| std::env::var_os(name), default)?;
    if let Some(server) = &found.server
        && !uses(server)?
    {
        found.server = None;
    }
    // It is chosen once, before any command runs.
    let _ = CHOICE.set(found);
    Ok(())
}

/// Whether the environment or a login names a server on another machine.
pub(crate) fn is_named_elsewhere(
    default: impl FnOnce() -> Result<Option<String>, Problem>,
) -> bool {
    let found = find(&Global::default(), |name| std::env::var_os(name), default);
    found.is_ok_and(|it| it.server.is_some())
}

/// The server at a URL, if one was chosen.
pub(crate) fn chosen() -> Option<&'static ChosenServer> {
    CHOICE.get()?.server.as_ref()
}

/// The server at the URL that an argument of a command names.
///
/// # Errors
/// As [`choose`].
pub(crate) fn at(url: &str) -> Result<ChosenServer, Problem> {
    let default = Choice::default();
    let choice = CHOICE.get().unwrap_or(&default);
    let url = parse(url)?;
    check_plaintext(&url, choice.allows_plaintext)?;
    Ok(ChosenServer { url, authorities: choice.authorities.clone(), source: Source::Flag })
}

fn find(
    global: &Global,
    variable: impl Fn(&str) -> Option<OsString>,
    default: impl FnOnce() -> Result<Option<String>, Problem>,
) -> Result<Choice, Problem> {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    let authorities = global.tls_ca.clone().or_else(|| variable(AUTHORITIES).map(PathBuf::from));
    let authorities = authorities.map(std::path::absolute).transpose();
    let authorities = authorities.map_err(|error| caused(Code::InvalidInput, &error))?;
    let allows_plaintext = variable(PLAINTEXT).is_some_and(|value| value == "1" || value == "true");
    let without = Choice { server: None, authorities: authorities.clone(), allows_plaintext };
    let (text, source) = if let Some(text) = &global.server {
        (text.clone(), Source::Flag)
    } else if let Some(text) = variable(SERVER) {
        (as_text(SERVER, text)?, Source::Variable)
    } else if let Some(text) = client_url(&variable)? {
        (text, Source::ClientVariable)
    } else if let Some(text) = default()? {
        (text, Source::Login)
    } else {
        return Ok(without);
    };
    if text == LOCAL {
        return Ok(without);
    }
    let url = parse(&text)?;
    check_plaintext(&url, allows_plaintext)?;
    Ok(Choice { server: Some(ChosenServer { url, authorities, source }), ..without })
}

/// The URL that the variables of OpenSandbox' clients name.
fn client_url(variable: &impl Fn(&str) -> Option<OsString>) -> Result<Option<String>, Problem> {
    let find = |name: &str| {
        let mut names = CLIENT_PREFIXES.iter().map(|prefix| format!("{prefix}{name}"));
        names.find_map(|name| variable(&name).map(|value| as_text(&name, value))).transpose()
    };
    let Some(domain) = find("DOMAIN")? else { return Ok(None) };
    if domain.contains("://") {
        return Ok(Some(domain));
    }
    let protocol = find("PROTOCOL")?.unwrap_or_else(|| "http".to_owned());
    Ok(Some(format!("{protocol}://{domain}")))
}

fn as_text(name: &str, value: OsString) -> Result<String, Problem> {
    value.into_string().map_err(|_| {
        Problem::new(Code::InvalidInput, format!("{name} is not UTF-8 text"))
            .remedied_by(format!("unset {name}"))
    })
}

/// The URL of a server from an argument or variable. A message does not repeat a text that may contain
/// a password.
///
/// # Errors
/// [`Code::InvalidInput`].
pub(crate) fn parse(text: &str) -> Result<ServerUrl, Problem> {
    text.parse().map_err(|error: stockade_client::InvalidUrl| {
        let message = match text.contains('@') {
            true => "the URL of the server is invalid".to_owned(),
            false => format!("{text:?} is no URL of a server"),
        };
        Problem::new(Code::InvalidInput, message)
            .because(error.to_string())
            .remedied_by("--server https://HOST:PORT, or `--server local` for this machine")
    })
}

/// Refuses a URL to which everything would be sent in plain text over a network.
///
/// # Errors
/// [`Code::InvalidInput`].
fn check_plaintext(url: &ServerUrl, is_allowed: bool) -> Result<(), Problem> {
    if url.is_secure() || url.is_loopback() || is_allowed {
        return Ok(());
    }
    let message = format!("{url} is on another machine, and the connection would have no TLS");
    Err(Problem::new(Code::InvalidInput, message)
        .because("the API key and files would be sent in plain text")
        .remedied_by(format!("--server https://{}", url.authority())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(
        flag: Option<&str>,
        variables: &[(&str, &str)],
    ) -> Result<Option<(String, Source)>, Code> {
        found_with(flag, variables, None)
    }

    fn found_with(
        flag: Option<&str>,
        variables: &[(&str, &str)],
        default: Option<&str>,
    ) -> Result<Option<(String, Source)>, Code> {
        let global = Global { server: flag.map(str::to_owned), ..Global::default() };
        let variable = |asked: &str| {
            let found = variables.iter().find(|(name, _)| *name == asked);
            found.map(|(_, value)| OsString::from(value))
        };
        let found = find(&global, variable, || Ok(default.map(str::to_owned)));
        let found = found.map_err(|problem| problem.code)?.server;
        Ok(found.map(|server| (server.url.to_string(), server.source)))
    }

    #[test]
    fn a_flag_precedes_a_variable_and_that_those_of_other_clients() {
        let flag = Some("https://a.example");
        let own = ("STOCKADE_SERVER", "https://b.example");
        let domain = ("OPEN_SANDBOX_DOMAIN", "localhost:8080");
        let named = |url: &str, source| Ok(Some((url.to_owned(), source)));
        assert_eq!(found(None, &[]), Ok(None));
        assert_eq!(found(None, &[("STOCKADE_SERVER", "")]), Ok(None));
        assert_eq!(found(flag, &[own, domain]), named("https://a.example", Source::Flag));
        assert_eq!(found(None, &[own, domain]), named("https://b.example", Source::Variable));
        let client = Source::ClientVariable;
        assert_eq!(found(None, &[domain]), named("http://localhost:8080", client));
        let fireflow = ("OPENSANDBOX_DOMAIN", "box.example");
        let protocol = ("OPENSANDBOX_PROTOCOL", "https");
        assert_eq!(found(None, &[fireflow, protocol]), named("https://box.example", client));
        assert_eq!(found(None, &[domain, fireflow]), named("http://localhost:8080", client));
        // The server of this machine again.
        assert_eq!(found(Some("local"), &[own]), Ok(None));
        assert_eq!(found(None, &[("STOCKADE_SERVER", "local"), domain]), Ok(None));
    }

    #[test]
    fn the_last_login_counts_where_nothing_else_is_named() {
        let login = Some("https://c.example");
        let named = |url: &str, source| Ok(Some((url.to_owned(), source)));
        assert_eq!(found_with(None, &[], login), named("https://c.example", Source::Login));
        let own = ("STOCKADE_SERVER", "https://b.example");
        assert_eq!(found_with(None, &[own], login), named("https://b.example", Source::Variable));
        assert_eq!(found_with(Some("local"), &[], login), Ok(None));
        assert_eq!(found_with(None, &[("STOCKADE_SERVER", "local")], login), Ok(None));
        assert_eq!(found_with(None, &[], Some("http://c.example")), Err(Code::InvalidInput));
    }

    #[test]
    fn nothing_is_sent_in_plain_text_over_a_network() {
        for url in ["http://box.example", "http://10.0.0.1:8080", "ftp://a", "a", "http://u:p@a"] {
            assert_eq!(found(Some(url), &[]), Err(Code::InvalidInput), "{url}");
        }
        let allowed = [("STOCKADE_ALLOW_PLAINTEXT", "1")];
        assert!(found(Some("http://box.example"), &allowed).is_ok());
        assert!(found(Some("http://127.0.0.1:8080"), &[]).is_ok());
        let problem = parse("http://user:e2b_secret@box.example").unwrap_err();
        assert!(!format!("{problem:?}").contains("e2b_secret"));
    }
}
