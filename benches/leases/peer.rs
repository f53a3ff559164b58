//! httk-store from PyPI, with its own program beside this one.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

/// What it needed, in seconds.
#[derive(Debug, Deserialize)]
struct Seconds {
    writer: Vec<f64>,
    fsck: Vec<f64>,
    hand_over: Vec<f64>,
}

/// What httk-store needed.
pub(crate) struct Peer {
    pub(crate) writer: Vec<Duration>,
    pub(crate) fsck: Vec<Duration>,
    pub(crate) hand_over: Vec<Duration>,
}

/// Measures it on a database of its own; `None` without a Python that has it.
pub(crate) fn measure(uri: &str, database: &str, samples: usize, drains: usize) -> Option<Peer> {
    let python = std::env::var_os("LOCKHOUSE_TEST_PEER_PYTHON")?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/leases/peer.py");
    let (samples, drains) = (samples.to_string(), drains.to_string());
    let output = Command::new(python).arg(script).args([uri, database, &samples, &drains]).output().expect("Python");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let Seconds { writer, fsck, hand_over } = serde_json::from_slice(&output.stdout).expect("its samples");
    let durations = |seconds: Vec<f64>| seconds.into_iter().map(Duration::from_secs_f64).collect();
    Some(Peer { writer: durations(writer), fsck: durations(fsck), hand_over: durations(hand_over) })
}
