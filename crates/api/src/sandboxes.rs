//! [`Sandboxes`]: the one list of operations, and the way from an operation's name to it.

use std::fmt::Debug;

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stockade_core::{Code, Problem, SnapshotId};

use crate::ById;
use crate::Result;
use crate::bundle::{
    AppliedBundle, ApplyBundle, BundleDetail, BundleList, CollectChanges, CollectedChanges,
    DiffBundle, ListBundles, PathDiff, ProposeChanges, RejectBundle, RejectedBundle, ShowBundle,
};
use crate::caller::Caller;
use crate::command::{Execute, Executed, OutputItem, ReadOutput};
use crate::endpoint::{
    Connect, Endpoint, HttpAnswer, HttpRequest, HttpStream, OpenWebSocket, ResolveEndpoint,
    WebSocket,
};
use crate::event::{ReadEvents, RecordedEvent};
use crate::files::{
    CollectDirectory, FileContent, FileEntry, ListDirectory, Listing, MakeDirectory, MoveFile,
    ReadFile, RemoveFile, ReplaceText, Replaced, SearchFiles, SetPermissions, StatFile, WriteFile,
    Written,
};
use crate::network::ChangeNetwork;
use crate::operation::{OperationId, OperationInfo};
use crate::sandbox::{CreateSandbox, GetSandbox, ListSandboxes, Renew, Sandbox, SandboxList};
use crate::session::{OpenSession, Session};
use crate::snapshot::{Restore, Snapshot, TakeSnapshot};
use crate::stream::{Duplex, Items};
use crate::tool::{RunTool, Tool, ToolResult};

/// The answer of what has nothing to say but that it is done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {}

/// A question with nothing to say but its name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Names {}

/// Writes the trait, and from the same list what carries it over a wire.
macro_rules! operations {
    (
        plain { $( $(#[$note:meta])* $name:ident($request:ty) -> $answer:ty; )* }
        long { $(
            $(#[$long_note:meta])*
            $long:ident(caller $(, $argument:ident: $kind:ty)*) -> $long_answer:ty;
        )* }
    ) => {
        /// What can be done with sandboxes, and with the bundles of changes that wait for a
        /// decision. Every operation checks first that what it is about is the caller's; what is
        /// not, and what does not exist, get the same answer.
        #[async_trait]
        pub trait Sandboxes: Debug + Send + Sync {
            $(
                $(#[$note])*
                async fn $name(&self, caller: &Caller, request: $request) -> Result<$answer>;
            )*
            $(
                $(#[$long_note])*
                async fn $long(&self, caller: &Caller $(, $argument: $kind)*) -> $long_answer;
            )*
        }

        /// What carries operations to a server.
        #[async_trait]
        pub trait Transport: Debug + Send + Sync {
            /// Asks for a plain operation by its name.
            async fn call(&self, caller: &Caller, operation: &str, request: Value)
            -> Result<Value>;
            $(
                $(#[$long_note])*
                async fn $long(&self, caller: &Caller $(, $argument: $kind)*) -> $long_answer;
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
                async fn $long(&self, caller: &Caller $(, $argument: $kind)*) -> $long_answer {
                    self.0.$long(caller $(, $argument)*).await
                }
            )*
        }

        #[async_trait]
        impl Transport for Nowhere {
            async fn call(&self, _: &Caller, _: &str, _: Value) -> Result<Value> {
                Err(self.0.clone())
            }
            $(
                async fn $long(&self, _: &Caller $(, _: $kind)*) -> $long_answer {
                    Err(self.0.clone())
                }
            )*
        }

        /// The names of the plain operations, which [`dispatch`] knows.
        pub const PLAIN: &[&str] = &[$( stringify!($name) ),*];

        /// The names of the operations whose answers take their time.
        pub const LONG: &[&str] = &[$( stringify!($long) ),*];

        /// Does a plain operation by its name, from JSON to JSON.
        ///
        /// # Errors
        /// What the operation fails with; [`Code::InvalidInput`] for a name that is none, or a
        /// request that cannot be read.
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

/// The operations of a server somewhere else.
#[derive(Debug, Clone)]
pub struct Remote<T>(pub T);

/// Where there are no operations: each is refused, with this.
#[derive(Debug, Clone)]
pub struct Nowhere(pub Problem);

operations! {
    plain {
        /// Makes a sandbox, and starts it unless asked not to.
        create(CreateSandbox) -> Sandbox;
        /// Starts a sandbox that is new, stopped or failed.
        start(ById) -> Sandbox;
        /// Ends a sandbox's processes and keeps its files.
        stop(ById) -> Sandbox;
        /// Stops every process where it is.
        pause(ById) -> Sandbox;
        /// Lets every process go on.
        resume(ById) -> Sandbox;
        /// Lets a sandbox live longer.
        renew(Renew) -> Sandbox;
        /// Lets a sandbox reach more hosts, or no longer some.
        change_network(ChangeNetwork) -> Sandbox;
        /// Ends a sandbox with all that it has. Of one that is terminated, does nothing.
        kill(ById) -> Sandbox;
        /// What is known of a sandbox, also of a terminated one.
        get_status(GetSandbox) -> Sandbox;
        /// The caller's sandboxes.
        list(ListSandboxes) -> SandboxList;
        /// Runs a command and waits for its end.
        execute(Execute) -> Executed;
        /// Starts a command; its output is kept as it is written, for `read_output`.
        execute_stream(Execute) -> OperationInfo;
        /// What is known of a recorded operation.
        operation(OperationId) -> OperationInfo;
        /// Waits for a recorded operation to end, at most a minute.
        wait_operation(OperationId) -> OperationInfo;
        /// Cancels a recorded operation; a command of it is killed.
        cancel_operation(OperationId) -> OperationInfo;
        /// What is known of a file.
        stat_file(StatFile) -> FileEntry;
        /// What is in a directory.
        list_directory(ListDirectory) -> Listing;
        /// Makes a directory.
        make_directory(MakeDirectory) -> Done;
        /// Gives a file or directory another name.
        move_file(MoveFile) -> Done;
        /// Removes a file, or a directory with all that is in it.
        remove_file(RemoveFile) -> Done;
        /// Changes permissions or owner.
        set_permissions(SetPermissions) -> Done;
        /// Finds files by a pattern on their paths.
        search_files(SearchFiles) -> Listing;
        /// Replaces texts in files.
        replace_text(ReplaceText) -> Replaced;
        /// Tells whether a port can be reached.
        resolve_endpoint(ResolveEndpoint) -> Endpoint;
        /// Sends a request to a port inside.
        http_request(HttpRequest) -> HttpAnswer;
        /// Keeps the state of a sandbox's files.
        snapshot(TakeSnapshot) -> Snapshot;
        /// Makes a sandbox from a snapshot.
        restore(Restore) -> Sandbox;
        /// The caller's snapshots.
        snapshots(Names) -> Vec<Snapshot>;
        /// Removes a snapshot. Sandboxes that began with it keep what they have.
        remove_snapshot(SnapshotId) -> Done;
        /// Makes a bundle of what a sandbox has changed in its workspace, to be decided about.
        collect_changes(CollectChanges) -> CollectedChanges;
        /// Copies a directory of a sandbox to a new one of the host, for whoever owns the server.
        collect_directory(CollectDirectory) -> Done;
        /// Runs a tool in a sandbox.
        run_tool(RunTool) -> ToolResult;
        /// The tools that there are.
        tools(Names) -> Vec<Tool>;
        /// The bundles that wait for a decision.
        bundles(ListBundles) -> BundleList;
        /// What a bundle would change.
        show_bundle(ShowBundle) -> BundleDetail;
        /// Makes a bundle of changes that are proposed for a project, to be decided about.
        propose_changes(ProposeChanges) -> CollectedChanges;
        /// Makes a bundle's changes in its project, all of those that are chosen or none.
        apply_bundle(ApplyBundle) -> AppliedBundle;
        /// Throws a bundle away.
        reject_bundle(RejectBundle) -> RejectedBundle;
    }
    long {
        /// Runs a command with its streams in the caller's hands.
        open_session(caller, request: OpenSession) -> Result<Session>;
        /// The output of `execute_stream`, from an offset on; ends after the command's end.
        read_output(caller, request: ReadOutput) -> Result<Items<OutputItem>>;
        /// The events of the caller's sandboxes.
        read_events(caller, request: ReadEvents) -> Result<Items<RecordedEvent>>;
        /// The content of a file.
        read_file(caller, request: ReadFile) -> Result<FileContent>;
        /// Writes a file, whole or not at all.
        write_file(caller, request: WriteFile, content: FileContent) -> Result<Written>;
        /// Connects to a port inside.
        connect(caller, request: Connect) -> Result<Box<dyn Duplex>>;
        /// Sends a request to a port inside, and gives the answer's body as it comes.
        http_stream(caller, request: HttpRequest) -> Result<HttpStream>;
        /// Opens a WebSocket to a port inside.
        web_socket(caller, request: WebSocket) -> Result<OpenWebSocket>;
        /// The lines that a bundle would change, path by path.
        diff_bundle(caller, request: DiffBundle) -> Result<Items<PathDiff>>;
    }
}

pub(crate) fn read<T: DeserializeOwned>(request: &[u8]) -> Result<T> {
    let request = if request.is_empty() { b"{}" } else { request };
    serde_json::from_slice(request).map_err(|error| {
        Problem::new(Code::InvalidInput, "the request cannot be read").because(error.to_string())
    })
}

pub(crate) fn write(answer: &impl Serialize) -> Result<Value> {
    serde_json::to_value(answer).map_err(|error| {
        Problem::new(Code::Io, "the answer cannot be written").because(error.to_string())
    })
}
