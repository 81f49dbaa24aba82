//! [`Sandboxes`] for [`Service`]: calls the module of each operation.

use std::time::Duration;

use async_trait::async_trait;
use stockade_api::{
    Ack, ApiKey, AppliedBundle, AppliedPatch, ApplyBundle, ApplyPatch, AttachCommand, BundleDetail,
    BundleList, ById, Caller, ChangeInjections, ChangeLimits, ChangeMetadata, ChangeNetwork,
    ChangeWorkspace, CollectChanges, CollectDirectory, CollectedChanges, CommandInfo, CommandList,
    CommitWorkspace, CommittedWorkspace, Connect, CreateKey, CreateSandbox, CreateSecret,
    CreateVolume, CreatedKey, DiffBundle, DownloadStatus, Duplex, Empty, Endpoint, Execute,
    ExecuteResult, FileContent, FileEntry, GetSandbox, HttpRequest, HttpResponse, HttpStream,
    ImageList, ImportSecret, Items, KeyList, KillCommand, KillSandbox, ListBundles, ListCommands,
    ListDirectory, ListKeys, ListSandboxes, Listing, MakeDirectory, MoveFile, NodeOutputs,
    NodeType, OpenPort, OpenSession, OpenWebSocket, OpenedPort, OperationId, OperationInfo,
    OutputItem, PathDiff, ProposeChanges, PullImage, PulledImage, ReadEvents, ReadFile, ReadOutput,
    ReadWorkspace, ReceiveFiles, RecordedEvent, RejectBundle, RejectedBundle, RemoveFile,
    RemoveImage, RemoveSecret, RemovedImages, RemovedVolume, Renew, ReplaceResult, ReplaceText,
    ResolveEndpoint, Restore, Result, RevokeKey, RotateSecret, RunNode, RunTool, Sandbox,
    SandboxList, Sandboxes, SearchFiles, SelectedRuntime, SendFiles, SentFiles, Session,
    SetPermissions, SetSecrets, ShowBundle, Snapshot, StatFile, StoredSecret, StoredSecrets,
    SyncFiles, TakeSnapshot, Tool, ToolResult, Volume, VolumeByName, VolumeList, VolumeRecord,
    WaitDownload, WebSocket, WorkspaceByName, WorkspaceHistory, WorkspaceInfo, WorkspaceList,
    WorkspaceTree, WriteFile, WriteResult, WriteSecretFile,
};
use stockade_core::{Operation, SnapshotId};
use stockade_durable::WorkflowId;

use crate::elsewhere;
use crate::failure::store_problem;
use crate::images;
use crate::nodes;
use crate::operation;
use crate::operations::files::Change;
use crate::operations::{
    attach, browser, bundles, cancel, collect, commands, create, directory, endpoint, events,
    exchange, execute, files, injections, keys, lifecycle, limits, metadata, network, output,
    query, restore, secret_file, secrets, session, snapshot, sync, tool, vault, volumes, watch,
    workspaces,
};
use crate::service::Service;
use crate::spec;

/// How long `wait_operation` waits.
const WAIT: Duration = Duration::from_secs(60);

#[async_trait]
impl Sandboxes for Service {
    async fn create(&self, caller: &Caller, request: CreateSandbox) -> Result<Sandbox> {
        create::create(self, caller, request).await
    }

    async fn select_runtime(
        &self,
        caller: &Caller,
        mut request: CreateSandbox,
    ) -> Result<SelectedRuntime> {
        elsewhere::check_sandbox(caller, &mut request, &self.inner.options)?;
        spec::check(&request)?;
        let name = self.inner.select_runtime(&request).await?;
        let runtime = self.inner.runtime(name)?;
        let image = self.inner.resolve_image(caller, &**runtime, &request).await?;
        let requested_runtime = request.runtime;
        Ok(SelectedRuntime { requested_runtime, runtime: name.to_owned(), image })
    }

    async fn start(&self, caller: &Caller, request: ById) -> Result<Sandbox> {
        // A sandbox whose processes are lost may still be recorded as running.
        watch::stop_if_lost(self, caller, &request.id).await?;
        lifecycle::change_state(self, caller, request, Operation::Start).await
    }

    async fn stop(&self, caller: &Caller, request: ById) -> Result<Sandbox> {
        let id = request.id.clone();
        let stopped = lifecycle::change_state(self, caller, request, Operation::Stop).await?;
        self.inner.published.wait_until_free(&id).await;
        Ok(stopped)
    }

    async fn pause(&self, caller: &Caller, request: ById) -> Result<Sandbox> {
        lifecycle::change_state(self, caller, request, Operation::Pause).await
    }

    async fn resume(&self, caller: &Caller, request: ById) -> Result<Sandbox> {
        lifecycle::change_state(self, caller, request, Operation::Resume).await
    }

    async fn renew(&self, caller: &Caller, request: Renew) -> Result<Sandbox> {
        lifecycle::renew(self, caller, request).await
    }

    async fn change_limits(&self, caller: &Caller, request: ChangeLimits) -> Result<Sandbox> {
        limits::change(self, caller, request).await
    }

    async fn change_network(&self, caller: &Caller, request: ChangeNetwork) -> Result<Sandbox> {
        network::change_network(self, caller, request).await
    }

    async fn set_secrets(&self, caller: &Caller, request: SetSecrets) -> Result<Sandbox> {
        secrets::set(self, caller, request).await
    }

    async fn change_injections(
        &self,
        caller: &Caller,
        request: ChangeInjections,
    ) -> Result<Sandbox> {
        injections::change(self, caller, request).await
    }

    async fn kill(&self, caller: &Caller, request: KillSandbox) -> Result<Sandbox> {
        let id = request.id.clone();
        let killed = lifecycle::kill(self, caller, request).await?;
        self.inner.published.wait_until_free(&id).await;
        Ok(killed)
    }

    async fn get_status(&self, caller: &Caller, request: GetSandbox) -> Result<Sandbox> {
        query::get(self, caller, request).await
    }

    async fn list(&self, caller: &Caller, request: ListSandboxes) -> Result<SandboxList> {
        query::list(self, caller, request).await
    }

    async fn execute(&self, caller: &Caller, request: Execute) -> Result<ExecuteResult> {
        execute::execute(self, caller, request).await
    }

    async fn execute_stream(&self, caller: &Caller, request: Execute) -> Result<OperationInfo> {
        output::start(self, caller, request).await
    }

    async fn operation(&self, caller: &Caller, request: OperationId) -> Result<OperationInfo> {
        operation::info(&self.engine, caller, &request).await
    }

    async fn wait_operation(&self, caller: &Caller, request: OperationId) -> Result<OperationInfo> {
        operation::info(&self.engine, caller, &request).await?;
        let id = WorkflowId::new(request.0.clone()).map_err(|error| store_problem(error.into()))?;
        let handle = self.engine.handle(&id);
        // The record contains the result.
        let _ = tokio::time::timeout(WAIT, handle.get_result::<serde_json::Value>()).await;
        operation::info(&self.engine, caller, &request).await
    }

    async fn cancel_operation(
        &self,
        caller: &Caller,
        request: OperationId,
    ) -> Result<OperationInfo> {
        cancel::cancel(self, caller, &request).await
    }

    async fn commands(&self, caller: &Caller, request: ListCommands) -> Result<CommandList> {
        commands::list(self, caller, request).await
    }

    async fn kill_command(&self, caller: &Caller, request: KillCommand) -> Result<CommandInfo> {
        commands::kill(self, caller, request).await
    }

    async fn get_command(&self, caller: &Caller, request: OperationId) -> Result<CommandInfo> {
        commands::find(self, caller, &request).await
    }

    async fn change_metadata(&self, caller: &Caller, request: ChangeMetadata) -> Result<Sandbox> {
        metadata::change(self, caller, request).await
    }

    async fn create_key(&self, caller: &Caller, request: CreateKey) -> Result<CreatedKey> {
        keys::create(self, caller, request).await
    }

    async fn keys(&self, caller: &Caller, request: ListKeys) -> Result<KeyList> {
        keys::list(self, caller, request).await
    }

    async fn revoke_key(&self, caller: &Caller, request: RevokeKey) -> Result<ApiKey> {
        keys::revoke(self, caller, request).await
    }

    async fn create_secret(&self, caller: &Caller, request: CreateSecret) -> Result<StoredSecret> {
        vault::create(self, caller, request).await
    }

    async fn import_secret(&self, caller: &Caller, request: ImportSecret) -> Result<StoredSecret> {
        vault::import(self, caller, request).await
    }

    async fn secrets(&self, caller: &Caller, _: Empty) -> Result<StoredSecrets> {
        vault::list(self, caller).await
    }

    async fn rotate_secret(&self, caller: &Caller, request: RotateSecret) -> Result<StoredSecret> {
        vault::rotate(self, caller, request).await
    }

    async fn remove_secret(&self, caller: &Caller, request: RemoveSecret) -> Result<Ack> {
        vault::remove(self, caller, request).await
    }

    async fn write_secret_file(
        &self,
        caller: &Caller,
        request: WriteSecretFile,
    ) -> Result<WriteResult> {
        secret_file::write(self, caller, request).await
    }

    async fn stat_file(&self, caller: &Caller, request: StatFile) -> Result<FileEntry> {
        files::stat(self, caller, request).await
    }

    async fn list_directory(&self, caller: &Caller, request: ListDirectory) -> Result<Listing> {
        files::list(self, caller, request).await
    }

    async fn make_directory(&self, caller: &Caller, request: MakeDirectory) -> Result<Ack> {
        files::change(self, caller, Change::MakeDirectory(request)).await.map(|_| Ack {})
    }

    async fn move_file(&self, caller: &Caller, request: MoveFile) -> Result<Ack> {
        files::change(self, caller, Change::Move(request)).await.map(|_| Ack {})
    }

    async fn remove_file(&self, caller: &Caller, request: RemoveFile) -> Result<Ack> {
        files::change(self, caller, Change::Remove(request)).await.map(|_| Ack {})
    }

    async fn set_permissions(&self, caller: &Caller, request: SetPermissions) -> Result<Ack> {
        files::change(self, caller, Change::SetPermissions(request)).await.map(|_| Ack {})
    }

    async fn search_files(&self, caller: &Caller, request: SearchFiles) -> Result<Listing> {
        files::search(self, caller, request).await
    }

    async fn replace_text(&self, caller: &Caller, request: ReplaceText) -> Result<ReplaceResult> {
        files::replace(self, caller, request).await
    }

    async fn apply_patch(&self, caller: &Caller, request: ApplyPatch) -> Result<AppliedPatch> {
        files::apply_patch(self, caller, request).await
    }

    async fn resolve_endpoint(
        &self,
        caller: &Caller,
        request: ResolveEndpoint,
    ) -> Result<Endpoint> {
        endpoint::resolve(self, caller, request).await
    }

    async fn http_request(&self, caller: &Caller, request: HttpRequest) -> Result<HttpResponse> {
        endpoint::request(self, caller, request).await
    }

    async fn open_port(&self, caller: &Caller, request: OpenPort) -> Result<OpenedPort> {
        browser::open(self, caller, request).await
    }

    async fn snapshot(&self, caller: &Caller, request: TakeSnapshot) -> Result<Snapshot> {
        snapshot::take(self, caller, request).await
    }

    async fn restore(&self, caller: &Caller, request: Restore) -> Result<Sandbox> {
        restore::restore(self, caller, request).await
    }

    async fn snapshots(&self, caller: &Caller, _: Empty) -> Result<Vec<Snapshot>> {
        snapshot::list(self, caller).await
    }

    async fn remove_snapshot(&self, caller: &Caller, request: SnapshotId) -> Result<Ack> {
        snapshot::remove(self, caller, request).await.map(|()| Ack {})
    }

    async fn images(&self, _: &Caller, _: Empty) -> Result<ImageList> {
        images::list(self).await
    }

    async fn pull_image(&self, caller: &Caller, request: PullImage) -> Result<PulledImage> {
        images::pull(self, caller, request).await
    }

    async fn remove_image(&self, caller: &Caller, request: RemoveImage) -> Result<RemovedImages> {
        images::remove(self, caller, request).await
    }

    async fn create_volume(&self, caller: &Caller, request: CreateVolume) -> Result<Volume> {
        volumes::create(self, caller, request).await
    }

    async fn volumes(&self, caller: &Caller, _: Empty) -> Result<VolumeList> {
        volumes::list(self, caller).await
    }

    async fn find_volume(&self, caller: &Caller, request: VolumeByName) -> Result<VolumeRecord> {
        volumes::find(self, caller, request).await
    }

    async fn remove_volume(&self, caller: &Caller, request: VolumeByName) -> Result<RemovedVolume> {
        volumes::remove(self, caller, request).await
    }

    async fn wait_download(
        &self,
        caller: &Caller,
        request: WaitDownload,
    ) -> Result<DownloadStatus> {
        let WaitDownload { image, seen } = request;
        Ok(self.inner.downloads.wait(&caller.owner, &image, seen).await)
    }

    async fn collect_changes(
        &self,
        caller: &Caller,
        request: CollectChanges,
    ) -> Result<CollectedChanges> {
        collect::collect(self, caller, request).await
    }

    async fn collect_directory(&self, caller: &Caller, request: CollectDirectory) -> Result<Ack> {
        directory::collect(self, caller, request).await.map(|()| Ack {})
    }

    async fn sync_from_vfs(&self, caller: &Caller, request: SyncFiles) -> Result<OperationInfo> {
        sync::start(self, caller, request, sync::Direction::FromVfs).await
    }

    async fn sync_to_vfs(&self, caller: &Caller, request: SyncFiles) -> Result<OperationInfo> {
        sync::start(self, caller, request, sync::Direction::ToVfs).await
    }

    async fn create_workspace(
        &self,
        caller: &Caller,
        request: WorkspaceByName,
    ) -> Result<WorkspaceInfo> {
        workspaces::create(self, caller, request).await
    }

    async fn workspaces(&self, caller: &Caller, _: Empty) -> Result<WorkspaceList> {
        workspaces::list(self, caller).await
    }

    async fn remove_workspace(&self, caller: &Caller, request: WorkspaceByName) -> Result<Ack> {
        workspaces::remove(self, caller, request).await.map(|()| Ack {})
    }

    async fn read_workspace(
        &self,
        caller: &Caller,
        request: ReadWorkspace,
    ) -> Result<WorkspaceTree> {
        workspaces::read(self, caller, request).await
    }

    async fn change_workspace(
        &self,
        caller: &Caller,
        request: ChangeWorkspace,
    ) -> Result<WorkspaceInfo> {
        workspaces::change(self, caller, request).await
    }

    async fn commit_workspace(
        &self,
        caller: &Caller,
        request: CommitWorkspace,
    ) -> Result<CommittedWorkspace> {
        workspaces::commit(self, caller, request).await
    }

    async fn workspace_history(
        &self,
        caller: &Caller,
        request: ReadWorkspace,
    ) -> Result<WorkspaceHistory> {
        workspaces::history(self, caller, request).await
    }

    async fn run_node(&self, caller: &Caller, request: RunNode) -> Result<NodeOutputs> {
        Box::pin(nodes::run(self, caller, request)).await
    }

    async fn nodes(&self, _: &Caller, _: Empty) -> Result<Vec<NodeType>> {
        Ok(nodes::list())
    }

    async fn run_tool(&self, caller: &Caller, request: RunTool) -> Result<ToolResult> {
        tool::run(self, caller, request).await
    }

    async fn tools(&self, _: &Caller, _: Empty) -> Result<Vec<Tool>> {
        Ok(tool::list(self))
    }

    async fn bundles(&self, caller: &Caller, request: ListBundles) -> Result<BundleList> {
        bundles::list(self, caller, request).await
    }

    async fn show_bundle(&self, caller: &Caller, request: ShowBundle) -> Result<BundleDetail> {
        bundles::show(self, caller, request).await
    }

    async fn propose_changes(
        &self,
        caller: &Caller,
        request: ProposeChanges,
    ) -> Result<CollectedChanges> {
        bundles::propose(self, caller, request).await
    }

    async fn apply_bundle(&self, caller: &Caller, request: ApplyBundle) -> Result<AppliedBundle> {
        bundles::apply(self, caller, request).await
    }

    async fn reject_bundle(
        &self,
        caller: &Caller,
        request: RejectBundle,
    ) -> Result<RejectedBundle> {
        bundles::reject(self, caller, request).await
    }

    async fn open_session(&self, caller: &Caller, request: OpenSession) -> Result<Session> {
        session::open(self, caller, request).await
    }

    async fn attach_command(&self, caller: &Caller, request: AttachCommand) -> Result<Session> {
        attach::attach(self, caller, request).await
    }

    async fn read_output(&self, caller: &Caller, request: ReadOutput) -> Result<Items<OutputItem>> {
        output::read(self, caller, request).await
    }

    async fn read_events(
        &self,
        caller: &Caller,
        request: ReadEvents,
    ) -> Result<Items<RecordedEvent>> {
        events::read(self, caller, request).await
    }

    async fn read_file(&self, caller: &Caller, request: ReadFile) -> Result<FileContent> {
        files::read(self, caller, request).await
    }

    async fn write_file(
        &self,
        caller: &Caller,
        request: WriteFile,
        content: FileContent,
    ) -> Result<WriteResult> {
        files::write(self, caller, request, content).await
    }

    async fn send_files(
        &self,
        caller: &Caller,
        request: SendFiles,
        content: FileContent,
    ) -> Result<SentFiles> {
        files::send(self, caller, request, content).await
    }

    async fn receive_files(&self, caller: &Caller, request: ReceiveFiles) -> Result<FileContent> {
        files::receive(self, caller, request).await
    }

    async fn connect(&self, caller: &Caller, request: Connect) -> Result<Box<dyn Duplex>> {
        endpoint::connect(self, caller, request).await
    }

    async fn http_stream(&self, caller: &Caller, request: HttpRequest) -> Result<HttpStream> {
        exchange::stream(self, caller, request).await
    }

    async fn web_socket(&self, caller: &Caller, request: WebSocket) -> Result<OpenWebSocket> {
        exchange::web_socket(self, caller, request).await
    }

    async fn diff_bundle(&self, caller: &Caller, request: DiffBundle) -> Result<Items<PathDiff>> {
        bundles::diff(self, caller, request).await
    }
}
