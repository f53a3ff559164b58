//! Batches made by hand, as another program would from the description of the manifest alone.

use std::fs;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use crate::Store;

/// A batch that is to be put into `incoming/`.
#[derive(Debug, Clone)]
pub(crate) struct Raw {
    pub(crate) instance: String,
    pub(crate) seq: u64,
    pub(crate) id: String,
    /// Nanoseconds since 1970.
    pub(crate) created: i64,
    pub(crate) rows: String,
}

impl Raw {
    /// One note, whose text is the id.
    pub(crate) fn new(instance: &str, seq: u64) -> Raw {
        let id = format!("{instance}.{seq}");
        let rows = format!("{}\n", serde_json::json!({ "text": id }));
        Raw { instance: instance.to_owned(), seq, created: 1_767_225_600_000_000_000 + seq.cast_signed(), id, rows }
    }

    pub(crate) fn created(mut self, created: i64) -> Raw {
        self.created = created;
        self
    }

    pub(crate) fn id(mut self, id: &str) -> Raw {
        self.id = id.to_owned();
        self
    }

    pub(crate) fn name(&self) -> String {
        format!("{:020}-{}-{:012}-{}", self.created, self.instance, self.seq, self.id)
    }

    pub(crate) fn manifest(&self) -> serde_json::Value {
        let digest = Sha256::digest(self.rows.as_bytes());
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let created = jiff::Timestamp::from_nanosecond(i128::from(self.created)).unwrap();
        serde_json::json!({
            "version": 1,
            "id": self.id,
            "producer": {"instance": self.instance, "seq": self.seq, "pid": 1, "host": "by hand", "build": ""},
            "created": created.to_string(),
            "schemas": [{"kind": "note", "columns": [{"name": "text", "type": "text"}]}],
            "entries": [{"op": "append", "stream": "notes", "kind": "note", "file": "rows", "format": "ndjson",
                         "rows": self.rows.lines().count(), "sha256": hex}],
        })
    }

    /// Renames it in.
    pub(crate) fn put(&self, store: &Store) -> PathBuf {
        self.put_changed(store, |_| {})
    }

    /// The same, with another manifest.
    pub(crate) fn put_changed(&self, store: &Store, change: impl FnOnce(&mut serde_json::Value)) -> PathBuf {
        let mut manifest = self.manifest();
        change(&mut manifest);
        let making = store.directory().join(format!("making-{}", self.name()));
        fs::create_dir(&making).unwrap();
        fs::write(making.join("rows"), &self.rows).unwrap();
        fs::write(making.join("manifest.json"), manifest.to_string()).unwrap();
        let path = store.incoming().join(self.name());
        fs::rename(&making, &path).unwrap();
        path
    }
}
