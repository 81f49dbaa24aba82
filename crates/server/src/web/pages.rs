//! The files of the playground's page. `cargo xtask web` builds them from the sources in `web`; they are
//! part of the program, so that the server needs neither Node nor another file.

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use stockade_api::Problem;
use stockade_core::Code;

use crate::failure::Failure;

/// What the page may load and do: its own files, and requests to its own origin.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types svelte-trusted-html";

/// A file: its name, its type, and its content.
struct File(&'static str, &'static str, &'static [u8]);

const PAGE: File =
    File("index.html", "text/html; charset=utf-8", include_bytes!("../../pages/index.html"));
const FILES: [File; 3] = [
    File("app.js", "text/javascript; charset=utf-8", include_bytes!("../../pages/app.js")),
    File("app.css", "text/css; charset=utf-8", include_bytes!("../../pages/app.css")),
    File("icon.svg", "image/svg+xml", include_bytes!("../../pages/icon.svg")),
];

/// The page itself.
pub(super) async fn page(headers: HeaderMap) -> Response {
    respond(&PAGE, &headers)
}

/// One of its files.
pub(super) async fn file(Path(name): Path<String>, headers: HeaderMap) -> Response {
    match FILES.iter().find(|file| file.0 == name) {
        Some(file) => respond(file, &headers),
        None => {
            let message = format!("there is no file {name:?}");
            Failure(Problem::new(Code::NotFound, message)).into_response()
        }
    }
}

fn respond(file: &File, headers: &HeaderMap) -> Response {
    let File(_, kind, content) = *file;
    let hash = blake3::hash(content).to_hex();
    let tag = format!("\"{}\"", &hash[..32]);
    let is_known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| *known == *tag);
    let mut response = match is_known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => content.into_response(),
    };
    let own = response.headers_mut();
    let constant: [(HeaderName, &'static str); 7] = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in constant {
        own.insert(name, HeaderValue::from_static(value));
    }
    if let Ok(tag) = HeaderValue::try_from(tag) {
        own.insert(header::ETAG, tag);
    }
    response
}
