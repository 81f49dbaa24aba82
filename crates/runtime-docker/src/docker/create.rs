//! The creation of a sandbox: the image, the files, the container, its init, and at last the keeper.
//! A failure on the way leaves nothing; what a killed process leaves, the labels find.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::models::{ContainerCreateBody, SystemInfo};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use stockade_core::runtime::{RuntimeName, Support};
use stockade_core::sandbox::{BestEffort, LimitName, Root, User};
use stockade_core::{
    Enforcement, Isolation, Level, LimitReport, SandboxId, SandboxSpec, WallReport,
};
use stockade_jail::Wall;
use stockade_plan::{HostPaths, Request, Users};
use stockade_runtime::{Capability, Error, Result, Status, Unsupported};
use stockade_runtime_native::{NewContainer, StagedContainer};

use super::{Docker, Opened};
use crate::container;
use crate::engine::Engine;
use crate::image::Image;
use crate::init;
use crate::labels::Owner;
use crate::programs::{LIBRARIES, Portable};
use crate::request::{self, Bind, OwnVolume, Parts};

/// The user of a sandbox for which neither a request nor an image names one.
const ORDINARY: User = User { user: 1000, group: 1000 };
/// How long another process may take to create or remove the same sandbox.
const LOCK: Duration = Duration::from_secs(60);
const LOCK_POLL: Duration = Duration::from_millis(20);
/// The directories of a `<Sandbox>` for its request and its result.
const REQUEST: &str = "/request";
const RESULT: &str = "/result";
/// The directory of the locks.
const LOCKS: &str = "creating";

/// The lock of one sandbox, while it is created or removed.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Takes the lock; `None` while another process has it.
    pub(super) fn attempt(directory: &Path, name: &str) -> Result<Option<Self>> {
        let locks = directory.join(LOCKS);
        let path = locks.join(name);
        let failed = |source| Error::Host { path: path.display().to_string(), source };
        std::fs::create_dir_all(&locks).map_err(failed)?;
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(failed)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(errno) => return Err(failed(errno.into())),
        }
        // Its last holder may have removed it meanwhile.
        let same = |named: rustix::fs::Stat| {
            let own = rustix::fs::fstat(file.as_fd());
            own.is_ok_and(|own| (own.st_dev, own.st_ino) == (named.st_dev, named.st_ino))
        };
        Ok(rustix::fs::stat(&path).is_ok_and(same).then_some(Self { file, path }))
    }

    /// Waits for the lock.
    pub(super) async fn take(directory: &Path, name: &str) -> Result<Self> {
        let end = tokio::time::Instant::now() + LOCK;
        loop {
            if let Some(lock) = Self::attempt(directory, name)? {
                return Ok(lock);
            }
            if tokio::time::Instant::now() >= end {
                return Err(Error::Deadline("wait for another operation on the sandbox"));
            }
            tokio::time::sleep(LOCK_POLL).await;
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While it is still locked. The next process makes another file.
        let _ = std::fs::remove_file(&self.path);
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

impl Docker {
    pub(super) async fn create_sandbox(
        &self,
        id: &SandboxId,
        requested: &SandboxSpec,
    ) -> Result<Status> {
        self.check(requested)?;
        let engine = self.engine()?;
        let info = self.usable_engine().await?;
        let opened = self.opened().await?;
        let Opened { native, owner, directory } = opened;
        let _lock = Lock::take(directory, id.as_str()).await?;
        let image = self.image(requested).await?;
        let spec = with_image(requested, &image);
        if let Some(existing) = native.find(id, &spec).await? {
            return Ok(existing);
        }
        let limits = limits(&spec, &info)?;
        let user = self.user(engine, owner, id, &spec, &image).await?;
        let binds = self.host_binds(&spec, user, opened)?;
        let init = init::program(directory, &owner.build)?;
        let resolver = init::resolver(directory, spec.network.is_some())?;
        let staged = native.stage(&spec, user, Root::Image(image.id.clone())).await?;
        let enforced = enforced(&spec, &limits);
        let body = body(
            Body {
                spec: &enforced,
                image: &image,
                user,
                init: &init,
                resolver: &resolver,
                binds: &binds,
            },
            &staged,
            owner.of_sandbox(id),
        )?;
        let name = owner.container(id);
        // One that a killed process has left.
        container::remove(engine, &name).await?;
        let started = self.start(engine, &name, body, &staged, &binds).await;
        let result = match started {
            Ok(init) => {
                let isolation = isolation(&spec, user, limits);
                let new = NewContainer { user, isolation, init };
                native.take_over(id, &spec, &staged, new).await
            }
            Err(error) => Err(error),
        };
        if result.is_err() {
            // The first error is reported; a container that stays is found by its labels.
            let _ = container::remove(engine, &name).await;
        }
        result
    }

    /// What the engine can do, if it is one whose containers are what is promised.
    pub(super) async fn usable_engine(&self) -> Result<SystemInfo> {
        let info = self.engine()?.info().await?;
        check_engine(&info)?;
        Ok(info)
    }

    /// Refuses what a container cannot have, before anything is made.
    fn check(&self, spec: &SandboxSpec) -> Result<()> {
        let lacks = |capability: Capability| -> Result<()> {
            match RuntimeName::Docker.declares(capability) {
                Support::No(reason) => {
                    let remedy = Some("--runtime native".to_owned());
                    Err((capability, Unsupported { reason: reason.to_owned(), remedy }).into())
                }
                Support::Yes | Support::Conditional(_) => Ok(()),
            }
        };
        if matches!(spec.root, Root::Host) {
            lacks(Capability::HostRoot)?;
        }
        if let Root::Directory(path) = &spec.root {
            let path = path.display();
            return Err(Error::Invalid(format!(
                "a container starts from an image of the engine, and {path} is a path"
            )));
        }
        if !spec.access.is_empty() {
            lacks(Capability::AccessRules)?;
        }
        if spec.private_base {
            lacks(Capability::PrivateBase)?;
        }
        if !spec.volumes.is_empty() || !spec.caches.is_empty() {
            lacks(Capability::Volumes)?;
        }
        if spec.ssh_agent {
            lacks(Capability::SshAgent)?;
        }
        if spec.network.is_some() && !rustix::process::geteuid().is_root() {
            return Err((Capability::Egress, no_egress()).into());
        }
        Ok(())
    }

    /// The image that a sandbox starts from.
    async fn image(&self, spec: &SandboxSpec) -> Result<Image> {
        let (engine, opened) = (self.engine()?, self.opened().await?);
        match &spec.root {
            Root::Image(name) => Image::find(engine, name).await,
            Root::Snapshot(snapshot) => {
                // An unknown snapshot is reported as that.
                opened.native.root_of_snapshot(snapshot).await?;
                Image::find(engine, &opened.owner.image_name(snapshot)).await
            }
            Root::Host | Root::Directory(_) => {
                Err(Error::Invalid("a container needs an image of the engine".to_owned()))
            }
        }
    }

    /// The only user of a sandbox: the requested one, else the image's, else an ordinary one.
    async fn user(
        &self,
        engine: &Engine,
        owner: &Owner,
        id: &SandboxId,
        spec: &SandboxSpec,
        image: &Image,
    ) -> Result<User> {
        let own = User {
            user: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
        };
        let named = match (spec.user, image.numeric_user()) {
            (Some(user), _) => Some(user),
            (None, Ok(user)) => user,
            (None, Err(name)) => Some(users::resolve(engine, owner, id, image, name).await?),
        };
        match named {
            Some(user) if own.user == 0 || user == own => Ok(user),
            Some(User { user, group }) => {
                let reason = format!(
                    "only root can run a container as another user than its own ({}:{}), and this one runs as {user}:{group}",
                    own.user, own.group
                );
                Err((Capability::Users, Unsupported { reason, remedy: Some("sudo".to_owned()) })
                    .into())
            }
            None if own.user == 0 => Ok(ORDINARY),
            None => Ok(own),
        }
    }

    /// Checks every path of the host that the request names, by the rules of all runtimes.
    fn host_binds(&self, spec: &SandboxSpec, user: User, opened: &Opened) -> Result<Vec<Bind>> {
        let paths =
            || HostPaths::new(&self.0.options.data).map(|paths| paths.exact(spec.exact_paths));
        let users = match rustix::process::geteuid().is_root() {
            true => Users::Range,
            false => Users::Own(user),
        };
        let invalid = |error: stockade_plan::Error| stockade_runtime_native::plan_error(error);
        let checked = SandboxSpec { user: Some(user), ..spec.clone() };
        Request::check(&checked, &Root::Host, users, &paths).map_err(invalid)?;
        let own_programs: Vec<_> =
            self.0.options.programs.iter().filter_map(|path| path.canonicalize().ok()).collect();
        let mut portable = None;
        let mut binds = Vec::new();
        for mount in &spec.mounts {
            let found = paths().and_then(|paths| paths.open(&mount.host)).map_err(invalid)?;
            let failed = |errno: Errno| Error::Host {
                path: mount.host.display().to_string(),
                source: errno.into(),
            };
            let checked = rustix::fs::fstat(&found.tree.file).map_err(failed)?;
            let real = found.real;
            let (inside, writable) = (mount.inside.clone(), mount.writable);
            let is_program = own_programs.contains(&real) && !writable;
            let host = if is_program {
                let copies = match portable.take() {
                    Some(copies) => copies,
                    None => Portable::open(&opened.directory, &opened.owner.build)?,
                };
                portable.insert(copies).program(&real)?
            } else {
                real
            };
            let checked = (!is_program).then_some((checked.st_dev, checked.st_ino));
            binds.push(Bind { host, inside, writable, checked });
        }
        binds.extend(portable.map(|copies| Bind::own(copies.libraries(), LIBRARIES.into(), false)));
        Ok(binds)
    }

    async fn start(
        &self,
        engine: &Engine,
        name: &str,
        body: ContainerCreateBody,
        staged: &StagedContainer,
        binds: &[Bind],
    ) -> Result<stockade_jail::container::WaitingInit> {
        container::create(engine, name, body).await?;
        let init = container::start(engine, name, staged).await?;
        if container::process(engine, name).await? != Some(init.process()) {
            let reason = "the process that connected is not the container's first process: the engine is on another machine or in another process id namespace".to_owned();
            return Err(Error::Wall { wall: Wall::Pid.to_string(), reason });
        }
        check_binds(init.process(), binds)?;
        Ok(init)
    }
}

/// Compares what a container has mounted with what was checked: the engine has resolved the paths
/// again. Only root may look.
fn check_binds(process: i32, binds: &[Bind]) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let root = PathBuf::from(format!("/proc/{process}/root"));
    for bind in binds {
        let inside = bind.inside.strip_prefix("/").unwrap_or(&bind.inside);
        let there = rustix::fs::lstat(root.join(inside));
        let identity = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
        // A path that was replaced may lead to the same wrong file again.
        let here = match bind.checked {
            Some(checked) => Ok(checked),
            None => rustix::fs::lstat(&bind.host).map(identity),
        };
        let same = there.map(identity) == here;
        if !same {
            let path = bind.host.display();
            return Err(Error::PathRefused(format!("{path} was replaced while it was mounted")));
        }
    }
    Ok(())
}

/// What the body of a container is made from.
struct Body<'a> {
    spec: &'a SandboxSpec,
    image: &'a Image,
    user: User,
    init: &'a Path,
    resolver: &'a Path,
    binds: &'a [Bind],
}

fn body(
    parts: Body<'_>,
    staged: &StagedContainer,
    labels: std::collections::HashMap<String, String>,
) -> Result<ContainerCreateBody> {
    let Body { spec, image, user, init, resolver, binds } = parts;
    let home = staged.directory("home", user, 0o755)?;
    std::fs::write(staged.control().join(request::INIT), "")
        .map_err(|source| Error::Host { path: staged.control().display().to_string(), source })?;
    let workspace = spec.workspace.as_ref();
    let workspace = workspace.map(|workspace| (staged.workspace(), workspace.inside.clone()));
    let trusted = spec.network.is_some().then(|| staged.trusted());
    let mut all =
        request::own_binds(&staged.control(), init, home, workspace, trusted, resolver.to_owned());
    let is_taken = |inside: &String| {
        let inside = Path::new(inside);
        all.iter().chain(binds).any(|bind| bind.inside == inside) || inside == Path::new("/tmp")
    };
    let mut volumes = Vec::new();
    for (index, inside) in image.volumes.iter().enumerate().filter(|(_, path)| !is_taken(path)) {
        let host = staged.directory(&format!("volume-{index}"), user, 0o755)?;
        volumes.push(OwnVolume { host, inside: inside.clone() });
    }
    // A `<Sandbox>` gets its request in a mount, and leaves its result beside it.
    if binds.iter().any(|bind| bind.inside == Path::new(REQUEST)) {
        let host = staged.directory("result", user, 0o755)?;
        all.push(Bind::own(host, RESULT.into(), true));
    }
    all.extend(binds.iter().cloned());
    let socket = StagedContainer::socket();
    Ok(request::container(Parts { spec, image, user, binds: all, volumes, labels, socket }))
}

/// The request with what the image decides where the request does not. As with docker, commands start
/// at the root of an image that names no directory.
fn with_image(requested: &SandboxSpec, image: &Image) -> SandboxSpec {
    let mut environment = image.environment.clone();
    environment.extend(requested.environment.clone());
    let working_directory = requested
        .working_directory
        .clone()
        .unwrap_or_else(|| image.working_directory.as_deref().unwrap_or("/").into());
    let working_directory = Some(working_directory);
    SandboxSpec { environment, working_directory, ..requested.clone() }
}

/// Refuses an engine whose containers would not be what is promised.
fn check_engine(info: &SystemInfo) -> Result<()> {
    let refused = |reason: &str, remedy: &str| {
        Err(Error::Unavailable {
            what: "a usable Docker engine".to_owned(),
            reason: reason.to_owned(),
            remedy: remedy.to_owned(),
        })
    };
    let has = |option: &str| {
        let options = info.security_options.as_deref().unwrap_or_default();
        options.iter().any(|one| one == option || one.starts_with(&format!("{option},")))
    };
    if info.os_type.as_deref() != Some("linux") {
        return refused("its containers do not run Linux", "docker context use default");
    }
    if info.architecture.as_deref() != Some(std::env::consts::ARCH) {
        return refused("it is for another processor", "docker context use default");
    }
    if has("name=rootless") || has("name=userns") {
        let reason = "it maps user ids (rootless, or userns-remap), so the owners of files inside are not those of this host";
        return refused(reason, "export DOCKER_HOST=unix:///var/run/docker.sock");
    }
    if !has("name=seccomp") {
        return refused(
            "it does not support seccomp",
            "docker info --format '{{.SecurityOptions}}'",
        );
    }
    Ok(())
}

/// How each limit is enforced. Those that cannot be are refused, unless they were left to best
/// effort.
fn limits(spec: &SandboxSpec, info: &SystemInfo) -> Result<Vec<LimitReport>> {
    let by = match info.cgroup_version {
        Some(bollard::models::SystemInfoCgroupVersionEnum::_2) => "cgroup v2 of the Docker engine",
        _ => "cgroup v1 of the Docker engine",
    };
    let requested = &spec.limits;
    let each = [
        (LimitName::Memory, requested.memory_bytes, info.memory_limit),
        (LimitName::Cpus, requested.cpu_millis, info.cpu_cfs_quota),
        (LimitName::Processes, requested.processes.or(Some(request::PROCESSES)), info.pids_limit),
    ];
    let mut reports = Vec::new();
    for (limit, value, is_supported) in each {
        if value == Some(0) {
            return Err(Error::Invalid(format!("the limit `{limit}` must not be 0")));
        }
        let report = |enforcement, by: &str| LimitReport {
            name: limit.as_str().into(),
            enforcement,
            by: by.to_owned(),
        };
        match (value, is_supported) {
            (None, _) => {}
            (Some(_), Some(true)) => reports.push(report(Enforcement::Enforced, by)),
            (Some(_), _) => {
                let reason = "the Docker engine does not support it on this host".to_owned();
                let was_requested = limit != LimitName::Processes || requested.processes.is_some();
                if was_requested && !spec.best_effort.contains(&BestEffort::from(limit)) {
                    let remedy = "docker info --format '{{.Warnings}}'".to_owned();
                    return Err(Error::Limit { limit, reason, remedy });
                }
                reports.push(report(Enforcement::Refused, &reason));
            }
        }
    }
    if requested.disk_bytes == Some(0) {
        return Err(Error::Invalid("the limit `disk` must not be 0".to_owned()));
    }
    if requested.disk_bytes.is_some() {
        let by = "the disk usage of its layers".to_owned();
        let name = LimitName::Disk.as_str().into();
        reports.push(LimitReport { name, enforcement: Enforcement::Watched, by });
    }
    Ok(reports)
}

/// The request without the limits that were left to best effort and cannot be enforced.
fn enforced(spec: &SandboxSpec, reports: &[LimitReport]) -> SandboxSpec {
    let mut spec = spec.clone();
    for report in reports.iter().filter(|report| report.enforcement == Enforcement::Refused) {
        match &*report.name {
            "memory" => spec.limits.memory_bytes = None,
            "cpus" => spec.limits.cpu_millis = None,
            _ => {}
        }
    }
    spec
}

fn isolation(spec: &SandboxSpec, user: User, limits: Vec<LimitReport>) -> Isolation {
    let mut reasons = Vec::new();
    let reasons_of = |wall: Wall| match wall {
        Wall::User => Some(format!(
            "ids inside are ids of the host: commands run as {}:{} without any capability",
            user.user, user.group
        )),
        Wall::Landlock => Some("the mounts of the container alone restrict paths".to_owned()),
        _ => None,
    };
    let walls = Wall::ALL.iter().map(|wall| {
        let missing = reasons_of(*wall);
        reasons.extend(missing.as_ref().map(|reason| format!("{wall}: {reason}")));
        let by_policy = (*wall == Wall::Network && spec.network.is_some())
            .then(|| "by policy: allowed hosts are reached through the egress proxy".to_owned());
        WallReport {
            name: wall.as_str().into(),
            raised: missing.is_none(),
            reason: missing.or(by_policy),
        }
    });
    let walls = walls.collect();
    Isolation { level: Level::Reduced, walls, limits, reasons }
}

/// Why a sandbox of an ordinary user has no network.
pub(super) fn no_egress() -> Unsupported {
    Unsupported {
        reason: "only root can verify the network of a container".to_owned(),
        remedy: Some("sudo".to_owned()),
    }
}

mod users {
    //! The numbers of a user that an image names, from its own list of users.

    use super::{Engine, Error, Image, Owner, Result, SandboxId, User, container, request};

    const USERS: &str = "/etc/passwd";
    const GROUPS: &str = "/etc/group";

    /// Reads the files from a container that is never started.
    pub(super) async fn resolve(
        engine: &Engine,
        owner: &Owner,
        id: &SandboxId,
        image: &Image,
        text: &str,
    ) -> Result<User> {
        let name = format!("{}-users", owner.container(id));
        let body = request::idle(image, owner.of_sandbox(id));
        container::remove(engine, &name).await?;
        container::create(engine, &name, body).await?;
        let read = async {
            let users = container::file(engine, &name, USERS).await?.unwrap_or_default();
            let groups = container::file(engine, &name, GROUPS).await?.unwrap_or_default();
            Ok((users, groups))
        };
        let read: Result<(Vec<u8>, Vec<u8>)> = read.await;
        container::remove(engine, &name).await?;
        let (users, groups) = read?;
        find(text, &String::from_utf8_lossy(&users), &String::from_utf8_lossy(&groups)).ok_or_else(
            || {
                Error::Invalid(format!(
                    "the image names the user {text:?}, which its {USERS} does not have: name a user by its numbers"
                ))
            },
        )
    }

    /// The user in the lists, as an engine finds it (`passwd(5)`, `group(5)`).
    pub(super) fn find(text: &str, users: &str, groups: &str) -> Option<User> {
        let (user, group) = text.split_once(':').map_or((text, None), |(u, g)| (u, Some(g)));
        let fields = |line: &'_ str, at: usize| line.split(':').nth(at).map(str::to_owned);
        let number = |line: &str, at: usize| fields(line, at)?.parse::<u32>().ok();
        let listed = users.lines().find(|line| {
            fields(line, 0).as_deref() == Some(user)
                || (user.parse::<u32>().is_ok() && number(line, 2) == user.parse().ok())
        });
        let uid = match user.parse() {
            Ok(uid) => uid,
            Err(_) => number(listed?, 2)?,
        };
        let gid = match group {
            None => listed.and_then(|line| number(line, 3)).unwrap_or(0),
            Some(group) => match group.parse() {
                Ok(gid) => gid,
                Err(_) => {
                    let line =
                        groups.lines().find(|line| fields(line, 0).as_deref() == Some(group))?;
                    number(line, 2)?
                }
            },
        };
        Some(User { user: uid, group: gid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_in_the_lists_of_the_image() {
        let users = "root:x:0:0:root:/root:/bin/sh\nnode:x:1000:1001::/home/node:/bin/sh\n";
        let groups = "root:x:0:\nnode:x:1001:\nstaff:x:50:node\n";
        let find =
            |text: &str| users::find(text, users, groups).map(|User { user, group }| (user, group));
        assert_eq!(find("node"), Some((1000, 1001)));
        assert_eq!(find("node:staff"), Some((1000, 50)));
        assert_eq!(find("node:7"), Some((1000, 7)));
        assert_eq!(find("1000"), Some((1000, 1001)));
        assert_eq!(find("7"), Some((7, 0)));
        assert_eq!(find("7:staff"), Some((7, 50)));
        for unknown in ["none", "none:0", "node:none", ""] {
            assert_eq!(find(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn an_engine_that_maps_ids_or_has_no_filter_is_refused() {
        let info = |options: &[&str]| SystemInfo {
            os_type: Some("linux".to_owned()),
            architecture: Some(std::env::consts::ARCH.to_owned()),
            security_options: Some(options.iter().map(|&one| one.to_owned()).collect()),
            ..SystemInfo::default()
        };
        check_engine(&info(&["name=seccomp,profile=default", "name=apparmor"])).unwrap();
        for options in [
            &["name=seccomp", "name=rootless"][..],
            &["name=seccomp", "name=userns"],
            &["name=apparmor"],
        ] {
            let refused = check_engine(&info(options)).unwrap_err();
            assert!(matches!(refused, Error::Unavailable { .. }), "{refused:?}");
        }
    }

    #[test]
    fn a_limit_that_cannot_be_enforced_is_refused_unless_it_may_be_missing() {
        let info = SystemInfo { pids_limit: Some(true), ..SystemInfo::default() };
        let mut spec = SandboxSpec::default();
        spec.limits.memory_bytes = Some(1 << 20);
        let refused = limits(&spec, &info).unwrap_err();
        assert!(matches!(refused, Error::Limit { limit: LimitName::Memory, .. }), "{refused:?}");
        spec.best_effort.insert(BestEffort::Memory);
        let reports = limits(&spec, &info).unwrap();
        let ways: Vec<_> = reports.iter().map(|one| (&*one.name, one.enforcement)).collect();
        assert_eq!(ways, [("memory", Enforcement::Refused), ("pids", Enforcement::Enforced)]);
        assert_eq!(enforced(&spec, &reports).limits.memory_bytes, None);
        spec.limits.cpu_millis = Some(0);
        assert!(limits(&spec, &info).is_err());
    }

    #[test]
    fn one_process_at_a_time_works_on_a_sandbox() {
        let place = tempfile::tempdir().unwrap();
        let attempt = || Lock::attempt(place.path(), "box").unwrap();
        let first = attempt().unwrap();
        assert!(attempt().is_none());
        drop(first);
        drop(attempt().unwrap());
        assert_eq!(place.path().join(LOCKS).read_dir().unwrap().count(), 0);
    }
}
