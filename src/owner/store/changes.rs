//! Waiting for news of a store: for whoever follows a stream.

use std::path::Path;
use std::time::Duration;

use tokio::sync::watch;

use crate::backend::local::modified::modified;
use crate::clock::{SystemClock, within};

/// The longest wait: events may be missed, and there may be none to be had.
const POLL: Duration = Duration::from_secs(1);
/// What SQLite keeps beside a file that it writes.
const LOG: &str = "-wal";

/// Tells that a store may have changed: soon after its owner has written, and at least every second.
///
/// What changed it does not say, nor whether anything did.
#[derive(Debug)]
pub struct Changes {
    told: Option<watch::Receiver<()>>,
}

impl Changes {
    /// Watches from now on.
    pub(super) fn of(file: &Path) -> Changes {
        let names = file.file_name().map(|name| {
            let mut log = name.to_owned();
            log.push(LOG);
            vec![name.to_owned(), log]
        });
        let watched = names.map(|names| modified(file.parent().unwrap_or(Path::new("/")), names));
        let told = match watched {
            Some(Ok(told)) => Some(told),
            Some(Err(error)) => {
                tracing::debug!(%error, "no directory events; only polling tells of changes");
                None
            }
            None => None,
        };
        Changes { told }
    }

    /// Completes when something may have changed since the last time, or since the watch began.
    ///
    /// # Cancellation
    ///
    /// May be dropped and called again: nothing is lost.
    pub async fn next(&mut self) {
        let told = self.told.as_mut();
        let change = async {
            match told {
                Some(told) => told.changed().await.is_ok(),
                None => std::future::pending().await,
            }
        };
        if within(&SystemClock, POLL, change).await == Some(false) {
            // The directory went.
            self.told = None;
        }
    }
}
