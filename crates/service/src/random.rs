//! Random bytes, and bytes as text.

use rustix::rand::{GetRandomFlags, getrandom};
use stockade_api::Result;
use stockade_core::{Code, Problem};

/// The bytes as lowercase hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Random bytes from the kernel (`getrandom(2)`).
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let got = getrandom(&mut bytes[..], GetRandomFlags::empty());
    match got {
        // The kernel gives up to 256 bytes completely.
        Ok(length) if length == N => Ok(bytes),
        Ok(_) => Err(Problem::new(Code::Io, "the kernel gave too few random bytes")),
        Err(errno) => Err(Problem::caused(Code::Io, &errno)),
    }
}
