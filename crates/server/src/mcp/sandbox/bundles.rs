//! `apply` and `reject`: decisions about a bundle. They are the user's: the client asks for each, unless
//! the user has granted them when the server was started.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stockade_api::{ApplyBundle, BundleDetail, Conflicts, Problem, RejectBundle, SkippedPath};
use stockade_core::Code;

use super::collected::{collect, find_bundle};
use super::operation::{Facts, On, Operation, Reply, Scope, Stop};
use crate::mcp::Effects;
use crate::mcp::call::{Answer, Question};
use crate::mcp::untrusted::line;

/// How many paths a question names.
const SHOWN: usize = 20;
/// How many paths of a result are listed.
const PATHS: usize = 500;

/// Whether the user allows a decision.
async fn is_allowed(on: &On<'_>, question: Question) -> Result<Answer, Stop> {
    if on.context.grants.apply {
        return Ok(Answer::Yes { extra: false });
    }
    match on.call.ask(question).await? {
        Answer::Yes { extra } => Ok(Answer::Yes { extra }),
        Answer::No => Err(Problem::new(Code::Forbidden, "the user has not allowed it").into()),
        Answer::Unavailable => {
            Err(Problem::new(Code::Forbidden, "a decision about a bundle is the user's")
                .because("this client cannot ask its user (elicitation), and the server was started without --allow-apply")
                .remedied_by("the user can decide on the command line: stockade diff, stockade apply, stockade reject")
                .into())
        }
    }
}

fn summary(bundle: &BundleDetail) -> String {
    let changes = bundle.bundle.changes;
    let mut text = format!("{} changes", changes.total);
    for (count, what) in [
        (changes.executed, "of files that programs of the host execute by themselves"),
        (changes.conflicting, "in conflict with later changes of the project"),
        (changes.refused, "that are never applied"),
    ] {
        if count > 0 {
            text.push_str(&format!(", {count} {what}"));
        }
    }
    text.push(':');
    for entry in bundle.entries.iter().take(SHOWN) {
        let operation =
            entry.change.get("operation").and_then(|it| it.as_str()).unwrap_or("change");
        let path = match entry.change.get("path") {
            Some(serde_json::Value::String(path)) => line(path.as_bytes()),
            other => other.map(|it| line(it.to_string().as_bytes())).unwrap_or_default(),
        };
        text.push_str(&format!("\n{operation} {path}"));
    }
    if bundle.entries.len() > SHOWN {
        text.push_str(&format!("\nand {} more", bundle.entries.len() - SHOWN));
    }
    text
}

/// Applies a bundle.
#[derive(Debug)]
pub(super) struct Apply;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ApplyArguments {
    /// The id of the bundle; the present changes of the sandbox when absent.
    #[serde(default)]
    bundle: Option<String>,
    /// Only changes at or below these paths, relative to the project; all when empty.
    #[serde(default)]
    paths: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ApplyValue {
    bundle: String,
    /// The changed paths of the project, at most 500.
    applied: Vec<String>,
    /// The number of all changed paths.
    applied_count: u64,
    /// The paths that were left out, and why.
    skipped: Vec<Skipped>,
    /// Whether nothing of the bundle is left to decide.
    done: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Skipped {
    path: String,
    reason: String,
}

impl From<&SkippedPath> for Skipped {
    fn from(skipped: &SkippedPath) -> Self {
        Self { path: line(&skipped.path.0), reason: line(skipped.reason.as_bytes()) }
    }
}

#[async_trait]
impl Operation for Apply {
    type Arguments = ApplyArguments;
    type Value = ApplyValue;

    fn facts(&self, scope: &Scope) -> Facts {
        Facts {
            name: "apply",
            title: "Apply a bundle to the project",
            text: match scope {
                Scope::Named => {
                    "Makes the changes of a bundle in the project on the host, all or none. The user is asked first."
                }
                Scope::Workspace(_) => {
                    "Makes the changes of the sandbox in the project on the host, all or none. The user is asked first."
                }
            },
            effects: Effects::CHANGES.idempotent(),
            on_sandbox: false,
            is_long: false,
        }
    }

    async fn call(&self, on: On<'_>, arguments: ApplyArguments) -> Result<Reply<ApplyValue>, Stop> {
        let id = match (arguments.bundle, &on.context.scope) {
            (Some(id), _) => id,
            (None, Scope::Named) => {
                let message = "the argument `bundle` is missing";
                return Err(Problem::new(Code::InvalidInput, message).into());
            }
            (None, Scope::Workspace(_)) => match collect(&on, Vec::new()).await?.0 {
                Some(bundle) => bundle.id,
                None => return Err(Problem::new(Code::NotFound, "nothing has changed").into()),
            },
        };
        let bundle = find_bundle(&on, &id).await?;
        let only = match arguments.paths.as_slice() {
            [] => String::new(),
            paths => {
                let paths: Vec<_> = paths.iter().map(|path| line(path.as_bytes())).collect();
                format!("\nOnly these paths are applied: {}", paths.join(", "))
            }
        };
        let project = line(&bundle.bundle.project.0);
        let question = Question {
            message: format!(
                "Apply the bundle {} to {project}?\n{}{only}",
                bundle.bundle.id,
                summary(&bundle)
            ),
            confirm: "Apply these changes",
            extra: (bundle.bundle.changes.executed > 0)
                .then_some("Also those of files that programs of the host execute by themselves"),
            subject: format!("{} {:?}", bundle.bundle.id, arguments.paths),
        };
        let answer = is_allowed(&on, question).await?;
        let request = ApplyBundle {
            id: bundle.bundle.id,
            paths: arguments.paths.into_iter().map(|path| path.into_bytes().into()).collect(),
            allow_executed: answer == Answer::Yes { extra: true },
            // What no diff shows is applied on the command line only.
            skip_unaccepted: true,
            conflicts: Conflicts::Refuse,
            ..ApplyBundle::default()
        };
        let applied = on.context.sandboxes.apply_bundle(&on.call.writer(), request).await?;
        let value = ApplyValue {
            bundle: applied.id,
            applied: applied.applied.iter().take(PATHS).map(|path| line(&path.0)).collect(),
            applied_count: applied.applied.len() as u64,
            skipped: applied.skipped.iter().take(PATHS).map(Skipped::from).collect(),
            done: applied.done,
        };
        Ok(Reply::new(value))
    }
}

/// Rejects a bundle.
#[derive(Debug)]
pub(super) struct Reject;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RejectArguments {
    /// The id of the bundle.
    bundle: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct RejectValue {
    bundle: String,
    rejected: bool,
}

#[async_trait]
impl Operation for Reject {
    type Arguments = RejectArguments;
    type Value = RejectValue;

    fn facts(&self, _: &Scope) -> Facts {
        Facts {
            name: "reject",
            title: "Reject a bundle",
            text: "Deletes a bundle. Neither the project nor the files of the sandbox change. The user is asked first.",
            effects: Effects::CHANGES,
            on_sandbox: false,
            is_long: false,
        }
    }

    async fn call(
        &self,
        on: On<'_>,
        arguments: RejectArguments,
    ) -> Result<Reply<RejectValue>, Stop> {
        let bundle = find_bundle(&on, &arguments.bundle).await?;
        let question = Question {
            message: format!(
                "Delete the bundle {} of {}?\n{}",
                bundle.bundle.id,
                line(&bundle.bundle.project.0),
                summary(&bundle)
            ),
            confirm: "Delete this bundle",
            extra: None,
            subject: bundle.bundle.id.clone(),
        };
        is_allowed(&on, question).await?;
        let request = RejectBundle { id: bundle.bundle.id };
        let rejected = on.context.sandboxes.reject_bundle(&on.call.writer(), request).await?;
        Ok(Reply::new(RejectValue { bundle: rejected.id, rejected: rejected.rejected }))
    }
}
