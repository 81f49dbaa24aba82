//! Extended attributes (`xattr(7)`) of open files: their names and values.

use std::os::fd::AsFd;

use rustix::io::Errno;

/// The longest name list and the longest value that Linux supports (`XATTR_LIST_MAX`,
/// `XATTR_SIZE_MAX`).
const MAX_BYTES: usize = 64 << 10;

/// The names of all attributes; empty where the file system does not support attributes.
pub fn names(file: impl AsFd) -> Result<Vec<Vec<u8>>, Errno> {
    let mut few = [0; 256];
    let list = match rustix::fs::flistxattr(&file, &mut few[..]) {
        Ok(length) => few[..length].to_vec(),
        Err(Errno::OPNOTSUPP) => Vec::new(),
        Err(Errno::RANGE) => {
            let mut list = vec![0; MAX_BYTES];
            let length = rustix::fs::flistxattr(&file, &mut list[..])?;
            list.truncate(length);
            list
        }
        Err(errno) => return Err(errno),
    };
    let names = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(<[u8]>::to_vec).collect())
}

/// The value of one attribute.
pub fn value(file: impl AsFd, name: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; MAX_BYTES];
    let length = rustix::fs::fgetxattr(file, name, &mut value[..])?;
    value.truncate(length);
    Ok(value)
}
