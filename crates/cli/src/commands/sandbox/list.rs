//! `stockade ls`: sandboxes, the newest first.

use stockade_api::{ListSandboxes, Sandbox};

use super::create::START_SCRIPT;
use super::{STATES, show};
use crate::args::sandbox::List;
use crate::args::sandbox_flags::Pair;
use crate::commands::print::{notify, print, print_text};
use crate::problem::{Failure, short_id};
use crate::remote;
use crate::table::Table;

/// Prints the list.
pub(crate) fn run(arguments: List) -> Result<u8, Failure> {
    let request = ListSandboxes {
        states: if arguments.all { STATES.to_vec() } else { arguments.state },
        metadata: arguments.label.into_iter().map(|Pair(name, value)| (name, value)).collect(),
        ..ListSandboxes::default()
    };
    let list = remote::with(arguments.server_mode, async |remote| {
        Ok(remote.sandboxes.list(remote.caller(), request).await?)
    })?;
    if arguments.json {
        print(&list)?;
    } else if arguments.quiet {
        let ids = list.sandboxes.iter().map(|sandbox| format!("{}\n", sandbox.id));
        print_text(&ids.collect::<String>())?;
    } else if list.sandboxes.is_empty() {
        notify("no sandboxes; create one: stockade create");
    } else {
        print_text(&table(&list.sandboxes))?;
    }
    if list.more && !arguments.json {
        notify("older sandboxes are not listed; narrow the list with `--label`");
    }
    Ok(0)
}

fn table(sandboxes: &[Sandbox]) -> String {
    let mut table = Table::new([
        "ID",
        "STATE",
        "IMAGE",
        "CREATED",
        "EXPIRES",
        "REMOVED",
        "BUNDLE",
        "LABELS",
        "WORKSPACE",
    ]);
    for sandbox in sandboxes {
        let labels = sandbox.metadata.iter().filter(|(name, _)| *name != START_SCRIPT);
        let labels = labels.map(|(name, value)| format!("{name}={value}"));
        let workspace = sandbox.workspace.as_ref();
        table.row([
            sandbox.id.to_string(),
            sandbox.state.to_string(),
            sandbox.image.clone(),
            format!("{:.0}", sandbox.created_at),
            sandbox.expires_at.map_or_else(|| "never".to_owned(), |at| format!("{at:.0}")),
            show::removal(sandbox).unwrap_or_default(),
            sandbox.bundle.as_deref().map_or_else(String::new, |id| short_id(id).to_owned()),
            labels.collect::<Vec<_>>().join(","),
            workspace.map(|it| it.host.display().to_string()).unwrap_or_default(),
        ]);
    }
    table.text()
}
