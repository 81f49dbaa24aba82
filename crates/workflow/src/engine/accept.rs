//! The one transition from a raw answer to the row of a task: the author's schema decides, for the answers
//! of all elements.

use serde_json::Value;

use super::schemas::Schemas;
use super::task_error::TaskError;
use super::user_code::UserCode;
use crate::graph::{Task, Work};

/// The row of a raw answer that no code of the user has seen yet.
///
/// # Errors
/// `INVALID_OUTPUT` for an answer that the schema refuses.
pub(crate) async fn accept(
    schemas: &Schemas,
    user_code: &UserCode,
    run: &str,
    task: &Task,
    value: Value,
) -> Result<Value, TaskError> {
    let Some(parse) = task.output.as_ref().and_then(|output| output.parse) else {
        check(schemas, task, &value)?;
        return Ok(value);
    };
    let accepted = user_code.accept(run, parse, value).await;
    accepted.map_err(|error| {
        let error = TaskError::from(error);
        let message = if error.code == "INVALID_OUTPUT" {
            refused(task, &error.message)
        } else {
            error.message.clone()
        };
        TaskError { message, ..error }
    })
}

/// Checks a row by its JSON Schema, unless the author's schema has made it.
///
/// # Errors
/// `INVALID_OUTPUT` for a row that is not valid.
pub(crate) fn check(schemas: &Schemas, task: &Task, value: &Value) -> Result<(), TaskError> {
    let Some(output) = task.output.as_ref().filter(|output| output.parse.is_none()) else {
        return Ok(());
    };
    let Some(schema) = &output.schema else { return Ok(()) };
    let Err(why) = schemas.check(schema, value) else { return Ok(()) };
    let id = &task.id;
    let message = if value.is_null() && matches!(task.work, Work::Compute { .. }) {
        format!("task \"{id}\" returned nothing: a function with braces needs `return`")
    } else {
        refused(task, &why)
    };
    Err(TaskError::new("INVALID_OUTPUT", message))
}

fn refused(task: &Task, why: &str) -> String {
    format!("the output of task \"{}\" does not match its schema: {why}", task.id)
}

/// What an agent's answer must be, as the end of its prompt: its schema, and why the last answer was
/// refused.
pub(crate) fn demand(task: &Task, last_error: Option<&Value>) -> String {
    let schema = task.output.as_ref().and_then(|output| output.schema.as_ref());
    let mut text = String::new();
    if let Some(schema) = schema.filter(|schema| says_something(schema)) {
        text.push_str(&format!(
            "\n\nEnd the answer with JSON that is valid by this JSON Schema:\n{schema}"
        ));
    }
    let refused = last_error.filter(|error| error["code"] == "INVALID_OUTPUT");
    if let Some(why) = refused.and_then(|error| error["message"].as_str()) {
        text.push_str(&format!("\n\nThe last answer was refused: {why}"));
    }
    text
}

/// Whether a schema says more than that the answer is an object.
fn says_something(schema: &Value) -> bool {
    let is_plain = |name: &String| {
        matches!(name.as_str(), "$schema" | "type" | "additionalProperties" | "$id" | "title")
    };
    schema.as_object().is_some_and(|schema| schema.keys().any(|name| !is_plain(name)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::graph::Function;

    #[test]
    fn an_agent_is_asked_for_what_its_schema_says() {
        let task = |schema: Value| Task::compute("t", Function(1)).into_table("t", Some(schema));
        assert_eq!(demand(&task(json!({ "type": "object" })), None), "");
        let schema = json!({ "type": "object", "properties": { "steps": { "type": "number" } } });
        assert!(demand(&task(schema.clone()), None).contains("\"steps\""));
        let error = json!({ "code": "INVALID_OUTPUT", "message": "/steps: missing" });
        assert!(demand(&task(schema.clone()), Some(&error)).ends_with("refused: /steps: missing"));
        let other = json!({ "code": "TASK_FAILED", "message": "no" });
        assert_eq!(demand(&task(schema.clone()), Some(&other)), demand(&task(schema), None));
    }
}
