//! The content of a layer's blob without compression: gzip, Zstandard or none, told apart by the
//! first bytes, as Docker does. A descriptor may name another type than the content has; the
//! digest of the uncompressed content decides in the end.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The first bytes of a gzip member.
const GZIP: &[u8] = b"\x1f\x8b";
/// The first bytes of a Zstandard frame.
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";
/// The first bytes of a frame that decoders skip; the lowest four bits of the first byte vary.
const ZSTD_SKIPPED: [u8; 3] = *b"\x2a\x4d\x18";
/// The first bytes of formats that are not supported, with their names.
const UNSUPPORTED: [(&[u8], &str); 2] = [(b"\xfd7zXZ\0", "xz"), (b"BZh", "bzip2")];

/// Reads the content of a blob without its compression.
pub(crate) fn decompress<'a>(blob: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut blob = BufReader::with_capacity(64 << 10, blob);
    let start = blob.fill_buf()?;
    if start.starts_with(GZIP) {
        return Ok(Box::new(MultiGzDecoder::new(blob)));
    }
    if start.starts_with(ZSTD) || is_skipped(start) {
        return Ok(Box::new(Zstd::new(blob)));
    }
    match UNSUPPORTED.iter().find(|(magic, _)| start.starts_with(magic)) {
        Some((_, name)) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("it is compressed by {name}, which no registry uses for layers"),
        )),
        None => Ok(Box::new(blob)),
    }
}

fn is_skipped(start: &[u8]) -> bool {
    start.len() >= 4 && start[0] & 0xf0 == 0x50 && start[1..4] == ZSTD_SKIPPED
}

/// Reads all frames of a Zstandard stream.
struct Zstd<R> {
    blob: R,
    decoder: FrameDecoder,
    /// Whether a frame has begun and not ended.
    within: bool,
}

impl<R: BufRead> Zstd<R> {
    fn new(blob: R) -> Self {
        Self { blob, decoder: FrameDecoder::new(), within: false }
    }

    /// Starts the next frame; `false` at the end.
    fn start(&mut self) -> io::Result<bool> {
        loop {
            let mut magic = [0; 4];
            let mut length = 0;
            while length < magic.len() {
                match self.blob.read(&mut magic[length..])? {
                    0 if length == 0 => return Ok(false),
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    read => length += read,
                }
            }
            if !is_skipped(&magic) {
                let frame = magic.as_slice().chain(&mut self.blob);
                self.decoder.init(frame).map_err(invalid)?;
                return Ok(true);
            }
            let mut length = [0; 4];
            self.blob.read_exact(&mut length)?;
            let length = u64::from(u32::from_le_bytes(length));
            let skipped = io::copy(&mut (&mut self.blob).take(length), &mut io::sink())?;
            if skipped != length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.within && !self.start()? {
                return Ok(0);
            }
            self.within = true;
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.blob, one).map_err(invalid)?;
            }
            let read = self.decoder.read(buffer)?;
            if read > 0 {
                return Ok(read);
            }
            self.within = false;
        }
    }
}

fn invalid(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}
