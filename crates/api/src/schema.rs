//! The operations with the JSON schemas of what is sent, for the OpenAPI document. The schemas follow from
//! the same types that travel.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value};
use stockade_core::Problem;

use crate::sandboxes::{LONG_DESCRIPTIONS, plain_schemas};
use crate::wire::{
    ATTACH, CALL, CONNECT, DIFF, EVENTS, HTTP_STREAM, OUTPUT, READ, RECEIVE, SEND, SESSION,
    WEB_SOCKET, WRITE,
};
use crate::{
    AttachCommand, Connect, DiffBundle, HttpHead, HttpRequest, OpenSession, OutputItem, PathDiff,
    ReadEvents, ReadFile, ReadOutput, ReceiveFiles, RecordedEvent, SendFiles, SentFiles,
    SessionEvent, SessionInput, WebSocket, WriteFile, WriteResult,
};

/// Where the JSON of a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestPlace {
    /// It is the body.
    Body,
    /// It is in [`REQUEST_HEADER`](crate::wire::REQUEST_HEADER), in base64, and the body is bytes.
    Header,
}

/// The form of a response.
#[derive(Debug, Clone, PartialEq)]
pub enum ResponseForm {
    /// JSON.
    Json(Schema),
    /// Lines of JSON.
    Lines(Schema),
    /// Bytes.
    Bytes,
    /// Bytes, and JSON in [`RESPONSE_HEADER`](crate::wire::RESPONSE_HEADER), in base64.
    BytesAfter(Schema),
    /// The connection itself.
    Connection,
}

/// An operation.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationSchema {
    /// Its name.
    pub name: &'static str,
    /// Its path.
    pub path: String,
    /// What it does.
    pub description: &'static str,
    /// Its request.
    pub request: Schema,
    /// Where that is.
    pub place: RequestPlace,
    /// Its response.
    pub response: ResponseForm,
}

/// All operations, and the schemas that those of the operations refer to as `#/$defs/NAME`.
#[derive(Debug, Clone, PartialEq)]
pub struct Schemas {
    /// The operations.
    pub operations: Vec<OperationSchema>,
    /// The schemas by their names.
    pub definitions: Map<String, Value>,
}

/// Describes all operations on sandboxes.
pub fn schemas() -> Schemas {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let mut operations: Vec<_> = plain_schemas(&mut generator)
        .into_iter()
        .map(|plain| OperationSchema {
            name: plain.name,
            path: format!("{CALL}{}", plain.name),
            description: plain.description,
            request: plain.request,
            place: RequestPlace::Body,
            response: ResponseForm::Json(plain.response),
        })
        .collect();
    operations.extend(long_schemas(&mut generator));
    // The frames of a session, and the failure of any operation.
    generator.subschema_for::<SessionEvent>();
    generator.subschema_for::<SessionInput>();
    generator.subschema_for::<Problem>();
    Schemas { operations, definitions: generator.take_definitions(true) }
}

fn long_schemas(generator: &mut SchemaGenerator) -> Vec<OperationSchema> {
    use RequestPlace::{Body, Header};
    use ResponseForm::{Bytes, BytesAfter, Connection, Json, Lines};

    let output = Lines(generator.subschema_for::<OutputItem>());
    let events = Lines(generator.subschema_for::<RecordedEvent>());
    let diff = Lines(generator.subschema_for::<PathDiff>());
    let written = Json(generator.subschema_for::<WriteResult>());
    let sent = Json(generator.subschema_for::<SentFiles>());
    let head = BytesAfter(generator.subschema_for::<HttpHead>());
    vec![
        long::<OpenSession>(generator, "open_session", SESSION, Body, Connection),
        long::<AttachCommand>(generator, "attach_command", ATTACH, Body, Connection),
        long::<ReadOutput>(generator, "read_output", OUTPUT, Body, output),
        long::<ReadEvents>(generator, "read_events", EVENTS, Body, events),
        long::<ReadFile>(generator, "read_file", READ, Body, Bytes),
        long::<WriteFile>(generator, "write_file", WRITE, Header, written),
        long::<SendFiles>(generator, "send_files", SEND, Header, sent),
        long::<ReceiveFiles>(generator, "receive_files", RECEIVE, Body, Bytes),
        long::<Connect>(generator, "connect", CONNECT, Body, Connection),
        long::<HttpRequest>(generator, "http_stream", HTTP_STREAM, Body, head),
        long::<WebSocket>(generator, "web_socket", WEB_SOCKET, Body, Connection),
        long::<DiffBundle>(generator, "diff_bundle", DIFF, Body, diff),
    ]
}

fn long<Request: JsonSchema>(
    generator: &mut SchemaGenerator,
    name: &'static str,
    path: &str,
    place: RequestPlace,
    response: ResponseForm,
) -> OperationSchema {
    let described = LONG_DESCRIPTIONS.iter().find(|(other, _)| *other == name);
    OperationSchema {
        name,
        path: path.to_owned(),
        description: described.map_or("", |(_, description)| description.trim()),
        request: generator.subschema_for::<Request>(),
        place,
        response,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{CreateSandbox, Execute, LONG, PLAIN};

    #[test]
    fn every_operation_is_described() {
        let Schemas { operations, definitions } = schemas();
        let names: Vec<_> = operations.iter().map(|operation| operation.name).collect();
        let mut expected = PLAIN.to_vec();
        expected.extend(LONG);
        assert_eq!(names.len(), expected.len());
        for name in expected {
            assert!(names.contains(&name), "{name}");
        }
        for operation in &operations {
            assert!(!operation.description.is_empty(), "{}", operation.name);
        }
        // Two types with one name would get a number.
        let numbered =
            definitions.keys().find(|name| name.ends_with(|last: char| last.is_ascii_digit()));
        assert_eq!(numbered, None);
    }

    #[test]
    fn a_schema_says_what_is_accepted() {
        let Schemas { definitions, .. } = schemas();
        let create = &definitions["CreateSandbox"];
        let request = serde_json::to_value(CreateSandbox::default()).unwrap();
        for name in request.as_object().unwrap().keys() {
            assert!(create["properties"][name].is_object(), "{name}");
        }
        assert_eq!(create["additionalProperties"], json!(false));
        let execute = &definitions["Execute"];
        assert_eq!(execute["required"], json!(["sandboxId", "command"]));
        let parsed = serde_json::from_value::<Execute>(json!({ "sandboxId": "a", "command": "b" }));
        assert_eq!(parsed.unwrap().command, crate::CommandLine::Shell("b".to_owned()));
    }
}
