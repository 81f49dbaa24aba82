//! Downloads from registries on the loopback: right ones, and hostile ones.

use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use serde_json::json;
use stockade_core::Code;
use stockade_image::Digest;
use stockade_registry_control::{Event, Selector};

use crate::testing::{Answer, Download, End, Sample, Server, descriptor, not_found};

/// Downloads from a registry that is right but for what `change` makes of its answers, and expects
/// this code.
async fn refused(
    code: Code,
    part: &str,
    change: impl Fn(&str, Answer) -> Answer + Send + Sync + 'static,
) {
    let sample = Sample::new();
    let server = Server::start(move |asked, _| change(asked.path(), sample.answer(asked))).await;
    let download = Download::from(&server.host);
    let problem = download.run().await.unwrap_err();
    assert_eq!(problem.code, code, "{problem:?}");
    let text = format!("{} {}", problem.message, problem.cause.unwrap_or_default());
    assert!(text.contains(part), "{text}");
    assert!(!download.is_complete());
    assert!(!download.has(&Sample::new().layer));
}

fn is_layer(path: &str) -> bool {
    path.contains("/blobs/") && path.ends_with(Digest::of(&Sample::new().layer).hex())
}

#[tokio::test]
async fn an_image_is_downloaded_with_its_digests() {
    let sample = Sample::new();
    let server = Server::start(move |asked, _| sample.answer(asked)).await;
    let download = Download::from(&server.host);
    download.run().await.unwrap();
    let sample = Sample::new();
    assert!(download.is_complete() && download.has(&sample.layer) && download.has(&sample.config));
    let digest = Digest::of(&sample.manifest);
    let last = download.events.borrow().last().cloned();
    assert_eq!(last, Some(Event::Done { manifest: digest.clone(), digest: digest.clone() }));
    // The second time nothing is downloaded but what the tag names.
    let before = server.asked().len();
    download.run().await.unwrap();
    assert_eq!(server.asked().len() - before, 1);
    // By digest, and with a layer that the caller has.
    let mut other = Download::from(&server.host);
    other.request.selector = Selector::Digest(digest);
    other.request.present = vec![Digest::of(&sample.layer)];
    other.run().await.unwrap();
    assert!(other.is_complete() && !other.has(&sample.layer));
}

#[tokio::test]
async fn the_platform_is_chosen_from_an_index() {
    let images = ["amd64", "arm64"].map(|name| Sample::with_layer(name.into(), name));
    let entries = images.iter().map(|image| {
        let config: serde_json::Value = serde_json::from_slice(&image.config).unwrap();
        let mut entry = descriptor(&image.manifest);
        entry["platform"] = config;
        entry
    });
    let list = "application/vnd.docker.distribution.manifest.list.v2+json";
    let entries: Vec<_> = entries.collect();
    let index = json!({ "schemaVersion": 2, "mediaType": list, "manifests": entries });
    let index = index.to_string();
    let named = Digest::of(index.as_bytes());
    let server = Server::start(move |asked, _| match asked.path().ends_with("/tag") {
        true => Answer::new(200, index.clone()),
        false => images
            .iter()
            .map(|image| image.answer(asked))
            .find(|answer| answer.status != 404)
            .unwrap_or_else(not_found),
    })
    .await;
    let mut download = Download::from(&server.host);
    download.request.platform.architecture = "arm64".to_owned();
    download.run().await.unwrap();
    assert!(download.has(b"arm64") && !download.has(b"amd64"));
    let last = download.events.borrow().last().cloned();
    assert!(matches!(last, Some(Event::Done { digest, .. }) if digest == named));
    download.request.platform = "linux/riscv64".parse().unwrap();
    let problem = download.run().await.unwrap_err();
    assert_eq!(problem.code, Code::ImagePlatformMissing);
    assert_eq!(problem.cause.as_deref(), Some("it exists for linux/amd64, linux/arm64"));
    assert_eq!(problem.remediation.as_deref(), Some("--platform linux/amd64"));
}

#[tokio::test]
async fn an_image_for_another_platform_is_refused_before_its_layers() {
    let sample = Sample::with_layer(b"layer".to_vec(), "arm64");
    let server = Server::start(move |asked, _| sample.answer(asked)).await;
    let download = Download::from(&server.host);
    let problem = download.run().await.unwrap_err();
    assert_eq!(problem.code, Code::ImagePlatformMissing);
    assert!(!download.has(b"layer"));
}

#[tokio::test]
async fn wrong_digests_and_sizes_are_refused() {
    refused(Code::ImageInvalid, "digest", |path, answer| match is_layer(path) {
        true => Answer { body: vec![7; answer.body.len()], ..answer },
        false => answer,
    })
    .await;
    refused(Code::ImageInvalid, "bytes instead of", |path, mut answer| {
        if is_layer(path) {
            answer.body.push(0);
        }
        answer
    })
    .await;
    refused(Code::ImageInvalid, "more than", |path, answer| match is_layer(path) {
        true => answer.ending(End::Endless),
        false => answer,
    })
    .await;
    let header = "Docker-Content-Digest";
    refused(Code::ImageInvalid, "digest", move |_, answer| {
        answer.with(header, Digest::of(b"another").to_string())
    })
    .await;
}

#[tokio::test]
async fn a_digest_that_was_asked_for_is_the_digest_of_the_answer() {
    let sample = Sample::new();
    let server = Server::start(move |_, _| Answer::new(200, sample.manifest.clone())).await;
    let mut download = Download::from(&server.host);
    download.request.selector = Selector::Digest(Digest::of(b"another"));
    let problem = download.run().await.unwrap_err();
    assert_eq!(problem.code, Code::ImageInvalid, "{problem:?}");
}

#[tokio::test]
async fn large_documents_are_not_read() {
    refused(Code::ImageTooLarge, "manifest", |path, answer| match path.contains("manifests") {
        true => answer.ending(End::Endless),
        false => answer,
    })
    .await;
    refused(Code::ImageTooLarge, "manifest", |path, answer| match path.contains("manifests") {
        true => Answer::new(200, vec![b' '; 5 << 20]),
        false => answer,
    })
    .await;
    let sample = Sample::new();
    let server = Server::start(move |asked, _| sample.answer(asked)).await;
    let mut download = Download::from(&server.host);
    download.request.max_bytes = 1000;
    let problem = download.run().await.unwrap_err();
    assert_eq!(problem.code, Code::ImageTooLarge);
    assert!(problem.remediation.unwrap().starts_with("--max-size"));
    assert_eq!(server.asked().iter().filter(|asked| asked.path().contains("blobs")).count(), 0);
}

#[tokio::test]
async fn a_server_that_does_not_answer_ends_at_a_deadline() {
    refused(Code::RegistryUnreachable, "", |path, answer| match is_layer(path) {
        true => answer.ending(End::Stall(0)),
        false => answer,
    })
    .await;
    refused(Code::RegistryUnreachable, "", |path, answer| match is_layer(path) {
        true => answer.ending(End::Slow),
        false => answer,
    })
    .await;
    refused(Code::RegistryUnreachable, "", |path, answer| match path.contains("manifests") {
        true => answer.ending(End::Slow),
        false => answer,
    })
    .await;
}

#[tokio::test]
async fn a_cut_connection_continues_where_it_was() {
    let (sample, requests) = (Sample::new(), AtomicUsize::new(0));
    let server = Server::start(move |asked, _| {
        let answer = sample.answer(asked);
        match is_layer(asked.path()) && requests.fetch_add(1, Ordering::SeqCst) < 2 {
            true => answer.ending(End::Cut(100_000)),
            false => answer,
        }
    })
    .await;
    let download = Download::from(&server.host);
    download.run().await.unwrap();
    assert!(download.has(&Sample::new().layer));
    let asked = server.asked();
    let ranges: Vec<_> =
        asked.iter().filter(|a| is_layer(a.path())).map(|a| a.range.clone()).collect();
    assert_eq!(ranges[0], None);
    assert!(ranges.len() == 3 && ranges[1].is_some() && ranges[2].is_some(), "{ranges:?}");
}

#[tokio::test]
async fn a_server_without_ranges_sends_everything_again() {
    let (sample, requests) = (Sample::new(), AtomicUsize::new(0));
    let server = Server::start(move |asked, _| {
        let whole = crate::testing::HttpRequest { range: None, ..asked.clone() };
        let answer = sample.answer(&whole);
        match is_layer(asked.path()) && requests.fetch_add(1, Ordering::SeqCst) < 1 {
            true => answer.ending(End::Cut(100_000)),
            false => answer,
        }
    })
    .await;
    let download = Download::from(&server.host);
    download.run().await.unwrap();
    assert!(download.has(&Sample::new().layer));
}

#[tokio::test]
async fn a_wrong_part_is_not_appended() {
    refused(Code::ImageInvalid, "another part", |path, answer| match is_layer(path) {
        true if answer.status == 206 => Answer { headers: vec![], ..answer },
        true => answer.ending(End::Cut(1000)),
        false => answer,
    })
    .await;
}

#[tokio::test]
async fn a_tag_that_does_not_exist_is_named() {
    let server = Server::start(|_, _| not_found()).await;
    let problem = Download::from(&server.host).run().await.unwrap_err();
    assert_eq!(problem.code, Code::ImageNotFound);
    assert!(problem.message.contains("image team/name:tag"), "{problem:?}");
}

#[tokio::test]
async fn nothing_listens() {
    let problem = Download::from("127.0.0.1:1").run().await.unwrap_err();
    assert_eq!(problem.code, Code::RegistryUnreachable);
    assert!(problem.retryable);
}

#[tokio::test]
async fn a_limited_rate_is_waited_for_or_reported() {
    let (sample, requests) = (Sample::new(), AtomicUsize::new(0));
    let server = Server::start(move |asked, _| match requests.fetch_add(1, Ordering::SeqCst) {
        0 => Answer::new(429, "").with("Retry-After", "0"),
        _ => sample.answer(asked),
    })
    .await;
    Download::from(&server.host).run().await.unwrap();
    let server = Server::start(|_, _| Answer::new(429, "").with("Retry-After", "3600")).await;
    let problem = Download::from(&server.host).run().await.unwrap_err();
    assert_eq!(problem.code, Code::RegistryRateLimited);
    assert_eq!(problem.cause.as_deref(), Some("it answers again after 3600 seconds"));
    assert_eq!(server.asked().len(), 1);
}

fn auths(host: &str, user_and_password: &str) -> serde_json::Value {
    let auth = base64::engine::general_purpose::STANDARD.encode(user_and_password);
    json!({ "auths": { host: { "auth": auth } } })
}

#[tokio::test]
async fn a_password_is_sent_only_when_it_is_asked_for() {
    let sample = Sample::new();
    let server = Server::start(move |asked, _| match asked.authorization.as_deref() {
        Some("Basic dTpwYXNzd29yZA==") => sample.answer(asked),
        _ => Answer::new(401, "").with("WWW-Authenticate", "Basic realm=\"r\""),
    })
    .await;
    let mut download = Download::from(&server.host);
    let problem = download.run().await.unwrap_err();
    assert_eq!(problem.code, Code::RegistryUnauthorized);
    assert_eq!(problem.remediation, Some(format!("docker login {}", server.host)));
    assert!(server.asked().iter().all(|asked| asked.authorization.is_none()));
    download.log_in(&auths(&server.host, "u:password")).await;
    download.run().await.unwrap();
    download.log_in(&auths(&server.host, "u:wrong-password")).await;
    let problem = download.run().await.unwrap_err();
    assert_eq!(problem.code, Code::RegistryUnauthorized);
    assert!(!format!("{problem:?}").contains("wrong-password"));
}

#[tokio::test]
async fn a_token_is_fetched_for_the_repository_only() {
    let sample = Sample::new();
    let server = Server::start(move |asked, host| {
        if asked.path().starts_with("/token") {
            let is_right = asked.authorization.as_deref() == Some("Basic dTpwYXNzd29yZA==");
            return match is_right {
                true => Answer::new(200, r#"{"token":"abc"}"#),
                false => Answer::new(401, "{}"),
            };
        }
        match asked.authorization.as_deref() {
            Some("Bearer abc") => sample.answer(asked),
            _ => Answer::new(401, "").with(
                "WWW-Authenticate",
                format!("Bearer realm=\"http://{host}/token\",service=\"s\",scope=\"repository:other:push\""),
            ),
        }
    })
    .await;
    let mut download = Download::from(&server.host);
    download.log_in(&auths(&server.host, "u:password")).await;
    download.run().await.unwrap();
    let tokens: Vec<_> =
        server.asked().into_iter().filter(|asked| asked.path().starts_with("/token")).collect();
    assert_eq!(tokens.len(), 1);
    let path = tokens[0].path();
    assert!(
        path.contains("scope=repository%3Ateam%2Fname%3Apull") && !path.contains("other"),
        "{path}"
    );
}

#[tokio::test]
async fn an_identity_token_is_exchanged() {
    let sample = Sample::new();
    let server = Server::start(move |asked, host| {
        if asked.path().starts_with("/token") {
            assert!(
                asked.line.starts_with("POST") && asked.body.contains("refresh_token=identity")
            );
            return Answer::new(200, r#"{"access_token":"abc"}"#);
        }
        match asked.authorization.as_deref() {
            Some("Bearer abc") => sample.answer(asked),
            _ => Answer::new(401, "")
                .with("WWW-Authenticate", format!("Bearer realm=\"http://{host}/token\"")),
        }
    })
    .await;
    let mut download = Download::from(&server.host);
    download
        .log_in(&json!({"auths": {(server.host.as_str()): {"identitytoken": "identity"}}}))
        .await;
    download.run().await.unwrap();
}

#[tokio::test]
async fn a_loop_of_challenges_ends() {
    let server = Server::start(|asked, host| match asked.path().starts_with("/token") {
        true => Answer::new(200, format!(r#"{{"token":"t{}"}}"#, std::process::id())),
        false => Answer::new(401, "")
            .with("WWW-Authenticate", format!("Bearer realm=\"http://{host}/token\"")),
    })
    .await;
    let problem = Download::from(&server.host).run().await.unwrap_err();
    assert_eq!(problem.code, Code::RegistryUnauthorized);
    assert!(server.asked().len() < 10, "{}", server.asked().len());
}

#[tokio::test]
async fn a_token_service_that_answers_nonsense_is_named() {
    for (status, body) in [(200, "nonsense"), (200, r#"{"token":"a\r\nX: y"}"#), (200, "{}")] {
        let server = Server::start(move |asked, host| match asked.path().starts_with("/token") {
            true => Answer::new(status, body),
            false => Answer::new(401, "")
                .with("WWW-Authenticate", format!("Bearer realm=\"http://{host}/token\"")),
        })
        .await;
        let problem = Download::from(&server.host).run().await.unwrap_err();
        assert_eq!(problem.code, Code::ImageInvalid, "{problem:?}");
    }
    for realm in ["http://registry.example/token", "file:///etc/passwd", "nonsense"] {
        let server = Server::start(move |_, _| {
            Answer::new(401, "").with("WWW-Authenticate", format!("Bearer realm=\"{realm}\""))
        })
        .await;
        let problem = Download::from(&server.host).run().await.unwrap_err();
        assert_eq!(problem.code, Code::ImageInvalid, "{realm}: {problem:?}");
    }
}

#[tokio::test]
async fn a_redirect_never_carries_a_credential_to_another_host() {
    let sample = Sample::new();
    let storage = Server::start(move |asked, _| sample.answer(asked)).await;
    let (sample, elsewhere) = (Sample::new(), storage.host.clone());
    let server = Server::start(move |asked, _| {
        if asked.authorization.is_none() {
            return Answer::new(401, "").with("WWW-Authenticate", "Basic");
        }
        match asked.path().contains("/blobs/") {
            true => {
                Answer::new(307, "").with("Location", format!("http://{elsewhere}{}", asked.path()))
            }
            false => sample.answer(asked),
        }
    })
    .await;
    let mut download = Download::from(&server.host);
    download.log_in(&auths(&server.host, "u:password")).await;
    download.run().await.unwrap();
    assert!(download.has(&Sample::new().layer));
    assert!(!storage.asked().is_empty());
    assert!(storage.asked().iter().all(|asked| asked.authorization.is_none()));
}

#[tokio::test]
async fn another_host_cannot_ask_for_a_credential() {
    let storage = Server::start(|asked, host| match asked.path().starts_with("/token") {
        true => Answer::new(200, r#"{"token":"t"}"#),
        false => Answer::new(401, "")
            .with("WWW-Authenticate", format!("Bearer realm=\"http://{host}/token\"")),
    })
    .await;
    let (sample, elsewhere) = (Sample::new(), storage.host.clone());
    let server = Server::start(move |asked, _| match asked.path().contains("/blobs/") {
        true => Answer::new(302, "").with("Location", format!("http://{elsewhere}/x")),
        false => sample.answer(asked),
    })
    .await;
    let mut download = Download::from(&server.host);
    download.log_in(&auths(&server.host, "u:password")).await;
    let problem = download.run().await.unwrap_err();
    assert_eq!(problem.code, Code::RegistryUnauthorized);
    assert!(storage.asked().iter().all(|asked| asked.path() == "/x"), "{:?}", storage.asked());
}

#[tokio::test]
async fn redirects_are_bounded_and_checked() {
    for location in [
        "http://registry.example/x",
        "file:///etc/passwd",
        "http://u:p@127.0.0.1:1/x",
        "/v2/again",
        "http://[",
    ] {
        let server =
            Server::start(move |_, _| Answer::new(302, "").with("Location", location)).await;
        let problem = Download::from(&server.host).run().await.unwrap_err();
        assert_eq!(problem.code, Code::ImageInvalid, "{location}: {problem:?}");
        assert!(server.asked().len() < 10);
    }
}

#[tokio::test]
async fn an_error_that_repeats_a_credential_is_not_repeated() {
    let server = Server::start(|asked, _| {
        let text = asked.authorization.clone().unwrap_or_default();
        Answer::new(401, json!({"errors": [{"code": "X", "message": text}]}).to_string())
            .with("WWW-Authenticate", "Basic")
    })
    .await;
    let mut download = Download::from(&server.host);
    download.log_in(&auths(&server.host, "u:password")).await;
    let problem = format!("{:?}", download.run().await.unwrap_err());
    assert!(problem.contains("repeats a credential") && !problem.contains("dTpw"), "{problem}");
}

#[tokio::test]
async fn mirrors_are_asked_first_and_replaced_by_the_registry() {
    let sample = Sample::new();
    let mirror = Server::start(move |asked, _| match is_layer(asked.path()) {
        true => Answer::new(500, ""),
        false => sample.answer(asked),
    })
    .await;
    let empty = Server::start(|_, _| not_found()).await;
    let sample = Sample::new();
    let server = Server::start(move |asked, _| sample.answer(asked)).await;
    let mut download = Download::from(&server.host);
    download.request.access.mirrors = vec![empty.host.clone(), format!("http://{}", mirror.host)];
    download.log_in(&auths(&server.host, "u:password")).await;
    download.run().await.unwrap();
    assert!(download.has(&Sample::new().layer));
    assert_eq!(empty.asked().len(), 1);
    // Only the layer came from the registry itself.
    assert!(server.asked().iter().all(|asked| is_layer(asked.path())));
    assert!(mirror.asked().iter().chain(&empty.asked()).all(|asked| asked.authorization.is_none()));
}
