//! `/v1/filesystem/{uid}/{gid}`: the interface for files with the rights of a user of the sandbox. Whether the
//! user may do something is asked inside, by a command that runs as that user; what is new belongs to it.

use axum::Extension;
use axum::extract::{Path, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use stockade_api::{CommandLine, Execute, Problem};
use stockade_core::Code;

use super::super::target::{EXECD_TOKEN, Identity, PortState, Target};
use crate::failure::{Failure, invalid};
use crate::openapi::{Api, Security};

/// Succeeds if its user has a right. Arguments: the right, a path.
const CHECK: &str = r#"case $1 in
  see) [ -e "$2" ] || [ -L "$2" ] ;;
  read) [ -r "$2" ] ;;
  list) [ -r "$2" ] && [ -x "$2" ] ;;
  write)
    path=$2
    while [ ! -e "$path" ]; do path=$(dirname -- "$path"); done
    [ -w "$path" ] && { [ ! -d "$path" ] || [ -x "$path" ]; } ;;
  entry) directory=$(dirname -- "$2"); [ -w "$directory" ] && [ -x "$directory" ] ;;
  own) [ -O "$2" ] ;;
  *) false ;;
esac"#;

/// What a user may do with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Right {
    /// Get its properties.
    See,
    /// Read its content.
    Read,
    /// Read the entries of a directory.
    List,
    /// Write it, or create it.
    Write,
    /// Remove or rename it.
    Entry,
    /// Change its permissions.
    Own,
}

impl Right {
    const fn word(self) -> &'static str {
        match self {
            Self::See => "see",
            Self::Read => "read",
            Self::List => "list",
            Self::Write => "write",
            Self::Entry => "entry",
            Self::Own => "own",
        }
    }
}

/// The paths of the interface.
pub(super) fn routes(state: Option<&PortState>) -> Api<PortState> {
    let files = super::file_routes().layered(state, |router, state| {
        router.layer(middleware::from_fn_with_state(state, take_identity))
    });
    Api::new(Security::Token(EXECD_TOKEN)).nest("/v1/filesystem/{uid}/{gid}", files)
}

async fn take_identity(
    State(_): State<PortState>,
    Extension(target): Extension<Target>,
    Path(path): Path<std::collections::HashMap<String, String>>,
    mut request: Request,
    next: Next,
) -> Response {
    let number = |name: &str| {
        let number = path.get(name).and_then(|text| text.parse::<u32>().ok());
        // The largest number stands for none.
        number.filter(|number| *number < u32::MAX)
    };
    let (Some(uid), Some(gid)) = (number("uid"), number("gid")) else {
        return invalid("the user and the group are numbers up to 4294967294").into_response();
    };
    let identity = Some(Identity { uid, gid });
    request.extensions_mut().insert(Target { identity, ..target });
    next.run(request).await
}

/// Refuses a request without that right. Without an identity, the caller may do everything.
pub(super) async fn check(
    state: &PortState,
    target: &Target,
    right: Right,
    path: &str,
) -> Result<(), Failure> {
    let Some(Identity { uid, gid }) = target.identity else { return Ok(()) };
    let words = ["/bin/sh", "-c", CHECK, "sh", right.word(), path].map(str::to_owned);
    let line = CommandLine::Program(words.into());
    let mut execute = Execute::new(target.sandbox.id.clone(), line);
    (execute.uid, execute.gid) = (Some(uid), Some(gid));
    execute.working_directory = Some("/".into());
    let checked = state.sandboxes.execute(&target.caller, execute).await?;
    match checked.end.exit_code {
        Some(0) => Ok(()),
        Some(1) => {
            let message = format!("the user {uid} may not {} {path}", right.word());
            Err(Problem::new(Code::AccessDenied, message).into())
        }
        _ => {
            let message = format!("the rights of the user {uid} cannot be determined");
            let cause = checked.end.reason.unwrap_or_else(|| checked.stderr.lossy().into_owned());
            Err(Problem::new(Code::LaunchFailed, message).because(cause).into())
        }
    }
}
