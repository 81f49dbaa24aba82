//! `/credential-vault` of a sandbox: credentials that are put into its requests, in the form of
//! OpenSandbox. No response has a value.

use std::collections::BTreeMap;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use stockade_api::{
    ChangeInjections, InjectedHeader, Injection, InjectionPlace, Injections, Problem, Sandbox,
    SecretValue,
};
use stockade_core::Code;
use stockade_core::network::{Requests, Target};

use super::request::JsonBody;
use super::target::{self, EGRESS_TOKEN, PortState};
use crate::failure::{Failure, invalid};
use crate::openapi::{Api, Security, get, post};

/// The methods that a binding without methods has.
const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];
/// All paths.
const ALL_PATHS: &str = "/*";
/// The port that a binding without ports has.
const PORT: u16 = 443;
const HTTPS: &str = "https";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CreateRequest {
    credentials: Vec<Credential>,
    bindings: Vec<Binding>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MutationRequest {
    #[serde(default)]
    expected_revision: Option<u64>,
    #[serde(default)]
    credentials: Mutations<Credential>,
    #[serde(default)]
    bindings: Mutations<Binding>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Mutations<T> {
    #[serde(default = "Vec::<T>::new")]
    add: Vec<T>,
    #[serde(default = "Vec::<T>::new")]
    replace: Vec<T>,
    #[serde(default)]
    delete: Vec<String>,
}

impl<T> Default for Mutations<T> {
    fn default() -> Self {
        Self { add: Vec::new(), replace: Vec::new(), delete: Vec::new() }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Credential {
    name: String,
    source: Source,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", tag = "type", deny_unknown_fields)]
enum Source {
    Inline { value: String },
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Binding {
    name: String,
    r#match: Match,
    auth: Auth,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Match {
    #[serde(default)]
    schemes: Option<Vec<String>>,
    #[serde(default)]
    ports: Option<Vec<u16>>,
    hosts: Vec<String>,
    #[serde(default)]
    methods: Option<Vec<String>>,
    #[serde(default)]
    paths: Option<Vec<String>>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", tag = "type", deny_unknown_fields)]
enum Auth {
    Bearer { credential: String },
    Basic { credential: String },
    ApiKey { name: String, credential: String },
    CustomHeaders { headers: Vec<Header> },
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Header {
    name: String,
    credential: String,
}

/// The paths of the interface.
pub(super) fn routes() -> Api<PortState> {
    let credential = json!({"name": "token", "source": {"type": "inline", "value": "VALUE"}});
    let binding = json!({
        "name": "api", "match": {"hosts": ["api.example.com"]},
        "auth": {"type": "bearer", "credential": "token"},
    });
    Api::new(Security::Token(EGRESS_TOKEN))
        .route(
            "/credential-vault",
            post(create)
                .body::<CreateRequest>(&json!({
                    "credentials": [credential], "bindings": [binding]
                }))
                .get(show)
                .patch(change)
                .body::<MutationRequest>(&json!({"bindings": {"delete": ["api"]}}))
                .delete(remove),
        )
        .route("/credential-vault/credentials", get(credentials))
        .route("/credential-vault/credentials/{name}", get(credential_by_name))
        .route("/credential-vault/bindings", get(bindings))
        .route("/credential-vault/bindings/{name}", get(binding_by_name))
}

type Reply = Result<Response, Failure>;

async fn create(
    State(state): State<PortState>,
    Extension(target): Extension<target::Target>,
    JsonBody(body): JsonBody<Value>,
) -> Reply {
    let CreateRequest { credentials, bindings } = parse(body)?;
    if injections(&target.sandbox).is_some() {
        let message = "the sandbox has a credential vault already";
        return Err(Problem::new(Code::Conflict, message).into());
    }
    if target.sandbox.network.is_none() {
        return Ok(without_network(&target.sandbox));
    }
    let request = ChangeInjections {
        expected_revision: Some(0),
        add_credentials: values(credentials)?,
        add_bindings: converted(bindings)?,
        ..ChangeInjections::new(target.sandbox.id.clone())
    };
    let changed = state.sandboxes.change_injections(&target.caller, request).await?;
    Ok((StatusCode::CREATED, Json(whole(&changed)?)).into_response())
}

async fn show(Extension(target): Extension<target::Target>) -> Result<Json<Value>, Failure> {
    Ok(Json(whole(&target.sandbox)?))
}

async fn change(
    State(state): State<PortState>,
    Extension(target): Extension<target::Target>,
    JsonBody(body): JsonBody<Value>,
) -> Result<Json<Value>, Failure> {
    let MutationRequest { expected_revision, credentials, bindings } = parse(body)?;
    found(&target.sandbox)?;
    let request = ChangeInjections {
        expected_revision,
        add_credentials: values(credentials.add)?,
        replace_credentials: values(credentials.replace)?,
        remove_credentials: credentials.delete,
        add_bindings: converted(bindings.add)?,
        replace_bindings: converted(bindings.replace)?,
        remove_bindings: bindings.delete,
        ..ChangeInjections::new(target.sandbox.id.clone())
    };
    let changed = state.sandboxes.change_injections(&target.caller, request).await?;
    Ok(Json(whole(&changed)?))
}

async fn remove(
    State(state): State<PortState>,
    Extension(target): Extension<target::Target>,
) -> Result<StatusCode, Failure> {
    found(&target.sandbox)?;
    let request =
        ChangeInjections { clear: true, ..ChangeInjections::new(target.sandbox.id.clone()) };
    state.sandboxes.change_injections(&target.caller, request).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn credentials(Extension(target): Extension<target::Target>) -> Result<Json<Value>, Failure> {
    let all = found(&target.sandbox)?;
    let list: Vec<_> = all.credentials.iter().map(credential).collect();
    Ok(Json(json!({"revision": all.revision, "credentials": list})))
}

async fn credential_by_name(
    Extension(target): Extension<target::Target>,
    Path(names): Path<BTreeMap<String, String>>,
) -> Result<Json<Value>, Failure> {
    let name = names.get("name").map_or("", String::as_str);
    let own = found(&target.sandbox)?.credentials.get_key_value(name);
    own.map(|own| Json(credential(own))).ok_or_else(|| unknown("credential", name))
}

async fn bindings(Extension(target): Extension<target::Target>) -> Result<Json<Value>, Failure> {
    let all = found(&target.sandbox)?;
    let list: Vec<_> = all.bindings.iter().map(|own| binding(all, own)).collect();
    Ok(Json(json!({"revision": all.revision, "bindings": list})))
}

async fn binding_by_name(
    Extension(target): Extension<target::Target>,
    Path(names): Path<BTreeMap<String, String>>,
) -> Result<Json<Value>, Failure> {
    let name = names.get("name").map_or("", String::as_str);
    let all = found(&target.sandbox)?;
    let own = all.bindings.iter().find(|own| own.name == name);
    own.map(|own| Json(binding(all, own))).ok_or_else(|| unknown("binding", name))
}

/// Parses a body. The error of the parser could contain a value.
fn parse<T: DeserializeOwned>(body: Value) -> Result<T, Failure> {
    serde_json::from_value(body)
        .map_err(|_| invalid("the request is not of the form that the documentation shows"))
}

/// Without a network policy there is nothing that requests pass.
fn without_network(sandbox: &Sandbox) -> Response {
    let message = format!("the sandbox {} was created without a network policy", sandbox.id);
    let problem = Problem::new(Code::Conflict, message)
        .remedied_by("create the sandbox with a `networkPolicy`");
    let mut response = Failure(problem).into_response();
    *response.status_mut() = StatusCode::PRECONDITION_FAILED;
    response
}

fn values(credentials: Vec<Credential>) -> Result<BTreeMap<String, SecretValue>, Failure> {
    let mut all = BTreeMap::new();
    for Credential { name, source: Source::Inline { value } } in credentials {
        if all.insert(name.clone(), SecretValue::new(value)).is_some() {
            return Err(invalid(format!("the credential {name:?} is named twice")));
        }
    }
    Ok(all)
}

fn converted(bindings: Vec<Binding>) -> Result<Vec<Injection>, Failure> {
    bindings.into_iter().map(injection).collect()
}

fn injection(binding: Binding) -> Result<Injection, Failure> {
    let Binding { name, r#match, auth } = binding;
    let Match { schemes, ports, hosts, methods, paths } = r#match;
    if schemes.iter().flatten().any(|scheme| scheme != HTTPS) {
        return Err(invalid("a credential is sent with TLS only: `schemes` is [\"https\"]"));
    }
    let host = |host: &String| -> Result<Target, Failure> {
        host.parse().map_err(|error| invalid(format!("the host {host:?} is invalid: {error}")))
    };
    let paths = paths.unwrap_or_default();
    let is_all = paths.is_empty() || paths.iter().any(|path| path == ALL_PATHS);
    let path = |path: &String| path.parse().map_err(|error: String| invalid(error));
    let requests = Requests {
        methods: methods.unwrap_or_else(|| METHODS.map(str::to_owned).into()),
        paths: match is_all {
            true => Vec::new(),
            false => paths.iter().map(path).collect::<Result<_, _>>()?,
        },
        git_fetch: false,
    };
    let header = |Header { name, credential }| InjectedHeader { name, credential };
    let place = match auth {
        Auth::Bearer { credential } => InjectionPlace::Bearer { credential },
        Auth::Basic { credential } => InjectionPlace::Basic { credential },
        Auth::ApiKey { name, credential } => InjectionPlace::ApiKey { name, credential },
        Auth::CustomHeaders { headers } => {
            InjectionPlace::CustomHeaders { headers: headers.into_iter().map(header).collect() }
        }
    };
    Ok(Injection {
        name,
        hosts: hosts.iter().map(host).collect::<Result<_, _>>()?,
        ports: ports.unwrap_or_else(|| vec![PORT]),
        requests,
        place,
    })
}

fn injections(sandbox: &Sandbox) -> Option<&Injections> {
    sandbox.network.as_ref().and_then(|network| network.injections.as_ref())
}

fn found(sandbox: &Sandbox) -> Result<&Injections, Failure> {
    injections(sandbox)
        .ok_or_else(|| Failure(Problem::new(Code::NotFound, "the sandbox has no credential vault")))
}

fn unknown(what: &str, name: &str) -> Failure {
    Failure(Problem::new(Code::NotFound, format!("there is no {what} {name:?}")))
}

fn whole(sandbox: &Sandbox) -> Result<Value, Failure> {
    let all = found(sandbox)?;
    Ok(json!({
        "revision": all.revision,
        "credentials": all.credentials.iter().map(credential).collect::<Vec<_>>(),
        "bindings": all.bindings.iter().map(|own| binding(all, own)).collect::<Vec<_>>(),
    }))
}

fn credential((name, revision): (&String, &u64)) -> Value {
    json!({"name": name, "sourceType": "inline", "revision": revision})
}

fn binding(all: &Injections, own: &Injection) -> Value {
    let paths: Vec<_> = own.requests.paths.iter().map(ToString::to_string).collect();
    let (kind, name) = match &own.place {
        InjectionPlace::Bearer { .. } => ("bearer", None),
        InjectionPlace::Basic { .. } => ("basic", None),
        InjectionPlace::ApiKey { name, .. } => ("apiKey", Some(name)),
        InjectionPlace::CustomHeaders { .. } => ("customHeaders", None),
        InjectionPlace::Query { name, .. } => ("query", Some(name)),
    };
    let mut auth = json!({"type": kind});
    if let (Some(name), Some(auth)) = (name, auth.as_object_mut()) {
        auth.insert("name".to_owned(), json!(name));
    }
    json!({
        "name": own.name,
        "revision": all.binding_revisions.get(&own.name),
        "match": {
            "schemes": [HTTPS],
            "ports": own.ports,
            "hosts": own.hosts.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "methods": own.requests.methods,
            "paths": if paths.is_empty() { vec![ALL_PATHS.to_owned()] } else { paths },
        },
        "auth": auth,
    })
}
