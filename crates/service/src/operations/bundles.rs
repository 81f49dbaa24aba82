//! `bundles`, `show_bundle`, `diff_bundle`, `apply_bundle`, `reject_bundle`: changes to projects of
//! the host, for the owner of the data directory that contains them. Other owners have none.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use stockade_api::{
    AppliedBundle, ApplyBundle, BundleDetail, BundleList, Bytes, Caller, CollectedChanges,
    DiffBundle, Items, ListBundles, PathDiff, ProposeChanges, RejectBundle, RejectedBundle, Result,
    ShowBundle,
};
use stockade_core::{Code, OwnerId, Problem};
use stockade_durable::{Builder, Context, Failure, StartOptions, Step};
use stockade_review::problem::not_found;
use stockade_review::{ApplyDecision, Bundles, RejectTarget};
use tokio::sync::mpsc;

use super::{record_with_next, record_with_outcome, workflow_fn};
use crate::elsewhere;
use crate::failure::{store_problem, to_failure};
use crate::inner::Inner;
use crate::operation::{self, Input};
use crate::options::Home;
use crate::possession::Kind;
use crate::possessions;
use crate::service::Service;

const APPLY: &str = "bundle.apply";
const REJECT: &str = "bundle.reject";
const PROPOSE: &str = "bundle.propose";

/// How many diffs are computed ahead of a reader.
const DIFF_CAPACITY: usize = 4;

pub(crate) fn register(builder: Builder, inner: &Arc<Inner>) -> Builder {
    builder
        .workflow(APPLY, workflow_fn(inner, perform_application))
        .workflow(REJECT, workflow_fn(inner, perform_rejection))
        .workflow(PROPOSE, workflow_fn(inner, perform_proposal))
}

impl Inner {
    /// The first of three phases: the data directory with the bundles, if it belongs to the caller.
    pub(super) fn home(&self, owner: &OwnerId) -> Option<&Home> {
        self.options.home.as_ref().filter(|home| home.owner == *owner)
    }

    /// The same for one bundle. Other callers do not learn whether it exists.
    fn home_for_bundle(&self, owner: &OwnerId, bundle: &str) -> Result<&Home> {
        self.home(owner).ok_or_else(|| not_found(bundle))
    }
}

/// Runs a function on files, on a thread that may block.
pub(super) async fn with_bundles<T: Send + 'static>(
    home: &Home,
    work: impl FnOnce(&Bundles) -> Result<T> + Send + 'static,
) -> Result<T> {
    let path = home.path.clone();
    let result = tokio::task::spawn_blocking(move || work(&Bundles::open(&path)?)).await;
    result.unwrap_or_else(|error| {
        Err(Problem::new(Code::Io, "the bundles could not be processed").because(error.to_string()))
    })
}

/// The bundles that are waiting for a decision.
pub(crate) async fn list(
    service: &Service,
    caller: &Caller,
    request: ListBundles,
) -> Result<BundleList> {
    possessions::publish(&service.inner, &caller.owner, Kind::Bundle).await?;
    match service.inner.home(&caller.owner) {
        None => Ok(BundleList::default()),
        Some(home) => with_bundles(home, move |bundles| bundles.list(&request)).await,
    }
}

/// The changes in a bundle.
pub(crate) async fn show(
    service: &Service,
    caller: &Caller,
    request: ShowBundle,
) -> Result<BundleDetail> {
    let home = service.inner.home_for_bundle(&caller.owner, &request.id)?;
    with_bundles(home, move |bundles| bundles.show(&request)).await
}

/// The line differences of a bundle. They are computed while they are read.
pub(crate) async fn diff(
    service: &Service,
    caller: &Caller,
    request: DiffBundle,
) -> Result<Items<PathDiff>> {
    let home = service.inner.home_for_bundle(&caller.owner, &request.id)?;
    let differences = with_bundles(home, move |bundles| bundles.differences(&request)).await?;
    let (sender, receiver) = mpsc::channel(DIFF_CAPACITY);
    tokio::task::spawn_blocking(move || {
        for difference in differences {
            let is_last = difference.is_err();
            if sender.blocking_send(difference).is_err() || is_last {
                break;
            }
        }
    });
    Ok(Items::new(receiver))
}

/// Refuses a project that a caller on another machine must not change.
fn check_project(service: &Service, caller: &Caller, project: &Bytes) -> Result<()> {
    let project = Path::new(OsStr::from_bytes(&project.0));
    let options = &service.inner.options;
    elsewhere::check_directory(caller, project, options, "a project of the server's machine")
}

/// Makes a bundle of proposed changes for a project.
pub(crate) async fn propose(
    service: &Service,
    caller: &Caller,
    request: ProposeChanges,
) -> Result<CollectedChanges> {
    require_home(&service.inner, &caller.owner)?;
    check_project(service, caller, &request.project)?;
    operation::run(&service.engine, PROPOSE, caller, &request).await
}

/// Applies a bundle's changes to its project.
pub(crate) async fn apply(
    service: &Service,
    caller: &Caller,
    request: ApplyBundle,
) -> Result<AppliedBundle> {
    let home = service.inner.home_for_bundle(&caller.owner, &request.id)?;
    if caller.remote {
        let request = ShowBundle { id: request.id.clone(), paths: Vec::new() };
        let found = with_bundles(home, move |bundles| bundles.show(&request)).await?;
        check_project(service, caller, &found.bundle.project)?;
    }
    operation::run(&service.engine, APPLY, caller, &request).await
}

/// Rejects a bundle.
pub(crate) async fn reject(
    service: &Service,
    caller: &Caller,
    request: RejectBundle,
) -> Result<RejectedBundle> {
    let (inner, owner) = (&service.inner, &caller.owner);
    if let Some(host) = possessions::lost_host(inner, owner, Kind::Bundle, &request.id).await? {
        possessions::remove_lost(inner, owner, Kind::Bundle, &request.id, &host).await?;
        return Ok(RejectedBundle { id: request.id, project: None, rejected: true });
    }
    let home = service.inner.home_for_bundle(&caller.owner, &request.id)?;
    let options = StartOptions { id: Some(operation::workflow_id(caller)?), ..Default::default() };
    let started = operation::start(&service.engine, REJECT, caller, &request, options).await;
    match started {
        // A rejection frees space, so it runs without a record if the disk has no room for one.
        Err(problem) if problem.code == Code::StorageFull => {
            with_bundles(home, move |bundles| bundles.reject_at_once(&request.id)).await
        }
        started => started?.get_result().await.map_err(store_problem),
    }
}

/// The owner check inside a workflow: repeated in each execution.
async fn acl<'i>(
    inner: &'i Inner,
    context: &Context,
    owner: &OwnerId,
    bundle: &str,
) -> std::result::Result<&'i Home, Failure> {
    let check = async |_| inner.home_for_bundle(owner, bundle).map_err(to_failure);
    context.volatile("acl", check).await
}

/// The workflow of `apply_bundle`. Its changes are made all or none, whenever the process is
/// killed: an interrupted application is first completed or undone, and detected if it was
/// completed.
async fn perform_application(
    inner: Arc<Inner>,
    context: Context,
    input: Input<ApplyBundle>,
) -> std::result::Result<AppliedBundle, Failure> {
    let request = &input.request;
    let home = acl(&inner, &context, &input.owner, &request.id).await?;
    // Recorded before any change, so that `latest` always means the same bundle.
    let find = async |_: Step| {
        let name = request.id.clone();
        with_bundles(home, move |bundles| bundles.id(&name)).await.map_err(to_failure)
    };
    let id: String = context.step("find", find).await?;
    let again = context.run_number() > 1;
    let act = async |_: Step| {
        let apply_request = ApplyBundle { id: id.clone(), ..request.clone() };
        let applied = with_bundles(home, move |bundles| {
            bundles.recover()?;
            bundles.apply(&apply_request, again)
        });
        applied.await.map_err(to_failure)
    };
    // Recorded before the bundle is deleted: a second execution uses this record.
    let outcome: ApplyDecision = context.step("apply", act).await?;
    if outcome.is_done() {
        let settle = async |_: Step| {
            let id = id.clone();
            with_bundles(home, move |bundles| bundles.remove_if_decided(&id))
                .await
                .map_err(to_failure)
        };
        context.step_with("settle", record_with_next(), settle).await?;
    }
    outcome.into_response().map_err(to_failure)
}

/// The workflow of `reject_bundle`.
async fn perform_rejection(
    inner: Arc<Inner>,
    context: Context,
    input: Input<RejectBundle>,
) -> std::result::Result<RejectedBundle, Failure> {
    let name = &input.request.id;
    let home = acl(&inner, &context, &input.owner, name).await?;
    let find = async |_: Step| {
        let name = name.clone();
        with_bundles(home, move |bundles| bundles.reject_target(&name)).await.map_err(to_failure)
    };
    let found: RejectTarget = context.step("find", find).await?;
    // Not a step, so that the steps are those of older records. A repeated execution, after the
    // removal, does not know it any more.
    let target = found.clone();
    let project = with_bundles(home, move |bundles| Ok(bundles.project_of(&target))).await;
    let reject = async |_: Step| {
        let found = found.clone();
        with_bundles(home, move |bundles| bundles.reject(&found)).await.map_err(to_failure)
    };
    context.step_with("reject", record_with_next(), reject).await?;
    Ok(RejectedBundle {
        id: found.id().to_owned(),
        project: project.map_err(to_failure)?,
        rejected: true,
    })
}

/// The data directory for new bundles of an owner.
pub(super) fn require_home<'i>(inner: &'i Inner, owner: &OwnerId) -> Result<&'i Home> {
    inner.home(owner).ok_or_else(|| {
        Problem::new(Code::Unsupported, "this server does not store bundles of this owner")
            .because("the data directory of this server belongs to another user")
    })
}

/// The workflow that stores proposed changes. A bundle's id is derived from its content and its
/// time, so the same bundle is created again after a crash.
async fn perform_proposal(
    inner: Arc<Inner>,
    context: Context,
    input: Input<ProposeChanges>,
) -> std::result::Result<CollectedChanges, Failure> {
    let check = async |_: Step| require_home(&inner, &input.owner).map_err(to_failure);
    let home = context.volatile("acl", check).await?;
    let info = context.engine().info(context.id()).await;
    let at_ms =
        info.map_err(|error| to_failure(store_problem(error)))?.map_or(0, |it| it.created_at);
    let at_ms = u64::try_from(at_ms).unwrap_or(0);
    let propose = async |_: Step| {
        let request = input.request.clone();
        with_bundles(home, move |bundles| bundles.propose(&request, at_ms))
            .await
            .map_err(to_failure)
    };
    context.step_with("propose", record_with_outcome(), propose).await
}
