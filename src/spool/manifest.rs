//! `manifest.json`: what a batch is, and which file holds what.
//!
//! A manifest of another version, or with a field that this build does not know, is refused whole: a field that is
//! passed over may be the one that matters.

use std::collections::HashSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::limits::Limits;
use super::name::{BatchName, is_batch_id};
use crate::describe::brief;
use crate::records::{KindName, Operation, Schema, StreamName};

/// The version of the manifest that this build writes and reads.
pub const MANIFEST_VERSION: u32 = 1;
/// The name of the manifest in its batch.
pub(crate) const MANIFEST: &str = "manifest.json";
/// Why a batch failed, beside the files of the batch.
pub(crate) const REASON: &str = "error.json";

/// A manifest, version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    pub(crate) version: u32,
    pub(crate) id: String,
    pub(crate) producer: Origin,
    pub(crate) created: Timestamp,
    pub(crate) schemas: Vec<Schema>,
    pub(crate) entries: Vec<ManifestEntry>,
}

/// Who made a batch. Instance and seq place it; the rest is for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Origin {
    pub(crate) instance: String,
    pub(crate) seq: u64,
    pub(crate) pid: u32,
    pub(crate) host: String,
    pub(crate) build: String,
}

/// One entry; what its operation has not is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ManifestEntry {
    pub(crate) op: String,
    pub(crate) stream: StreamName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<KindName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) format: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rows: Option<u64>,
    /// Of the file's bytes as they lie there, in lower-case hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sha256: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) seal: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) generation: Option<u64>,
    /// As ISO 8601 has it, to the nanosecond: a row lives as long by the spool as by a direct write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ttl: Option<SignedDuration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<u64>,
}

/// The file of an append, as its manifest says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FileOf<'a> {
    pub(crate) kind: &'a KindName,
    pub(crate) file: &'a str,
    pub(crate) format: &'a str,
    pub(crate) rows: u64,
    pub(crate) sha256: &'a str,
}

/// What an entry is to do.
#[derive(Debug, PartialEq)]
pub(crate) enum Task<'a> {
    Append(FileOf<'a>, Option<Duration>),
    Whole(Operation),
}

impl Manifest {
    /// Reads a manifest and checks that it is the one of a batch of this name, and within the limits.
    pub(crate) fn read(content: &[u8], name: &BatchName, limits: &Limits) -> Result<Manifest, String> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let Versioned { version } =
            serde_json::from_slice(content).map_err(|error| format!("{MANIFEST} has no version: {error}"))?;
        if version != MANIFEST_VERSION {
            return Err(format!(
                "{MANIFEST} has the version {version}, and this build reads {MANIFEST_VERSION}; retry it with a build that knows it"
            ));
        }
        let manifest: Manifest =
            serde_json::from_slice(content).map_err(|error| format!("{MANIFEST} cannot be read: {error}"))?;
        let Origin { instance, seq, .. } = &manifest.producer;
        if BatchName::new(manifest.created, instance, *seq, &manifest.id).as_ref() != Some(name) {
            return Err(format!(
                "{MANIFEST} is that of batch {}, instance {}, seq {seq}, created {}: another than the name says",
                brief(&manifest.id),
                brief(instance),
                manifest.created
            ));
        }
        manifest.within(limits).map(|()| manifest)
    }

    fn within(&self, limits: &Limits) -> Result<(), String> {
        if self.entries.len() > limits.entries {
            return Err(format!("it has {} entries, and may have {}", self.entries.len(), limits.entries));
        }
        let mut kinds = HashSet::new();
        if let Some(twice) = self.schemas.iter().find(|schema| !kinds.insert(&schema.kind)) {
            return Err(format!("it has two schemas of kind {}", twice.kind));
        }
        let rows = self.entries.iter().try_fold(0_u64, |sum, entry| sum.checked_add(entry.rows.unwrap_or(0)));
        if rows.is_none_or(|rows| rows > limits.rows) {
            return Err(format!("it has more than {} rows", limits.rows));
        }
        let mut files = HashSet::new();
        for file in self.entries.iter().filter_map(|entry| entry.file.as_ref()) {
            if !is_batch_id(file) || [MANIFEST, REASON].contains(&file.as_str()) {
                return Err(format!("{} is no name of a file of a batch", brief(file)));
            }
            if !files.insert(file) {
                return Err(format!("the file {file} is named twice"));
            }
        }
        Ok(())
    }
}

impl ManifestEntry {
    /// An entry that has nothing but its operation and its stream.
    pub(crate) fn bare(op: &str, stream: &StreamName, generation: Option<u64>) -> ManifestEntry {
        ManifestEntry {
            op: op.to_owned(),
            stream: stream.clone(),
            kind: None,
            file: None,
            format: None,
            rows: None,
            sha256: None,
            seal: false,
            generation,
            ttl: None,
            before: None,
        }
    }

    /// What it is to do; an error where something is missing, or does not belong there.
    pub(crate) fn task(&self) -> Result<Task<'_>, String> {
        let op = self.op.as_str();
        let file = match (&self.kind, &self.file, &self.format, self.rows, &self.sha256) {
            (Some(kind), Some(file), Some(format), Some(rows), Some(sha256)) => {
                Some(FileOf { kind, file, format, rows, sha256 })
            }
            (None, None, None, None, None) => None,
            _ => return Err(format!("its {} has some of kind, file, format, rows and sha256, and not all", brief(op))),
        };
        let ttl = match self.ttl.map(Duration::try_from) {
            None => None,
            Some(Ok(ttl)) => Some(ttl),
            Some(Err(_)) => return Err(format!("its {} has a ttl below zero", brief(op))),
        };
        match (op, file, ttl, self.before, self.seal) {
            ("append", Some(file), ttl, None, _) => Ok(Task::Append(file, ttl)),
            ("seal", None, None, None, false) => Ok(Task::Whole(Operation::Seal)),
            ("reopen", None, None, None, false) => Ok(Task::Whole(Operation::Reopen)),
            ("delete", None, None, None, false) => Ok(Task::Whole(Operation::Delete)),
            ("trim", None, None, Some(before), false) => Ok(Task::Whole(Operation::Trim { before })),
            ("expire", None, Some(ttl), None, false) => Ok(Task::Whole(Operation::Expire { ttl })),
            ("append" | "seal" | "reopen" | "delete" | "trim" | "expire", ..) => {
                Err(format!("its {op} lacks something, or has something that only another operation has"))
            }
            _ => Err(format!("the operation {} is unknown to this build", brief(op))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::limits::LIMITS;
    use super::*;

    fn manifest() -> Manifest {
        let append = ManifestEntry {
            kind: Some("order".parse().unwrap()),
            file: Some("1.ndjson".to_owned()),
            format: Some("ndjson".to_owned()),
            rows: Some(2),
            sha256: Some("00ff".to_owned()),
            seal: true,
            ttl: Some(SignedDuration::from_nanos(90_000_000_001)),
            ..ManifestEntry::bare("append", &"s".parse().unwrap(), Some(3))
        };
        let trim = ManifestEntry { before: Some(7), ..ManifestEntry::bare("trim", &"s".parse().unwrap(), None) };
        Manifest {
            version: MANIFEST_VERSION,
            id: "b1".to_owned(),
            producer: Origin {
                instance: "a1".to_owned(),
                seq: 4,
                pid: 7,
                host: "h".to_owned(),
                build: "1.2".to_owned(),
            },
            created: "2026-01-02T03:04:05.000000006Z".parse().unwrap(),
            schemas: vec![
                serde_json::from_str(r#"{"kind":"order","columns":[{"name":"n","type":"integer"}]}"#).unwrap(),
            ],
            entries: vec![append, trim],
        }
    }

    fn name(manifest: &Manifest) -> BatchName {
        BatchName::new(manifest.created, "a1", manifest.producer.seq, &manifest.id).unwrap()
    }

    #[test]
    fn the_json_form_is_a_contract() {
        let manifest = manifest();
        let json = serde_json::to_string(&manifest).unwrap();
        assert_eq!(
            json,
            "{\"version\":1,\"id\":\"b1\",\
             \"producer\":{\"instance\":\"a1\",\"seq\":4,\"pid\":7,\"host\":\"h\",\"build\":\"1.2\"},\
             \"created\":\"2026-01-02T03:04:05.000000006Z\",\
             \"schemas\":[{\"kind\":\"order\",\"columns\":[{\"name\":\"n\",\"type\":\"integer\"}],\
             \"on_conflict\":\"skip\",\"retention\":\"stream\"}],\
             \"entries\":[{\"op\":\"append\",\"stream\":\"s\",\"kind\":\"order\",\"file\":\"1.ndjson\",\
             \"format\":\"ndjson\",\"rows\":2,\"sha256\":\"00ff\",\"seal\":true,\"generation\":3,\"ttl\":\"PT1M30.000000001S\"},\
             {\"op\":\"trim\",\"stream\":\"s\",\"before\":7}]}"
        );
        assert_eq!(Manifest::read(json.as_bytes(), &name(&manifest), &LIMITS).unwrap(), manifest);
        let ttl = Some(Duration::from_nanos(90_000_000_001));
        assert!(matches!(manifest.entries[0].task(), Ok(Task::Append(file, t)) if file.rows == 2 && t == ttl));
        assert_eq!(manifest.entries[1].task().unwrap(), Task::Whole(Operation::Trim { before: 7 }));
    }

    fn refusal(change: impl FnOnce(&mut serde_json::Value)) -> String {
        let mut value = serde_json::to_value(manifest()).unwrap();
        change(&mut value);
        Manifest::read(value.to_string().as_bytes(), &name(&manifest()), &LIMITS).unwrap_err()
    }

    #[test]
    fn what_is_not_its_name_s_manifest_is_refused() {
        assert!(refusal(|value| value["version"] = 2.into()).contains("the version 2"));
        assert!(refusal(|value| value["id"] = "b2".into()).contains("another than the name says"));
        assert!(refusal(|value| value["producer"]["seq"] = 5.into()).contains("another than the name says"));
        assert!(refusal(|value| value["created"] = "2026-01-02T03:04:05.000000007Z".into()).contains("another"));
        assert!(refusal(|value| value["later"] = 1.into()).contains("later"));
        assert!(refusal(|value| value["entries"][1] = value["entries"][0].clone()).contains("named twice"));
        assert!(refusal(|value| value["entries"][0]["file"] = "../x".into()).contains("no name of a file"));
        assert!(refusal(|value| value["entries"][0]["file"] = "manifest.json".into()).contains("no name of a file"));
        assert!(refusal(|value| value["entries"][0]["rows"] = u64::MAX.into()).contains("rows"));
        assert!(refusal(|value| value["entries"] = vec![value["entries"][1].clone(); 10_001].into()).contains("10001"));
        assert!(Manifest::read(b"[]", &name(&manifest()), &LIMITS).is_err());
    }

    #[test]
    fn an_entry_has_what_its_operation_needs_and_nothing_else() {
        let entry = |json: &str| serde_json::from_str::<ManifestEntry>(json).unwrap();
        for bad in [
            r#"{"op":"append","stream":"s"}"#,
            r#"{"op":"append","stream":"s","kind":"k"}"#,
            r#"{"op":"seal","stream":"s","before":1}"#,
            r#"{"op":"trim","stream":"s"}"#,
            r#"{"op":"expire","stream":"s"}"#,
            r#"{"op":"expire","stream":"s","ttl":"-PT1S"}"#,
            r#"{"op":"melt","stream":"s"}"#,
        ] {
            assert!(entry(bad).task().is_err(), "{bad}");
        }
        for good in ["seal", "reopen", "delete"] {
            assert!(entry(&format!(r#"{{"op":"{good}","stream":"s"}}"#)).task().is_ok());
        }
    }
}
