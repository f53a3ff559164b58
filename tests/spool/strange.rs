//! Whatever lies in `incoming/`: refused with a reason, moved out of the way, in nobody's way.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use lockhouse::owner::Ingestor;
use lockhouse::records::{BatchOutcome, Source};

use crate::raw::Raw;
use crate::{Store, assert_clean, notes, round, rounds};

/// Puts something strange in, and something good before and behind it. What the strange thing's reason says.
fn passed_over(make: impl FnOnce(&Store, &Path)) -> String {
    let store = Store::new();
    let strange = Raw::new("strange", 1);
    Raw::new("a", 1).created(1).put(&store);
    make(&store, &store.incoming().join(strange.name()));
    Raw::new("strange", 2).put(&store);
    let mut target = store.target();
    let done = rounds(&mut Ingestor::new(&store.spool), &mut target);
    assert_eq!((done.backlog, done.failed.len()), (0, 1), "{done:?}");
    assert_eq!(notes(&target), ["a.1", "strange.2"], "{done:?}");
    let failed = store.failed().list().unwrap();
    assert_eq!(failed.len(), 1, "{failed:?}");
    let reason = failed[0].reason.as_ref().unwrap().error.clone();
    assert_eq!(reason, done.failed[0].error);
    // Its producer learns at once.
    match target.batch_outcome("strange.1").unwrap() {
        Some(BatchOutcome::Failed { error, .. }) => assert_eq!(error, reason),
        other => panic!("{other:?}"),
    }
    store.failed().drop(&failed[0]).unwrap();
    assert_eq!(store.list("failed").len(), 0, "with its reason");
    reason
}

fn changed(change: impl FnOnce(&mut serde_json::Value)) -> String {
    passed_over(|store, _| drop(Raw::new("strange", 1).put_changed(store, change)))
}

#[test]
fn what_is_no_directory_is_no_batch() {
    assert!(passed_over(|_, at| fs::write(at, "").unwrap()).contains("no directory"));
    assert!(passed_over(|_, at| symlink("/etc", at).unwrap()).contains("no directory"));
    assert!(passed_over(|_, at| symlink("/nowhere", at).unwrap()).contains("no directory"));
    let fifo = |at: &Path| nix::unistd::mkfifo(at, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(passed_over(|_, at| fifo(at)).contains("no directory"));
    let socket = |at: &Path| {
        let (kind, mode) = (rustix::fs::FileType::Socket, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, at, kind, mode, 0).unwrap();
    };
    assert!(passed_over(|_, at| socket(at)).contains("no directory"));
    assert!(passed_over(|_, at| fs::create_dir(at).unwrap()).contains("manifest.json is missing"));
}

/// In the place of a file of a batch.
fn instead_of(file: &'static str, make: impl FnOnce(&Path)) -> String {
    passed_over(|store, at| {
        Raw::new("strange", 1).put(store);
        fs::remove_file(at.join(file)).unwrap();
        make(&at.join(file));
    })
}

#[test]
fn what_is_no_regular_file_is_not_read() {
    for file in ["rows", "manifest.json"] {
        assert!(instead_of(file, |_| {}).contains("is missing"));
        assert!(instead_of(file, |at| symlink("/dev/zero", at).unwrap()).contains("a link"));
        assert!(instead_of(file, |at| fs::create_dir(at).unwrap()).contains("no regular file"));
        let fifo = |at: &Path| nix::unistd::mkfifo(at, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(instead_of(file, fifo).contains("no regular file"));
        let two_links = |at: &Path| {
            fs::write(at, "{}").unwrap();
            fs::hard_link(at, at.with_extension("second")).unwrap();
        };
        assert!(instead_of(file, two_links).contains("2 links"));
        // Four gigabytes that take no room: refused by its size, and never read.
        assert!(
            instead_of(file, |at| File::create(at).unwrap().set_len(4 << 30).unwrap()).contains("4294967296 bytes")
        );
    }
    let zeros = instead_of("rows", |at| File::create(at).unwrap().set_len(200 << 20).unwrap());
    assert!(zeros.contains("a row has more than 16777216 bytes"), "{zeros}");
}

#[test]
fn what_the_manifest_says_has_to_be_so() {
    assert!(changed(|manifest| manifest["version"] = 2.into()).contains("the version 2, and this build reads 1"));
    assert!(changed(|manifest| manifest["entries"][0]["format"] = "parquet".into()).contains("the format parquet"));
    assert!(changed(|manifest| manifest["entries"][0]["rows"] = 2.into()).contains("1 rows, and manifest.json says 2"));
    assert!(changed(|manifest| manifest["entries"][0]["rows"] = 0.into()).contains("more than the 0 rows"));
    assert!(changed(|manifest| manifest["entries"][0]["sha256"] = "00".into()).contains("is damaged"));
    assert!(changed(|manifest| manifest["entries"][0]["file"] = "../rows".into()).contains("no name of a file"));
    assert!(changed(|manifest| manifest["entries"][0]["kind"] = "other".into()).contains("no schema of kind other"));
    assert!(changed(|manifest| manifest["schemas"][0]["key"] = "nothing".into()).contains("manifest.json"));
    assert!(changed(|manifest| manifest["id"] = "another".into()).contains("another than the name says"));
    assert!(changed(|manifest| manifest["entries"][0]["stream"] = "no stream".into()).contains("no name of a stream"));
    assert!(instead_of("manifest.json", |at| fs::write(at, "[".repeat(500_000)).unwrap()).contains("manifest.json"));
    let deep = passed_over(|store, _| {
        let mut raw = Raw::new("strange", 1);
        raw.rows = format!("{{\"text\":{}{}}}\n", "[".repeat(100_000), "]".repeat(100_000));
        raw.put(store);
    });
    assert!(deep.contains("row 1"), "{deep}");
}

#[test]
fn a_small_file_that_unpacks_to_very_much_is_given_up_early() {
    use flate2::{Compression, write::GzEncoder};
    use sha2::Digest;
    use std::io::Write;
    let bomb = passed_over(|store, at| {
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        let zeros = vec![b' '; 1 << 20];
        (0..32).for_each(|_| packed.write_all(&zeros).unwrap());
        let packed = packed.finish().unwrap();
        let hex: String = sha2::Sha256::digest(&packed).iter().map(|byte| format!("{byte:02x}")).collect();
        Raw::new("strange", 1).put_changed(store, |manifest| {
            manifest["entries"][0]["format"] = "ndjson.gz".into();
            manifest["entries"][0]["sha256"] = hex.into();
        });
        fs::write(at.join("rows"), packed).unwrap();
    });
    assert!(bomb.contains("a row has more than 16777216 bytes"), "{bomb}");
}

#[test]
fn strange_names_are_moved_away_with_a_reason_beside_them() {
    let store = Store::new();
    let mut target = store.target();
    let names: [&[u8]; 6] = [b"x", b".hidden", b"a\nb", b"not utf-8 \xff", &[b'l'; 255], b"01-a-1-x"];
    for name in names {
        fs::write(store.incoming().join(OsStr::from_bytes(name)), "").unwrap();
    }
    fs::create_dir(store.incoming().join("a directory")).unwrap();
    Raw::new("a", 1).put(&store);
    let done = rounds(&mut Ingestor::new(&store.spool), &mut target);
    assert_eq!((done.failed.len(), done.backlog), (7, 0), "{done:?}");
    assert_eq!(notes(&target), ["a.1"]);
    let failed = store.failed().list().unwrap();
    assert_eq!(failed.len(), 7, "{failed:?}");
    for failed in &failed {
        assert!(failed.reason.as_ref().is_some_and(|reason| reason.error.contains("none of a batch")), "{failed:?}");
    }
    // The same again: nothing is replaced.
    fs::write(store.incoming().join("x"), "again").unwrap();
    fs::write(store.incoming().join(OsStr::from_bytes(&[b'l'; 255])), "again").unwrap();
    rounds(&mut Ingestor::new(&store.spool), &mut target);
    assert_eq!(fs::read(store.spool.path().join("failed/x")).unwrap(), b"");
    assert_eq!(fs::read(store.spool.path().join("failed/x.1")).unwrap(), b"again");
    assert_eq!(store.failed().list().unwrap().len(), 9);
}

#[test]
fn a_batch_that_is_removed_under_the_eye_is_missing_and_nothing_else() {
    let store = Store::new();
    let mut target = store.target();
    let path = Raw::new("a", 1).put(&store);
    let mut ingestor = Ingestor::new(&store.spool);
    fs::remove_dir_all(&path).unwrap();
    assert_clean(&round(&mut ingestor, &mut target));
}
