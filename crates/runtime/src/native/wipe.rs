//! Leaving nothing in memory of what may hold secrets. A jail's init is a copy of the keeper, and
//! with it of all that the keeper's memory holds of other sandboxes.

/// Overwrites bytes, also when nobody reads them again as far as the compiler can see.
pub(crate) fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    std::hint::black_box(&*bytes);
}

/// Overwrites bytes that are not needed any more.
pub(crate) fn wipe_all(bytes: impl IntoIterator<Item = Vec<u8>>) {
    bytes.into_iter().for_each(|mut bytes| wipe(&mut bytes));
}
