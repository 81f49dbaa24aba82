//! Compares two trees with what they last had in common, and decides what is done. Nothing is
//! overwritten or deleted that has changed since, unless the policy says which side wins.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use serde::{Deserialize, Serialize};

use super::tree::{Found, Nodes, Scan, SkipReason, same, stays_inside};
use crate::manifest::Node;
use crate::path::RelativePath;

/// What is done with what is at one side only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// The destination keeps it.
    #[default]
    Copy,
    /// The destination loses it, except what is protected.
    Mirror,
    /// Changes of both sides are copied to the other one.
    TwoWay,
}

/// What is done with a path that both sides have changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Policy {
    /// Nothing at all is changed.
    #[default]
    Fail,
    /// The path stays as it is at both sides.
    Skip,
    /// The source wins.
    Source,
    /// The destination wins.
    Destination,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// The path.
    pub path: RelativePath,
    /// What is there, as the scan found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<Found>,
    /// What will be there; nothing if it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<Found>,
}

/// A path that both sides have changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// The path.
    pub path: RelativePath,
    /// What both sides last had.
    pub base: Option<Node>,
    /// What the source has.
    pub source: Option<Node>,
    /// What the destination has.
    pub destination: Option<Node>,
    /// Whether a policy has settled it.
    pub settled: bool,
}

/// What is to be done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The changes at the destination: deletions, deepest first, then the others, parents first.
    pub at_destination: Vec<Action>,
    /// The same at the source.
    pub at_source: Vec<Action>,
    /// Conflicts.
    pub conflicts: Vec<Conflict>,
    /// What is not copied, and why.
    pub skipped: Vec<(RelativePath, SkipReason)>,
    /// How many files and links are the same.
    pub unchanged: u64,
    /// Files that a mirror replaces although it is not known which side changed them.
    pub replaced: Vec<RelativePath>,
    /// What both sides have in common afterwards.
    pub base: Vec<(RelativePath, Node)>,
}

/// The two trees.
#[derive(Debug, Clone, Copy)]
pub struct Sides<'a> {
    /// From where is copied.
    pub source: &'a Scan,
    /// To where.
    pub destination: &'a Scan,
    /// What they had in common after the last time, if there was one.
    pub base: Option<&'a Nodes>,
}

/// How they are compared.
#[derive(Debug, Clone, Copy, Default)]
pub struct Comparison {
    /// What is done with what is at one side only.
    pub mode: Mode,
    /// Who wins.
    pub policy: Policy,
    /// Whether directories without files are copied.
    pub empty_directories: bool,
}

/// Makes the plan. `is_protected` determines what a mirror does not delete.
///
/// # Errors
/// Those of `is_protected`.
pub fn compare(
    sides: Sides<'_>,
    comparison: Comparison,
    is_protected: &mut dyn FnMut(&RelativePath, bool) -> io::Result<bool>,
) -> io::Result<Plan> {
    let needed = |scan: &Scan| needed_directories(scan, comparison.empty_directories);
    let mut planning = Planning {
        sides,
        comparison,
        is_protected,
        needed: (needed(sides.source), needed(sides.destination)),
        plan: Plan::default(),
        base: sides.base.cloned().unwrap_or_default(),
        blocked: None,
        emptied: BTreeSet::new(),
    };
    planning.run()?;
    let Planning { mut plan, base, .. } = planning;
    plan.base = base.into_iter().collect();
    plan.at_destination = ordered(plan.at_destination);
    plan.at_source = ordered(plan.at_source);
    plan.skipped.sort();
    Ok(plan)
}

/// The directories that have something to hold, or all.
fn needed_directories(scan: &Scan, all: bool) -> BTreeSet<RelativePath> {
    let mut needed = BTreeSet::new();
    for (path, found) in &scan.tree {
        if leaves(path, &found.node) {
            continue;
        }
        if matches!(found.node, Node::Directory { .. }) {
            if all {
                needed.insert(path.clone());
            } else {
                continue;
            }
        }
        let mut above = path.parent();
        while let Some(directory) = above {
            above = directory.parent();
            if !needed.insert(directory) {
                break;
            }
        }
    }
    needed
}

/// Deletions first, what is below before what is above; then the rest.
fn ordered(actions: Vec<Action>) -> Vec<Action> {
    let (mut deletions, mut others): (Vec<_>, Vec<_>) =
        actions.into_iter().partition(|action| action.new.is_none());
    deletions.sort_by(|one, other| other.path.cmp(&one.path));
    others.sort_by(|one, other| one.path.cmp(&other.path));
    deletions.extend(others);
    deletions
}

struct Planning<'a, 'p> {
    sides: Sides<'a>,
    comparison: Comparison,
    is_protected: &'p mut dyn FnMut(&RelativePath, bool) -> io::Result<bool>,
    /// The directories that hold something, of the source and of the destination.
    needed: (BTreeSet<RelativePath>, BTreeSet<RelativePath>),
    plan: Plan,
    base: Nodes,
    /// A path below which nothing is done.
    blocked: Option<RelativePath>,
    /// Paths whose deletion is part of the plan already.
    emptied: BTreeSet<RelativePath>,
}

const fn is_directory(node: &Node) -> bool {
    matches!(node, Node::Directory { .. })
}

/// Whether it is a link that leads out of the tree.
fn leaves(path: &RelativePath, node: &Node) -> bool {
    match node {
        Node::Symlink { target } => !stays_inside(target, path.components().count() - 1),
        _ => false,
    }
}

impl Planning<'_, '_> {
    fn run(&mut self) -> io::Result<()> {
        let (source, destination) = (self.sides.source, self.sides.destination);
        for (path, reason) in &source.skipped {
            self.plan.skipped.push((path.clone(), *reason));
        }
        let mut paths: BTreeMap<&RelativePath, (Option<&Found>, Option<&Found>)> = BTreeMap::new();
        for (path, found) in &source.tree {
            paths.entry(path).or_default().0 = Some(found);
        }
        for (path, found) in &destination.tree {
            paths.entry(path).or_default().1 = Some(found);
        }
        // A directory that only implies what is below it.
        for path in &self.needed.0.clone() {
            if !source.tree.contains_key(path) {
                let known = destination.tree.get(path).map(|found| &found.node);
                if known.is_none_or(|node| !is_directory(node)) {
                    self.implied(path, known.cloned());
                }
            }
        }
        for (path, (source, destination)) in paths {
            if self.blocked.as_ref().is_some_and(|blocked| path.is_within(blocked)) {
                if source.is_some_and(|found| !is_directory(&found.node)) {
                    self.skip(path, SkipReason::Conflict);
                }
                continue;
            }
            self.blocked = None;
            if self.emptied.contains(path) {
                continue;
            }
            // What a link leads to outside of the tree is not the same at the other side.
            if source.is_some_and(|found| leaves(path, &found.node)) {
                self.skip(path, SkipReason::UnsafeLink);
                self.blocked = Some(path.clone());
                continue;
            }
            match (source, destination) {
                (Some(source), Some(destination)) => self.both(path, source, destination)?,
                (Some(source), None) => self.source_only(path, source)?,
                (None, Some(destination)) => self.destination_only(path, destination)?,
                (None, None) => {}
            }
        }
        // What neither side has any more is nothing in common.
        let gone = |path: &RelativePath| {
            !self.sides.source.tree.contains_key(path)
                && !self.sides.destination.tree.contains_key(path)
        };
        let gone: Vec<_> = self.base.keys().filter(|path| gone(path)).cloned().collect();
        for path in gone {
            if !self.sides.source.is_skipped(&path) {
                self.base.remove(&path);
            }
        }
        Ok(())
    }

    /// A directory of the source that is not included itself.
    fn implied(&mut self, path: &RelativePath, old: Option<Node>) {
        let new = Found { node: Node::Directory { mode: 0o755 }, modified: None };
        match old {
            None => self.plan.at_destination.push(Action {
                path: path.clone(),
                old: None,
                new: Some(new),
            }),
            Some(old) => self.conflict(path, Some(new.node), Some(old)),
        }
    }

    fn known(&self, path: &RelativePath) -> Option<&Node> {
        self.sides.base.and_then(|base| base.get(path))
    }

    fn both(&mut self, path: &RelativePath, source: &Found, destination: &Found) -> io::Result<()> {
        let base = self.known(path).cloned();
        let agrees = |node: &Node| base.as_ref().is_some_and(|base| same(base, node));
        let two_way = self.comparison.mode == Mode::TwoWay;
        if same(&source.node, &destination.node) {
            self.same_content(path, source, destination, base.as_ref());
            return Ok(());
        }
        if is_directory(&source.node) && !self.needed.0.contains(path) {
            // An empty directory that is not copied is no reason to remove a file.
            return Ok(());
        }
        let first = self.sides.base.is_none();
        let planted =
            matches!(destination.node, Node::Symlink { .. }) && is_directory(&source.node);
        if agrees(&destination.node) {
            self.replace(path, source, destination)
        } else if agrees(&source.node) && two_way {
            self.update_source(path, Some(source), destination)
        } else if agrees(&source.node) && self.comparison.mode == Mode::Copy {
            self.skip(path, SkipReason::NewerAtDestination);
            self.blocked = Some(path.clone());
            Ok(())
        } else if first && self.comparison.mode == Mode::Mirror && !planted {
            self.plan.replaced.push(path.clone());
            self.replace(path, source, destination)
        } else {
            self.differ(path, Some(source), Some(destination))
        }
    }

    /// Both sides have the same content; perhaps other permissions.
    fn same_content(
        &mut self,
        path: &RelativePath,
        source: &Found,
        destination: &Found,
        base: Option<&Node>,
    ) {
        self.base.insert(path.clone(), source.node.clone());
        let mode = |node: &Node| match node {
            Node::File { mode, .. } => Some(super::tree::write_mode(*mode)),
            _ => None,
        };
        let (from, to) = (mode(&source.node), mode(&destination.node));
        if is_directory(&source.node) {
            return;
        }
        if from == to {
            self.plan.unchanged += 1;
            return;
        }
        let changed_there = base.and_then(mode).is_some_and(|base| Some(base) == from);
        if !changed_there {
            self.act_at_destination(path, Some(destination), Some(source));
        } else if self.comparison.mode == Mode::TwoWay {
            self.base.insert(path.clone(), destination.node.clone());
            self.act_at_source(path, Some(source), Some(destination));
        } else {
            self.plan.unchanged += 1;
        }
    }

    /// The source replaces what is at the destination. A directory must be empty, or be emptied.
    fn replace(
        &mut self,
        path: &RelativePath,
        source: &Found,
        destination: &Found,
    ) -> io::Result<()> {
        if is_directory(&destination.node) && !is_directory(&source.node) {
            let Some(below) = self.removable(path)? else {
                return self.differ(path, Some(source), Some(destination));
            };
            for (path, found) in below {
                self.emptied.insert(path.clone());
                self.delete_at_destination(&path, &found);
            }
            self.delete_at_destination(path, destination);
            self.act_at_destination(path, None, Some(source));
            return Ok(());
        }
        if is_directory(&source.node) {
            self.delete_at_destination(path, destination);
            self.act_at_destination(path, None, Some(source));
            return Ok(());
        }
        self.act_at_destination(path, Some(destination), Some(source));
        Ok(())
    }

    /// Everything below a directory of the destination, if all of it may be removed.
    fn removable(&mut self, path: &RelativePath) -> io::Result<Option<Vec<(RelativePath, Found)>>> {
        let destination = self.sides.destination;
        if destination.skipped.keys().any(|skipped| skipped.is_within(path)) {
            return Ok(None);
        }
        let free = self.comparison.mode == Mode::Mirror && self.sides.base.is_none();
        let all = destination.tree.range(path.clone()..);
        let below: Vec<_> = all
            .filter(|(below, _)| *below != path && below.is_within(path))
            .map(|(below, found)| (below.clone(), found.clone()))
            .collect();
        for (path, found) in &below {
            let known = self.known(path).is_some_and(|base| same(base, &found.node));
            let directory = is_directory(&found.node);
            if (!free && !known && !directory) || (self.is_protected)(path, directory)? {
                return Ok(None);
            }
        }
        Ok(Some(below))
    }

    fn source_only(&mut self, path: &RelativePath, source: &Found) -> io::Result<()> {
        if is_directory(&source.node) && !self.needed.0.contains(path) {
            return Ok(());
        }
        if let Some(reason) = self.sides.destination.skip_reason(path) {
            // It exists there, and cannot be compared.
            let denied = reason == SkipReason::AccessDenied;
            self.skip(path, if denied { reason } else { SkipReason::Protected });
            return Ok(());
        }
        if self.comparison.mode == Mode::TwoWay
            && let Some(base) = self.known(path)
            && same(base, &source.node)
            && !is_directory(&source.node)
        {
            self.base.remove(path);
            self.act_at_source(path, Some(source), None);
            return Ok(());
        }
        self.act_at_destination(path, None, Some(source));
        Ok(())
    }

    fn destination_only(&mut self, path: &RelativePath, destination: &Found) -> io::Result<()> {
        let directory = is_directory(&destination.node);
        if self.sides.source.is_skipped(path) {
            return Ok(());
        }
        match self.comparison.mode {
            Mode::Copy => Ok(()),
            Mode::TwoWay => {
                let base = self.known(path);
                if directory {
                    if self.needed.1.contains(path) {
                        self.act_at_source(path, None, Some(destination));
                    }
                    return Ok(());
                }
                if base.is_some_and(|base| same(base, &destination.node)) {
                    self.delete_at_destination(path, destination);
                    return Ok(());
                }
                self.act_at_source(path, None, Some(destination));
                Ok(())
            }
            Mode::Mirror => {
                if self.needed.0.contains(path) {
                    return Ok(());
                }
                if (self.is_protected)(path, directory)? {
                    if !directory {
                        self.skip(path, SkipReason::Protected);
                    }
                    return Ok(());
                }
                let changed = self.known(path).is_some_and(|base| !same(base, &destination.node));
                if changed && !directory {
                    return self.differ(path, None, Some(destination));
                }
                self.delete_at_destination(path, destination);
                Ok(())
            }
        }
    }

    /// Both sides have changed a path, or it is not known which.
    fn differ(
        &mut self,
        path: &RelativePath,
        source: Option<&Found>,
        destination: Option<&Found>,
    ) -> io::Result<()> {
        let node = |found: Option<&Found>| found.map(|found| found.node.clone());
        // A directory with something in it is never the loser: that would be many conflicts.
        let plain = [source, destination]
            .iter()
            .all(|side| side.is_none_or(|found| !is_directory(&found.node)));
        match self.comparison.policy {
            Policy::Source if plain => {
                self.settled(path, node(source), node(destination));
                match source {
                    Some(source) => self.act_at_destination(path, destination, Some(source)),
                    None => {
                        if let Some(destination) = destination {
                            self.delete_at_destination(path, destination);
                        }
                    }
                }
            }
            Policy::Destination if plain => {
                self.settled(path, node(source), node(destination));
                if self.comparison.mode == Mode::TwoWay {
                    if let Some(destination) = destination {
                        return self.update_source(path, source, destination);
                    }
                } else {
                    // From here on only the destination has changed.
                    match source {
                        Some(source) => drop(self.base.insert(path.clone(), source.node.clone())),
                        None => drop(self.base.remove(path)),
                    }
                    self.skip(path, SkipReason::Conflict);
                }
            }
            _ => {
                self.conflict(path, node(source), node(destination));
                self.blocked = Some(path.clone());
            }
        }
        Ok(())
    }

    fn update_source(
        &mut self,
        path: &RelativePath,
        source: Option<&Found>,
        destination: &Found,
    ) -> io::Result<()> {
        if source.is_some_and(|source| is_directory(&source.node))
            || is_directory(&destination.node)
        {
            self.conflict(
                path,
                source.map(|found| found.node.clone()),
                Some(destination.node.clone()),
            );
            self.blocked = Some(path.clone());
            return Ok(());
        }
        self.act_at_source(path, source, Some(destination));
        Ok(())
    }

    fn settled(&mut self, path: &RelativePath, source: Option<Node>, destination: Option<Node>) {
        let base = self.known(path).cloned();
        let path = path.clone();
        self.plan.conflicts.push(Conflict { path, base, source, destination, settled: true });
    }

    fn conflict(&mut self, path: &RelativePath, source: Option<Node>, destination: Option<Node>) {
        let base = self.known(path).cloned();
        let entry = path.clone();
        let conflict = Conflict { path: entry, base, source, destination, settled: false };
        self.plan.conflicts.push(conflict);
        self.skip(path, SkipReason::Conflict);
    }

    fn skip(&mut self, path: &RelativePath, reason: SkipReason) {
        self.plan.skipped.push((path.clone(), reason));
    }

    fn delete_at_destination(&mut self, path: &RelativePath, old: &Found) {
        self.base.remove(path);
        self.act_at_destination(path, Some(old), None);
    }

    fn act_at_destination(
        &mut self,
        path: &RelativePath,
        old: Option<&Found>,
        new: Option<&Found>,
    ) {
        if let Some(new) = new {
            self.base.insert(path.clone(), new.node.clone());
        }
        let (path, old, new) = (path.clone(), old.cloned(), new.cloned());
        self.plan.at_destination.push(Action { path, old, new });
    }

    fn act_at_source(&mut self, path: &RelativePath, old: Option<&Found>, new: Option<&Found>) {
        if new.is_some_and(|new| leaves(path, &new.node)) {
            self.skip(path, SkipReason::UnsafeLink);
            return;
        }
        if let Some(new) = new {
            self.base.insert(path.clone(), new.node.clone());
        }
        let (path, old, new) = (path.clone(), old.cloned(), new.cloned());
        self.plan.at_source.push(Action { path, old, new });
    }
}
