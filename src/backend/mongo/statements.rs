//! Every filter and pipeline that is sent. The only file that mentions `$$NOW`, the server's clock.
//!
//! What comes from outside (labels, reasons, other programs' documents) goes into a pipeline as `$literal`:
//! a text such as `$owner` would otherwise be read as the path of a field.

use std::ops::Range;
use std::time::Duration;

use bson::spec::ElementType;
use bson::{Bson, Document, RawDocument, doc};

use crate::backend::{FSCK_ID, HistoryLine, LeaseKey, NewLease};
use crate::lease::status::Phase;

use super::documents::{self, LAYOUT_ID, WRITER};
use super::pulse::Pulse;

/// The server's clock as it is when the statement begins.
const NOW: &str = "$$NOW";

fn literal(value: impl Into<Bson>) -> Document {
    doc! { "$literal": value.into() }
}

// ---- ranges of ids ----

/// Every lease, the fsck lease included.
pub(super) fn leases() -> Document {
    ids("lease/".."lease0")
}

/// Every line of the audit trail.
pub(super) fn history() -> Document {
    ids("history/".."history0")
}

fn ids(range: Range<&str>) -> Document {
    doc! { "_id": { "$gte": range.start, "$lt": range.end } }
}

/// The fence documents of one lease. Those of an fsck lease carry its owner, because every fsck lease has
/// the same `_id`.
pub(super) fn fences_of(id: &str, owner: &str) -> Document {
    let own = own_fences(id, owner);
    ids(&own.start..&own.end)
}

/// The fence documents of all leases but one.
pub(super) fn fences_but(key: &LeaseKey) -> Document {
    let own = own_fences(&key.id, &key.owner);
    doc! { "$or": [ids("fence/"..&own.start), ids(&own.end.."fence0")] }
}

fn own_fences(id: &str, owner: &str) -> Range<String> {
    let name = match id {
        FSCK_ID => owner,
        writer => writer.strip_prefix("lease/").unwrap_or(writer),
    };
    format!("fence/{name}/")..format!("fence/{name}0")
}

/// The `_id` of one fence document.
pub(super) fn fence_id(key: &LeaseKey, slot: u64) -> String {
    format!("{}{slot}", own_fences(&key.id, &key.owner).start)
}

// ---- one lease ----

/// A lease by `_id` and owner that does not say that it has fence documents.
pub(super) fn held_without_fences(key: &LeaseKey) -> Document {
    doc! { "_id": &key.id, "owner": &key.owner, "lockhouse.fenced": { "$ne": true } }
}

/// A lease by `_id` and owner.
pub(super) fn held(key: &LeaseKey) -> Document {
    doc! { "_id": &key.id, "owner": &key.owner }
}

/// Leases by `_id` and owner. An owner belongs to one acquisition, so a pair cannot be matched crosswise.
pub(super) fn held_any(keys: &[LeaseKey]) -> Document {
    let (ids, owners): (Vec<&str>, Vec<&str>) = keys.iter().map(|key| (key.id.as_str(), key.owner.as_str())).unzip();
    doc! { "_id": { "$in": ids }, "owner": { "$in": owners } }
}

/// A writer's document, by `_id`: made by the upsert of [`register`].
pub(super) fn id(id: &str) -> Document {
    doc! { "_id": id }
}

/// The fsck document, unless it has no owner: then an upsert fails because the `_id` is taken.
pub(super) fn fsck_with_owner() -> Document {
    doc! { "_id": FSCK_ID, "owner": { "$exists": true } }
}

/// The lease on condition that exactly this pulse is stored.
pub(super) fn unmoved(id: &str, pulse: &Pulse) -> Document {
    let same = match pulse {
        Pulse::Beat { owner, heartbeat, beats } => {
            let mut same = exactly("$owner", Some(owner.as_str().into()));
            same.extend(exactly("$heartbeat", Some((*heartbeat).into())));
            same.extend(exactly("$lockhouse.beats", beats.value()));
            same
        }
        Pulse::Whole(document) => whole(document),
    };
    doc! { "_id": id, "$expr": { "$and": same } }
}

/// Equal value and equal type: `$eq` alone takes 1 for 1.0.
fn exactly(path: &str, value: Option<Bson>) -> Vec<Document> {
    let type_is = |name: &str| doc! { "$eq": [{ "$type": path }, name] };
    match value {
        None => vec![type_is("missing")],
        Some(value) => vec![type_is(type_name(value.element_type())), doc! { "$eq": [path, literal(value)] }],
    }
}

/// The same fields in the same order with the same values and types.
fn whole(document: &RawDocument) -> Vec<Document> {
    let types: Vec<&str> =
        document.iter_elements().map_while(Result::ok).map(|element| type_name(element.element_type())).collect();
    // A document that cannot be decoded cannot be named, and matches nothing.
    let value = Document::try_from(document).map_or(Bson::Null, Bson::Document);
    vec![
        doc! { "$eq": ["$$ROOT", literal(value)] },
        doc! { "$eq": [
            { "$map": { "input": { "$objectToArray": "$$ROOT" }, "in": { "$type": "$$this.v" } } },
            literal(types.into_iter().map(Bson::from).collect::<Vec<_>>()),
        ] },
    ]
}

/// The name that the operator `$type` gives.
fn type_name(element_type: ElementType) -> &'static str {
    match element_type {
        ElementType::Double => "double",
        ElementType::String => "string",
        ElementType::EmbeddedDocument => "object",
        ElementType::Array => "array",
        ElementType::Binary => "binData",
        ElementType::Undefined => "undefined",
        ElementType::ObjectId => "objectId",
        ElementType::Boolean => "bool",
        ElementType::DateTime => "date",
        ElementType::Null => "null",
        ElementType::RegularExpression => "regex",
        ElementType::DbPointer => "dbPointer",
        ElementType::JavaScriptCode => "javascript",
        ElementType::Symbol => "symbol",
        ElementType::JavaScriptCodeWithScope => "javascriptWithScope",
        ElementType::Int32 => "int",
        ElementType::Timestamp => "timestamp",
        ElementType::Int64 => "long",
        ElementType::Decimal128 => "decimal",
        ElementType::MaxKey => "maxKey",
        ElementType::MinKey => "minKey",
    }
}

// ---- what is written ----

/// Makes a writer's document, idempotently.
pub(super) fn register(lease: &NewLease) -> Vec<Document> {
    vec![doc! { "$set": {
        "kind": literal(WRITER),
        "owner": literal(lease.key.owner.as_str()),
        "heartbeat": NOW,
        "lockhouse": lockhouse(lease),
    } }]
}

/// Makes the fsck document, or keeps the one that stands.
pub(super) fn install(lease: &NewLease) -> Vec<Document> {
    let owned = doc! { "$ne": [{ "$type": "$owner" }, "missing"] };
    vec![doc! { "$replaceWith": { "$cond": [owned, "$$ROOT", fsck(lease)] } }]
}

/// Puts a whole new fsck document in place of the one that stands.
pub(super) fn replace(lease: &NewLease) -> Vec<Document> {
    vec![doc! { "$replaceWith": fsck(lease) }]
}

fn fsck(lease: &NewLease) -> Document {
    doc! {
        "_id": literal(FSCK_ID),
        "owner": literal(lease.key.owner.as_str()),
        "heartbeat": NOW,
        "lockhouse": lockhouse(lease),
    }
}

fn lockhouse(lease: &NewLease) -> Document {
    doc! { "$mergeObjects": [literal(documents::lockhouse(lease)), { "acquired": NOW }] }
}

/// The sign of life: the server's time, and one beat more.
fn beat() -> Document {
    let beats = "$lockhouse.beats";
    doc! {
        "heartbeat": NOW,
        "lockhouse.beats": { "$add": [
            { "$cond": [{ "$isNumber": beats }, beats, literal(0_i64)] },
            literal(1_i64),
        ] },
    }
}

/// Refreshes leases.
pub(super) fn refresh() -> Vec<Document> {
    vec![doc! { "$set": beat() }]
}

/// Turns the phase to exclusive, and notes once to which generation this lease raises the layout: the note
/// is how a repeated grant knows that it is repeated.
pub(super) fn exclusive(raise_to: Option<i64>) -> Vec<Document> {
    let mut set = beat();
    set.insert("lockhouse.phase", literal(Phase::Exclusive.as_str()));
    if let Some(generation) = raise_to {
        set.insert("lockhouse.raised_to", doc! { "$ifNull": ["$lockhouse.raised_to", literal(generation)] });
    }
    vec![doc! { "$set": set }]
}

/// Turns the phase of a lease that has raised nothing yet, and raises the layout: both match, or the transaction around
/// it is given up. A note of an earlier grant would be believed, not this command's number; so it must not match one.
pub(super) fn grant(collection: &str, key: &LeaseKey, target: i64) -> Document {
    let mut first_of = held(key);
    first_of.insert("lockhouse.raised_to", doc! { "$exists": false });
    doc! { "update": collection, "updates": [
        { "q": first_of, "u": exclusive(Some(target)) },
        { "q": layout_at(target.saturating_sub(1)), "u": raise() },
    ] }
}

/// Takes the note back.
pub(super) fn not_raised() -> Document {
    doc! { "$unset": { "lockhouse.raised_to": "" } }
}

/// Notes that a lease has so many fence documents more.
pub(super) fn fenced(more: u64) -> Document {
    let more = i64::try_from(more).unwrap_or(i64::MAX);
    doc! { "$set": { "lockhouse.fenced": true }, "$inc": { "lockhouse.slots": more } }
}

/// The layout at exactly this generation, an integer of any type.
pub(super) fn layout_at(generation: i64) -> Document {
    doc! { "_id": LAYOUT_ID, "$expr": { "$and": [
        { "$in": [{ "$type": "$generation" }, ["int", "long"]] },
        { "$eq": ["$generation", literal(generation)] },
    ] } }
}

/// Raises the generation by one and keeps its type as long as it fits.
pub(super) fn raise() -> Vec<Document> {
    vec![doc! { "$set": { "generation": { "$add": ["$generation", literal(1)] } } }]
}

/// Makes the layout where there is none.
pub(super) fn first_layout() -> Document {
    doc! { "$setOnInsert": { "generation": 0 } }
}

/// Leaves the writers a turn from now on.
pub(super) fn leave_turn(lasts: Duration) -> Vec<Document> {
    let lasts = i64::try_from(lasts.as_millis()).unwrap_or(i64::MAX);
    vec![doc! { "$set": { "until": { "$add": [NOW, literal(lasts)] } } }]
}

/// Writes a line of the audit trail, idempotently: one that stands keeps its time.
pub(super) fn record(line: &HistoryLine) -> Vec<Document> {
    let (fields, at) = (documents::history(line), doc! { "at": { "$ifNull": ["$at", NOW] } });
    vec![doc! { "$replaceWith": { "$mergeObjects": ["$$ROOT", literal(fields), at] } }]
}

// ---- looks ----

/// A document as it is (`d`) and the server's clock: so that nothing in the document can be taken for
/// something that the statement added.
pub(super) fn view() -> Document {
    doc! { "d": "$$ROOT", "now": NOW }
}

/// Some documents by `_id`.
pub(super) fn one_of(ids: &[&str]) -> Document {
    doc! { "_id": { "$in": ids } }
}

/// The layout and all leases.
///
/// The first row has the server's clock and the layout, and comes whether there is a layout or not
/// (`$facet` always answers). The leases follow as they are stored: the server is twice as slow over ten
/// thousand documents when it has to take each apart, even to leave something out.
pub(super) fn look_at_leases(collection: &str) -> Vec<Document> {
    let mut pipeline = head();
    pipeline.push(union(collection, vec![doc! { "$match": leases() }]));
    pipeline
}

/// The layout, all leases, and one fence document of another lease if there is any.
pub(super) fn look_for_drain(collection: &str, key: &LeaseKey) -> Vec<Document> {
    let mut pipeline = look_at_leases(collection);
    let fences = vec![doc! { "$match": fences_but(key) }, doc! { "$limit": 1 }];
    pipeline.push(union(collection, fences));
    pipeline
}

/// Everything that a look uses, at the price of one document.
pub(super) fn try_look(collection: &str) -> Vec<Document> {
    let mut pipeline = head();
    pipeline.push(union(collection, vec![doc! { "$match": id(FSCK_ID) }]));
    pipeline
}

fn head() -> Vec<Document> {
    vec![
        doc! { "$match": id(LAYOUT_ID) },
        doc! { "$facet": { "layout": [{ "$limit": 1 }] } },
        doc! { "$addFields": { "now": NOW } },
    ]
}

fn union(collection: &str, pipeline: Vec<Document>) -> Document {
    doc! { "$unionWith": { "coll": collection, "pipeline": pipeline } }
}

/// A filter that matches nothing: the server reads the update all the same and refuses what it does not
/// know.
pub(super) fn nothing() -> Document {
    doc! { "_id": { "$in": [] } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fences_of_a_lease_are_its_own_and_no_neighbours() {
        let within = |filter: &Document, id: &str| {
            let range = filter.get_document("_id").unwrap();
            range.get_str("$gte").unwrap() <= id && id < range.get_str("$lt").unwrap()
        };
        let own = fences_of("lease/ab", "o");
        assert!(within(&own, "fence/ab/1") && !within(&own, "fence/abc/1") && !within(&own, "fence/aa/9"));
        let fsck = fences_of(FSCK_ID, "o");
        assert!(within(&fsck, "fence/o/1") && !within(&fsck, "fence/fsck/1"));
        let key = LeaseKey { id: "lease/ab".into(), owner: "o".into() };
        let others = fences_but(&key);
        let others = others.get_array("$or").unwrap();
        let foreign = |id: &str| others.iter().any(|range| within(range.as_document().unwrap(), id));
        assert!(foreign("fence/abc/1") && foreign("fence/aa/1") && !foreign("fence/ab/1") && !foreign("layout"));
    }
}
