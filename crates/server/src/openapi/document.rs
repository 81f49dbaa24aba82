//! The OpenAPI document.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Operation, Security, Site};

/// The document with these operations.
pub(crate) fn document(operations: &[Operation]) -> Value {
    let mut schemas = BTreeMap::new();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for operation in operations {
        let described = describe(operation, &mut schemas);
        paths.entry(&operation.path).or_default().insert(operation.method.to_owned(), described);
    }
    schemas.insert("Problem".to_owned(), problem());
    let token = |header: &str| json!({ "type": "apiKey", "in": "header", "name": header });
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Stockade",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The routes of `stockade serve`: the dialects of OpenSandbox and of E2B, that of Stockade's own clients below `/stockade`, MCP, and what browsers use.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "http://127.0.0.1:8080" }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "apiKey": token("OPEN-SANDBOX-API-KEY"),
                "adminKey": token("OPEN-SANDBOX-API-KEY"),
                "X-EXECD-ACCESS-TOKEN": token("X-EXECD-ACCESS-TOKEN"),
                "OPENSANDBOX-EGRESS-AUTH": token("OPENSANDBOX-EGRESS-AUTH"),
                "OpenSandbox-Secure-Access": token("OpenSandbox-Secure-Access"),
                "X-Access-Token": token("X-Access-Token"),
                "E2B-Traffic-Access-Token": token("E2B-Traffic-Access-Token"),
                "volumeToken": { "type": "http", "scheme": "bearer" },
                "session": { "type": "apiKey", "in": "cookie", "name": "__Host-stockade-session" },
                "code": { "type": "apiKey", "in": "query", "name": "code" },
            },
        },
    })
}

fn describe(operation: &Operation, schemas: &mut BTreeMap<String, Value>) -> Value {
    let Operation { path, method, security, site, description } = operation;
    let in_path = path.split('{').skip(1).filter_map(|part| part.split_once('}'));
    let mut parameters: Vec<_> = in_path
        .map(|(name, _)| {
            let schema = match name {
                "port" => json!({ "type": "integer", "minimum": 1, "maximum": 65535 }),
                _ => json!({ "type": "string" }),
            };
            json!({ "name": name, "in": "path", "required": true, "schema": schema })
        })
        .collect();
    parameters.extend(description.query.iter().map(|(name, is_required)| {
        json!({ "name": name, "in": "query", "required": is_required, "schema": { "type": "string" } })
    }));
    let mut described = json!({
        "operationId": operation_id(path, method),
        "x-function": description.name,
        "security": requirements(*security),
        "responses": responses(*security, description.is_unavailable),
    });
    if *site == Site::Port {
        described["servers"] = port_sites();
    }
    if !parameters.is_empty() {
        described["parameters"] = parameters.into();
    }
    if let Some(body) = &description.body {
        let mut body = body.clone();
        move_definitions(&mut body, schemas);
        let mut content = json!({ "schema": body });
        if let Some(example) = &description.example {
            content["example"] = example.clone();
        }
        described["requestBody"] =
            json!({ "required": true, "content": { "application/json": content } });
    }
    described
}

/// The host names of ports.
fn port_sites() -> Value {
    json!([{
        "url": "http://{name}.localhost:8080",
        "description": "The host name of a port: PORT-ID, or ID for the default port of the sandbox.",
        "variables": { "name": { "default": "8000-ID" } },
    }])
}

/// A unique name, from the method and the path.
fn operation_id(path: &str, method: &str) -> String {
    let parts = path.split(|character: char| !character.is_ascii_alphanumeric());
    let parts = parts.filter(|part| !part.is_empty());
    let trailing = if path.len() > 1 && path.ends_with('/') { "_slash" } else { "" };
    parts.fold(method.to_owned(), |name, part| format!("{name}_{part}")) + trailing
}

fn requirements(security: Security) -> Value {
    match security {
        Security::None => json!([]),
        Security::Key => json!([{ "apiKey": [] }]),
        Security::Admin => json!([{ "adminKey": [] }]),
        Security::Token(header) => json!([{ header: [] }]),
        Security::Volume => json!([{ "volumeToken": [] }]),
        Security::Session => json!([{ "session": [] }, { "OpenSandbox-Secure-Access": [] }]),
        Security::Code => json!([{ "code": [] }]),
    }
}

fn responses(security: Security, is_unavailable: bool) -> Value {
    let problem = |text: &str| {
        json!({
            "description": text,
            "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Problem" } } },
        })
    };
    let mut responses = Map::new();
    if is_unavailable {
        responses.insert("501".to_owned(), problem("It is not available."));
    } else {
        responses.insert("2XX".to_owned(), json!({ "description": "It was done." }));
    }
    if security != Security::None {
        responses.insert("401".to_owned(), problem("The request is not authenticated."));
        responses.insert("429".to_owned(), problem("The caller has reached a limit."));
    }
    responses.insert("4XX".to_owned(), problem("It was refused, and nothing was done."));
    responses.insert("5XX".to_owned(), problem("It failed, or is not available."));
    responses.into()
}

fn problem() -> Value {
    json!({
        "type": "object",
        "required": ["code", "message"],
        "properties": {
            "code": { "type": "string" },
            "message": { "type": "string" },
            "remediation": { "type": ["string", "null"] },
            "retryable": { "type": "boolean" },
        },
    })
}

/// Moves the definitions of a schema to those of the document.
fn move_definitions(schema: &mut Value, schemas: &mut BTreeMap<String, Value>) {
    if let Some(object) = schema.as_object_mut() {
        object.remove("$schema");
        if let Some(Value::Object(definitions)) = object.remove("$defs") {
            for (name, mut definition) in definitions {
                rename_references(&mut definition, "");
                schemas.insert(name, definition);
            }
        }
    }
    rename_references(schema, "");
}

/// Makes references to definitions of a schema references to those of the document, whose names have this
/// prefix.
pub(super) fn rename_references(schema: &mut Value, prefix: &str) {
    match schema {
        Value::Object(object) => {
            for (name, value) in object {
                match value {
                    Value::String(text) if name == "$ref" => {
                        *text = text.replace("#/$defs/", &format!("#/components/schemas/{prefix}"));
                    }
                    value => rename_references(value, prefix),
                }
            }
        }
        Value::Array(items) => {
            items.iter_mut().for_each(|item| rename_references(item, prefix));
        }
        _ => {}
    }
}
