//! What is stored: how a lease becomes a document's fields, and how any document that stands where a lease
//! may stand is read. Times are the server's alone and therefore not made here (`statements`).
//!
//! `owner`, `heartbeat` and `kind` are a wire format shared with httk-store. Everything that only lockhouse
//! writes is in the sub-document `lockhouse`, which repeats the owner as `for`: when the two differ, another
//! program has taken the document over with `$set`, and the sub-document speaks of somebody else.
//!
//! A lease whose `lockhouse.version` is not [`VERSION`] is read like a peer's: its rules are not known, so
//! nothing is concluded from it and it is never cleared without a person's word.

use std::time::Duration;

use bson::raw::RawBsonRef;
use bson::{Bson, Document, RawDocument, doc};
use jiff::Timestamp;

use crate::backend::{Detail, FSCK_ID, HistoryLine, Life, NewLease, Ours, Record};
use crate::holder::Holder;
use crate::lease::status::{HistoryEntry, Phase};

use super::pulse::{Beats, Pulse};

/// The `_id` of the layout document.
pub(super) const LAYOUT_ID: &str = "layout";
/// The `_id` of the document that leaves writers a turn.
pub(super) const TURN_ID: &str = "turn";
/// The `kind` of a writer's document.
pub(super) const WRITER: &str = "writer";
/// The version of the sub-document that this code writes and understands.
const VERSION: i32 = 1;

/// How much of the writers' turn is left, from a row in the `statements::view`. A time of another type leaves none.
pub(super) fn left_of_turn(row: &RawDocument) -> Option<Duration> {
    let until = row.get_document("d").ok()?.get_datetime("until").ok()?;
    let left = until.timestamp_millis().saturating_sub(row.get_datetime("now").ok()?.timestamp_millis());
    u64::try_from(left).ok().map(Duration::from_millis)
}

/// The parts of the sub-document `lockhouse` that do not change while the lease is held, and its first
/// beat. The server adds `acquired`.
pub(super) fn lockhouse(lease: &NewLease) -> Document {
    let mut fields = doc! {
        "for": &lease.key.owner,
        "version": VERSION,
        "beats": 0_i64,
        "refresh_interval_ms": millis(lease.refresh_interval),
        "stale_after_ms": millis(lease.stale_after),
        "holder": holder(&lease.holder),
    };
    if lease.key.id == FSCK_ID {
        fields.insert("phase", Phase::Draining.as_str());
    }
    if let Some(reason) = &lease.reason {
        fields.insert("reason", reason);
    }
    fields
}

fn holder(holder: &Holder) -> Document {
    let mut fields = doc! {
        "host": &holder.host,
        "pid": i64::from(holder.pid),
        "user": &holder.user,
        "program": &holder.program,
    };
    if let Some(label) = &holder.label {
        fields.insert("label", label);
    }
    if let Some(boot_id) = &holder.boot_id {
        fields.insert("boot_id", boot_id);
    }
    fields
}

/// The fields of a line of the audit trail but its time.
pub(super) fn history(line: &HistoryLine) -> Document {
    let mut fields = doc! {
        "kind": "history",
        "what": line.what,
        "holder": holder(&line.holder),
    };
    if let Some(lease) = &line.lease {
        fields.insert("lease", lease);
    }
    if let Some(reason) = &line.reason {
        fields.insert("reason", reason);
    }
    fields
}

/// A line of the audit trail; `None` for a document that is none.
pub(super) fn history_entry(document: &RawDocument) -> Option<HistoryEntry> {
    Some(HistoryEntry {
        at: timestamp(document.get_datetime("at").ok()?)?,
        what: text(document, "what")?,
        lease: text(document, "lease"),
        holder: document.get_document("holder").ok().map(read_holder),
        reason: text(document, "reason"),
    })
}

/// The elements of a lease document that decide, found in one pass.
#[derive(Default)]
struct Parts<'a> {
    id: Option<RawBsonRef<'a>>,
    owner: Option<RawBsonRef<'a>>,
    heartbeat: Option<RawBsonRef<'a>>,
    kind: Option<RawBsonRef<'a>>,
    lockhouse: Option<RawBsonRef<'a>>,
}

impl<'a> Parts<'a> {
    fn of(document: &'a RawDocument) -> Parts<'a> {
        let mut parts = Parts::default();
        // An element that cannot be read ends the walk: what follows it cannot be found either.
        for element in document.iter_elements().map_while(Result::ok) {
            let slot = match element.key().as_str() {
                "_id" => &mut parts.id,
                "owner" => &mut parts.owner,
                "heartbeat" => &mut parts.heartbeat,
                "kind" => &mut parts.kind,
                "lockhouse" => &mut parts.lockhouse,
                _ => continue,
            };
            if slot.is_none() {
                *slot = element.value().ok();
            }
        }
        parts
    }
}

/// Reads any document with a lease's `_id`, whatever its shape; `now` is the server's clock in the
/// statement that read it. Without the full detail, holder and reason are left out.
pub(super) fn record(document: &RawDocument, now: Option<bson::DateTime>, detail: Detail) -> Record<Pulse> {
    let parts = Parts::of(document);
    let id = parts.id.and_then(|id| id.as_str()).unwrap_or_default();
    let owner = parts.owner.and_then(|owner| owner.as_str());
    let heartbeat = parts.heartbeat.and_then(|heartbeat| heartbeat.as_datetime());
    let is_lease = id == FSCK_ID || parts.kind.and_then(|kind| kind.as_str()) == Some(WRITER);
    let lockhouse = parts.lockhouse.and_then(|lockhouse| lockhouse.as_document());
    // What the server finds by the path `lockhouse.beats` in an array is not what is found here.
    let plain = !matches!(parts.lockhouse, Some(RawBsonRef::Array(_)));
    let pulse = match (owner, heartbeat) {
        (Some(owner), Some(heartbeat)) if is_lease && plain => {
            Pulse::Beat { owner: owner.to_owned(), heartbeat, beats: Beats::of(lockhouse) }
        }
        _ => Pulse::Whole(document.to_owned()),
    };
    Record {
        id: id.to_owned(),
        owner: owner.map(str::to_owned),
        malformed: owner.is_none() || heartbeat.is_none() || !is_lease,
        pulse,
        heartbeat: heartbeat.and_then(timestamp),
        life: Life::Unknown,
        age_ms: heartbeat
            .zip(now)
            .map(|(heartbeat, now)| now.timestamp_millis().saturating_sub(heartbeat.timestamp_millis())),
        ours: lockhouse.and_then(|lockhouse| ours(owner?, lockhouse, detail)),
    }
}

fn ours(owner: &str, lockhouse: &RawDocument, detail: Detail) -> Option<Ours> {
    let (mut owner_matches, mut version) = (false, None);
    let mut ours = Ours::default();
    // One pass: a drain reads ten thousand of these.
    for element in lockhouse.iter_elements().map_while(Result::ok) {
        let Ok(value) = element.value() else { continue };
        match element.key().as_str() {
            "for" => owner_matches = value.as_str() == Some(owner),
            "version" => version = integer(value),
            "acquired" => ours.acquired = value.as_datetime().and_then(timestamp),
            "refresh_interval_ms" => ours.refresh_interval = duration(value),
            "stale_after_ms" => ours.stale_after = duration(value),
            "phase" => ours.phase = value.as_str().and_then(read_phase),
            "reason" if detail == Detail::Full => ours.reason = value.as_str().map(str::to_owned),
            "holder" if detail == Detail::Full => ours.holder = value.as_document().map(read_holder),
            _ => {}
        }
    }
    (owner_matches && version == Some(i64::from(VERSION))).then_some(ours)
}

/// Owner and phase of an fsck document, the phase only if lockhouse wrote it for that owner.
pub(super) fn owner_and_phase(document: &RawDocument) -> (Option<String>, Option<Phase>) {
    let record = record(document, None, Detail::Lean);
    (record.owner, record.ours.and_then(|ours| ours.phase))
}

/// The generation that a layout document gives: of any integer type.
pub(super) fn generation(layout: &RawDocument) -> Option<i64> {
    layout.get("generation").ok().flatten().and_then(integer)
}

/// The generation to which an earlier grant of this very lease raises or raised the layout.
pub(super) fn raised_to(document: &RawDocument) -> Option<i64> {
    let lockhouse = document.get_document("lockhouse").ok()?;
    lockhouse.get("raised_to").ok().flatten().and_then(integer)
}

fn integer(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(value) => Some(value.into()),
        RawBsonRef::Int64(value) => Some(value),
        _ => None,
    }
}

fn read_phase(phase: &str) -> Option<Phase> {
    [Phase::Draining, Phase::Exclusive].into_iter().find(|known| known.as_str() == phase)
}

fn read_holder(holder: &RawDocument) -> Holder {
    Holder {
        host: text(holder, "host").unwrap_or_default(),
        pid: holder
            .get("pid")
            .ok()
            .flatten()
            .and_then(integer)
            .and_then(|pid| u32::try_from(pid).ok())
            .unwrap_or_default(),
        user: text(holder, "user").unwrap_or_default(),
        program: text(holder, "program").unwrap_or_default(),
        label: text(holder, "label"),
        boot_id: text(holder, "boot_id"),
    }
}

fn text(document: &RawDocument, field: &str) -> Option<String> {
    document.get_str(field).ok().map(str::to_owned)
}

/// A number of milliseconds of any numeric type; `None` for what is no duration.
fn duration(value: RawBsonRef<'_>) -> Option<Duration> {
    match value {
        RawBsonRef::Double(millis) => Duration::try_from_secs_f64(millis / 1000.0).ok(),
        number => u64::try_from(integer(number)?).ok().map(Duration::from_millis),
    }
}

fn millis(duration: Duration) -> Bson {
    Bson::Int64(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
}

/// A server's time; `None` for one outside the years that can be shown.
pub(super) fn timestamp(time: bson::DateTime) -> Option<Timestamp> {
    Timestamp::from_millisecond(time.timestamp_millis()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::LeaseKey;
    use bson::RawDocumentBuf;

    fn raw(document: Document) -> RawDocumentBuf {
        RawDocumentBuf::try_from(&document).unwrap()
    }

    fn read(document: Document) -> Record<Pulse> {
        record(&raw(document), Some(bson::DateTime::from_millis(5_000)), Detail::Full)
    }

    fn at(millis: i64) -> Bson {
        bson::DateTime::from_millis(millis).into()
    }

    fn lease(id: &str) -> NewLease {
        NewLease {
            key: LeaseKey { id: id.to_owned(), owner: "o1".to_owned() },
            refresh_interval: Duration::from_secs(2),
            stale_after: Duration::from_secs(8),
            reason: Some("$$ROOT\0\n".to_owned()),
            holder: Holder {
                host: "h".to_owned(),
                pid: u32::MAX,
                user: "u".to_owned(),
                program: "$owner".to_owned(),
                label: Some("$$FOO".to_owned()),
                boot_id: None,
            },
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for (id, phase) in [("lease/1", None), (FSCK_ID, Some(Phase::Draining))] {
            let lease = lease(id);
            let read = read(doc! {
                "_id": id, "kind": "writer", "owner": "o1", "heartbeat": at(4_000), "lockhouse": lockhouse(&lease),
            });
            assert!(!read.malformed);
            assert_eq!((read.age_ms, read.owner.as_deref()), (Some(1_000), Some("o1")));
            let ours = read.ours.unwrap();
            assert_eq!(ours.holder.as_ref(), Some(&lease.holder));
            assert_eq!(ours.reason, lease.reason);
            assert_eq!(ours.stale_after, Some(lease.stale_after));
            assert_eq!(ours.refresh_interval, Some(lease.refresh_interval));
            assert_eq!(ours.phase, phase);
        }
    }

    #[test]
    fn a_sub_document_of_another_owner_or_version_is_void() {
        let mut other = lockhouse(&lease("lease/1"));
        let document = |lockhouse: Bson| {
            doc! { "_id": "lease/1", "kind": "writer", "owner": "o2", "heartbeat": at(0), "lockhouse": lockhouse }
        };
        assert!(read(document(other.clone().into())).ours.is_none());
        other.insert("for", "o2");
        assert!(read(document(other.clone().into())).ours.is_some());
        for version in [Bson::Int32(2), Bson::Double(1.0), Bson::Null, Bson::String("1".into())] {
            other.insert("version", version);
            let read = read(document(other.clone().into()));
            assert!(read.ours.is_none() && !read.malformed);
        }
        assert!(read(document(Bson::Int32(1))).ours.is_none());
    }

    #[test]
    fn every_malformed_shape_is_seen_and_keeps_the_whole_document_as_its_pulse() {
        let good = doc! { "_id": "lease/1", "kind": "writer", "owner": "o1", "heartbeat": at(0) };
        assert!(!read(good.clone()).malformed);
        for field in ["kind", "owner", "heartbeat"] {
            let mut shapes = vec![good.clone()];
            shapes[0].remove(field);
            for value in [Bson::Null, Bson::Int64(7), Bson::Array(vec![good[field].clone()]), doc! {}.into()] {
                let mut shape = good.clone();
                shape.insert(field, value);
                shapes.push(shape);
            }
            for shape in shapes {
                let read = read(shape.clone());
                assert!(read.malformed, "{shape}");
                assert_eq!(read.pulse, Pulse::Whole(raw(shape)));
            }
        }
        // An fsck document has no kind.
        assert!(!read(doc! { "_id": FSCK_ID, "owner": "o1", "heartbeat": at(0) }).malformed);
    }

    #[test]
    fn a_field_of_another_type_reads_as_none_and_nothing_overflows() {
        let mut lockhouse = lockhouse(&lease("lease/1"));
        lockhouse.insert("stale_after_ms", "8 s");
        lockhouse.insert("refresh_interval_ms", f64::NAN);
        lockhouse.insert("phase", "dancing");
        lockhouse.insert("holder", doc! { "pid": -1 });
        let read = read(doc! {
            "_id": "lease/1", "kind": "writer", "owner": "o1", "heartbeat": at(i64::MIN), "lockhouse": lockhouse,
        });
        assert_eq!((read.age_ms, read.heartbeat), (Some(i64::MAX), None));
        let ours = read.ours.unwrap();
        assert_eq!((ours.stale_after, ours.refresh_interval, ours.phase), (None, None, None));
        assert_eq!(ours.holder, Some(Holder::default()));
    }

    #[test]
    fn a_generation_is_any_integer_and_nothing_else() {
        let generation = |value: Bson| generation(&raw(doc! { "generation": value }));
        assert_eq!(generation(Bson::Int32(7)), Some(7));
        assert_eq!(generation(Bson::Int64(7)), Some(7));
        for other in [Bson::Double(7.0), Bson::Null, Bson::Boolean(true), Bson::String("7".into())] {
            assert_eq!(generation(other), None);
        }
    }
}
