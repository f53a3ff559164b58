//! The digest of a file's bytes, taken from the very bytes that are written or parsed: a file that is read twice may be
//! two.

use std::io::{self, Read, Write};

use sha2::{Digest, Sha256};

/// How much goes through at a time.
pub(super) const BUFFER: usize = 128 << 10;

/// Passes bytes on and digests them, up to a length.
pub(super) struct Digesting<F> {
    inner: F,
    hash: Sha256,
    left: u64,
}

impl<F> Digesting<F> {
    pub(super) fn new(inner: F, longest: u64) -> Digesting<F> {
        Digesting { inner, hash: Sha256::new(), left: longest }
    }

    /// The digest in lower-case hex, and what the bytes went through.
    pub(super) fn finish(self) -> (String, F) {
        (hex(&self.hash.finalize()), self.inner)
    }

    fn pass(&mut self, bytes: &[u8]) -> io::Result<()> {
        let left = u64::try_from(bytes.len()).ok().and_then(|bytes| self.left.checked_sub(bytes));
        self.left = left.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the file gets too large"))?;
        self.hash.update(bytes);
        Ok(())
    }
}

impl<F: Write> Write for Digesting<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.pass(&bytes[..written])?;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<F: Read> Read for Digesting<F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.pass(&into[..read])?;
        Ok(read)
    }
}

/// Lower-case hex.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        for half in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(half), 16).unwrap_or_default());
        }
        text
    })
}
