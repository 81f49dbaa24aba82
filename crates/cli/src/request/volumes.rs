//! `--volume`, the form of `--mount` with keys, and `--cache`.
//!
//! As with Docker, the first part of `--volume` is the name of a volume, unless it contains a slash or
//! starts with a dot; then it is a path of the host, as in `--mount`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use stockade_api::{CacheMount, VolumeMount};
use stockade_core::cache::{IGNORED, TOOLS, tool};
use stockade_core::sandbox::HostMount;
use stockade_core::{Code, Problem, VolumeName};

use super::{host_mount, split_mount};

/// A mount of a path of the host, or of a volume.
#[derive(Debug, PartialEq)]
pub(crate) enum Mount {
    Host(HostMount),
    Volume(VolumeMount),
}

/// The keys of a mount with keys (`docker run --mount`).
const KEYS: [&str; 12] = [
    "type",
    "source",
    "src",
    "target",
    "destination",
    "dst",
    "readonly",
    "ro",
    "volume-subpath",
    "subpath",
    "consistency",
    "volume-opt",
];

/// `--volume NAME:/path[:ro]`, or a path of the host in place of the name.
///
/// # Errors
/// [`Code::InvalidInput`] for an invalid argument, or a path of the host that does not exist.
pub(crate) fn volume(argument: &OsStr, current: &Path) -> Result<Mount, Problem> {
    let shown = argument.to_string_lossy();
    let refused = |why: String| {
        Problem::new(Code::InvalidInput, format!("`--volume {shown}`: {why}"))
            .remedied_by("--volume NAME:/path/inside")
    };
    if argument.is_empty() {
        return Err(refused("it is empty".to_owned()));
    }
    let Some((source, rest)) = split_mount(argument) else {
        if argument.as_bytes().starts_with(b"/") && !argument.as_bytes().contains(&b':') {
            return Err(refused("a volume needs a name".to_owned())
                .because("a volume without one could not be found again, and would remain")
                .remedied_by(format!("--volume NAME:{shown}")));
        }
        return Err(refused("the path inside must be absolute".to_owned()));
    };
    let text = source.to_str().map(str::to_owned);
    let is_path = source.as_os_str().as_bytes().contains(&b'/')
        || source.starts_with("..")
        || source.starts_with(".")
        || source.starts_with("~");
    let (inside, writable) = options(&rest).map_err(&refused)?;
    if is_path {
        let mount = host_mount("--volume", argument, &source, inside, writable, current)?;
        return Ok(Mount::Host(mount));
    }
    let name = VolumeName::new(text.unwrap_or_else(|| source.to_string_lossy().into_owned()))
        .map_err(|error| {
            refused(error.to_string())
                .remedied_by(format!("for a directory of the host: --volume ./{shown}"))
        })?;
    if current.join(&source).is_dir() {
        eprint_line!(
            "stockade: {name} is the volume of that name; for the directory, write ./{name}"
        );
    }
    if inside == Path::new("/") {
        return Err(refused("the root cannot be a mount point".to_owned()));
    }
    Ok(Mount::Volume(VolumeMount { name, inside, read_only: !writable, sub_path: None }))
}

/// The path inside, and whether it is writable, of `:/path[:OPTION[,OPTION…]]`.
fn options(rest: &OsStr) -> Result<(PathBuf, bool), String> {
    let bytes = &rest.as_bytes()[1..];
    let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
    let Some(colon) = bytes.iter().rposition(|byte| *byte == b':') else {
        return Ok((path(bytes), true));
    };
    let (inside, words) = (&bytes[..colon], String::from_utf8_lossy(&bytes[colon + 1..]));
    if inside.contains(&b':') {
        return Err("a path inside with `:` needs --mount".to_owned());
    }
    let mut writable = None;
    for word in words.split(',') {
        let says = match word {
            "ro" => false,
            "rw" => true,
            other => return Err(format!("{other:?} is not an option; use `ro` or `rw`")),
        };
        if writable.replace(says).is_some_and(|before| before != says) {
            return Err("`ro` and `rw` exclude each other".to_owned());
        }
    }
    Ok((path(inside), writable.unwrap_or(true)))
}

/// Whether an argument of `--mount` has keys.
pub(crate) fn has_keys(argument: &OsStr) -> bool {
    let first = argument.to_str().and_then(|text| text.split(',').next()).unwrap_or_default();
    first.split_once('=').is_some_and(|(key, _)| KEYS.contains(&key.trim()))
}

/// `--mount type=volume,source=NAME,target=/path[,readonly][,volume-subpath=PATH]`, and
/// `type=bind,source=/path,target=/path[,readonly]`.
pub(super) fn with_keys(argument: &OsStr, current: &Path) -> Result<Mount, Problem> {
    let shown = argument.to_string_lossy();
    let refused = |why: String| {
        Problem::new(Code::InvalidInput, format!("`--mount {shown}`: {why}"))
            .remedied_by("--mount type=volume,source=NAME,target=/path/inside,readonly")
    };
    let (mut kind, mut source, mut target, mut sub_path) = (None, None, None, None);
    let mut read_only = None;
    for part in shown.split(',') {
        let (key, value) =
            part.split_once('=').map_or((part, None), |(key, value)| (key, Some(value)));
        let slot = match key.trim() {
            "type" => &mut kind,
            "source" | "src" => &mut source,
            "target" | "destination" | "dst" => &mut target,
            "volume-subpath" | "subpath" => &mut sub_path,
            "readonly" | "ro" => &mut read_only,
            // It has a meaning for Docker Desktop on other systems only.
            "consistency" => continue,
            other => return Err(refused(format!("the key {other:?} is not supported"))),
        };
        let value = match (key.trim(), value) {
            ("readonly" | "ro", None) => "true",
            (_, Some(value)) => value,
            (_, None) => return Err(refused(format!("the key {key:?} needs a value"))),
        };
        if slot.replace(value.to_owned()).is_some() {
            return Err(refused(format!("the key {key:?} is there twice")));
        }
    }
    let writable = match read_only.as_deref() {
        None | Some("false" | "0") => true,
        Some("true" | "1") => false,
        Some(other) => return Err(refused(format!("`readonly` cannot be {other:?}"))),
    };
    let inside = target.filter(|target| target.starts_with('/')).map(PathBuf::from);
    let inside = inside.filter(|inside| inside != Path::new("/"));
    let inside = inside.ok_or_else(|| refused("it needs an absolute `target`".to_owned()))?;
    match kind.as_deref().unwrap_or("volume") {
        "bind" => {
            if sub_path.is_some() {
                return Err(refused("a path of the host has no `volume-subpath`".to_owned()));
            }
            let source = source.ok_or_else(|| refused("it needs a `source`".to_owned()))?;
            let source = Path::new(&source);
            host_mount("--mount", argument, source, inside, writable, current).map(Mount::Host)
        }
        "volume" => {
            let Some(source) = source.filter(|source| !source.is_empty()) else {
                return Err(refused("a volume needs a name as its `source`".to_owned()));
            };
            let name = VolumeName::new(source).map_err(|error| refused(error.to_string()))?;
            let sub_path = sub_path.map(PathBuf::from);
            Ok(Mount::Volume(VolumeMount { name, inside, read_only: !writable, sub_path }))
        }
        "tmpfs" => Err(refused("the type `tmpfs` is not supported".to_owned())
            .because("/tmp and the home directory are in memory already")),
        other => Err(refused(format!("there is no type {other:?}; use `volume` or `bind`"))),
    }
}

/// `--cache NAME` for a tool, or `--cache NAME:/path`.
pub(super) fn cache(text: &str, project: Option<&Path>) -> Result<CacheMount, Problem> {
    let refused = |why: String| {
        let known: Vec<_> = TOOLS.iter().map(|tool| tool.name).collect();
        Problem::new(Code::InvalidInput, format!("`--cache {text}`: {why}"))
            .because(format!("known caches: {}", known.join(", ")))
    };
    let (name, inside) = match text.split_once(':') {
        Some((name, inside)) => (name, Some(PathBuf::from(inside))),
        None => (text, None),
    };
    let named = VolumeName::new(name).ok().filter(|name| name.as_str().len() <= 64);
    let Some(named) = named else {
        return Err(refused(format!("{name:?} cannot be the name of a cache")));
    };
    match &inside {
        _ if name == IGNORED => {
            return Err(refused("the name is for what `run --keep-ignored` keeps".to_owned())
                .remedied_by("--keep-ignored"));
        }
        None if tool(name).is_none() => {
            return Err(refused(format!("there is no tool {name:?}"))
                .remedied_by(format!("--cache {name}:/path/inside")));
        }
        Some(inside) if !inside.is_absolute() || inside == Path::new("/") => {
            return Err(refused("the path inside must be absolute, and not the root".to_owned()));
        }
        _ => {}
    }
    Ok(CacheMount { name: named, project: project.map(Path::to_owned), inside })
}

/// Checks the text of a cache, for a profile.
///
/// # Errors
/// Why it is invalid, in words.
pub(crate) fn check_cache(text: &str) -> Result<(), String> {
    cache(text, None).map(drop).map_err(|problem| match problem.cause {
        Some(cause) => format!("{}; {cause}", problem.message),
        None => problem.message,
    })
}

/// Checks the text of a volume, for a profile: it cannot be a path of the host.
///
/// # Errors
/// Why it is invalid, in words.
pub(crate) fn check_volume(text: &str) -> Result<(), String> {
    let name = text.split(':').next().unwrap_or_default();
    VolumeName::new(name).map_err(|error| match name.contains('/') {
        true => "a directory of the host belongs to `mount`".to_owned(),
        false => error.to_string(),
    })?;
    volume(text.as_ref(), Path::new("/nowhere")).map(drop).map_err(|problem| problem.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume_of(text: &str) -> Result<VolumeMount, String> {
        let read = match has_keys(text.as_ref()) {
            true => with_keys(text.as_ref(), Path::new("/")),
            false => volume(text.as_ref(), Path::new("/")),
        };
        match read {
            Ok(Mount::Volume(volume)) => Ok(volume),
            Ok(Mount::Host(mount)) => Err(mount.host.display().to_string()),
            Err(problem) => Err(problem.message),
        }
    }

    fn mount(name: &str, inside: &str) -> VolumeMount {
        VolumeMount {
            name: VolumeName::new(name).unwrap(),
            inside: inside.into(),
            read_only: false,
            sub_path: None,
        }
    }

    #[test]
    fn a_name_is_a_volume_and_a_path_is_of_the_host() {
        assert_eq!(volume_of("data:/data"), Ok(mount("data", "/data")));
        assert_eq!(volume_of("data:/data:rw"), Ok(mount("data", "/data")));
        let read_only = VolumeMount { read_only: true, ..mount("data", "/data") };
        assert_eq!(volume_of("data:/data:ro"), Ok(read_only));
        for (text, host) in [("/tmp:/m", "/tmp"), ("./tmp:/m:ro", "/tmp"), ("tmp/..:/m", "/tmp/..")]
        {
            let found = volume_of(text).unwrap_err();
            assert!(found.ends_with(host) || found == "/./tmp", "{text}: {found}");
        }
    }

    #[test]
    fn what_docker_has_and_this_has_not_is_refused_by_name() {
        for (text, part) in [
            ("/data", "needs a name"),
            ("data", "must be absolute"),
            ("data:there", "must be absolute"),
            ("", "empty"),
            ("data:/data:z", "\"z\" is not an option"),
            ("data:/data:ro,nocopy", "\"nocopy\" is not an option"),
            ("data:/data:ro,rw", "exclude each other"),
            ("data:/a:b:ro", "needs --mount"),
            ("data:/", "the root"),
            ("da ta:/data", "not a valid name"),
            ("type=volume,source=data", "absolute `target`"),
            ("type=volume,target=/data", "needs a name"),
            ("type=tmpfs,target=/data", "tmpfs"),
            ("type=npipe,target=/data", "no type"),
            ("type=volume,source=a,target=/a,volume-driver=x", "volume-driver"),
            ("type=volume,source=a,source=b,target=/a", "twice"),
            ("type=volume,source=../a,target=/a", "not a valid name"),
            ("type=bind,source=/tmp,target=/a,volume-subpath=x", "no `volume-subpath`"),
        ] {
            let error = volume_of(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn keys_say_the_same_as_colons() {
        for text in [
            "type=volume,source=data,target=/data",
            "source=data,target=/data",
            "type=volume,src=data,dst=/data,readonly=false",
        ] {
            assert_eq!(volume_of(text), Ok(mount("data", "/data")), "{text}");
        }
        let part =
            VolumeMount { read_only: true, sub_path: Some("a/b".into()), ..mount("data", "/data") };
        let text = "type=volume,source=data,target=/data,volume-subpath=a/b,readonly";
        assert_eq!(volume_of(text), Ok(part));
        assert_eq!(volume_of("type=bind,source=/tmp,target=/t").unwrap_err(), "/tmp");
    }

    #[test]
    fn a_cache_is_of_a_tool_or_has_a_path() {
        let project = Some(Path::new("/project"));
        assert_eq!(cache("npm", project).unwrap().inside, None);
        assert_eq!(cache("mine:/x", project).unwrap().inside, Some("/x".into()));
        assert_eq!(cache("npm:/x", None).unwrap().inside, Some("/x".into()));
        for bad in
            ["mine", "", ":/x", "a/b:/x", "mine:x", "mine:/", "NPM", "ignored:/x", &"x".repeat(65)]
        {
            assert!(cache(bad, project).is_err(), "{bad}");
        }
        assert!(cache("nmp", project).unwrap_err().cause.unwrap().contains("npm"));
    }
}
