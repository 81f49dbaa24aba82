//! `send_files`, `receive_files`: whole trees as one stream each; and the record of what was read.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use stockade_api::{Bytes, Caller, FileContent, ReceiveFiles, Result, SendFiles, SentFiles};
use stockade_core::Problem;
use stockade_core::access::Level;
use stockade_core::event::Direction;
use stockade_durable::{Context, Failure, StartOptions, Step};
use stockade_runtime::{Content, SandboxPath, TreeProgress};
use tokio::io::{AsyncRead, ReadBuf};

use super::{copied, refuse_secret_files, resolve_allowed, use_sandbox};
use crate::events;
use crate::failure::{runtime_problem, store_problem, to_failure};
use crate::handoff::{Handoff, Once};
use crate::inner::Inner;
use crate::operation::Input;
use crate::operations::record_with_next;
use crate::owned_sandbox::{ActiveSandbox, OwnedSandbox};
use crate::service::Service;

/// The workflow's name.
pub(crate) const SEND: &str = "sandbox.send_files";

/// Creates a tree of files.
pub(crate) async fn send(
    service: &Service,
    caller: &Caller,
    request: SendFiles,
    content: FileContent,
) -> Result<SentFiles> {
    let owned = use_sandbox(service, caller, &request.sandbox_id).await?;
    target(&service.inner, &owned, &request).await?;
    let handoff = Handoff { content: Some(content), ..Handoff::default() };
    let options = StartOptions::default();
    let started = service.start_with(SEND, caller, &request, handoff, options);
    started.await?.get_result().await.map_err(store_problem)
}

/// The directory, if the rules allow creating it. Each entry is checked when it is created.
async fn target(inner: &Inner, owned: &OwnedSandbox, request: &SendFiles) -> Result<SandboxPath> {
    let runtime = &**inner.runtime(&owned.runtime)?;
    resolve_allowed(runtime, owned, Level::ReadWrite, &request.path, true).await
}

/// The workflow.
pub(crate) async fn perform(
    inner: Arc<Inner>,
    context: Context,
    input: Input<SendFiles>,
) -> std::result::Result<SentFiles, Failure> {
    let request = &input.request;
    let content = Once::new(inner.handoffs.take(context.id()).and_then(|handoff| handoff.content));
    let owned = inner.use_in_workflow(&context, &input.owner, &request.sandbox_id, None).await?;
    let sent: SentFiles = context
        .step_with("send", record_with_next(), async |_: Step| {
            let Some(FileContent(content)) = content.take() else {
                return Err(to_failure(super::change::interrupted()));
            };
            let path = target(&inner, &owned, request).await.map_err(to_failure)?;
            let runtime = inner.runtime(&owned.runtime).map_err(to_failure)?;
            let size = runtime.unpack(&owned.id, &path, request.mode, content).await;
            let size = size.map_err(|error| to_failure(runtime_problem(&error)))?;
            Ok(SentFiles {
                files: size.files,
                directories: size.directories,
                links: size.links,
                size_bytes: size.bytes,
            })
        })
        .await?;
    let paths = sent.files.saturating_add(sent.directories).saturating_add(sent.links);
    let payload = copied(Direction::In, &request.path, paths, sent.size_bytes);
    context.finish_with(vec![owned.touch(), events::record(&context, &owned, payload)]);
    Ok(sent)
}

/// The tree of files in a directory.
pub(crate) async fn receive(
    service: &Service,
    caller: &Caller,
    request: ReceiveFiles,
) -> Result<FileContent> {
    let owned = use_sandbox(service, caller, &request.sandbox_id).await?;
    let runtime = &**service.inner.runtime(&owned.runtime)?;
    let path = resolve_allowed(runtime, &owned, Level::Read, &request.path, true).await?;
    refuse_secret_files(runtime, &owned.id, &path).await?;
    let mark = request.mark.map(|Bytes(mark)| mark);
    let packed = runtime.pack(&owned.id, &path, mark).await;
    let packed = packed.map_err(|error| runtime_problem(&error))?;
    let size = SizeSource::Tree(packed.progress);
    Ok(RecordedContent::wrap(service, owned, request.path, packed.content, size))
}

/// How much of a content was read.
pub(super) enum SizeSource {
    /// One file, whose bytes are counted.
    File,
    /// A tree, whose writer counts.
    Tree(Arc<TreeProgress>),
}

/// A content that is read from a sandbox. When its reader has ended, an event records how much left
/// the sandbox, also if that was not all.
pub(super) struct RecordedContent {
    content: Content,
    bytes: u64,
    size: SizeSource,
    path: Bytes,
    service: Service,
    sandbox: Option<ActiveSandbox>,
}

impl RecordedContent {
    /// Wraps a content.
    pub(super) fn wrap(
        service: &Service,
        sandbox: ActiveSandbox,
        path: Bytes,
        content: Content,
        size: SizeSource,
    ) -> FileContent {
        let (service, sandbox) = (service.clone(), Some(sandbox));
        FileContent(Box::pin(Self { content, bytes: 0, size, path, service, sandbox }))
    }
}

impl AsyncRead for RecordedContent {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut TaskContext<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = self.content.as_mut().poll_read(context, buffer);
        self.bytes += (buffer.filled().len() - before) as u64;
        read
    }
}

impl Drop for RecordedContent {
    fn drop(&mut self) {
        let Some(sandbox) = self.sandbox.take() else { return };
        let (paths, bytes) = match &self.size {
            SizeSource::File => (1, self.bytes),
            SizeSource::Tree(progress) => progress.read(),
        };
        let payload = copied(Direction::Out, &self.path, paths, bytes);
        // Reading is no recorded operation, so the event has an id of its own.
        let operation = uuid::Uuid::now_v7().simple().to_string();
        let event = events::statement(&operation, &sandbox, payload);
        let store = self.service.inner.store.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                // A full disk is reported by operations that write.
                let recorded: std::result::Result<(), Problem> =
                    store.execute(vec![event]).await.map_err(store_problem);
                drop((recorded, sandbox));
            });
        }
    }
}
