//! Secrets of E2B: `/secrets`, which are those of the caller in the vault, and the headers of
//! `network.rules` that name one as `${e2b.secrets.NAME}`. Their values are put into requests by the egress
//! process, and come from the vault each time that it is started.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stockade_api::{
    CreateSecret, Empty, InjectedHeader, Injection, InjectionPlace, Injections, Network,
    RemoveSecret, RotateSecret, SecretMapping, SecretReference, SecretValue, StoredSecret,
    credential_name,
};
use stockade_core::network::{AllowedHost, Requests, Target};
use stockade_core::{Code, Problem};

use super::App;
use super::failure::Refused;
use super::request::{JsonBody, NEXT_TOKEN, Owner, Query, page};
use crate::failure::{invalid, unsupported};

/// The beginnings of ids: of clients, and ours.
const IDS: [&str; 2] = ["sec_", "sec-"];
/// The type of a secret with one field, and that field.
const TEXT: (&str, &str) = ("string", "value");
/// The port of requests over TLS.
const PORT: u16 = 443;

/// A secret, without its value.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Secret {
    #[serde(rename = "secretID")]
    id: String,
    name: String,
    current_version: u64,
    metadata: BTreeMap<String, String>,
    created_at: String,
    updated_at: String,
}

impl Secret {
    fn of(stored: &StoredSecret) -> Self {
        Self {
            id: stored.id.replacen(IDS[1], IDS[0], 1),
            name: stored.name.clone(),
            current_version: stored.version,
            metadata: BTreeMap::new(),
            created_at: stored.created_at.to_string(),
            updated_at: stored.updated_at.to_string(),
        }
    }
}

/// The request for a secret.
#[derive(Deserialize, JsonSchema)]
pub(super) struct NewSecret {
    name: String,
    value: String,
    #[serde(default)]
    metadata: Option<BTreeMap<String, String>>,
}

/// The request for another value.
#[derive(Deserialize, JsonSchema)]
pub(super) struct NewValue {
    value: String,
    #[serde(default)]
    metadata: Option<BTreeMap<String, String>>,
}

fn refuse_metadata(metadata: Option<&BTreeMap<String, String>>) -> Result<(), Refused> {
    match metadata.is_some_and(|metadata| !metadata.is_empty()) {
        true => Err(unsupported("`metadata` of a secret").into()),
        false => Ok(()),
    }
}

/// The values of a secret with one field.
fn values(value: String) -> BTreeMap<String, SecretValue> {
    BTreeMap::from([(TEXT.1.to_owned(), SecretValue::new(value))])
}

/// The name or id of our own for that of a client.
fn own_name(name: &str) -> String {
    match name.strip_prefix(IDS[0]) {
        Some(rest) => format!("{}{rest}", IDS[1]),
        None => name.to_lowercase(),
    }
}

/// The secrets of the caller that clients of E2B know: those with one text.
async fn all(app: &App, owner: &crate::auth::Principal) -> Result<Vec<StoredSecret>, Refused> {
    let mut caller = owner.caller.clone();
    caller.idempotency_key = None;
    let all = app.sandboxes.secrets(&caller, Empty {}).await?;
    Ok(all.secrets.into_iter().filter(|secret| secret.kind == TEXT.0).collect())
}

/// `GET /secrets`.
pub(super) async fn list(
    State(app): State<App>,
    Owner(principal): Owner,
    RawQuery(query): RawQuery,
) -> Result<(HeaderMap, Json<Vec<Secret>>), Refused> {
    let query = Query::parse(query.as_deref());
    let all = all(&app, &principal).await?;
    let (found, next) = page(all, |secret: &StoredSecret| secret.id.clone(), &query)?;
    let mut headers = HeaderMap::new();
    if let Some(next) = next.and_then(|next| next.parse().ok()) {
        headers.insert(NEXT_TOKEN, next);
    }
    Ok((headers, Json(found.iter().map(Secret::of).collect())))
}

/// `POST /secrets`.
pub(super) async fn create(
    State(app): State<App>,
    Owner(principal): Owner,
    JsonBody(NewSecret { name, value, metadata }): JsonBody<NewSecret>,
) -> Result<(StatusCode, Json<Secret>), Refused> {
    refuse_metadata(metadata.as_ref())?;
    let name = name.to_lowercase();
    if IDS.iter().any(|id| name.starts_with(id)) {
        return Err(invalid("the name of a secret must not begin as an id does").into());
    }
    let request = CreateSecret { name, kind: TEXT.0.to_owned(), values: values(value) };
    let created = app.sandboxes.create_secret(&principal.caller, request).await?;
    Ok((StatusCode::CREATED, Json(Secret::of(&created))))
}

/// `GET /secrets/{secret}`.
pub(super) async fn show(
    State(app): State<App>,
    Owner(principal): Owner,
    Path(secret): Path<String>,
) -> Result<Json<Secret>, Refused> {
    let name = own_name(&secret);
    let all = all(&app, &principal).await?;
    let found = all.iter().find(|own| own.id == name || own.name == name);
    let unknown = || Problem::new(Code::SecretNotFound, "there is no such secret");
    Ok(Json(Secret::of(found.ok_or_else(unknown)?)))
}

/// `POST /secrets/{secret}`.
pub(super) async fn update(
    State(app): State<App>,
    Owner(principal): Owner,
    Path(secret): Path<String>,
    JsonBody(NewValue { value, metadata }): JsonBody<NewValue>,
) -> Result<Json<Secret>, Refused> {
    refuse_metadata(metadata.as_ref())?;
    let request = RotateSecret { id: own_name(&secret), values: values(value) };
    let rotated = app.sandboxes.rotate_secret(&principal.caller, request).await?;
    Ok(Json(Secret::of(&rotated)))
}

/// `DELETE /secrets/{secret}`.
pub(super) async fn remove(
    State(app): State<App>,
    Owner(principal): Owner,
    Path(secret): Path<String>,
) -> Result<StatusCode, Refused> {
    let request = RemoveSecret { id: own_name(&secret) };
    app.sandboxes.remove_secret(&principal.caller, request).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A rule of `network.rules`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    #[serde(default)]
    transform: Option<Transform>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Transform {
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

/// Adds the headers of `network.rules` to a network. Each must be a secret, or a secret after `Bearer` or
/// `Basic` in `Authorization`.
pub(super) fn add_rules(
    network: &mut Network,
    rules: BTreeMap<String, Value>,
) -> Result<(), Refused> {
    let mut injections = Injections { revision: 1, ..Injections::default() };
    for (host, rules) in rules {
        let rules: Vec<Rule> = serde_json::from_value(rules).map_err(|_| {
            unsupported(format_args!("a rule for {host:?} without `transform.headers`,"))
        })?;
        let target: Target =
            host.parse().map_err(|_| invalid(format!("the host {host:?} is invalid")))?;
        if matches!(target, Target::Block(_) | Target::Any) {
            return Err(unsupported(format_args!("a rule for {host:?}, which is no name,")).into());
        }
        let transforms = rules.into_iter().filter_map(|rule| rule.transform);
        let headers: Vec<_> = transforms.flat_map(|transform| transform.headers).collect();
        if headers.is_empty() {
            let what = format_args!("a rule for {host:?} without `transform.headers`,");
            return Err(unsupported(what).into());
        }
        for (name, value) in headers {
            let (place, secret) = place(&name, &value)?;
            injections.credentials.insert(secret.clone(), 1);
            let binding = format!("rule-{}", injections.bindings.len());
            injections.binding_revisions.insert(binding.clone(), 1);
            injections.bindings.push(Injection {
                name: binding,
                hosts: vec![target.clone()],
                ports: vec![PORT],
                requests: Requests::default(),
                place,
            });
            let env = credential_name(&secret);
            if !network.stored_secrets.iter().any(|own| own.env == env) {
                let secret = SecretReference::new(secret);
                network.stored_secrets.push(SecretMapping { env, secret });
            }
        }
        let allowed: AllowedHost = host
            .parse()
            .map_err(|error| invalid(format!("the host {host:?} is invalid: {error}")))?;
        if !network.allow.contains(&allowed) {
            network.allow.push(allowed);
        }
    }
    if !injections.bindings.is_empty() {
        network.injections = Some(injections);
    }
    Ok(())
}

/// Where a header has which secret.
fn place(name: &str, value: &str) -> Result<(InjectionPlace, String), Refused> {
    let other = || {
        unsupported(format_args!(
            "the header {name:?} whose value is not `${{e2b.secrets.NAME}}`, or that after `Bearer` or `Basic`,"
        ))
    };
    let (prefix, rest) = value.split_once("${e2b.secrets.").ok_or_else(other)?;
    let secret = rest.strip_suffix('}').filter(|secret| !secret.contains(['{', '}']));
    let secret = own_name(secret.ok_or_else(other)?);
    let credential = secret.clone();
    let is_authorization = name.eq_ignore_ascii_case("authorization");
    let place = match prefix {
        "" => InjectionPlace::CustomHeaders {
            headers: vec![InjectedHeader { name: name.to_owned(), credential }],
        },
        "Bearer " if is_authorization => InjectionPlace::Bearer { credential },
        "Basic " if is_authorization => InjectionPlace::Basic { credential },
        _ => return Err(other().into()),
    };
    Ok((place, secret))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn added(rules: Value) -> Result<Network, Refused> {
        let mut network = Network::default();
        add_rules(&mut network, serde_json::from_value(rules).unwrap())?;
        Ok(network)
    }

    #[test]
    fn a_header_names_a_secret() {
        let rules = json!({"api.example.com": [{"transform": {"headers": {
            "Authorization": "Bearer ${e2b.secrets.Token}", "X-Key": "${e2b.secrets.key}",
        }}}]});
        let network = added(rules).unwrap();
        network.check_secrets().unwrap();
        let names: Vec<_> =
            network.stored_secrets.iter().map(|own| own.secret.reference.as_str()).collect();
        assert_eq!(names, ["token", "key"]);
        let bindings = network.bindings(|_| String::new()).unwrap();
        assert_eq!(bindings.len(), 2);
        assert!(network.injections.is_some());
    }

    #[test]
    fn another_header_is_refused() {
        for headers in [
            json!({"X-Key": "plain"}),
            json!({"X-Key": "Bearer ${e2b.secrets.key}"}),
            json!({"X-Key": "${e2b.secrets.key} after"}),
            json!({"X-Key": "${e2b.secrets.a}${e2b.secrets.b}"}),
            json!({"X-Key": "${e2b.iam.tokens.a}"}),
        ] {
            let rules = json!({"api.example.com": [{"transform": {"headers": headers}}]});
            assert!(added(rules).is_err(), "{headers}");
        }
        let headers = json!({"X-Key": "${e2b.secrets.key}"});
        for host in ["10.0.0.0/8", "not a host", "*"] {
            let rules = json!({host: [{"transform": {"headers": headers}}]});
            assert!(added(rules).is_err(), "{host}");
        }
        assert!(added(json!({"api.example.com": [{"other": 1}]})).is_err());
    }
}
