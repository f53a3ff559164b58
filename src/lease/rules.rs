//! The rules of the protocol that were each found to cause an overlap, a lost lease or an orphan when left
//! out. All hold, always; the simulation switches one off at a time to show that it would notice.

/// One rule that the engine keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A writer's document is durable before it looks for an fsck, not after.
    InsertThenCheck,
    /// A grant counts from before the registration was sent, and is none once that deadline has passed.
    GrantBeforeDeadline,
    /// All writes of one acquisition go through one session.
    OneSession,
    /// An fsck is granted by a conditional write of its phase.
    ConditionalGrant,
    /// A drain waits only for the writers of its first look.
    FirstLook,
    /// A lease is dead only after its pulse stood still for its whole stale age.
    WholeWatch,
    /// What is removed as dead is removed on condition of the pulse that was watched.
    ExactPulse,
    /// Only a matched update is a renewal.
    OnlyMatched,
    /// An expired writer goes through the handshake again.
    Revalidate,
    /// A peer's lease is taken only on a person's word.
    SparePeers,
    /// Every fsck sweeps the fence documents of others before its grant.
    SweepFences,
    /// A write counts as done only when no fail-over can take it back: confirmed by a majority, in the journal. The
    /// backend keeps it; here it is the simulated server that breaks it.
    #[cfg(test)]
    Majority,
    /// Every value from outside goes into a pipeline as it is, and is not evaluated. The backend keeps it.
    #[cfg(test)]
    Literal,
    /// An install takes no document that has no owner. The backend keeps it.
    #[cfg(test)]
    MalformedStays,
    /// An install writes a heartbeat at once, as a null one is stale to a peer. The backend keeps it.
    #[cfg(test)]
    NeverNull,
    /// Beside a peer that judges everybody by eight seconds nobody trusts a longer stale age. Kept when a
    /// coordinator connects; here it is the simulated deployment that breaks it.
    #[cfg(test)]
    PeerStaleAge,
}

/// The rules in force.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rules {
    #[cfg(test)]
    broken: Option<Rule>,
}

impl Rules {
    /// All rules but one.
    #[cfg(test)]
    pub(crate) fn without(rule: Rule) -> Rules {
        Rules { broken: Some(rule) }
    }

    #[cfg(test)]
    pub(crate) fn all_hold(self) -> bool {
        self.broken.is_none()
    }

    /// Whether a rule is in force; in a program always.
    pub(crate) fn hold(self, rule: Rule) -> bool {
        #[cfg(test)]
        {
            self.broken != Some(rule)
        }
        #[cfg(not(test))]
        {
            let _ = rule;
            true
        }
    }
}
