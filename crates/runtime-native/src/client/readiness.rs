//! Waiting for descriptors in asynchronous code.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::socket::Socket;

/// Something that owns one descriptor as long as it lives, and never another.
pub(super) trait OwnsDescriptor: std::os::fd::AsRawFd {}

impl OwnsDescriptor for OwnedFd {}

impl OwnsDescriptor for Socket {}

/// A descriptor that the runtime, in which this is called, watches.
///
/// # Errors
/// What `epoll_ctl(2)` said.
pub(super) fn watched<T: OwnsDescriptor>(inner: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    #[expect(
        deprecated,
        reason = "the other constructors are `unsafe`, to ask for what `OwnsDescriptor` promises"
    )]
    AsyncFd::with_interest(inner, interest)
}
