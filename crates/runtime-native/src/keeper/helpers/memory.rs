//! Polling the memory use of a sandbox's processes. With thousands of processes one poll takes
//! longer than the keeper may block.

use std::io;
use std::time::{Duration, Instant};

use stockade_jail::watch;

/// The polling interval, and the ratio of pause to duration of a poll.
const INTERVAL: Duration = Duration::from_millis(20);
const REST: u32 = 4;

/// Polls until the processes below `init` use more than this many bytes, which returns true, or
/// until init or this process's parent has exited.
pub(super) fn uses_more_than(init: i32, limit_bytes: u64) -> io::Result<bool> {
    let parent = rustix::process::getppid();
    let started = watch::start_time(init)?;
    while rustix::process::getppid() == parent && watch::start_time(init).ok() == Some(started) {
        let look = Instant::now();
        if watch::uses_more_than(init, limit_bytes)? {
            return Ok(true);
        }
        std::thread::sleep(INTERVAL.max(look.elapsed() * REST));
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_when_there_is_too_much_or_nobody() {
        let mut sleep = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let init = i32::try_from(sleep.id()).unwrap();
        assert!(uses_more_than(init, 1).unwrap());
        let ended = std::thread::spawn(move || uses_more_than(init, 1 << 40).unwrap());
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        // It may have polled only after the end.
        assert!(matches!(ended.join(), Ok(false) | Err(_)));
        assert!(uses_more_than(init, 1).is_err());
    }
}
