//! One entry of a batch, whole or not at all: who calls has set a savepoint.
//!
//! A stream or a row whose end has come is treated as gone by whatever writes, even while nobody has removed it:
//! otherwise a new row would be passed over for one that only waits to be removed.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::Connection;

use super::append::{self, Rows};
use super::streams::{self, Stream};
use super::trouble::Stopped;
use crate::records::batch::{Batch, Entry, Operation};
use crate::records::outcome::Applied;
use crate::records::refusal::{Refusal, RefusalKind};
use crate::records::schema::Retention;

/// Applies an entry.
pub(super) fn apply(connection: &Connection, batch: &Batch, entry: &Entry, now: Timestamp) -> Result<Applied, Stopped> {
    applied(connection, batch, entry, now).map_err(|stopped| match stopped {
        Stopped::Refused(mut refusal) => {
            if let Operation::Append { kind, .. } = &entry.operation {
                refusal.of.get_or_insert_with(|| kind.clone());
            }
            Stopped::Refused(refusal.in_stream(&entry.stream))
        }
        sql => sql,
    })
}

fn applied(connection: &Connection, batch: &Batch, entry: &Entry, now: Timestamp) -> Result<Applied, Stopped> {
    let mut found = streams::find(connection, &entry.stream)?;
    if let Some(stream) = found.as_mut().filter(|stream| stream.has_ended(now)) {
        stream.end(connection)?;
    }
    fence(found.as_ref(), entry.generation)?;
    if let Operation::Append { kind, rows, ttl, seal } = &entry.operation {
        let rows = Rows { kind, rows, expires: ttl.map(|ttl| end_of(now, ttl)).transpose()?, seal: *seal };
        return append::append(connection, batch, &entry.stream, found, &rows, now);
    }
    let Some(mut stream) = found.filter(|stream| stream.kind.is_some()) else {
        return Err(unknown().into());
    };
    let mut removed = 0;
    match &entry.operation {
        Operation::Append { .. } => {}
        Operation::Seal => stream.sealed = true,
        Operation::Reopen => stream.sealed = false,
        Operation::Trim { before } => removed = trim(connection, &mut stream, *before)?,
        Operation::Expire { ttl } => expire(connection, &mut stream, end_of(now, *ttl)?)?,
        Operation::Delete => removed = stream.end(connection)?,
    }
    let generation = stream.generation;
    stream.save(connection, &entry.stream)?;
    Ok(Applied { generation, removed, ..Applied::default() })
}

/// Refuses what was meant for another incarnation.
fn fence(found: Option<&Stream>, wanted: Option<u64>) -> Result<(), Refusal> {
    let Some(wanted) = wanted else { return Ok(()) };
    let fenced = |message: String| Err(Refusal::new(RefusalKind::Fenced, message));
    match found {
        None => Err(unknown()),
        Some(stream) if stream.kind.is_none() => fenced(format!(
            "it was meant for generation {wanted}, and generation {} was the last and is gone; leave the generation out \
             to begin the next",
            stream.generation
        )),
        Some(stream) if stream.generation != wanted => fenced(format!(
            "it was meant for generation {wanted}, and the stream is generation {}; look at it again",
            stream.generation
        )),
        Some(_) => Ok(()),
    }
}

fn unknown() -> Refusal {
    Refusal::new(RefusalKind::UnknownStream, "there is no such stream; an append makes one")
}

/// Up to the next seq, which removes every row; past it there is nothing that could be meant.
fn trim(connection: &Connection, stream: &mut Stream, before: u64) -> Result<u64, Stopped> {
    let next = stream.next;
    let seq = i64::try_from(before).ok().filter(|_| before <= next).ok_or_else(|| {
        let message = format!("it cannot be trimmed before seq {before}: its next row gets {next}");
        Refusal::new(RefusalKind::BadPosition, message)
    })?;
    let removed = stream.remove_before(connection, seq)?;
    stream.first = stream.first.max(before);
    stream.rows = stream.rows.saturating_sub(removed);
    Ok(removed)
}

fn expire(connection: &Connection, stream: &mut Stream, end: i64) -> Result<(), Stopped> {
    let Some(kind) = &stream.kind else { return Ok(()) };
    match super::kinds::schema(connection, kind)?.map(|schema| schema.retention) {
        Some(Retention::Row) => {
            let sql = format!("UPDATE {} SET _expires = ?2 WHERE _stream = ?1", super::kinds::table(kind));
            connection.prepare_cached(&sql)?.execute([stream.id, end])?;
        }
        Some(Retention::Stream) | None => stream.expires = Some(end),
    }
    Ok(())
}

/// When what lives for `ttl` from `now` ends, in whole milliseconds, not before its time.
fn end_of(now: Timestamp, ttl: Duration) -> Result<i64, Refusal> {
    let bad = |message: &str| Refusal::new(RefusalKind::BadTtl, message);
    if ttl.is_zero() {
        return Err(bad("a time to live is more than nothing"));
    }
    let millis = i64::try_from(ttl.as_nanos().div_ceil(1_000_000)).ok();
    millis
        .and_then(|millis| now.as_millisecond().checked_add(millis))
        .filter(|&end| Timestamp::from_millisecond(end).is_ok())
        .ok_or_else(|| bad("a time to live ends before the year 10000"))
}
