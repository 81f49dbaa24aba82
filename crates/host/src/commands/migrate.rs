//! `stockade migrate`: the records of the data directory get to another database.

use std::path::Path;

use serde_json::{Value, json};
use stockade_cli::args::backup::Migrate;
use stockade_cli::commands::print::{print, print_text};
use stockade_cli::data_dir::data_path;
use stockade_cli::eprint_line;
use stockade_cli::problem::Failure;
use stockade_cli::remote::block_on;
use stockade_core::{Code, Problem};
use stockade_durable::transfer::TableContent;

use crate::database::{self, Moved};
use crate::offline::{Offline, database_url};

/// Moves the records.
pub(crate) fn run(arguments: &Migrate) -> Result<u8, Failure> {
    let path = data_path()?;
    let moved = block_on(async { Ok(move_records(&path, &arguments.to).await?) })?;
    let Moved { tables, to, kept } = moved;
    if arguments.json {
        print(&json!({ "to": to, "kept": kept, "tables": tables_json(&tables) }))?;
    } else {
        let rows: u64 = tables.iter().map(|table| table.rows).sum();
        print_text(&format!(
            "{to}: {rows} rows in {} tables, the same as before by number and hash\n",
            tables.len()
        ))?;
        eprint_line!("stockade: the old records are kept, and no longer used: {kept}");
    }
    Ok(0)
}

async fn move_records(data: &Path, to: &str) -> Result<Moved, Problem> {
    if to == "sqlite" {
        let url = database_url()?;
        let offline = Offline::open(data).await?;
        return database::to_file(&offline.data, url.as_deref()).await;
    }
    let url = server_url(to)?;
    let offline = Offline::open(data).await?;
    database::to_server(&offline.data, &url).await
}

/// The URL of the server that the command line names.
fn server_url(to: &str) -> Result<String, Problem> {
    if to != "postgres" {
        database::refuse_password(to, "--to")?;
        return Ok(to.to_owned());
    }
    database_url()?.ok_or_else(|| {
        Problem::new(Code::InvalidInput, "STOCKADE_DATABASE_URL is not set")
            .remedied_by("export STOCKADE_DATABASE_URL=postgres://USER@HOST:PORT/DATABASE")
    })
}

/// The tables as JSON.
fn tables_json(tables: &[TableContent]) -> Vec<Value> {
    let table = |table: &TableContent| json!({ "table": table.table, "rows": table.rows, "sha256": table.sha256 });
    tables.iter().map(table).collect()
}
