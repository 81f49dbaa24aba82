//! The listener over TCP: its options from flags, the environment and a file, and what is required
//! before other hosts may reach it.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;

use clap::ValueEnum as _;
use stockade_api::KeyDirectory;
use stockade_cli::args::serve::LogFormat;
use stockade_core::{Code, Problem, parse_bytes};
use stockade_server::Limits;
use stockade_server::tcp::{Acceptor, AllowedHosts, AllowedOrigins, Listener};

use crate::cluster::ClusterOptions;
use crate::log::LogOptions;
use crate::serve_options::Values;
use crate::traces;
use crate::web::WebOptions;

/// Where the clients of OpenSandbox expect a server.
const DEFAULT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);

/// The options of the listener.
#[derive(Debug, Clone)]
pub(crate) struct ListenOptions {
    address: Option<SocketAddr>,
    tls: Option<(PathBuf, PathBuf)>,
    allowed_hosts: Vec<String>,
    allowed_origins: AllowedOrigins,
    has_public_ports: bool,
    allow_plaintext: bool,
    allow_no_keys: bool,
    limits: Limits,
    log: Option<LogOptions>,
    otlp: Option<String>,
    web: WebOptions,
    cluster: Option<ClusterOptions>,
}

/// How many requests a principal may send in a minute.
const REQUESTS_PER_MINUTE: u32 = 60_000;

impl ListenOptions {
    /// The options with these values.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for an invalid value, or a certificate without a key.
    pub(crate) fn new(values: &Values<impl Fn(&str) -> Option<OsString>>) -> Result<Self, Problem> {
        let text = |name: &str| values.get(name).map(|value| value.to_string_lossy().into_owned());
        let address = text("STOCKADE_LISTEN").map(|text| {
            text.parse().map_err(|_| {
                Problem::new(Code::InvalidInput, format!("{text:?} is no address with a port"))
                    .remedied_by("stockade serve --listen 127.0.0.1:8080")
            })
        });
        let path = |name: &str| values.get(name).map(PathBuf::from);
        let tls = match (path("STOCKADE_TLS_CERT"), path("STOCKADE_TLS_KEY")) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => {
                let message = "TLS needs both a certificate and a private key";
                return Err(Problem::new(Code::InvalidInput, message)
                    .remedied_by("stockade serve --tls-cert FILE --tls-key FILE"));
            }
        };
        let invalid = |name: &str, text: &str| {
            Problem::new(Code::InvalidInput, format!("{name} is {text:?}, which is invalid"))
                .remedied_by("stockade serve --help")
        };
        let requests = match text("STOCKADE_REQUESTS_PER_MINUTE") {
            Some(text) => {
                text.parse().map_err(|_| invalid("STOCKADE_REQUESTS_PER_MINUTE", &text))?
            }
            None => REQUESTS_PER_MINUTE,
        };
        let requests = NonZeroU32::new(requests)
            .ok_or_else(|| invalid("the number of requests in a minute", "0"))?;
        let bytes = text("STOCKADE_BYTES_PER_MINUTE").map(|text| {
            parse_bytes(&text).map_err(|_| invalid("the number of bytes in a minute", &text))
        });
        let log = text("STOCKADE_LOG").map(|text| {
            LogFormat::from_str(&text, true).map_err(|_| invalid("the form of the log", &text))
        });
        let size = text("STOCKADE_LOG_FILE_SIZE").map(|text| {
            let size = parse_bytes(&text).ok().and_then(NonZeroU64::new);
            size.ok_or_else(|| invalid("the size of the file of the log", &text))
        });
        let log = LogOptions::new(log.transpose()?, path("STOCKADE_LOG_FILE"), size.transpose()?)?;
        let otlp = text("STOCKADE_OTLP");
        traces::check(otlp.as_deref())?;
        let web = WebOptions::new(
            text("STOCKADE_SANDBOX_DOMAIN"),
            text("STOCKADE_PUBLIC_URL"),
            values.login().cloned(),
        )?;
        let list = |name: &str| {
            let text = text(name).unwrap_or_default();
            let all: Vec<_> = text.split(',').map(|it| it.trim().to_owned()).collect();
            all.into_iter().filter(|it| !it.is_empty())
        };
        let cluster = ClusterOptions::new(values)?;
        // A browser sends the names of both.
        let names = list("STOCKADE_ALLOWED_HOST").chain(web.public_name());
        let names = names.chain(cluster.as_ref().and_then(ClusterOptions::host_name));
        Ok(Self {
            limits: Limits { requests: Some(requests), bytes: bytes.transpose()? },
            log,
            otlp,
            address: address.transpose()?,
            tls,
            allowed_hosts: names.collect(),
            allowed_origins: AllowedOrigins::new(list("STOCKADE_ALLOWED_ORIGIN"))?,
            has_public_ports: values.is_on("STOCKADE_PUBLIC_PORTS")?,
            allow_plaintext: values.is_on("STOCKADE_ALLOW_PLAINTEXT")?,
            allow_no_keys: values.is_on("STOCKADE_ALLOW_NO_KEYS")?,
            web,
            cluster,
        })
    }

    /// How the server takes part in a cluster, if it does.
    pub(crate) const fn cluster(&self) -> Option<&ClusterOptions> {
        self.cluster.as_ref()
    }

    /// The limits of each principal.
    pub(crate) const fn limits(&self) -> Limits {
        self.limits
    }

    /// The log of requests, if there is one.
    pub(crate) const fn log(&self) -> Option<&LogOptions> {
        self.log.as_ref()
    }

    /// The collector of traces, if there is one.
    pub(crate) fn otlp(&self) -> Option<&str> {
        self.otlp.as_deref()
    }

    fn address(&self) -> SocketAddr {
        self.address.unwrap_or(DEFAULT)
    }

    /// Whether other hosts reach the address.
    pub(crate) fn is_public(&self) -> bool {
        !self.address().ip().to_canonical().is_loopback()
    }

    /// Listens. The address that was not requested may be in use: the socket of the data directory
    /// serves then, without this listener.
    ///
    /// # Errors
    /// If the address cannot be listened on, or must not be without TLS.
    pub(crate) async fn bind(&self) -> Result<Option<Listener>, Problem> {
        let address = self.address();
        if self.is_public() && self.tls.is_none() && !self.allow_plaintext {
            let message = format!("other hosts reach {address}, and the listener has no TLS");
            return Err(Problem::new(Code::InvalidInput, message)
                .because("API keys and files would be sent in plain text")
                .remedied_by("stockade serve --tls-cert FILE --tls-key FILE"));
        }
        match Listener::bind(address).await {
            Ok(listener) => Ok(Some(listener)),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => match self.address {
                None => Ok(None),
                Some(_) => {
                    let message =
                        format!("the port {} of {} is in use", address.port(), address.ip());
                    Err(Problem::new(Code::PortInUse, message)
                        .remedied_by("stockade serve --listen 127.0.0.1:0"))
                }
            },
            Err(error) => {
                let message = format!("{address} cannot be listened on");
                Err(Problem::new(Code::InvalidInput, message).because(error.to_string()))
            }
        }
    }

    /// TLS, if it is configured.
    ///
    /// # Errors
    /// If the files cannot be used.
    pub(crate) fn acceptor(&self) -> Result<Option<Acceptor>, Problem> {
        let Some((certificate, key)) = &self.tls else { return Ok(None) };
        let acceptor = Acceptor::from_files(certificate, key);
        acceptor.map(Some).map_err(|error| Problem::caused(Code::InvalidInput, &error))
    }

    /// Fails if other hosts reach the address and there is no API key.
    ///
    /// # Errors
    /// See above.
    pub(crate) async fn check_keys(&self, keys: &dyn KeyDirectory) -> Result<(), Problem> {
        if !self.is_public() || self.allow_no_keys || keys.has_keys().await? {
            return Ok(());
        }
        let message = format!("other hosts reach {}, and there is no API key", self.address());
        Err(Problem::new(Code::InvalidInput, message)
            .because("without a key the server serves only this user on this host")
            .remedied_by("stockade keys create"))
    }

    /// The host names that the server serves.
    pub(crate) fn allowed_hosts(&self) -> AllowedHosts {
        let ip = self.address().ip();
        let own = (!ip.is_unspecified()).then(|| match ip {
            std::net::IpAddr::V4(ip) => ip.to_string(),
            std::net::IpAddr::V6(ip) => format!("[{ip}]"),
        });
        AllowedHosts::new(self.allowed_hosts.iter().cloned().chain(own))
    }

    /// The origins whose pages may use the server.
    pub(crate) fn allowed_origins(&self) -> AllowedOrigins {
        self.allowed_origins.clone()
    }

    /// Whether ports of sandboxes of E2B's clients need no token by default.
    pub(crate) const fn has_public_ports(&self) -> bool {
        self.has_public_ports
    }

    /// The options of what browsers use, for a listener at this address.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] if browsers would refuse them.
    pub(crate) fn web(
        &self,
        address: SocketAddr,
    ) -> Result<stockade_server::web::Options, Problem> {
        self.web.options(self.scheme(), address.port(), &self.allowed_hosts)
    }

    /// The scheme of the listener's URL.
    pub(crate) const fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}

#[cfg(test)]
mod tests {
    use stockade_cli::args::serve::Serve;

    use super::*;

    fn options(
        flags: &Serve,
        file: &str,
        variables: &[(&str, &str)],
    ) -> Result<ListenOptions, Problem> {
        let variable = |asked: &str| {
            let found = variables.iter().find(|(name, _)| *name == asked);
            found.map(|(_, value)| OsString::from(value))
        };
        ListenOptions::new(&Values::of(flags, None, variable, file).unwrap())
    }

    #[test]
    fn a_flag_precedes_a_variable_and_that_the_file() {
        let file = "listen = '127.0.0.1:1'\nallowed-host = ['a.example']";
        let variables = [("STOCKADE_LISTEN", "127.0.0.1:2"), ("STOCKADE_ALLOWED_HOST", "b, c")];
        let port = |options: ListenOptions| options.address().port();
        assert_eq!(port(options(&Serve::default(), "", &[]).unwrap()), 8080);
        let from_file = options(&Serve::default(), file, &[]).unwrap();
        assert_eq!(from_file.allowed_hosts, ["a.example"]);
        assert_eq!(port(from_file), 1);
        let from_variables = options(&Serve::default(), file, &variables).unwrap();
        assert_eq!(from_variables.allowed_hosts, ["b", "c"]);
        assert_eq!(port(from_variables), 2);
        let listen = Some("127.0.0.1:3".parse().unwrap());
        let flags = Serve { listen, ..Serve::default() };
        assert_eq!(port(options(&flags, file, &variables).unwrap()), 3);
        let limited = options(
            &Serve::default(),
            "requests-per-minute = 7\nbytes-per-minute = '1k'\nlog = 'json'",
            &[],
        );
        let limited = limited.unwrap();
        assert_eq!((limited.limits.requests.unwrap().get(), limited.limits.bytes), (7, Some(1024)));
        assert_eq!(limited.log.map(|log| log.format), Some(LogFormat::Json));
        for bad in ["log-file = '/x'", "log-file-size = '1M'", "log = 'json'\nlog-file-size = '0'"]
        {
            assert!(options(&Serve::default(), bad, &[]).is_err(), "{bad}");
        }
        for bad in ["STOCKADE_REQUESTS_PER_MINUTE", "STOCKADE_BYTES_PER_MINUTE", "STOCKADE_LOG"] {
            assert!(options(&Serve::default(), "", &[(bad, "x")]).is_err(), "{bad}");
        }
        assert!(options(&Serve::default(), "allowed-origin = ['*']", &[]).is_err());
        for bad in ["8080", "localhost:8080", "127.0.0.1"] {
            assert!(options(&Serve::default(), "", &[("STOCKADE_LISTEN", bad)]).is_err(), "{bad}");
        }
        assert!(options(&Serve::default(), "tls-cert = '/x'", &[]).is_err());
    }

    #[tokio::test]
    async fn other_hosts_need_tls() {
        let listen = Some("0.0.0.0:0".parse().unwrap());
        let refused = options(&Serve { listen, ..Serve::default() }, "", &[]).unwrap();
        assert_eq!(refused.bind().await.unwrap_err().code, Code::InvalidInput);
    }
}
