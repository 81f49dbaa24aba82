//! The one list of operations on sandboxes: [`Sandboxes`], with their requests and responses, as
//! Rust types and as JSON.
//!
//! `service` implements it, `client` forwards it to a server. There is no logic here.
//!
//! Reading order: `sandboxes` (the list), `caller`, then the nouns: `sandbox`, `network`,
//! `command`, `session`, `files`, `endpoint`, `tool`, `event`, `operation`, `bundle`, `keys`,
//! `vault`, `volume`, `image`, `browser`; `wire` defines the protocol, and `schema` describes both. `workflows` is the list of operations on workflow runs, `wait` what these
//! wait for, `measurement` the metrics for monitoring.

pub mod body;
mod browser;
mod bundle;
mod caller;
mod command;
mod download;
mod endpoint;
mod event;
mod files;
mod image;
mod injection;
mod keys;
mod live_command;
pub mod measurement;
mod network;
mod node;
mod observed;
mod operation;
mod published;
mod routed;
mod sandbox;
mod sandboxes;
pub mod schema;
mod secret_value;
mod secrets;
mod session;
mod snapshot;
mod ssh_agent;
mod stream;
mod sync;
mod tool;
pub mod variables;
mod vault;
mod volume;
mod wait;
pub mod wire;
mod workflows;
mod workspace;

pub use browser::{
    BrowserSession, CALLBACK_PATH, LINK_SECONDS, LinkKey, OPEN_PATH, OpenPort, OpenedPort,
    PortAccess, PortGrant, PortName, PortSite,
};
pub use bundle::{
    AppliedBundle, ApplyBundle, Bundle, BundleChanges, BundleDetail, BundleEntry, BundleList,
    BundleState, ChosenHunks, CollectChanges, CollectedChanges, Conflicts, DiffBundle, ListBundles,
    ListedBundle, PathDiff, ProposeChanges, RejectBundle, RejectedBundle, ShowBundle, SkippedPath,
    StoredView,
};
pub use caller::{Caller, Origin, StartRecord};
pub use command::{
    CommandLine, Ending, Execute, ExecuteResult, OutputChunk, OutputEnd, OutputItem, ReadOutput,
    Terminal,
};
pub use download::{DownloadProgress, DownloadStatus, WaitDownload};
pub use endpoint::{
    Connect, Endpoint, HttpHead, HttpRequest, HttpResponse, HttpStream, Method, OpenWebSocket,
    ResolveEndpoint, WebSocket,
};
pub use event::{ReadEvents, RecordedEvent};
pub use files::{
    AppliedPatch, ApplyPatch, CollectDirectory, EditFile, FileChange, FileContent, FileEntry,
    FileKind, ListDirectory, Listing, MakeDirectory, MoveFile, PatchedFile, ReadFile, ReceiveFiles,
    RemoveFile, ReplaceResult, ReplaceText, SearchFiles, SendFiles, SentFiles, SetPermissions,
    StatFile, WriteFile, WriteResult,
};
pub use image::{ImageList, PullImage, PulledImage, RemoveImage, RemovedImages};
pub use injection::{
    ChangeInjections, InjectedHeader, Injection, InjectionPlace, Injections, credential_name,
};
pub use keys::{ApiKey, CreateKey, CreatedKey, KeyDirectory, KeyList, ListKeys, RevokeKey};
pub use live_command::{AttachCommand, CommandInfo, CommandList, KillCommand, ListCommands};
pub use measurement::{Measure, Measurements};
pub use network::{ChangeNetwork, Network, NetworkStatus};
pub use node::{NodeOutputs, NodeType, RunNode};
pub use observed::{Observe, Observed, RecordRefusal};
pub use operation::{ById, OperationId, OperationInfo, OperationStatus};
pub use published::{Publication, PublishedPort};
pub use routed::{Elsewhere, Route, Routed, Routing};
pub use sandbox::{
    CacheMount, ChangeLimits, ChangeMetadata, CreateSandbox, Expiry, ExpiryAction, GetSandbox,
    IdleAction, KillSandbox, ListSandboxes, Metrics, Proxy, PullPolicy, Renew, Sandbox,
    SandboxList, SandboxUser, SelectedRuntime, VolumeMount,
};
pub use sandboxes::{Ack, Empty, LONG, PLAIN, Remote, Sandboxes, Transport, Unavailable, dispatch};
pub use secret_value::SecretValue;
pub use secrets::{SecretStatus, SetSecrets};
pub use session::{OpenSession, Session, SessionEvent, SessionInput};
pub use snapshot::{Restore, Snapshot, TakeSnapshot};
pub use ssh_agent::{SshAgent, SshAgentStatus, SshPermission};
pub use stockade_core::Bytes;
pub use stream::{Duplex, Items};
pub use sync::{ConflictPolicy, LargeFiles, SkippedFile, SyncConflict, SyncFiles, SyncReport, Vfs};
pub use tool::{RunTool, Tool, ToolResult};
pub use vault::{
    CreateSecret, ImportSecret, RemoveSecret, RotateSecret, SecretMapping, SecretReference,
    SecretScope, StoredSecret, StoredSecrets, WriteSecretFile,
};
pub use volume::{CreateVolume, RemovedVolume, Volume, VolumeByName, VolumeList, VolumeRecord};
pub use wait::{ANSWERS, Answer, Answers, WAITING, Wait, WaitList};
pub use workflows::{
    Decide, FindRun, Follow, Fork, ForkOrigin, Inspection, LATEST, ListRuns, ResumeRun, Run,
    RunById, RunStatus, RunUpdate, SandboxInfo, SendSignal, ServerAccess, TaskInfo, TaskStatus, Up,
    Workflows, dispatch_workflows,
};

pub use workspace::{
    ChangeWorkspace, CommitWorkspace, CommittedWorkspace, ReadWorkspace, WorkspaceBranch,
    WorkspaceByName, WorkspaceChange, WorkspaceCommit, WorkspaceFile, WorkspaceHistory,
    WorkspaceInfo, WorkspaceList, WorkspaceTree,
};

/// An error with its stable code.
pub use stockade_core::Problem;

/// The result of an operation.
pub type Result<T> = std::result::Result<T, Problem>;
