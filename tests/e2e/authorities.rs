//! The certificates that a caller trusts are those that programs in its run trust, wherever they look,
//! and those with which the egress proxy verifies a host.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::call::Call;
use crate::credentials::{TlsServer, tls_server};
use crate::harness::{World, skip};
use crate::network::{NAMES, name_files};

/// `stockade run --discard OPTIONS -- COMMAND` of a caller with that variable, on a host that does not
/// trust the authority.
fn run(world: &World, variable: (&str, &str), options: &[&str], command: &[&str]) -> Call {
    let [hosts, resolver] = name_files(world, NAMES);
    let mut words = vec!["run", "--discard"];
    words.extend(options);
    words.push("--");
    words.extend(command);
    let (name, value) = variable;
    world.stockade_by(&["with-names", &hosts, &resolver], &words).env(name, value)
}

fn hosts(server: &TlsServer) -> (String, String) {
    (format!("service.test:{}", server.port), format!("127.0.0.1:{}", server.port))
}

fn the_certificates_of_the_caller_are_trusted_inside(world: &World) {
    let (server, file) = tls_server(world);
    let (name, here) = hosts(&server);
    let options = ["--allow", &name, "--allow", &here];
    let fetch = ["./probe", "fetch-secured", "API_KEY", &name];
    for variable in ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"]
    {
        let outcome = run(world, (variable, &file), &options, &fetch).finish();
        assert!(outcome.stdout.contains("200 OK"), "{variable}: {outcome}");
    }
    // A directory of certificates.
    let directory = Path::new(&file).with_file_name("certificates");
    std::fs::create_dir(&directory).unwrap();
    std::fs::copy(&file, directory.join("one.pem")).unwrap();
    let directory = directory.to_str().unwrap();
    let outcome = run(world, ("SSL_CERT_DIR", directory), &options, &fetch).finish();
    assert!(outcome.stdout.contains("200 OK"), "{outcome}");
    // Every variable names the one list, which the system's own files are too.
    let own = std::fs::read_to_string(&file).unwrap();
    let body: String = own.lines().filter(|line| !line.starts_with('-')).collect();
    let look = "for file in \"$SSL_CERT_FILE\" \"$NODE_EXTRA_CA_CERTS\" \"$GIT_SSL_CAINFO\" \"$REQUESTS_CA_BUNDLE\" \
                /etc/ssl/certs/ca-certificates.crt /etc/ssl/cert.pem; do \
                [ ! -e \"$file\" ] || grep -v -e ----- \"$file\" | tr -d '\\n' | grep -c -F \"$1\"; done";
    let command = ["sh", "-c", look, "sh", &body];
    let outcome = run(world, ("SSL_CERT_FILE", &file), &options, &command).finish();
    let counts: Vec<_> = outcome.stdout.lines().collect();
    assert!(counts.len() >= 4 && counts.iter().all(|count| *count == "1"), "{outcome}");
    // What the caller has not set changes nothing.
    let outcome = run(world, ("UNRELATED", &file), &options, &["sh", "-c", "env"]).finish();
    assert!(!outcome.stdout.contains("SSL_CERT_FILE"), "{outcome}");
}

fn java_finds_the_certificates(world: &World) {
    if !Path::new("/etc/ssl/certs/java/cacerts").is_file()
        || !Path::new("/usr/bin/keytool").exists()
    {
        return skip("authorities::java_finds_the_certificates", "no Java is installed");
    }
    let (server, file) = tls_server(world);
    let (name, here) = hosts(&server);
    let options = ["--allow", &name, "--allow", &here];
    let print = ["base64", "/etc/ssl/certs/java/cacerts"];
    let outcome = run(world, ("SSL_CERT_FILE", &file), &options, &print).finish();
    let keystore = STANDARD.decode(outcome.stdout.replace('\n', "")).unwrap();
    // Java itself reads it, on the host, whose configuration it needs.
    let path = Path::new(&file).with_file_name("cacerts");
    std::fs::write(&path, keystore).unwrap();
    let listed = std::process::Command::new("/usr/bin/keytool")
        .args(["-list", "-rfc", "-storepass", "changeit", "-keystore"])
        .arg(&path)
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let text: String = listed.lines().filter(|line| !line.starts_with('-')).collect();
    let own = std::fs::read_to_string(&file).unwrap();
    let body: String = own.lines().filter(|line| !line.starts_with('-')).collect();
    assert!(text.contains(&body), "{listed}");
}

fn the_egress_proxy_trusts_the_certificates_of_the_caller(world: &World) {
    let (server, file) = tls_server(world);
    let (name, here) = hosts(&server);
    let value = crate::credentials::value();
    let secret = format!("API_KEY@{name}");
    let options = ["--allow", &name, "--allow", &here, "--secret", &secret];
    let fetch = ["./probe", "fetch-secured", "API_KEY", &name];
    let outcome =
        run(world, ("SSL_CERT_FILE", &file), &options, &fetch).env("API_KEY", &value).finish();
    assert!(outcome.stdout.contains("200 OK"), "{outcome}");
    assert!(server.requests.lock().unwrap().iter().any(|request| request.contains(&value)));
    // Without it the reason is printed, with what to do.
    let outcome = run(world, ("UNRELATED", ""), &options, &fetch).env("API_KEY", &value).finish();
    assert!(outcome.stderr.contains("SSL_CERT_FILE=FILE"), "{outcome}");
}

fn a_file_that_cannot_be_read_is_reported(world: &World) {
    let (server, _) = tls_server(world);
    let (name, _) = hosts(&server);
    let missing = world.path("missing.pem");
    let missing = missing.to_str().unwrap();
    let outcome = run(world, ("SSL_CERT_FILE", missing), &["--allow", &name], &["true"]).finish();
    outcome.ends_with(0);
    assert!(
        outcome.stderr.contains("SSL_CERT_FILE") && outcome.stderr.contains(missing),
        "{outcome}"
    );
}

/// A program that does not trust the run's own authority, and one that speaks only HTTP/2, fail; the
/// end of the run says why.
fn failed_handshakes_with_a_secret_host_are_reported(world: &World) {
    let (server, file) = tls_server(world);
    let (name, here) = hosts(&server);
    let value = crate::credentials::value();
    let secret = format!("API_KEY@{name}");
    let options = ["--allow", &name, "--allow", &here, "--secret", &secret];
    let connect = "import socket, ssl, sys\n\
         context = ssl.create_default_context(cafile=sys.argv[1] or None)\n\
         if len(sys.argv) > 2: context.set_alpn_protocols(sys.argv[2:])\n\
         raw = socket.create_connection(('service.test', int(PORT)))\n\
         try: context.wrap_socket(raw, server_hostname='service.test').recv(1)\n\
         except OSError as error: print(error)"
        .replace("PORT", &server.port.to_string());
    let call = |arguments: &[&str]| {
        let command = [&["python3", "-c", &connect][..], arguments].concat();
        run(world, ("SSL_CERT_FILE", &file), &options, &command).env("API_KEY", &value).finish()
    };
    let outcome = call(&["", "h2"]);
    assert!(outcome.stderr.contains("HTTP/2"), "{outcome}");
    assert!(outcome.stderr.contains("[protocol-unsupported] [EGRESS_UNREADABLE]"), "{outcome}");
    // A list of its own, which has no authority of the run.
    world.write("own.pem", std::fs::read(&file).unwrap());
    let outcome = call(&["own.pem"]);
    assert!(outcome.stderr.contains("[certificate-refused] [EGRESS_UNREADABLE]"), "{outcome}");
}

as_root_and_as_user![
    the_certificates_of_the_caller_are_trusted_inside,
    java_finds_the_certificates,
    the_egress_proxy_trusts_the_certificates_of_the_caller,
    a_file_that_cannot_be_read_is_reported,
    failed_handshakes_with_a_secret_host_are_reported,
];
