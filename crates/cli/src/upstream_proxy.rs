//! `--upstream-proxy`: the proxy of the host's network through which the egress process reaches what a
//! policy allows.

use std::ffi::OsStr;

use stockade_core::network::Upstream;
use stockade_core::{Code, Problem};

/// The variable with the proxy, where there is no flag.
const VARIABLE: &str = "STOCKADE_UPSTREAM_PROXY";

/// The proxy through which the allowed hosts are reached. It is never taken from the environment without
/// being asked for: it resolves names itself, so that no address can be checked.
///
/// # Errors
/// [`Code::InvalidInput`] without network access, or for what is no proxy.
pub(crate) fn read(given: Option<&OsStr>, has_network: bool) -> Result<Option<Upstream>, Problem> {
    let of_environment = || std::env::var_os(VARIABLE).filter(|_| has_network);
    let Some(given) = given.map(OsStr::to_owned).or_else(of_environment) else {
        return Ok(None);
    };
    let invalid = |message: &str| Problem::new(Code::InvalidInput, message);
    if !has_network {
        return Err(
            invalid("`--upstream-proxy` needs a network policy").remedied_by("--allow HOST")
        );
    }
    let text = if given == "env" {
        let named = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"];
        let found = named.into_iter().filter_map(std::env::var_os).find(|it| !it.is_empty());
        found.ok_or_else(|| {
            invalid("`--upstream-proxy env` found no proxy")
                .because("neither HTTPS_PROXY nor HTTP_PROXY is set")
                .remedied_by("--upstream-proxy http://HOST:PORT")
        })?
    } else {
        given
    };
    // The error does not contain the text, which may have a password.
    let proxy = text.to_str().ok_or_else(|| "it is not UTF-8 text".to_owned());
    let proxy = proxy.and_then(str::parse::<Upstream>).map_err(|error| {
        invalid("the value of --upstream-proxy is not a proxy")
            .because(error)
            .remedied_by("--upstream-proxy http://HOST:PORT")
    });
    proxy.map(Some)
}
