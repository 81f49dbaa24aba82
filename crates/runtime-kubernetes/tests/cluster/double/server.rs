//! The API server of the double.

use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ws::{WebSocketUpgrade, rejection::WebSocketUpgradeRejection};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use super::faults::{self, Then};
use super::store::{Change, Key, Store};
use super::{Agents, TOKEN, controllers, exec, schemas};

/// Serves until the process ends.
pub(crate) fn run(listener: TcpListener, store: Arc<Store>) {
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    tokio.unwrap().block_on(async move {
        listener.set_nonblocking(true).unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let router = Router::new().fallback(serve).with_state(store);
        axum::serve(listener, router).await.unwrap();
    });
}

/// A path of the API.
struct Path {
    group: String,
    namespace: String,
    kind: String,
    name: Option<String>,
    rest: Option<String>,
}

impl Path {
    fn parse(path: &str) -> Option<Self> {
        let words: Vec<_> = path.trim_start_matches('/').split('/').collect();
        let (group, rest) = match words.as_slice() {
            ["api", "v1", rest @ ..] => ("", rest),
            ["apis", group, _, rest @ ..] => (*group, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let mut rest = rest.iter().map(|word| (*word).to_owned());
        Some(Self {
            group: group.to_owned(),
            namespace: namespace.to_owned(),
            kind: rest.next().unwrap_or_default(),
            name: rest.next(),
            rest: rest.next(),
        })
    }

    fn key(&self) -> Key {
        (self.kind.clone(), self.namespace.clone(), self.name.clone().unwrap_or_default())
    }
}

pub(crate) fn failure(code: u16, reason: &str, message: &str) -> Response {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code, "reason": reason, "message": message,
    });
    (StatusCode::from_u16(code).unwrap(), axum::Json(body)).into_response()
}

fn done(object: &Value) -> Response {
    axum::Json(object.clone()).into_response()
}

async fn serve(
    State(store): State<Arc<Store>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    Query(query): Query<Vec<(String, String)>>,
    (method, uri, headers): (Method, Uri, HeaderMap),
    body: Bytes,
) -> Response {
    let whole = uri.to_string();
    store.requests.lock().unwrap().push(format!("{method} {whole}"));
    let token = headers.get("authorization").and_then(|value| value.to_str().ok());
    if token != Some(&format!("Bearer {TOKEN}")) {
        return failure(401, "Unauthorized", "the token is missing");
    }
    let then = faults::take(&mut store.faults.lock().unwrap(), &method, &whole);
    match then {
        Some(Then::Answer(code)) => return failure(code, "Fault", "a fault of the test"),
        Some(Then::Hang) => std::future::pending().await,
        _ => {}
    }
    let Some(path) = Path::parse(uri.path()) else { return failure(404, "NotFound", &whole) };
    let is_known = match path.group.as_str() {
        "agents.x-k8s.io" => store.agents != Agents::None,
        "extensions.agents.x-k8s.io" => store.agents == Agents::All,
        _ => true,
    };
    if !is_known {
        return failure(404, "NotFound", "the server could not find the requested resource");
    }
    if path.kind.is_empty() {
        return done(&json!({ "kind": "APIResourceList", "resources": [] }));
    }
    let answer = match (&method, path.rest.as_deref()) {
        (&Method::GET, Some("exec")) => {
            let cut = match then {
                Some(Then::CutAfter(bytes)) => Some(bytes),
                _ => None,
            };
            match upgrade {
                Ok(upgrade) => exec::serve(&store, &path.key(), &query, upgrade, cut),
                Err(rejection) => rejection.into_response(),
            }
        }
        (&Method::GET, None) => {
            let query: HashMap<_, _> = query.into_iter().collect();
            read(&store, &path, &query, then)
        }
        (&Method::POST, None) => create(&store, &path, &body),
        (&Method::PATCH, None) => patch(&store, &path, &body),
        (&Method::PATCH, Some("resize")) => resize(&store, &path, &body),
        (&Method::DELETE, None) => delete(&store, &path),
        _ => failure(405, "MethodNotAllowed", &whole),
    };
    match then {
        Some(Then::DoneThenAnswer(code)) => failure(code, "Fault", "after it was done"),
        _ => answer,
    }
}

fn selected(object: &Value, selector: Option<&String>) -> bool {
    let labels = &object["metadata"]["labels"];
    selector.is_none_or(|selector| {
        selector.split(',').filter(|part| !part.is_empty()).all(|part| match part.split_once('=') {
            Some((name, value)) => labels[name] == value,
            None => !labels[part].is_null(),
        })
    })
}

fn read(
    store: &Arc<Store>,
    path: &Path,
    query: &HashMap<String, String>,
    then: Option<Then>,
) -> Response {
    if path.name.is_some() {
        return match store.get(&path.key()) {
            Some(object) => done(&object),
            None => failure(404, "NotFound", "there is none"),
        };
    }
    let selector = query.get("labelSelector").cloned();
    if query.get("watch").is_some_and(|watch| watch == "true" || watch == "1") {
        return watch(store, path.kind.clone(), selector, query, then);
    }
    let namespace = (!path.namespace.is_empty()).then_some(path.namespace.as_str());
    // The version first: what changes meanwhile is told again.
    let version = store.version().to_string();
    let items: Vec<_> = store
        .list(&path.kind, namespace)
        .into_iter()
        .filter(|object| selected(object, selector.as_ref()))
        .collect();
    done(&json!({
        "kind": "List", "apiVersion": "v1",
        "metadata": { "resourceVersion": version }, "items": items,
    }))
}

fn watch(
    store: &Arc<Store>,
    kind: String,
    selector: Option<String>,
    query: &HashMap<String, String>,
    then: Option<Then>,
) -> Response {
    let line = |what: &str, object: &Value| {
        Bytes::from(format!("{}\n", json!({ "type": what, "object": object })))
    };
    if then == Some(Then::Gone) {
        let gone = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure",
            "code": 410, "reason": "Expired", "message": "too old resource version" });
        return Body::from(line("ERROR", &gone)).into_response();
    }
    let from: u64 = query.get("resourceVersion").and_then(|v| v.parse().ok()).unwrap_or(0);
    let cut = match then {
        Some(Then::CutAfter(events)) => events,
        _ => usize::MAX,
    };
    let state = (Arc::clone(store), from, cut);
    let stream = futures_util::stream::unfold(state, move |(store, from, cut)| {
        let (kind, selector) = (kind.clone(), selector.clone());
        async move {
            if cut == 0 {
                return Some((Err(std::io::Error::other("cut")), (store, from, 0)));
            }
            loop {
                let waited = Arc::clone(&store);
                let mut news = std::pin::pin!(waited.news.notified());
                news.as_mut().enable();
                let change = store
                    .objects
                    .lock()
                    .unwrap()
                    .changes
                    .iter()
                    .find(|change| {
                        change.version > from
                            && change.kind == kind
                            && selected(&change.object, selector.as_ref())
                    })
                    .cloned();
                if let Some(Change { version, what, object, .. }) = change {
                    return Some((Ok(line(what, &object)), (store, version, cut - 1)));
                }
                news.await;
            }
        }
    });
    Body::from_stream(stream).into_response()
}

fn create(store: &Arc<Store>, path: &Path, body: &[u8]) -> Response {
    let Ok(object) = serde_json::from_slice::<Value>(body) else {
        return failure(400, "BadRequest", "the body is no JSON");
    };
    if let Err(reason) = schemas::check(&path.kind, &object) {
        return failure(422, "Invalid", &reason);
    }
    if !path.namespace.is_empty()
        && store.get(&("namespaces".to_owned(), String::new(), path.namespace.clone())).is_none()
    {
        return failure(404, "NotFound", "there is no such namespace");
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let key = (path.kind.clone(), path.namespace.clone(), name);
    match store.add(&key, object) {
        Some(object) => {
            controllers::created(store, &key, &object);
            (StatusCode::CREATED, axum::Json(object)).into_response()
        }
        None => failure(409, "AlreadyExists", "it already exists"),
    }
}

fn merge(object: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (name, value) in patch {
        if value.is_null() {
            object.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut object[name.as_str()], value);
        }
    }
}

fn patch(store: &Arc<Store>, path: &Path, body: &[u8]) -> Response {
    let Ok(patch) = serde_json::from_slice::<Value>(body) else {
        return failure(400, "BadRequest", "the body is no JSON");
    };
    let Some(mut changed) = store.get(&path.key()) else {
        return failure(404, "NotFound", "there is none");
    };
    merge(&mut changed, &patch);
    if let Err(reason) = schemas::check(&path.kind, &changed) {
        return failure(422, "Invalid", &reason);
    }
    match store.change(&path.key(), |object| merge(object, &patch)) {
        Some(object) => done(&object),
        None => failure(404, "NotFound", "there is none"),
    }
}

/// Changes the resources of containers, which are named.
fn resize(store: &Arc<Store>, path: &Path, body: &[u8]) -> Response {
    let Ok(change) = serde_json::from_slice::<Value>(body) else {
        return failure(400, "BadRequest", "the body is no JSON");
    };
    let changed = store.change(&path.key(), |pod| {
        for new in change["spec"]["containers"].as_array().into_iter().flatten() {
            for old in pod["spec"]["containers"].as_array_mut().into_iter().flatten() {
                if old["name"] == new["name"] {
                    merge(&mut old["resources"], &new["resources"]);
                }
            }
        }
    });
    match changed {
        Some(object) => match schemas::check("pods", &object) {
            Ok(()) => done(&object),
            Err(reason) => failure(422, "Invalid", &reason),
        },
        None => failure(404, "NotFound", "there is none"),
    }
}

fn delete(store: &Arc<Store>, path: &Path) -> Response {
    let key = path.key();
    let deleted = store.change(&key, |object| {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    let Some(object) = deleted else { return failure(404, "NotFound", "there is none") };
    let store = Arc::clone(store);
    tokio::spawn(async move {
        // As in a cluster, it is gone a moment later.
        tokio::time::sleep(Duration::from_millis(10)).await;
        controllers::deleted(&store, &key).await;
        store.remove(&key);
    });
    done(&object)
}
