//! `stockade df`: where the data directory is, and how much each part of it uses.

use std::os::fd::AsFd as _;

use rustix::fs::fstatvfs;
use stockade_bundle::disk_usage::{Usage, names};
use stockade_core::{Code, Problem};

use crate::args::Df;
use crate::commands::print::{escaped, notify, print_text};
use crate::data_dir::{data_path, find_data_dir};
use crate::problem::{Failure, caused};
use crate::table::size;

/// The parts of a data directory.
const PARTS: [(&str, &str); 16] = [
    ("bundles", "changes that wait for a decision"),
    ("views", "changes of runs that have not ended"),
    ("runtime", "files of persistent sandboxes"),
    ("runtime-bwrap", "files of persistent sandboxes of the runtime `bwrap`"),
    ("runtime-docker", "files of persistent sandboxes of the runtime `docker`"),
    ("images", "unpacked images"),
    ("volumes", "named volumes and caches"),
    ("downloads", "images that are being downloaded"),
    ("bases", "copies of the system directories"),
    ("histories", "what sandboxes have offered in bundles"),
    ("journals", "apply operations"),
    ("undo", "what apply operations have replaced"),
    ("decisions", "history of decisions"),
    ("run-files", "files of projects at steps of workflow runs, for forks"),
    ("server", "socket and log of the local server"),
    ("trust", "trusted project files"),
];
/// The other entries, such as the database.
const OTHERS: &str = "database and others";
/// Prints the usage.
pub(crate) fn run(_: &Df) -> Result<u8, Failure> {
    let path = data_path()?;
    let Some(data) = find_data_dir(&path)? else {
        print_text(&format!("{}\nnot created yet\n", escaped(&path.to_string_lossy())))?;
        return Ok(0);
    };
    let entries = names(data.as_fd()).map_err(|error| caused(Code::Io, &error))?;
    let mut rows: Vec<_> =
        PARTS.iter().map(|(name, about)| (*name, *about, Usage::default())).collect();
    let mut others = Usage::default();
    for name in &entries {
        let part = rows.iter_mut().find(|(part, ..)| part.as_bytes() == name.to_bytes());
        let usage = part.map_or(&mut others, |(.., usage)| usage);
        usage.add(data.as_fd(), name);
    }
    rows.push(("", OTHERS, others));
    let total = rows.iter().map(|(.., usage)| usage.bytes).sum();
    let space = fstatvfs(data.as_fd())
        .map_err(|errno| -> Problem { caused(Code::Io, &std::io::Error::from(errno)) })?;
    let mut text = format!("{}\n", escaped(&path.to_string_lossy()));
    for (name, about, usage) in rows.iter().filter(|(.., usage)| usage.files > 0) {
        text += &format!("{:>10}  {name:<10}  {about}\n", size(usage.bytes));
    }
    text += &format!("{:>10}  total\n", size(total));
    text += &format!("{:>10}  free on its disk\n", size(space.f_bavail * space.f_frsize));
    print_text(&text)?;
    let unreadable: u64 = rows.iter().map(|(.., usage)| usage.unreadable).sum();
    if unreadable > 0 {
        notify(&format!("{unreadable} directories could not be read and are not included"));
    }
    Ok(0)
}
