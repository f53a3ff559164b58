//! What a presence file says: who holds the lease, since when, what for. For people and for programs that look;
//! the lock on the file says whether it is true.

use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::files::FileId;
use super::lock::{self, Looked};
use crate::backend::{Life, NewLease, Ours, Record};
use crate::holder::Holder;
use crate::lease::status::{LeaseKind, Phase};

/// The content of a presence file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Presence {
    pub(crate) version: u32,
    pub(crate) id: String,
    pub(crate) owner: String,
    pub(crate) kind: LeaseKind,
    pub(crate) acquired: Timestamp,
    pub(crate) phase: Option<Phase>,
    pub(crate) reason: Option<String>,
    pub(crate) holder: Holder,
}

impl Presence {
    pub(crate) fn new(lease: &NewLease, kind: LeaseKind, phase: Option<Phase>) -> Presence {
        Presence {
            version: 1,
            id: lease.key.id.clone(),
            owner: lease.key.owner.clone(),
            kind,
            acquired: crate::clock::wall(),
            phase,
            reason: lease.reason.clone(),
            holder: lease.holder.clone(),
        }
    }

    pub(crate) fn json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// What moves when a holder changes: the file itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LocalPulse(Option<FileId>);

/// What a look at a lease's presence file found, as a record. `None`: there is no file.
pub(crate) fn record(id: &str, path: &Path) -> Option<Record<LocalPulse>> {
    let empty = |life, malformed, file| Record {
        id: id.to_owned(),
        owner: None,
        pulse: LocalPulse(file),
        heartbeat: None,
        age_ms: None,
        life,
        malformed,
        ours: None,
    };
    let (found, life) = match lock::look(path) {
        Looked::Absent => return None,
        Looked::Strange(why) => {
            tracing::debug!(why, "in the place of a lease");
            let file = super::files::id_at(path).ok().flatten();
            return Some(empty(Life::Unknown, true, file));
        }
        Looked::Unclear(error) => {
            tracing::debug!(%error, path = %path.display(), "whether its holder lives cannot be told; it counts as living");
            return Some(empty(Life::Lives, false, None));
        }
        Looked::Dead(found) => (found, Life::Dead),
        Looked::Living(found) => (found, Life::Lives),
    };
    let mut record = empty(life, false, Some(found.id));
    // Somebody lives, or has lived, whatever the file says.
    if let Ok(presence) = serde_json::from_slice::<Presence>(&found.content)
        && presence.id == id
    {
        if life == Life::Lives && is_gone(&presence.holder) {
            record.life = Life::Inherited;
        }
        record.owner = Some(presence.owner);
        record.ours = Some(Ours {
            acquired: Some(presence.acquired),
            refresh_interval: None,
            stale_after: None,
            phase: presence.phase,
            reason: presence.reason,
            holder: Some(presence.holder),
        });
    }
    Some(record)
}

/// Whether the holder was a process of this host and is no more. Decides nothing: the lock does.
fn is_gone(holder: &Holder) -> bool {
    let here = Holder::here(None);
    let of_this_host = holder.host == here.host && holder.boot_id.is_some() && holder.boot_id == here.boot_id;
    of_this_host && !Path::new(&format!("/proc/{}", holder.pid)).exists()
}
