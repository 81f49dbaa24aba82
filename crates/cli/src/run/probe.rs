//! A run that attacks its own jail, for `doctor`.

use std::path::Path;
use std::time::Duration;

use stockade_bundle::project::Project;
use stockade_bundle::view;
use stockade_core::network::Policy;
use stockade_core::sandbox::Workspace;
use stockade_core::{Code, Problem, SandboxSpec};
use stockade_jail::{
    self as jail, Captured, Ending, Identity, Network, Payload, Signals, Sink, Supervision, Wall,
};

use super::launch::{self, LaunchError, LaunchSpec};
use crate::problem::caused;

/// The timeout of the probe.
const DEADLINE: Duration = Duration::from_secs(30);

/// The most bytes that the probe may write.
const CAPTURE_BYTES: usize = 64 << 10;

/// The result of a probe.
#[derive(Debug)]
pub(crate) struct ProbeOutput {
    /// `overlay` or `copy`.
    pub(crate) view: &'static str,
    /// Its output.
    pub(crate) output: Captured,
    /// The fallbacks that were used.
    pub(crate) notes: Vec<String>,
}

/// Why the probe could not run.
#[derive(Debug)]
pub(crate) struct ProbeError {
    /// The wall that is unavailable, if that is the reason.
    pub(crate) wall: Option<Wall>,
    /// The problem.
    pub(crate) problem: Problem,
}

impl From<Problem> for ProbeError {
    fn from(problem: Problem) -> Self {
        Self { wall: None, problem }
    }
}

impl From<LaunchError> for ProbeError {
    fn from(LaunchError { wall, problem }: LaunchError) -> Self {
        Self { wall, problem }
    }
}

/// Runs `payload` in a jail with all isolation mechanisms of `stockade run`, on the project at
/// `path`. If it has a network, no egress process serves it.
pub(crate) fn probe(
    directory: &Path,
    identity: Identity,
    network: Network,
    payload: Payload,
) -> Result<ProbeOutput, ProbeError> {
    let signals = signals()?;
    let data = super::open_data()?;
    let project = Project::open(directory, None).map_err(|e| caused(Code::ProjectRefused, &e))?;
    let workspace = Workspace { host: project.root.clone(), inside: project.root.clone() };
    let spec = SandboxSpec {
        working_directory: Some(workspace.inside.clone()),
        workspace: Some(workspace),
        network: (network == Network::Egress).then(Policy::default),
        ..SandboxSpec::default()
    };
    let wanted = LaunchSpec {
        project: &project,
        spec: &spec,
        command: &["true".into()],
        image: None,
        base: None,
        tty: false,
        copied: false,
        kept: None,
        secrets: &[],
        authorities: None,
        has_ssh_agent: false,
    };
    let (started, payload) = (view::coarse_now(), Some(payload));
    let launched = launch::launch(&wanted, Vec::new(), &data, identity, started, payload)?;
    let launch::RunningJail { jail, view, isolation, .. } = launched;
    let kind = match view.record().kind {
        stockade_bundle::manifest::ViewKind::Overlay => "overlay",
        stockade_bundle::manifest::ViewKind::Copy => "copy",
    };
    let outcome = jail::supervise(jail, supervision(), signals);
    // It contains only the probe's own file.
    let _ = view.remove();
    let outcome = outcome.map_err(|e| match &e {
        jail::Error::Wall { wall, step, source } => {
            let problem = super::limits::wall_problem(*wall, step, source);
            ProbeError { wall: Some(*wall), problem }
        }
        _ => caused(Code::LaunchFailed, &e).into(),
    })?;
    if outcome.ending != Ending::Exited(0) {
        let ending = format!("it ended as {:?}", outcome.ending);
        return Err(Problem::new(Code::LaunchFailed, "the probe did not end")
            .because(ending)
            .into());
    }
    Ok(ProbeOutput { view: kind, output: outcome.output, notes: isolation.reasons })
}

/// How a probe is supervised.
fn supervision() -> Supervision {
    Supervision {
        input: None,
        output: Sink::Capture(CAPTURE_BYTES),
        error: Sink::Capture(CAPTURE_BYTES),
        timeout: Some(DEADLINE),
        output_limit_bytes: None,
        grace: DEADLINE,
        terminal: None,
        watches: Vec::new(),
        after_input: None,
        first_request: None,
    }
}

/// Blocks signals during a probe.
fn signals() -> Result<Signals, Problem> {
    Signals::block().map_err(|e| caused(Code::LaunchFailed, &e))
}
