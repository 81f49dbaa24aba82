//! What becomes of a run's changes, and which exit code its ending is.

use stockade_bundle::data::DataDir;
use stockade_bundle::project::Project;
use stockade_bundle::view::View;
use stockade_core::Problem;
use stockade_jail::Ending;

use crate::args::Run;

/// What became of the changes.
#[derive(Debug)]
pub(crate) enum Conclusion {
    /// Nothing had changed, or the changes were to be thrown away.
    Nothing,
}

/// The exit code of `stockade run`: the command's own, or what shells and `timeout(1)` return.
pub(super) fn exit_code(ending: Ending) -> u8 {
    match ending {
        Ending::Exited(code) => code,
        Ending::Signaled(signal) | Ending::Stopped(signal) => {
            u8::try_from(128 + signal).unwrap_or(u8::MAX)
        }
        Ending::TimedOut => 124,
        Ending::OutOfMemory | Ending::OutputExceeded | Ending::LimitExceeded(_) => 137,
        Ending::NotRun(errno) if errno == rustix::io::Errno::NOENT.raw_os_error() => 127,
        Ending::NotRun(_) => 126,
    }
}

/// Makes a bundle of what changed, and applies it where that was asked for.
pub(super) fn conclude(
    _arguments: &Run,
    _data: &DataDir,
    _project: &Project,
    view: View,
    _ending: Ending,
) -> Result<Conclusion, Problem> {
    view.remove().map_err(|e| crate::problem::caused(stockade_core::Code::Io, &e))?;
    Ok(Conclusion::Nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_shells() {
        for (ending, code) in [
            (Ending::Exited(0), 0),
            (Ending::Exited(77), 77),
            (Ending::Signaled(9), 137),
            (Ending::Stopped(2), 130),
            (Ending::TimedOut, 124),
            (Ending::OutOfMemory, 137),
            (Ending::NotRun(2), 127),
            (Ending::NotRun(13), 126),
        ] {
            assert_eq!(exit_code(ending), code, "{ending:?}");
        }
    }
}
