//! What a schedule is drawn from: who takes part, how bad the network is, and what befalls them.

use std::time::Duration;

use crate::lease::simulation::link::{Happening, Weather};

/// What a schedule is drawn from.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) writers: std::ops::RangeInclusive<usize>,
    pub(crate) fscks: std::ops::RangeInclusive<usize>,
    pub(crate) clearers: usize,
    pub(crate) peers: usize,
    /// Peers' fscks, whose force passes over stale writers and leaves their documents.
    pub(crate) peer_fscks: usize,
    /// Peers that clear the fsck lease without watching it.
    pub(crate) peer_clearers: usize,
    /// Fscks of others whose document has no owner.
    pub(crate) strangers: usize,
    pub(crate) fences: bool,
    /// Parts per thousand.
    pub(crate) weather: Weather,
    pub(crate) crashes: usize,
    pub(crate) pauses: usize,
    pub(crate) longest_pause: Duration,
    pub(crate) cuts: usize,
    pub(crate) jumps: usize,
    pub(crate) fail_overs: usize,
    /// Times in which a node's refreshes get lost and nothing else.
    pub(crate) deaf: usize,
    /// Until when things go wrong.
    pub(crate) troubled: Duration,
    /// Writers poll this fast and hold for as long; `None`: they take their time.
    pub(crate) crowd: Option<Duration>,
    /// The store cannot refuse late statements of a session.
    pub(crate) standalone: bool,
}

pub(crate) const FAIR: Weather = Weather { lost_requests: 0, lost_replies: 0, slow: 0, late: 0, latest_ms: 0 };
const STORMY: Weather = Weather { late: 4, latest_ms: 25_000, ..FAIR };

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            writers: 1..=2,
            fscks: 1..=2,
            clearers: 1,
            peers: 0,
            peer_fscks: 0,
            peer_clearers: 0,
            strangers: 0,
            fences: false,
            weather: Weather { lost_requests: 10, lost_replies: 10, slow: 20, ..STORMY },
            crashes: 1,
            pauses: 3,
            longest_pause: Duration::from_secs(20),
            cuts: 4,
            jumps: 1,
            fail_overs: 0,
            deaf: 0,
            troubled: Duration::from_secs(45),
            crowd: None,
            standalone: false,
        }
    }
}

impl Plan {
    /// Answers that come after deadlines.
    pub(crate) fn slow() -> Plan {
        Plan { pauses: 6, cuts: 0, crashes: 0, ..Plan::default() }
    }

    /// Statements that arrive after their sender gave up.
    pub(crate) fn late() -> Plan {
        let weather = Weather { lost_requests: 5, lost_replies: 5, slow: 10, late: 60, ..STORMY };
        Plan { weather, crashes: 0, pauses: 0, cuts: 0, fscks: 2..=2, ..Plan::default() }
    }

    /// Fscks whose answers are slow or lost: what they give back meets what they try next.
    pub(crate) fn tardy() -> Plan {
        let weather = Weather { lost_replies: 200, slow: 400, ..FAIR };
        let calm = Plan { weather, crashes: 0, pauses: 0, cuts: 0, jumps: 0, ..Plan::default() };
        Plan { writers: 0..=0, fscks: 1..=1, clearers: 0, ..calm }
    }

    /// A server clock that steps under cut links.
    pub(crate) fn jumpy() -> Plan {
        let weather = Weather { slow: 40, ..FAIR };
        Plan { weather, jumps: 5, cuts: 5, pauses: 1, crashes: 0, ..Plan::default() }
    }

    /// Nodes that are stopped for long while answers are under way.
    pub(crate) fn frozen() -> Plan {
        let weather = Weather { slow: 300, ..FAIR };
        let calm = Plan { weather, crashes: 0, cuts: 0, jumps: 0, ..Plan::default() };
        let long = Duration::from_secs(60);
        Plan { writers: 1..=2, fscks: 1..=1, pauses: 12, longest_pause: long, troubled: 3 * long, ..calm }
    }

    /// Nodes whose refreshes alone get lost.
    pub(crate) fn deafened() -> Plan {
        Plan { weather: FAIR, deaf: 5, crashes: 0, cuts: 0, pauses: 0, jumps: 0, fscks: 2..=2, ..Plan::default() }
    }

    /// A peer whose force passes over stale writers. It judges by the server's clock alone, so that no clock
    /// may step.
    pub(crate) fn with_peer_fscks() -> Plan {
        let quiet = Plan { weather: FAIR, fscks: 0..=0, crashes: 0, cuts: 3, pauses: 6, jumps: 0, ..Plan::default() };
        Plan { peer_fscks: 1, clearers: 0, ..quiet }
    }

    /// A peer that clears, beside fscks that drain and at times are stopped until they look stale. It judges by the
    /// server's clock alone, so that no clock may step.
    pub(crate) fn with_peer_clearers() -> Plan {
        let quiet = Plan { weather: FAIR, crashes: 0, cuts: 0, pauses: 6, jumps: 0, ..Plan::default() };
        Plan { peer_clearers: 1, clearers: 0, ..quiet }
    }

    /// An fsck of somebody else whose document has no owner. It holds for less than it takes to be called dead, which
    /// nothing may prolong.
    pub(crate) fn with_strangers() -> Plan {
        let calm = Plan { weather: FAIR, crashes: 0, pauses: 0, cuts: 0, jumps: 0, ..Plan::default() };
        Plan { strangers: 1, ..calm }
    }

    /// Statements that arrive late, at a store that cannot refuse them, but within a stale age.
    pub(crate) fn standalone() -> Plan {
        let late = Plan::late();
        Plan { standalone: true, weather: Weather { latest_ms: 7_000, ..late.weather }, ..late }
    }

    /// Writers that never refresh, as a peer's may.
    pub(crate) fn with_peers() -> Plan {
        Plan { peers: 1, writers: 0..=1, ..Plan::default() }
    }

    /// Writers with open fenced transactions.
    pub(crate) fn with_fences() -> Plan {
        let weather = Weather { lost_requests: 100, lost_replies: 20, slow: 20, ..FAIR };
        Plan { fences: true, weather, writers: 1..=1, crashes: 0, cuts: 0, pauses: 8, ..Plan::default() }
    }

    /// A primary that is lost again and again, and nothing else that goes wrong.
    pub(crate) fn failing_over() -> Plan {
        let calm = Plan { weather: FAIR, crashes: 0, pauses: 0, cuts: 0, jumps: 0, ..Plan::default() };
        Plan { fail_overs: 12, ..calm }
    }

    /// Many writers that poll without pause, and nothing that goes wrong.
    pub(crate) fn crowd(writers: usize, pace: Duration) -> Plan {
        Plan {
            writers: writers..=writers,
            fscks: 1..=1,
            clearers: 0,
            weather: FAIR,
            crashes: 0,
            pauses: 0,
            cuts: 0,
            jumps: 0,
            troubled: Duration::from_secs(8),
            crowd: Some(pace),
            ..Plan::default()
        }
    }

    /// What befalls so many nodes, and when.
    pub(crate) fn troubles(&self, rng: &mut fastrand::Rng, nodes: usize) -> Vec<(Duration, Happening)> {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).expect("short");
        let (end, longest_pause) = (millis(self.troubled), millis(self.longest_pause));
        let mut troubles = Vec::new();
        for _ in 0..rng.usize(0..=self.crashes) {
            troubles.push((rng.u64(..end), Happening::Crash(rng.usize(..nodes))));
        }
        for _ in 0..rng.usize(0..=self.pauses) {
            let pause = Duration::from_millis(rng.u64(500..longest_pause));
            troubles.push((rng.u64(..end), Happening::Pause(rng.usize(..nodes), pause)));
        }
        for _ in 0..rng.usize(0..=self.cuts) {
            let cut = Duration::from_millis(rng.u64(500..15_000));
            troubles.push((rng.u64(..end), Happening::Cut(rng.usize(..nodes), cut)));
        }
        for _ in 0..rng.usize(0..=self.deaf) {
            let deaf = Duration::from_millis(rng.u64(12_000..30_000));
            troubles.push((rng.u64(..end), Happening::Deafen(rng.usize(..nodes), deaf)));
        }
        for _ in 0..rng.usize(0..=self.jumps) {
            let jump = [-3_600_000, -10_000, -5_000, 4_000, 6_000, 9_000, 12_000, 3_600_000];
            troubles.push((rng.u64(..end), Happening::Jump(jump[rng.usize(..jump.len())])));
        }
        for _ in 0..self.fail_overs {
            let lag = Duration::from_millis(rng.u64(1..2_000));
            troubles.push((rng.u64(..end), Happening::FailOver(lag)));
        }
        troubles.into_iter().map(|(at, trouble)| (Duration::from_millis(at), trouble)).collect()
    }
}
