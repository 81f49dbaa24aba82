//! Converts the flags of a sandbox to its request, in the same way for `run` and `create`. The
//! planner decides whether the requested paths may be mounted, not this module.

#[cfg(test)]
mod tests;
mod tools;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;
use stockade_api::{CacheMount, VolumeMount};
use stockade_core::network::{AllowedHost, HOST_LOOPBACK, Target};
use stockade_core::sandbox::{BestEffort, HostMount, Limits, Root, User, Workspace};
use stockade_core::{Bytes, Code, OrNone, Problem};

use crate::args::sandbox_flags::{Network, Pair, SandboxFlags};
use crate::policy_file;
pub(crate) use crate::request::volumes::{
    Mount, check_cache, check_volume, has_keys as has_mount_keys, volume as read_volume,
};
use crate::variables;

/// More processes than a kernel has ids for, for `--pids none`.
const MAX_PROCESSES: u64 = 1 << 22;

/// The content of the flags, parsed and checked for syntax.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SandboxRequest {
    /// The root file system: the host's programs, a directory or tar archive by its absolute
    /// path, or an image by its name.
    pub(crate) root: Root,
    /// Whether the system directories come from a copy.
    pub(crate) private_base: bool,
    pub(crate) mounts: Vec<HostMount>,
    pub(crate) volumes: Vec<VolumeMount>,
    pub(crate) caches: Vec<CacheMount>,
    pub(crate) environment: BTreeMap<String, Bytes>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) user: Option<User>,
    pub(crate) working_directory: Option<PathBuf>,
    pub(crate) limits: Limits,
    pub(crate) output_limit_bytes: Option<u64>,
    pub(crate) best_effort: BTreeSet<BestEffort>,
    /// The rules as separate values, so that an invalid one is reported by its index.
    pub(crate) access_rules: Vec<Value>,
    /// The allowed hosts; `None` if there is no network access at all.
    pub(crate) network: Option<stockade_api::Network>,
}

impl SandboxRequest {
    /// Parses the flags of a sandbox with this workspace, for a caller whose directory is
    /// `current`, in this project.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for a flag with invalid syntax.
    pub(crate) fn read(
        flags: &SandboxFlags,
        workspace: Option<&Workspace>,
        project: Option<&Path>,
        current: &Path,
    ) -> Result<Self, Problem> {
        let label = |Pair(name, value): &Pair| (name.clone(), value.clone());
        let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        let tools = tools::find(&flags.tools, home.as_deref(), std::env::var_os("PATH"))?;
        let shown = tools.variables.into_iter().map(|(name, value)| (name, value.into()));
        let mut environment: BTreeMap<String, Bytes> = shown.collect();
        let caches: Vec<_> = flags
            .cache
            .iter()
            .map(|text| volumes::cache(text, project))
            .collect::<Result<_, _>>()?;
        for tool in caches.iter().filter(|cache| cache.inside.is_none()) {
            let variables = tool_of(tool).map_or(&[][..], |tool| tool.variables).iter();
            environment
                .extend(variables.map(|(name, value)| ((*name).to_owned(), (*value).into())));
        }
        environment.extend(variables::read(&flags.variables)?);
        let (mut mounts, mut volumes) = (Vec::new(), Vec::new());
        let mounted = flags.mount.iter().map(|text| read_mount(text, current));
        for one in mounted.chain(flags.volume.iter().map(|text| volumes::volume(text, current))) {
            match one? {
                Mount::Host(mount) => mounts.push(mount),
                Mount::Volume(volume) => volumes.push(volume),
            }
        }
        mounts.extend(tools.mounts);
        Ok(Self {
            root: flags.image.as_deref().map_or(Root::Host, |image| root(image, current)),
            private_base: flags.private_base,
            mounts,
            volumes,
            caches,
            environment,
            labels: flags.label.iter().map(label).collect(),
            user: flags.user.map(|id| User { user: id.user, group: id.group }),
            working_directory: working_directory(flags.cwd.as_deref(), workspace, current)?,
            limits: Limits {
                memory_bytes: flags.memory.and_then(|limit| limit.0),
                cpu_millis: flags.cpus.and_then(|limit| limit.0),
                // Without a number, the default of a runtime would apply.
                processes: flags.pids.map(|limit| limit.0.unwrap_or(MAX_PROCESSES)),
                disk_bytes: flags.disk.and_then(|limit| limit.0),
                shm_bytes: flags.shm,
            },
            output_limit_bytes: flags.max_output.and_then(|limit| limit.0),
            best_effort: flags.best_effort.iter().map(|named| (*named).into()).collect(),
            access_rules: flags.access.iter().map(|text| rule(text)).collect::<Result<_, _>>()?,
            network: network(flags)?,
        })
    }
}

/// The hosts that `--net`, `--allow` and `--allow-internal` permit; `None` if there is no network
/// access at all.
///
/// # Errors
/// [`Code::InvalidInput`] when they exclude each other, or have no effect.
pub(crate) fn network(flags: &SandboxFlags) -> Result<Option<stockade_api::Network>, Problem> {
    let SandboxFlags { net, allow, allow_internal, policy, .. } = flags;
    let is_named = !allow.is_empty() || !allow_internal.is_empty() || !policy.is_empty();
    let flagged = flags.traffic.limits();
    if *net == Some(Network::Learn) {
        if is_named {
            let message = "`--net learn` allows every public host, so no host is named beside it";
            return Err(Problem::new(Code::InvalidInput, message).remedied_by("omit `--allow`"));
        }
        let all = "*".parse().map_err(|error: String| Problem::new(Code::InvalidInput, error))?;
        return Ok(Some(stockade_api::Network {
            allow: vec![all],
            limits: flagged,
            ..stockade_api::Network::default()
        }));
    }
    if *net != Some(Network::Policy) && !is_named {
        if !flagged.is_none() {
            let message =
                "`--max-connections`, `--max-traffic` and `--max-bandwidth` need a network policy";
            return Err(Problem::new(Code::InvalidInput, message).remedied_by("--allow HOST"));
        }
        return Ok(None);
    }
    if *net == Some(Network::Off) {
        let message = "`--net off` and `--allow` exclude each other";
        return Err(Problem::new(Code::InvalidInput, message)
            .remedied_by("omit `--net off`: `--allow` permits the named hosts only"));
    }
    let policy_file::Together { default, rules, limits } = policy_file::read_all(policy)?;
    Ok(Some(stockade_api::Network {
        default,
        rules,
        limits: limits.lower(flagged),
        allow: allow.clone(),
        allow_internal: allow_internal.clone(),
        ..stockade_api::Network::default()
    }))
}

/// Refuses a loopback address that nothing can lead to: by itself it is the sandbox's own. Beside an
/// allowed name it lets this name lead to the host's. A persistent sandbox may get the name later.
pub(crate) fn refuse_own_loopback(allow: &[AllowedHost]) -> Result<(), Problem> {
    let loopback = allow.iter().find(|host| match host.target() {
        Target::Block(block) => block.single().is_some_and(|address| address.is_loopback()),
        _ => false,
    });
    match loopback {
        Some(host) if allow.iter().all(AllowedHost::is_addresses) => {
            let port = host.port().map_or_else(|| "PORT".to_owned(), |port| port.to_string());
            let message = format!("`--allow {host}` has no effect");
            Err(Problem::new(Code::InvalidInput, message)
                .because("inside, this address is the sandbox's own loopback")
                .remedied_by(format!("--allow {HOST_LOOPBACK}:{port}")))
        }
        _ => Ok(()),
    }
}

/// A size limit as bytes: `none` is more than there can be.
pub(crate) fn no_limit(limit: OrNone<u64>) -> u64 {
    // 2^53 - 1, the largest number that every reader of JSON keeps.
    limit.0.unwrap_or((1 << 53) - 1)
}

/// `--image`: a path if it starts with `/`, `./` or `../` or exists, else a name.
pub(crate) fn root(image: &Path, current: &Path) -> Root {
    let path = current.join(image);
    let is_path = image.starts_with(".") || image.starts_with("..") || image.is_absolute();
    match image.to_str() {
        Some(name) if !is_path && !path.exists() => Root::Image(name.to_owned()),
        _ => Root::Directory(path),
    }
}

/// The path on the host of a mount, and the rest from the colon on.
pub(crate) fn split_mount(argument: &OsStr) -> Option<(PathBuf, OsString)> {
    let bytes = argument.as_bytes();
    // The path inside is absolute, so the last `:/` separates the two even if names contain colons.
    let at = bytes.windows(2).rposition(|pair| pair == b":/").filter(|at| *at > 0)?;
    let (host, rest) = bytes.split_at(at);
    Some((OsString::from_vec(host.to_vec()).into(), OsString::from_vec(rest.to_vec())))
}

/// `--mount`, in its two forms.
///
/// # Errors
/// [`Code::InvalidInput`] for an invalid argument, or a path of the host that does not exist.
pub(crate) fn read_mount(argument: &OsStr, current: &Path) -> Result<Mount, Problem> {
    match volumes::has_keys(argument) {
        true => volumes::with_keys(argument, current),
        false => mount(argument, current).map(Mount::Host),
    }
}

/// `--mount HOST:PATH[:ro|:rw]`.
fn mount(argument: &OsStr, current: &Path) -> Result<HostMount, Problem> {
    let refused = |why: &str| {
        let shown = argument.to_string_lossy();
        Problem::new(Code::InvalidInput, format!("`--mount {shown}`: {why}"))
            .remedied_by("--mount /path/on/host:/path/inside:ro")
    };
    let (host, rest) =
        split_mount(argument).ok_or_else(|| refused("the path inside must be absolute"))?;
    let bytes = &rest.as_bytes()[1..];
    let (bytes, writable) = match bytes.strip_suffix(b":ro") {
        Some(rest) => (rest, false),
        None => (bytes.strip_suffix(b":rw").unwrap_or(bytes), true),
    };
    let inside = PathBuf::from(OsString::from_vec(bytes.to_vec()));
    host_mount("--mount", argument, &host, inside, writable, current)
}

/// The mount of a path of the host, as an argument of `flag` names it.
fn host_mount(
    flag: &str,
    argument: &OsStr,
    host: &Path,
    inside: PathBuf,
    writable: bool,
    current: &Path,
) -> Result<HostMount, Problem> {
    if inside == Path::new("/") {
        let shown = argument.to_string_lossy();
        let message = format!("`{flag} {shown}`: the root cannot be a mount point");
        return Err(Problem::new(Code::InvalidInput, message).remedied_by("--image DIR"));
    }
    let host = current.join(host);
    // This check comes before anything is created. Whether the path may be mounted is decided
    // later, by its state at that time.
    let metadata = std::fs::metadata(&host).map_err(|error| {
        Problem::new(Code::InvalidInput, format!("cannot use {} of the host", host.display()))
            .because(error.to_string())
    })?;
    if metadata.file_type().is_socket() {
        eprint_line!(
            "stockade: {} is a socket of the host: commands can talk to the program that listens at it",
            host.display()
        );
    }
    Ok(HostMount { host, inside, writable })
}

/// The tool of a cache.
fn tool_of(cache: &CacheMount) -> Option<&'static stockade_core::cache::Tool> {
    stockade_core::cache::tool(cache.name.as_str())
}

/// The working directory of commands: `cwd`, relative to the directory in which they would start
/// without it; else the caller's directory, if it is in the workspace; else the workspace.
fn working_directory(
    cwd: Option<&Path>,
    workspace: Option<&Workspace>,
    current: &Path,
) -> Result<Option<PathBuf>, Problem> {
    let start = workspace.map(|workspace| match current.strip_prefix(&workspace.host) {
        Ok(below) => workspace.inside.components().chain(below.components()).collect(),
        Err(_) => workspace.inside.clone(),
    });
    let Some(cwd) = cwd else { return Ok(start) };
    if let Some(start) = start {
        return Ok(Some(normalize(&start.join(cwd))));
    }
    if cwd.is_absolute() {
        return Ok(Some(normalize(cwd)));
    }
    let message = format!("`--cwd {}` is not an absolute path", cwd.display());
    Err(Problem::new(Code::InvalidInput, message)
        .because("a relative one is seen from the workspace, and there is none")
        .remedied_by("--workspace ."))
}

/// A path without `.` and `..`, computed from its text only, because links inside are not known
/// here.
fn normalize(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal
}

/// `EFFECT:LEVEL:PATH` as a rule; whether it is valid is decided together with the others.
fn rule(text: &str) -> Result<Value, Problem> {
    let mut parts = text.splitn(3, ':');
    let (Some(effect), Some(level), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
        let message = format!("`--access {text}` is not EFFECT:LEVEL:PATH");
        return Err(
            Problem::new(Code::InvalidInput, message).remedied_by("--access allow:read:/src")
        );
    };
    Ok(serde_json::json!({ "effect": effect, "level": level, "path": path }))
}
