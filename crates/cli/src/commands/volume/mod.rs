//! `stockade volume`: the named directories that outlive sandboxes. They are in the data directory and
//! need no server; which persistent sandboxes use one is in the server's records.

pub(super) mod cache;
mod users;

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use stockade_bundle::data::DataDir;
use stockade_core::{Code, OwnerId, Problem, Time, VolumeName};
use stockade_volume::{Volume, Volumes};

use self::users::Users;
use crate::args::sandbox_flags::Pair;
use crate::args::volume::{
    CreateVolume, InspectVolumes, ListVolumes, PruneVolumes, RemoveVolumes, Volume as Arguments,
    VolumeCommand,
};
use crate::commands::df;
use crate::commands::print::{ask, notify, print, print_text};
use crate::data_dir::{data_path, open_data_dir};
use crate::problem::{Failure, caused};
use crate::run::volume_problem;
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

/// The caller's volumes, and the data directory that they are in.
fn open() -> Result<(DataDir, Volumes), Problem> {
    let data = open_data_dir(&data_path()?)?;
    let owner = OwnerId::from_uid(rustix::process::geteuid().as_raw());
    let volumes = Volumes::open(&data, &owner).map_err(|error| volume_problem(&error))?;
    Ok((data, volumes))
}

fn name(text: &str) -> Result<VolumeName, Problem> {
    VolumeName::new(text).map_err(|error| caused(Code::InvalidInput, &error))
}

fn now() -> Time {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    Time::from_ms(i64::try_from(now).unwrap_or(i64::MAX))
}

fn create(arguments: &CreateVolume) -> Result<u8, Failure> {
    let (_, volumes) = open()?;
    let mut labels = BTreeMap::new();
    for Pair(name, value) in &arguments.label {
        if name.starts_with("stockade.") {
            let message = format!("the label {name:?} is reserved");
            return Err(Problem::new(Code::InvalidInput, message)
                .because("labels that start with `stockade.` are Stockade's own")
                .into());
        }
        labels.insert(name.clone(), value.clone());
    }
    let is_anonymous = arguments.name.is_none();
    let name = match &arguments.name {
        Some(text) => self::name(text)?,
        None => self::name(&uuid::Uuid::now_v7().simple().to_string())?,
    };
    // As with Docker, one of that name is not an error.
    volumes.create(&name, &labels, is_anonymous, now()).map_err(|error| volume_problem(&error))?;
    if arguments.json {
        print(&json!({ "name": name }))?;
    } else {
        print_text(&format!("{name}\n"))?;
    }
    Ok(0)
}

fn list(arguments: &ListVolumes) -> Result<u8, Failure> {
    let (data, volumes) = open()?;
    let has_labels = |volume: &Volume| {
        arguments.label.iter().all(|Pair(name, value)| volume.labels.get(name) == Some(value))
    };
    let mut found = volumes.list().map_err(|error| volume_problem(&error))?;
    found.retain(|volume| (arguments.all || volume.cache().is_none()) && has_labels(volume));
    if arguments.quiet {
        print_names(found.iter().map(|volume| volume.name.as_str()))?;
        return Ok(0);
    }
    if arguments.json {
        let users = Users::known(&data);
        let all: Vec<_> = found.iter().map(|volume| to_json(volume, &users)).collect();
        print(&json!({ "volumes": all }))?;
        return Ok(0);
    }
    if found.is_empty() {
        notify("no volumes; create one: stockade volume create NAME");
        return Ok(0);
    }
    let users = Users::known(&data);
    let mut table = Table::new(["NAME", "SIZE", "CREATED", "USED BY", "LABELS"]);
    for volume in &found {
        let labels = volume.labels.iter();
        let labels: Vec<_> = labels.map(|(name, value)| format!("{name}={value}")).collect();
        table.row([
            volume.name.to_string(),
            size(df::used(&volume.path)),
            format!("{:.0}", volume.created_at),
            users.of(volume).join(", "),
            labels.join(","),
        ]);
    }
    print_text(&table.text())?;
    Ok(0)
}

fn print_names<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), Failure> {
    print_text(&names.map(|name| format!("{name}\n")).collect::<String>())
}

/// All about a volume.
fn to_json(volume: &Volume, users: &Users) -> Value {
    json!({
        "name": volume.name,
        "labels": volume.labels,
        "createdAt": volume.created_at,
        "anonymous": volume.is_anonymous,
        "mountpoint": volume.path.to_string_lossy(),
        "sizeBytes": df::used(&volume.path),
        "usedBy": users.of(volume),
    })
}

fn inspect(arguments: &InspectVolumes) -> Result<u8, Failure> {
    let (data, volumes) = open()?;
    let users = Users::known(&data);
    let (mut found, mut failed) = (Vec::new(), Vec::new());
    for text in &arguments.name {
        let one = name(text).and_then(|name| {
            let volume = volumes.get(&name).map_err(|error| volume_problem(&error))?;
            volume.ok_or_else(|| volume_problem(&stockade_volume::Error::NotFound(name)))
        });
        match one {
            Ok(volume) => found.push(to_json(&volume, &users)),
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
/// Removes the volumes that the arguments mean.
fn remove(
    arguments: &RemoveVolumes,
    volume: impl Fn(&str) -> Result<VolumeName, Problem>,
) -> Result<u8, Failure> {
    let (data, volumes) = open()?;
    let users = Users::all(&data)?;
    let (mut removed, mut failed) = (Vec::new(), Vec::new());
    for text in &arguments.name {
        let done = volume(text)
            .and_then(|name| remove_one(&volumes, &name, &users).map(|()| name.to_string()));
        match done {
            Ok(name) => removed.push(name),
            Err(problem) if arguments.force && problem.code == Code::NotFound => {}
            Err(problem) => failed.push((text.clone(), problem.into())),
        }
    }
    report_removed(&removed, failed, arguments.json)
}

fn report_removed(
    removed: &[String],
    failed: Vec<(String, Failure)>,
    json: bool,
) -> Result<u8, Failure> {
    if json {
        return Failure::report(failed, Some(json!({ "removed": removed })));
    }
    print_names(removed.iter().map(String::as_str))?;
    Failure::report(failed, None)
}

fn remove_one(volumes: &Volumes, name: &VolumeName, users: &Users) -> Result<(), Problem> {
    let found = volumes.get(name);
    if let Ok(Some(volume)) = &found {
        let of_volume = users.of(volume);
        if !of_volume.is_empty() {
            return Err(in_use(name, &of_volume));
        }
    }
    volumes.remove(name).map_err(|error| match &error {
        stockade_volume::Error::InUse { processes, .. } => {
            in_use(name, &users::processes(processes))
        }
        _ => volume_problem(&error),
    })
}

fn in_use(name: &VolumeName, users: &[String]) -> Problem {
    let problem = Problem::new(Code::Busy, format!("the volume {name} is in use"));
    let sandboxes: Vec<_> =
        users.iter().filter_map(|user| user.strip_prefix(users::SANDBOX)).collect();
    let problem = match users {
        [] => problem,
        _ => problem.because(format!("it is used by {}", users.join(", "))),
    };
    match sandboxes.as_slice() {
        [] => {
            problem.remedied_by(format!("wait until the run has ended: stockade volume rm {name}"))
        }
        _ => problem.remedied_by(format!("stockade kill {}", sandboxes.join(" "))),
    }
}

fn prune(arguments: &PruneVolumes) -> Result<u8, Failure> {
    let is_chosen =
        |volume: &Volume| volume.cache().is_none() && (arguments.all || volume.is_anonymous);
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
    let (data, volumes) = open()?;
    let users = Users::all(&data)?;
    let found = volumes.list().map_err(|error| volume_problem(&error))?;
    let unused =
        found.into_iter().filter(|volume| is_chosen(volume) && users.of(volume).is_empty());
    let unused: Vec<_> = unused.collect();
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
    let mut bytes = 0;
    for volume in unused {
        let used = df::used(&volume.path);
        match remove_one(&volumes, &volume.name, &users) {
            Ok(()) => {
                bytes += used;
                removed.push(volume.name.to_string());
            }
            // Another process has just begun to use it, or has removed it.
            Err(problem) if matches!(problem.code, Code::Busy | Code::NotFound) => {}
            Err(problem) => failed.push((volume.name.to_string(), problem.into())),
        }
    }
    if json {
        return Failure::report(failed, Some(json!({ "removed": removed, "freedBytes": bytes })));
    }
    print_names(removed.iter().map(String::as_str))?;
    notify(&format!("{} freed", size(bytes)));
    Failure::report(failed, None)
}
