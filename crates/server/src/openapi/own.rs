//! Stockade's own dialect in the OpenAPI document: each operation has a path, and the schemas of its
//! request and response are those of the types that travel.

use serde_json::{Map, Value, json};
use stockade_api::schema::{OperationSchema, RequestPlace, ResponseForm, Schemas, schemas};
use stockade_api::wire::{
    CALL, REQUEST_HEADER, RESPONSE_HEADER, TCP_PREFIX, VERSION, VERSION_HEADER,
};

use super::document::rename_references;

/// What precedes the names of the schemas, since other dialects have other types with the same names.
const PREFIX: &str = "stockade.";

/// Describes the operations on sandboxes. Those on workflow runs stay a path with a parameter.
pub(crate) fn describe_operations(document: &mut Value) {
    let Schemas { operations, definitions } = schemas();
    for operation in &operations {
        let path = format!("{TCP_PREFIX}{}", operation.path);
        let general = format!("{TCP_PREFIX}{CALL}{{operation}}");
        let paths = &document["paths"];
        let route = if paths[&path].is_object() { &paths[&path] } else { &paths[general] };
        let mut described = route["post"].clone();
        describe(operation, &mut described);
        document["paths"][path]["post"] = described;
    }
    for (name, mut definition) in definitions {
        rename_references(&mut definition, PREFIX);
        document["components"]["schemas"][format!("{PREFIX}{name}")] = definition;
    }
}

fn describe(operation: &OperationSchema, described: &mut Value) {
    let OperationSchema { name, path: _, description, request, place, response } = operation;
    let schema = |schema: &schemars::Schema| {
        let mut schema = schema.clone().to_value();
        rename_references(&mut schema, PREFIX);
        schema
    };
    described["operationId"] = format!("stockade_{name}").into();
    described["description"] = (*description).into();
    described["x-operation"] = (*name).into();
    let mut parameters = vec![json!({
        "name": VERSION_HEADER,
        "in": "header",
        "required": true,
        "schema": { "type": "string", "const": VERSION },
    })];
    match place {
        RequestPlace::Body => {
            described["requestBody"] =
                json!({ "content": { "application/json": { "schema": schema(request) } } });
        }
        RequestPlace::Header => {
            parameters.push(json!({
                "name": REQUEST_HEADER,
                "in": "header",
                "required": true,
                "description": "The request: its JSON in base64.",
                "schema": {
                    "type": "string",
                    "contentEncoding": "base64",
                    "contentMediaType": "application/json",
                    "contentSchema": schema(request),
                },
            }));
            described["requestBody"] = json!({ "required": true, "content": bytes() });
        }
    }
    described["parameters"] = parameters.into();
    let (status, answer) = match response {
        ResponseForm::Json(answer) => {
            ("200", json!({ "content": { "application/json": { "schema": schema(answer) } } }))
        }
        ResponseForm::Lines(item) => (
            "200",
            json!({ "content": { "application/x-ndjson": { "itemSchema": schema(item) } } }),
        ),
        ResponseForm::Bytes => ("200", json!({ "content": bytes() })),
        ResponseForm::BytesAfter(head) => (
            "200",
            json!({ "content": bytes(), "headers": { RESPONSE_HEADER: { "schema": {
                "type": "string",
                "contentEncoding": "base64",
                "contentMediaType": "application/json",
                "contentSchema": schema(head),
            } } } }),
        ),
        ResponseForm::Connection => ("101", json!({})),
    };
    set_responses(described, status, answer);
}

/// Replaces the response of success, and says what the body of the others is.
fn set_responses(described: &mut Value, status: &str, mut answer: Value) {
    answer["description"] = match status {
        "101" => "The connection belongs to the operation from here on.",
        _ => "It was done.",
    }
    .into();
    let failure = json!({ "application/json": { "schema": {
        "type": "object",
        "required": ["error"],
        "properties": { "error": { "$ref": format!("#/components/schemas/{PREFIX}Problem") } },
    } } });
    let mut responses = Map::new();
    responses.insert(status.to_owned(), answer);
    for (status, response) in described["responses"].as_object().into_iter().flatten() {
        if status != "2XX" {
            let mut response = response.clone();
            response["content"] = failure.clone();
            responses.insert(status.clone(), response);
        }
    }
    described["responses"] = responses.into();
}

fn bytes() -> Value {
    json!({ "application/octet-stream": {} })
}
