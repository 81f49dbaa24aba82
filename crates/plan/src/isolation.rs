//! The isolation that is in force for a sandbox, in the form that all responses use.

use stockade_core::{Isolation, Level, LimitReport, WallReport};
use stockade_jail::Wall;

/// The reason that is reported for the wall `network` of a sandbox with a network policy.
const BY_POLICY: &str = "by policy: allowed hosts are reached through the egress proxy";

/// The properties of a jail whose walls are enabled.
#[derive(Debug, Clone, Copy)]
pub struct JailStatus {
    /// The version of Landlock; 0 where the kernel has none.
    pub landlock: i32,
    /// `/proc` is empty, because none can be mounted here.
    pub proc_missing: bool,
    /// There is a network policy.
    pub has_network: bool,
    /// There are access rules.
    pub has_access_rules: bool,
}

/// The report. Every wall that is not optional is enabled, or the jail would not exist.
pub fn isolation(status: JailStatus, limits: Vec<LimitReport>) -> Isolation {
    let JailStatus { landlock, proc_missing, has_network, has_access_rules } = status;
    let report = |wall: &Wall| {
        let reason = match wall {
            Wall::Landlock if landlock == 0 => Some("this kernel has no Landlock".to_owned()),
            Wall::Landlock if landlock < 6 => Some(format!(
                "version {landlock}: only the namespaces restrict signals and abstract sockets"
            )),
            Wall::Proc if proc_missing => {
                Some("/proc is empty: this container covers parts of its own /proc".to_owned())
            }
            Wall::Network if has_network => Some(BY_POLICY.to_owned()),
            _ => None,
        };
        let raised = !(*wall == Wall::Landlock && landlock == 0);
        WallReport { name: wall.as_str().into(), raised, reason }
    };
    let mut walls: Vec<_> = Wall::ALL.iter().map(report).collect();
    // A network with a policy is what was requested, not a fallback.
    let fallbacks = walls.iter().filter(|wall| wall.name != Wall::Network.as_str());
    let reasons = fallbacks
        .filter_map(|wall| wall.reason.as_ref().map(|reason| format!("{}: {reason}", wall.name)))
        .collect();
    let level = if walls.iter().all(|wall| wall.raised) { Level::Full } else { Level::Reduced };
    if has_access_rules {
        walls.push(WallReport::access(None));
    }
    Isolation { level, walls, limits, reasons }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: JailStatus = JailStatus {
        landlock: 7,
        proc_missing: false,
        has_network: false,
        has_access_rules: false,
    };

    #[test]
    fn a_missing_wall_is_reported() {
        let full = isolation(FULL, Vec::new());
        assert_eq!((full.level, full.reasons.len()), (Level::Full, 0));
        assert!(full.walls.iter().all(|wall| wall.raised && wall.reason.is_none()));
        let reduced = isolation(JailStatus { landlock: 0, proc_missing: true, ..FULL }, Vec::new());
        assert_eq!((reduced.level, reduced.reasons.len()), (Level::Reduced, 2));
    }

    #[test]
    fn a_network_by_policy_and_access_rules_are_reported_and_no_fallback() {
        let standing = JailStatus { has_network: true, has_access_rules: true, ..FULL };
        let isolation = isolation(standing, Vec::new());
        assert_eq!((isolation.level, isolation.reasons.len()), (Level::Full, 0));
        let wall = |name: &str| isolation.walls.iter().find(|wall| wall.name == name).unwrap();
        assert_eq!(wall("network").reason.as_deref(), Some(BY_POLICY));
        assert!(wall("access").raised);
    }
}
