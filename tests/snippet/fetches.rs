//! What packages of a library set fetch: through the caller, from a server on loopback that
//! represents the public hosts.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use stockade_core::address::hosts::Hosts;
use stockade_script::LibraryModule;
use stockade_script::fetch::{Connect, Fetcher, Limits, Resolve, Stream};
use stockade_snippet::Runner;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

use crate::support::{options, run};

/// Names and addresses of this world; every address leads to the server.
#[derive(Debug)]
struct World(SocketAddr);

#[async_trait]
impl Resolve for World {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let address = if name.starts_with("inner") { "10.0.0.1" } else { "93.184.216.34" };
        Ok(vec![address.parse().unwrap()])
    }
}

#[async_trait]
impl Connect for World {
    async fn connect(&self, _: &Url, _: &[SocketAddr]) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(TcpStream::connect(self.0).await?))
    }
}

/// A runner whose library set has a package that fetches a given URL.
async fn runner(hosts: Hosts) -> Runner {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let world = Arc::new(World(listener.local_addr().unwrap()));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = vec![0; 4096];
                let length = stream.read(&mut request).await.unwrap();
                let text = String::from_utf8_lossy(&request[..length]).into_owned();
                if text.starts_with("GET /silent") {
                    // Until the client closes the connection.
                    let _ = stream.read(&mut request).await;
                    return;
                }
                let first = text.lines().next().unwrap().to_owned();
                let body = match first.as_str() {
                    "GET /large HTTP/1.1" => "y".repeat(1_000_000),
                    _ => format!("{{\"asked\": \"{first}\"}}"),
                };
                let head = format!("HTTP/1.1 200 Fine\r\ncontent-length: {}\r\n\r\n", body.len());
                stream.write_all((head + &body).as_bytes()).await.unwrap();
            });
        }
    });
    let mut options = options();
    options.library.modules.push(LibraryModule {
        specifier: "@directive-run/query".to_owned(),
        source: "export const get = (url, init) => fetch(url, init);\n\
                 export const Controller = AbortController;"
            .to_owned(),
        exported: true,
        ..LibraryModule::default()
    });
    options.fetcher = Fetcher::with(hosts, Arc::<World>::clone(&world), world, Limits::default());
    Runner::new(options)
}

#[tokio::test]
async fn packages_fetch_from_public_hosts_only() {
    let runner = runner(Hosts::Public).await;
    let source = "import { get } from \"@directive-run/query\";\n\
        const all = await Promise.all([1, 2, 3].map((n) => get(\"http://example.com/\" + n)));\n\
        for (const r of all) console.log(r.status, r.ok, (await r.json()).asked);\n\
        for (const url of [\"http://127.0.0.1/\", \"http://inner.example.com/\", \"file:///etc/passwd\"]) {\n\
          try { await get(url); console.log(\"ESCAPED\"); } catch (e) { console.log(e.message); }\n\
        }";
    let transcript = run(&runner, source, 10_000.0).await;
    assert_eq!(transcript.errors, [""; 0]);
    assert_eq!(
        transcript.logs,
        [
            "[log] 200 true GET /1 HTTP/1.1",
            "[log] 200 true GET /2 HTTP/1.1",
            "[log] 200 true GET /3 HTTP/1.1",
            "[log] sandbox: outbound fetch blocked — IPv4 127.0.0.1 is in a private / loopback / \
             link-local range",
            "[log] sandbox: outbound fetch blocked — hostname \"inner.example.com\" resolves to \
             private IPv4 10.0.0.1",
            "[log] sandbox: outbound fetch blocked — protocol \"file:\" is not allowed (only http:, \
             https:)",
        ]
    );
}

#[tokio::test]
async fn a_fetch_ends_with_its_signal_or_with_its_snippet() {
    let runner = runner(Hosts::Public).await;
    let source = "import { get, Controller } from \"@directive-run/query\";\n\
        const c = new Controller();\n\
        const p = get(\"http://example.com/silent\", { signal: c.signal });\n\
        c.abort(); try { await p; } catch (e) { console.log(e.name); }\n\
        await get(\"http://example.com/silent\");";
    let transcript = run(&runner, source, 300.0).await;
    assert_eq!(transcript.logs, ["[log] AbortError"]);
    assert_eq!(transcript.errors, ["wall-clock budget of 300ms elapsed"]);
}

#[tokio::test]
async fn a_worker_is_heard_while_it_does_not_listen() {
    let runner = runner(Hosts::Public).await;
    let source = "import { get } from \"@directive-run/query\";\n\
        const all = Promise.all(Array.from({ length: 6 }, () => get(\"http://example.com/large\")));\n\
        const wait = Date.now() + 200; while (Date.now() < wait);\n\
        for (let i = 0; i < 240; i++) console.log(\"x\".repeat(1000));\n\
        const sizes = (await all).map(async (r) => (await r.text()).length);\n\
        console.log((await Promise.all(sizes)).join());";
    let transcript = run(&runner, source, 10_000.0).await;
    assert_eq!(transcript.errors, [""; 0]);
    assert_eq!(transcript.logs.len(), 241);
    assert_eq!(transcript.logs[240], "[log] 1000000,1000000,1000000,1000000,1000000,1000000");
}

#[tokio::test]
async fn a_policy_can_allow_nothing_and_there_are_not_too_many() {
    let source = "import { get } from \"@directive-run/query\";\n\
        const all = await Promise.allSettled(Array.from({ length: 150 }, () => get(\"http://example.com/\")));\n\
        const why = new Set(all.map((one) => one.reason?.message ?? \"fetched\"));\n\
        for (const text of [...why].sort()) console.log(text);";
    let transcript = run(&runner(Hosts::Nowhere).await, source, 10_000.0).await;
    assert_eq!(
        transcript.logs,
        [
            "[log] fetch failed: a program fetches at most 100 times",
            "[log] sandbox: outbound fetch blocked — hostname \"example.com\" is not allowed here",
        ]
    );
    let transcript = run(&runner(Hosts::Public).await, source, 10_000.0).await;
    assert_eq!(
        transcript.logs,
        ["[log] fetch failed: a program fetches at most 100 times", "[log] fetched"]
    );
}
