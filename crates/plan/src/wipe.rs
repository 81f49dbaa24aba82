//! Overwriting memory that may contain secrets. A jail's init is a fork of the process that
//! launches it, and has a copy of all of that process's memory.

/// Overwrites bytes, even if the compiler sees no later read of them.
pub fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    std::hint::black_box(&*bytes);
}

/// Overwrites bytes that are not needed any more.
pub fn wipe_all(bytes: impl IntoIterator<Item = Vec<u8>>) {
    bytes.into_iter().for_each(|mut bytes| wipe(&mut bytes));
}
