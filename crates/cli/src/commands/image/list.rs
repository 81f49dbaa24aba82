//! `stockade image ls`.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use stockade_api::Empty;
use stockade_core::{Code, Problem};
use stockade_image::{Digest, InUse, Record, Reference};

use super::used::in_use;
use super::{open, short};
use crate::args::image::ImageList;
use crate::args::sandbox::ServerMode;
use crate::commands::print::{notify, print, print_text};
use crate::problem::Failure;
use crate::registry;
use crate::remote;
use crate::remote::chosen::{ChosenServer, chosen};
use crate::table::{Table, size};

/// Prints the list.
pub(super) fn run(arguments: &ImageList) -> Result<u8, Failure> {
    let (mut records, used) = match chosen() {
        Some(server) => (of_server(arguments, server)?, InUse::default()),
        None => {
            let (data, store) = open()?;
            let records = store.list().map_err(|error| registry::store_problem(&error))?;
            let used = if arguments.all { in_use(&data, &store)? } else { Default::default() };
            (records, used)
        }
    };
    if let Some(name) = &arguments.name {
        let wanted = registry::reference(name)?;
        records.retain(|record| {
            record.answers(&wanted)
                || (wanted.is_unpinned() && record.reference.is_same_repository(&wanted))
        });
    }
    // The newest first.
    records.sort_by(|one, other| other.added.cmp(&one.added));
    let named: BTreeSet<_> = records.iter().map(|record| record.digest.clone()).collect();
    let unnamed = used.iter().filter(|(digest, _)| !named.contains(*digest));
    let unnamed: Vec<_> = unnamed.filter(|_| arguments.name.is_none()).collect();
    if arguments.json {
        let mut list: Vec<Value> = records.iter().map(to_json).collect();
        let without_name = |(digest, by): &(&Digest, &String)| json!({ "reference": null, "digest": digest, "usedBy": by });
        list.extend(unnamed.iter().map(without_name));
        print(&json!({ "images": list }))?;
        return Ok(0);
    }
    let shown = |digest: &Digest| match arguments.no_trunc {
        true => digest.to_string(),
        false => short(digest).to_owned(),
    };
    if arguments.quiet {
        let mut seen = BTreeSet::new();
        let ids = records.iter().map(|record| &record.configuration);
        let ids = ids.filter(|id| seen.insert(*id)).map(|id| format!("{}\n", shown(id)));
        print_text(&ids.collect::<String>())?;
        return Ok(0);
    }
    if records.is_empty() && unnamed.is_empty() {
        notify("no images; download one: stockade image pull NAME");
        return Ok(0);
    }
    let mut table =
        Table::new(["REPOSITORY", "TAG", "DIGEST", "ID", "PLATFORM", "CREATED", "SIZE"]);
    for record in &records {
        let digest = record.index.as_ref().unwrap_or(&record.digest);
        table.row([
            repository(&record.reference),
            record.reference.tag().unwrap_or("<none>").to_owned(),
            if arguments.digests { digest.to_string() } else { String::new() },
            shown(&record.configuration),
            record.platform.to_string(),
            record.created.as_deref().map(day).unwrap_or_default(),
            size(record.size_bytes),
        ]);
    }
    for (digest, by) in unnamed {
        let none = || "<none>".to_owned();
        let used = format!("used by {by}");
        let digest = if arguments.digests { digest.to_string() } else { String::new() };
        table.row([none(), none(), digest, String::new(), String::new(), used, String::new()]);
    }
    print_text(&table.text())?;
    Ok(0)
}

/// The records of a server on another machine.
fn of_server(arguments: &ImageList, server: &ChosenServer) -> Result<Vec<Record>, Failure> {
    if arguments.all {
        let message = format!("`--all` is not available from {}", server.url);
        return Err(Problem::new(Code::Unsupported, message)
            .because("which images are in use is known only on the machine of the store")
            .remedied_by("on the server's machine: stockade image ls --all")
            .into());
    }
    let list = remote::with(ServerMode { in_process: false }, async |remote| {
        Ok(remote.sandboxes.images(remote.caller(), Empty {}).await?)
    })?;
    let records = list.images.iter().map(Record::from_stored);
    records.collect::<Option<_>>().ok_or_else(|| {
        Problem::new(Code::Io, "the list of images from the server is invalid").into()
    })
}

/// The name without tag and digest.
fn repository(reference: &Reference) -> String {
    let name = reference.familiar();
    let name = name.split_once('@').map_or(name.as_str(), |(name, _)| name);
    let suffix = reference.tag().map(|tag| format!(":{tag}")).unwrap_or_default();
    name.strip_suffix(suffix.as_str()).unwrap_or(name).to_owned()
}

/// The day of a time in RFC 3339, which the image names.
fn day(time: &str) -> String {
    time.chars().take(10).collect()
}

/// A record for JSON.
pub(super) fn to_json(record: &Record) -> Value {
    json!({
        "reference": record.reference,
        "platform": record.platform.to_string(),
        "id": record.configuration,
        "digest": record.digest,
        "repositoryDigest": record.index.as_ref().unwrap_or(&record.digest),
        "sizeBytes": record.size_bytes,
        "createdAt": record.created,
        "addedAt": record.added,
    })
}
