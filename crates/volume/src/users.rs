//! Which processes have a volume in use: those that hold a lock on its directory, as the kernel lists
//! them (`proc_locks(5)`).

use stockade_bundle::beneath::Dir;

/// The list of all locks that this process can see.
#[derive(Debug, Default)]
pub(crate) struct Locks(String);

impl Locks {
    /// Reads the list; empty where the kernel does not show one.
    pub(crate) fn read() -> Self {
        Self(std::fs::read_to_string("/proc/locks").unwrap_or_default())
    }

    /// The processes that have locked a directory, other than this one.
    pub(crate) fn of(&self, directory: &Dir) -> Vec<u32> {
        let Ok(stat) = directory.stat_self() else { return Vec::new() };
        let (major, minor) = (rustix::fs::major(stat.device), rustix::fs::minor(stat.device));
        let place = format!("{major:02x}:{minor:02x}:{}", stat.inode);
        self.at(&place)
    }

    fn at(&self, place: &str) -> Vec<u32> {
        let mut processes: Vec<u32> = self.0.lines().filter_map(|line| lock(line, place)).collect();
        processes.sort_unstable();
        processes.dedup();
        processes
    }
}

/// The process of a line of the list, if it locks that place.
fn lock(line: &str, place: &str) -> Option<u32> {
    let words: Vec<_> = line.split_ascii_whitespace().collect();
    let at = words.iter().position(|word| *word == "FLOCK")?;
    (words.get(at + 4) == Some(&place)).then(|| words.get(at + 3)?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_the_kernel_names_processes() {
        let list = Locks(
            "1: FLOCK  ADVISORY  READ  1234 fe:00:77 0 EOF\n\
             2: POSIX  ADVISORY  WRITE 5 fe:00:77 0 EOF\n\
             3: FLOCK  ADVISORY  READ  7 fe:00:77 0 EOF\n\
             3: -> FLOCK  ADVISORY  WRITE 8 fe:00:78 0 EOF\n\
             4: FLOCK  ADVISORY  READ  1234 fe:00:77 0 EOF\n\
             nonsense\n"
                .to_owned(),
        );
        assert_eq!(list.at("fe:00:77"), [7, 1234]);
        assert_eq!(list.at("fe:00:78"), [8]);
        assert_eq!(list.at("fe:00:79"), [] as [u32; 0]);
    }
}
