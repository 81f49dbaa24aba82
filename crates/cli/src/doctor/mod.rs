//! Which isolation mechanisms and limits this host supports. Each wall is tested by an attempt
//! to break it from inside a real jail, each limit by creating the control group that would
//! enforce it.

mod inside;
mod shared;

use std::path::Path;

use serde_json::{Value, json};
use stockade_core::runtime::RuntimeName;
use stockade_core::{Code, Enforcement, Problem};
use stockade_jail::cgroup::{self, Group, Limit, Limits};
use stockade_jail::{Identity, Network, Payload, Wall, landlock};

use stockade_runtime::Unsupported;
use stockade_runtime_native::bubblewrap;

use crate::run;

/// One wall, and the result of the attempt to break it.
#[derive(Debug)]
pub(crate) struct WallProof {
    pub(crate) wall: Wall,
    pub(crate) works: bool,
    /// What was observed.
    pub(crate) detail: String,
    pub(crate) remedy: Option<String>,
}

/// One limit, and how it would be enforced.
#[derive(Debug)]
pub(crate) struct LimitProof {
    pub(crate) name: &'static str,
    pub(crate) enforcement: Enforcement,
    pub(crate) enforced_by: String,
    pub(crate) remedy: Option<String>,
}

/// Whether a jail can have network access through the egress proxy, and only through it.
#[derive(Debug)]
pub(crate) struct PolicyProof {
    pub(crate) available: bool,
    /// What was observed.
    pub(crate) detail: String,
    pub(crate) remedy: Option<String>,
}

/// One runtime of persistent sandboxes, and whether it is usable here.
#[derive(Debug)]
pub(crate) struct RuntimeProof {
    pub(crate) name: &'static str,
    pub(crate) available: bool,
    /// What was observed.
    pub(crate) detail: String,
    pub(crate) remedy: Option<String>,
}

/// The isolation mechanisms and limits that this host supports.
#[derive(Debug)]
pub(crate) struct Diagnosis {
    pub(crate) kernel: String,
    pub(crate) user: u32,
    pub(crate) identity: String,
    /// The data directory.
    pub(crate) data: std::path::PathBuf,
    /// `overlay` or `copy`; `None` if jails are not available.
    pub(crate) view: Option<&'static str>,
    pub(crate) walls: Vec<WallProof>,
    /// Whether a network policy can be enforced; `None` if jails are not available.
    pub(crate) policy: Option<PolicyProof>,
    pub(crate) limits: Vec<LimitProof>,
    pub(crate) runtimes: Vec<RuntimeProof>,
    /// What sandboxes share with the host and with each other.
    pub(crate) shared: Vec<shared::SharedPart>,
    pub(crate) notes: Vec<String>,
}

impl Diagnosis {
    /// Whether all isolation mechanisms work.
    pub(crate) fn all_walls_work(&self) -> bool {
        self.walls.iter().all(|wall| wall.works)
    }

    /// The diagnosis as JSON.
    pub(crate) fn to_json(&self) -> Value {
        let walls: Vec<_> = self
            .walls
            .iter()
            .map(|proof| {
                json!({
                    "name": proof.wall.as_str(),
                    "raised": proof.works,
                    "proof": proof.detail,
                    "remediation": proof.remedy,
                })
            })
            .collect();
        let limits: Vec<_> = self
            .limits
            .iter()
            .map(|proof| {
                json!({
                    "name": proof.name,
                    "enforcement": proof.enforcement,
                    "by": proof.enforced_by,
                    "remediation": proof.remedy,
                })
            })
            .collect();
        let runtimes: Vec<_> = self
            .runtimes
            .iter()
            .map(|proof| {
                json!({
                    "name": proof.name,
                    "available": proof.available,
                    "proof": proof.detail,
                    "remediation": proof.remedy,
                })
            })
            .collect();
        let policy = self.policy.as_ref().map(|proof| {
            json!({
                "available": proof.available,
                "proof": proof.detail,
                "remediation": proof.remedy,
            })
        });
        json!({
            "ok": self.all_walls_work(),
            "kernel": self.kernel,
            "user": self.user,
            "identity": self.identity,
            "dataDirectory": self.data.to_string_lossy(),
            "view": self.view,
            "walls": walls,
            "network": { "policy": policy },
            "systemCalls": { "refused": refused_calls() },
            "limits": limits,
            "runtimes": runtimes,
            "shared": self.shared.iter().map(shared::SharedPart::to_json).collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }
}

/// The system calls that no command can make, by name, with their errors.
fn refused_calls() -> Value {
    stockade_jail::seccomp::refused()
        .map(|(name, errno)| {
            let error = match rustix::io::Errno::from_raw_os_error(errno) {
                rustix::io::Errno::PERM => "EPERM",
                rustix::io::Errno::OPNOTSUPP => "EOPNOTSUPP",
                _ => "ENOSYS",
            };
            (name.to_owned(), Value::from(error))
        })
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// Runs all tests.
pub(crate) fn diagnose() -> Result<Diagnosis, Problem> {
    let identity = run::identity()?;
    let described = match &identity {
        Identity::Own { user, .. } => format!("your own id: {user} inside is {user} outside"),
        Identity::Range(range) => {
            format!("{} ids from host id {}", range.count, range.start)
        }
    };
    let uname = rustix::system::uname();
    let data = crate::data_dir::data_path()?;
    let mut diagnosis = Diagnosis {
        kernel: uname.release().to_string_lossy().into_owned(),
        user: rustix::process::getuid().as_raw(),
        identity: described,
        shared: shared::parts(&data),
        data,
        view: None,
        walls: Vec::new(),
        policy: None,
        limits: limit_proofs(),
        runtimes: Vec::new(),
        notes: Vec::new(),
    };
    let project = TemporaryProject::new()?;
    let sockets = socket_note();
    match run::probe(&project.0, identity, Network::Off, Payload::Function(inside::probe)) {
        Ok(probed) => {
            diagnosis.policy = Some(policy_proof(&project)?);
            diagnosis.view = Some(probed.view);
            diagnosis.notes = probed.notes;
            if probed.view == "copy" {
                diagnosis.notes.push(SANDBOXES_ARE_COPIES.to_owned());
            }
            diagnosis.notes.extend(sockets);
            let text = String::from_utf8_lossy(&probed.output.bytes).into_owned();
            let untouched = std::fs::read(project.0.join("canary")).is_ok_and(|now| now == CANARY);
            diagnosis.walls =
                Wall::ALL.iter().map(|wall| wall_proof(*wall, &text, untouched)).collect();
        }
        Err(refused) => {
            diagnosis.walls =
                Wall::ALL.iter().map(|wall| failed_wall_proof(*wall, &refused)).collect();
            if refused.wall.is_none() {
                diagnosis.notes.push(refused.problem.message);
            }
        }
    }
    diagnosis.runtimes = vec![native_proof(&diagnosis), bwrap_proof()];
    Ok(diagnosis)
}

fn native_proof(diagnosis: &Diagnosis) -> RuntimeProof {
    let available = diagnosis.all_walls_work();
    let detail = match available {
        true => "all walls work",
        false => "a wall is missing, see above",
    };
    RuntimeProof {
        name: RuntimeName::Native.as_str(),
        available,
        detail: detail.to_owned(),
        remedy: None,
    }
}

/// Runs the program bubblewrap.
fn bwrap_proof() -> RuntimeProof {
    let name = RuntimeName::Bwrap.as_str();
    match bubblewrap::probe() {
        Ok((program, version)) => {
            let detail = format!("{} makes namespaces, version {version}", program.display());
            RuntimeProof { name, available: true, detail, remedy: None }
        }
        Err(Unsupported { reason, remedy }) => {
            RuntimeProof { name, available: false, detail: reason, remedy }
        }
    }
}

/// What this kernel cannot restrict about sockets in a writable mount, if anything.
fn socket_note() -> Option<String> {
    let version = match landlock::abi() {
        Ok(version) if version >= landlock::SOCKETS_ABI => return None,
        Ok(version) => format!("version {version}"),
        Err(_) => "none".to_owned(),
    };
    Some(format!(
        "through a directory that `--mount` shows writable, a command can connect to a socket that the host makes there after the start; Landlock restricts that from version {} of its interface on, and this kernel has {version}",
        landlock::SOCKETS_ABI
    ))
}

/// Tests a network with a policy.
fn policy_proof(project: &TemporaryProject) -> Result<PolicyProof, Problem> {
    let payload = Payload::Function(inside::connect);
    Ok(match run::probe(&project.0, run::identity()?, Network::Egress, payload) {
        Ok(probed) => {
            let detail = String::from_utf8_lossy(&probed.output.bytes).trim().to_owned();
            PolicyProof { available: detail.contains(inside::REACHED_PROXY), detail, remedy: None }
        }
        Err(run::ProbeError { problem, .. }) => PolicyProof {
            available: false,
            detail: problem.cause.unwrap_or(problem.message),
            remedy: problem.remediation,
        },
    })
}

/// The consequence for persistent sandboxes if a view is a copy.
const SANDBOXES_ARE_COPIES: &str = "`stockade create` also copies files for each sandbox, which takes time and disk space: set STOCKADE_DATA_DIR to a directory on ext4, xfs, btrfs or tmpfs";

const CANARY: &[u8] = b"as the host wrote it";

fn wall_proof(wall: Wall, text: &str, untouched: bool) -> WallProof {
    let line = text.lines().find_map(|line| {
        let (name, rest) = line.split_once(' ')?;
        let (verdict, detail) = rest.split_once(' ')?;
        (name == wall.as_str()).then(|| (verdict == "held", detail.to_owned()))
    });
    let (held, detail) = match line {
        Some((true, _)) if wall == Wall::View && !untouched => {
            (false, "a file of the host was changed".to_owned())
        }
        Some(line) => line,
        None => (false, "the probe ended before this test".to_owned()),
    };
    let remedy = if held { None } else { run::wall_remedy(wall).map(str::to_owned) };
    WallProof { wall, works: held, detail, remedy }
}

fn failed_wall_proof(wall: Wall, refused: &run::ProbeError) -> WallProof {
    let detail = if refused.wall == Some(wall) {
        refused.problem.cause.clone().unwrap_or_else(|| refused.problem.message.clone())
    } else {
        "not tested: the jail could not be launched".to_owned()
    };
    let remedy =
        (refused.wall == Some(wall)).then(|| refused.problem.remediation.clone()).flatten();
    WallProof { wall, works: false, detail, remedy }
}

/// Creates a control group for each limit, and removes it again.
fn limit_proofs() -> Vec<LimitProof> {
    let mut proofs: Vec<_> = [
        (Limit::Memory, Limits { memory_bytes: Some(64 << 20), ..Limits::default() }),
        (Limit::Cpus, Limits { cpu_millis: Some(1000), ..Limits::default() }),
    ]
    .into_iter()
    .map(|(limit, limits)| match Group::create(&cgroup::fresh_name(), &limits) {
        Ok(group) => {
            let by = group.enforcer(limit).unwrap_or("control group").to_owned();
            let _ = group.remove();
            LimitProof {
                name: limit.name(),
                enforcement: Enforcement::Enforced,
                enforced_by: by,
                remedy: None,
            }
        }
        Err(unavailable) => {
            let refusal = unavailable.refusals.into_iter().next();
            let (by, remedy) =
                refusal.map(|r| (r.reason, r.remedy.text_for("stockade doctor"))).unzip();
            LimitProof {
                name: limit.name(),
                enforcement: Enforcement::Refused,
                enforced_by: by.unwrap_or_default(),
                remedy,
            }
        }
    })
    .collect();
    let always = |name, enforcement, by: &str| LimitProof {
        name,
        enforcement,
        enforced_by: by.to_owned(),
        remedy: None,
    };
    proofs.extend([
        always("pids", Enforcement::Enforced, "rlimit of the user namespace"),
        always("disk", Enforcement::Enforced, "file system in memory (--disk), else watched"),
        always("timeout", Enforcement::Enforced, "stockade"),
        always("output", Enforcement::Enforced, "stockade"),
    ]);
    proofs
}

/// The project directory of the probe.
struct TemporaryProject(std::path::PathBuf);

/// How many names are tried for the directory.
const ATTEMPTS: u32 = 100;

impl TemporaryProject {
    fn new() -> Result<Self, Problem> {
        let failed = |e: std::io::Error| {
            Problem::new(Code::Io, "cannot create a temporary directory for the tests")
                .because(e.to_string())
        };
        let base = std::fs::canonicalize(std::env::temp_dir()).map_err(failed)?;
        // In a container that shares the directory, another process may have the same process
        // number.
        let path = |attempt| base.join(format!("stockade-doctor-{}-{attempt}", std::process::id()));
        let is_taken = |made: &std::io::Result<()>| {
            made.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::AlreadyExists)
        };
        let mut attempt = 0;
        let mut made = std::fs::create_dir(path(attempt));
        while is_taken(&made) && attempt < ATTEMPTS {
            attempt += 1;
            made = std::fs::create_dir(path(attempt));
        }
        made.map_err(failed)?;
        let project = Self(path(attempt));
        std::fs::write(project.0.join("canary"), CANARY).map_err(failed)?;
        Ok(project)
    }
}

impl Drop for TemporaryProject {
    fn drop(&mut self) {
        // It contains one file of the probe; failing to remove it is harmless.
        let _ = std::fs::remove_dir_all(Path::new(&self.0));
    }
}
