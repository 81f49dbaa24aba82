//! The processes that the server's program runs depending on its first argument: the server itself,
//! and those that run one of its engines with their own walls.

use std::ffi::OsString;

use stockade_cli::processes::{CONNECTOR, DOWNLOAD, EGRESS, SERVER};
use stockade_snippet::worker;
use stockade_workflow::{authoring, engine};

use crate::programs::{COMMAND, REALM};
use crate::{connector, download, egress, server};

/// Runs the process that the arguments name; `None` if they name none of these.
pub(crate) fn run(arguments: &[OsString]) -> Option<u8> {
    let (first, rest) = arguments.split_first()?;
    if first == SERVER {
        return Some(server::process(rest));
    }
    if first == worker::ARGUMENT {
        return Some(worker::process());
    }
    if first == REALM {
        return Some(authoring::process());
    }
    if first == EGRESS {
        return Some(egress::process(rest));
    }
    if first == DOWNLOAD {
        return Some(download::process(rest));
    }
    if first == CONNECTOR {
        return Some(connector::process(rest));
    }
    (first == COMMAND).then(|| engine::command_process(rest))
}
