//! Which commands print JSON.

use super::live::{Forward, Open, Ps, Wait};
use super::sandbox::{
    AllowHosts, Collect, Copy, Events, Kill, List, Logs, NetworkChange, Prune, Remove, Renew,
    Snapshot, Snapshots, Tool, ToolCommand, Update,
};
use super::{Apply, Base, Bundles, Command, Diff, Doctor, Reject, decide};
use crate::error_form::Form;

impl Command {
    /// The form of errors.
    pub fn error_form(&self) -> Form {
        match self {
            Self::Events(_) | Self::Logs(_) | Self::Up(_) | Self::Resume(_)
                if self.wants_json() =>
            {
                Form::JsonLines
            }
            _ if self.wants_json() => Form::Json,
            _ => Form::Text,
        }
    }

    /// Whether errors must be printed as JSON, too.
    pub fn wants_json(&self) -> bool {
        match self {
            Self::Run(run) => run.json,
            Self::Bundles(Bundles { json, .. })
            | Self::Diff(Diff { json, .. })
            | Self::Apply(Apply { json, .. })
            | Self::Reject(Reject { json, .. })
            | Self::Undo(decide::Undo { json, .. })
            | Self::History(decide::History { json, .. })
            | Self::Doctor(Doctor { json }) => *json,
            Self::Debug(debug) => debug.wants_json(),
            Self::Snippet(snippet) => snippet.wants_json(),
            Self::Create(create) => create.json,
            Self::Restore(restore) => restore.create.json,
            Self::Exec(exec) => exec.json,
            Self::Ls(List { json, .. })
            | Self::Cp(Copy { json, .. })
            | Self::Rm(Remove { json, .. })
            | Self::Forward(Forward { json, .. })
            | Self::Open(Open { json, .. })
            | Self::Ps(Ps { json, .. })
            | Self::Wait(Wait { json, .. })
            | Self::Logs(Logs { json, .. })
            | Self::Events(Events { json, .. })
            | Self::Renew(Renew { json, .. })
            | Self::Update(Update { json, .. })
            | Self::Allow(AllowHosts { json, .. })
            | Self::Refuse(NetworkChange { json, .. })
            | Self::Snapshot(Snapshot { json, .. })
            | Self::Snapshots(Snapshots { json, .. })
            | Self::Collect(Collect { json, .. })
            | Self::Kill(Kill { json, .. })
            | Self::Prune(Prune { json, .. })
            | Self::Base(Base { json, .. })
            | Self::Tool(Tool { what: ToolCommand::Ls { json, .. } }) => *json,
            Self::Secret(secret) => secret.what.wants_json(),
            Self::Volume(volume) => volume.wants_json(),
            Self::Sync(sync) => sync.json,
            Self::Workspace(workspace) => workspace.wants_json(),
            Self::Cache(cache) => cache.wants_json(),
            Self::Show(one) => one.json,
            Self::Keys(keys) => keys.common().json,
            Self::Policy(policy) => policy.what.wants_json(),
            Self::Secrets(secrets) => secrets.common().json,
            Self::Audit(audit) => audit.wants_json(),
            Self::Backup(backup) => backup.wants_json(),
            Self::Migrate(migrate) => migrate.json,
            Self::Start(several) | Self::Stop(several) | Self::Pause(several) => several.json,
            Self::Up(up) => up.json,
            Self::Resume(resume) => resume.json,
            Self::Runs(runs) => runs.json,
            Self::Metrics(metrics) => metrics.json,
            Self::Inspect(one) | Self::Cancel(one) => one.json,
            Self::Graph(graph) => graph.json,
            Self::Approve(approve) => approve.decide.json,
            Self::Deny(decide) => decide.json,
            Self::Signal(signal) => signal.json,
            Self::Tool(_) => true,
            Self::Image(image) => image.command.wants_json(),
            Self::Shell(_)
            | Self::Attach(_)
            | Self::Mcp(_)
            | Self::Init(_)
            | Self::Serve(_)
            | Self::Login(_)
            | Self::Logout(_)
            | Self::Completions(_)
            | Self::Trust(_)
            | Self::Df(_)
            | Self::Explain(_)
            | Self::Help(_)
            | Self::Complete(_)
            | Self::Man(_) => false,
        }
    }
}
