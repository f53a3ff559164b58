//! The value of a JSON column: kept as it was written, without the space between its parts.
//!
//! So every number survives, however long, and reading back what was written gives the same text.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::object::{DEEPEST_ROW, not_json};
use super::refusal::{Refusal, RefusalKind};

/// `json`, which is valid, compactly.
///
/// # Errors
///
/// `TooLarge` for nesting that is too deep; `NotARow` for a name that comes twice in an object, for half of a
/// surrogate pair, and for a number that no reader of JSON could hold.
pub(super) fn compact(json: &str) -> Result<String, Refusal> {
    // Deep nesting is found by counting, before anything goes down into it.
    let text = squeeze(json)?;
    serde_json::from_str::<Sound>(&text).map_err(|error| not_json(&error))?;
    Ok(text)
}

fn squeeze(json: &str) -> Result<String, Refusal> {
    let (mut in_text, mut escaped, mut depth) = (false, false, 1);
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if in_text {
            in_text = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else {
            match c {
                ' ' | '\t' | '\n' | '\r' => continue,
                '"' => in_text = true,
                '{' | '[' => depth += 1,
                '}' | ']' => depth -= 1,
                _ => {}
            }
            if depth > DEEPEST_ROW {
                let message = format!("it is nested more than {DEEPEST_ROW} deep, the row counted");
                return Err(Refusal::new(RefusalKind::TooLarge, message));
            }
        }
        text.push(c);
    }
    Ok(text)
}

/// Any JSON value in which no name comes twice.
struct Sound;

impl<'de> Deserialize<'de> for Sound {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Sound, D::Error> {
        deserializer.deserialize_any(Sound)
    }
}

impl<'de> Visitor<'de> for Sound {
    type Value = Sound;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_str<E>(self, _: &str) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Sound, A::Error> {
        while items.next_element::<Sound>()?.is_some() {}
        Ok(Sound)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Sound, A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = members.next_key::<String>()? {
            if names.contains(&name) {
                return Err(A::Error::custom(format_args!("the name {name:?} comes twice in one object")));
            }
            names.insert(name);
            members.next_value::<Sound>()?;
        }
        Ok(Sound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_kept_as_written() {
        let written = "{ \"b\" : [ 1.10 , -0, 123456789012345678901234567890 ] ,\n\t\"a \\\" \\\\\" : \" x \" }";
        let kept = "{\"b\":[1.10,-0,123456789012345678901234567890],\"a \\\" \\\\\":\" x \"}";
        assert_eq!(compact(written).unwrap(), kept);
        assert_eq!(compact(kept).unwrap(), kept);
    }

    #[test]
    fn what_no_reader_agrees_on_is_refused() {
        let refused = |json: &str| compact(json).unwrap_err();
        assert!(refused("{\"a\":{\"b\":1,\"\\u0062\":2}}").message.contains("comes twice"));
        assert_eq!(refused("\"\\ud800\"").kind, RefusalKind::NotARow);
        assert_eq!(refused("1e999").kind, RefusalKind::NotARow);
        let nested = |deep: usize| "[".repeat(deep) + &"]".repeat(deep);
        assert!(compact(&nested(DEEPEST_ROW - 1)).is_ok());
        assert_eq!(refused(&nested(DEEPEST_ROW)).kind, RefusalKind::TooLarge);
        assert_eq!(refused(&nested(1_000_000)).kind, RefusalKind::TooLarge);
        assert!(compact(&format!("[{}]", vec!["[]"; 1000].join(","))).is_ok());
    }
}
