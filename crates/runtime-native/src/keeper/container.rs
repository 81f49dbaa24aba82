//! Sandboxes in containers that another engine has made: their init has connected to a client of
//! this keeper, which passes the connection on. From then on they are sandboxes like all others.

use std::io;
use std::os::fd::OwnedFd;

use stockade_core::SandboxSpec;
use stockade_core::sandbox::User;
use stockade_jail::ContainerSettings;
use stockade_jail::container::WaitingInit;
use stockade_jail::control;
use stockade_plan::LEASE;
use stockade_plan::limits::WatchedLimits;

use super::Key;
use super::boot_time;
use super::context::Context;
use super::jail::SOCKET;
use super::launch::{CreateRequest, exhausted, open, refused};
use super::reactor::{Interest, Source};
use super::record::{self, Record, Stage};
use super::sandbox::{Lifecycle, Sandbox};
use super::timers::Timer;
use crate::directory;
use crate::wire::{Container, Failure, InitialState, Layers};

/// The most file descriptors that a command may have.
const MAX_OPEN_FILES: u64 = 65_536;

impl Sandbox {
    /// Takes over a container, as [`Sandbox::create`] makes a jail.
    pub(super) fn take_over(
        context: &mut Context,
        key: Key,
        name: String,
        request: CreateRequest,
        is_created: &mut bool,
    ) -> Result<Self, Failure> {
        let CreateRequest { id, mut spec, layers, lock: connection, container, .. } = request;
        let (Some(layers), Some(container), Some(connection)) = (layers, container, connection)
        else {
            let text = "this keeper only takes over containers that a client has started";
            return Err(Failure::Invalid(text.to_owned()));
        };
        let Container { user, isolation } = *container;
        let init = WaitingInit::from_descriptor(connection)
            .map_err(|error| exhausted("the connection to init", &error))?;
        stockade_plan::check_command(spec.working_directory.as_deref(), &spec.environment)?;
        let environment = std::mem::take(&mut spec.environment);

        let entry = directory::name(&name).map_err(|e| refused(&e))?;
        context.sandboxes.mkdir(&entry, 0o700).map_err(|e| refused(&e))?;
        *is_created = true;
        let dir = open(context, &name)?;
        let begun = begun(&spec, &layers);
        let record = Record {
            id,
            has_environment: false,
            root: layers.root.clone(),
            begun,
            whole: layers.whole.clone(),
            is_container: true,
            subordinate: false,
            created_at_ms: boot_time::wall_ms(),
            lease: spec.lease.map(record::Lease::from_now),
            user,
            home_owner: Some(user),
            host_start: context.host_start.clone(),
            groups: Vec::new(),
            stage: Stage::Starting,
            spec,
        };
        let mut sandbox = Self::new(key, name, dir, record);
        sandbox.store(context, environment, Some(&layers))?;
        sandbox.watched = WatchedLimits::new(&sandbox.record.spec, &isolation.limits);
        sandbox.isolation = Some(isolation);
        sandbox.connect_container(context, user, init)?;
        Ok(sandbox)
    }

    fn connect_container(
        &mut self,
        context: &mut Context,
        user: User,
        init: WaitingInit,
    ) -> Result<(), Failure> {
        let listener: OwnedFd = control::listen(self.directory(), SOCKET)
            .map_err(|error| exhausted("a socket", &error))?;
        context.afford_sandbox(&listener)?;
        let settings = ContainerSettings {
            user: user.user,
            group: user.group,
            lease: LEASE,
            open_files: (context.descriptors / 4 * 3).min(MAX_OPEN_FILES),
            has_network: self.record.spec.network.is_some(),
            writes_to_host: self.record.spec.mounts.iter().any(|mount| mount.writable),
        };
        // Ids are the same inside and outside. Only root can act as another user.
        let host_start = rustix::process::geteuid().is_root().then_some(0);
        let launching = stockade_jail::launch_in_container(init, settings, &listener, host_start)
            .map_err(|error| self.launch_refused(&error, &context.data))?;
        let deadline = launching.deadline().saturating_duration_since(std::time::Instant::now());
        context.timers.after(deadline, Timer::Launch(self.key));
        let launching = context
            .reactor
            .watch(launching, Source::Launch(self.key), Interest::IN)
            .map_err(|error: io::Error| exhausted("an event", &error))?;
        self.life = Lifecycle::Launching(Box::new(launching));
        self.watch_lease(context);
        Ok(())
    }
}

/// The initial state of the workspace, under the path that this request has for it.
fn begun(spec: &SandboxSpec, layers: &Layers) -> Option<InitialState> {
    let (workspace, begun) = (spec.workspace.as_ref()?, layers.begun.clone()?);
    Some(InitialState { host: workspace.host.clone(), ..begun })
}
