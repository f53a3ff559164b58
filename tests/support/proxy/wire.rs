//! Messages of the wire protocol, as far as the proxy needs them: where one ends, which reply belongs
//! to which request, and what a request's command is.

use std::io;

use mongodb::bson::RawDocument;
use tokio::io::{AsyncRead, AsyncReadExt};

const HEADER: usize = 16;
/// The server's own limit.
const LONGEST: usize = 48_000_000;
const OP_MSG: i32 = 2013;
/// OP_MSG flag: no reply comes to this (or, in a reply: more replies follow).
const MORE_TO_COME: i32 = 1 << 1;

pub(super) struct Message(Vec<u8>);

impl Message {
    /// The next whole message, or `None` when the other side has closed.
    pub(super) async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Self>> {
        let mut bytes = vec![0; HEADER];
        match from.read_exact(&mut bytes).await {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
        let length = usize::try_from(int_at(&bytes, 0)).unwrap_or(0);
        if !(HEADER..=LONGEST).contains(&length) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not the wire protocol"));
        }
        bytes.resize(length, 0);
        from.read_exact(&mut bytes[HEADER..]).await?;
        Ok(Some(Self(bytes)))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn request_id(&self) -> i32 {
        int_at(&self.0, 4)
    }

    pub(super) fn response_to(&self) -> i32 {
        int_at(&self.0, 8)
    }

    pub(super) fn expects_reply(&self) -> bool {
        !(self.is_op_msg() && int_at(&self.0, HEADER) & MORE_TO_COME != 0)
    }

    /// The command's document. `None` for anything but OP_MSG: the old form is only used for the first
    /// greeting, which no rule is about.
    pub(super) fn command(&self) -> Option<&RawDocument> {
        if !self.is_op_msg() {
            return None;
        }
        let mut rest = self.0.get(HEADER + 4..)?;
        loop {
            let (kind, section) = rest.split_first()?;
            let length = usize::try_from(int_at(section.get(..4)?, 0)).ok()?;
            match kind {
                0 => return RawDocument::from_bytes(section.get(..length)?).ok(),
                1 => rest = section.get(length..)?,
                _ => return None,
            }
        }
    }

    fn is_op_msg(&self) -> bool {
        self.0.len() >= HEADER + 5 && int_at(&self.0, 12) == OP_MSG
    }
}

/// A command's name is the first key of its document.
pub(super) fn command_name(body: &RawDocument) -> Option<&str> {
    body.iter().next()?.ok().map(|(key, _)| key.as_str())
}

fn int_at(bytes: &[u8], offset: usize) -> i32 {
    let four = bytes[offset..offset + 4].try_into().expect("four bytes");
    i32::from_le_bytes(four)
}
