//! What the user trusts: the exact content of a project's `stockade.toml`, and in it each grant of
//! something outside of the project. A record lies in the data directory, which no sandbox can reach.

use std::ffi::{OsStr, OsString};
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{Dir, Rename};
use stockade_bundle::data::DataDir;
use stockade_bundle::manifest::ContentHash;
use stockade_bundle::project::Project;
use stockade_core::{Bytes, Code, Problem};

use super::document::{Document, Values};
use super::file::{self, Kind};
use super::{PROJECT_FILE, expand, invalid};
use crate::problem::caused;
use crate::request::split_mount;

/// The largest record.
const MAX_RECORD_BYTES: u64 = 1 << 20;

/// The stored record about one project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    /// The project's root.
    project: Bytes,
    /// The hash of the content of its file.
    hash: String,
    /// The mounts that need the user's consent, with the paths that they led to.
    mounts: Vec<(String, Bytes)>,
    /// The volumes that were accepted. Records of earlier versions have none.
    #[serde(default)]
    volumes: Vec<String>,
    /// The toolchains that were accepted.
    #[serde(default)]
    tools: Vec<String>,
}

/// A trusted file.
#[derive(Debug)]
pub(super) struct TrustedFile {
    pub(super) document: Document,
    record: Record,
}

/// A mount that gives more than the project's own files read-only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OutsideMount {
    /// As in the file.
    pub(crate) text: String,
    /// The path that it leads to, without links.
    pub(crate) host: PathBuf,
}

/// Everything that a file asks for.
#[derive(Debug)]
pub(crate) struct Grants {
    hash: String,
    /// One line for each ordinary grant.
    pub(crate) lines: Vec<String>,
    pub(crate) mounts: Vec<OutsideMount>,
    /// Volumes, which other sandboxes of the user see too.
    pub(crate) volumes: Vec<String>,
    /// Toolchains of the user's home directory.
    pub(crate) tools: Vec<String>,
    /// As for `--secret`.
    pub(crate) secrets: Vec<String>,
    /// The caller's variables that are passed on.
    pub(crate) variables: Vec<String>,
    /// Whether exactly this content is trusted already.
    pub(crate) is_trusted: bool,
}

/// The texts of grants that the user accepted by name.
#[derive(Debug, Default)]
pub(crate) struct Accepted<'a> {
    pub(crate) mounts: &'a [String],
    pub(crate) volumes: &'a [String],
    pub(crate) tools: &'a [String],
    pub(crate) secrets: &'a [String],
    pub(crate) variables: &'a [String],
}

/// The project's file if it is trusted. Adds a note if there is one that is not.
pub(super) fn trusted(
    project: &Project,
    data: &DataDir,
    notes: &mut Vec<String>,
) -> Result<Option<TrustedFile>, Problem> {
    let content = match read(project) {
        Ok(Some(content)) => content,
        Ok(None) => return Ok(None),
        Err(problem) => {
            let cause = problem.cause.unwrap_or(problem.message);
            notes.push(format!("{PROJECT_FILE} of this project is ignored: {cause}"));
            return Ok(None);
        }
    };
    // What is parsed is what was hashed: the file is read once.
    let hash = ContentHash::of(&content).to_hex();
    match stored(project, data, Path::new(PROJECT_FILE))? {
        Some(record) if record.hash == hash => {
            let document = parse(project, &content)?;
            Ok(Some(TrustedFile { document, record }))
        }
        record => {
            let why = match record {
                Some(_) => "it has changed since it was trusted",
                None => "it is not trusted",
            };
            notes.push(format!(
                "{PROJECT_FILE} of this project is ignored, because {why}: `stockade trust` shows what it asks for"
            ));
            Ok(None)
        }
    }
}

impl TrustedFile {
    /// Refuses the volumes and toolchains of a profile that the user was not asked about.
    ///
    /// # Errors
    /// [`Code::PathRefused`].
    pub(super) fn check_consent(&self, values: &Values) -> Result<(), Problem> {
        let volume = values.volumes.iter().find(|text| !self.record.volumes.contains(text));
        let tools = values.tools.iter().map(|tool| tool.name());
        let tool = tools.into_iter().find(|name| !self.record.tools.contains(name));
        match volume.cloned().or(tool) {
            None => Ok(()),
            Some(text) => {
                let message = format!("{text:?} of {PROJECT_FILE} was not accepted");
                Err(Problem::new(Code::PathRefused, message)
                    .because("it was trusted by a version that did not ask; remove that trust, then trust it again")
                    .remedied_by("stockade trust --remove"))
            }
        }
    }

    /// The mounts of a profile, with the paths that they lead to.
    ///
    /// # Errors
    /// [`Code::PathRefused`] for a mount that now leads elsewhere.
    pub(super) fn mounts_of(
        &self,
        profile: &str,
        project: &Project,
    ) -> Result<Vec<OsString>, Problem> {
        let mounts = self.document.profiles.get(profile).map(|values| &values.mounts);
        let mut resolved = Vec::new();
        for text in mounts.into_iter().flatten() {
            let (host, is_inside) = resolve(text, project)?;
            let accepted = self.record.mounts.iter();
            let mut accepted = accepted.filter(|(accepted, _)| accepted == text);
            let same = |(_, path): &(String, Bytes)| path.0 == host.as_os_str().as_bytes();
            if !is_inside && !accepted.any(same) {
                let message =
                    format!("the mount {text:?} of {PROJECT_FILE} now leads to {}", host.display());
                return Err(Problem::new(Code::PathRefused, message).remedied_by("stockade trust"));
            }
            let Some((_, rest)) = split_mount(OsStr::new(text)) else { continue };
            let mut whole = host.into_os_string();
            whole.push(rest);
            resolved.push(whole);
        }
        Ok(resolved)
    }
}

/// What the project's file asks for; `None` if there is no file.
///
/// # Errors
/// [`Code::InvalidInput`] for a file that cannot be used.
pub(crate) fn project_grants(project: &Project, data: &DataDir) -> Result<Option<Grants>, Problem> {
    let Some(content) = read(project)? else { return Ok(None) };
    let document = parse(project, &content)?;
    let mut grants = Grants::of(&content);
    grants.is_trusted = is_trusted(project, data, Path::new(PROJECT_FILE), &grants)?;
    if let Some(default) = &document.default {
        grants.lines.push(format!("default profile: {default}"));
    }
    for (name, values) in &document.profiles {
        grants.add(name, values, project)?;
    }
    Ok(Some(grants))
}

/// Whether exactly the content of a project's file that these grants were read from is trusted.
///
/// # Errors
/// [`Code::Io`] if the record cannot be read.
pub(crate) fn is_trusted(
    project: &Project,
    data: &DataDir,
    file: &Path,
    grants: &Grants,
) -> Result<bool, Problem> {
    Ok(stored(project, data, file)?.is_some_and(|record| record.hash == grants.hash))
}

/// Refuses what a project's file opens outside of its sandbox, unless the user trusts exactly this
/// content, and each mount still leads to the path that was accepted.
///
/// # Errors
/// [`Code::PathRefused`].
pub(crate) fn check_consent(
    project: &Project,
    data: &DataDir,
    file: &Path,
    grants: &Grants,
) -> Result<(), Problem> {
    let missing = grants.missing(&Accepted::default());
    let Some((_, first)) = missing.first() else { return Ok(()) };
    let refused = |why: String| {
        let message = format!("{} asks for what is outside of its sandbox", file.display());
        Problem::new(Code::PathRefused, message).because(why)
    };
    let record = match stored(project, data, file)? {
        Some(record) if record.hash == grants.hash => record,
        Some(_) => return Err(refused("it has changed since it was trusted".to_owned())),
        None => return Err(refused(format!("it is not trusted, and has {first:?}"))),
    };
    let is_accepted = |mount: &&OutsideMount| {
        let host = mount.host.as_os_str().as_bytes();
        record.mounts.iter().any(|(text, path)| *text == mount.text && path.0 == host)
    };
    match grants.mounts.iter().find(|mount| !is_accepted(mount)) {
        Some(OutsideMount { text, host }) => {
            Err(refused(format!("{text:?} now leads to {}", host.display())))
        }
        None => Ok(()),
    }
}

/// The content of a file in a project, with the checks of every such file. Messages name `path`.
///
/// # Errors
/// [`Code::InvalidInput`] for a file that cannot be used.
pub(crate) fn read_project_file(
    project: &Project,
    directory: impl std::os::fd::AsFd,
    name: &Path,
    path: &Path,
) -> Result<Option<Vec<u8>>, Problem> {
    file::read(directory, name, path, Kind::Project { owner: project.stat.uid })
}

impl Grants {
    /// Nothing yet, of a file with this content.
    pub(crate) fn of(content: &[u8]) -> Self {
        Self {
            hash: ContentHash::of(content).to_hex(),
            lines: Vec::new(),
            mounts: Vec::new(),
            volumes: Vec::new(),
            tools: Vec::new(),
            secrets: Vec::new(),
            variables: Vec::new(),
            is_trusted: false,
        }
    }

    fn add(&mut self, name: &str, values: &Values, project: &Project) -> Result<(), Problem> {
        let line = |key: &str, value: &dyn std::fmt::Display| format!("[{name}] {key}: {value}");
        self.lines.extend(values.allow.iter().map(|host| line("allow", host)));
        self.lines.extend(values.hide.iter().map(|path| line("hide", path)));
        self.lines.extend(values.caches.iter().map(|cache| line("cache", cache)));
        let limits = values.limits.written.iter();
        self.lines.extend(limits.map(|(limit, text)| line("limits", &format!("{limit} = {text}"))));
        for text in &values.environment {
            if text.contains('=') {
                self.lines.push(line("env", text));
            } else if !self.variables.contains(text) {
                self.variables.push(text.clone());
            }
        }
        for text in &values.volumes {
            if !self.volumes.contains(text) {
                self.volumes.push(text.clone());
            }
        }
        for tool in values.tools.iter().map(|tool| tool.name()) {
            if !self.tools.contains(&tool) {
                self.tools.push(tool);
            }
        }
        for (text, _) in &values.secrets {
            if !self.secrets.contains(text) {
                self.secrets.push(text.clone());
            }
        }
        for text in &values.mounts {
            let (host, is_inside) = resolve(text, project)?;
            let mount = OutsideMount { text: text.clone(), host };
            if is_inside {
                self.lines.push(line("mount", text));
            } else if !self.mounts.contains(&mount) {
                self.mounts.push(mount);
            }
        }
        Ok(())
    }

    /// The flags that accept the grants that `accepted` does not name yet.
    pub(crate) fn missing(&self, accepted: &Accepted<'_>) -> Vec<(&'static str, String)> {
        let mounts = self.mounts.iter().map(|mount| &mount.text);
        let of = |flag, texts: Vec<&String>, named: &[String]| -> Vec<(&'static str, String)> {
            let missing = texts.into_iter().filter(|text| !named.contains(text));
            missing.map(|text| (flag, text.clone())).collect()
        };
        [
            of("--accept-mount", mounts.collect(), accepted.mounts),
            of("--accept-volume", self.volumes.iter().collect(), accepted.volumes),
            of("--accept-tools", self.tools.iter().collect(), accepted.tools),
            of("--accept-secret", self.secrets.iter().collect(), accepted.secrets),
            of("--accept-env", self.variables.iter().collect(), accepted.variables),
        ]
        .concat()
    }
}

/// Records that the user trusts the content that these grants were read from.
///
/// # Errors
/// [`Code::Io`] if the record cannot be written.
pub(crate) fn record(
    project: &Project,
    data: &DataDir,
    file: &Path,
    grants: &Grants,
) -> Result<(), Problem> {
    let host = |mount: &OutsideMount| mount.host.as_os_str().as_bytes().into();
    let record = Record {
        project: project.root.as_os_str().as_bytes().into(),
        hash: grants.hash.clone(),
        mounts: grants.mounts.iter().map(|mount| (mount.text.clone(), host(mount))).collect(),
        volumes: grants.volumes.clone(),
        tools: grants.tools.clone(),
    };
    let text = serde_json::to_vec(&record).map_err(|error| caused(Code::Io, &error))?;
    let directory = directory(data)?;
    let (path, temporary) =
        (record_name(project, file, "json")?, record_name(project, file, "new")?);
    let failed = |error: stockade_bundle::beneath::Error| caused(Code::Io, &error);
    if directory.exists(&temporary).map_err(failed)? {
        directory.remove_file(&temporary).map_err(failed)?;
    }
    let mut written = directory.create_file(&temporary, 0o600).map_err(failed)?;
    written.write_all(&text).and_then(|()| written.sync_all()).map_err(|e| caused(Code::Io, &e))?;
    directory.rename(&temporary, &directory, &path, Rename::Replace).map_err(failed)
}

/// Removes the record about a project; whether there was one.
///
/// # Errors
/// [`Code::Io`] if it cannot be removed.
pub(crate) fn remove(project: &Project, data: &DataDir, file: &Path) -> Result<bool, Problem> {
    let directory = directory(data)?;
    let path = record_name(project, file, "json")?;
    let failed = |error: stockade_bundle::beneath::Error| caused(Code::Io, &error);
    if !directory.exists(&path).map_err(failed)? {
        return Ok(false);
    }
    directory.remove_file(&path).map_err(failed)?;
    Ok(true)
}

fn directory(data: &DataDir) -> Result<Dir, Problem> {
    data.trust().map_err(|error| caused(Code::Io, &error))
}

/// The name of the record about a file of a project.
fn record_name(project: &Project, file: &Path, extension: &str) -> Result<RelativePath, Problem> {
    let mut named = project.root.as_os_str().as_bytes().to_vec();
    if file != Path::new(PROJECT_FILE) {
        named.push(0);
        named.extend_from_slice(file.as_os_str().as_bytes());
    }
    let name = ContentHash::of(&named).to_hex();
    RelativePath::new(format!("{name}.{extension}").as_bytes())
        .map_err(|error| caused(Code::Io, &error))
}

fn stored(project: &Project, data: &DataDir, file: &Path) -> Result<Option<Record>, Problem> {
    let directory = directory(data)?;
    let path = record_name(project, file, "json")?;
    let failed = |error: stockade_bundle::beneath::Error| caused(Code::Io, &error);
    if !directory.exists(&path).map_err(failed)? {
        return Ok(None);
    }
    let mut content = Vec::new();
    let record = directory.open_file(&path).map_err(failed)?;
    record
        .take(MAX_RECORD_BYTES)
        .read_to_end(&mut content)
        .map_err(|error| caused(Code::Io, &error))?;
    // A record that is damaged, or of a later version, trusts nothing.
    let record: Option<Record> = serde_json::from_slice(&content).ok();
    Ok(record.filter(|record| record.project.0 == project.root.as_os_str().as_bytes()))
}

fn read(project: &Project) -> Result<Option<Vec<u8>>, Problem> {
    let path = project.root.join(PROJECT_FILE);
    read_project_file(project, &project.dir, Path::new(PROJECT_FILE), &path)
}

fn parse(project: &Project, content: &[u8]) -> Result<Document, Problem> {
    let path = project.root.join(PROJECT_FILE);
    let document = Document::parse(content).map_err(|why| invalid(&path, why))?;
    match document.registries {
        // Images of other projects would come from where this project says.
        Some(_) => Err(invalid(&path, "[registries] is for your own config.toml".to_owned())),
        None => Ok(document),
    }
}

/// The path that a mount leads to, and whether it only shows files of the project: a writable mount
/// would change them without a review.
fn resolve(text: &str, project: &Project) -> Result<(PathBuf, bool), Problem> {
    let path = project.root.join(PROJECT_FILE);
    let wrong = |why: &str| invalid(&path, format!("mount {text:?}: {why}"));
    let (host, rest) = split_mount(OsStr::new(text))
        .ok_or_else(|| wrong("expected /path/on/host:/path/inside:ro"))?;
    let host = project.root.join(expand(&host)?);
    let host = host.canonicalize().map_err(|error| wrong(&error.to_string()))?;
    let root = project.root.canonicalize().map_err(|error| wrong(&error.to_string()))?;
    let is_read_only = rest.into_vec().ends_with(b":ro");
    let is_inside = is_read_only && host.starts_with(&root);
    Ok((host, is_inside))
}
