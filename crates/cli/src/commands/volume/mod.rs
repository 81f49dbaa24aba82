//! `stockade volume`: the named directories that outlive sandboxes. Those of this machine need no server;
//! which persistent sandboxes use one is in the server's records.

pub(super) mod cache;
mod store;
mod users;

use serde_json::json;
use stockade_api::Volume;
use stockade_core::{Code, Problem, VolumeName};
use stockade_volume::Error;

use self::store::{Detail, VolumeStore};
use crate::args::sandbox_flags::Pair;
use crate::args::volume::{
    CreateVolume, InspectVolumes, ListVolumes, PruneVolumes, RemoveVolumes, Volume as Arguments,
    VolumeCommand,
};
use crate::commands::print::{ask, notify, print, print_text};
use crate::problem::{Failure, caused};
use crate::table::{Table, size};
use crate::terminal;

/// Runs a command on volumes.
pub(crate) fn run(arguments: &Arguments) -> Result<u8, Failure> {
    match &arguments.what {
        VolumeCommand::Create(create) => self::create(create),
        VolumeCommand::Ls(list) => self::list(list),
        VolumeCommand::Rm(rm) => remove(rm, name),
        VolumeCommand::Inspect(inspect) => self::inspect(inspect),
        VolumeCommand::Prune(prune) => self::prune(prune),
    }
}

fn name(text: &str) -> Result<VolumeName, Problem> {
    VolumeName::new(text).map_err(|error| caused(Code::InvalidInput, &error))
}

fn create(arguments: &CreateVolume) -> Result<u8, Failure> {
    let name = arguments.name.as_deref().map(self::name).transpose()?;
    let labels = arguments.label.iter().map(|Pair(name, value)| (name.clone(), value.clone()));
    let name = VolumeStore::open()?.create(name, labels.collect())?;
    if arguments.json {
        print(&json!({ "name": name }))?;
    } else {
        print_text(&format!("{name}\n"))?;
    }
    Ok(0)
}

fn list(arguments: &ListVolumes) -> Result<u8, Failure> {
    let has_labels = |volume: &Volume| {
        arguments.label.iter().all(|Pair(name, value)| volume.labels.get(name) == Some(value))
    };
    let detail = if arguments.quiet { Detail::Names } else { Detail::Shown };
    let mut found = VolumeStore::open()?.list(detail)?;
    found.retain(|volume| (arguments.all || volume.cache().is_none()) && has_labels(volume));
    if arguments.quiet {
        print_names(found.iter().map(|volume| volume.name.as_str()))?;
        return Ok(0);
    }
    if arguments.json {
        print(&json!({ "volumes": found }))?;
        return Ok(0);
    }
    if found.is_empty() {
        notify("no volumes; create one: stockade volume create NAME");
        return Ok(0);
    }
    let mut table = Table::new(["NAME", "SIZE", "CREATED", "USED BY", "LABELS"]);
    for volume in &found {
        let labels = volume.labels.iter();
        let labels: Vec<_> = labels.map(|(name, value)| format!("{name}={value}")).collect();
        table.row([
            volume.name.to_string(),
            size(volume.size_bytes),
            format!("{:.0}", volume.created_at),
            volume.used_by.join(", "),
            labels.join(","),
        ]);
    }
    print_text(&table.text())?;
    Ok(0)
}

fn print_names<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), Failure> {
    print_text(&names.map(|name| format!("{name}\n")).collect::<String>())
}

fn inspect(arguments: &InspectVolumes) -> Result<u8, Failure> {
    let all = VolumeStore::open()?.list(Detail::Shown)?;
    let (mut found, mut failed) = (Vec::new(), Vec::new());
    for text in &arguments.name {
        let one = name(text).and_then(|name| {
            let volume = all.iter().find(|volume| volume.name == name);
            volume.ok_or_else(|| stockade_volume::problem::problem(&Error::NotFound(name)))
        });
        match one {
            Ok(volume) => found.push(volume),
            Err(problem) => failed.push((text.clone(), problem.into())),
        }
    }
    // As with Docker, what was found is printed in any case; but JSON is one document.
    if failed.is_empty() || !arguments.json {
        print(&found)?;
    }
    Failure::report(failed, None)
}

/// Removes volumes, and reports each that is missing or in use.
/// `volume` finds the volume that an argument means.
fn remove(
    arguments: &RemoveVolumes,
    volume: impl Fn(&str) -> Result<VolumeName, Problem>,
) -> Result<u8, Failure> {
    let (mut wanted, mut failed) = (Vec::new(), Vec::new());
    for text in &arguments.name {
        match volume(text) {
            Ok(name) => wanted.push(name),
            Err(problem) if arguments.force && problem.code == Code::NotFound => {}
            Err(problem) => failed.push((text.clone(), problem.into())),
        }
    }
    let mut removed = Vec::new();
    for (name, done) in VolumeStore::open()?.remove(&wanted)? {
        match done {
            Ok(_) => removed.push(name.to_string()),
            Err(problem) if arguments.force && problem.code == Code::NotFound => {}
            Err(problem) => failed.push((name.to_string(), problem.into())),
        }
    }
    if arguments.json {
        return Failure::report(failed, Some(json!({ "removed": removed })));
    }
    print_names(removed.iter().map(String::as_str))?;
    Failure::report(failed, None)
}

fn prune(arguments: &PruneVolumes) -> Result<u8, Failure> {
    let is_chosen =
        |volume: &Volume| volume.cache().is_none() && (arguments.all || volume.anonymous);
    let what = match arguments.all {
        true => "all volumes that no sandbox uses",
        false => "the volumes with generated names that no sandbox uses",
    };
    prune_chosen(is_chosen, what, "volume prune", arguments.force, arguments.json)
}

/// Removes each chosen volume that is not in use.
fn prune_chosen(
    is_chosen: impl Fn(&Volume) -> bool,
    what: &str,
    command: &str,
    is_forced: bool,
    json: bool,
) -> Result<u8, Failure> {
    let store = VolumeStore::open()?;
    let found = store.list(Detail::Users)?.into_iter();
    let unused = found.filter(|volume| is_chosen(volume) && volume.used_by.is_empty());
    let unused: Vec<_> = unused.map(|volume| volume.name).collect();
    if !is_forced && !unused.is_empty() {
        if !terminal::is_on_input() {
            return Err(Problem::new(Code::InvalidInput, "removing volumes must be confirmed")
                .because(format!("{} would be removed", unused.len()))
                .remedied_by(format!("stockade {command} --force"))
                .into());
        }
        ask(&format!("remove {what} ({})?", unused.len()))?;
    }
    let (mut removed, mut failed) = (Vec::new(), Vec::new());
    let mut bytes = 0_u64;
    for (name, done) in store.remove(&unused)? {
        match done {
            Ok(used) => {
                bytes = bytes.saturating_add(used);
                removed.push(name.to_string());
            }
            // Another process has just begun to use it, or has removed it.
            Err(problem) if matches!(problem.code, Code::Busy | Code::NotFound) => {}
            Err(problem) => failed.push((name.to_string(), problem.into())),
        }
    }
    if json {
        return Failure::report(failed, Some(json!({ "removed": removed, "freedBytes": bytes })));
    }
    print_names(removed.iter().map(String::as_str))?;
    notify(&format!("{} freed", size(bytes)));
    Failure::report(failed, None)
}
