//! What a container is made from. Everything is off unless a sandbox needs it: no capability, no
//! network, no device, no namespace of the host, nothing writable but its own directories.
//!
//! Nothing secret is in it: a container's configuration can be read by every client of the engine. The
//! environment of commands goes through the keeper to init.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use bollard::models::{
    ContainerCreateBody, ContainerUpdateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum,
    HostConfigLogConfig, Mount, MountBindOptions, MountBindOptionsPropagationEnum, MountType,
    MountVolumeOptions, MountVolumeOptionsDriverConfig,
};
use stockade_core::SandboxSpec;
use stockade_core::network::TRUSTED_INSIDE;
use stockade_core::sandbox::{LimitChange, Limits, User};
use stockade_plan::account::HOME;

use crate::image::Image;

/// The directory inside with init and its socket, until init has started.
pub(crate) const CONTROL: &str = "/.stockade";
/// The configuration of name lookups.
const RESOLVER: &str = "/etc/resolv.conf";
/// The name of init there.
pub(crate) const INIT: &str = "init";
/// How many processes and threads a sandbox may have if it does not say.
pub(crate) const PROCESSES: u64 = 4096;
/// The size of `/tmp` and `/var/tmp` without a memory limit, and of `/dev/shm`.
const SCRATCH_BYTES: u64 = 1 << 30;
const SHARED_MEMORY_BYTES: u64 = 256 << 20;
/// The least size of a file system in memory.
const SMALLEST_BYTES: u64 = 1 << 20;
/// What init needs to make a network whose traffic it hands out, and to give all of it up again.
const NETWORK_CAPABILITIES: [&str; 5] =
    ["NET_ADMIN", "NET_BIND_SERVICE", "SETGID", "SETPCAP", "SETUID"];

/// A directory or file of the host that a container mounts.
#[derive(Debug, Clone)]
pub(crate) struct Bind {
    /// Its path on the host, without links.
    pub(crate) host: PathBuf,
    /// Its path inside.
    pub(crate) inside: PathBuf,
    pub(crate) writable: bool,
    /// The device and inode of what was checked, of a path that somebody else may replace.
    pub(crate) checked: Option<(u64, u64)>,
}

impl Bind {
    /// A bind of a path that only Stockade changes.
    pub(crate) const fn own(host: PathBuf, inside: PathBuf, writable: bool) -> Self {
        Self { host, inside, writable, checked: None }
    }
}

/// A directory that the image wants to be writable, with the directory that holds its content.
#[derive(Debug, Clone)]
pub(crate) struct OwnVolume {
    pub(crate) host: PathBuf,
    pub(crate) inside: String,
}

/// The parts of a container.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) spec: &'a SandboxSpec,
    pub(crate) image: &'a Image,
    pub(crate) user: User,
    /// Directories of ours, and those that the sandbox requested.
    pub(crate) binds: Vec<Bind>,
    pub(crate) volumes: Vec<OwnVolume>,
    pub(crate) labels: HashMap<String, String>,
    /// The name of the socket of the launch.
    pub(crate) socket: &'a str,
}

/// The request for the engine.
pub(crate) fn container(parts: Parts<'_>) -> ContainerCreateBody {
    let Parts { spec, image, user, binds, volumes, labels, socket } = parts;
    let has_network = spec.network.is_some();
    let User { user: uid, group: gid } = user;
    let start_as = if has_network { "0:0".to_owned() } else { format!("{uid}:{gid}") };
    let own_volumes = volumes.iter().map(|volume| own_volume(volume, &labels));
    let mounts = own_volumes.chain(binds.iter().map(bind)).collect();
    let host = HostConfig {
        mounts: Some(mounts),
        tmpfs: Some(scratch(&spec.limits)),
        shm_size: Some(number(shared_memory(&spec.limits))),
        network_mode: Some("none".to_owned()),
        cap_drop: Some(vec!["ALL".to_owned()]),
        cap_add: has_network.then(|| NETWORK_CAPABILITIES.map(str::to_owned).into()),
        security_opt: Some(vec![
            "no-new-privileges:true".to_owned(),
            format!("seccomp={}", crate::seccomp::profile()),
        ]),
        readonly_rootfs: Some(true),
        privileged: Some(false),
        pids_limit: Some(number(spec.limits.processes.unwrap_or(PROCESSES))),
        memory: spec.limits.memory_bytes.map(number),
        // Of both together, so that there is no swap beside it.
        memory_swap: spec.limits.memory_bytes.map(number),
        nano_cpus: spec.limits.cpu_millis.map(nano_cpus),
        ipc_mode: Some("private".to_owned()),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        devices: Some(Vec::new()),
        auto_remove: Some(true),
        init: Some(false),
        log_config: Some(HostConfigLogConfig {
            typ: Some("none".to_owned()),
            config: Some(HashMap::new()),
        }),
        sysctls: Some([("net.ipv4.ip_unprivileged_port_start".to_owned(), "0".to_owned())].into()),
        ..HostConfig::default()
    };
    ContainerCreateBody {
        image: Some(image.id.clone()),
        hostname: Some(stockade_plan::HOSTNAME.to_owned()),
        user: Some(start_as),
        entrypoint: Some(vec![format!("{CONTROL}/{INIT}"), format!("{CONTROL}/{socket}")]),
        cmd: Some(Vec::new()),
        working_dir: Some("/".to_owned()),
        healthcheck: Some(HealthConfig {
            test: Some(vec!["NONE".to_owned()]),
            ..HealthConfig::default()
        }),
        labels: Some(labels),
        host_config: Some(host),
        ..ContainerCreateBody::default()
    }
}

/// A container that is never started, for what the engine can do with one.
pub(crate) fn idle(image: &Image, labels: HashMap<String, String>) -> ContainerCreateBody {
    ContainerCreateBody {
        image: Some(image.id.clone()),
        entrypoint: Some(vec!["/none".to_owned()]),
        labels: Some(labels),
        host_config: Some(HostConfig {
            network_mode: Some("none".to_owned()),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    }
}

/// The binds that every container has. `control` and the others are directories of the host.
pub(crate) fn own_binds(
    control: &Path,
    init: &Path,
    home: PathBuf,
    workspace: Option<(PathBuf, PathBuf)>,
    trusted: Option<PathBuf>,
    resolver: PathBuf,
) -> Vec<Bind> {
    let read_only = |host: PathBuf, inside: PathBuf| Bind::own(host, inside, false);
    let writable = |host: PathBuf, inside: PathBuf| Bind::own(host, inside, true);
    let mut binds = vec![
        read_only(control.to_owned(), CONTROL.into()),
        read_only(init.to_owned(), Path::new(CONTROL).join(INIT)),
        writable(home, HOME.into()),
        read_only(resolver, RESOLVER.into()),
    ];
    binds.extend(trusted.map(|trusted| read_only(trusted, TRUSTED_INSIDE.into())));
    binds.extend(workspace.map(|(host, inside)| writable(host, inside)));
    binds
}

fn bind(bind: &Bind) -> Mount {
    Mount {
        typ: Some(MountType::BIND),
        source: Some(bind.host.to_string_lossy().into_owned()),
        target: Some(bind.inside.to_string_lossy().into_owned()),
        read_only: Some(!bind.writable),
        bind_options: Some(MountBindOptions {
            propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
            // What is mounted below it would stay writable, and was not checked.
            non_recursive: Some(true),
            ..MountBindOptions::default()
        }),
        ..Mount::default()
    }
}

/// A volume whose content is in a directory of ours. The engine copies what the image has there.
fn own_volume(volume: &OwnVolume, labels: &HashMap<String, String>) -> Mount {
    let options = [
        ("type", "none".to_owned()),
        ("o", "bind".to_owned()),
        ("device", volume.host.to_string_lossy().into_owned()),
    ];
    Mount {
        typ: Some(MountType::VOLUME),
        target: Some(volume.inside.clone()),
        volume_options: Some(MountVolumeOptions {
            labels: Some(labels.clone()),
            driver_config: Some(MountVolumeOptionsDriverConfig {
                name: Some("local".to_owned()),
                options: Some(options.map(|(name, value)| (name.to_owned(), value)).into()),
            }),
            ..MountVolumeOptions::default()
        }),
        ..Mount::default()
    }
}

/// The request to change limits of a container. What is absent stays.
pub(crate) fn update(change: &LimitChange) -> ContainerUpdateBody {
    ContainerUpdateBody {
        pids_limit: change.processes.map(number),
        memory: change.memory_bytes.map(number),
        memory_swap: change.memory_bytes.map(number),
        nano_cpus: change.cpu_millis.map(nano_cpus),
        ..ContainerUpdateBody::default()
    }
}

fn nano_cpus(millis: u64) -> i64 {
    number(millis.saturating_mul(1_000_000))
}

/// The writable file systems in memory. Programs run out of room there before the sandbox is out of
/// memory.
fn scratch(limits: &Limits) -> HashMap<String, String> {
    let size = limits.memory_bytes.map_or(SCRATCH_BYTES, |bytes| (bytes / 4).max(SMALLEST_BYTES));
    let options = format!("rw,exec,nosuid,nodev,mode=1777,size={size}");
    let mut all: HashMap<_, _> =
        ["/tmp", "/var/tmp"].map(|path| (path.to_owned(), options.clone())).into();
    let secrets = "rw,noexec,nosuid,nodev,mode=1733,size=1048576".to_owned();
    all.insert(stockade_core::sandbox::SECRETS_DIRECTORY.to_owned(), secrets);
    all
}

fn shared_memory(limits: &Limits) -> u64 {
    match (limits.shm_bytes, limits.memory_bytes) {
        (Some(requested), _) => requested,
        (None, Some(memory)) => (memory / 4).clamp(SMALLEST_BYTES, SHARED_MEMORY_BYTES),
        (None, None) => SHARED_MEMORY_BYTES,
    }
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_limits_names_nothing_else() {
        let change = LimitChange { memory_bytes: Some(7), cpu_millis: Some(1500), processes: None };
        let body = update(&change);
        assert_eq!((body.memory, body.memory_swap), (Some(7), Some(7)));
        assert_eq!((body.nano_cpus, body.pids_limit), (Some(1_500_000_000), None));
        assert_eq!(update(&LimitChange::default()), ContainerUpdateBody::default());
    }
}
