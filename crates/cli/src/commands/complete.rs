//! `stockade complete`, which completion scripts call: the ids that fit the word under the cursor.
//! It starts no server and changes nothing, and prints nothing where it cannot know.

use std::time::Duration;

use clap::{Command, CommandFactory as _};
use stockade_api::{Empty, ListCommands, ListRuns, ListSandboxes};
use stockade_core::OwnerId;
use stockade_core::cache::TOOLS;
use stockade_volume::Volumes;

use super::sandbox::STATES;
use crate::args::{Arguments, Complete};
use crate::commands::print::print_text;
use crate::problem::{Failure, short_id};
use crate::remote::chosen::is_named_elsewhere;
use crate::remote::credentials::Credentials;
use crate::remote::{Connection, Remote};

/// How long a user waits for completions.
const TIMEOUT: Duration = Duration::from_secs(2);

/// How many ids of each kind are offered.
const OFFERED: usize = 200;

/// What is named by an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sandboxes,
    /// A sandbox before a path inside it.
    SandboxPaths,
    Commands,
    Bundles,
    Snapshots,
    Runs,
    Volumes,
    Caches,
    /// The tools whose caches `--cache` knows.
    Tools,
    Images,
}

/// Prints the ids, one per line.
pub(crate) fn run(arguments: &Complete) -> Result<u8, Failure> {
    let Some((word, before)) = arguments.words.split_last() else { return Ok(0) };
    let kinds = kinds(before, &definition());
    // Without a server, or with one of another build, nothing is known.
    let needs_server = |kind: &Kind| {
        use Kind::{Bundles, Caches, Images, Tools, Volumes};
        !matches!(kind, Bundles | Images | Volumes | Caches | Tools)
    };
    let connection = match kinds.iter().any(needs_server) {
        // No server of another machine is asked while a line is typed.
        true if !is_named_elsewhere(Credentials::default_url) => Connection::find().ok().flatten(),
        _ => None,
    };
    let mut found = Vec::new();
    for kind in kinds {
        found.extend(match (kind, &connection) {
            (Kind::Bundles, _) => bundles(),
            (Kind::Volumes, _) => volumes(false),
            (Kind::Caches, _) => volumes(true),
            (Kind::Tools, _) => TOOLS.iter().map(|tool| tool.name.to_owned()).collect(),
            (Kind::Images, _) => images(),
            (kind, Some(connection)) => connection.call(async |remote| {
                let ids = tokio::time::timeout(TIMEOUT, ids(remote, *kind)).await;
                ids.unwrap_or_default()
            }),
            (_, None) => Vec::new(),
        });
    }
    found.retain(|id| id.starts_with(word.as_str()));
    found.dedup();
    print_text(&found.iter().map(|id| format!("{id}\n")).collect::<String>())?;
    Ok(0)
}

/// The arguments of all commands; each command defines its own only when it is built.
fn definition() -> Command {
    let mut definition = Arguments::command();
    definition.build();
    definition
}

/// What the word after these words names. The words start with the program.
fn kinds(before: &[String], definition: &Command) -> &'static [Kind] {
    // A command line may contain other commands before this one.
    let start = before.iter().rposition(|word| word.rsplit('/').next() == Some("stockade"));
    let mut words = before.iter().skip(start.map_or(1, |at| at + 1));
    let Some(mut command) = words.next().and_then(|name| definition.find_subcommand(name)) else {
        return &[];
    };
    let mut names = vec![command.get_name()];
    let (mut position, mut value_of) = (0, None);
    for word in words {
        if value_of.take().is_some() {
            continue;
        }
        if word == "--" {
            return &[];
        }
        if word.starts_with('-') && word.len() > 1 {
            value_of = value_name(command, word);
        } else if let Some(below) = command.find_subcommand(word) {
            command = below;
            names.push(below.get_name());
        } else {
            position += 1;
        }
    }
    match value_of {
        Some("remove") if names == ["snapshots"] => &[Kind::Snapshots],
        Some("volume") => &[Kind::Volumes],
        Some("cache") => &[Kind::Tools],
        Some("image") => &[Kind::Images],
        Some(_) => &[],
        None => of_argument(&names, position),
    }
}

/// The name of a flag that takes its value from the next word.
fn value_name<'a>(command: &'a Command, word: &str) -> Option<&'a str> {
    let flag = command.get_arguments().find(|argument| {
        let long = argument.get_long().is_some_and(|long| word == format!("--{long}"));
        long || argument.get_short().is_some_and(|short| word == format!("-{short}"))
    })?;
    flag.get_action().takes_values().then(|| flag.get_id().as_str())
}

/// What an argument at this position names.
fn of_argument(names: &[&str], position: usize) -> &'static [Kind] {
    use Kind::{Bundles, Commands, Images, Runs, SandboxPaths, Sandboxes, Snapshots};
    match (names, position) {
        (["start" | "stop" | "pause" | "update"], _)
        | (["exec" | "shell" | "show" | "ps" | "forward" | "open" | "renew"], 0)
        | (["allow" | "refuse" | "snapshot" | "collect"] | ["tool", "run"], 0) => &[Sandboxes],
        (["kill"], _) => &[Sandboxes, Commands],
        (["wait"], _) | (["attach"], 0) => &[Commands],
        (["logs"], 0) => &[Commands, Runs],
        (["events"], 0) => &[Sandboxes, Runs],
        (["resume"], 0) => &[Runs, Sandboxes],
        (["cp" | "sync"], 0 | 1) | (["rm"], _) => &[SandboxPaths],
        (["diff" | "apply" | "reject"], 0) => &[Bundles],
        (["restore"], 0) => &[Snapshots],
        (["volume", "rm" | "inspect"], _) => &[Kind::Volumes],
        (["cache", "rm"], _) => &[Kind::Caches],
        (["image", "rm" | "inspect"], _) | (["image", "export" | "pull" | "ls"], 0) => &[Images],
        (["inspect" | "cancel" | "approve" | "deny" | "signal"], 0) => &[Runs],
        _ => &[],
    }
}

/// The ids of a kind, the newest first; none if they cannot be listed.
async fn ids(remote: &Remote, kind: Kind) -> Vec<String> {
    let (caller, sandboxes) = (remote.caller(), &remote.sandboxes);
    let limit = u32::try_from(OFFERED).ok();
    match kind {
        Kind::Sandboxes | Kind::SandboxPaths => {
            let suffix = if kind == Kind::SandboxPaths { ":/" } else { "" };
            let states = STATES[..STATES.len() - 1].to_vec();
            let request = ListSandboxes { states, limit, ..ListSandboxes::default() };
            let list = sandboxes.list(caller, request).await.unwrap_or_default();
            list.sandboxes.iter().map(|sandbox| format!("{}{suffix}", sandbox.id)).collect()
        }
        Kind::Commands => {
            let Ok(list) = sandboxes.commands(caller, ListCommands::default()).await else {
                return Vec::new();
            };
            let commands = list.commands.iter().take(OFFERED);
            commands.map(|command| format!("{}/{}", command.sandbox_id, command.id)).collect()
        }
        Kind::Snapshots => {
            let list = sandboxes.snapshots(caller, Empty {}).await.unwrap_or_default();
            list.iter().take(OFFERED).map(|snapshot| snapshot.id.to_string()).collect()
        }
        Kind::Runs => {
            let request = ListRuns { limit: limit.unwrap_or_default() };
            let list = remote.workflows.runs(caller, request).await.unwrap_or_default();
            list.iter().map(|run| run.id.to_string()).collect()
        }
        Kind::Bundles | Kind::Images | Kind::Volumes | Kind::Caches | Kind::Tools => Vec::new(),
    }
}

/// The caller's volumes or caches, which need no server.
fn volumes(caches: bool) -> Vec<String> {
    let data = crate::data_dir::data_path().and_then(|path| crate::data_dir::find_data_dir(&path));
    let Ok(Some(data)) = data else { return Vec::new() };
    if !data.entry(stockade_volume::VOLUMES).exists() {
        return Vec::new();
    }
    let owner = OwnerId::from_uid(rustix::process::geteuid().as_raw());
    let found = Volumes::open(&data, &owner).and_then(|volumes| volumes.list());
    let found = found.unwrap_or_default().into_iter();
    let found = found.filter(|volume| volume.cache().is_some() == caches);
    found.take(OFFERED).map(|volume| volume.name.to_string()).collect()
}

/// The bundles in the data directory, which need no server.
fn bundles() -> Vec<String> {
    let Ok(data) = crate::data_dir::data_path() else { return Vec::new() };
    let Ok(entries) = std::fs::read_dir(data.join("bundles")) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_id = |name: &String| name.bytes().all(|byte| byte.is_ascii_hexdigit());
    names.filter(is_id).take(OFFERED).map(|name| short_id(&name).to_owned()).collect()
}

/// The names in the store of images, which needs no server.
fn images() -> Vec<String> {
    let Ok(data) = crate::data_dir::data_path() else { return Vec::new() };
    // Opening the store would make its directories.
    if !data.join("images/references.json").exists() {
        return Vec::new();
    }
    let Ok(Some(data)) = crate::data_dir::find_data_dir(&data) else { return Vec::new() };
    let list = stockade_image::Store::open(&data).and_then(|store| store.list());
    let names = list.unwrap_or_default().into_iter().map(|record| record.reference.familiar());
    names.take(OFFERED).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(line: &str) -> &'static [Kind] {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        kinds(&words, &definition())
    }

    #[test]
    fn each_argument_names_what_its_command_takes() {
        for (line, kinds) in [
            ("stockade kill", &[Kind::Sandboxes, Kind::Commands][..]),
            ("/usr/bin/stockade kill a", &[Kind::Sandboxes, Kind::Commands]),
            ("stockade exec", &[Kind::Sandboxes]),
            ("stockade exec --env A=b", &[Kind::Sandboxes]),
            ("stockade exec --env", &[]),
            ("stockade exec --tty", &[Kind::Sandboxes]),
            ("stockade exec box", &[]),
            ("stockade exec box --", &[]),
            ("stockade tool run", &[Kind::Sandboxes]),
            ("stockade tool", &[]),
            ("stockade snapshots --remove", &[Kind::Snapshots]),
            ("stockade snapshots", &[]),
            ("stockade apply", &[Kind::Bundles]),
            ("stockade apply 0123", &[]),
            ("stockade volume rm", &[Kind::Volumes]),
            ("stockade volume inspect a", &[Kind::Volumes]),
            ("stockade volume ls", &[]),
            ("stockade cache rm", &[Kind::Caches]),
            ("stockade run -v", &[Kind::Volumes]),
            ("stockade create --cache", &[Kind::Tools]),
            ("stockade cp a", &[Kind::SandboxPaths]),
            ("stockade logs", &[Kind::Commands, Kind::Runs]),
            ("ls | stockade stop a", &[Kind::Sandboxes]),
            ("stockade image rm a", &[Kind::Images]),
            ("stockade image export", &[Kind::Images]),
            ("stockade image", &[]),
            ("stockade run --image", &[Kind::Images]),
            ("stockade", &[]),
            ("stockade nothing", &[]),
        ] {
            assert_eq!(named(line), kinds, "{line}");
        }
    }
}
