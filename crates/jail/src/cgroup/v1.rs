//! Groups of version 1: one below our own in each hierarchy that has a limit's controller.

use std::io;
use std::path::{Path, PathBuf};

use super::files;
use super::{Cause, Limit, Limits, cpu_quota};

/// Creates the group `name` below `own` and sets `limits` in it.
pub(super) fn make(own: &Path, name: &str, limits: &Limits) -> Result<PathBuf, Cause> {
    let directory = own.join(name);
    files::make_group(&directory)
        .map_err(|source| Cause::Denied { parent: own.to_owned(), source })?;
    for setting in settings(limits) {
        if let Err(source) = setting.apply(&directory) {
            // No process is in it yet.
            let _ = files::remove_group(&directory);
            return Err(Cause::Setting { file: directory.join(setting.file), source });
        }
    }
    Ok(directory)
}

/// The limit of memory without swap.
const MEMORY: &str = "memory.limit_in_bytes";

struct Setting {
    file: &'static str,
    value: String,
    /// Whether the file is missing in some kernels, depending on build and boot options.
    optional: bool,
}

impl Setting {
    fn apply(&self, directory: &Path) -> io::Result<()> {
        match files::write(directory, self.file, &self.value) {
            Err(error) if self.optional && error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }
}

/// The files and values to write, in this order: the limit of memory with swap must not be below
/// that of memory alone.
fn settings(limits: &Limits) -> Vec<Setting> {
    let setting = |file, value: u64, optional| Setting { file, value: value.to_string(), optional };
    let mut settings = Vec::new();
    if let Some(bytes) = limits.memory_bytes {
        settings.push(setting(MEMORY, bytes, false));
        // Without swap accounting the first file is missing; the second one then prevents early
        // swapping.
        settings.push(setting("memory.memsw.limit_in_bytes", bytes, true));
        settings.push(setting("memory.swappiness", 0, true));
    }
    if let Some(millis) = limits.cpu_millis {
        let (quota, period) = cpu_quota(millis);
        settings.push(setting("cpu.cfs_period_us", period, false));
        settings.push(setting("cpu.cfs_quota_us", quota, false));
    }
    if let Some(pids) = limits.pids {
        settings.push(setting("pids.max", pids, false));
    }
    settings
}

/// Sets `limits` in a group that has others; the error names the file. The kernel refuses a limit of
/// memory below what is in use.
pub(super) fn change(group: &Path, limits: &Limits) -> Result<(), (&'static str, io::Error)> {
    let mut settings = settings(limits);
    let is_raised = |bytes| files::number(group, MEMORY).is_ok_and(|limit| bytes > limit);
    if limits.memory_bytes.is_some_and(is_raised) {
        // The limit with swap must not be below the one without, so here it comes first.
        settings.swap(0, 1);
    }
    settings
        .iter()
        .try_for_each(|setting| setting.apply(group).map_err(|source| (setting.file, source)))
}

/// How many of the group's processes were killed for lack of memory.
pub(super) fn oom_kills(directory: &Path) -> io::Result<u64> {
    files::number_of(directory, "memory.oom_control", "oom_kill")
}

/// The group's peak memory use, in bytes.
pub(super) fn memory_peak(directory: &Path) -> io::Result<u64> {
    files::number(directory, "memory.max_usage_in_bytes")
}

/// Kills every process of the group; where the group limits the number of processes, no new one can
/// be created meanwhile.
pub(super) fn kill(directory: &Path, enforced: &[Limit]) -> io::Result<()> {
    if enforced.contains(&Limit::Pids) {
        files::write(directory, "pids.max", "0")?;
    }
    files::kill_processes(directory)
}
