//! What stands around a jail, in the words of every answer.

use stockade_core::{Isolation, Level, LimitReport, WallReport};
use stockade_jail::Wall;

/// What is in force around a jail with these limits. Every wall that is not optional stands, or
/// there were no jail; `landlock` is that wall's version, 0 where the kernel has none.
pub fn isolation(landlock: i32, proc_missing: bool, limits: Vec<LimitReport>) -> Isolation {
    let walls: Vec<_> = Wall::ALL
        .iter()
        .map(|wall| {
            let reason = match wall {
                Wall::Landlock if landlock == 0 => Some("this kernel has no Landlock".to_owned()),
                Wall::Landlock if landlock < 6 => Some(format!(
                    "version {landlock}: signals and abstract sockets are left to the namespaces"
                )),
                Wall::Proc if proc_missing => {
                    Some("/proc is empty: this container's own is partly covered".to_owned())
                }
                _ => None,
            };
            let raised = !(*wall == Wall::Landlock && landlock == 0);
            WallReport { name: wall.as_str().into(), raised, reason }
        })
        .collect();
    let reason =
        |wall: &WallReport| wall.reason.as_ref().map(|reason| format!("{}: {reason}", wall.name));
    let reasons = walls.iter().filter_map(reason).collect();
    let level = if walls.iter().all(|wall| wall.raised) { Level::Full } else { Level::Reduced };
    Isolation { level, walls, limits, reasons }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_wall_is_told() {
        let full = isolation(7, false, Vec::new());
        assert_eq!((full.level, full.reasons.len()), (Level::Full, 0));
        assert!(full.walls.iter().all(|wall| wall.raised));
        let reduced = isolation(0, true, Vec::new());
        assert_eq!(reduced.level, Level::Reduced);
        assert_eq!(reduced.reasons.len(), 2);
    }
}
