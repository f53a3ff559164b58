//! The pulse of a lease: what moves when its holder lives, as exact values with their types.

use bson::{Bson, DateTime, RawDocument, RawDocumentBuf};

/// What one statement saw of a lease's sign of life. Equal only if nothing moved.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Pulse {
    /// Of a well-formed lease.
    Beat {
        /// Who refreshes it: a peer that takes a document over leaves the beats as they are.
        owner: String,
        /// The server's time of the last refresh.
        heartbeat: DateTime,
        /// How often lockhouse refreshed it.
        beats: Beats,
    },
    /// Of a malformed one: nobody can say which of its fields would move.
    Whole(RawDocumentBuf),
}

/// The value of `lockhouse.beats`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Beats {
    /// A peer's lease has none.
    Missing,
    /// What lockhouse writes.
    Count(i64),
    /// What somebody else wrote there, as a document of one field: compared byte by byte, so that even a
    /// NaN equals itself.
    Other(RawDocumentBuf),
}

/// The field that wraps a value in [`Beats::Other`].
const WRAPPED: &str = "v";

impl Beats {
    pub(super) fn of(lockhouse: Option<&RawDocument>) -> Beats {
        let Some(lockhouse) = lockhouse else {
            return Beats::Missing;
        };
        match lockhouse.get("beats") {
            Ok(Some(bson::raw::RawBsonRef::Int64(count))) => Beats::Count(count),
            Ok(Some(other)) => {
                let mut wrapped = RawDocumentBuf::new();
                wrapped.append(bson::raw::cstr!("v"), other);
                Beats::Other(wrapped)
            }
            Ok(None) | Err(_) => Beats::Missing,
        }
    }

    /// The value as it is stored; `None` if there is none, or none that can be written in a statement.
    pub(super) fn value(&self) -> Option<Bson> {
        match self {
            Beats::Missing => None,
            Beats::Count(count) => Some(Bson::Int64(*count)),
            Beats::Other(wrapped) => wrapped.get(WRAPPED).ok().flatten().and_then(|value| Bson::try_from(value).ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{doc, rawdoc};

    #[test]
    fn a_beat_equals_itself_and_nothing_of_another_type() {
        let beats = |value: Bson| {
            let document = RawDocumentBuf::try_from(&doc! { "beats": value }).unwrap();
            Beats::of(Some(&document))
        };
        let all = [
            Bson::Int64(1),
            Bson::Int32(1),
            Bson::Double(1.0),
            Bson::Double(f64::NAN),
            Bson::Null,
            Bson::Array(vec![Bson::Int64(1)]),
        ];
        for (i, one) in all.iter().enumerate() {
            for (j, other) in all.iter().enumerate() {
                assert_eq!(beats(one.clone()) == beats(other.clone()), i == j);
            }
        }
        assert_eq!(Beats::of(None), Beats::of(Some(&rawdoc! {})));
        assert_eq!(beats(Bson::Int32(1)).value(), Some(Bson::Int32(1)));
    }
}
