//! What a lease on a local store costs, beside the bare system calls in the same run.
//!
//! Arguments that are no options are filters: only rows whose name contains one of them are measured.

#[path = "../support/table.rs"]
#[allow(dead_code, reason = "shared with the other benchmarks")]
mod table;

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use futures::StreamExt;
use lockhouse::{Coordinator, LeaseTiming};
use tempfile::TempDir;

use table::{Aim, Row, compare, measure};

const SAMPLES: usize = 2_000;
const MANY: usize = 10_000;
/// Of what takes long by itself.
const FEW: usize = 30;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let filters: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let wanted = |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()));
    table::head("local store", "system calls");
    let (writer, fsck, last, many) =
        ("acquire + release of a writer", "fsck on an empty store", "last writer gone to fsck granted", "of 10,000");
    if wanted(writer) {
        acquire_and_release(writer).await;
    }
    if wanted(fsck) {
        empty_fsck(fsck).await;
    }
    if wanted(last) {
        hand_over(last).await;
    }
    if wanted(many) {
        ten_thousand().await;
    }
}

async fn store() -> (TempDir, Coordinator) {
    let directory = tempfile::tempdir().unwrap();
    let ours = connect(&directory, LeaseTiming::default()).await;
    ours.init().await.unwrap();
    (directory, ours)
}

async fn connect(directory: &TempDir, timing: LeaseTiming) -> Coordinator {
    let at = directory.path().join("store");
    Coordinator::builder(at.to_str().unwrap()).unwrap().timing(timing).connect().await.unwrap()
}

/// The least that a writer lease can be: a locked file that comes to its name, a look, and its end.
fn bare(directory: &Path) -> Duration {
    let (temporary, path, fsck) = (directory.join("x.tmp"), directory.join("x.json"), directory.join("fsck.json"));
    let began = Instant::now();
    let mut file = OpenOptions::new().write(true).create_new(true).open(&temporary).unwrap();
    file.try_lock().unwrap();
    file.write_all(&[b'x'; 300]).unwrap();
    std::fs::rename(&temporary, &path).unwrap();
    assert!(File::open(&fsck).is_err());
    std::fs::remove_file(&path).unwrap();
    drop(file);
    began.elapsed()
}

async fn acquire_and_release(name: &'static str) {
    let (directory, ours) = store().await;
    compare(
        Row::of(name)
            .aim(Aim::Within(Duration::from_micros(200)))
            .limited_by("system calls, and two ways to the supervisor's thread and back"),
        SAMPLES,
        async || {
            let began = Instant::now();
            ours.acquire_writer().await.unwrap().release().await.unwrap();
            began.elapsed()
        },
        async || bare(directory.path()),
    )
    .await
    .print();
}

async fn empty_fsck(name: &'static str) {
    let (_directory, ours) = store().await;
    let mut row = Row::of(name).limited_by("the fsync of the generation that it raises");
    row.ours = measure(FEW * 10, async || {
        let began = Instant::now();
        ours.acquire_fsck().await.unwrap().release().await.unwrap();
        began.elapsed()
    })
    .await;
    row.print();
}

async fn hand_over(name: &'static str) {
    let (directory, ours) = store().await;
    let other = connect(&directory, LeaseTiming::default()).await;
    let mut row = Row::of(name)
        .aim(Aim::Within(Duration::from_millis(5)))
        .limited_by("the fsync of the generation that it raises");
    for _ in 0..FEW {
        let writer = other.acquire_writer().await.unwrap();
        let mut request = ours.acquire_fsck();
        let mut progress = request.progress();
        let fsck = tokio::spawn(async move { (request.await.unwrap(), Instant::now()) });
        // Until the pauses between its looks are as long as they get.
        for _ in 0..6 {
            progress.next().await.expect("it is waiting");
        }
        let leaving = Instant::now();
        writer.release().await.unwrap();
        let (fsck, granted) = fsck.await.unwrap();
        row.ours.push(granted.saturating_duration_since(leaving));
        fsck.release().await.unwrap();
    }
    row.print();
}

async fn ten_thousand() {
    // Each is an open file.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    let (directory, ours) = store().await;
    let mut leases = Vec::with_capacity(MANY);
    for _ in 0..MANY {
        leases.push(ours.acquire_writer().await.unwrap());
    }
    let looker = connect(&directory, LeaseTiming::default()).await;
    let mut row =
        Row::of("status of 10,000").limited_by("system calls: each lease's file is opened, looked at and read");
    row.ours = measure(FEW, async || {
        let began = Instant::now();
        assert_eq!(looker.status().await.unwrap().writers.len(), MANY);
        began.elapsed()
    })
    .await;
    row.print();
    let at_once = Duration::from_millis(1);
    let timing = LeaseTiming { poll_initial: at_once, poll_max: at_once, ..LeaseTiming::default() };
    let drainer = connect(&directory, timing).await;
    let mut request = drainer.acquire_fsck();
    let mut progress = request.progress();
    let fsck = tokio::spawn(request.into_future());
    for _ in 0..3 {
        progress.next().await.expect("it drains");
    }
    let mut row = Row::of("drain look over 10,000")
        .aim(Aim::Within(Duration::from_millis(25)))
        .limited_by("system calls: each lease's file is opened and looked at");
    for _ in 0..FEW {
        let last = Instant::now();
        progress.next().await.expect("it drains");
        row.ours.push(last.elapsed().saturating_sub(at_once));
    }
    row.print();
    fsck.abort();
}
