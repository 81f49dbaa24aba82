//! The steps of a synchronization: the plan with all contents that it needs, its execution, the
//! commit, and the record of what both sides have in common.

use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stockade_api::{ConflictPolicy, LargeFiles, Result, SyncFiles};
use stockade_bundle::RelativePath;
use stockade_bundle::manifest::{ContentHash, Node};
use stockade_bundle::sync::{
    Action, Comparison, Filter, Mode, Patterns, Plan, Policy, ReadIgnoreFile, Scan, Sides,
    SkipReason, compare, skip_repositories,
};
use stockade_core::access::Level;
use stockade_core::{Code, OwnerId, Problem};

use super::inside::{Inside, NeedsContent, ScanInput, bytes_of};
use super::outside::{IgnoreFiles, Outside, read_collected};
use super::staging::{Staging, problem};
use super::{ChangedPaths, Direction, Planned, report};
use crate::failure::{caused, store_problem};
use crate::inner::Inner;
use crate::owned_sandbox::OwnedSandbox;
use crate::paths::as_path;

/// The record of the plan, in the files of the operation.
const PLANS: &str = "plan";

/// What is to be done at both sides.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Plans {
    inside: Vec<Action>,
    outside: Vec<Action>,
    base: Vec<(RelativePath, Node)>,
    /// Distinguishes the two directories.
    pair: String,
}

/// One synchronization.
pub(super) struct Job<'a> {
    pub(super) inner: &'a Inner,
    pub(super) owned: &'a OwnedSandbox,
    pub(super) owner: &'a OwnerId,
    pub(super) request: &'a SyncFiles,
    pub(super) direction: Direction,
    pub(super) staging: &'a Staging,
    /// Whether the server was restarted since it began.
    pub(super) again: bool,
    /// When it began, in milliseconds since 1970.
    pub(super) at_ms: u64,
}

impl Job<'_> {
    /// Whether this side outside is written to.
    fn writes_outside(&self) -> bool {
        self.direction == Direction::ToVfs || self.request.two_way
    }

    fn outside(&self) -> Result<Outside> {
        Outside::open(self.inner, self.owner, self.request, self.writes_outside())
    }

    async fn inside(&self) -> Result<Inside> {
        let runtime = self.inner.runtime(&self.owned.runtime)?;
        Inside::open(runtime, self.owned, &self.request.path).await
    }

    fn patterns(&self) -> Patterns {
        Patterns {
            include: self.request.include.clone(),
            exclude: self.request.exclude.clone(),
            git_directories: self.request.git_directories,
        }
    }

    /// Compares the sides, and stores the plan with all contents that are not stored elsewhere.
    pub(super) async fn plan(&self) -> Result<Planned> {
        self.staging.clear().map_err(|error| problem(&error))?;
        let outside = Arc::new(self.outside()?);
        let request = self.request;
        if request.commit {
            outside.check_commit(request.vfs.branch.as_deref())?;
        }
        let inside = self.inside().await?;
        let pair =
            format!("{}\n{}", outside.name(), bytes_of(&as_path(&request.path)?).escape_ascii());
        let base =
            self.staging.base(&self.owned.unique_name(), &pair).map_err(|error| problem(&error))?;
        let (mut source, mut destination, mut protect) = self.scan(&inside, &outside).await?;
        match self.direction {
            Direction::ToVfs => skip_repositories(&mut source, &destination),
            Direction::FromVfs if request.two_way => skip_repositories(&mut destination, &source),
            Direction::FromVfs => {}
        }
        self.check_source(&source, &destination)?;
        let comparison = Comparison {
            mode: match (request.mirror, request.two_way) {
                (true, _) => Mode::Mirror,
                (false, true) => Mode::TwoWay,
                (false, false) => Mode::Copy,
            },
            policy: match (request.conflict, self.direction) {
                (ConflictPolicy::Fail, _) => Policy::Fail,
                (ConflictPolicy::Skip, _) => Policy::Skip,
                (ConflictPolicy::VfsWins, Direction::FromVfs)
                | (ConflictPolicy::ContainerWins, Direction::ToVfs) => Policy::Source,
                _ => Policy::Destination,
            },
            empty_directories: request.keep_empty_dirs,
        };
        // What must not be read in the sandbox may be there.
        let is_hidden = |path: &RelativePath| !inside.allows(Level::Read, path);
        let mut protected = |path: &RelativePath, is_directory| match &mut protect {
            _ if is_hidden(path) => Ok(true),
            None => Ok(false),
            Some(filter) => filter.keeps(path, is_directory).map(|kept| !kept),
        };
        let sides = Sides { source: &source, destination: &destination, base: base.as_ref() };
        let plan = compare(sides, comparison, &mut protected).map_err(|error| problem(&error))?;
        self.store(plan, &inside, &outside, pair)
    }

    /// Both sides, and the filter of what the destination protects. The filter of the source counts at
    /// the destination too.
    async fn scan(
        &self,
        inside: &Inside,
        outside: &Arc<Outside>,
    ) -> Result<(Scan, Scan, Option<Filter>)> {
        let failed = |error: io::Error| problem(&error);
        let counts = self.request.gitignore;
        let collected = IgnoreFiles::default();
        let inner = || counts.then(|| read_collected(&collected));
        let outer = || -> Result<Option<ReadIgnoreFile>> {
            counts.then(|| outside.ignore_files()).transpose().map_err(failed)
        };
        let filter = |read| Filter::new(&self.patterns(), read);
        let limit = self.request.max_file_bytes;
        let stores = self.writes_outside();
        let input = |filter, max_bytes| -> Result<ScanInput> {
            let other = outside.clone();
            let is_needed: NeedsContent =
                Box::new(move |path, hash, size| Ok(!other.has_content(path, hash, size)?));
            let blobs = match stores {
                true => Some(self.staging.blobs().map_err(failed)?),
                false => None,
            };
            let ignore_files = collected.clone();
            Ok(ScanInput { filter, ignore_files, max_bytes, blobs, is_needed })
        };
        let read_outside = async |filter: Filter, max_bytes| {
            let outside = outside.clone();
            let read = move || {
                let mut filter = filter;
                outside.scan(&mut filter, max_bytes)
            };
            let read = tokio::task::spawn_blocking(read).await;
            read.map_err(io::Error::other).and_then(|read| read).map_err(failed)
        };
        match self.direction {
            Direction::FromVfs => {
                let source = read_outside(filter(outer()?), limit).await?;
                let scanned = inside.scan(input(filter(outer()?), None)?, true).await?;
                self.clean(inside, &scanned.leftovers).await?;
                let protect = inner().map(|read| Filter::new(&Patterns::default(), Some(read)));
                Ok((source, scanned.scan, protect))
            }
            Direction::ToVfs => {
                let scanned = inside.scan(input(filter(inner()), limit)?, false).await?;
                self.clean(inside, &scanned.leftovers).await?;
                let destination = read_outside(filter(inner()), None).await?;
                let protect = outer()?.map(|read| Filter::new(&Patterns::default(), Some(read)));
                Ok((scanned.scan, destination, protect))
            }
        }
    }

    async fn clean(&self, inside: &Inside, leftovers: &[RelativePath]) -> Result<()> {
        if self.again { inside.remove_leftovers(leftovers).await } else { Ok(()) }
    }

    /// Refuses a source that a mirror must not be made of, and one that is too large.
    fn check_source(&self, source: &Scan, destination: &Scan) -> Result<()> {
        let request = self.request;
        if request.mirror {
            if let Some(path) = source.unreadable() {
                let message =
                    format!("{} could not be read, so nothing was deleted", path.quoted());
                return Err(Problem::new(Code::AccessDenied, message)
                    .because("a mirror needs its whole source")
                    .remedied_by("omit `mirror`, or exclude the path"));
            }
            let deletes = destination.size().0 > 0 && source.size().0 == 0;
            if deletes && !request.allow_empty {
                let message = "the source is empty, and a mirror would delete everything";
                return Err(Problem::new(Code::InvalidInput, message)
                    .remedied_by("set `allowEmpty` if that is intended"));
            }
        }
        let too_large = source.skipped.iter().find(|(_, reason)| **reason == SkipReason::TooLarge);
        match too_large {
            Some((path, _)) if request.large_files == LargeFiles::Fail => {
                let message = format!("{} is larger than allowed", path.quoted());
                Err(Problem::new(Code::SyncTooLarge, message)
                    .remedied_by("raise `maxFileBytes`, or set `largeFiles` to `skip`"))
            }
            _ => Ok(()),
        }
    }

    fn store(
        &self,
        mut plan: Plan,
        inside: &Inside,
        outside: &Outside,
        pair: String,
    ) -> Result<Planned> {
        let failed = |error: io::Error| problem(&error);
        let into_sandbox = match self.direction {
            Direction::FromVfs => &mut plan.at_destination,
            Direction::ToVfs => &mut plan.at_source,
        };
        let mut dropped = Vec::new();
        into_sandbox.retain(|action| {
            let allowed = inside.allows(Level::ReadWrite, &action.path);
            if !allowed {
                dropped.push((action.path.clone(), SkipReason::AccessDenied));
            }
            allowed
        });
        let stops = self.request.conflict == ConflictPolicy::Fail
            && plan.conflicts.iter().any(|conflict| !conflict.settled);
        let execute = !stops && !self.request.dry_run;
        let blobs = self.staging.blobs().map_err(failed)?;
        let mut failure = None;
        if execute {
            into_sandbox.retain(|action| {
                let stored = match action.new.as_ref().map(|found| &found.node) {
                    Some(Node::File { hash, .. }) => match outside.open_file(&action.path) {
                        Ok(None) => Ok(true),
                        Ok(Some(mut file)) => blobs.put(&mut file).map(|(found, _)| found == *hash),
                        Err(_) => Ok(false),
                    },
                    _ => Ok(true),
                };
                match stored {
                    Ok(true) => true,
                    Ok(false) => {
                        dropped.push((action.path.clone(), SkipReason::ChangedMeanwhile));
                        false
                    }
                    Err(error) => {
                        failure.get_or_insert(error);
                        false
                    }
                }
            });
        }
        if let Some(error) = failure {
            return Err(problem(&error));
        }
        plan.base.retain(|(path, _)| !dropped.iter().any(|(dropped, _)| dropped == path));
        plan.skipped.extend(dropped);
        let mut report = report::of_plan(&plan, self.direction);
        report.completed = !stops;
        let Plan { at_destination, at_source, base, .. } = plan;
        let (inside, outside) = match self.direction {
            Direction::FromVfs => (at_destination, at_source),
            Direction::ToVfs => (at_source, at_destination),
        };
        let request = self.request;
        for (limit, value, name) in [
            (request.max_files, report.copied, "maxFiles"),
            (request.max_bytes, report.bytes, "maxBytes"),
        ] {
            if let Some(limit) = limit.filter(|limit| value > *limit) {
                let message = format!("{value} is more than {limit}, which `{name}` allows");
                return Err(Problem::new(Code::SyncTooLarge, message)
                    .because("nothing was copied")
                    .remedied_by(format!("raise `{name}`, or exclude what is not needed")));
            }
        }
        if execute {
            let plans = Plans { inside, outside, base, pair };
            self.staging.write(PLANS, &plans).map_err(failed)?;
            blobs.sync().map_err(failed)?;
        }
        Ok(Planned { report, execute })
    }

    fn plans(&self) -> Result<Plans> {
        self.staging.read(PLANS).map_err(|error| {
            caused(Code::Io, &error).because("the stored plan of the synchronization is missing")
        })
    }

    /// Opens contents that are stored with the plan, or outside.
    fn contents(
        &self,
        outside: Arc<Outside>,
    ) -> Result<impl Fn(ContentHash) -> io::Result<std::fs::File> + Send + Sync + 'static> {
        let blobs = self.staging.blobs().map_err(|error| problem(&error))?;
        Ok(move |hash| match blobs.open(hash) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => outside.open_blob(hash),
            opened => opened,
        })
    }

    /// Executes the plan.
    pub(super) async fn place(&self) -> Result<ChangedPaths> {
        let Plans { inside, outside, .. } = self.plans()?;
        let mut changed = Vec::new();
        if !outside.is_empty() {
            let other = Arc::new(self.outside()?);
            let open = self.contents(other.clone())?;
            let key = self.staging.key().to_owned();
            let place = move || other.place(&key, &outside, &open);
            let placed = tokio::task::spawn_blocking(place).await;
            let placed = placed.map_err(|error| problem(&io::Error::other(error)))?;
            changed.extend(placed?);
        }
        if !inside.is_empty() {
            let other = Arc::new(self.outside()?);
            let place = async {
                let directory = self.inside().await?;
                if self.again {
                    self.remove_partial_files(&directory).await?;
                }
                directory.place(inside, self.contents(other)?).await
            };
            let terminations = &self.inner.terminations;
            changed.extend(terminations.run_unless_terminated(&self.owned.id, place).await??);
        }
        Ok(changed)
    }

    /// Removes what an interrupted copy has left in the sandbox.
    async fn remove_partial_files(&self, inside: &Inside) -> Result<()> {
        let never: NeedsContent = Box::new(|_, _, _| Ok(false));
        let input = ScanInput {
            filter: Filter::new(&Patterns::default(), None),
            ignore_files: IgnoreFiles::default(),
            max_bytes: None,
            blobs: None,
            is_needed: never,
        };
        let scanned = inside.scan(input, true).await?;
        inside.remove_leftovers(&scanned.leftovers).await
    }

    /// Commits what has changed outside.
    pub(super) async fn commit(&self, changed: &[RelativePath]) -> Result<Option<String>> {
        if !self.request.commit {
            return Ok(None);
        }
        let mut actions = self.plans()?.outside;
        actions.retain(|action| !changed.contains(&action.path));
        let outside = Arc::new(self.outside()?);
        if actions.is_empty() && matches!(&*outside, Outside::Directory { .. }) {
            return Ok(None);
        }
        let open = self.contents(outside.clone())?;
        let (request, key, at_ms) =
            (self.request.clone(), self.staging.key().to_owned(), self.at_ms);
        let commit = move || outside.commit(&key, &request, at_ms, &actions, &open);
        let made = tokio::task::spawn_blocking(commit).await;
        made.map_err(|error| problem(&io::Error::other(error)))?
    }

    /// Records what both sides have in common now.
    pub(super) async fn record_base(&self, changed: &[RelativePath]) -> Result<()> {
        let Plans { mut base, pair, .. } = self.plans()?;
        base.retain(|(path, _)| !changed.contains(path));
        let set = self.staging.set_base(&self.owned.unique_name(), &pair, &base);
        set.map_err(|error| problem(&error))
    }
}

/// When a workflow was created, in milliseconds since 1970.
pub(super) async fn created_at(context: &stockade_durable::Context) -> Result<u64> {
    let info = context.engine().info(context.id()).await.map_err(store_problem)?;
    Ok(info.map_or(0, |info| u64::try_from(info.created_at).unwrap_or(0)))
}
