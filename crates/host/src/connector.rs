//! The confined process that makes the TLS connections of `stockade --server https://…`, which contains
//! no TLS: its standard input is a socket on which the command sends one end of a socket pair for each
//! connection. It ends when that socket is closed.
//!
//! It reads the authorities that it trusts, gives up every file but what resolving names needs, and
//! only then connects. It knows the host and port, and no API key but as bytes that it passes on.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_user_timeout};
use stockade_api::wire::ErrorBody;
use stockade_cli::eprint_line;
use stockade_cli::programs::check_build;
use stockade_cli::remote::connector::{CONNECTED, Open, REFUSED};
use stockade_client::ServerUrl;
use stockade_core::network::AUTHORITIES;
use stockade_core::{Code, Problem};
use stockade_jail::confined;
use stockade_jail::landlock::{Access, Target};
use stockade_jail::rlimits::ResourceLimits;
use tokio::io::{AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use crate::download::NAME_SERVICE;

/// The variable that names a file of authorities, as in OpenSSL.
const AUTHORITIES_VARIABLE: &str = "SSL_CERT_FILE";
/// The longest file of authorities that is read, in bytes.
const FILE_BYTES: u64 = 8 << 20;
/// How long a connection may take, with the handshake of TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// How many requests for connections are read ahead.
const REQUESTS: usize = 16;
/// How long sent bytes may stay unacknowledged, in milliseconds.
const UNACKNOWLEDGED_MS: u32 = 60_000;

/// Makes the connections to the server whose URL is the first argument; the second one, if there is one,
/// is a file with more authorities. Returns the exit code of the process.
pub(crate) fn process(arguments: &[OsString]) -> u8 {
    let done = check_build(arguments).and_then(|arguments| {
        let (url, file) = match arguments {
            [url] => (url, None),
            [url, file] => (url, Some(PathBuf::from(file))),
            _ => return Err(Problem::new(Code::InvalidInput, "a connector has one URL")),
        };
        let url = url.to_str().and_then(|url| url.parse::<ServerUrl>().ok());
        let url = url.ok_or_else(|| Problem::new(Code::InvalidInput, "the URL is invalid"))?;
        let config = trust(file.as_deref());
        let control = io::stdin().as_fd().try_clone_to_owned().map_err(|error| failed(&error))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| failed(&error))?;
        confine()?;
        runtime.block_on(serve(control, Destination { url, config }));
        // A thread may still wait for a name server.
        runtime.shutdown_background();
        Ok(())
    });
    match done {
        Ok(()) => 0,
        Err(problem) => {
            eprint_line!("stockade: {}", problem.message);
            1
        }
    }
}

fn failed(error: &io::Error) -> Problem {
    Problem::caused(Code::Io, error)
}

/// Where the connections lead, and what they trust.
struct Destination {
    url: ServerUrl,
    config: Result<Arc<ClientConfig>, Problem>,
}

/// What the connections are verified against: the authorities of this system, and those of a file.
pub(crate) fn trust(file: Option<&Path>) -> Result<Arc<ClientConfig>, Problem> {
    let mut roots = RootCertStore::empty();
    let named = std::env::var_os(AUTHORITIES_VARIABLE).map(PathBuf::from);
    let system = named.into_iter().chain(AUTHORITIES.iter().map(PathBuf::from));
    if let Some(text) = system.into_iter().find_map(|path| read(&path).ok()) {
        add(&mut roots, &text);
    }
    if let Some(path) = file {
        let refused = |why: String| {
            let message = format!("the certificates in {} cannot be used", path.display());
            Problem::new(Code::InvalidInput, message).because(why)
        };
        let text = read(path).map_err(|error| refused(error.to_string()))?;
        if add(&mut roots, &text) == 0 {
            return Err(refused("the file has no certificate in PEM format".to_owned()));
        }
    }
    if roots.is_empty() {
        return Err(Problem::new(Code::Unsupported, "this system has no CA certificates")
            .remedied_by("install the package ca-certificates"));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Problem::caused(Code::Io, &error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(FILE_BYTES).read_to_end(&mut text)?;
    Ok(text)
}

/// Adds the certificates of a file; returns their number. Systems keep some that no program accepts any
/// more.
fn add(roots: &mut RootCertStore, text: &[u8]) -> usize {
    let all = CertificateDer::pem_slice_iter(text).filter_map(Result::ok);
    roots.add_parsable_certificates(all).0
}

/// Gives up all files but what resolving names needs.
fn confine() -> Result<(), Problem> {
    let open = |path: &str| -> rustix::io::Result<OwnedFd> {
        rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
    };
    let read: Vec<_> = NAME_SERVICE.iter().filter_map(|path| open(path).ok()).collect();
    let rules: Vec<_> =
        read.iter().map(|file| (Target::Open(file.as_fd()), Access::Read)).collect();
    confined::confine_to(&ResourceLimits::default(), &rules)
        .map_err(|error| Problem::caused(Code::WallUnavailable, &error))
}

/// Makes connections until the command closes its socket.
async fn serve(control: OwnedFd, destination: Destination) {
    let destination = Arc::new(destination);
    let (sender, mut requests) = mpsc::channel(REQUESTS);
    tokio::task::spawn_blocking(move || {
        while let Ok(Some((Open {}, descriptors))) = stockade_egress_control::receive(&control) {
            if sender.blocking_send(descriptors).is_err() {
                return;
            }
        }
    });
    while let Some(descriptors) = requests.recv().await {
        if let Ok([inside]) = <[OwnedFd; 1]>::try_from(descriptors) {
            tokio::spawn(connect(inside, Arc::clone(&destination)));
        }
    }
}

/// Makes one connection, reports whether it was made, and relays until both directions have ended.
async fn connect(inside: OwnedFd, target: Arc<Destination>) {
    let inside = StdUnixStream::from(inside);
    let Ok(()) = inside.set_nonblocking(true) else { return };
    let Ok(mut inside) = UnixStream::from_std(inside) else { return };
    let opened = async { open(&target.url, target.config.clone()?).await };
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, opened).await;
    let connected = connected.unwrap_or_else(|_| {
        Err(unreachable(&target.url, format!("no connection in {} s", CONNECT_TIMEOUT.as_secs())))
    });
    // Either end may disconnect at any time.
    let _ = match connected {
        Ok(mut outside) => match inside.write_all(&[CONNECTED]).await {
            Ok(()) => copy_bidirectional(&mut inside, &mut outside).await.map(drop),
            Err(error) => Err(error),
        },
        Err(error) => {
            let text = serde_json::to_vec(&ErrorBody { error }).unwrap_or_default();
            inside.write_all(&[&[REFUSED], text.as_slice()].concat()).await
        }
    };
}

/// A connection with TLS to a server whose certificate is valid.
pub(crate) async fn open(
    url: &ServerUrl,
    config: Arc<ClientConfig>,
) -> Result<TlsStream<TcpStream>, Problem> {
    let name = ServerName::try_from(url.host().to_owned())
        .map_err(|error| unreachable(url, error.to_string()))?;
    let stream = TcpStream::connect((url.host(), url.port())).await;
    let stream = stream.map_err(|error| unreachable(url, error.to_string()))?;
    // Requests are small and wait for their response. A server that has vanished is noticed.
    let _ = stream.set_nodelay(true);
    let _ = set_socket_keepalive(&stream, true);
    let _ = set_tcp_user_timeout(&stream, UNACKNOWLEDGED_MS);
    TlsConnector::from(config).connect(name, stream).await.map_err(|error| {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        match cause {
            Some(rustls::Error::InvalidCertificate(reason)) => {
                let message = format!("the certificate of {url} is not valid for it");
                Problem::new(Code::Unreachable, message)
                    .because(format!("{reason:?}"))
                    .remedied_by("if the server has an authority of its own, add it: --tls-ca FILE")
            }
            Some(rustls::Error::InvalidMessage(_)) => {
                unreachable(url, format!("it does not speak TLS: {error}"))
                    .remedied_by(format!("--server http://{}", url.authority()))
            }
            _ => unreachable(url, error.to_string()),
        }
    })
}

/// The problem of a server that cannot be reached.
pub(crate) fn unreachable(url: &ServerUrl, why: String) -> Problem {
    Problem::new(Code::Unreachable, format!("the server {url} cannot be reached")).because(why)
}
