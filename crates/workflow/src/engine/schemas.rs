//! Validates values with the JSON Schemas of workflows.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use jsonschema::Validator;
use serde_json::Value;

use crate::sync::lock;

/// How many errors of one value are listed in a message.
const MAX_ERRORS: usize = 5;

/// Compiled schemas.
#[derive(Debug, Default)]
pub(crate) struct Schemas {
    ready: Mutex<HashMap<String, Result<Arc<Validator>, String>>>,
}

impl Schemas {
    /// Validates a value; the error is the reason why it is invalid.
    pub(crate) fn check(&self, schema: &Value, value: &Value) -> Result<(), String> {
        let validator = self.validator(schema)?;
        if validator.is_valid(value) {
            return Ok(());
        }
        let mut messages: Vec<String> = Vec::new();
        let mut errors = validator.iter_errors(value);
        for error in errors.by_ref().take(MAX_ERRORS) {
            let path = error.instance_path().to_string();
            let path = if path.is_empty() { "the value".to_owned() } else { path };
            messages.push(format!("{path}: {error}"));
        }
        match errors.count() {
            0 => {}
            more => messages.push(format!("and {more} more")),
        }
        Err(messages.join("; "))
    }

    /// Checks a schema.
    pub(crate) fn check_schema(&self, schema: &Value) -> Result<(), String> {
        self.validator(schema).map(drop)
    }

    fn validator(&self, schema: &Value) -> Result<Arc<Validator>, String> {
        let text = schema.to_string();
        let mut ready = lock(&self.ready);
        let validator = ready.entry(text).or_insert_with(|| {
            let validator = jsonschema::validator_for(schema);
            validator
                .map(Arc::new)
                .map_err(|error| format!("its schema is not a valid JSON Schema: {error}"))
        });
        validator.clone()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_what_their_schemas_say() {
        let schemas = Schemas::default();
        let schema =
            json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}});
        assert_eq!(schemas.check(&schema, &json!({"a": "x"})), Ok(()));
        let message = schemas.check(&schema, &json!({"a": 1})).unwrap_err();
        assert!(message.starts_with("/a: ") && message.contains("string"), "{message}");
        assert!(schemas.check(&schema, &json!({})).unwrap_err().starts_with("the value: "));
        assert!(
            schemas
                .check(&json!({"type": 7}), &json!({}))
                .unwrap_err()
                .contains("not a valid JSON Schema")
        );
        // Remote schemas are not fetched.
        assert!(schemas.check_schema(&json!({"$ref": "https://example.com/x.json"})).is_err());
    }
}
