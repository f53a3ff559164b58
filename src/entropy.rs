//! The only place that draws random numbers: names of acquisitions and the jitter of pollers.

use std::cell::RefCell;
use std::time::Duration;

use uuid::Uuid;

/// Where an engine's random numbers come from.
#[derive(Debug)]
pub(crate) struct Entropy {
    jitter: RefCell<fastrand::Rng>,
    names: Names,
}

#[derive(Debug)]
enum Names {
    /// 122 random bits of the operating system for each name: unique across forks and machine images.
    System,
    /// From the jitter's generator: the same seed gives the same run.
    #[cfg(test)]
    Seeded,
}

impl Entropy {
    #[expect(clippy::disallowed_methods, reason = "the one home of chance")]
    pub(crate) fn system() -> Entropy {
        Entropy { jitter: RefCell::new(fastrand::Rng::new()), names: Names::System }
    }

    #[cfg(test)]
    pub(crate) fn seeded(seed: u64) -> Entropy {
        Entropy { jitter: RefCell::new(fastrand::Rng::with_seed(seed)), names: Names::Seeded }
    }

    /// A name that no other acquisition has.
    pub(crate) fn name(&self) -> Uuid {
        match self.names {
            Names::System => unique(),
            #[cfg(test)]
            Names::Seeded => {
                uuid::Builder::from_random_bytes(self.jitter.borrow_mut().u128(..).to_le_bytes()).into_uuid()
            }
        }
    }

    /// A duration between `share` of `whole` and `whole`.
    pub(crate) fn jitter(&self, whole: Duration, share: f64) -> Duration {
        whole.mul_f64(share + (1.0 - share) * self.jitter.borrow_mut().f64())
    }
}

/// A name that nothing else has: 122 random bits of the operating system.
#[expect(clippy::disallowed_methods, reason = "the one home of names")]
pub(crate) fn unique() -> Uuid {
    Uuid::new_v4()
}
