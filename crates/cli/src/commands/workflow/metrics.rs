//! `stockade metrics`: metrics of the sandboxes of workflows, for monitoring.

use stockade_api::Measure;

use crate::args::workflow::Metrics;
use crate::commands::print::{print, print_text};
use crate::problem::Failure;
use crate::remote;

/// Prints them: as the text that Prometheus collects, or as JSON.
pub(crate) fn run(arguments: Metrics) -> Result<u8, Failure> {
    let measured = remote::with(arguments.server_mode, async |remote| {
        Ok(remote.workflows.measure(remote.caller(), Measure {}).await?)
    })?;
    if arguments.json {
        print(&measured)?;
    } else {
        print_text(&measured.to_prometheus())?;
    }
    Ok(0)
}
