//! How a process of an image is started: the configuration of the image, with its user looked up in
//! the image's own `/etc/passwd` and `/etc/group`, as Docker does.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use crate::layer;
use crate::store::Image;
use crate::tree::Tree;

/// The largest file of users or groups that is read.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// How many other groups a user has at most.
const MAX_GROUPS: usize = 64;
/// The search path where the image has none, as Docker sets it.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The signals that have names.
const SIGNALS: [(&str, i32); 31] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("STKFLT", 16),
    ("CHLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("WINCH", 28),
    ("IO", 29),
    ("PWR", 30),
    ("SYS", 31),
];

/// A user of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The user id.
    pub user: u32,
    /// The group id.
    pub group: u32,
    /// The ids of the other groups that list the user, unless the text names a group.
    pub groups: Vec<u32>,
    /// The name; absent where the image lists no user of that id.
    pub name: Option<String>,
    /// The home directory: `/` where the image lists no user of that id.
    pub home: String,
    /// The shell; empty where the image names none.
    pub shell: String,
}

/// How a process is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The user; `None` where the image names none, which is root for Docker.
    pub user: Option<User>,
    /// The environment.
    pub environment: BTreeMap<String, String>,
    /// What is executed; arguments are added.
    pub entrypoint: Vec<String>,
    /// The arguments unless others are given.
    pub command: Vec<String>,
    /// The working directory.
    pub working_directory: PathBuf,
    /// The signal that asks the process to end.
    pub stop_signal: i32,
}

/// Why the configuration of an image cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InvalidProcess {
    /// It names a user or group that the image does not list.
    #[error("the image has no {kind} `{}`", name.escape_debug())]
    NoSuchName {
        /// `user` or `group`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A part of it has a value that nothing can have.
    #[error("the image's {what} `{}` is invalid", value.escape_debug())]
    Invalid {
        /// The part.
        what: &'static str,
        /// Its value.
        value: String,
    },
    /// The image's files cannot be read.
    #[error("the image's files cannot be read")]
    Read(#[from] layer::Error),
}

impl Image {
    /// How a process of this image is started.
    ///
    /// # Errors
    /// What is wrong with the configuration.
    pub fn start(&self, tree: &Tree) -> Result<Start, InvalidProcess> {
        let process = &self.configuration.config;
        let mut environment = BTreeMap::from([("PATH".to_owned(), PATH.to_owned())]);
        for line in &process.env {
            let (name, value) = line.split_once('=').unwrap_or((line, ""));
            if name.is_empty() || line.contains('\0') {
                return Err(invalid("variable", line));
            }
            environment.insert(name.to_owned(), value.to_owned());
        }
        let words = process.entrypoint.iter().chain(&process.cmd);
        if let Some(word) = words.clone().find(|word| word.contains('\0')) {
            return Err(invalid("command", word));
        }
        let user = match process.user.as_str() {
            "" => None,
            named => Some(self.user(named, tree)?),
        };
        Ok(Start {
            user,
            environment,
            entrypoint: process.entrypoint.clone(),
            command: process.cmd.clone(),
            working_directory: self.working_directory()?,
            stop_signal: signal(&process.stop_signal)?,
        })
    }

    /// The directory in which a process of the image starts.
    ///
    /// # Errors
    /// It is a path that nothing can have.
    pub fn working_directory(&self) -> Result<PathBuf, InvalidProcess> {
        inside("working directory", &self.configuration.config.working_dir)
    }

    /// The directories of the image with writable content of their own.
    ///
    /// # Errors
    /// One has a path that nothing can have.
    pub fn volumes(&self) -> Result<Vec<PathBuf>, InvalidProcess> {
        self.configuration.config.volumes.keys().map(|path| inside("volume", path)).collect()
    }

    /// The user of a text: a name or an id, or two of them with a colon between: user and group.
    ///
    /// # Errors
    /// [`InvalidProcess::NoSuchName`] for a name that the image does not list.
    pub fn user(&self, text: &str, tree: &Tree) -> Result<User, InvalidProcess> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group).filter(|group| !group.is_empty())),
            None => (text, None),
        };
        let listed = |file: &str| -> Result<Vec<Vec<String>>, layer::Error> {
            let text = tree.read(Path::new(file), MAX_FILE_BYTES)?.unwrap_or_default();
            let lines = String::from_utf8_lossy(&text).into_owned();
            let fields = |line: &str| line.split(':').map(str::to_owned).collect();
            Ok(lines.lines().map(fields).collect())
        };
        let id = |text: &str, what| match text.parse::<u32>() {
            Ok(id) if i32::try_from(id).is_ok() => Ok(Some(id)),
            Ok(_) => Err(invalid(what, text)),
            Err(_) => Ok(None),
        };
        let wanted = if user.is_empty() { Some(0) } else { id(user, "user")? };
        let users = listed("/etc/passwd")?;
        let found = users.iter().find(|fields| {
            let found = fields.get(2).and_then(|id| id.parse::<u32>().ok());
            fields.first().is_some_and(|name| name == user) || (wanted.is_some() && found == wanted)
        });
        let number = |at: usize| {
            found.and_then(|fields| fields.get(at)).and_then(|id| id.parse::<u32>().ok())
        };
        let user_id = number(2).or(wanted).ok_or_else(|| no_such("user", user))?;
        let group_id = match group {
            None => number(3).unwrap_or(0),
            Some(group) => {
                let groups = listed("/etc/group")?;
                let named =
                    groups.iter().find(|fields| fields.first().is_some_and(|name| name == group));
                let named = named.and_then(|fields| fields.get(2)?.parse::<u32>().ok());
                named
                    .map_or_else(|| id(group, "group"), |id| Ok(Some(id)))?
                    .ok_or_else(|| no_such("group", group))?
            }
        };
        let mut others = Vec::new();
        if let (None, Some(name)) = (group, found.and_then(|fields| fields.first())) {
            for fields in listed("/etc/group")? {
                let has_user =
                    fields.get(3).is_some_and(|users| users.split(',').any(|user| user == name));
                let id = fields.get(2).and_then(|id| id.parse::<u32>().ok());
                if let Some(id) = id.filter(|_| has_user && others.len() < MAX_GROUPS) {
                    others.push(id);
                }
            }
            others.sort_unstable();
            others.dedup();
        }
        let field = |at: usize| found.and_then(|fields| fields.get(at)).cloned();
        Ok(User {
            user: user_id,
            group: group_id,
            groups: others,
            name: field(0).filter(|name| !name.is_empty()),
            home: field(5).filter(|home| home.starts_with('/')).unwrap_or_else(|| "/".to_owned()),
            shell: field(6).unwrap_or_default(),
        })
    }
}

/// A path of a configuration: absolute from the root, without `.` and `..`.
fn inside(what: &'static str, text: &str) -> Result<PathBuf, InvalidProcess> {
    if text.contains('\0') {
        return Err(invalid(what, text));
    }
    let mut path = PathBuf::from("/");
    for component in Path::new(text).components() {
        match component {
            Component::Normal(name) => path.push(name),
            Component::ParentDir => drop(path.pop()),
            _ => {}
        }
    }
    Ok(path)
}

/// A signal by its name, with or without `SIG`, or by its number.
fn signal(text: &str) -> Result<i32, InvalidProcess> {
    if text.is_empty() {
        return Ok(15);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let real_time = |start: i32, sign: i32, rest: &str| {
        let offset = if rest.is_empty() { Some(0) } else { rest[1..].parse::<i32>().ok() };
        offset.filter(|offset| (0..=30).contains(offset)).map(|offset| start + sign * offset)
    };
    let number = match (name.strip_prefix("RTMIN"), name.strip_prefix("RTMAX")) {
        (Some(rest), _) if rest.is_empty() || rest.starts_with('+') => real_time(34, 1, rest),
        (_, Some(rest)) if rest.is_empty() || rest.starts_with('-') => real_time(64, -1, rest),
        _ => SIGNALS
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, number)| *number)
            .or_else(|| name.parse().ok()),
    };
    number.filter(|number| (1..=64).contains(number)).ok_or_else(|| invalid("stop signal", text))
}

fn invalid(what: &'static str, value: &str) -> InvalidProcess {
    InvalidProcess::Invalid { what, value: value.to_owned() }
}

fn no_such(kind: &'static str, name: &str) -> InvalidProcess {
    InvalidProcess::NoSuchName { kind, name: name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names_and_numbers() {
        for (text, number) in
            [("", 15), ("SIGQUIT", 3), ("quit", 3), ("9", 9), ("SIGRTMIN+3", 37), ("RTMAX-1", 63)]
        {
            assert_eq!(signal(text).unwrap(), number, "{text}");
        }
        for text in ["SIGNOTHING", "0", "65", "-1", "RTMIN+31", "RTMIN3"] {
            assert!(signal(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_path_starts_at_the_root() {
        for (text, path) in [("", "/"), ("app", "/app"), ("/a/../../b/./c", "/b/c")] {
            assert_eq!(inside("working directory", text).unwrap(), Path::new(path));
        }
    }
}
