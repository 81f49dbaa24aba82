//! `stockade tool`: lists the tools, or runs one.

use serde_json::{Map, Value};
use stockade_api::{Empty, RunTool};
use stockade_core::{Code, Problem};

use super::find;
use crate::args::sandbox::{Tool, ToolCommand};
use crate::commands::print::{print, print_text};
use crate::problem::Failure;
use crate::remote;
use crate::table::Table;

/// Lists tools, or runs one. The exit code is 1 when the tool reports a failure.
pub(crate) fn run(arguments: Tool) -> Result<u8, Failure> {
    match arguments.what {
        ToolCommand::Ls { json, server_mode: way } => {
            let tools = remote::with(way, async |remote| {
                Ok(remote.sandboxes.tools(remote.caller(), Empty {}).await?)
            })?;
            if json {
                print(&serde_json::json!({ "tools": tools }))?;
            } else {
                let mut table = Table::new(["NAME", "DESCRIPTION"]);
                for tool in tools {
                    table.row([tool.name, tool.description]);
                }
                print_text(&table.text())?;
            }
            Ok(0)
        }
        ToolCommand::Run { id, tool, arguments, timeout, server_mode: way } => {
            let arguments: Map<String, Value> =
                serde_json::from_str(&arguments).map_err(|error| {
                    Problem::new(
                        Code::InvalidInput,
                        "the arguments of a tool must be a JSON object",
                    )
                    .because(error.to_string())
                    .remedied_by(r#"stockade tool run latest shell '{"command": "ls"}'"#)
                })?;
            let answer = remote::with(way, async |remote| {
                let sandbox_id = find(&remote, &id).await?;
                let timeout_seconds = timeout.map(|length| length.as_secs_f64());
                let request = RunTool { sandbox_id, tool, arguments, timeout_seconds };
                Ok(remote.sandboxes.run_tool(&remote.idempotent(), request).await?)
            })?;
            print(&answer)?;
            Ok(u8::from(answer.status != "ok"))
        }
    }
}
