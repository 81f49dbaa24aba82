//! The state of a sandbox that exceeds its disk limit.

/// How often the commands of a sandbox may take too much on disk before none is started.
pub(super) const MAX_OVERRUNS: u32 = 4;

/// What a command that frees space may take, such as for a log or a directory.
const SLACK_BYTES: u64 = 1 << 20;

/// The state of a sandbox that exceeds its disk limit, as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Excess {
    /// What it may take until it is below its limit again; none until it was measured while no
    /// command ran.
    pub(super) ceiling_bytes: Option<u64>,
    /// How often its commands may still exceed it.
    pub(super) overruns_left: u32,
}

impl Excess {
    /// The state of a sandbox of which an earlier keeper may have known more.
    pub(super) const fn unknown() -> Self {
        Self { ceiling_bytes: None, overruns_left: MAX_OVERRUNS }
    }

    /// Handles a measurement of the disk; `None` for an unknown size. Returns whether the sandbox's
    /// commands are to be killed.
    pub(super) fn update(&mut self, taken_bytes: Option<u64>, is_active: bool) -> bool {
        let Some(ceiling) = self.ceiling_bytes else {
            if !is_active {
                self.ceiling_bytes = Some(taken_bytes.map_or(0, with_slack));
            }
            // Killed processes may not have ended yet.
            return is_active;
        };
        if is_active && taken_bytes.is_none_or(|taken| taken > ceiling) {
            self.ceiling_bytes = None;
            self.overruns_left = self.overruns_left.saturating_sub(1);
            return true;
        }
        // Space that was freed is not granted again.
        self.ceiling_bytes = Some(taken_bytes.map_or(ceiling, with_slack).min(ceiling));
        false
    }
}

const fn with_slack(bytes: u64) -> u64 {
    bytes.saturating_add(SLACK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_is_over_its_limit_may_shrink_and_not_grow() {
        let mut excess = Excess::unknown();
        // Processes that are being killed may run a moment longer.
        assert!(excess.update(Some(30 * MIB), true) && excess.update(Some(40 * MIB), true));
        assert!(!excess.update(Some(41 * MIB), false));
        assert!(!excess.update(Some(41 * MIB + SLACK_BYTES), true));
        assert!(!excess.update(Some(20 * MIB), true));
        assert_eq!(excess.overruns_left, MAX_OVERRUNS);
        // Space that was freed is not granted again.
        assert!(excess.update(Some(22 * MIB), true));
        assert_eq!(excess.overruns_left, MAX_OVERRUNS - 1);
    }

    #[test]
    fn what_cannot_be_told_is_growth() {
        let mut excess = Excess::unknown();
        for left in (0..MAX_OVERRUNS).rev() {
            assert!(!excess.update(None, false));
            assert!(excess.update(None, true));
            assert_eq!(excess.overruns_left, left);
        }
        assert!(!excess.update(None, false));
        assert!(excess.update(Some(1), true) && excess.overruns_left == 0);
    }
}
