//! Images of the store as the roots of sandboxes: which one a name means, and what runs in it.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use stockade_bundle::data::DataDir;
use stockade_core::sandbox::Root;
use stockade_core::{Code, Problem, SandboxSpec};
use stockade_image::{Image, Reference, Start};
use stockade_jail::subordinate::{Missing, Subordinate};
use stockade_plan::image_root;

use crate::problem::caused;
use crate::shell::shell_word;

/// The image of a run.
#[derive(Debug)]
pub(crate) struct RunImage {
    /// The image.
    pub(crate) image: Image,
    /// How its processes are started.
    pub(crate) start: Start,
    /// What the user should know about the choice.
    pub(crate) notes: Vec<String>,
}

/// Completes a request whose root is an image of the store with what the image says. `one_id` is there
/// if the sandbox has the id of the caller alone, with what is missing for more.
///
/// # Errors
/// [`Code::ImageNotFound`], and what is wrong with the image.
pub(crate) fn complete(
    spec: SandboxSpec,
    data: &DataDir,
    one_id: Option<&Option<Missing>>,
) -> Result<(SandboxSpec, Option<RunImage>), Problem> {
    let Root::Image(name) = &spec.root else { return Ok((spec, None)) };
    let image = image_root::find(name, data).map_err(|error| problem(&error))?;
    let mut notes: Vec<_> = unpinned_note(name).into_iter().collect();
    let (spec, start) =
        image_root::complete(spec, &image, one_id.is_some()).map_err(|error| problem(&error))?;
    let own = rustix::process::geteuid().as_raw();
    if let (Some(Some(missing)), Some(user)) = (one_id, spec.user)
        && user.user != own
    {
        return Err(more_ids(missing, &format!("--user {}", user.user)));
    }
    if let Some(missing) = one_id
        && spec.user.is_none()
    {
        notes.extend(one_id_note(&start, missing.as_ref()));
    }
    Ok((spec, Some(RunImage { image, start, notes })))
}

/// A note where an image names another user than the caller, whose id is the only one.
fn one_id_note(start: &Start, missing: Option<&Missing>) -> Option<String> {
    let named = start.user.as_ref()?;
    if named.user == rustix::process::geteuid().as_raw() {
        return None;
    }
    let named = named.name.clone().unwrap_or_else(|| named.user.to_string());
    let mut note = format!(
        "the image names the user {named}, but a sandbox of yours has your own id alone: all files of \
         the image belong to it; root can give a sandbox more"
    );
    if let Some(missing) = missing {
        note.push_str(&format!(", and so can you with subordinate ids: {missing}"));
        note.extend(missing.remedy().map(|remedy| format!("; fix: {remedy}")));
    }
    Some(note)
}

/// The same note for a persistent sandbox of an image of the store.
pub(crate) fn note_before_creation(name: &str, data: &DataDir) -> Option<String> {
    if rustix::process::geteuid().is_root() {
        return None;
    }
    let missing = Subordinate::find().err()?;
    // What is wrong with the image is an error of the creation.
    let image = image_root::find(name, data).ok()?;
    one_id_note(&start(&image).ok()?, Some(&missing))
}

/// The problem of a request that needs more than the caller's own id.
fn more_ids(missing: &Missing, what: &str) -> Problem {
    let problem = Problem::new(Code::Unsupported, format!("{what} needs more ids than your own"))
        .because(missing.to_string());
    match missing.remedy() {
        Some(remedy) => problem.remedied_by(remedy),
        None => problem,
    }
}

/// How a process of an image is started.
///
/// # Errors
/// [`Code::ImageInvalid`].
pub(crate) fn start(image: &Image) -> Result<Start, Problem> {
    let tree =
        stockade_image::Tree::open(image).map_err(|error| caused(Code::ImageInvalid, &error))?;
    image.start(&tree).map_err(|error| caused(Code::ImageInvalid, &error))
}

/// A note where a name has neither a tag nor a digest.
pub(crate) fn unpinned_note(name: &str) -> Option<String> {
    let reference: Reference = name.parse().ok()?;
    reference.is_unpinned().then(|| {
        format!("the image {name} has neither a tag nor a digest: `latest` was used, which changes")
    })
}

/// The command of a run: the entrypoint, and the arguments or those of the image. An entrypoint of
/// the request replaces that of the image, and its arguments with it.
///
/// # Errors
/// [`Code::InvalidInput`] where there is nothing to run.
pub(crate) fn command(
    start: Option<&Start>,
    entrypoint: Option<&OsStr>,
    arguments: &[OsString],
) -> Result<Vec<OsString>, Problem> {
    let Some(start) = start else {
        if entrypoint.is_some() {
            let message = "`--entrypoint` needs an image of the store";
            return Err(Problem::new(Code::InvalidInput, message).remedied_by("stockade image ls"));
        }
        return match arguments {
            [] => Err(Problem::new(Code::InvalidInput, "there is no command to run")
                .remedied_by("stockade run -- COMMAND")),
            words => Ok(words.to_vec()),
        };
    };
    let words = |words: &[String]| words.iter().map(OsString::from).collect::<Vec<_>>();
    let mut all = match entrypoint {
        Some(own) if own.is_empty() => Vec::new(),
        Some(own) => vec![own.to_owned()],
        None => words(&start.entrypoint),
    };
    match (arguments, entrypoint) {
        ([], None) => all.extend(words(&start.command)),
        ([], Some(_)) => {}
        (given, _) => all.extend(given.iter().cloned()),
    }
    if all.is_empty() {
        return Err(Problem::new(Code::InvalidInput, "the image names no command")
            .remedied_by("stockade run --image IMAGE -- COMMAND"));
    }
    Ok(all)
}

/// Refuses a bare name that is both a file here and an image of the store.
///
/// # Errors
/// [`Code::InvalidInput`].
pub(crate) fn refuse_ambiguous(
    given: Option<&Path>,
    root: &Root,
    data: &DataDir,
) -> Result<(), Problem> {
    let (Some(given), Root::Directory(_)) = (given.and_then(Path::to_str), root) else {
        return Ok(());
    };
    if given.contains('/') || matches!(given, "." | "..") {
        return Ok(());
    }
    match image_root::find(given, data) {
        Ok(image) => {
            let whole = image.reference.map_or_else(|| given.to_owned(), |name| name.to_string());
            let message = format!("`--image {given}` is ambiguous");
            let cause = format!("it is a file or directory here, and {whole} is in the store");
            let remedy = format!("--image ./{given} or --image {whole}");
            Err(Problem::new(Code::InvalidInput, message).because(cause).remedied_by(remedy))
        }
        Err(_) => Ok(()),
    }
}

/// The problem of an image that cannot be used.
pub(crate) fn problem(error: &stockade_plan::Error) -> Problem {
    use stockade_image::store::Error as Store;
    use stockade_plan::Error;
    match error {
        Error::NoImage(name) => caused(Code::ImageNotFound, error)
            .remedied_by(format!("stockade image pull {}", shell_word(name))),
        Error::ImageName(_) => caused(Code::InvalidInput, error)
            .remedied_by("a path starts with ./ or /, an image is named like node:20-alpine"),
        Error::ImageProcess(_) => caused(Code::ImageInvalid, error),
        Error::Image(store) => match store.as_ref() {
            Store::Data(_) | Store::Write(_) | Store::Io { .. } | Store::References { .. } => {
                caused(Code::Io, error)
            }
            Store::Busy(_) | Store::InUse { .. } => caused(Code::Busy, error),
            _ => caused(Code::ImageInvalid, error),
        },
        _ => caused(Code::InvalidInput, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(entrypoint: &[&str], command: &[&str]) -> Start {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Start {
            user: None,
            environment: std::collections::BTreeMap::new(),
            entrypoint: words(entrypoint),
            command: words(command),
            working_directory: "/".into(),
            stop_signal: 15,
        }
    }

    fn made(start: &Start, entrypoint: Option<&str>, arguments: &[&str]) -> Vec<String> {
        let arguments: Vec<OsString> = arguments.iter().map(Into::into).collect();
        let words = command(Some(start), entrypoint.map(OsStr::new), &arguments).unwrap();
        words.into_iter().map(|word| word.into_string().unwrap()).collect()
    }

    #[test]
    fn arguments_replace_those_of_the_image_as_in_docker() {
        let image = start(&["/entry", "-e"], &["serve"]);
        assert_eq!(made(&image, None, &[]), ["/entry", "-e", "serve"]);
        assert_eq!(made(&image, None, &["a", "b"]), ["/entry", "-e", "a", "b"]);
        assert_eq!(made(&image, Some("/other"), &[]), ["/other"]);
        assert_eq!(made(&image, Some("/other"), &["a"]), ["/other", "a"]);
        assert_eq!(made(&image, Some(""), &["a"]), ["a"]);
        assert_eq!(made(&start(&[], &["node"]), None, &[]), ["node"]);
        let nothing = command(Some(&start(&[], &[])), None, &[]).unwrap_err();
        assert_eq!(nothing.code, Code::InvalidInput);
        assert_eq!(command(None, None, &[]).unwrap_err().code, Code::InvalidInput);
    }
}
