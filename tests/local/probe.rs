//! The process that is stopped: takes leases as it is told, and refreshes them so rarely that whatever it notices it was
//! told of.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt;
use lockhouse::{Coordinator, Event, GateOptions, LeaseTiming};

pub(crate) use super::support::probe::Probe;
use super::support::probe::{own_binary, say};

const STORE: &str = "LOCKHOUSE_LOCAL_PROBE";
const POLL: &str = "LOCKHOUSE_LOCAL_PROBE_POLL_MS";
/// Longer than anybody waits here.
pub(crate) const NEVER: Duration = Duration::from_secs(600);

impl Probe {
    /// One that is told `writer` or `fsck` and answers `waiting`, if it has to wait behind an fsck, and `granted`; then
    /// `release`; or `gate`, and answers when it was in and out again.
    ///
    /// `poll` is how soon it looks again at first, after that ever more rarely.
    pub(crate) fn on(store: &Path, poll: Duration) -> Probe {
        let mut command = own_binary();
        command.env(STORE, store).env(POLL, poll.as_millis().to_string());
        let probe = Probe::by(command);
        assert_eq!(probe.answer(), "ready");
        probe
    }
}

/// Not a test by itself: what a started probe does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probe() {
    let Some(store) = std::env::var_os(STORE).map(PathBuf::from) else { return };
    let poll_initial = Duration::from_millis(std::env::var(POLL).unwrap().parse().unwrap());
    let timing = LeaseTiming { refresh_interval: NEVER, stale_multiplier: 4, poll_initial, poll_max: NEVER };
    let builder = Coordinator::builder(store.to_str().unwrap()).unwrap().timing(timing);
    let coordinator = builder.connect().await.unwrap();
    let mut events = coordinator.events();
    tokio::spawn(async move {
        while let Some(event) = events.next().await {
            if let Event::Waiting { .. } = event {
                say("waiting");
            }
        }
    });
    let gate = coordinator.gate(GateOptions::default());
    let (mut writer, mut fsck) = (None, None);
    say("ready");
    for order in std::io::stdin().lines().map_while(Result::ok) {
        match order.as_str() {
            "writer" => writer = Some(coordinator.acquire_writer().wait(NEVER).await.unwrap()),
            "fsck" => fsck = Some(coordinator.acquire_fsck().drain_budget(NEVER).await.unwrap()),
            "gate" => drop(gate.enter().await.unwrap()),
            "release" => {
                if let Some(lease) = writer.take() {
                    lease.release().await.unwrap();
                }
                if let Some(lease) = fsck.take() {
                    lease.release().await.unwrap();
                }
            }
            other => panic!("unknown order: {other}"),
        }
        say(match order.as_str() {
            "gate" => "in",
            "release" => "released",
            _ => "granted",
        });
    }
}
