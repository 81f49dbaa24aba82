//! `stockade open`: a link that opens a port inside a sandbox in a browser. The browser gets a session
//! with this port alone.

use stockade_api::OpenPort;

use super::find;
use crate::args::live::Open;
use crate::args::sandbox::ServerMode;
use crate::commands::print::{notify, print, print_text};
use crate::problem::Failure;
use crate::remote;

/// Prints the link.
pub(crate) fn run(arguments: Open) -> Result<u8, Failure> {
    let Open { id, port, path, json } = arguments;
    let opened = remote::with(ServerMode { in_process: false }, async |remote| {
        let sandbox_id = find(&remote, &id).await?;
        let request = OpenPort { sandbox_id, port: port.map(std::num::NonZero::get), path };
        Ok(remote.sandboxes.open_port(remote.caller(), request).await?)
    })?;
    if json {
        print(&opened)?;
        return Ok(0);
    }
    print_text(&format!("{}\n", opened.url))?;
    notify(&format!("the link opens port {} once, within a minute", opened.port));
    Ok(0)
}
