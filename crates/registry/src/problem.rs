//! Each error of this crate as a problem with a code, a cause and a remedy.

use std::io::ErrorKind;

use stockade_core::{Code, Problem};

use crate::error::Error;

/// The problem of an error.
#[must_use]
pub fn problem(error: &Error) -> Problem {
    let message = error.to_string();
    match error {
        Error::NotFound { .. } => Problem::new(Code::ImageNotFound, message)
            .because("the registry knows no such repository, tag or digest")
            .remedied_by("stockade image ls"),
        Error::Unauthorized { host, with_credentials, reason, .. } => {
            let hint = match with_credentials {
                true => "the stored credentials are not accepted",
                false => "the image is private, or does not exist",
            };
            Problem::new(Code::RegistryUnauthorized, message)
                .because(format!("{hint} ({reason})"))
                .remedied_by(format!("docker login {host}"))
        }
        Error::RateLimited { host, after, with_credentials } => {
            let when = match after {
                Some(after) => format!("it answers again after {} seconds", after.as_secs()),
                None => "it does not say when it answers again".to_owned(),
            };
            let problem = Problem::new(Code::RegistryRateLimited, message).because(when);
            match with_credentials {
                // Users that are known have higher limits.
                false => problem.remedied_by(format!("docker login {host}")),
                true => problem,
            }
        }
        Error::Unreachable { reason, .. } => Problem::new(Code::RegistryUnreachable, message)
            .because(reason)
            .remedied_by("stockade image ls"),
        Error::NoTls { host, reason } => {
            let mut problem = Problem::new(Code::RegistryUnreachable, message).because(reason);
            problem.retryable = false;
            problem.remedied_by(format!(
                "add `insecure = [\"{host}\"]` to the table [registries] of ~/.config/stockade/config.toml"
            ))
        }
        Error::Failed { reason, status, .. } => {
            let mut problem = Problem::new(Code::RegistryUnreachable, message).because(reason);
            problem.retryable = *status >= 500;
            problem
        }
        Error::LedInside { from, .. } => {
            let mut problem = Problem::new(Code::RegistryUnreachable, message).because(format!(
                "a registry whose address is {from} may lead to the internet and to its own kind of network, \
                 never to this machine, its link or a metadata service"
            ));
            problem.retryable = false;
            problem.remedied_by("name the registry or mirror that it leads to")
        }
        Error::Invalid { reason, .. } => Problem::new(Code::ImageInvalid, message).because(reason),
        Error::Mismatch { found, .. } => {
            Problem::new(Code::ImageInvalid, message).because(format!("it has {found}"))
        }
        Error::NoPlatform { available, .. } => {
            let names: Vec<_> = available.iter().map(ToString::to_string).collect();
            let problem = Problem::new(Code::ImagePlatformMissing, message);
            match names.first() {
                Some(first) => problem
                    .because(format!("it exists for {}", names.join(", ")))
                    .remedied_by(format!("--platform {first}")),
                None => problem.because("its index names no platform"),
            }
        }
        Error::TooLarge { is_total, .. } => {
            let problem = Problem::new(Code::ImageTooLarge, message);
            match is_total {
                true => problem.remedied_by("--max-size 256G"),
                false => problem.because("the registry sends more than any valid image has"),
            }
        }
        Error::Credentials { host, reason } => Problem::new(Code::RegistryUnauthorized, message)
            .because(reason)
            .remedied_by(format!("docker login {host}")),
        Error::Write { source, .. } => {
            let is_full =
                matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
            match is_full {
                true => {
                    Problem::caused(Code::StorageFull, error).remedied_by("stockade image prune")
                }
                false => Problem::caused(Code::Io, error),
            }
        }
    }
}

/// An error in one line, for an event.
pub(crate) fn text(error: &Error) -> String {
    let Problem { message, cause, .. } = problem(error);
    cause.iter().fold(message, |all, cause| format!("{all}: {cause}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_problems_match_their_snapshots() {
        let host = || "registry.example".to_owned();
        let what = || "image team/app:1".to_owned();
        let reason = || "the reason".to_owned();
        let unauthorized = |with_credentials| Error::Unauthorized {
            host: host(),
            what: what(),
            with_credentials,
            reason: reason(),
        };
        let limited =
            |after, with_credentials| Error::RateLimited { host: host(), after, with_credentials };
        let platform = |text: &str| text.parse().unwrap();
        let errors = [
            Error::NotFound { host: host(), what: what() },
            unauthorized(false),
            unauthorized(true),
            limited(Some(Duration::from_secs(90)), false),
            limited(None, true),
            Error::Unreachable { host: host(), reason: reason() },
            Error::NoTls { host: host(), reason: reason() },
            Error::Failed { host: host(), status: 500, reason: reason() },
            Error::Failed { host: host(), status: 400, reason: reason() },
            Error::Invalid { host: host(), reason: reason() },
            Error::Mismatch { host: host(), what: "blob sha256:0".into(), found: "9 bytes".into() },
            Error::NoPlatform {
                wanted: platform("linux/riscv64"),
                available: vec![platform("linux/amd64"), platform("linux/arm64")],
            },
            Error::NoPlatform { wanted: platform("linux/riscv64"), available: Vec::new() },
            Error::TooLarge { what: "the image".into(), limit: 9, is_total: true },
            Error::TooLarge { what: "the manifest".into(), limit: 9, is_total: false },
            Error::Credentials { host: host(), reason: reason() },
            Error::Write { path: "/data/x".into(), source: ErrorKind::StorageFull.into() },
            Error::Write { path: "/data/x".into(), source: ErrorKind::PermissionDenied.into() },
        ];
        let problems: Vec<_> = errors.iter().map(problem).collect();
        let text = serde_json::to_string_pretty(&problems).unwrap();
        stockade_test_support::assert_snapshot("errors/registries", &text);
    }
}
