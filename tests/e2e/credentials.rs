//! Secrets that are inserted into requests and never enter the sandbox: `run --secret`.

use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::call::{Call, Outcome};
use crate::cases::{drive, no_driver, same};
use crate::harness::World;
use crate::host;
use crate::network::{NAMES, Server, name_files};

/// A TLS server on the host's loopback that repeats each request to its client. For `/cut/TEXT` it
/// sends the text, and closes without `close_notify`; for `/coded` it sends a compressed body.
pub(crate) struct TlsServer {
    pub(crate) port: u16,
    pub(crate) requests: Arc<Mutex<Vec<String>>>,
}

/// A server with two names, and the file of the certificate authority that signed its certificate.
pub(crate) fn tls_server(world: &World) -> (TlsServer, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let own = KeyPair::generate().unwrap();
    let names = ["service.test", "other.test"].map(str::to_owned);
    let certificate = CertificateParams::new(names).unwrap().signed_by(&own, &issuer).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(own.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let file = world.path("authorities.pem");
    world.plant(&file, &pem(authority.der()));

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let received = Arc::new(Mutex::new(Vec::new()));
    let (config, hearing) = (Arc::new(config), Arc::clone(&received));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let Ok(connection) = ServerConnection::new(Arc::clone(&config)) else { continue };
            let mut stream = StreamOwned::new(connection, stream);
            let mut question = Vec::new();
            let mut byte = [0];
            while !question.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
                question.push(byte[0]);
            }
            let question = String::from_utf8_lossy(&question).into_owned();
            let path = question.split(' ').nth(1).unwrap_or_default().to_owned();
            let cut = path.strip_prefix("/cut/").map(str::to_owned);
            let body = cut.as_ref().unwrap_or(&question);
            let coding = if path == "/coded" { "Content-Encoding: gzip\r\n" } else { "" };
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 200 OK\r\n{coding}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
            let _ = stream.write_all(answer.as_bytes());
            hearing.lock().unwrap().push(question);
            if cut.is_none() {
                stream.conn.send_close_notify();
            }
            let _ = stream.flush();
        }
    });
    (TlsServer { port, requests: received }, file.to_str().unwrap().to_owned())
}

fn pem(certificate: &[u8]) -> String {
    let text = STANDARD.encode(certificate);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}

/// `stockade run --discard OPTIONS -- COMMAND` of a caller who has the secret, on a host that
/// trusts that authority.
fn run(world: &World, authorities: &str, value: &str, options: &[&str], command: &[&str]) -> Call {
    let [hosts, resolver] = name_files(world, NAMES);
    let mut words = vec!["run", "--discard"];
    words.extend(options);
    words.push("--");
    words.extend(command);
    world
        .stockade_by(&["with-authorities", &hosts, &resolver, authorities], &words)
        .env("API_KEY", value)
}

pub(crate) fn value() -> String {
    let (first, second) = host::token();
    format!("sk-{first}{second}")
}

fn cases(world: &World) {
    let (_, authorities) = tls_server(world);
    drive("tests/e2e/credentials.rs::cases", "egress_credentials.json", |case| {
        if case.name != "placeholder in the guest" {
            return no_driver();
        }
        let value = value();
        let secret = case.given["secret"].as_str().unwrap();
        let (name, host) = secret.split_once('@').unwrap();
        let options = ["--allow", host, "--secret", secret];
        let command = [case.when.as_str().unwrap(), name];
        let outcome = run(world, &authorities, &value, &options, &command).finish();
        same(true, outcome.stdout.starts_with("stockade-"))?;
        same(false, outcome.stdout.contains(&value))
    });
}

fn a_secret_goes_with_requests_to_its_host_alone(world: &World) {
    let (server, authorities) = tls_server(world);
    let value = value();
    let [bound, other] =
        ["service.test", "other.test"].map(|name| format!("{name}:{}", server.port));
    let (secret, here) = (format!("API_KEY@{bound}"), format!("127.0.0.1:{}", server.port));
    let options = ["--allow", &bound, "--allow", &other, "--allow", &here, "--secret", &secret];
    let fetch = ["./probe", "fetch-secured", "API_KEY", &bound, &other];
    let outcome = run(world, &authorities, &value, &options, &fetch).finish();
    outcome.is_blocked();
    // Both hosts repeat what they receive, and no value enters the sandbox by that.
    assert!(!outcome.stdout.contains(&value), "{outcome}");
    let placeholder = placeholder(&outcome);
    let covered = format!("Authorization: Bearer {}", "*".repeat(value.len()));
    assert!(outcome.stdout.contains(&covered), "{outcome}");
    let received = server.requests.lock().unwrap().clone();
    assert_eq!(received.len(), 2, "{received:?}");
    assert!(received[0].contains(&format!("Authorization: Bearer {value}\r\n")), "{received:?}");
    assert!(received[1].contains(&placeholder) && !received[1].contains(&value), "{received:?}");
}

/// The placeholder that the probe prints.
fn placeholder(outcome: &Outcome) -> String {
    let (_, rest) = outcome.stdout.split_once("with ").unwrap();
    let (placeholder, _) = rest.split_once(':').unwrap();
    assert!(placeholder.starts_with("stockade-"), "{outcome}");
    placeholder.to_owned()
}

/// Without TLS the secret could be read in transit.
fn a_secret_goes_nowhere_in_the_clear(world: &World) {
    let server = Server::start("127.0.0.1:0", "greetings").unwrap();
    let (_, authorities) = tls_server(world);
    let value = value();
    let port = server.address.port();
    let (bound, here) = (format!("service.test:{port}"), format!("127.0.0.1:{port}"));
    let secret = format!("API_KEY@{bound}");
    let options = ["--allow", &bound, "--allow", &here, "--secret", &secret];
    let script = format!("./probe fetch direct {bound}; ./probe fetch-secured API_KEY {bound}");
    let outcome = run(world, &authorities, &value, &options, &["sh", "-c", &script]).finish();
    assert!(outcome.stdout.contains("greetings") && !outcome.stdout.contains(&value), "{outcome}");
}

/// It is in no environment, no file and no memory that programs inside can read.
fn a_secret_is_found_nowhere_inside(world: &World) {
    let (server, authorities) = tls_server(world);
    let (first, second) = host::token();
    let value = format!("{first}{second}");
    let bound = format!("service.test:{}", server.port);
    let secret = format!("API_KEY@{bound}");
    let options = ["--allow", &bound, "--secret", &secret];
    for attack in ["environments", "memory-of-init"] {
        let command = ["./probe", attack, &first, &second];
        run(world, &authorities, &value, &options, &command).finish().is_blocked();
    }
    let script = "env; cat /etc/stockade/* /proc/*/cmdline | tr '\\0' ' '";
    let outcome = run(world, &authorities, &value, &options, &["sh", "-c", script]).finish();
    assert!(outcome.stdout.contains("API_KEY=stockade-"), "{outcome}");
    assert!(!outcome.stdout.contains(&value), "{outcome}");
    assert!(!outcome.stdout.contains("PRIVATE KEY"), "{outcome}");
    assert!(world.files_with(&world.data(), &value).is_empty(), "it is in the data directory");
}

/// The report of a run contains names and hosts, but no value.
fn a_run_tells_which_secrets_went_with_it(world: &World) {
    let (server, authorities) = tls_server(world);
    let value = value();
    let bound = format!("service.test:{}", server.port);
    let secret = format!("API_KEY@{bound}");
    let options = ["--json", "--allow", &bound, "--secret", &secret];
    let json = run(world, &authorities, &value, &options, &["true"]).finish().json();
    let reported = serde_json::json!([
        {"name": "API_KEY", "hosts": ["service.test"], "ports": [server.port]}
    ]);
    assert_eq!(json["network"]["secrets"], reported, "{json}");
    assert!(!json.to_string().contains(&value), "{json}");
}

/// A command cannot choose a response in which the value would not be found.
fn a_response_that_cannot_be_redacted_is_refused(world: &World) {
    let (server, authorities) = tls_server(world);
    let value = value();
    let bound = format!("service.test:{}", server.port);
    let (secret, here) = (format!("API_KEY@{bound}"), format!("127.0.0.1:{}", server.port));
    let options = ["--allow", &bound, "--allow", &here, "--secret", &secret];
    let (whole, coded) = (bound.clone(), format!("{bound}/coded"));
    let fetch = ["./probe", "fetch-secured", "API_KEY", &whole, &coded];
    let outcome = run(world, &authorities, &value, &options, &fetch).finish();
    outcome.is_blocked();
    let requests = server.requests.lock().unwrap().clone();
    for request in &requests {
        assert!(request.contains(&value) && !request.contains("Range:"), "{request}");
        assert!(request.contains("Accept-Encoding: identity\r\n"), "{request}");
    }
    assert_eq!(requests.len(), 2);
    assert!(outcome.stdout.contains("HTTP/1.1 502 Bad Gateway"), "{outcome}");
    assert!(outcome.stdout.contains("EGRESS_UNREADABLE"), "{outcome}");
    assert!(outcome.stderr.contains("[unreadable]"), "{outcome}");
}

/// The beginning of the value, from a host that breaks off.
fn all_of_a_response_arrives(world: &World) {
    let (server, authorities) = tls_server(world);
    let value = value();
    let bound = format!("service.test:{}", server.port);
    let (secret, here) = (format!("API_KEY@{bound}"), format!("127.0.0.1:{}", server.port));
    let options = ["--allow", &bound, "--allow", &here, "--secret", &secret];
    for text in ["nothing", "task", "s", &value[..9], &value[..value.len() - 1]] {
        let url = format!("{bound}/cut/{text}");
        let fetch = ["./probe", "fetch-secured", "API_KEY", &url];
        let outcome = run(world, &authorities, &value, &options, &fetch).finish();
        outcome.is_blocked();
        assert!(outcome.stdout.trim_end().ends_with(&format!("\r\n\r\n{text}")), "{outcome}");
    }
}

fn a_value_that_can_be_guessed_is_refused(world: &World) {
    let (_, authorities) = tls_server(world);
    let options = ["--secret", "API_KEY@service.test", "--allow", "service.test"];
    for value in ["x", "hunter2", "123456789012345678", "passwordpassword", "aaaaaaaaaaaaaaaaaaaa"]
    {
        let outcome = run(world, &authorities, value, &options, &["true"]).finish();
        outcome.is_refused().ends_with(125);
        assert!(outcome.stderr.contains("API_KEY can be guessed"), "{outcome}");
        assert!(value.len() < 7 || !outcome.stderr.contains(value), "{outcome}");
    }
    let options = [
        "--secret",
        "API_KEY@service.test",
        "--secret",
        "OTHER_KEY@*.test",
        "--allow",
        "service.test",
        "--allow",
        "*.test",
    ];
    let (inner, outer) = (value(), format!("{}-and-more", value()));
    let longer = format!("{inner}-and-more");
    let refused = run(world, &authorities, &inner, &options, &["true"]).env("OTHER_KEY", longer);
    let outcome = refused.finish();
    outcome.is_refused().ends_with(125);
    assert!(outcome.stderr.contains("contains that of API_KEY"), "{outcome}");
    for other in [inner.clone(), outer] {
        run(world, &authorities, &inner, &options, &["true"])
            .env("OTHER_KEY", other)
            .finish()
            .ends_with(0);
    }
}

fn a_variable_that_programs_obey_is_no_secret(world: &World) {
    let (_, authorities) = tls_server(world);
    for name in ["LD_PRELOAD", "BASH_ENV", "NODE_OPTIONS", "GIT_SSH_COMMAND", "npm_config_registry"]
    {
        let secret = format!("{name}@service.test");
        let options = ["--secret", &secret, "--allow", "service.test"];
        let call = run(world, &authorities, "", &options, &["true"]).env(name, value());
        let outcome = call.finish();
        outcome.is_refused().ends_with(125);
        assert!(outcome.stderr.contains(&format!("the variable {name}")), "{outcome}");
    }
}

fn what_cannot_be_kept_is_refused(world: &World) {
    let (_, authorities) = tls_server(world);
    let value = value();
    let allow = ["--allow", "service.test"];
    for (options, hint) in [
        (&["--secret", "API_KEY@service.test"][..], "--allow service.test"),
        (&["--secret", "API_KEY@other.test", allow[0], allow[1]], "--allow other.test"),
        (&["--secret", "API_KEY@*.service.test", allow[0], allow[1]], "--allow *.service.test"),
        (&["--secret", "API_KEY@service.test", "--allow", "0.0.0.0/0"], "--allow service.test"),
        (&["--secret", "API_KEY@service.test", "--allow", "service.test:80"], ""),
        (&["--secret", "UNSET_KEY@service.test", allow[0], allow[1]], "export UNSET_KEY="),
        (&["--secret", "API_KEY", allow[0], allow[1]], ""),
        (&["--secret", "API_KEY=x@service.test", allow[0], allow[1]], ""),
        (&["--secret", "API_KEY@127.0.0.1", "--allow", "127.0.0.1"], ""),
        (&["--secret", "API_KEY@service.test", "--env", "API_KEY=x", allow[0], allow[1]], ""),
    ] {
        let outcome = run(world, &authorities, &value, options, &["touch", "ran"]).finish();
        outcome.is_refused().ends_with(125);
        assert!(outcome.stderr.contains(hint), "{hint}: {outcome}");
        assert!(!outcome.stderr.contains(&value), "{outcome}");
    }
    // Values that a header cannot contain.
    let options = ["--secret", "API_KEY@service.test", allow[0], allow[1]];
    let not_text = OsStr::from_bytes(b"no-text-\xff");
    for value in [OsStr::new("two-of-these\nlines"), OsStr::new(""), not_text] {
        let call = run(world, &authorities, "", &options, &["true"]).env("API_KEY", value);
        let outcome = call.finish();
        outcome.is_refused().ends_with(125);
        assert!(outcome.stderr.contains("API_KEY"), "{outcome}");
        for part in ["two-of-these", "no-text-"] {
            assert!(!outcome.stderr.contains(part), "{outcome}");
        }
    }
}

/// A request of plain HTTP to a host, with the placeholder in a header.
const REQUEST: &str = r#"
exec 3<>/dev/tcp/"$1"/"$2"
printf 'GET / HTTP/1.1\r\nHost: %s\r\nX-Key: %s\r\n\r\n' "$1" "$API_KEY" >&3
cat <&3
"#;

/// A placeholder that is sent to a host of another secret, or of none, is reported, or not sent.
fn a_placeholder_that_goes_elsewhere_is_reported(world: &World) {
    let (_, authorities) = tls_server(world);
    let value = value();
    for strict in [false, true] {
        let server = Server::start("127.0.0.1:0", "greetings").unwrap();
        let port = server.address.port().to_string();
        let (other, here) = (format!("other.test:{port}"), format!("127.0.0.1:{port}"));
        let mut options = vec!["--allow", "service.test", "--allow", &other, "--allow", &here];
        options.extend(["--secret", "API_KEY@service.test"]);
        options.extend(strict.then_some("--strict-secrets"));
        let command = ["bash", "-c", REQUEST, "request", "other.test", &port];
        let outcome = run(world, &authorities, &value, &options, &command).finish();
        let text = format!(
            "the placeholder of the secret API_KEY was {}sent to {other}",
            if strict { "not " } else { "" }
        );
        assert!(outcome.stderr.contains(&text), "{outcome}");
        assert_eq!(outcome.stdout.contains("greetings"), !strict, "{outcome}");
        assert_eq!(outcome.stdout.starts_with("HTTP/1.1 403 Forbidden\r\n"), strict, "{outcome}");
        assert_eq!(outcome.stdout.contains("secret-misdirected"), strict, "{outcome}");
        options.insert(0, "--json");
        let json = run(world, &authorities, &value, &options, &command).finish().json();
        let expected = serde_json::json!([
            {"secret": "API_KEY", "host": "other.test", "port": server.address.port(), "blocked": strict, "times": 1}
        ]);
        assert_eq!(json["network"]["misdirected"], expected, "{json}");
        assert!(!json.to_string().contains(&value), "{json}");
    }
    let outcome = run(world, &authorities, &value, &["--strict-secrets"], &["true"]).finish();
    outcome.is_refused();
}

as_root_and_as_user![
    cases,
    a_secret_goes_with_requests_to_its_host_alone,
    a_secret_goes_nowhere_in_the_clear,
    a_secret_is_found_nowhere_inside,
    a_run_tells_which_secrets_went_with_it,
    a_response_that_cannot_be_redacted_is_refused,
    all_of_a_response_arrives,
    a_value_that_can_be_guessed_is_refused,
    a_variable_that_programs_obey_is_no_secret,
    what_cannot_be_kept_is_refused,
    a_placeholder_that_goes_elsewhere_is_reported,
];
