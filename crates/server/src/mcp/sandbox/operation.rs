//! What all tools on sandboxes share: schemas from the types of arguments and results, refusal of unknown
//! arguments, and errors as text.

use std::any::Any;
use std::sync::Arc;

use async_trait::async_trait;
use rmcp::handler::server::common::schema_for_type;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use stockade_api::{Problem, Sandbox, Sandboxes};
use stockade_core::printable::escaped;
use stockade_core::{Code, SandboxId};

use super::Grants;
use super::place::Place;
use super::workspace::WorkspaceSandbox;
use crate::mcp::resources::escape;
use crate::mcp::untrusted::fenced;
use crate::mcp::{Call, Description, Effects, Interrupt, Tool, ToolResult};

/// The argument that names a sandbox.
const SANDBOX: &str = "sandbox";
/// The longest text of an error.
const ERROR_BYTES: usize = 4 << 10;

/// What all tools of a server use.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) sandboxes: Arc<dyn Sandboxes>,
    pub(super) grants: Grants,
    pub(super) scope: Scope,
}

/// The sandboxes of the tools.
#[derive(Debug)]
pub(super) enum Scope {
    /// Those of the caller; an argument names one.
    Named,
    /// The one of a workspace.
    Workspace(Arc<WorkspaceSandbox>),
}

/// The name of a tool, and what its calls do.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) text: &'static str,
    pub(super) effects: Effects,
    /// Whether it concerns one sandbox.
    pub(super) on_sandbox: bool,
    pub(super) is_long: bool,
}

/// A result: the value, and the text where that is not the value as JSON.
#[derive(Debug)]
pub(super) struct Reply<T> {
    pub(super) value: T,
    pub(super) text: Option<String>,
    pub(super) links: Vec<(String, String, &'static str)>,
}

impl<T> Reply<T> {
    pub(super) const fn new(value: T) -> Self {
        Self { value, text: None, links: Vec::new() }
    }

    pub(super) fn with_text(mut self, text: String) -> Self {
        self.text = Some(text);
        self
    }

    pub(super) fn with_link(mut self, (uri, mime): (String, &'static str), name: &str) -> Self {
        self.links.push((uri, name.to_owned(), mime));
        self
    }
}

/// Why a tool has no result.
#[derive(Debug)]
pub(super) enum Stop {
    Failed(Problem),
    Interrupted(Interrupt),
}

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Self {
        Self::Failed(problem)
    }
}

impl From<Interrupt> for Stop {
    fn from(interrupt: Interrupt) -> Self {
        Self::Interrupted(interrupt)
    }
}

/// A tool on sandboxes.
#[async_trait]
pub(super) trait Operation: Send + Sync + 'static {
    /// Its arguments. Unknown ones are refused.
    type Arguments: DeserializeOwned + JsonSchema + Any + Send;
    /// Its result.
    type Value: Serialize + JsonSchema + Any + Send;

    fn facts(&self, scope: &Scope) -> Facts;

    async fn call(
        &self,
        on: On<'_>,
        arguments: Self::Arguments,
    ) -> Result<Reply<Self::Value>, Stop>;
}

/// What a call is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct On<'a> {
    pub(super) context: &'a Context,
    pub(super) call: &'a Call,
    /// The sandbox in the arguments.
    named: Option<&'a SandboxId>,
}

impl On<'_> {
    /// The sandbox of the call.
    pub(super) async fn sandbox(&self) -> Result<Sandbox, Problem> {
        match (&self.context.scope, self.named) {
            (Scope::Workspace(workspace), _) => workspace.find_or_create(self.call).await,
            (Scope::Named, Some(id)) => {
                let request = stockade_api::GetSandbox { id: id.clone(), metrics: false };
                self.context.sandboxes.get_status(self.call.reader(), request).await
            }
            (Scope::Named, None) => {
                Err(Problem::new(Code::InvalidInput, "the argument `sandbox` is missing"))
            }
        }
    }

    /// The sandbox of the call, as a place of files.
    pub(super) async fn place(&self) -> Result<Place, Problem> {
        let sandbox = self.sandbox().await?;
        Place::of(&*self.context.sandboxes, &self.call.writer(), sandbox).await
    }
}

/// An [`Operation`] as a [`Tool`].
#[derive(Debug)]
pub(super) struct OnSandbox<T> {
    context: Arc<Context>,
    operation: T,
}

impl<T: Operation> OnSandbox<T> {
    pub(super) const fn new(context: Arc<Context>, operation: T) -> Self {
        Self { context, operation }
    }

    /// Takes the sandbox out of the arguments, if the tool has that argument.
    fn named(&self, arguments: &mut Map<String, Value>) -> Result<Option<SandboxId>, Problem> {
        let is_named = matches!(self.context.scope, Scope::Named);
        if !is_named || !self.operation.facts(&self.context.scope).on_sandbox {
            return Ok(None);
        }
        let invalid = |message: &str| Problem::new(Code::InvalidInput, message);
        match arguments.remove(SANDBOX) {
            None => Err(invalid("the argument `sandbox` is missing")),
            Some(Value::String(id)) => SandboxId::new(id.as_str()).map(Some).map_err(|_| {
                Problem::new(Code::NotFound, format!("there is no sandbox {:?}", short(&id)))
            }),
            Some(_) => Err(invalid("the argument `sandbox` is not a text")),
        }
    }

    async fn run(
        &self,
        call: &Call,
        mut arguments: Map<String, Value>,
    ) -> Result<ToolResult, Stop> {
        let named = self.named(&mut arguments)?;
        let arguments = serde_json::from_value(Value::Object(arguments)).map_err(|error| {
            let message = format!("the arguments are invalid: {}", short(&error.to_string()));
            Problem::new(Code::InvalidInput, message)
        })?;
        let on = On { context: &self.context, call, named: named.as_ref() };
        let reply = self.operation.call(on, arguments).await?;
        let mut value = json!(reply.value);
        escape(&mut value);
        let text = reply
            .text
            .unwrap_or_else(|| fenced(&serde_json::to_string_pretty(&value).unwrap_or_default()));
        Ok(ToolResult { links: reply.links, ..ToolResult::new(text, value) })
    }
}

#[async_trait]
impl<T: Operation> Tool for OnSandbox<T> {
    fn description(&self) -> Description {
        let Facts { name, title, text, effects, on_sandbox, is_long } =
            self.operation.facts(&self.context.scope);
        let mut input = schema::<T::Arguments>();
        if on_sandbox && matches!(self.context.scope, Scope::Named) {
            add_sandbox(&mut input);
        }
        let output = schema::<T::Value>();
        Description { name, title, text: text.into(), input, output, effects, is_long }
    }

    async fn call(
        &self,
        call: &Call,
        arguments: Map<String, Value>,
    ) -> Result<ToolResult, Interrupt> {
        match self.run(call, arguments).await {
            Ok(result) => Ok(result),
            Err(Stop::Interrupted(interrupt)) => Err(interrupt),
            Err(Stop::Failed(problem)) => {
                let name = self.operation.facts(&self.context.scope).name;
                Ok(ToolResult::error(failure(name, &problem)))
            }
        }
    }
}

/// The schema of a type, without the names of types.
fn schema<S: JsonSchema + Any>() -> Map<String, Value> {
    let mut schema = schema_for_type::<S>().as_ref().clone();
    for name in ["$schema", "title", "description"] {
        schema.remove(name);
    }
    schema.entry("properties").or_insert_with(|| json!({}));
    schema.values_mut().for_each(remove_widths);
    schema
}

/// Removes the formats of numbers, such as `uint64`: JSON Schema has none, and clients warn of each.
fn remove_widths(value: &mut Value) {
    match value {
        Value::Object(members) => {
            let is_width =
                |format: &Value| format.as_str().is_some_and(|name| name.contains("int"));
            if members.get("format").is_some_and(is_width) {
                members.remove("format");
            }
            members.values_mut().for_each(remove_widths);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_widths),
        _ => {}
    }
}

fn add_sandbox(schema: &mut Map<String, Value>) {
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        let id = json!({ "type": "string", "description": "The id of the sandbox." });
        properties.insert(SANDBOX.to_owned(), id);
    }
    let required = schema.entry("required").or_insert_with(|| json!([]));
    if let Value::Array(required) = required {
        required.insert(0, json!(SANDBOX));
    }
}

/// A problem as text. Parts of it may be what a sandbox wrote.
fn failure(name: &str, problem: &Problem) -> String {
    let mut text = format!("{name} failed — {}: {}", problem.code, problem.message);
    if let Some(cause) = &problem.cause {
        text.push_str(&format!(": {cause}"));
    }
    let mut text = short_to(&text, ERROR_BYTES);
    if let Some(remedy) = &problem.remediation {
        text.push_str(&format!("\nremedy: {}", short(remedy)));
    }
    text
}

fn short(text: &str) -> String {
    short_to(text, 512)
}

/// The beginning of a text on one line, without hidden characters.
fn short_to(text: &str, limit: usize) -> String {
    let text = escaped(text);
    if text.len() <= limit {
        return text.into_owned();
    }
    let end = (0..=limit).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Sized {
        bytes: u64,
        port: Option<u16>,
        list: Vec<u32>,
    }

    #[test]
    fn numbers_have_no_format_of_their_own() {
        let schema = Value::Object(schema::<Sized>());
        assert!(!schema.to_string().contains("format"), "{schema}");
        assert_eq!(schema["properties"]["bytes"]["minimum"], json!(0));
    }
}
