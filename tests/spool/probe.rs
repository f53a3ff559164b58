//! The process that the tests start: this test binary once more, running the one test below, which takes a role from its
//! environment and says what it did line by line.

use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use lockhouse::owner::Ingestor;
use lockhouse::spool::{FailedFiles, Formats, NewBatch, Producer, Spool};

use crate::support::poll::eventually_blocking;
use crate::{PATIENCE, append, batch, open_target, round, schema};

const ROLE: &str = "LOCKHOUSE_SPOOL_PROBE";
const STORE: &str = "LOCKHOUSE_SPOOL_PROBE_STORE";
/// What an answer begins with: the test harness writes to the same stream.
const MARK: &str = "> ";

/// The command of a probe. Roles: `publish N`, `crowd N`, `ingest`, `retry`, `fork`, `fill`, `many`.
pub(crate) fn command(role: &str, store: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "probe::probe", "--nocapture"]).env(ROLE, role).env(STORE, store);
    command.stdin(Stdio::null());
    command
}

/// Runs a probe to its end.
pub(crate) fn run(role: &str, store: &Path, crash_at: Option<&str>) -> Output {
    let mut command = command(role, store);
    command.env_remove("LOCKHOUSE_CRASH_AT");
    command.envs(crash_at.map(|at| ("LOCKHOUSE_CRASH_AT", at)));
    command.output().unwrap()
}

/// What a probe said.
pub(crate) fn said(output: &Output) -> Vec<String> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().filter_map(|line| line.strip_prefix(MARK)).map(str::to_owned).collect()
}

/// Not a test by itself: what a started probe does.
#[test]
fn probe() {
    let (Ok(role), Some(store)) = (std::env::var(ROLE), std::env::var_os(STORE)) else { return };
    let store = PathBuf::from(store);
    let spool = Spool::open(&store).unwrap();
    match role.split_once(' ') {
        Some(("publish", count)) => {
            let producer = Producer::new(&spool, "probe");
            for number in 1..=count.parse::<u32>().unwrap() {
                let (one, two) = (format!("{number}a"), format!("{number}b"));
                let entries = vec![append(&[&one]), append(&[&two])];
                match producer.publish(&NewBatch::new(vec![schema()], entries), "ndjson") {
                    Ok(name) => say(format!("published {}", name.id())),
                    Err(error) => say(format!("error {:?} {error}", error.kind())),
                }
            }
        }
        // Each says whose it is, and which.
        Some(("crowd", count)) => {
            let producer = Producer::new(&spool, "probe");
            for number in 1..=count.parse::<u32>().unwrap() {
                producer.publish(&batch(&[&format!("{}:{number}", producer.instance())]), "ndjson").unwrap();
            }
            say("done");
        }
        _ if role == "ingest" => {
            let mut target = open_target(&store);
            let mut ingestor = Ingestor::new(&spool);
            loop {
                let round = round(&mut ingestor, &mut target);
                for failed in &round.failed {
                    say(format!("failed {} {}", failed.file.to_string_lossy(), failed.error));
                }
                if let Some(paused) = &round.paused {
                    say(format!("paused {}", paused.why));
                }
                if !round.more {
                    say(format!("backlog {}", round.backlog));
                    break;
                }
            }
        }
        _ if role == "retry" => {
            let failed = FailedFiles::of(&spool);
            let producer = Producer::new(&spool, "probe");
            for file in failed.list().unwrap() {
                say(failed.retry(&file, &producer, &Formats::default(), "ndjson").unwrap());
            }
        }
        _ if role == "many" => {
            crate::crowds::many(store.parent().unwrap());
            say("done");
        }
        _ if role == "fork" => fork(&spool),
        _ if role == "fill" => fill(&spool, &store),
        _ => panic!("unknown role: {role}"),
    }
}

/// Ingests what lies in `waiting/` beside the store while the disk is full, and when it no longer is.
fn fill(spool: &Spool, store: &Path) {
    let mut target = open_target(store);
    let mut ingestor = Ingestor::new(spool);
    let beside = store.parent().unwrap();
    let filler = beside.join("filler");
    let zeros = vec![0; 4096];
    let mut full = std::fs::File::create(&filler).unwrap();
    while full.write_all(&zeros).is_ok() {}
    drop(full);
    for batch in std::fs::read_dir(beside.join("waiting")).unwrap() {
        let batch = batch.unwrap();
        std::fs::rename(batch.path(), spool.path().join("incoming").join(batch.file_name())).unwrap();
    }
    let full = round(&mut ingestor, &mut target);
    say(format!("paused {}", full.paused.as_ref().map_or("not", |paused| &paused.why)));
    say(format!("applied {}, failed {}, backlog {}", full.applied.len(), full.failed.len(), full.backlog));
    std::fs::remove_file(&filler).unwrap();
    let (mut applied, mut failed) = (0, 0);
    let backlog = eventually_blocking(PATIENCE, "what waited to be done", || {
        let round = round(&mut ingestor, &mut target);
        applied += round.applied.len();
        failed += round.failed.len();
        if round.backlog == 0 { Ok(0) } else { Err(round.paused) }
    });
    say(format!("applied {applied}, failed {failed}, backlog {backlog}"));
}

#[expect(unsafe_code, reason = "what is tested is a fork")]
fn fork(spool: &Spool) {
    let producer = Producer::new(spool, "probe");
    producer.publish(&batch(&["parent 1"]), "ndjson").unwrap();
    let parent = producer.instance();
    // SAFETY: nothing else runs in this process but the harness's main thread, which waits; the child publishes, and
    // ends without running anything else.
    match unsafe { nix::unistd::fork() }.unwrap() {
        nix::unistd::ForkResult::Child => {
            let published = producer.publish(&batch(&["child 1"]), "ndjson");
            let good = published.is_ok_and(|name| name.seq() == 1 && name.instance() != parent);
            drop(producer);
            // SAFETY: ends the process without running the harness's exit handlers.
            unsafe { nix::libc::_exit(i32::from(!good)) }
        }
        nix::unistd::ForkResult::Parent { child } => {
            let ended = nix::sys::wait::waitpid(child, None).unwrap();
            let good = matches!(ended, nix::sys::wait::WaitStatus::Exited(_, 0));
            say(if good { "child good" } else { "child bad" });
        }
    }
    let name = producer.publish(&batch(&["parent 2"]), "ndjson").unwrap();
    assert_eq!(name.instance(), parent);
    say(format!("parent {}", name.seq()));
    // The child, which ended, left its parent's presence alone.
    say(format!("presence {}", spool.path().join("tmp").join(format!("{parent}.alive")).exists()));
}

fn say(answer: impl Display) {
    // Not by a macro, whose output the harness keeps for itself; and on a line of its own.
    let mut out = std::io::stdout().lock();
    write!(out, "\n{MARK}{answer}\n").unwrap();
    out.flush().unwrap();
}
