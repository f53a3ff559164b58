//! What the owner of a store says about itself: for people, and for whoever looks for the owner.
//!
//! Two files say it. The *presence*, `P.leases/owner.json`, is locked for as long as the owner lives and names its
//! instance. The *state*, `P.owner.json`, is replaced every five seconds, and is believed only while the presence is
//! held by the same instance: what a dead owner left, or anybody wrote, is passed over.

use std::fmt;
use std::path::Path;

use jiff::Timestamp;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use crate::backend::local::files;
use crate::backend::local::lock::{self, Looked};
use crate::backend::local::path::StorePath;
use crate::backend::local::trouble::belongs_to_another;
use crate::describe;
use crate::error::Result;
use crate::holder::Holder;
use crate::store_url::StoreName;

/// The longest state that is read.
const LONGEST: u64 = 64 * 1024;
/// The version of the presence, and of a state that names one.
pub(super) const VERSION: u32 = 1;
/// How often a look is repeated when the owner changed under it.
const LOOKS: usize = 4;
/// The longest name of an instance, in bytes.
const LONGEST_INSTANCE: usize = 64;

/// How far an owner is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Phase {
    /// Elected, and opening the store.
    Starting,
    /// Elected, and waiting for an fsck to leave.
    Waiting,
    /// At work.
    Ready,
    /// On its way out.
    Draining,
    /// A later version's.
    #[serde(other)]
    Unknown,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Starting => "starting",
            Phase::Waiting => "waiting",
            Phase::Ready => "ready",
            Phase::Draining => "draining",
            Phase::Unknown => "unknown",
        })
    }
}

/// What a producer needs to publish batches that the owner reads.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SpoolState {
    /// The spool's directory.
    pub dir: String,
    /// The version of the manifest that the owner reads.
    pub manifest_format: u32,
    /// The formats of files that the owner reads.
    #[serde(default)]
    pub formats: Vec<String>,
}

/// The owner's advisory state. The lock, not this, says who owns the store.
///
/// As JSON its names are in camel case, and what is `None` is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct State {
    /// The random name of this owner.
    pub instance: String,
    /// The process id, in the owner's own pid namespace.
    pub pid: u32,
    /// The host's name; in a container, the container's.
    #[serde(default)]
    pub host: String,
    /// What the owner calls its build.
    #[serde(default)]
    pub build: String,
    /// How far it is.
    pub phase: Phase,
    /// When it was elected, by its machine's wall clock.
    pub started_at: Timestamp,
    /// When it last published its state, by its machine's wall clock.
    pub heartbeat_at: Timestamp,
    /// The file or directory that it opens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// The catalog that its build reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalog_version: Option<u32>,
    /// What producers need.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spool: Option<SpoolState>,
    /// Where its control socket is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// Batches that wait for it.
    #[serde(default)]
    pub backlog: u64,
    /// Batches that failed.
    #[serde(default)]
    pub failed: u64,
    /// The last thing that went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// What somebody should know about the file system below the store: that its type was allowed by name, or that
    /// the upper layer of an overlay could not be judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_system: Option<String>,
}

impl fmt::Display for State {
    /// `pid 4242 on web1, build 1.2, instance 5f…, ready`, with control characters escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {} on {}", self.pid, describe::brief(&self.host))?;
        if !self.build.is_empty() {
            write!(f, ", build {}", describe::brief(&self.build))?;
        }
        write!(f, ", instance {}, {}", describe::brief(&self.instance), self.phase)
    }
}

/// What the presence of an owner says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Claim {
    /// The version of this form.
    pub version: u32,
    /// The random name of the owner.
    pub instance: String,
    /// The owner's process.
    pub holder: Holder,
}

impl Claim {
    pub(super) fn new(instance: &str, holder: Holder) -> Claim {
        Claim { version: VERSION, instance: instance.to_owned(), holder }
    }

    fn read(content: &[u8]) -> Option<Claim> {
        let claim: Claim = serde_json::from_slice(content).ok()?;
        (claim.version == VERSION && is_instance(&claim.instance)).then_some(claim)
    }
}

/// Whether a text can be the name of an instance.
fn is_instance(text: &str) -> bool {
    (1..=LONGEST_INSTANCE).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Who owns a store, as a look found it.
///
/// As JSON: `null`, or the state, or `instance`, `pid` and `host` as far as they are known with the phase `null`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ownership {
    /// Nobody.
    Nobody,
    /// Somebody who has not said more (yet) than this, or whose word cannot be read.
    Unnamed(Option<Box<Claim>>),
    /// Somebody who said this.
    Named(Box<State>),
}

impl Ownership {
    /// What the owner said about itself.
    pub fn state(&self) -> Option<&State> {
        match self {
            Ownership::Named(state) => Some(state),
            Ownership::Nobody | Ownership::Unnamed(_) => None,
        }
    }
}

impl fmt::Display for Ownership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ownership::Nobody => f.write_str("no owner"),
            Ownership::Unnamed(None) => f.write_str("an owner that has not said who it is"),
            Ownership::Unnamed(Some(claim)) => write!(
                f,
                "pid {} on {}, instance {}, which has said no more yet",
                claim.holder.pid,
                describe::brief(&claim.holder.host),
                claim.instance
            ),
            Ownership::Named(state) => state.fmt(f),
        }
    }
}

impl Serialize for Ownership {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Ownership::Nobody => serializer.serialize_none(),
            Ownership::Named(state) => state.serialize(serializer),
            Ownership::Unnamed(claim) => {
                let claim = claim.as_deref();
                let mut map = serializer.serialize_map(Some(4))?;
                map.serialize_entry("instance", &claim.map(|claim| &claim.instance))?;
                map.serialize_entry("pid", &claim.map(|claim| claim.holder.pid))?;
                map.serialize_entry("host", &claim.map(|claim| &claim.holder.host))?;
                map.serialize_entry("phase", &None::<Phase>)?;
                map.end()
            }
        }
    }
}

/// Looks who owns the store at `path`. Locks nothing that an election needs, and writes nothing.
///
/// What cannot be read or trusted is no owner's word: the answer is then [`Ownership::Unnamed`] if an owner lives, or
/// if it cannot be told, and [`Ownership::Nobody`] if none does. A few system calls; never waits for another process.
///
/// # Errors
///
/// `Invalid` for a path that cannot be a store's, `Denied` for another user's store.
pub fn read_state(path: impl AsRef<Path>) -> Result<Ownership> {
    let store = StorePath::resolve(path.as_ref())?;
    belongs_to_another(&store.leases()).map_err(|error| error.at(&store.display()))?;
    Ok(look(&store))
}

/// What the last owner of the store at `path` said about itself, if something was wrong when it gave the store back or
/// died, and nobody has owned the store since: [`State::last_error`] says what.
///
/// # Errors
///
/// As [`read_state`].
pub fn left_state(path: impl AsRef<Path>) -> Result<Option<State>> {
    let store = StorePath::resolve(path.as_ref())?;
    belongs_to_another(&store.leases()).map_err(|error| error.at(&store.display()))?;
    if look(&store) != Ownership::Nobody {
        return Ok(None);
    }
    Ok(read_file(&store.owner_state()).filter(|state| state.last_error.is_some()))
}

/// The name of the store at `path`, as every error and every look has it: with all links resolved.
///
/// # Errors
///
/// `Invalid` or `Denied` for a path that cannot be a store's.
pub fn store_name(path: impl AsRef<Path>) -> Result<StoreName> {
    StorePath::resolve(path.as_ref()).map(|store| store.display())
}

/// As [`read_state`], on a path that is resolved.
pub(super) fn look(store: &StorePath) -> Ownership {
    let mut seen = Ownership::Nobody;
    for _ in 0..LOOKS {
        let claim = match lock::look(&store.owner()) {
            Looked::Absent | Looked::Dead(_) => return Ownership::Nobody,
            Looked::Strange(why) => {
                tracing::warn!(why, "in the place of an owner's presence");
                return Ownership::Unnamed(None);
            }
            Looked::Unclear(error) => {
                tracing::warn!(%error, "whether an owner lives cannot be told; it counts as living");
                return Ownership::Unnamed(None);
            }
            Looked::Living(found) => Claim::read(&found.content),
        };
        let Some(claim) = claim else { return Ownership::Unnamed(None) };
        match read_file(&store.owner_state()) {
            Some(state) if state.instance == claim.instance => return Ownership::Named(Box::new(state)),
            // A dead owner's, or the next one's: the owner may have changed in between.
            Some(_) => seen = Ownership::Unnamed(Some(Box::new(claim))),
            None => return Ownership::Unnamed(Some(Box::new(claim))),
        }
    }
    seen
}

/// A state that can be read as one of ours.
pub(super) fn read_file(path: &Path) -> Option<State> {
    let content = match files::read(path, LONGEST) {
        Ok(content) => content?,
        Err(error) => {
            tracing::debug!(%error, "the owner's state cannot be read");
            return None;
        }
    };
    let value: serde_json::Value = serde_json::from_slice(&content).ok()?;
    let version = value.as_object()?.get("version");
    if version.is_some_and(|version| version.as_u64() != Some(u64::from(VERSION))) {
        return None;
    }
    serde_json::from_value(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        State {
            instance: "a1".to_owned(),
            pid: 7,
            host: "h".to_owned(),
            build: String::new(),
            phase: Phase::Ready,
            started_at: "2026-01-02T03:04:05Z".parse().unwrap(),
            heartbeat_at: "2026-01-02T03:04:10Z".parse().unwrap(),
            store: Some("/srv/p".to_owned()),
            catalog_version: Some(3),
            spool: Some(SpoolState {
                dir: "/srv/p.spool".to_owned(),
                manifest_format: 1,
                formats: vec!["ndjson".to_owned()],
            }),
            socket: None,
            backlog: 0,
            failed: 2,
            last_error: None,
            file_system: None,
        }
    }

    #[test]
    fn the_json_form_is_a_contract() {
        let json = serde_json::to_string(&state()).unwrap();
        assert_eq!(
            json,
            "{\"instance\":\"a1\",\"pid\":7,\"host\":\"h\",\"build\":\"\",\"phase\":\"ready\",\
             \"startedAt\":\"2026-01-02T03:04:05Z\",\"heartbeatAt\":\"2026-01-02T03:04:10Z\",\"store\":\"/srv/p\",\
             \"catalogVersion\":3,\"spool\":{\"dir\":\"/srv/p.spool\",\"manifestFormat\":1,\"formats\":[\"ndjson\"]},\
             \"backlog\":0,\"failed\":2}"
        );
        assert_eq!(serde_json::from_str::<State>(&json).unwrap(), state());
        let named = serde_json::to_value(Ownership::Named(Box::new(state()))).unwrap();
        assert_eq!(named, serde_json::to_value(state()).unwrap());
        assert!(serde_json::to_value(Ownership::Nobody).unwrap().is_null());
        let unnamed = serde_json::to_string(&Ownership::Unnamed(None)).unwrap();
        assert_eq!(unnamed, "{\"instance\":null,\"pid\":null,\"host\":null,\"phase\":null}");
    }

    #[test]
    fn a_later_phase_is_unknown_and_no_error() {
        let later = serde_json::to_string(&state()).unwrap().replace("\"ready\"", "\"dreaming\"");
        assert_eq!(serde_json::from_str::<State>(&later).unwrap().phase, Phase::Unknown);
    }

    #[test]
    fn only_plain_words_name_an_instance() {
        assert!(is_instance("0a") && is_instance(&"f".repeat(64)));
        assert!(!is_instance("") && !is_instance("a-b") && !is_instance("../x") && !is_instance(&"f".repeat(65)));
    }
}
