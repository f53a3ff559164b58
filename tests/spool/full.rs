//! Full disks, and what cannot be moved, on small file systems of the tests' own.

use std::process::{Command, Output};

use crate::raw::Raw;
use crate::{Store, list, probe};

/// Runs a shell with mounts of its own. `probe ROLE STORE` runs a probe and shows what it said.
pub(crate) fn with_mounts(script: &str, store: &Store) -> Output {
    let prelude = r#"probe() { LOCKHOUSE_SPOOL_PROBE="$1" LOCKHOUSE_SPOOL_PROBE_STORE="$2" "$EXE" --exact probe::probe --nocapture; }
"#;
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-euc", &format!("{prelude}{script}")]);
    command.env("EXE", std::env::current_exe().unwrap()).env("D", store.directory());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output
}

#[test]
fn a_full_disk_publishes_nothing_and_says_what_to_do() {
    let store = Store::new();
    let script = r#"
        mkdir "$D/small"; mount -t tmpfs -o size=256k,nr_inodes=256,mode=700 none "$D/small"
        probe "publish 1" "$D/small/p"
        head -c 1m /dev/zero > "$D/small/filler" || true
        probe "publish 2" "$D/small/p"
        ls "$D/small/p.spool/incoming" | wc -l | sed 's/^/> incoming /'
        ls "$D/small/p.spool/tmp" | grep -v alive | wc -l | sed 's/^/> half /'
        rm "$D/small/filler"
        probe "publish 1" "$D/small/p"
        ls "$D/small/p.spool/incoming" | wc -l | sed 's/^/> incoming /'
    "#;
    let said = probe::said(&with_mounts(script, &store));
    assert_eq!(said.len(), 7, "{said:?}");
    assert!(said[0].starts_with("published"), "{said:?}");
    for error in &said[1..3] {
        assert!(error.starts_with("error Unavailable") && error.contains("make room on the disk"), "{said:?}");
    }
    assert_eq!((said[3].as_str(), said[4].as_str()), ("incoming 1", "half 0"), "{said:?}");
    assert!(said[5].starts_with("published"), "{said:?}");
    assert_eq!(said[6], "incoming 2", "{said:?}");
}

#[test]
fn on_a_full_disk_ingestion_waits_and_loses_neither_batches_nor_failures() {
    let store = Store::new();
    let good = Raw::new("a", 1);
    let bad = Raw::new("b", 1);
    good.put(&store);
    bad.put_changed(&store, |manifest| manifest["version"] = 9.into());
    let script = r#"
        mkdir "$D/small"; mount -t tmpfs -o size=512k,nr_inodes=256,mode=700 none "$D/small"
        cp -r "$D/p.spool/incoming" "$D/small/waiting"
        probe "fill" "$D/small/p"
        cp -r "$D/small/p.spool" "$D/result"
    "#;
    let said = probe::said(&with_mounts(script, &store));
    assert!(said[0].starts_with("paused") && said[0].contains("full"), "{said:?}");
    assert_eq!(said[1], "applied 0, failed 0, backlog 2", "{said:?}");
    assert_eq!(said[2], "applied 1, failed 1, backlog 0", "{said:?}");
    let failed = store.directory().join("result/failed");
    assert!(list(&failed.join(bad.name())).contains("error.json"), "{:?}", list(&failed));
}

#[test]
fn what_cannot_be_moved_is_in_nobodys_way() {
    let store = Store::new();
    let pinned = Raw::new("a", 1).put(&store);
    Raw::new("a", 2).put(&store);
    std::fs::write(store.incoming().join("strange"), "").unwrap();
    // What is mounted on cannot be renamed.
    let script = format!(
        r#"
        at="$D/p.spool/incoming/{}"; mount --bind "$at" "$at"
        mount --bind "$D/p.spool/incoming/strange" "$D/p.spool/incoming/strange"
        probe ingest "$D/p"
        ls "$D/p.spool/incoming" | wc -l | sed 's/^/> incoming /'
        probe ingest "$D/p"
        "#,
        pinned.file_name().unwrap().to_str().unwrap()
    );
    let said = probe::said(&with_mounts(&script, &store));
    assert_eq!(said, ["backlog 2", "incoming 2", "backlog 2"]);
    // Without the mounts they are done with, and nothing was applied twice.
    let again = probe::run("ingest", &store.path(), None);
    assert_eq!(probe::said(&again), ["failed strange its name is none of a batch", "backlog 0"], "{again:?}");
    assert_eq!(crate::notes(&store.target()), ["a.1", "a.2"]);
}
