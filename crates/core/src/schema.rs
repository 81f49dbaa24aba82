//! JSON schemas of types whose form in JSON is not the derived one.

use std::borrow::Cow;

#[doc(hidden)]
pub use schemars;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::{Bytes, Time};

/// The schema of an enum that [`names!`](crate::names!) defines: its names with their descriptions.
pub fn names(documentation: &str, values: &[(&str, &str)]) -> Schema {
    let values: Vec<_> = values
        .iter()
        .map(|(name, description)| {
            json_schema!({ "type": "string", "const": name, "description": description.trim() })
        })
        .collect();
    json_schema!({ "description": documentation.trim(), "oneOf": values })
}

impl JsonSchema for Bytes {
    fn schema_name() -> Cow<'static, str> {
        "Bytes".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Bytes that are mostly text: a string if they are UTF-8, else an object.",
            "anyOf": [
                { "type": "string" },
                {
                    "type": "object",
                    "properties": { "base64": { "type": "string", "contentEncoding": "base64" } },
                    "required": ["base64"],
                    "additionalProperties": false,
                },
            ],
        })
    }
}

impl JsonSchema for Time {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}
