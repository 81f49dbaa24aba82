//! Fetches in a simulated network: which are refused, which redirects are followed, and which
//! addresses are connected to.

use std::net::{IpAddr, SocketAddr};

use super::testing::FakeNetwork;
use super::*;

const NAMES: &[(&str, &str)] = &[
    ("example.com", "93.184.216.34"),
    ("other.example.org", "2606:4700::1111 1.1.1.1"),
    ("secure.example.com", "8.8.8.8"),
    ("wrong.example.com", "8.8.4.4"),
    ("rebind.example.com", "8.8.8.8 10.0.0.7"),
    ("inner.example.com", "169.254.169.254"),
    ("nowhere.example.com", ""),
    ("one.example", "9.9.9.9"),
];

fn redirect_to(status: u16, location: &str) -> String {
    format!("HTTP/1.1 {status} Elsewhere\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n")
}

fn ok(body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 Fine\r\nX-One: 1\r\nContent-Length: {length}\r\n\r\n{body}")
}

fn respond(request: &str) -> String {
    let words: Vec<&str> = request.split(' ').collect();
    let path = words[1];
    match path {
        "/moved" => redirect_to(302, "/there?x=1"),
        "/kept" => redirect_to(307, "http://other.example.org/there"),
        "/inward" => redirect_to(301, "http://127.0.0.1:8080/"),
        "/hidden" => redirect_to(301, "http://inner.example.com/"),
        "/scheme" => redirect_to(301, "file:///etc/passwd"),
        "/round" => redirect_to(302, "/round"),
        "/large" => ok(&"x".repeat(2_000)),
        "/endless" => format!("HTTP/1.1 200 Fine\r\n\r\n{}", "y".repeat(2_000)),
        "/head" => format!("HTTP/1.1 200 Fine\r\nX: {}\r\n\r\n", "z".repeat(1 << 20)),
        "/rubbish" => "SMTP ready\r\n".to_owned(),
        "/missing" => "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n".to_owned(),
        _ => ok(request),
    }
}

fn fetcher(network: &Arc<FakeNetwork>, hosts: Hosts) -> Fetcher {
    let limits = Limits { response_bytes: 1_000, request_bytes: 100, ..Limits::default() };
    let (resolve, connect) = (Arc::clone(network), Arc::clone(network));
    Fetcher::with(hosts, resolve, connect, limits)
}

fn get(url: &str) -> Request {
    Request { url: url.to_owned(), ..Request::default() }
}

async fn fetch_url(url: &str) -> (Result<Response, Error>, Arc<FakeNetwork>) {
    let network = FakeNetwork::new(NAMES, respond).await;
    (fetcher(&network, Hosts::Public).fetch(get(url)).await, network)
}

async fn fetch_error(url: &str) -> String {
    let (result, network) = fetch_url(url).await;
    assert_eq!(*network.connected.lock().unwrap(), [], "{url}");
    result.unwrap_err().to_string()
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[tokio::test]
async fn the_address_that_was_checked_is_connected_to() {
    let (result, network) = fetch_url("http://example.com:8080/a?b#c").await;
    let response = result.unwrap();
    assert_eq!(response.body, b"GET /a?b HTTP/1.1 example.com:8080");
    assert_eq!((response.status, response.url.as_str()), (200, "http://example.com:8080/a?b#c"));
    assert!(response.headers.contains(&("x-one".to_owned(), "1".to_owned())), "{response:?}");
    assert_eq!(*network.connected.lock().unwrap(), [address("93.184.216.34:8080")]);
    assert_eq!(*network.resolved.lock().unwrap(), ["example.com"]);
    let (result, network) = fetch_url("http://[2606:4700::1111]/").await;
    assert_eq!(result.unwrap().status, 200);
    assert_eq!(*network.connected.lock().unwrap(), [address("[2606:4700::1111]:80")]);
    assert_eq!(*network.resolved.lock().unwrap(), [""; 0]);
}

#[tokio::test]
async fn nothing_internal_is_connected_to() {
    for (url, reason) in [
        ("http://localhost./", "hostname \"localhost.\" resolves to localhost or internal-only"),
        ("http://0x7f.1/", "IPv4 127.0.0.1 is in a private / loopback / link-local range"),
        ("ftp://example.com/", "protocol \"ftp:\" is not allowed (only http:, https:)"),
        (
            "http://rebind.example.com/",
            "hostname \"rebind.example.com\" resolves to private IPv4 10.0.0.7",
        ),
        (
            "http://inner.example.com/",
            "hostname \"inner.example.com\" resolves to private IPv4 169.254.169.254",
        ),
        (
            "http://u:p@[::ffff:10.0.0.1]/",
            "IPv6 [::ffff:a00:1] is in a private / loopback / link-local range",
        ),
    ] {
        let text = format!("sandbox: outbound fetch blocked — {reason}");
        assert_eq!(fetch_error(url).await, text, "{url}");
    }
    let unresolved = fetch_error("http://unknown.example.com/").await;
    assert!(unresolved.starts_with("fetch failed: cannot resolve unknown."), "{unresolved}");
    let (result, _) = fetch_url("http://nowhere.example.com/").await;
    assert!(matches!(result, Err(Error::Network(_))), "{result:?}");
}

#[tokio::test]
async fn every_redirect_is_checked() {
    let (result, network) = fetch_url("http://example.com/moved").await;
    let response = result.unwrap();
    assert_eq!(response.url, "http://example.com/there?x=1");
    assert!(response.redirected);
    assert_eq!(network.connected.lock().unwrap().len(), 2);
    for (path, reason) in [
        ("inward", "IPv4 127.0.0.1 is in a private"),
        ("hidden", "resolves to private IPv4 169.254.169.254"),
        ("scheme", "protocol \"file:\" is not allowed"),
    ] {
        let (result, network) = fetch_url(&format!("http://example.com/{path}")).await;
        let Err(Error::Blocked(why)) = result else { panic!("{path}: {result:?}") };
        assert!(why.contains(reason), "{why}");
        assert_eq!(*network.connected.lock().unwrap(), [address("93.184.216.34:80")]);
    }
    let (result, network) = fetch_url("http://example.com/round").await;
    assert_eq!(result, Err(Error::Redirected("it is redirected too many times")));
    assert_eq!(network.connected.lock().unwrap().len(), MAX_REDIRECTS + 1);
}

#[tokio::test]
async fn what_a_redirect_takes_along() {
    let network = FakeNetwork::new(NAMES, respond).await;
    let fetcher = fetcher(&network, Hosts::Public);
    let request = |path: &str, redirect| Request {
        method: "post".to_owned(),
        url: format!("http://example.com/{path}"),
        headers: ["Authorization", "Content-Type", "Host", "X-Own"]
            .map(|name| (name.to_owned(), "value".to_owned()))
            .into(),
        body: Some(b"sent".to_vec()),
        redirect,
    };
    // Redirected to a GET at the same origin, without the body.
    fetcher.fetch(request("moved", Redirect::Follow)).await.unwrap();
    // Unchanged, to another origin, without the headers of this origin.
    fetcher.fetch(request("kept", Redirect::Follow)).await.unwrap();
    let requests = network.requests.lock().unwrap().clone();
    assert!(
        requests[0].starts_with("POST /moved") && requests[0].ends_with("sent"),
        "{requests:#?}"
    );
    assert!(requests[0].contains("host: example.com"), "{requests:#?}");
    assert!(
        requests[1].starts_with("GET /there?x=1") && requests[1].contains("authorization: value")
    );
    assert!(
        !requests[1].contains("content-type") && !requests[1].ends_with("sent"),
        "{requests:#?}"
    );
    assert!(
        requests[3].starts_with("POST /there") && requests[3].ends_with("sent"),
        "{requests:#?}"
    );
    assert!(
        requests[3].contains("x-own") && !requests[3].contains("authorization"),
        "{requests:#?}"
    );
    let manual = fetcher.fetch(request("kept", Redirect::Manual)).await.unwrap();
    assert_eq!(manual.status, 307);
    let error = fetcher.fetch(request("kept", Redirect::Error)).await;
    assert!(matches!(error, Err(Error::Redirected(_))), "{error:?}");
}

#[tokio::test]
async fn what_is_sent_and_answered_is_bounded() {
    for path in ["large", "endless"] {
        let (result, _) = fetch_url(&format!("http://example.com/{path}")).await;
        let too_large = Error::TooLarge { what: "response", limit_bytes: 1_000 };
        assert_eq!(result, Err(too_large), "{path}");
    }
    for path in ["head", "rubbish"] {
        let (result, _) = fetch_url(&format!("http://example.com/{path}")).await;
        assert!(matches!(result, Err(Error::Network(_))), "{path}: {result:?}");
    }
    let (result, _) = fetch_url("http://example.com/missing").await;
    assert_eq!(result.unwrap().status, 404);
    let network = FakeNetwork::new(NAMES, respond).await;
    let fetcher = fetcher(&network, Hosts::Public);
    let post = Request { method: "POST".to_owned(), ..get("http://example.com/") };
    for (request, is_right) in [
        (Request { body: Some(vec![0; 100]), ..post.clone() }, true),
        (Request { body: Some(vec![0; 101]), ..post.clone() }, false),
        (Request { body: Some(vec![0]), method: "GET".to_owned(), ..post.clone() }, false),
        (Request { method: "CONNECT".to_owned(), ..post.clone() }, false),
        (Request { method: "A B".to_owned(), ..post.clone() }, false),
        (Request { headers: vec![("a\n".to_owned(), String::new())], ..post.clone() }, false),
        (Request { headers: vec![("a".to_owned(), "\r\nb: c".to_owned())], ..post }, false),
    ] {
        assert_eq!(fetcher.fetch(request.clone()).await.is_ok(), is_right, "{request:?}");
    }
}

#[tokio::test]
async fn tls_is_for_the_name_that_was_asked() {
    let (result, network) = fetch_url("https://secure.example.com/x").await;
    assert_eq!(result.unwrap().body, b"GET /x HTTP/1.1 secure.example.com");
    assert_eq!(*network.connected.lock().unwrap(), [address("8.8.8.8:443")]);
    let (result, _) = fetch_url("https://wrong.example.com/x").await;
    assert!(matches!(result, Err(Error::Network(_))), "{result:?}");
}

#[tokio::test]
async fn a_policy_allows_hosts_by_name() {
    let network = FakeNetwork::new(NAMES, respond).await;
    let only = Hosts::Only(vec!["One.Example".to_owned(), "*.example.org".to_owned()]);
    for (hosts, url, allowed) in [
        (Hosts::Nowhere, "http://one.example/", false),
        (only.clone(), "http://one.example./", true),
        (only.clone(), "http://other.example.org/", true),
        (only.clone(), "http://example.org/", false),
        (only.clone(), "http://secure.example.com/", false),
        (only.clone(), "http://one.example/kept", true),
        (only, "http://none.example/", false),
    ] {
        let result = fetcher(&network, hosts).fetch(get(url)).await;
        let blocked = matches!(&result, Err(Error::Blocked(why)) if why.contains("not allowed"));
        assert_eq!(!blocked, allowed, "{url}: {result:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_server_that_says_nothing_is_not_waited_for() {
    #[derive(Debug)]
    struct Silent;
    #[async_trait::async_trait]
    impl Resolve for Silent {
        async fn resolve(&self, _: &str) -> std::io::Result<Vec<IpAddr>> {
            std::future::pending().await
        }
    }
    let direct = Arc::new(Direct::default());
    let fetcher = Fetcher::with(Hosts::Public, Arc::new(Silent), direct, Limits::default());
    let result = fetcher.fetch(get("http://example.com/")).await;
    assert_eq!(result, Err(Error::Timeout(Duration::from_secs(10))));
}
