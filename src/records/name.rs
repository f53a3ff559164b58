//! The names of streams and kinds.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

use super::refusal::{Refusal, RefusalKind};

/// The longest name of a stream, in bytes.
const LONGEST_STREAM: usize = 200;
/// The longest name of a kind, in bytes.
const LONGEST_KIND: usize = 63;

/// The name of a stream: 1 to 200 of `A-Z a-z 0-9 . _ : -`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct StreamName(String);

/// The name of a kind: a letter, then up to 62 of `A-Z a-z 0-9 _`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct KindName(String);

impl StreamName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl KindName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for StreamName {
    type Err = Refusal;

    fn from_str(name: &str) -> Result<StreamName, Refusal> {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
        if (1..=LONGEST_STREAM).contains(&name.len()) && name.bytes().all(good) {
            return Ok(StreamName(name.to_owned()));
        }
        let name = crate::describe::brief(name);
        Err(Refusal::new(
            RefusalKind::BadName,
            format!("{name} is no name of a stream: 1 to {LONGEST_STREAM} of A-Z a-z 0-9 . _ : -"),
        ))
    }
}

impl FromStr for KindName {
    type Err = Refusal;

    fn from_str(name: &str) -> Result<KindName, Refusal> {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.len() <= LONGEST_KIND
            && name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic())
            && name.bytes().all(good)
        {
            return Ok(KindName(name.to_owned()));
        }
        let name = crate::describe::brief(name);
        Err(Refusal::new(
            RefusalKind::BadName,
            format!("{name} is no name of a kind: a letter, then up to {} of A-Z a-z 0-9 _", LONGEST_KIND - 1),
        ))
    }
}

macro_rules! as_text {
    ($($name:ident),*) => {
        $(impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        })*
    };
}

as_text!(StreamName, KindName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        for good in ["a", "0", "orders:2026-01.eu_west", &"s".repeat(200)] {
            assert!(good.parse::<StreamName>().is_ok(), "{good}");
        }
        for bad in ["", "a b", "ä", "a/b", "a\n", &"s".repeat(201)] {
            assert!(bad.parse::<StreamName>().is_err(), "{bad}");
        }
        for good in ["a", "Order_2", &"k".repeat(63)] {
            assert!(good.parse::<KindName>().is_ok(), "{good}");
        }
        for bad in ["", "2a", "_a", "a-b", "a b", &"k".repeat(64)] {
            assert!(bad.parse::<KindName>().is_err(), "{bad}");
        }
    }
}
