//! Servers on ports inside: requests, streamed responses, WebSockets.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod harness;

use std::collections::BTreeMap;

use harness::{Harness, caller};
use stockade_api::{HttpRequest, Method, Sandboxes as _, WebSocket};
use stockade_core::{Code, SandboxId};
use stockade_runtime::Target;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;

const PORT: u16 = 8080;

/// Answers each connection to the port with texts, once a request was read, and passes on the
/// request. The test decides when the next text is sent.
fn serve(
    harness: &Harness,
    id: &SandboxId,
    mut texts: mpsc::Receiver<Option<String>>,
) -> mpsc::Receiver<(String, Option<DuplexStream>)> {
    let (request_sender, requests) = mpsc::channel(4);
    let mut listener = harness.fake.listen(id, Target::Tcp(PORT)).unwrap();
    tokio::spawn(async move {
        while let Some(mut connection) = listener.accept().await {
            let mut request = Vec::new();
            while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                request.push(connection.read_u8().await.unwrap());
            }
            request_sender.send((String::from_utf8(request).unwrap(), None)).await.unwrap();
            while let Some(Some(text)) = texts.recv().await {
                connection.write_all(text.as_bytes()).await.unwrap();
            }
            request_sender.send((String::new(), Some(connection))).await.ok();
        }
    });
    requests
}

fn request(id: &SandboxId, path: &str) -> HttpRequest {
    HttpRequest {
        sandbox_id: id.clone(),
        port: PORT,
        method: Method::Get,
        path: path.to_owned(),
        headers: BTreeMap::from([("x-own".to_owned(), "1".to_owned())]),
        body: None,
        timeout_seconds: None,
        limit_bytes: None,
        markdown: false,
    }
}

#[tokio::test]
async fn an_answer_is_given_as_it_comes() {
    let harness = Harness::new().await;
    let id = harness.sandbox().await;
    let (texts, waiting) = mpsc::channel(4);
    let mut requests = serve(&harness, &id, waiting);
    let head = "HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\nx-a: 1\r\nx-a: 2\r\n\r\n";
    texts.send(Some(head.to_owned())).await.unwrap();
    let http_request = request(&id, "/events?x=1");
    let answer =
        harness.run(|s| async move { s.http_stream(&caller("u1"), http_request).await }).await;
    let mut answer = answer.unwrap();
    let (sent, _) = requests.recv().await.unwrap();
    assert!(sent.starts_with("GET /events?x=1 HTTP/1.1\r\n") && sent.contains("x-own: 1\r\n"));
    assert_eq!((answer.head.status, answer.head.headers["x-a"].as_str()), (201, "1, 2"));
    for part in ["one", "two"] {
        texts.send(Some(format!("3\r\n{part}\r\n"))).await.unwrap();
        let mut first_bytes = [0; 3];
        answer.body.0.read_exact(&mut first_bytes).await.unwrap();
        assert_eq!(first_bytes, part.as_bytes());
    }
    texts.send(Some("0\r\n\r\n".to_owned())).await.unwrap();
    assert_eq!(answer.body.0.read(&mut [0; 8]).await.unwrap(), 0);
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_not_taken_for_whole() {
    let harness = Harness::new().await;
    let id = harness.sandbox().await;
    let (texts, waiting) = mpsc::channel(4);
    let mut requests = serve(&harness, &id, waiting);
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc";
    texts.send(Some(cut.to_owned())).await.unwrap();
    texts.send(None).await.unwrap();
    let http_request = request(&id, "/");
    let answer =
        harness.run(|s| async move { s.http_stream(&caller("u1"), http_request).await }).await;
    let mut answer = answer.unwrap();
    drop((requests.recv().await, requests.recv().await));
    assert!(answer.body.0.read_to_end(&mut Vec::new()).await.is_err());
    for (asked, code) in [
        (HttpRequest { markdown: true, ..request(&id, "/") }, Code::InvalidInput),
        (request(&id, "no-slash"), Code::InvalidInput),
        (HttpRequest { port: 1, ..request(&id, "/") }, Code::Unreachable),
    ] {
        let refused = harness.run(|s| async move { s.http_stream(&caller("u1"), asked).await });
        assert_eq!(refused.await.unwrap_err().code, code);
    }
}

fn web_socket(id: &SandboxId) -> WebSocket {
    WebSocket {
        sandbox_id: id.clone(),
        port: PORT,
        path: "/ws".to_owned(),
        headers: BTreeMap::from([("Sec-WebSocket-Key".to_owned(), "mine".to_owned())]),
        protocols: vec!["a".to_owned(), "b".to_owned()],
        timeout_seconds: Some(5.0),
    }
}

#[tokio::test]
async fn what_is_no_web_socket_is_refused() {
    let harness = Harness::new().await;
    let id = harness.sandbox().await;
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-accept: bm90IHRoaXMgcmVxdWVzdA==\r\n\r\n",
    ] {
        let (texts, waiting) = mpsc::channel(4);
        let mut requests = serve(&harness, &id, waiting);
        texts.send(Some(answer.to_owned())).await.unwrap();
        let http_request = web_socket(&id);
        let refused =
            harness.run(|s| async move { s.web_socket(&caller("u1"), http_request).await });
        assert_eq!(refused.await.unwrap_err().code, Code::Unreachable);
        let (sent, _) = requests.recv().await.unwrap();
        let sent = sent.to_lowercase();
        for header in
            ["upgrade: websocket", "sec-websocket-version: 13", "sec-websocket-protocol: a, b"]
        {
            assert!(sent.contains(header), "{sent}");
        }
        assert!(!sent.contains("mine"), "the handshake is ours");
    }
    let http_request = web_socket(&id);
    let refused = harness.run(|s| async move { s.web_socket(&caller("u2"), http_request).await });
    assert_eq!(refused.await.unwrap_err().code, Code::NotFound);
}
