//! The wall clock of one server, shifted while it runs: the server is started under libfaketime,
//! which reads the offset from a file at every look at the clock. The monotonic clock stays true, so
//! that elections go on as usual.
//!
//! What a real server shares with this one: it measures `maxTimeMS` by the wall clock, so a statement that
//! runs across a shift forward has exceeded its limit at once. And a wait of the server's that began before
//! a shift may end that much too late. So shift while no statement is on its way, unless that is the point.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The handle with which a test shifts the clock.
#[derive(Debug)]
pub(crate) struct ServerClock {
    file: PathBuf,
}

impl ServerClock {
    /// Makes `command` start under a clock that is kept in `directory`, at first unshifted.
    ///
    /// # Panics
    ///
    /// When libfaketime is not installed.
    pub(crate) fn install(command: &mut Command, directory: &Path) -> Self {
        let clock = Self { file: directory.join("clock-offset") };
        clock.shift_seconds(0);
        command
            .env("LD_PRELOAD", library())
            .env("FAKETIME_TIMESTAMP_FILE", &clock.file)
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        clock
    }

    /// Sets the server's clock to so many seconds after (or before) the true time. Offsets do not add up:
    /// 0 is the true time again.
    pub(crate) fn shift_seconds(&self, seconds: i64) {
        // Renamed into place, because the server may read at any moment.
        let next = self.file.with_extension("next");
        std::fs::write(&next, format!("{seconds:+}s\n")).expect("write the clock's offset");
        std::fs::rename(&next, &self.file).expect("put the clock's offset in place");
    }
}

fn library() -> PathBuf {
    let candidates: Vec<PathBuf> = std::fs::read_dir("/usr/lib")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .chain([PathBuf::from("/usr/lib")])
        .map(|place| place.join("faketime/libfaketimeMT.so.1"))
        .collect();
    candidates.into_iter().find(|path| path.exists()).unwrap_or_else(|| {
        panic!(
            "no libfaketimeMT.so.1 under /usr/lib, which shifting a server's clock needs; \
             run scripts/test, which installs it, or type: apt-get install faketime"
        )
    })
}
