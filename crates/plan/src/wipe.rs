//! Overwriting memory that may hold secrets. A jail's init is a fork of the process that launches it,
//! and has a copy of all that is in that memory.

/// Overwrites bytes, also when no code reads them again as far as the compiler can see.
pub fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    std::hint::black_box(&*bytes);
}

/// Overwrites bytes that are not needed any more.
pub fn wipe_all(bytes: impl IntoIterator<Item = Vec<u8>>) {
    bytes.into_iter().for_each(|mut bytes| wipe(&mut bytes));
}
