//! Which server of a cluster executes a request: the one that holds its sandbox, or has the volume, the
//! workspace or the bundle that it names. A request that names none is executed where it arrives; one for a
//! list of files on all servers.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use stockade_api::{Caller, Result};
use stockade_core::{Code, OwnerId, Problem, SandboxId};
use stockade_durable::WorkflowId;

use crate::failure::store_problem;
use crate::hosts::{self, Presence};
use crate::operations::volumes;
use crate::possession::Kind;
use crate::possessions;
use crate::service::Service;
use crate::store::{hosts as records, possessions as recorded};

mod object;

use object::{Named, New, Object, object};

/// Another server, which executes a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// Its id.
    pub host: String,
    /// Its URL.
    pub address: String,
}

/// Where a request is executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// On this server.
    Here,
    /// On another one.
    There(Destination),
    /// On all servers; their answers become one.
    Everywhere {
        /// The others that answer.
        others: Vec<Destination>,
        /// The ids of those that have more of what is listed, and do not answer.
        silent: Vec<String>,
    },
    /// No server has recorded what the request names: the others may have it without a record.
    Unrecorded(Unrecorded),
}

/// What no server has recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unrecorded {
    /// What it is.
    pub kind: Kind,
    /// Its names.
    pub names: Vec<String>,
    /// The other servers that answer.
    pub others: Vec<Destination>,
}

/// How what a request names is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// In the records.
    Records,
    /// In the records, after all servers have recorded what they have.
    AllServers,
}

impl Service {
    /// Where a request of a caller is executed.
    ///
    /// # Errors
    /// [`Code::Unreachable`] if the server that has what the request names does not answer;
    /// [`Code::Unsupported`] if several servers have a part of it.
    pub async fn placement(
        &self,
        caller: &Caller,
        operation: &str,
        request: &Value,
        lookup: Lookup,
    ) -> Result<Placement> {
        if self.inner.options.cluster.is_none() {
            return Ok(Placement::Here);
        }
        let (store, owner) = (&*self.inner.store, &caller.owner);
        let (what, host) = match object(operation, request) {
            Object::Nothing => return Ok(Placement::Here),
            Object::List(kind) => return self.everywhere(owner, kind).await,
            Object::Sandbox(id) => ("sandbox", records::of_sandbox(store, id, owner).await?),
            Object::Snapshot(id) => ("snapshot", records::of_snapshot(store, id, owner).await?),
            Object::Operation(id) => ("operation", self.host_of_operation(id).await?),
            Object::Synchronization { sandbox, workspace } => {
                let place = self.synchronization(caller, sandbox, workspace, lookup).await?;
                let Found::At(host) = place else { return self.unrecorded(place).await };
                ("sandbox", host)
            }
            Object::Named(Named { kind, name, is_new }) => {
                let generated = match (name, is_new) {
                    // Without a key, each such request means another volume.
                    (None, true) if caller.idempotency_key.is_some() => {
                        Some(volumes::generated_name(caller)?.to_string())
                    }
                    _ => None,
                };
                let place = match name.or(generated.as_deref()) {
                    None => Found::At(None),
                    Some(name) => self.holder(owner, kind, name, lookup).await?,
                };
                let is_anywhere = matches!(operation, "find_volume" | "remove_volume");
                match place {
                    // It may be a cache, which several servers have.
                    Found::Unrecorded(..) | Found::At(None) if is_anywhere => {
                        return self.everywhere(owner, None).await;
                    }
                    Found::At(None) if is_new => return self.place_new().await,
                    Found::At(host) => (kind.as_str(), host),
                    place => return self.unrecorded(place).await,
                }
            }
            Object::New(new) => {
                let place = self.place_of_new(owner, &new, lookup).await?;
                match place {
                    Found::At(None) if new.is_local && !self.holds_sandboxes() => {
                        return Err(holds_none());
                    }
                    Found::At(None) => return self.place_new().await,
                    Found::At(Some(host)) if new.is_local && host != self.inner.host() => {
                        return Err(apart(&host));
                    }
                    Found::At(host) => ("server", host),
                    place => return self.unrecorded(place).await,
                }
            }
        };
        let own = self.inner.host();
        let Some(host) = host.filter(|host| host != own) else { return Ok(Placement::Here) };
        match self.reach(what, &host).await {
            Err(_) if operation == "get_status" => Ok(Placement::Here),
            // Only its record is left, which each server can end.
            Err(_) if ENDS.contains(&operation) && self.inner.is_given_up(&host).await? => {
                Ok(Placement::Here)
            }
            reached => reached.map(Placement::There),
        }
    }

    /// The other server that holds a sandbox of anyone, if it answers: it checks the owner itself.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn other_holder(&self, id: &SandboxId) -> Result<Option<String>> {
        let host = records::holder_of(&*self.inner.store, id.as_str()).await?;
        let own = self.inner.host();
        let Some(host) = host.filter(|host| host != own) else { return Ok(None) };
        let is_alive = hosts::presence(&self.inner, &host).await? == Presence::Alive;
        Ok(is_alive.then_some(host))
    }

    /// Another server, by its id.
    ///
    /// # Errors
    /// [`Code::Unreachable`] if it does not answer.
    pub async fn server(&self, host: &str) -> Result<Destination> {
        self.reach("request", host).await
    }

    /// The server of a workflow run, by that of its durable workflow, for an operation on the run.
    ///
    /// # Errors
    /// [`Code::Unreachable`] if it does not answer.
    pub async fn placement_of_run(&self, host: Option<&str>) -> Result<Placement> {
        match host.filter(|host| *host != self.inner.host()) {
            Some(host) if self.inner.options.cluster.is_some() => {
                self.reach("run", host).await.map(Placement::There)
            }
            _ => Ok(Placement::Here),
        }
    }

    fn holds_sandboxes(&self) -> bool {
        self.inner.options.cluster.as_ref().is_none_or(|cluster| cluster.holds_sandboxes)
    }

    /// The server for something new that belongs to no other thing.
    async fn place_new(&self) -> Result<Placement> {
        match self.holds_sandboxes() {
            true => Ok(Placement::Here),
            false => self.least_loaded().await.map(Placement::There),
        }
    }

    /// The one server that has everything that a new sandbox is made of.
    async fn place_of_new(&self, owner: &OwnerId, new: &New<'_>, lookup: Lookup) -> Result<Found> {
        let mut hosts = BTreeSet::new();
        if let Some(snapshot) = new.snapshot {
            hosts.extend(records::of_snapshot(&*self.inner.store, snapshot, owner).await?);
        }
        let mut missing = Vec::new();
        for volume in &new.volumes {
            match self.holder(owner, Kind::Volume, volume, lookup).await? {
                Found::At(host) => hosts.extend(host),
                Found::Unrecorded(..) => missing.push((*volume).to_owned()),
            }
        }
        if !missing.is_empty() {
            return Ok(Found::Unrecorded(Kind::Volume, missing));
        }
        if let Some(workspace) = new.workspace {
            // A workspace of another system may have any name: one that nobody has recorded is no error.
            hosts.extend(
                recorded::host_of(&*self.inner.store, owner, Kind::Workspace, workspace).await?,
            );
        }
        let mut hosts = hosts.into_iter();
        match (hosts.next(), hosts.next()) {
            (Some(one), Some(other)) => Err(on_two_servers(&one, &other)),
            (host, _) => Ok(Found::At(host)),
        }
    }

    /// The server of a synchronization, which needs both sides.
    async fn synchronization(
        &self,
        caller: &Caller,
        sandbox: &str,
        workspace: Option<&str>,
        lookup: Lookup,
    ) -> Result<Found> {
        let host = records::of_sandbox(&*self.inner.store, sandbox, &caller.owner).await?;
        let (Some(host), Some(workspace)) = (&host, workspace) else { return Ok(Found::At(host)) };
        match self.holder(&caller.owner, Kind::Workspace, workspace, lookup).await? {
            Found::At(Some(other)) if other != *host => Err(on_two_servers(host, &other)
                .remedied_by(format!("create a sandbox with the workspaceId {workspace}: it gets to the server of the workspace"))),
            Found::At(_) => Ok(Found::At(Some(host.clone()))),
            unrecorded => Ok(unrecorded),
        }
    }

    /// The server that has something of an owner.
    async fn holder(
        &self,
        owner: &OwnerId,
        kind: Kind,
        name: &str,
        lookup: Lookup,
    ) -> Result<Found> {
        let mut found = self.recorded_holder(owner, kind, name).await?;
        if found.is_none() && lookup == Lookup::Records {
            // A command without a server may have created it here.
            possessions::publish(&self.inner, owner, kind).await?;
            found = self.recorded_holder(owner, kind, name).await?;
        }
        match found {
            None if lookup == Lookup::Records => Ok(Found::Unrecorded(kind, vec![name.to_owned()])),
            found => Ok(Found::At(found)),
        }
    }

    async fn recorded_holder(
        &self,
        owner: &OwnerId,
        kind: Kind,
        name: &str,
    ) -> Result<Option<String>> {
        let store = &*self.inner.store;
        if kind != Kind::Bundle {
            return recorded::host_of(store, owner, kind, name).await;
        }
        // A bundle may be named by the start of its id, or be the latest of the only project.
        let prefix = if name == LATEST { "" } else { name };
        let found = recorded::with_prefix(store, owner, kind, prefix).await?;
        let hosts: BTreeSet<_> = found.iter().map(|(_, host)| host.clone()).collect();
        match hosts.len() {
            0 | 1 => Ok(hosts.into_iter().next()),
            _ => {
                let ids: Vec<_> = found.iter().map(|(id, _)| id.get(..12).unwrap_or(id)).collect();
                Err(Problem::new(Code::BundleNotFound, format!("{name:?} means several bundles"))
                    .because(format!("there are {} on {} servers", ids.join(", "), hosts.len()))
                    .remedied_by("name one by its id: stockade bundles"))
            }
        }
    }

    /// Where a request is executed that names what nobody has recorded.
    async fn unrecorded(&self, found: Found) -> Result<Placement> {
        let Found::Unrecorded(kind, names) = found else { return Ok(Placement::Here) };
        let others = self.others().await?;
        Ok(Placement::Unrecorded(Unrecorded { kind, names, others }))
    }

    /// All servers, for a list of what an owner has, or for what is on several of them.
    async fn everywhere(&self, owner: &OwnerId, kind: Option<Kind>) -> Result<Placement> {
        let others = self.others().await?;
        let mut silent = match kind {
            Some(kind) => recorded::hosts_with(&*self.inner.store, owner, kind).await?,
            None => Vec::new(),
        };
        let own = self.inner.host();
        silent.retain(|host| host != own && !others.iter().any(|other| other.host == *host));
        Ok(Placement::Everywhere { others, silent })
    }

    /// The other servers that answer.
    async fn others(&self) -> Result<Vec<Destination>> {
        let mut alive = Vec::new();
        for host in records::list(&*self.inner.store).await? {
            if host.id != self.inner.host()
                && host.lost_at.is_none()
                && hosts::presence(&self.inner, &host.id).await? == Presence::Alive
            {
                alive.push(Destination { host: host.id, address: host.address });
            }
        }
        Ok(alive)
    }

    /// The server that runs an operation. The owner is checked there.
    async fn host_of_operation(&self, id: &str) -> Result<Option<String>> {
        let Ok(id) = WorkflowId::new(id) else { return Ok(None) };
        let info = self.engine.info(&id).await.map_err(store_problem)?;
        // What has ended is read from its record.
        Ok(info.filter(|info| !info.status.is_terminal()).and_then(|info| info.place))
    }

    /// Another server, which has something, if it answers.
    async fn reach(&self, what: &str, host: &str) -> Result<Destination> {
        let found = records::find(&*self.inner.store, host).await?;
        match (found, hosts::presence(&self.inner, host).await?) {
            (Some(row), Presence::Alive) => {
                Ok(Destination { host: host.to_owned(), address: row.address })
            }
            (_, Presence::Silent(silence)) => Err(silent(what, host, silence)),
            (None, Presence::Alive) => Err(silent(what, host, Duration::MAX)),
        }
    }

    /// Waits until another server of the cluster does not renew its lease any more: a request to it may
    /// never be answered.
    pub async fn wait_until_silent(&self, host: &str) -> Problem {
        let Some(cluster) = &self.inner.options.cluster else {
            return std::future::pending().await;
        };
        loop {
            tokio::time::sleep(cluster.heartbeat).await;
            // If the database cannot be read now, the next check reads it.
            if let Ok(Presence::Silent(silence)) = hosts::presence(&self.inner, host).await {
                return silent("request", host, silence);
            }
        }
    }

    /// The server for a new sandbox: the one with the fewest.
    async fn least_loaded(&self) -> Result<Destination> {
        let loads = records::loads(&*self.inner.store).await?;
        let load =
            |host: &str| loads.iter().find(|(id, _)| id == host).map_or(0, |(_, load)| *load);
        let mut hosts = records::list(&*self.inner.store).await?;
        hosts.retain(|host| host.holds_sandboxes && host.id != self.inner.host());
        hosts.sort_by_key(|host| (load(&host.id), host.id.clone()));
        for host in hosts {
            if hosts::presence(&self.inner, &host.id).await? == Presence::Alive {
                return Ok(Destination { host: host.id, address: host.address });
            }
        }
        Err(Problem::new(Code::Unreachable, "no server that holds sandboxes answers")
            .because("this server holds none itself")
            .remedied_by("start one without `--queues none`"))
    }
}

/// The name of the newest bundle.
const LATEST: &str = "latest";
/// The operations that end what a lost server has: its record is ended by another one.
const ENDS: [&str; 5] =
    ["kill", "remove_snapshot", "remove_volume", "remove_workspace", "reject_bundle"];

/// What is known about the server of something.
#[derive(Debug)]
enum Found {
    /// That server; none if no server has it.
    At(Option<String>),
    /// No record has these names.
    Unrecorded(Kind, Vec<String>),
}

fn silent(what: &str, host: &str, silence: Duration) -> Problem {
    let message = match what {
        "server" => "the server that has what the request names does not answer".to_owned(),
        what => format!("the server that holds the {what} does not answer"),
    };
    let why = match silence {
        Duration::MAX => format!("the server {host} is not known any more"),
        silence => format!("the server {host} was seen {} s ago", silence.as_secs()),
    };
    let ending = match what {
        "sandbox" => "stockade kill",
        "snapshot" => "stockade snapshots --remove",
        "volume" => "stockade volume rm",
        "workspace" => "stockade workspace rm",
        "bundle" => "stockade reject",
        _ => {
            return Problem::new(Code::Unreachable, message)
                .because(why)
                .remedied_by("start that server again, then retry");
        }
    };
    Problem::new(Code::Unreachable, message).because(why).remedied_by(format!(
        "start that server again, then retry; if it never comes back, `{ending}` ends the record of the \
         {what} once the server is given up"
    ))
}

fn holds_none() -> Problem {
    Problem::new(Code::Unsupported, "this server holds no sandboxes")
        .because("the request names something of the host on which the sandbox is created")
        .remedied_by("send the request to the server of that host")
}

/// The problem of a new sandbox with something of this host and something of another server.
fn apart(host: &str) -> Problem {
    Problem::new(Code::Unsupported, "a sandbox is on one server with all that it is made of")
        .because(format!(
            "the request names something of the host on which the sandbox is created, and something that \
             the server {host} has"
        ))
        .remedied_by("send the request to that server, or name only what is there")
}

/// The problem of a request that needs two servers.
fn on_two_servers(one: &str, other: &str) -> Problem {
    Problem::new(Code::Unsupported, "what the request names is on different servers")
        .because(format!("a part is on the server {one}, and another one on the server {other}"))
        .remedied_by("name only what is on one of them")
}
