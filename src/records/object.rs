//! The outermost layer of a row: one JSON object, whose values are handed on as the text that they were written in.
//!
//! Numbers are not read here, for a general reader of JSON makes floating numbers of those that it finds too long, and
//! nobody could tell afterwards.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::refusal::{Refusal, RefusalKind};

/// The longest row, as JSON, in bytes.
pub const LONGEST_ROW: usize = 16 << 20;

/// The deepest nesting in a row, the row itself counted.
pub const DEEPEST_ROW: usize = 64;

/// Takes the members of an object in the order in which they come.
pub(super) trait Members {
    /// The place of a name.
    fn name(&mut self, name: &str) -> Result<usize, Refusal>;
    /// The value of the name last asked for, as valid JSON without space around it.
    fn value(&mut self, place: usize, json: &str) -> Result<(), Refusal>;
}

/// Reads an object, and nothing after it.
///
/// # Errors
///
/// What `members` refuses; `TooLarge`; `NotARow` for what is no JSON object.
pub(super) fn read(json: &[u8], members: &mut impl Members) -> Result<(), Refusal> {
    if json.len() > LONGEST_ROW {
        return Err(too_large(json.len()));
    }
    let mut refused = None;
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let object = Object { members, refused: &mut refused };
    match deserializer.deserialize_map(object).and_then(|()| deserializer.end()) {
        Ok(()) => Ok(()),
        Err(error) => Err(refused.unwrap_or_else(|| not_json(&error))),
    }
}

pub(super) fn too_large(bytes: usize) -> Refusal {
    Refusal::new(RefusalKind::TooLarge, format!("it has {bytes} bytes, and a row at most {LONGEST_ROW}"))
}

/// An error of the reader's may quote what it read, at any length.
pub(super) fn not_json(error: &serde_json::Error) -> Refusal {
    let error = crate::describe::brief(&error.to_string());
    Refusal::new(RefusalKind::NotARow, format!("this is no row: {error}"))
}

struct Object<'a, M> {
    members: &'a mut M,
    refused: &'a mut Option<Refusal>,
}

impl<'de, M: Members> Visitor<'de> for Object<'_, M> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Object { members, refused } = self;
        let mut refuse = |refusal| {
            *refused = Some(refusal);
            A::Error::custom("refused")
        };
        while let Some(place) = map.next_key_seed(Name(members))? {
            let place = place.map_err(&mut refuse)?;
            let value: &RawValue = map.next_value()?;
            members.value(place, value.get()).map_err(&mut refuse)?;
        }
        Ok(())
    }
}

/// A name is looked up where the reader has it, without a copy.
struct Name<'a, M>(&'a mut M);

impl<'de, M: Members> DeserializeSeed<'de> for Name<'_, M> {
    type Value = Result<usize, Refusal>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<M: Members> Visitor<'_> for Name<'_, M> {
    type Value = Result<usize, Refusal>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.name(name))
    }
}
