//! The protocol, in the types of the library `rmcp`: calls of tools, of which long ones continue as tasks
//! where the client knows tasks; and resources.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::request::Parts;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ContentBlock,
    CreateTaskResult, ErrorData, GetTaskParams, GetTaskResult, Implementation, InputRequest,
    InputRequests, InputRequiredResult, ListResourceTemplatesResult, ListResourcesResult,
    ListToolsResult, PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, Resource, ServerCapabilities, ServerConfig,
    ToolAnnotations, UpdateTaskParams,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::task_manager::{TaskExit, TaskManager, TaskOptions};
use stockade_api::Caller;
use stockade_core::OwnerId;
use tokio_util::task::TaskTracker;

use super::call::{ANSWER, Call, Client, Interrupt};
use super::decision::Decisions;
use super::{Description, Offer, Tool, ToolResult};
use crate::auth::Principal;

/// After what time a call continues as a task.
const TASK_AFTER: Duration = Duration::from_secs(2);
/// How long a task may take, and how long its result is kept, in milliseconds.
const TASK_TTL_MS: u64 = 3 * 60 * 60 * 1000;
/// How often a client should ask for the state of a task, in milliseconds.
const TASK_POLL_MS: u64 = 1000;
/// How many tasks of an owner may run at the same time.
const TASKS: usize = 32;

/// On whose behalf calls are executed.
#[derive(Debug, Clone)]
pub(super) enum Callers {
    /// On behalf of this one.
    One(Caller),
    /// On behalf of the principal of each HTTP request.
    OfRequests,
}

/// What outlives the requests of an owner.
#[derive(Default)]
struct OwnerState {
    tasks: TaskManager,
    decisions: Arc<Decisions>,
}

/// What outlives requests.
#[derive(Clone, Default)]
pub(super) struct OwnerStates {
    states: Arc<Mutex<HashMap<OwnerId, Arc<OwnerState>>>>,
    ending: TaskTracker,
}

impl OwnerStates {
    fn of(&self, owner: &OwnerId) -> Arc<OwnerState> {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(states.entry(owner.clone()).or_default())
    }

    /// Ends all tasks, and waits until what they have started is ended.
    pub(super) async fn end(&self) {
        let states: Vec<_> = {
            let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
            states.values().cloned().collect()
        };
        for state in states {
            state.tasks.shutdown();
        }
        // A task that was aborted is dropped at its next turn.
        tokio::task::yield_now().await;
        self.ending.close();
        self.ending.wait().await;
    }
}

/// A server for one session or request.
pub(super) struct Handler {
    offer: Arc<Offer>,
    callers: Callers,
    states: OwnerStates,
}

type Work = Pin<Box<dyn Future<Output = Result<ToolResult, Interrupt>> + Send>>;

impl Handler {
    pub(super) fn new(offer: Arc<Offer>, callers: Callers, states: OwnerStates) -> Self {
        Self { offer, callers, states }
    }

    fn caller(&self, context: &RequestContext<RoleServer>) -> Result<Caller, ErrorData> {
        match &self.callers {
            Callers::One(caller) => Ok(caller.clone()),
            Callers::OfRequests => {
                let parts = context.extensions.get::<Parts>();
                let principal = parts.and_then(|parts| parts.extensions.get::<Principal>());
                principal
                    .map(|principal| principal.caller.clone())
                    .ok_or_else(|| ErrorData::invalid_request("the request has no caller", None))
            }
        }
    }

    /// Runs a call to its end, or until it becomes a task.
    async fn run(
        &self,
        tool: Arc<dyn Tool>,
        call: Call,
        arguments: serde_json::Map<String, serde_json::Value>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let is_long = tool.description().is_long;
        let state = self.states.of(&call.caller.owner);
        let mut work: Work = Box::pin(async move { tool.call(&call, arguments).await });
        let becomes_task = is_long
            && context.client_capabilities().is_some_and(|client| client.supports_tasks())
            && state.tasks.running_task_count() < TASKS;
        let long = async {
            match becomes_task {
                true => tokio::time::sleep(TASK_AFTER).await,
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = work.as_mut() => return Ok(response(ended)),
            // No client waits for the response any more.
            () = context.ct.cancelled() => {
                return Err(ErrorData::internal_error("cancelled", None));
            }
            () = long => {}
        }
        let options =
            TaskOptions::new().with_ttl_ms(TASK_TTL_MS).with_poll_interval_ms(TASK_POLL_MS);
        let task = state.tasks.spawn(options, |task| {
            Box::pin(async move {
                let ended = tokio::select! {
                    ended = work => ended,
                    () = task.cancelled() => return Err(TaskExit::Cancelled),
                };
                match ended {
                    Ok(ended) => Ok(result(ended)),
                    Err(Interrupt::Ask(_)) => {
                        Err(ErrorData::internal_error("a task cannot ask its client", None).into())
                    }
                }
            })
        });
        Ok(CreateTaskResult::new(task).into())
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let tools = ServerCapabilities::builder().enable_tools();
        let capabilities = match &self.offer.resources {
            Some(_) => tools.enable_resources().enable_tasks().build(),
            None => tools.build(),
        };
        let mut config = ServerConfig::new(capabilities);
        config.server_info = Implementation::new("stockade", self.offer.version.clone());
        config.instructions = self.offer.instructions.clone();
        config
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        no_cursor(request)?;
        let tools = self.offer.tools.0.values().map(|tool| rmcp_tool(tool.description())).collect();
        Ok(ListToolsResult::with_all_items(tools))
    }

    fn get_tool(&self, name: &str) -> Option<rmcp::model::Tool> {
        self.offer.tools.0.get(name).map(|tool| rmcp_tool(tool.description()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let found = self.offer.tools.0.get_key_value(request.name.as_ref());
        let Some((name, tool)) = found.map(|(name, tool)| (*name, Arc::clone(tool))) else {
            let name = stockade_core::printable::escaped(&request.name).into_owned();
            let message = format!("there is no tool {name}");
            return Err(ErrorData::invalid_params(message, None));
        };
        let caller = self.caller(&context)?;
        let version = context.protocol_version();
        let client = Client {
            peer: context.peer.clone(),
            progress: context.meta.get_progress_token(),
            capabilities: context.client_capabilities().unwrap_or_default(),
            asks_by_response: version
                .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str()),
            answers: request.input_responses,
            state: request.request_state,
            decisions: Arc::clone(&self.states.of(&caller.owner).decisions),
        };
        let ending = self.states.ending.clone();
        let call = Call { caller, tool: name, client: Some(client), ending };
        self.run(tool, call, request.arguments.unwrap_or_default(), &context).await
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let state = self.states.of(&self.caller(&context)?.owner);
        state.tasks.get_task(&request.task_id).map(GetTaskResult::new)
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let state = self.states.of(&self.caller(&context)?.owner);
        state.tasks.update_task(&request.task_id, request.input_responses)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let state = self.states.of(&self.caller(&context)?.owner);
        state.tasks.cancel_task(&request.task_id)
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        no_cursor(request)?;
        let resources = match &self.offer.resources {
            Some(resources) => resources.list(&self.caller(&context)?).await?,
            None => Vec::new(),
        };
        Ok(ListResourcesResult::with_all_items(resources))
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        no_cursor(request)?;
        let templates = match &self.offer.resources {
            Some(_) => super::resources::templates(),
            None => Vec::new(),
        };
        Ok(ListResourceTemplatesResult::with_all_items(templates))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let Some(resources) = &self.offer.resources else {
            return Err(ErrorData::resource_not_found("there are no resources", None));
        };
        let caller = self.caller(&context)?;
        let content = tokio::select! {
            content = resources.read(&caller, &request.uri) => content?,
            () = context.ct.cancelled() => {
                return Err(ErrorData::internal_error("cancelled", None));
            }
        };
        Ok(ReadResourceResult::new(vec![content]).into())
    }
}

/// Everything is on one page, so that there is no cursor.
fn no_cursor(request: Option<PaginatedRequestParams>) -> Result<(), ErrorData> {
    match request.and_then(|request| request.cursor) {
        None => Ok(()),
        Some(_) => Err(ErrorData::invalid_params("the cursor is invalid", None)),
    }
}

fn rmcp_tool(description: Description) -> rmcp::model::Tool {
    let Description { name, title, text, input, output, effects, is_long: _ } = description;
    let annotations = ToolAnnotations::with_title(title)
        .read_only(effects.is_read_only)
        .destructive(effects.is_destructive)
        .idempotent(effects.is_idempotent)
        .open_world(effects.is_open_world);
    rmcp::model::Tool::new(name, text, Arc::new(input))
        .with_title(title)
        .with_raw_output_schema(Arc::new(output))
        .with_annotations(annotations)
}

fn response(ended: Result<ToolResult, Interrupt>) -> CallToolResponse {
    match ended {
        Ok(ended) => result(ended).into(),
        Err(Interrupt::Ask(ask)) => {
            let request = InputRequest::Elicitation(ask.request);
            let requests = InputRequests::from([(ANSWER.to_owned(), request)]);
            InputRequiredResult::new(Some(requests), Some(ask.state)).into()
        }
    }
}

fn result(answer: ToolResult) -> CallToolResult {
    let mut content = vec![ContentBlock::text(answer.text)];
    if answer.is_error {
        return CallToolResult::error(content);
    }
    content.extend(answer.links.into_iter().map(|(uri, name, mime_type)| {
        ContentBlock::ResourceLink(Resource::new(uri, name).with_mime_type(mime_type))
    }));
    let mut result = CallToolResult::success(content);
    result.structured_content = answer.structured;
    result
}
