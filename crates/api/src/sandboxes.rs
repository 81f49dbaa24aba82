//! [`Sandboxes`]: the one list of operations, and the dispatch by an operation's name.

use std::fmt::Debug;

use async_trait::async_trait;
use futures_util::future::{join, join_all};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stockade_core::{Code, Problem, SnapshotId};

use crate::ById;
use crate::Result;
use crate::browser::{OpenPort, OpenedPort};
use crate::bundle::{
    AppliedBundle, ApplyBundle, BundleDetail, BundleList, CollectChanges, CollectedChanges,
    DiffBundle, ListBundles, PathDiff, ProposeChanges, RejectBundle, RejectedBundle, ShowBundle,
};
use crate::caller::Caller;
use crate::command::{Execute, ExecuteResult, OutputItem, ReadOutput};
use crate::download::{DownloadStatus, WaitDownload};
use crate::endpoint::{
    Connect, Endpoint, HttpRequest, HttpResponse, HttpStream, OpenWebSocket, ResolveEndpoint,
    WebSocket,
};
use crate::event::{ReadEvents, RecordedEvent};
use crate::files::{
    AppliedPatch, ApplyPatch, CollectDirectory, FileContent, FileEntry, ListDirectory, Listing,
    MakeDirectory, MoveFile, ReadFile, ReceiveFiles, RemoveFile, ReplaceResult, ReplaceText,
    SearchFiles, SendFiles, SentFiles, SetPermissions, StatFile, WriteFile, WriteResult,
};
use crate::image::{ImageList, PullImage, PulledImage, RemoveImage, RemovedImages};
use crate::injection::ChangeInjections;
use crate::keys::{ApiKey, CreateKey, CreatedKey, KeyList, ListKeys, RevokeKey};
use crate::live_command::{AttachCommand, CommandInfo, CommandList, KillCommand, ListCommands};
use crate::network::ChangeNetwork;
use crate::node::{NodeOutputs, NodeType, RunNode};
use crate::observed::{Observe, Observed};
use crate::operation::{OperationId, OperationInfo};
use crate::routed::{Elsewhere, Route, Routed, Routing, answer_of, combine, not_everywhere};
use crate::sandbox::{
    ChangeLimits, ChangeMetadata, CreateSandbox, GetSandbox, KillSandbox, ListSandboxes, Renew,
    Sandbox, SandboxList, SelectedRuntime,
};
use crate::secrets::SetSecrets;
use crate::session::{OpenSession, Session};
use crate::snapshot::{Restore, Snapshot, TakeSnapshot};
use crate::stream::{Duplex, Items};
use crate::sync::SyncFiles;
use crate::tool::{RunTool, Tool, ToolResult};
use crate::vault::{
    CreateSecret, ImportSecret, RemoveSecret, RotateSecret, StoredSecret, StoredSecrets,
    WriteSecretFile,
};
use crate::volume::{CreateVolume, RemovedVolume, Volume, VolumeByName, VolumeList, VolumeRecord};
use crate::workspace::{
    ChangeWorkspace, CommitWorkspace, CommittedWorkspace, ReadWorkspace, WorkspaceByName,
    WorkspaceHistory, WorkspaceInfo, WorkspaceList, WorkspaceTree,
};

/// The response of an operation without a result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ack {}

/// A request without fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Empty {}

/// A plain operation with the schemas of its request and response.
pub(crate) struct PlainSchema {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) request: Schema,
    pub(crate) response: Schema,
}

/// Defines the trait, and from the same list its transport over a connection.
macro_rules! operations {
    (
        plain { $( $(#[doc = $note:literal])* $name:ident($request:ty) -> $answer:ty; )* }
        long { $(
            $(#[doc = $long_note:literal])*
            $long:ident(caller, $first:ident: $first_kind:ty $(, $argument:ident: $kind:ty)*)
            -> Result<$long_answer:ty>;
        )* }
    ) => {
        /// The operations on sandboxes, and on the bundles that wait for a decision. Every
        /// operation first checks that its object belongs to the caller; an object of another owner
        /// gets the same response as one that does not exist.
        #[async_trait]
        pub trait Sandboxes: Debug + Send + Sync {
            $(
                $(#[doc = $note])*
                async fn $name(&self, caller: &Caller, request: $request) -> Result<$answer>;
            )*
            $(
                $(#[doc = $long_note])*
                async fn $long(
                    &self,
                    caller: &Caller,
                    $first: $first_kind
                    $(, $argument: $kind)*
                ) -> Result<$long_answer>;
            )*
        }

        /// A connection to a server that carries operations.
        #[async_trait]
        pub trait Transport: Debug + Send + Sync {
            /// Calls a plain operation by its name.
            async fn call(&self, caller: &Caller, operation: &str, request: Value)
            -> Result<Value>;
            $(
                $(#[doc = $long_note])*
                async fn $long(
                    &self,
                    caller: &Caller,
                    $first: $first_kind
                    $(, $argument: $kind)*
                ) -> Result<$long_answer>;
            )*
        }

        #[async_trait]
        impl<T: Transport> Sandboxes for Remote<T> {
            $(
                async fn $name(&self, caller: &Caller, request: $request) -> Result<$answer> {
                    let answer = self.0.call(caller, stringify!($name), write(&request)?).await?;
                    serde_json::from_value(answer).map_err(|error| {
                        Problem::new(Code::Io, "the server's response cannot be read")
                            .because(error.to_string())
                    })
                }
            )*
            $(
                async fn $long(
                    &self,
                    caller: &Caller,
                    $first: $first_kind
                    $(, $argument: $kind)*
                ) -> Result<$long_answer> {
                    self.0.$long(caller, $first $(, $argument)*).await
                }
            )*
        }

        #[async_trait]
        impl Transport for Unavailable {
            async fn call(&self, _: &Caller, _: &str, _: Value) -> Result<Value> {
                Err(self.0.clone())
            }
            $(
                async fn $long(
                    &self,
                    _: &Caller,
                    _: $first_kind
                    $(, _: $kind)*
                ) -> Result<$long_answer> {
                    Err(self.0.clone())
                }
            )*
        }

        #[async_trait]
        impl<T: Sandboxes, O: Observe> Sandboxes for Observed<T, O> {
            $(
                async fn $name(&self, caller: &Caller, request: $request) -> Result<$answer> {
                    let name = stringify!($name);
                    let value = write(&request)?;
                    let caller = self.before(caller, name, &value).await?;
                    let answer = self.inner.$name(&caller, request).await;
                    let written = |answer: &$answer| write(answer).unwrap_or_default();
                    self.after(&caller, name, &value, (&answer, written)).await;
                    answer
                }
            )*
            $(
                async fn $long(
                    &self,
                    caller: &Caller,
                    $first: $first_kind
                    $(, $argument: $kind)*
                ) -> Result<$long_answer> {
                    let name = stringify!($long);
                    let value = write(&$first)?;
                    let caller = self.before(caller, name, &value).await?;
                    let answer = self.inner.$long(&caller, $first $(, $argument)*).await;
                    let end = answer.as_ref().map(|_| ()).map_err(Clone::clone);
                    self.after(&caller, name, &value, (&end, |_: &()| Value::Null)).await;
                    answer
                }
            )*
        }

        #[async_trait]
        impl<T: Sandboxes, R: Route<Operations: Sandboxes>> Sandboxes for Routed<T, R> {
            $(
                async fn $name(&self, caller: &Caller, request: $request) -> Result<$answer> {
                    let value = write(&request)?;
                    match self.router.route(caller, stringify!($name), &value).await? {
                        Routing::Here => self.inner.$name(caller, request).await,
                        Routing::There(Elsewhere { operations, gone, .. }) => {
                            answer_of(gone, operations.$name(caller, request)).await
                        }
                        Routing::Everywhere { others, silent } => {
                            let value = &value;
                            let ask = |other: Elsewhere<R::Operations>| async move {
                                let Elsewhere { host, operations, gone } = other;
                                let answer = async {
                                    let request = parse::<$request>(value)?;
                                    operations.$name(caller, request).await
                                };
                                (host, answer_of(gone, answer).await)
                            };
                            let others = join_all(others.into_iter().map(ask));
                            let own = self.inner.$name(caller, request);
                            let (own, others) = join(own, others).await;
                            combine(own, others, silent)
                        }
                    }
                }
            )*
            $(
                async fn $long(
                    &self,
                    caller: &Caller,
                    $first: $first_kind
                    $(, $argument: $kind)*
                ) -> Result<$long_answer> {
                    let value = write(&$first)?;
                    match self.router.route(caller, stringify!($long), &value).await? {
                        Routing::Here => self.inner.$long(caller, $first $(, $argument)*).await,
                        Routing::There(Elsewhere { operations, gone, .. }) => {
                            let answer = operations.$long(caller, $first $(, $argument)*);
                            answer_of(gone, answer).await
                        }
                        Routing::Everywhere { .. } => Err(not_everywhere(stringify!($long))),
                    }
                }
            )*
        }

        /// The names of the plain operations, which [`dispatch`] knows.
        pub const PLAIN: &[&str] = &[$( stringify!($name) ),*];

        /// The names of the operations with streamed responses.
        pub const LONG: &[&str] = &[$( stringify!($long) ),*];

        /// The plain operations with the schemas of their requests and responses.
        pub(crate) fn plain_schemas(generator: &mut SchemaGenerator) -> Vec<PlainSchema> {
            vec![$(
                PlainSchema {
                    name: stringify!($name),
                    description: concat!($($note),*).trim(),
                    request: generator.subschema_for::<$request>(),
                    response: generator.subschema_for::<$answer>(),
                },
            )*]
        }

        /// What the list says about the operations with streamed responses, by their names.
        pub(crate) const LONG_DESCRIPTIONS: &[(&str, &str)] =
            &[$( (stringify!($long), concat!($($long_note),*)) ),*];

        /// Calls a plain operation by its name, from JSON to JSON.
        ///
        /// # Errors
        /// The error of the operation; [`Code::InvalidInput`] for an unknown name, or an invalid
        /// request.
        pub async fn dispatch(
            sandboxes: &dyn Sandboxes,
            caller: &Caller,
            operation: &str,
            request: &[u8],
        ) -> Result<Value> {
            match operation {
                $(
                    stringify!($name) => {
                        write(&sandboxes.$name(caller, read(request)?).await?)
                    }
                )*
                unknown => Err(Problem::new(
                    Code::InvalidInput,
                    format!("there is no operation {unknown:?}"),
                )),
            }
        }
    };
}

/// The operations of a remote server.
#[derive(Debug, Clone)]
pub struct Remote<T>(pub T);

/// An implementation without operations: each is refused with this problem.
#[derive(Debug, Clone)]
pub struct Unavailable(pub Problem);

operations! {
    plain {
        /// Creates a sandbox, and starts it unless the request says otherwise.
        create(CreateSandbox) -> Sandbox;
        /// Selects the runtime for such a sandbox, or says why none can hold it. Nothing is created.
        select_runtime(CreateSandbox) -> SelectedRuntime;
        /// Starts a sandbox that is new, stopped or failed.
        start(ById) -> Sandbox;
        /// Ends a sandbox's processes and keeps its files.
        stop(ById) -> Sandbox;
        /// Freezes all processes of a sandbox.
        pause(ById) -> Sandbox;
        /// Continues all processes of a sandbox.
        resume(ById) -> Sandbox;
        /// Extends the life of a sandbox.
        renew(Renew) -> Sandbox;
        /// Adds, replaces or removes labels of a sandbox.
        change_metadata(ChangeMetadata) -> Sandbox;
        /// Changes limits of a sandbox, also while its commands run.
        change_limits(ChangeLimits) -> Sandbox;
        /// Adds or removes hosts that a sandbox may connect to.
        change_network(ChangeNetwork) -> Sandbox;
        /// Gives the egress process values of a sandbox's secrets. They are recorded nowhere.
        set_secrets(SetSecrets) -> Sandbox;
        /// Changes the credentials that are put into a sandbox's requests, and their bindings. Values
        /// are recorded nowhere.
        change_injections(ChangeInjections) -> Sandbox;
        /// Terminates a sandbox and releases everything that it has. Its changes in the workspace
        /// become a bundle first, unless they are discarded. Has no effect on a terminated one.
        kill(KillSandbox) -> Sandbox;
        /// Gets the properties of a sandbox, also of a terminated one.
        get_status(GetSandbox) -> Sandbox;
        /// Lists the caller's sandboxes.
        list(ListSandboxes) -> SandboxList;
        /// Runs a command and waits for its end.
        execute(Execute) -> ExecuteResult;
        /// Starts a command; its output is stored as it is written, for `read_output`.
        execute_stream(Execute) -> OperationInfo;
        /// Gets the record of an operation.
        operation(OperationId) -> OperationInfo;
        /// Waits for the end of a recorded operation, at most a minute.
        wait_operation(OperationId) -> OperationInfo;
        /// Cancels a recorded operation; its command is killed.
        cancel_operation(OperationId) -> OperationInfo;
        /// Lists the commands of sandboxes.
        commands(ListCommands) -> CommandList;
        /// Gets one command.
        get_command(OperationId) -> CommandInfo;
        /// Ends a command with all processes that it has started. Has no effect on one that has
        /// ended.
        kill_command(KillCommand) -> CommandInfo;
        /// Gets the properties of a file.
        stat_file(StatFile) -> FileEntry;
        /// Lists a directory.
        list_directory(ListDirectory) -> Listing;
        /// Creates a directory.
        make_directory(MakeDirectory) -> Ack;
        /// Renames or moves a file or directory.
        move_file(MoveFile) -> Ack;
        /// Removes a file, or a directory with its content.
        remove_file(RemoveFile) -> Ack;
        /// Changes permissions or owner.
        set_permissions(SetPermissions) -> Ack;
        /// Searches for files by a pattern for their paths.
        search_files(SearchFiles) -> Listing;
        /// Replaces texts in files.
        replace_text(ReplaceText) -> ReplaceResult;
        /// Applies a unified diff to files, all or none.
        apply_patch(ApplyPatch) -> AppliedPatch;
        /// Checks whether a port is reachable.
        resolve_endpoint(ResolveEndpoint) -> Endpoint;
        /// Sends a request to a port inside.
        http_request(HttpRequest) -> HttpResponse;
        /// Creates a link that opens a port in a browser, once.
        open_port(OpenPort) -> OpenedPort;
        /// Takes a snapshot of a sandbox's files.
        snapshot(TakeSnapshot) -> Snapshot;
        /// Creates a sandbox from a snapshot.
        restore(Restore) -> Sandbox;
        /// Lists the caller's snapshots.
        snapshots(Empty) -> Vec<Snapshot>;
        /// Removes a snapshot. Sandboxes that started from it keep their files.
        remove_snapshot(SnapshotId) -> Ack;
        /// Lists the images in the store of the server's own runtime, which all owners can use.
        images(Empty) -> ImageList;
        /// Downloads an image into that store.
        pull_image(PullImage) -> PulledImage;
        /// Removes an image that no sandbox uses from that store.
        remove_image(RemoveImage) -> RemovedImages;
        /// Creates a volume of the caller.
        create_volume(CreateVolume) -> Volume;
        /// Lists the caller's volumes, with their users.
        volumes(Empty) -> VolumeList;
        /// Finds a volume of the caller, without looking at its files.
        find_volume(VolumeByName) -> VolumeRecord;
        /// Removes a volume that neither a sandbox nor a run uses.
        remove_volume(VolumeByName) -> RemovedVolume;
        /// Waits some seconds for news of the download that an operation of the caller needs.
        wait_download(WaitDownload) -> DownloadStatus;
        /// Creates a bundle of a sandbox's changes in its workspace, for review.
        collect_changes(CollectChanges) -> CollectedChanges;
        /// Copies a directory of a sandbox to a new one on the host; for the owner of the server.
        collect_directory(CollectDirectory) -> Ack;
        /// Starts to copy files from outside into a sandbox.
        sync_from_vfs(SyncFiles) -> OperationInfo;
        /// Starts to copy files from a sandbox to outside.
        sync_to_vfs(SyncFiles) -> OperationInfo;
        /// Creates a workspace.
        create_workspace(WorkspaceByName) -> WorkspaceInfo;
        /// Lists the caller's workspaces.
        workspaces(Empty) -> WorkspaceList;
        /// Removes a workspace with its history.
        remove_workspace(WorkspaceByName) -> Ack;
        /// Lists the files of a workspace, or reads one.
        read_workspace(ReadWorkspace) -> WorkspaceTree;
        /// Stages changes of a workspace, all or none.
        change_workspace(ChangeWorkspace) -> WorkspaceInfo;
        /// Commits what is staged in a workspace.
        commit_workspace(CommitWorkspace) -> CommittedWorkspace;
        /// Lists the commits of a workspace.
        workspace_history(ReadWorkspace) -> WorkspaceHistory;
        /// Runs a node of FireFlow: operations with named ports.
        run_node(RunNode) -> NodeOutputs;
        /// Lists the nodes.
        nodes(Empty) -> Vec<NodeType>;
        /// Runs a tool in a sandbox.
        run_tool(RunTool) -> ToolResult;
        /// Lists the available tools.
        tools(Empty) -> Vec<Tool>;
        /// Lists the bundles that wait for a decision.
        bundles(ListBundles) -> BundleList;
        /// Shows the changes of a bundle.
        show_bundle(ShowBundle) -> BundleDetail;
        /// Creates a bundle of changes that are proposed for a project, for review.
        propose_changes(ProposeChanges) -> CollectedChanges;
        /// Applies the selected changes of a bundle to its project, all or none.
        apply_bundle(ApplyBundle) -> AppliedBundle;
        /// Rejects a bundle.
        reject_bundle(RejectBundle) -> RejectedBundle;
        /// Creates an API key.
        create_key(CreateKey) -> CreatedKey;
        /// Lists API keys.
        keys(ListKeys) -> KeyList;
        /// Revokes an API key.
        revoke_key(RevokeKey) -> ApiKey;
        /// Stores a secret of the caller, sealed.
        create_secret(CreateSecret) -> StoredSecret;
        /// Stores a secret that was sealed by FireFlow's predecessor.
        import_secret(ImportSecret) -> StoredSecret;
        /// Lists the caller's secrets, without values.
        secrets(Empty) -> StoredSecrets;
        /// Replaces the values of a secret.
        rotate_secret(RotateSecret) -> StoredSecret;
        /// Removes a secret.
        remove_secret(RemoveSecret) -> Ack;
        /// Writes a field of a stored secret to a file in a sandbox.
        write_secret_file(WriteSecretFile) -> WriteResult;
    }
    long {
        /// Runs a command whose streams the caller controls.
        open_session(caller, request: OpenSession) -> Result<Session>;
        /// Joins a command that was started before. It continues when the caller disconnects.
        attach_command(caller, request: AttachCommand) -> Result<Session>;
        /// Reads the output of `execute_stream`, beginning at an offset; ends after the command's
        /// end.
        read_output(caller, request: ReadOutput) -> Result<Items<OutputItem>>;
        /// Reads the events of the caller's sandboxes.
        read_events(caller, request: ReadEvents) -> Result<Items<RecordedEvent>>;
        /// Reads the content of a file.
        read_file(caller, request: ReadFile) -> Result<FileContent>;
        /// Writes a file, completely or not at all.
        write_file(caller, request: WriteFile, content: FileContent) -> Result<WriteResult>;
        /// Creates a tree of files. What was created before an error stays.
        send_files(caller, request: SendFiles, content: FileContent) -> Result<SentFiles>;
        /// Reads a tree of files.
        receive_files(caller, request: ReceiveFiles) -> Result<FileContent>;
        /// Connects to a port inside.
        connect(caller, request: Connect) -> Result<Box<dyn Duplex>>;
        /// Sends a request to a port inside, and streams the response body.
        http_stream(caller, request: HttpRequest) -> Result<HttpStream>;
        /// Opens a WebSocket to a port inside.
        web_socket(caller, request: WebSocket) -> Result<OpenWebSocket>;
        /// Shows the changed lines of a bundle, path by path.
        diff_bundle(caller, request: DiffBundle) -> Result<Items<PathDiff>>;
    }
}

pub(crate) fn read<T: DeserializeOwned>(request: &[u8]) -> Result<T> {
    let request = if request.is_empty() { b"{}" } else { request };
    serde_json::from_slice(request).map_err(|error| {
        Problem::new(Code::InvalidInput, "the request cannot be read").because(error.to_string())
    })
}

/// The request with these members, once more.
fn parse<T: DeserializeOwned>(request: &Value) -> Result<T> {
    T::deserialize(request).map_err(|error| {
        Problem::new(Code::Io, "the request cannot be passed on").because(error.to_string())
    })
}

pub(crate) fn write(answer: &impl Serialize) -> Result<Value> {
    serde_json::to_value(answer).map_err(|error| {
        Problem::new(Code::Io, "the answer cannot be written").because(error.to_string())
    })
}
