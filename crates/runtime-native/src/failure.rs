//! The conversion of errors between keeper and client: the parts of an [`Error`] that a [`Failure`]
//! carries, and the parts that the client adds from its own request.

use std::io;

use stockade_core::{ExecId, SandboxId};

use stockade_jail::subordinate::Missing;
use stockade_plan::private_base::Error as BaseError;

use super::keeper::STARTER;
use super::wire::Failure;
use stockade_runtime::{Capability, Error};

/// The text by which the service knows a full disk.
const NO_SPACE: &str = "No space left on device";

/// What a client requested.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestedName<'a> {
    /// The operation, as a verb: `execute`.
    pub(crate) operation: &'static str,
    /// The sandbox, if the operation concerns one.
    pub(crate) sandbox: Option<&'a SandboxId>,
    /// The command, if the operation concerns one.
    pub(crate) exec: Option<&'a ExecId>,
}

impl Failure {
    /// The error that a client's caller sees.
    pub(crate) fn into_error(self, name: &RequestedName<'_>) -> Error {
        let misplaced = || Error::Invalid(format!("the keeper cannot {}", name.operation));
        let sandbox = name.sandbox.cloned();
        match self {
            Self::NoSandbox => sandbox.map_or_else(misplaced, Error::NoSandbox),
            Self::NoExec => match (sandbox, name.exec.cloned()) {
                (Some(sandbox), Some(exec)) => Error::NoExec { sandbox, exec },
                _ => misplaced(),
            },
            Self::NoSnapshot(snapshot) => Error::NoSnapshot(snapshot),
            Self::NoImage(image) => {
                let remedy = format!("stockade image pull {image}");
                Error::NoImage { image, remedy }
            }
            Self::Image(what) => Error::Image(what),
            Self::NoBase => base_error(&BaseError::Missing),
            Self::Conflict(what) => Error::Conflict(what),
            Self::WrongState(state) => sandbox.map_or_else(misplaced, |id| Error::WrongState {
                id,
                state,
                operation: name.operation,
            }),
            Self::Unsupported { capability, reason, remedy } => {
                match Capability::ALL.into_iter().find(|known| known.as_str() == capability) {
                    Some(capability) => Error::Unsupported { capability, reason, remedy },
                    None => Error::Invalid(format!("{capability}: not supported here: {reason}")),
                }
            }
            Self::Limit { limit, reason, remedy } => Error::Limit { limit, reason, remedy },
            Self::Exceeded { limit, reason, remedy } => Error::Exceeded { limit, reason, remedy },
            Self::Wall { wall, reason, .. } => Error::Wall { wall, reason },
            Self::PathRefused(what) => Error::PathRefused(what),
            Self::Invalid(what) => Error::Invalid(what),
            Self::Exhausted(what) => Error::Exhausted(what),
            Self::File { path, errno } => {
                Error::File { operation: name.operation, path, source: source(errno) }
            }
            Self::Connect { target, errno } => Error::Connect { target, source: source(errno) },
            Self::Host { path, errno } => Error::Host { path, source: source(errno) },
            Self::OutcomeUnknown(what) => Error::OutcomeUnknown(what),
            Self::Unreachable { what, errno } => Error::Unreachable { what, source: source(errno) },
            Self::Deadline => Error::Deadline(name.operation),
            Self::Draining => Error::Unreachable {
                what: "a keeper that accepts new sandboxes".to_owned(),
                source: io::Error::other("this keeper exits in favour of a newer version"),
            },
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::NoSandbox(_) => Self::NoSandbox,
            Error::NoExec { .. } => Self::NoExec,
            Error::NoSnapshot(snapshot) => Self::NoSnapshot(snapshot),
            Error::NoImage { image, .. } => Self::NoImage(image),
            Error::Image(what) => Self::Image(what),
            Error::Conflict(what) => Self::Conflict(what),
            Error::WrongState { state, .. } => Self::WrongState(state),
            Error::Unsupported { capability, reason, remedy } => {
                Self::Unsupported { capability: capability.as_str().to_owned(), reason, remedy }
            }
            Error::Limit { limit, reason, remedy } => Self::Limit { limit, reason, remedy },
            Error::Exceeded { limit, reason, remedy } => Self::Exceeded { limit, reason, remedy },
            Error::Wall { wall, reason } => Self::Wall { wall, reason, without_overlay: None },
            Error::PathRefused(what) => Self::PathRefused(what),
            Error::Invalid(what) => Self::Invalid(what),
            Error::Exhausted(what) => Self::Exhausted(what),
            Error::File { path, source, .. } => Self::File { path, errno: errno(&source) },
            Error::Connect { target, source } => Self::Connect { target, errno: errno(&source) },
            Error::Host { path, source } => Self::Host { path, errno: errno(&source) },
            Error::OutcomeUnknown(what) => Self::OutcomeUnknown(what),
            Error::Unreachable { what, source } => {
                Self::Unreachable { what, errno: errno(&source) }
            }
            Error::Deadline(_) => Self::Deadline,
            // Only an engine of another runtime has it.
            Error::Unavailable { .. } => Self::Invalid(error.to_string()),
        }
    }
}

impl From<&Missing> for Failure {
    fn from(missing: &Missing) -> Self {
        Self::Unsupported {
            capability: Capability::Users.as_str().to_owned(),
            reason: missing.to_string(),
            remedy: missing.remedy(),
        }
    }
}

/// The error for a request that the plan refuses.
pub fn plan_error(error: stockade_plan::Error) -> Error {
    let name = RequestedName { operation: "create the sandbox", sandbox: None, exec: None };
    Failure::from(error).into_error(&name)
}

impl From<stockade_plan::Error> for Failure {
    fn from(error: stockade_plan::Error) -> Self {
        use stockade_plan::Error as Plan;
        match error {
            Plan::OwnData(_) | Plan::Link(_) | Plan::HostRoot | Plan::HostSocket { .. } => {
                Self::PathRefused(error.to_string())
            }
            Plan::HostPath { path, source } => {
                Self::Host { path: path.display().to_string(), errno: errno(&source) }
            }
            Plan::NoSnapshot(snapshot) => Self::NoSnapshot(snapshot),
            Plan::NoImage(name) => Self::NoImage(name),
            Plan::Image(_) | Plan::ImageProcess(_) => Self::Image(with_causes(&error)),
            Plan::Limit { limit, reason, remedy } => {
                Self::Limit { limit, reason, remedy: remedy.text_for(STARTER) }
            }
            Plan::NoLoader => Self::Unsupported {
                capability: Capability::Images.as_str().to_owned(),
                reason: error.to_string(),
                remedy: Some("--runtime native".to_owned()),
            },
            Plan::OneUser(own) => Self::Unsupported {
                capability: Capability::Users.as_str().to_owned(),
                reason: stockade_plan::single_user(own),
                remedy: Some("sudo".to_owned()),
            },
            Plan::Volume(ref volume) => match volume {
                stockade_plan::VolumeError::InUse { .. } => Self::Conflict(error.to_string()),
                stockade_plan::VolumeError::Io(source) => {
                    Self::Exhausted(format!("{error}: {source}"))
                }
                stockade_plan::VolumeError::Data(_) => Self::Exhausted(error.to_string()),
                _ => Self::Invalid(error.to_string()),
            },
            Plan::Base(error) if matches!(*error, BaseError::Missing) => Self::NoBase,
            Plan::Base(error) => Self::from(base_error(&error)),
            Plan::Exhausted { what, source } => Self::Exhausted(format!("{what}: {source}")),
            Plan::NotDirectory(_)
            | Plan::ImageName(_)
            | Plan::HostRootFiles(_)
            | Plan::NotAbsolute(_)
            | Plan::Reserved(_)
            | Plan::MissingInWorkspace(_)
            | Plan::MountedTwice(_)
            | Plan::UnknownCache(_)
            | Plan::OwnCache(_)
            | Plan::Variable(_)
            | Plan::Rules(_)
            | Plan::ZeroLimit(_)
            | Plan::UserTooLarge { .. } => Self::Invalid(error.to_string()),
        }
    }
}

/// The text of an error with its causes.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// The error of a private base that cannot be made or used.
pub(crate) fn base_error(error: &BaseError) -> Error {
    let text = with_causes(error);
    if error.is_full() && !text.contains(NO_SPACE) {
        return Error::Exhausted(format!("{text}: {NO_SPACE}"));
    }
    Error::Exhausted(text)
}

/// The error for an image that cannot be used.
pub(crate) fn image_error(error: stockade_plan::image::Error) -> Error {
    use stockade_plan::image::Error as Image;
    match error {
        Image::Unreadable { path, source } => {
            Error::Host { path: path.display().to_string(), source }
        }
        Image::HostPath(refused) if refused.is_refusal() => Error::PathRefused(refused.to_string()),
        Image::HostPath(_) | Image::NoImage(_) => Error::Invalid(error.to_string()),
        Image::Refused { ref source, .. } => Error::Invalid(format!("{error}: {source}")),
        Image::Data(_) => {
            Error::Host { path: "the data directory".to_owned(), source: io::Error::other(error) }
        }
        Image::Write { ref source, .. } => Error::Exhausted(format!("{error}: {source}")),
    }
}

fn source(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

/// The kernel's number for an error; `EIO` for an error that does not come from the kernel.
fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or_else(|| rustix::io::Errno::IO.raw_os_error())
}

#[cfg(test)]
mod tests {
    use stockade_core::SnapshotId;
    use stockade_core::sandbox::LimitName;

    use super::*;
    use stockade_runtime::State;

    fn every() -> Vec<Error> {
        let sandbox = SandboxId::new("box").unwrap();
        let text = || "text".to_owned();
        vec![
            Error::NoSandbox(sandbox.clone()),
            Error::NoExec { sandbox: sandbox.clone(), exec: ExecId::new("one").unwrap() },
            Error::NoSnapshot(SnapshotId::new("snap").unwrap()),
            Error::Conflict(text()),
            Error::WrongState { id: sandbox, state: State::Paused, operation: "execute" },
            Error::Unsupported {
                capability: Capability::DiskLimit,
                reason: text(),
                remedy: Some(text()),
            },
            Error::Limit { limit: LimitName::Disk, reason: text(), remedy: text() },
            Error::Exceeded { limit: LimitName::Disk, reason: text(), remedy: text() },
            Error::Wall { wall: text(), reason: text() },
            Error::PathRefused(text()),
            Error::Invalid(text()),
            Error::Exhausted(text()),
            Error::File { operation: "execute", path: text(), source: source(13) },
            Error::Connect { target: text(), source: source(111) },
            Error::Host { path: text(), source: source(2) },
            Error::OutcomeUnknown(text()),
            Error::Unreachable { what: text(), source: source(32) },
            Error::Deadline("execute"),
        ]
    }

    #[test]
    fn each_error_survives_the_way() {
        let (sandbox, exec) = (SandboxId::new("box").unwrap(), ExecId::new("one").unwrap());
        let name =
            RequestedName { operation: "execute", sandbox: Some(&sandbox), exec: Some(&exec) };
        for error in every() {
            let shown = format!("{error:?}");
            let failure = serde_json::to_string(&Failure::from(error)).unwrap();
            let failure: Failure = serde_json::from_str(&failure).unwrap();
            assert_eq!(format!("{:?}", failure.into_error(&name)), shown);
        }
    }

    #[test]
    fn what_the_client_does_not_know_is_still_an_error() {
        let sandbox = SandboxId::new("box").unwrap();
        let name = RequestedName { operation: "create", sandbox: Some(&sandbox), exec: None };
        let unknown = Failure::Unsupported {
            capability: "time-travel".to_owned(),
            reason: "no".to_owned(),
            remedy: None,
        };
        for (failure, text) in [
            (unknown, "time-travel: not supported here: no"),
            (Failure::NoExec, "the keeper cannot create"),
            (Failure::Draining, "cannot reach a keeper that accepts new sandboxes"),
        ] {
            assert_eq!(failure.into_error(&name).to_string(), text);
        }
        let refused = Error::Host { path: "/a".to_owned(), source: io::Error::other("odd") };
        assert!(matches!(Failure::from(refused), Failure::Host { errno: 5, .. }));
    }
}
