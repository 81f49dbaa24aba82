//! The URL of a server: where it is, and whether the connection is encrypted.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::Options;
use crate::{Error, Result};

/// The longest time that connecting takes, unless the URL says otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How the server is reached.
#[derive(Clone)]
pub(super) struct Address {
    /// The parameters of each connection.
    pub(super) config: Config,
    /// The schema that its connections use.
    pub(super) schema: String,
    pub(super) tls: Option<MakeRustlsConnect>,
}

impl std::fmt::Debug for Address {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the password.
        formatter.debug_struct("Address").field("place", &self.place()).finish_non_exhaustive()
    }
}

impl Address {
    /// Reads a URL; one that cannot be used as it stands is refused.
    pub(super) fn parse(options: &Options) -> Result<Self> {
        let schema = options.schema.clone();
        if schema.is_empty() || !schema.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') {
            let what = format!("the schema {schema:?} is not a name of letters a to z and `_`");
            return Err(Error::invalid(what));
        }
        let (url, own) = split_parameters(&options.url);
        // The parser's message could repeat parts of the URL, which may contain a password.
        let invalid = |_| {
            Error::invalid(
                "the database URL cannot be read; it has the form postgres://USER@HOST:PORT/DATABASE",
            )
        };
        let mut config: Config = url.parse().map_err(invalid)?;
        if config.get_hosts().is_empty() || config.get_dbname().is_none() {
            return Err(Error::invalid("the database URL names no host or no database"));
        }
        let encrypt = match own.mode.as_deref() {
            None => !config.get_hosts().iter().all(is_local),
            Some("disable") => false,
            Some("require" | "verify-ca" | "verify-full") => true,
            Some(other) => {
                let what = format!(
                    "sslmode={other} of the database URL would allow a connection that is not encrypted without saying so; use sslmode=require or sslmode=disable"
                );
                return Err(Error::invalid(what));
            }
        };
        config.ssl_mode(if encrypt { SslMode::Require } else { SslMode::Disable });
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        let settings = session_settings(&config, &schema);
        config.application_name("stockade").options(settings);
        config.tcp_user_timeout(Duration::from_secs(30)).keepalives_idle(Duration::from_secs(30));
        let authorities = match own.authorities {
            Some(path) => vec![path],
            None => options.certificate_authorities.clone(),
        };
        let tls = encrypt.then(|| tls(&authorities)).transpose()?;
        Ok(Self { config, schema, tls })
    }

    /// The server and database for messages: without user and password.
    pub(super) fn place(&self) -> PathBuf {
        let host = match self.config.get_hosts().first() {
            Some(Host::Tcp(name)) => name.clone(),
            Some(Host::Unix(path)) => path.display().to_string(),
            None => String::new(),
        };
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        let database = self.config.get_dbname().unwrap_or_default();
        format!("postgres://{host}:{port}/{database} ({})", self.schema).into()
    }
}

/// What the server does for each connection: a statement or a lock that takes too long fails, and
/// so does a transaction whose client is gone.
fn session_settings(config: &Config, schema: &str) -> String {
    let own = config.get_options().map_or_else(String::new, |options| format!("{options} "));
    format!(
        "{own}-c search_path={schema} -c statement_timeout=60s -c lock_timeout=30s \
         -c idle_in_transaction_session_timeout=60s -c default_transaction_isolation=read\\ committed \
         -c client_min_messages=warning"
    )
}

/// Parameters that are decided here instead of in the driver.
#[derive(Default)]
struct Own {
    mode: Option<String>,
    authorities: Option<PathBuf>,
}

/// Takes `sslmode` and `sslrootcert` out of a URL.
fn split_parameters(url: &str) -> (String, Own) {
    let Some((base, query)) = url.split_once('?') else { return (url.to_owned(), Own::default()) };
    let mut own = Own::default();
    let mut rest = Vec::new();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        match parameter.split_once('=') {
            Some(("sslmode", mode)) => own.mode = Some(mode.to_owned()),
            Some(("sslrootcert", path)) => {
                let path = percent_encoding::percent_decode_str(path).decode_utf8_lossy();
                own.authorities = Some(PathBuf::from(path.as_ref()));
            }
            _ => rest.push(parameter),
        }
    }
    if rest.is_empty() {
        (base.to_owned(), own)
    } else {
        (format!("{base}?{}", rest.join("&")), own)
    }
}

fn is_local(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
        }
    }
}

/// Verifies the certificate of the server and its name.
fn tls(authorities: &[PathBuf]) -> Result<MakeRustlsConnect> {
    let Some((path, text)) =
        authorities.iter().find_map(|path| Some((path, std::fs::read(path).ok()?)))
    else {
        return Err(Error::File {
            operation: "read",
            path: authorities.first().cloned().unwrap_or_else(|| Path::new("sslrootcert").into()),
            message: "no file with certificate authorities can be read".to_owned(),
        });
    };
    let unreadable =
        |message: String| Error::File { operation: "read", path: path.clone(), message };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
        roots.add(certificate).map_err(|error| unreadable(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(unreadable("it contains no certificate".to_owned()));
    }
    let provider = Arc::new(ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| Error::invalid(error.to_string()))?;
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Address> {
        Address::parse(&Options {
            url: url.to_owned(),
            schema: "stockade".to_owned(),
            certificate_authorities: Vec::new(),
            migrations: &[],
            exclusive: false,
        })
    }

    #[test]
    fn only_a_server_on_this_machine_is_used_without_encryption_unless_the_url_says_so() {
        for local in
            ["postgres://u@127.0.0.1/d", "postgres://u@localhost/d", "postgres://u@%2Ftmp/d"]
        {
            assert!(parse(local).unwrap().tls.is_none(), "{local}");
        }
        assert!(parse("postgres://u@10.0.0.1/d?sslmode=disable").unwrap().tls.is_none());
        // Needs authorities, and there are none.
        for encrypted in ["postgres://u@10.0.0.1/d", "postgres://u@localhost/d?sslmode=require"] {
            assert!(matches!(parse(encrypted).unwrap_err(), Error::File { .. }), "{encrypted}");
        }
        for unclear in ["prefer", "allow"] {
            let refused = parse(&format!("postgres://u@10.0.0.1/d?sslmode={unclear}")).unwrap_err();
            assert!(matches!(refused, Error::Invalid { .. }), "{refused}");
        }
    }

    #[test]
    fn a_refusal_does_not_repeat_the_password() {
        for url in ["postgres://u:hidden@h:notaport/d", "nonsense hidden", "postgres://u:hidden@h"]
        {
            let refused = parse(url).unwrap_err().to_string();
            assert!(!refused.contains("hidden"), "{refused}");
        }
        let address = parse("postgres://u:hidden@127.0.0.1/d?connect_timeout=3").unwrap();
        assert!(!format!("{address:?}").contains("hidden"));
        assert_eq!(address.config.get_connect_timeout(), Some(&Duration::from_secs(3)));
    }
}
