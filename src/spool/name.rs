//! The names of batches, and of their directories in `incoming/`:
//! `<created ns, 20 digits>-<instance>-<seq, 12 digits>-<id>`.
//!
//! The time comes first so that a listing by name is nearly one by time; nothing is decided by it, for clocks step back.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::fmt;

use jiff::Timestamp;

/// The longest name of an instance, and of a batch, in bytes.
const LONGEST: usize = 64;
const CREATED_DIGITS: usize = 20;
const SEQ_DIGITS: usize = 12;
/// The highest seq that a name has room for.
pub(crate) const LAST_SEQ: u64 = 999_999_999_999;

/// Whether a text can be the name of an instance: `[A-Za-z0-9]{1,64}`.
pub fn is_instance(text: &str) -> bool {
    (1..=LONGEST).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Whether a text can be the id of a batch: `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`.
pub fn is_batch_id(text: &str) -> bool {
    text.len() <= LONGEST
        && text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// The name of a published batch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BatchName {
    created: u64,
    instance: String,
    seq: u64,
    id: String,
}

impl BatchName {
    /// `None`: such a batch can have no name. Its time lies before 1970 or after 2554, its seq is none, or its instance
    /// or id is none.
    pub(crate) fn new(created: Timestamp, instance: &str, seq: u64, id: &str) -> Option<BatchName> {
        let created = u64::try_from(created.as_nanosecond()).ok()?;
        let good = is_instance(instance) && is_batch_id(id) && (1..=LAST_SEQ).contains(&seq);
        good.then(|| BatchName { created, instance: instance.to_owned(), seq, id: id.to_owned() })
    }

    /// `None`: it is no such name.
    pub fn parse(name: &OsStr) -> Option<BatchName> {
        let mut parts = name.to_str()?.splitn(4, '-');
        let (created, instance, seq, id) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let number = |text: &str, digits: usize| {
            let plain = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| text.parse::<u64>().ok()).flatten()
        };
        let (created, seq) = (number(created, CREATED_DIGITS)?, number(seq, SEQ_DIGITS)?);
        let good = is_instance(instance) && is_batch_id(id) && seq > 0;
        good.then(|| BatchName { created, instance: instance.to_owned(), seq, id: id.to_owned() })
    }

    /// When it was made, in nanoseconds since 1970 by its producer's wall clock.
    pub fn created_ns(&self) -> u64 {
        self.created
    }

    /// Who published it.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Its place in what its instance published, from 1.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl fmt::Display for BatchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BatchName { created, instance, seq, id } = self;
        write!(f, "{created:0CREATED_DIGITS$}-{instance}-{seq:0SEQ_DIGITS$}-{id}")
    }
}

impl Ord for BatchName {
    /// As the names order.
    fn cmp(&self, other: &BatchName) -> Ordering {
        fn key(name: &BatchName) -> (u64, &str, u64, &str) {
            (name.created, &name.instance, name.seq, &name.id)
        }
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for BatchName {
    fn partial_cmp(&self, other: &BatchName) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written() {
        let created: Timestamp = "2026-01-02T03:04:05.123456789Z".parse().unwrap();
        let name = BatchName::new(created, "a1", 42, "order-7_x.y").unwrap();
        assert_eq!(name.to_string(), "01767323045123456789-a1-000000000042-order-7_x.y");
        assert_eq!(BatchName::parse(name.to_string().as_ref()), Some(name));
        assert!(BatchName::new(created, "a1", LAST_SEQ + 1, "x").is_none());
        assert!(BatchName::new(created, "a1", 0, "x").is_none());
        assert!(BatchName::new("1969-12-31T23:59:59Z".parse().unwrap(), "a1", 1, "x").is_none());
    }

    #[test]
    fn what_is_no_name_is_none() {
        for strange in [
            &b""[..],
            b"x",
            b"01767323045123456789-a1-000000000042",
            b"01767323045123456789-a1-000000000042-",
            b"01767323045123456789-a1-000000000000-x",
            b"01767323045123456789-a1-+00000000042-x",
            b"1767323045123456789-a1-000000000042-x",
            b"99999999999999999999-a1-000000000042-x",
            b"01767323045123456789-a_1-000000000042-x",
            b"01767323045123456789-a1-000000000042-x\n",
            b"01767323045123456789-a1-000000000042-\xff",
            b"01767323045123456789-a1-000000000042-.x",
        ] {
            assert_eq!(BatchName::parse(OsStr::from_bytes(strange)), None, "{strange:?}");
        }
    }
}
