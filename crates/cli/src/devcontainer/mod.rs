//! Development containers: what a project's `devcontainer.json` gives to `run` and `create`. Flags and
//! profiles win over it.
//!
//! The file is untrusted input, as `stockade.toml` is. What concerns the sandbox alone (its image, its
//! variables, commands that run inside) needs no consent. What opens anything else (mounts, volumes, the
//! caller's variables) has an effect only while the user trusts exactly this content.

mod find;
mod lifecycle;
mod properties;
mod requirements;
mod run_args;
mod variables;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::Dir;
use stockade_bundle::data::DataDir;
use stockade_bundle::manifest::ContentHash;
use stockade_bundle::project::Project;
use stockade_core::sandbox::Root;
use stockade_core::{Code, Problem};
use stockade_plan::image_root;

use self::lifecycle::COMMANDS;
use self::properties::{PROPERTIES, Support, asks_for_nothing};
use self::variables::Variables;
use crate::args::Run;
use crate::args::ports::published_port;
use crate::args::sandbox::Create;
use crate::args::sandbox_flags::{SandboxFlags, UserArgument};
use crate::data_dir::{data_path, open_data_dir};
use crate::profile::{Grants, OutsideMount, check_consent, nearest};
use crate::request::{Mount, read_mount, read_volume, root};
use crate::{images, registry};

/// The largest list of users of an image.
const MAX_USERS_BYTES: u64 = 1 << 20;

/// What a file asks for.
#[derive(Debug)]
pub(crate) struct DevContainer {
    /// The path of the file below the project.
    pub(crate) file: PathBuf,
    /// Where the project is visible.
    pub(crate) inside: PathBuf,
    content: Vec<u8>,
    /// The value of the flag that chose the file.
    flag: String,
    folder: PathBuf,
    image: Option<String>,
    user: Option<String>,
    environment: Vec<String>,
    mounts: Vec<String>,
    /// The other flags that `runArgs` names.
    flags: SandboxFlags,
    ports: Vec<u16>,
    /// The script of each command.
    scripts: BTreeMap<&'static str, String>,
    /// The caller's variables whose values it uses.
    variables: BTreeSet<String>,
}

/// Reads the properties of one file.
struct Reader<'a> {
    file: &'a Path,
    object: &'a Map<String, Value>,
}

impl Reader<'_> {
    fn invalid(&self, name: &str, why: &str) -> Problem {
        let message = format!("{}: `{name}` {why}", self.file.display());
        Problem::new(Code::InvalidInput, message)
    }

    /// A value that is there, and not null.
    fn value(&self, name: &str) -> Option<&Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    fn text(&self, name: &str) -> Result<Option<&str>, Problem> {
        let text = |value: &'_ Value| value.is_string();
        match self.value(name) {
            Some(value) if !text(value) => Err(self.invalid(name, "is not a text")),
            found => Ok(found.and_then(Value::as_str)),
        }
    }

    fn list(&self, name: &str) -> Result<Vec<&Value>, Problem> {
        match self.value(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(list)) => Ok(list.iter().collect()),
            Some(_) => Err(self.invalid(name, "is not a list")),
        }
    }

    /// Texts by name; `None` for null.
    fn pairs(&self, name: &str) -> Result<Vec<(String, Option<String>)>, Problem> {
        let object = match self.value(name) {
            None => return Ok(Vec::new()),
            Some(Value::Object(object)) => object,
            Some(_) => return Err(self.invalid(name, "is not an object of texts")),
        };
        let mut pairs = Vec::new();
        for (key, value) in object {
            if key.is_empty() || key.contains(['=', '\0']) {
                return Err(self.invalid(name, &format!("has {key:?}, which names no variable")));
            }
            let value = match value {
                Value::Null => None,
                Value::String(text) if !text.contains('\0') => Some(text.clone()),
                _ => return Err(self.invalid(name, &format!("has {key:?}, which is not a text"))),
            };
            pairs.push((key.clone(), value));
        }
        Ok(pairs)
    }

    /// Refuses what cannot be honoured.
    fn check(&self) -> Result<(), Problem> {
        for (name, value) in self.object {
            let known = PROPERTIES.iter().find(|(known, _)| known == name);
            match known.map(|(_, support)| support) {
                None => {
                    let problem = self.invalid(name, "is not a known property");
                    let known = PROPERTIES.iter().map(|(known, _)| *known);
                    return Err(match nearest(name, known) {
                        Some(near) => problem.because(format!("did you mean `{near}`?")),
                        None => problem,
                    });
                }
                Some(Support::Refused(why)) if !asks_for_nothing(name, value) => {
                    let message = format!("{}: `{name}` is not supported", self.file.display());
                    return Err(Problem::new(Code::Unsupported, message).because(*why));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

impl DevContainer {
    /// Reads the file of a project; `flag` is the name of one of several, or empty.
    ///
    /// # Errors
    /// [`Code::NotFound`]; [`Code::InvalidInput`] for a file that cannot be used; and
    /// [`Code::Unsupported`] for a property that is refused, with its name.
    pub(crate) fn read(project: &Project, flag: &str) -> Result<Self, Problem> {
        let found = find::find(project, (!flag.is_empty()).then_some(flag))?;
        let object = parse(&found.path, &found.content)?;
        let reader = Reader { file: &found.path, object: &object };
        reader.check()?;
        requirements::check(&reader, project)?;
        let mut variables = BTreeSet::new();
        let used = object.iter().filter(|(name, _)| {
            let support = PROPERTIES.iter().find(|(known, _)| known == name);
            support.is_some_and(|(_, support)| *support == Support::Honoured)
        });
        used.for_each(|(_, value)| variables::local_names(value, &mut variables));

        let id = id(project, &found.path);
        let none = BTreeMap::new();
        let early =
            Variables { local: &project.root, container: None, id: &id, container_env: &none };
        let inside = workspace_mount(&reader, project, &early)?;
        let folder = match reader.text("workspaceFolder")? {
            Some(folder) => PathBuf::from(early.expand(folder)),
            None => inside.clone(),
        };
        if !folder.is_absolute() {
            return Err(reader.invalid("workspaceFolder", "is not an absolute path"));
        }
        let container = Some(folder.as_path());
        let early = Variables { container, ..early };
        let container_env: BTreeMap<String, String> = reader
            .pairs("containerEnv")?
            .into_iter()
            .filter_map(|(name, value)| Some((name, early.expand(&value?))))
            .collect();
        let all = Variables { container_env: &container_env, ..early };
        let mut environment = container_env.clone();
        for (name, value) in reader.pairs("remoteEnv")? {
            match value {
                Some(value) => drop(environment.insert(name, all.expand(&value))),
                None => drop(environment.remove(&name)),
            }
        }
        let mut arguments = Vec::new();
        for argument in reader.list("runArgs")? {
            let text = argument
                .as_str()
                .ok_or_else(|| reader.invalid("runArgs", "is not a list of texts"))?;
            arguments.push(all.expand(text));
        }
        let mut flags = run_args::flags(&arguments)
            .map_err(|why| reader.invalid("runArgs", &format!("has {why}")))?;
        let mut pairs: Vec<String> =
            environment.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        for variable in std::mem::take(&mut flags.variables.env) {
            let text = variable.to_string_lossy().into_owned();
            if !text.contains('=') {
                variables.insert(text.clone());
            }
            pairs.push(text);
        }
        let user = match reader.text("remoteUser")? {
            Some(user) => Some(user),
            None => reader.text("containerUser")?,
        };
        let mut scripts = BTreeMap::new();
        for name in COMMANDS {
            if let Some(value) = reader.value(name) {
                let script = lifecycle::script(name, &all.expand_all(value));
                let script = script.map_err(|why| {
                    Problem::new(Code::InvalidInput, format!("{}: {why}", found.path.display()))
                })?;
                scripts.insert(name, script);
            }
        }
        let image = reader.text("image")?.map(|image| all.expand(image));
        let user = user.map(|user| all.expand(user));
        let mounts = mounts(&reader, &all)?;
        Ok(Self {
            inside,
            folder,
            image,
            user,
            environment: pairs,
            mounts,
            flags,
            ports: ports(&reader)?,
            scripts,
            variables,
            flag: flag.to_owned(),
            content: found.content,
            file: found.path,
        })
    }

    /// The same, for a command that uses it: what it opens must be trusted.
    ///
    /// # Errors
    /// As [`DevContainer::read`], and [`Code::PathRefused`] for what is not trusted.
    pub(crate) fn trusted(project: &Project, flag: &str, data: &DataDir) -> Result<Self, Problem> {
        let read = Self::read(project, flag)?;
        check_consent(project, data, &read.file, &read.grants(project)?)
            .map_err(|problem| problem.remedied_by(read.trust_command()))?;
        Ok(read)
    }

    fn trust_command(&self) -> String {
        match self.flag.as_str() {
            "" => "stockade trust --devcontainer".to_owned(),
            name => format!("stockade trust --devcontainer={name}"),
        }
    }

    /// What it asks for, for the user's decision.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for a mount that is invalid.
    pub(crate) fn grants(&self, project: &Project) -> Result<Grants, Problem> {
        let mut grants = Grants::of(&self.content);
        let line = |key: &str, text: &str| format!("{key}: {text}");
        let host = |path: &Path| {
            path.canonicalize().map_err(|error| {
                Problem::new(
                    Code::InvalidInput,
                    format!("cannot use {} of the host", path.display()),
                )
                .because(error.to_string())
            })
        };
        let root = host(&project.root)?;
        if let Some(image) = &self.image {
            match image_path(image, project) {
                Some(path) if !host(&path)?.starts_with(&root) => {
                    let mount = OutsideMount { text: image.clone(), host: host(&path)? };
                    grants.mounts.push(mount);
                }
                _ => grants.lines.push(line("image", image)),
            }
        }
        let of_mounts = self.all_mounts().map(|text| read_mount(text.as_ref(), &project.root));
        let of_flags = self.flags.volume.iter().map(|text| read_volume(text, &project.root));
        let texts = self
            .all_mounts()
            .chain(self.flags.volume.iter().map(|text| text.to_string_lossy().into_owned()));
        for (text, mount) in texts.collect::<Vec<_>>().into_iter().zip(of_mounts.chain(of_flags)) {
            match mount? {
                Mount::Host(mount) => {
                    let real = host(&mount.host)?;
                    if !mount.writable && real.starts_with(&root) {
                        grants.lines.push(line("mount", &text));
                    } else {
                        grants.mounts.push(OutsideMount { text, host: real });
                    }
                }
                Mount::Volume(_) => grants.volumes.push(text),
            }
        }
        grants.variables.extend(self.variables.iter().cloned());
        let names = self.environment.iter().map(|pair| pair.split('=').next().unwrap_or_default());
        grants.lines.extend(names.map(|name| line("variable", name)));
        grants.lines.extend(self.scripts.keys().map(|name| line("command inside", name)));
        grants.lines.extend(self.ports.iter().map(|port| line("port", &port.to_string())));
        Ok(grants)
    }

    fn all_mounts(&self) -> impl Iterator<Item = String> {
        let of_flags = self.flags.mount.iter().map(|text| text.to_string_lossy().into_owned());
        self.mounts.iter().cloned().chain(of_flags)
    }

    /// Adds its values to the flags of a sandbox, in which they are the weakest.
    fn apply(&self, flags: &mut SandboxFlags, project: &Project) -> Result<(), Problem> {
        if flags.image.is_none() {
            let image = self.image.as_ref().ok_or_else(|| {
                let message = format!("{}: there is no `image`", self.file.display());
                Problem::new(Code::InvalidInput, message)
                    .because("it says what the root file system is")
                    .remedied_by("--image DIR")
            })?;
            flags.image = Some(image_path(image, project).unwrap_or_else(|| image.into()));
        }
        let first = |list: &mut Vec<OsString>, more: Vec<OsString>| {
            let later = std::mem::replace(list, more);
            list.extend(later);
        };
        first(&mut flags.mount, self.all_mounts().map(OsString::from).collect());
        first(&mut flags.volume, self.flags.volume.clone());
        let environment = self.environment.iter().map(OsString::from).collect();
        first(&mut flags.variables.profile, environment);
        let mut labels = self.flags.label.clone();
        labels.append(&mut flags.label);
        flags.label = labels;
        flags.memory = flags.memory.or(self.flags.memory);
        flags.cpus = flags.cpus.or(self.flags.cpus);
        flags.pids = flags.pids.or(self.flags.pids);
        flags.shm = flags.shm.or(self.flags.shm);
        if flags.cwd.is_none() {
            flags.cwd = self.flags.cwd.clone();
        }
        if flags.cwd.is_none() && self.folder != self.inside {
            flags.cwd = Some(self.folder.clone());
        }
        flags.user = flags.user.or(self.flags.user);
        if let (None, Some(user)) = (flags.user, &self.user) {
            flags.user = self.user_of(user, flags)?;
        }
        Ok(())
    }

    /// Adds its values to the flags of `run`. The commands of its lifecycle run before the command, in the
    /// same sandbox.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for a missing image or an unknown user, [`Code::Unsupported`] for a property
    /// that `run` cannot honour.
    pub(crate) fn apply_to_run(&self, run: &mut Run, project: &Project) -> Result<(), Problem> {
        if !self.ports.is_empty() {
            return Err(self
                .unsupported("forwardPorts", "`stockade run` forwards no ports")
                .remedied_by("stockade create --devcontainer"));
        }
        self.apply(&mut run.sandbox, project)?;
        run.inside = Some(self.inside.clone());
        let scripts: Vec<_> =
            COMMANDS.iter().filter_map(|name| self.scripts.get(name).cloned()).collect();
        if !scripts.is_empty() {
            let script = lifecycle::whole(&scripts) + "exec \"$@\"\n";
            let shell = ["/bin/sh", "-c", &script, "sh"].map(OsString::from);
            let command = std::mem::take(&mut run.command);
            run.command = shell.into_iter().chain(command).collect();
        }
        Ok(())
    }

    /// Adds its values to the flags of `create`; the result is the script that runs after the creation.
    ///
    /// # Errors
    /// As [`DevContainer::apply_to_run`].
    pub(crate) fn apply_to_create(
        &self,
        create: &mut Create,
        project: &Project,
    ) -> Result<Option<String>, Problem> {
        if self.scripts.contains_key("postAttachCommand") {
            let why = "no command of Stockade attaches an editor to a sandbox";
            return Err(self
                .unsupported("postAttachCommand", why)
                .remedied_by("stockade run --devcontainer -- CMD"));
        }
        self.apply(&mut create.sandbox, project)?;
        if create.workspace.is_none() {
            let mut workspace = project.root.clone().into_os_string();
            workspace.push(":");
            workspace.push(&self.inside);
            create.workspace = Some(workspace.into());
        }
        for port in &self.ports {
            let is_there = create.publish.iter().any(|own| own.ports.inside == *port);
            let text = format!("{port}:{port}");
            match published_port(&text) {
                Ok(_) if is_there => {}
                Ok(published) => create.publish.push(published),
                Err(why) => return Err(Problem::new(Code::InvalidInput, why)),
            }
        }
        let scripts: Vec<_> =
            COMMANDS.iter().filter_map(|name| self.scripts.get(name).cloned()).collect();
        Ok((!scripts.is_empty()).then(|| lifecycle::whole(&scripts)))
    }

    /// The script that runs each time that a sandbox was started again.
    pub(crate) fn start_script(&self) -> Option<String> {
        let script = self.scripts.get("postStartCommand")?;
        Some(lifecycle::whole(std::slice::from_ref(script)))
    }

    fn unsupported(&self, name: &str, why: &str) -> Problem {
        let message = format!("{}: `{name}` is not supported here", self.file.display());
        Problem::new(Code::Unsupported, message).because(why)
    }

    /// The ids of a user by number or name; the image's own list of users says what a name means. `None`
    /// where the sandboxes of the caller have one id alone, whatever an image names.
    fn user_of(&self, user: &str, flags: &SandboxFlags) -> Result<Option<UserArgument>, Problem> {
        if let Ok(ids) = user.parse() {
            return Ok(Some(ids));
        }
        let image = flags.image.as_deref();
        if let Some(image) = image
            && let Root::Image(name) = root(image, Path::new("/"))
        {
            return self.user_of_stored(user, &name, flags);
        }
        let listed = image.and_then(users).unwrap_or_default();
        let of_line = |line: &str| {
            let fields: Vec<_> = line.split(':').collect();
            (fields.first() == Some(&user)).then(|| {
                Some(UserArgument {
                    user: fields.get(2)?.parse().ok()?,
                    group: fields.get(3)?.parse().ok()?,
                })
            })?
        };
        let found = listed.lines().find_map(of_line);
        let root = (user == "root").then_some(UserArgument { user: 0, group: 0 });
        found.or(root).map(Some).ok_or_else(|| self.no_user(user))
    }

    /// The same for an image of the store, which is downloaded where it is missing.
    fn user_of_stored(
        &self,
        user: &str,
        name: &str,
        flags: &SandboxFlags,
    ) -> Result<Option<UserArgument>, Problem> {
        let data = open_data_dir(&data_path()?)?;
        registry::ensure_root(&data, flags, Path::new("/"), false)?;
        let image = image_root::find(name, &data).map_err(|error| images::problem(&error))?;
        let unread = |_| self.no_user(user);
        let tree = stockade_image::Tree::open(&image).map_err(unread)?;
        let found = image.user(user, &tree).map_err(|_| self.no_user(user))?;
        if !rustix::process::geteuid().is_root() {
            eprint_line!(
                "stockade: note: {}: the user {user} has your own id, as all of the image",
                self.file.display()
            );
            return Ok(None);
        }
        Ok(Some(UserArgument { user: found.user, group: found.group }))
    }

    fn no_user(&self, user: &str) -> Problem {
        let message = format!("{}: the image has no user {user:?}", self.file.display());
        Problem::new(Code::InvalidInput, message).remedied_by("--user 1000")
    }
}

/// The list of users of an image that is a directory.
fn users(image: &Path) -> Option<String> {
    use std::io::Read as _;
    let path = RelativePath::new(&b"etc/passwd"[..]).ok()?;
    let file = Dir::open(image).ok()?.open_file(&path).ok()?;
    let mut text = String::new();
    file.take(MAX_USERS_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The path of an image that is a directory or archive of the host: relative to the project.
fn image_path(image: &str, project: &Project) -> Option<PathBuf> {
    let path = project.root.join(image);
    let is_path = image.starts_with(['.', '/']) || image.contains("..") || path.exists();
    is_path.then_some(path)
}

/// JSON with comments and commas after the last item.
fn parse(file: &Path, content: &[u8]) -> Result<Map<String, Value>, Problem> {
    let invalid = |why: String| {
        Problem::new(Code::InvalidInput, format!("{} is invalid", file.display())).because(why)
    };
    let text =
        std::str::from_utf8(content).map_err(|_| invalid("it is not UTF-8 text".to_owned()))?;
    let options = jsonc_parser::ParseOptions::default();
    let value: Value =
        jsonc_parser::parse_to_serde_value(text.trim_start_matches('\u{feff}'), &options)
            .map_err(|error| invalid(error.to_string()))?;
    match value {
        Value::Object(object) => Ok(object),
        _ => Err(invalid("it is not an object".to_owned())),
    }
}

/// An id of the configuration that is the same each time: a number in the digits of base 32.
fn id(project: &Project, file: &Path) -> String {
    let mut named = project.root.as_os_str().as_encoded_bytes().to_vec();
    named.push(0);
    named.extend_from_slice(file.as_os_str().as_encoded_bytes());
    let digits = ContentHash::of(&named).to_hex();
    // Each pair of hexadecimal digits would do; one digit is valid in base 32 too.
    digits[..52].to_owned()
}

/// Where the project is visible. Its source must be the project.
fn workspace_mount(
    reader: &Reader<'_>,
    project: &Project,
    variables: &Variables<'_>,
) -> Result<PathBuf, Problem> {
    const NAME: &str = "workspaceMount";
    let Some(text) = reader.text(NAME)? else {
        let base = project.root.file_name().unwrap_or_default();
        return Ok(Path::new("/workspaces").join(base));
    };
    let text = variables.expand(text);
    let (mut source, mut target) = (None, None);
    for part in text.split(',') {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        match key {
            "source" | "src" => source = Some(value.to_owned()),
            "target" | "destination" | "dst" => target = Some(PathBuf::from(value)),
            "type" if value == "bind" => {}
            "consistency" => {}
            _ => return Err(reader.invalid(NAME, &format!("has {part:?}, which is not supported"))),
        }
    }
    if source.as_deref().map(Path::new) != Some(&project.root) {
        return Err(reader.invalid(NAME, "has another source than `${localWorkspaceFolder}`"));
    }
    let target = target.filter(|target| target.is_absolute() && target != Path::new("/"));
    target.ok_or_else(|| reader.invalid(NAME, "has no absolute target"))
}

/// The mounts, in the form of `--mount` with keys.
fn mounts(reader: &Reader<'_>, variables: &Variables<'_>) -> Result<Vec<String>, Problem> {
    const NAME: &str = "mounts";
    let mut mounts = Vec::new();
    for mount in reader.list(NAME)? {
        match mount {
            Value::String(text) => mounts.push(variables.expand(text)),
            Value::Object(object) => {
                let mut parts = Vec::new();
                for (key, value) in object {
                    let text = value.as_str().map(|text| variables.expand(text));
                    let text = text.filter(|text| !text.contains(','));
                    let known = ["type", "source", "target"].contains(&key.as_str());
                    let Some(text) = text.filter(|_| known) else {
                        return Err(
                            reader.invalid(NAME, &format!("has {key:?}, which is not supported"))
                        );
                    };
                    parts.push(format!("{key}={text}"));
                }
                mounts.push(parts.join(","));
            }
            _ => {
                return Err(
                    reader.invalid(NAME, "has an item that is neither a text nor an object")
                );
            }
        }
    }
    if let Some(bad) = mounts.iter().find(|text| !crate::request::has_mount_keys(text.as_ref())) {
        return Err(
            reader.invalid(NAME, &format!("has {bad:?}, which is not `type=…,source=…,target=…`"))
        );
    }
    Ok(mounts)
}

/// The ports to forward, which are those of the sandbox itself.
fn ports(reader: &Reader<'_>) -> Result<Vec<u16>, Problem> {
    const NAME: &str = "forwardPorts";
    let mut ports = Vec::new();
    for port in reader.list(NAME)? {
        let number = match port {
            Value::Number(number) => number.as_u64(),
            Value::String(text) => {
                let (host, number) = text.rsplit_once(':').unwrap_or(("localhost", text));
                if !["localhost", "127.0.0.1"].contains(&host) {
                    return Err(
                        reader.invalid(NAME, &format!("has {text:?}, which is another container"))
                    );
                }
                number.parse().ok()
            }
            _ => None,
        };
        let number = number.and_then(|number| u16::try_from(number).ok()).filter(|port| *port > 0);
        ports
            .push(number.ok_or_else(|| {
                reader.invalid(NAME, &format!("has {port}, which is not a port"))
            })?);
    }
    Ok(ports)
}

#[cfg(test)]
mod tests;
