//! The jail's own terminal.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::pty::OpenptFlags;
use rustix::termios::{Winsize, tcsetwinsize};

use crate::spec::WindowSize;

/// Opens a terminal in the jail's own `/dev/pts`, which belongs to the given inside ids: the master
/// and the slave.
pub(crate) fn open(size: WindowSize, user: u32, group: u32) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let master = rustix::fs::open("/dev/pts/ptmx", flags, Mode::empty())?;
    rustix::pty::unlockpt(&master)?;
    let slave = rustix::pty::ioctl_tiocgptpeer(
        &master,
        OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC,
    )?;
    rustix::fs::fchown(&slave, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?;
    resize(&master, size)?;
    Ok((master, slave))
}

/// Sets the size of the terminal.
pub(crate) fn resize(master: impl AsFd, size: WindowSize) -> io::Result<()> {
    let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(tcsetwinsize(master, size)?)
}

/// Makes the terminal the controlling one of this session.
pub(crate) fn make_controlling(slave: impl AsFd) -> io::Result<()> {
    Ok(rustix::process::ioctl_tiocsctty(slave)?)
}
