//! Profiles: named values for the flags of a sandbox, from the user's `config.toml` or from a
//! project's `stockade.toml`. The latter counts only while the user trusts its exact content. The
//! flags of the command line win over a profile.

mod document;
mod file;
mod trust;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stockade_bundle::data::DataDir;
use stockade_bundle::project::Project;
use stockade_core::network::secret::BoundSecret;
use stockade_core::{Code, Problem};
use stockade_registry_control::Access;

pub(crate) use self::document::nearest;
use self::document::{Document, NO_PROFILE, Values};
use self::file::Kind;
pub(crate) use self::trust::{
    Accepted, Grants, OutsideMount, check_consent, is_trusted, project_grants, read_project_file,
    record, remove,
};
use crate::args::Run;
use crate::args::sandbox::Create;
use crate::args::sandbox_flags::SandboxFlags;
use crate::request::split_mount;

/// The file in a project.
pub(crate) const PROJECT_FILE: &str = "stockade.toml";

/// The profile that applies to a command.
#[derive(Debug)]
pub(crate) struct Profile {
    name: String,
    file: PathBuf,
    values: Values,
    /// The mounts with the paths that the user accepted, for a profile of a project.
    mounts: Vec<OsString>,
}

/// The profile that applies, and messages about files that do not.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    pub(crate) profile: Option<Profile>,
    pub(crate) notes: Vec<String>,
}

/// Chooses the profile for a command in this project: the requested one, else the default of the
/// project's file if it is trusted, else that of the user's file.
///
/// # Errors
/// [`Code::InvalidInput`] for a profile that does not exist, or a file that cannot be used.
pub(crate) fn choose(
    requested: Option<&str>,
    project: Option<&Project>,
    data: &DataDir,
) -> Result<Choice, Problem> {
    if requested == Some(NO_PROFILE) {
        return Ok(Choice::default());
    }
    let user = user_file()?;
    let mut notes = Vec::new();
    let trusted = match project {
        Some(project) => trust::trusted(project, data, &mut notes)?,
        None => None,
    };
    let user_default = user.as_ref().and_then(|(_, document)| document.default.as_deref());
    let project_default = trusted.as_ref().and_then(|file| file.document.default.as_deref());
    let Some(name) = requested.or(project_default).or(user_default) else {
        return Ok(Choice { profile: None, notes });
    };
    let of_user = user.as_ref().and_then(|(file, document)| {
        let values = document.profiles.get(name)?.clone();
        let mounts = values.mounts.iter().map(OsString::from).collect();
        Some(Profile { name: name.to_owned(), file: file.clone(), values, mounts })
    });
    let of_project = || {
        let (file, project) = (trusted.as_ref()?, project?);
        let values = file.document.profiles.get(name)?.clone();
        let mounts = file.check_consent(&values).and_then(|()| file.mounts_of(name, project));
        let file = project.root.join(PROJECT_FILE);
        Some(mounts.map(|mounts| Profile { name: name.to_owned(), file, values, mounts }))
    };
    // A profile of the user's own cannot be replaced by a project.
    let profile = match of_user {
        Some(profile) => Some(profile),
        None => of_project().transpose()?,
    };
    if profile.is_none() {
        let known = user.iter().flat_map(|(_, document)| document.profiles.keys());
        let of_project = trusted.iter().flat_map(|file| file.document.profiles.keys());
        let known: Vec<&str> = known.chain(of_project).map(String::as_str).collect();
        return Err(unknown(name, &known, &notes));
    }
    Ok(Choice { profile, notes })
}

/// The problem of a name that no profile has.
fn unknown(name: &str, known: &[&str], notes: &[String]) -> Problem {
    let problem = Problem::new(Code::InvalidInput, format!("there is no profile {name:?}"));
    if !notes.is_empty() {
        return problem.because(notes.join("; ")).remedied_by("stockade trust");
    }
    match nearest(name, known.iter().copied()) {
        Some(nearest) => problem.remedied_by(format!("--profile {nearest}")),
        None if known.is_empty() => match user_path() {
            Some(path) => problem.because(format!("no profiles are defined in {}", path.display())),
            None => problem,
        },
        None => problem.because(format!("known profiles: {}", known.join(", "))),
    }
}

/// The path of the user's own file.
pub(crate) fn user_path() -> Option<PathBuf> {
    // A path that is not absolute is ignored (XDG Base Directory Specification).
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let base =
        named("XDG_CONFIG_HOME").or_else(|| named("HOME").map(|home| home.join(".config")))?;
    Some(base.join("stockade/config.toml"))
}

fn user_file() -> Result<Option<(PathBuf, Document)>, Problem> {
    let Some(path) = user_path() else { return Ok(None) };
    let Some(content) = file::read(rustix::fs::CWD, &path, &path, Kind::User)? else {
        return Ok(None);
    };
    let document = Document::parse(&content).map_err(|why| invalid(&path, why))?;
    for (name, values) in &document.profiles {
        let relative = |mount: &&String| !mount.starts_with('/') && !mount.starts_with("~/");
        if let Some(mount) = values.mounts.iter().find(relative) {
            let why = format!("profile.{name}.mount: {mount:?} does not start with `/` or `~/`");
            return Err(invalid(&path, why));
        }
    }
    Ok(Some((path, document)))
}

/// How a registry is reached, as the user's file says.
///
/// # Errors
/// [`Code::InvalidInput`] for a file that cannot be used.
pub(crate) fn registry_access(registry: &str) -> Result<Access, Problem> {
    let registries = user_file()?.and_then(|(_, document)| document.registries);
    let Some(registries) = registries else { return Ok(Access::default()) };
    let mirrors = registries.mirrors.get(registry).cloned().unwrap_or_default();
    Ok(Access { mirrors, insecure: registries.insecure })
}

/// The problem of a file with invalid content.
fn invalid(path: &Path, why: String) -> Problem {
    Problem::new(Code::InvalidInput, format!("{} is invalid", path.display())).because(why)
}

/// The path of a mount with the user's home directory in place of `~`.
fn expand(path: &Path) -> Result<PathBuf, Problem> {
    let Ok(below) = path.strip_prefix("~") else { return Ok(path.to_owned()) };
    match std::env::var_os("HOME").map(PathBuf::from) {
        Some(home) if home.is_absolute() => Ok(home.join(below)),
        _ => Err(Problem::new(Code::InvalidInput, "`~` in a profile needs HOME")
            .because("HOME is not an absolute path")),
    }
}

impl Profile {
    /// Its name and file, for JSON.
    pub(crate) fn to_json(&self) -> Value {
        json!({ "name": self.name, "file": self.file.to_string_lossy() })
    }

    /// A line that names it.
    pub(crate) fn line(&self) -> String {
        format!("profile {} of {}", self.name, self.file.display())
    }

    /// Adds its values to the flags of a sandbox, in which they are the weaker ones. `inside` is the
    /// path of the project inside.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for a `~` that has no meaning here.
    pub(crate) fn apply(&self, flags: &mut SandboxFlags, inside: &Path) -> Result<(), Problem> {
        let Values { allow, environment, hide, tools, caches, volumes, limits, .. } = &self.values;
        prepend(&mut flags.tools, tools.clone());
        prepend(&mut flags.cache, caches.clone());
        prepend(&mut flags.volume, volumes.iter().map(OsString::from).collect());
        prepend(&mut flags.allow, allow.clone());
        let mut mounts = Vec::new();
        for mount in &self.mounts {
            let Some((host, rest)) = split_mount(mount) else {
                mounts.push(mount.clone());
                continue;
            };
            let mut whole = expand(&host)?.into_os_string();
            whole.push(rest);
            mounts.push(whole);
        }
        prepend(&mut flags.mount, mounts);
        flags.variables.profile = environment.iter().map(OsString::from).collect();
        if !hide.is_empty() {
            let has_rules = !flags.access.is_empty();
            for path in hide {
                let path = inside.join(path);
                flags.access.push(format!("deny:read:{}", path.display()));
            }
            // With any rule, everything that no rule allows is denied.
            if !has_rules {
                flags.access.extend(["allow:readwrite:/", "allow:execute:/"].map(str::to_owned));
            }
        }
        flags.private_base |= self.values.private_base;
        flags.memory = flags.memory.or(limits.memory);
        flags.cpus = flags.cpus.or(limits.cpus);
        flags.pids = flags.pids.or(limits.pids);
        flags.disk = flags.disk.or(limits.disk);
        flags.max_output = flags.max_output.or(limits.output);
        Ok(())
    }

    /// Adds its values to the flags of `run`.
    ///
    /// # Errors
    /// As [`Profile::apply`].
    pub(crate) fn apply_to_run(&self, run: &mut Run, inside: &Path) -> Result<(), Problem> {
        self.apply(&mut run.sandbox, inside)?;
        prepend(&mut run.secrets.secret, self.secrets());
        run.timeout = run.timeout.or(self.values.limits.timeout);
        Ok(())
    }

    /// Adds its values to the flags of `create`.
    ///
    /// # Errors
    /// As [`Profile::apply`].
    pub(crate) fn apply_to_create(
        &self,
        create: &mut Create,
        inside: &Path,
    ) -> Result<(), Problem> {
        create.timeout = create.timeout.or(self.values.limits.timeout);
        self.apply(&mut create.sandbox, inside)?;
        prepend(&mut create.secrets.secret, self.secrets());
        Ok(())
    }

    fn secrets(&self) -> Vec<BoundSecret> {
        self.values.secrets.iter().map(|(_, secret)| secret.clone()).collect()
    }
}

fn prepend<T>(list: &mut Vec<T>, mut first: Vec<T>) {
    first.append(list);
    *list = first;
}
