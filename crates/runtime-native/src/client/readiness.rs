//! Waiting for descriptors in asynchronous code.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::socket::Socket;

/// A type that owns the same descriptor as long as it exists.
pub(super) trait OwnsDescriptor: std::os::fd::AsRawFd {}

impl OwnsDescriptor for OwnedFd {}

impl OwnsDescriptor for Socket {}

/// Registers a descriptor with the current async runtime.
///
/// # Errors
/// The error of `epoll_ctl(2)`.
pub(super) fn watched<T: OwnsDescriptor>(inner: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    #[expect(
        deprecated,
        reason = "the other constructors are `unsafe`, to ask for what `OwnsDescriptor` promises"
    )]
    AsyncFd::with_interest(inner, interest)
}
