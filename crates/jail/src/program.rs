//! Where a program begins whose starts are to be short: as the C library calls it, without what the
//! standard library does before `main` for the sake of a message when a stack overflows. To find the
//! stack's end it reads the whole map of the memory.

use std::ffi::c_int;
use std::io;
use std::os::fd::IntoRawFd as _;
use std::panic::catch_unwind;

use rustix::fs::{Mode, OFlags};

/// What a program exits with whose `main` has panicked, as Rust programs do.
const PANICKED: u8 = 101;

/// Has the program begin with this function, which returns its exit code, on systems where the
/// arguments are known without the standard library's own beginning. The crate is to be
/// `#![cfg_attr(all(target_env = "gnu", not(test)), no_main)]`.
#[macro_export]
macro_rules! program {
    ($main:path) => {
        #[cfg(all(target_env = "gnu", not(test)))]
        #[unsafe(no_mangle)]
        extern "C" fn main(
            _: ::std::ffi::c_int,
            _: *const *const ::std::ffi::c_char,
        ) -> ::std::ffi::c_int {
            $crate::program::begin($main)
        }

        #[cfg(not(all(target_env = "gnu", not(test))))]
        fn main() -> ::std::process::ExitCode {
            ::std::process::ExitCode::from($main())
        }
    };
}

/// Does what Rust programs rely on, runs `main`, and ends the process with its exit code.
#[doc(hidden)]
#[expect(clippy::exit, reason = "this is where the program ends")]
pub fn begin(main: fn() -> u8) -> c_int {
    if open_standard_streams().is_err() {
        std::process::abort();
    }
    // SAFETY: nothing else runs in this process yet. Whoever writes to nobody is told by the call.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    let code = catch_unwind(main).unwrap_or(PANICKED);
    // Writes out what is buffered.
    std::process::exit(code.into())
}

/// Opens `/dev/null` for each standard stream that is closed: what is opened next would be taken for it.
fn open_standard_streams() -> io::Result<()> {
    let mut streams = [0, 1, 2].map(|fd| libc::pollfd { fd, events: 0, revents: 0 });
    // SAFETY: reads and writes these three, and waits for nothing.
    while unsafe { libc::poll(streams.as_mut_ptr(), 3, 0) } == -1 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    for _ in streams.iter().filter(|stream| stream.revents & libc::POLLNVAL != 0) {
        // It gets the lowest number that is free, and keeps it.
        let _ = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty())?.into_raw_fd();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Ended, in_child};

    #[test]
    fn it_ends_with_what_main_returns_or_as_panics_do() {
        assert_eq!(in_child(|| begin(|| 7)), Ended::Exited(7));
        assert_eq!(in_child(|| begin(|| panic!("on purpose"))), Ended::Exited(101));
    }

    #[test]
    fn streams_that_are_closed_are_opened() {
        let ended = in_child(|| {
            // SAFETY: nothing in this process uses them.
            unsafe { [libc::close(0), libc::close(2)] };
            begin(|| {
                let is_null = |number| {
                    let path = format!("/proc/self/fd/{number}");
                    std::fs::read_link(path).is_ok_and(|to| to.as_os_str() == "/dev/null")
                };
                u8::from(!(is_null(0) && is_null(2)))
            })
        });
        assert_eq!(ended, Ended::Exited(0));
    }
}
