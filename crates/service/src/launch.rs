//! The launch of a service: its parts, and its background work.

use std::sync::Arc;

use stockade_api::Result;
use stockade_core::{Code, Problem, SandboxId};
use stockade_durable::{Engine, Queue, Store};
use stockade_runtime::Runtime;
use tokio::sync::watch;

use crate::activity::Activity;
use crate::attachments::Attachments;
use crate::downloads::Downloads;
use crate::egress::{Egress, StoredValues};
use crate::failure::store_problem;
use crate::handoff::Handoffs;
use crate::hosts;
use crate::inner::Inner;
use crate::kill_notices::KillNotices;
use crate::link_keys::LinkKeys;
use crate::locks::Locks;
use crate::operations;
use crate::options::Options;
use crate::possession::Possessions;
use crate::possessions;
use crate::published::Published;
use crate::reaper;
use crate::remains;
use crate::reserve::Reserve;
use crate::service::Service;
use crate::ssh_agents::SshAgents;
use crate::store::{identity, sandboxes};
use crate::terminations::Terminations;
use crate::tools::Tools;
use crate::vault::Vault;
use crate::wakers::Wakers;

/// The version of the workflows, not of the program: a new program continues the workflows of an
/// old one, and watches its sandboxes. It is raised only when a change of a workflow's steps cannot
/// be replayed, together with a migration that decides how waiting workflows end.
const WORKFLOWS: &str = "1";

impl Service {
    /// Launches a service on a store and the given runtimes, the default one first. It continues
    /// the work of an earlier service.
    ///
    /// # Errors
    /// When the store cannot be used, or no runtime is given.
    pub async fn launch(
        store: Arc<dyn Store>,
        runtimes: Vec<Arc<dyn Runtime>>,
        options: Options,
    ) -> Result<Self> {
        let default = runtimes.first().map(|runtime| runtime.name());
        let default = default.ok_or_else(|| Problem::new(Code::Unsupported, "no runtime"))?;
        let stop = watch::Sender::new(false);
        let inner = Arc::new(Inner {
            store: store.clone(),
            runtimes: runtimes.into_iter().map(|runtime| (runtime.name(), runtime)).collect(),
            id: identity::find_or_create(&*store).await?,
            locks: Locks::default(),
            owner_locks: Locks::default(),
            sync_locks: Locks::default(),
            volume_locks: Locks::default(),
            terminations: Terminations::default(),
            key_locks: Locks::default(),
            activity: Activity::default(),
            attachments: Attachments::default(),
            kill_notices: KillNotices::default(),
            handoffs: Handoffs::default(),
            wakers: Wakers::default(),
            tools: Tools::built_in(),
            egress: Egress::new(options.egress.clone(), &store, stop.subscribe()),
            ssh_agents: SshAgents::new(&store),
            vault: Vault::new(options.vault_key.clone(), options.deadline),
            published: Published::default(),
            downloads: Downloads::default(),
            site: std::sync::OnceLock::new(),
            link_keys: LinkKeys::default(),
            possessions: Possessions::default(),
            stop,
            revocations: watch::Sender::new(()),
            default_runtime: default,
            reserve: options.home.as_ref().map(|home| Reserve::of(&home.path)),
            options,
        });
        let source: Arc<dyn StoredValues> = Arc::<Inner>::clone(&inner);
        inner.egress.fetch_from(Arc::downgrade(&source));
        let queue = Queue {
            name: operations::QUEUE,
            concurrency: Some(inner.options.queue_concurrency),
            worker_concurrency: Some(inner.options.worker_concurrency),
            rate_limit: None,
        };
        let mut builder = Engine::builder(store)
            .executor_id(inner.options.executor_id.clone())
            // Sandboxes are where they were created, and so are the operations on them.
            .place(inner.options.executor_id.clone())
            .application_version(WORKFLOWS.to_owned())
            // A watcher records no progress while it watches, however often the server is killed.
            .max_recovery_attempts(u32::MAX)
            .queue(queue);
        if let Some(cluster) = &inner.options.cluster {
            builder = builder.heartbeat(cluster.heartbeat);
            if !cluster.holds_sandboxes {
                builder = builder.works_on(Vec::new());
            }
        }
        let builder = operations::register(builder, &inner);
        let engine = builder.launch().await.map_err(store_problem)?;
        let service = Self { engine, inner };
        operations::publish::resume(&service).await?;
        hosts::announce(&service.inner).await?;
        // Before a new sandbox can have the id of one of them.
        remains::remove_all(&service.inner).await;
        // Before they are recorded again.
        possessions::remove_given_up(&service.inner).await;
        possessions::spawn(&service.inner);
        reaper::spawn(&service.engine, &service.inner);
        hosts::spawn(&service.engine, &service.inner);
        Ok(service)
    }

    /// Runs the reaper once, as happens every minute: sandboxes, snapshots and commands of ours
    /// that have no record are removed from their runtime.
    pub async fn sweep(&self) {
        reaper::sweep(&self.engine, &self.inner).await;
    }

    /// The sandboxes of this server that are not terminated.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn live(&self) -> Result<Vec<SandboxId>> {
        let live = sandboxes::live(&*self.inner.store, self.inner.host()).await?;
        Ok(live.into_iter().map(|(id, _)| id).collect())
    }
}
