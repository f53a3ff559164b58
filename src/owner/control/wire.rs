//! The lines of the control protocol.

use std::io;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::owner::state::State;

/// The version of the protocol.
pub(super) const PROTOCOL: u32 = 1;
/// The longest line of either side, its end included, in bytes.
pub(super) const LONGEST_LINE: usize = 64 * 1024;
/// How an answer begins that turns somebody away who may come again at once.
pub(super) const BUSY: &str = "busy: ";
/// The longest id of a batch.
const LONGEST_ID: usize = 64;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) protocol: u32,
    pub(super) action: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) ids: Vec<String>,
    #[serde(default)]
    pub(super) wait: bool,
}

impl Request {
    pub(super) fn new(action: &str) -> Request {
        Request { protocol: PROTOCOL, action: action.to_owned(), ids: Vec::new(), wait: false }
    }

    pub(super) fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Response {
    pub(super) ok: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<State>,
    #[serde(flatten)]
    pub(super) ingested: Option<Ingested>,
}

impl Response {
    pub(super) fn state(state: State) -> Response {
        Response { ok: true, state: Some(state), ..Response::default() }
    }

    pub(super) fn error(error: impl Into<String>) -> Response {
        Response { ok: false, error: Some(error.into()), ..Response::default() }
    }

    pub(super) fn ingested(ingested: Ingested) -> Response {
        Response { ok: true, ingested: Some(ingested), ..Response::default() }
    }

    /// As one line that is not too long: results that have no room are left out, and looked up by whoever asked.
    pub(super) fn line(mut self) -> Vec<u8> {
        let line = self.render();
        if line.len() <= LONGEST_LINE {
            return line;
        }
        if let Some(ingested) = &mut self.ingested {
            ingested.results.clear();
            ingested.more = true;
        }
        let line = self.render();
        if line.len() <= LONGEST_LINE {
            return line;
        }
        match self.ingested {
            Some(_) => Response::ingested(Ingested { more: true, ..Ingested::default() }).render(),
            None => Response::error("the answer is too long for one line").render(),
        }
    }

    fn render(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

/// What ingesting came to.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Ingested {
    /// The batches that were asked for and are applied.
    pub ingested: Vec<String>,
    /// The outcomes of those batches, as far as they fit into the answer.
    #[serde(default)]
    pub results: Map<String, Value>,
    /// Not everything is said or done yet: ask again, or look into the ledger.
    #[serde(default)]
    pub more: bool,
}

/// Whether a text can be the id of a batch.
pub(super) fn is_batch_id(id: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric();
    id.len() <= LONGEST_ID
        && id.bytes().next().is_some_and(word)
        && id.bytes().all(|byte| word(byte) || b"._-".contains(&byte))
}

/// Reads one line, without its end. `None`: the other side closed before there was one.
///
/// # Errors
///
/// `InvalidData` if the line is too long; those of reading.
pub(super) async fn read_line(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::with_capacity(512);
    loop {
        let searched = line.len();
        if (&mut *stream).take((LONGEST_LINE - searched) as u64).read_buf(&mut line).await? == 0 {
            if searched == LONGEST_LINE {
                let message = format!("a line may have {LONGEST_LINE} bytes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
            return Ok(None);
        }
        if let Some(end) = line[searched..].iter().position(|byte| *byte == b'\n') {
            line.truncate(searched + end);
            return Ok(Some(line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_as_written_down() {
        let text = |response: Response| String::from_utf8(response.line()).unwrap();
        assert_eq!(text(Response::error("no")), "{\"ok\":false,\"error\":\"no\"}\n");
        let ingested = Ingested { ingested: vec!["a".to_owned()], ..Ingested::default() };
        assert_eq!(
            text(Response::ingested(ingested.clone())),
            "{\"ok\":true,\"ingested\":[\"a\"],\"results\":{},\"more\":false}\n"
        );
        let back: Response = serde_json::from_str(&text(Response::ingested(ingested.clone()))).unwrap();
        assert_eq!(back.ingested, Some(ingested));
        let back: Response = serde_json::from_str("{\"ok\":true,\"later\":1}").unwrap();
        assert!(back.ok && back.ingested.is_none());
    }

    #[test]
    fn an_answer_that_is_too_long_says_less() {
        let results: Map<String, Value> = (0..2000).map(|n| (format!("b{n}"), "x".repeat(40).into())).collect();
        let ids: Vec<String> = results.keys().cloned().collect();
        let line = Response::ingested(Ingested { ingested: ids.clone(), results, more: false }).line();
        let back: Response = serde_json::from_slice(&line).unwrap();
        let back = back.ingested.unwrap();
        assert!(line.len() <= LONGEST_LINE && back.more && back.results.is_empty());
        assert_eq!(back.ingested, ids);
        let ids = (0..2000).map(|n| format!("{n:064}")).collect();
        let line = Response::ingested(Ingested { ingested: ids, ..Ingested::default() }).line();
        let back: Response = serde_json::from_slice(&line).unwrap();
        assert!(back.ingested.unwrap().more);
    }

    #[test]
    fn ids_of_batches_are_plain() {
        for good in ["a", "0", "2026-01-02T03.04_x", &"b".repeat(64)] {
            assert!(is_batch_id(good), "{good}");
        }
        for bad in ["", "-a", ".", "a/b", "ä", "a\n", &"b".repeat(65)] {
            assert!(!is_batch_id(bad), "{bad}");
        }
    }

    #[tokio::test]
    async fn lines_end_somewhere() {
        let read = async |bytes: &[u8]| read_line(&mut &*bytes).await;
        assert_eq!(read(b"{}\nrest").await.unwrap().unwrap(), b"{}");
        assert_eq!(read(b"half").await.unwrap(), None);
        let mut longest = vec![b'x'; LONGEST_LINE - 1];
        longest.push(b'\n');
        assert_eq!(read(&longest).await.unwrap().unwrap().len(), LONGEST_LINE - 1);
        let error = read(&[b'x'; LONGEST_LINE + 1]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
