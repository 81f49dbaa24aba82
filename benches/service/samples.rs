//! The contenders, with the goal of each.

use stockade_measure::{Goal, Report, Series, Unit};

/// What ratios are taken to.
const FLOOR: &str = "fork, exec and exit on the host";

/// How long each contender took, each time.
#[derive(Debug)]
pub(crate) struct Samples {
    pub(crate) floor: Series,
    pub(crate) commit: Series,
    pub(crate) runtime: Series,
    pub(crate) service: Series,
    pub(crate) socket: Series,
    pub(crate) whole: Series,
    pub(crate) burst: Series,
    pub(crate) late: Series,
}

impl Default for Samples {
    fn default() -> Self {
        Self {
            floor: Series::new(FLOOR),
            commit: Series::new("a commit of SQLite, FULL"),
            runtime: Series::new("exec in a live sandbox, runtime level")
                .with_goal(Goal::RatioAtMost(1.2)),
            service: Series::new("durable, owned exec, in process"),
            socket: Series::new("durable, owned exec, over the socket"),
            whole: Series::new("create, exec, result over the socket")
                .with_goal(Goal::MedianAtMost(10.0)),
            burst: Series::new("the same, 100 clients at once").with_goal(Goal::P99AtMost(250.0)),
            late: Series::new("a tool with a tree of processes, after its time"),
        }
    }
}

impl Samples {
    /// All of them. What a durable operation may take is known by what the floor and a commit
    /// took.
    pub(crate) fn report(self) -> Report {
        let durable = Goal::MedianAtMost(self.floor.median() + 3.0 * self.commit.median());
        let series = vec![
            self.floor,
            self.commit,
            self.runtime,
            self.service.with_goal(durable),
            self.socket.with_goal(durable),
            self.whole,
            self.burst,
            self.late,
        ];
        Report { what: "`true`", unit: Unit::Milliseconds, base: FLOOR, series }
    }
}
