//! `stockade ls`: sandboxes, the newest first.

use stockade_api::{ListSandboxes, Sandbox};

use super::{STATES, show};
use crate::args::sandbox::List;
use crate::args::sandbox_flags::Pair;
use crate::commands::print::{escaped, notify, print, print_text};
use crate::problem::{Failure, short_id};
use crate::remote;

/// Prints the list.
pub(crate) fn run(arguments: List) -> Result<u8, Failure> {
    let request = ListSandboxes {
        states: if arguments.all { STATES.to_vec() } else { Vec::new() },
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
    let row = |sandbox: &Sandbox| {
        [
            sandbox.id.to_string(),
            sandbox.state.to_string(),
            escaped(&sandbox.image),
            format!("{:.0}", sandbox.created_at),
            sandbox.expires_at.map_or_else(|| "never".to_owned(), |at| format!("{at:.0}")),
            show::removal(sandbox).unwrap_or_default(),
            sandbox.bundle.as_deref().map_or_else(String::new, |id| short_id(id).to_owned()),
        ]
    };
    let head = ["ID", "STATE", "IMAGE", "CREATED", "EXPIRES", "REMOVED", "BUNDLE"];
    let head = head.map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(sandboxes.iter().map(row)).collect();
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<_> = (0..7).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}
