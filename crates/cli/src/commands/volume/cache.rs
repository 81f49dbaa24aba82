//! `stockade cache`: the volumes in which tools keep what they have downloaded or built.

use std::path::Path;

use serde_json::{Value, json};
use stockade_api::Volume;
use stockade_core::cache::PROJECT_LABEL;
use stockade_core::sandbox::CacheMount;
use stockade_core::{Code, Problem, VolumeName};
use stockade_review::CurrentProject;
use stockade_volume::of_cache;

use super::store::{Detail, VolumeStore, owner};
use super::{print_names, prune_chosen, remove};
use crate::args::volume::{Cache, CacheCommand, ListCaches, PruneCaches, RemoveVolumes};
use crate::commands::print::{notify, print, print_text};
use crate::problem::Failure;
use crate::review::current_project;
use crate::table::{Table, size};

/// Runs a command on caches.
pub(crate) fn run(arguments: &Cache) -> Result<u8, Failure> {
    match &arguments.what {
        CacheCommand::Ls(list) => self::list(list),
        CacheCommand::Rm(rm) => self::rm(rm),
        CacheCommand::Prune(prune) => self::prune(prune),
    }
}

/// Whether a volume is a cache of a project; all caches if there is none.
fn is_of(volume: &Volume, project: &CurrentProject) -> bool {
    let of = volume.labels.get(PROJECT_LABEL).map(Path::new);
    volume.cache().is_some() && of == project.root()
}

fn list(arguments: &ListCaches) -> Result<u8, Failure> {
    let project = current_project()?;
    let detail = if arguments.quiet { Detail::Names } else { Detail::Shown };
    let mut found = VolumeStore::open()?.list(detail)?;
    found.retain(|volume| match arguments.all {
        true => volume.cache().is_some(),
        false => is_of(volume, &project),
    });
    if arguments.quiet {
        print_names(found.iter().map(|volume| volume.name.as_str()))?;
        return Ok(0);
    }
    if arguments.json {
        let cache = |volume: &Volume| {
            let mut value = json!(volume);
            value["cache"] = json!(volume.cache());
            value["project"] = volume.labels.get(PROJECT_LABEL).map_or(Value::Null, |it| json!(it));
            value
        };
        print(&json!({ "caches": found.iter().map(cache).collect::<Vec<_>>() }))?;
        return Ok(0);
    }
    if found.is_empty() {
        notify("no caches of this project; use one: stockade run --cache npm -- npm ci");
        return Ok(0);
    }
    let mut table = Table::new(["CACHE", "VOLUME", "SIZE", "USED BY", "PROJECT"]);
    for volume in &found {
        table.row([
            volume.cache().unwrap_or_default().to_owned(),
            volume.name.to_string(),
            size(volume.size_bytes),
            volume.used_by.join(", "),
            volume.labels.get(PROJECT_LABEL).cloned().unwrap_or_default(),
        ]);
    }
    print_text(&table.text())?;
    Ok(0)
}

/// Removes caches, which are named by their volumes or, for the current project, by their own names.
fn rm(arguments: &RemoveVolumes) -> Result<u8, Failure> {
    let all = VolumeStore::open()?.list(Detail::Names)?;
    let find = |name: &VolumeName| all.iter().find(|volume| volume.name == *name);
    let project = current_project()?;
    let own = |text: &str| {
        let mount = CacheMount {
            owner: owner(),
            name: VolumeName::new(text).ok()?,
            project: project.root().map(Path::to_owned),
            inside: None,
        };
        let (name, _) = of_cache(&mount).ok()?;
        find(&name).map(|volume| volume.name.clone())
    };
    let by_volume = |text: &str| {
        let name = VolumeName::new(text).ok()?;
        find(&name).filter(|volume| volume.cache().is_some()).map(|it| it.name.clone())
    };
    // A volume that is no cache is not removed by its name.
    remove(arguments, |text| {
        by_volume(text).or_else(|| own(text)).ok_or_else(|| {
            Problem::new(Code::NotFound, format!("there is no cache {}", text.escape_debug()))
                .remedied_by("stockade cache ls --all")
        })
    })
}

fn prune(arguments: &PruneCaches) -> Result<u8, Failure> {
    let project = current_project()?;
    let is_chosen = |volume: &Volume| match arguments.all {
        true => volume.cache().is_some(),
        false => is_of(volume, &project),
    };
    let what = match arguments.all {
        true => "all caches that no sandbox uses",
        false => "the caches of this project that no sandbox uses",
    };
    let command = if arguments.all { "cache prune --all" } else { "cache prune" };
    prune_chosen(is_chosen, what, command, arguments.force, arguments.json)
}
