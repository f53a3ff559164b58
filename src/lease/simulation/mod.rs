//! Seeded schedules of writers, fscks, clearers, peers, crashes, pauses, lost replies, late statements and
//! clock jumps, on the memory backend under a manual clock.
//!
//! Each node is a coordinator of its own that is polled by hand, so a schedule is a sequence of choices of
//! one generator: the same seed gives the same run. A checker that knows only who could act when looks for an
//! overlap. Switching one rule of the protocol off must make it find one.
//!
//! To see one schedule again: `LOCKHOUSE_SIMULATION_SEED=N cargo test --lib simulation`.

mod actors;
mod checker;
mod foreign;
mod link;
mod node;
mod plan;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::lease::rules::{Rule, Rules};
use checker::Violation;
use plan::Plan;
use world::World;

/// How many schedules the whole search runs.
fn schedules() -> u64 {
    let set = std::env::var("LOCKHOUSE_SIMULATION_SCHEDULES").ok();
    set.map_or(200, |n| n.parse().expect("LOCKHOUSE_SIMULATION_SCHEDULES is a number"))
}

/// Panics in any task. Tasks swallow their panics, and a simulation must not.
static PANICS: AtomicU64 = AtomicU64::new(0);

fn count_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            hook(info);
        }));
    });
}

fn run(seed: u64, rules: Rules, plan: &Plan) -> Result<checker::Tally, Violation> {
    World::new(seed, rules, plan).run()
}

/// Runs seeds on every core until one shows a violation that `wanted` accepts.
fn search(
    seeds: std::ops::Range<u64>,
    rules: Rules,
    plan: &Plan,
    wanted: fn(&Violation) -> bool,
) -> (checker::Tally, Option<(u64, Violation)>) {
    count_panics();
    let next = AtomicU64::new(seeds.start);
    let found = std::sync::Mutex::new(None);
    let total = std::sync::Mutex::new(checker::Tally::default());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while found.lock().unwrap().is_none() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    match run(seed, rules, plan) {
                        Ok(tally) => total.lock().unwrap().add(&tally),
                        Err(violation) if wanted(&violation) => {
                            let mut found = found.lock().unwrap();
                            if found.as_ref().is_none_or(|(earlier, _)| seed < *earlier) {
                                *found = Some((seed, violation));
                            }
                        }
                        Err(_) => {}
                    }
                }
            });
        }
    });
    (total.into_inner().unwrap(), found.into_inner().unwrap())
}

#[test]
fn all_rules_on_show_no_overlap_no_orphan_and_no_living_lease_removed() {
    let plan = Plan::default();
    if let Ok(seed) = std::env::var("LOCKHOUSE_SIMULATION_SEED") {
        let seed = seed.parse().expect("LOCKHOUSE_SIMULATION_SEED is a number");
        let mut world = World::new(seed, Rules::default(), &plan);
        world.trace = true;
        let result = world.run();
        println!("{result:#?}");
        result.unwrap();
        return;
    }
    let (tally, found) = search(0..schedules(), Rules::default(), &plan, |_| true);
    println!("{tally:#?}");
    if let Some((seed, violation)) = found {
        panic!("seed {seed}: {violation}");
    }
    assert_eq!(PANICS.load(Ordering::Relaxed), 0, "something panicked");
    // A search in which nothing happens proves nothing.
    assert!(tally.writers_granted > schedules() && tally.fscks_granted > schedules() / 2, "{tally:?}");
    assert!(tally.leases_removed > 0 && tally.losses > 0 && tally.recoveries > 0, "{tally:?}");
}

#[test]
fn a_malformed_fsck_document_is_in_everybodys_way() {
    let (tally, found) = search(0..schedules(), Rules::default(), &Plan::with_strangers(), |_| true);
    if let Some((seed, violation)) = found {
        panic!("seed {seed}: {violation}");
    }
    assert!(tally.writers_granted > 0 && tally.fscks_granted > 0, "{tally:?}");
}

#[test]
fn a_peer_that_clears_takes_no_young_lease() {
    let (tally, found) = search(0..schedules(), Rules::default(), &Plan::with_peer_clearers(), |_| true);
    if let Some((seed, violation)) = found {
        panic!("seed {seed}: {violation}");
    }
    assert!(tally.fscks_granted > 0 && tally.leases_removed > 0, "{tally:?}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..20 {
        let plan = Plan::default();
        let first = World::new(seed, Rules::default(), &plan).run_to_history();
        let second = World::new(seed, Rules::default(), &plan).run_to_history();
        assert!(!first.is_empty());
        assert_eq!(first, second, "seed {seed}");
    }
}

/// Without the rule the search must find what the rule is there to prevent.
#[track_caller]
fn finds(wanted: fn(&Violation) -> bool, rule: Rule, plan: &Plan) {
    const SEEDS: u64 = 40_000;
    let (_, found) = search(0..SEEDS, Rules::without(rule), plan, wanted);
    let (seed, violation) = found.unwrap_or_else(|| panic!("nothing in {SEEDS} schedules without {rule:?}"));
    println!("{rule:?} off, seed {seed}: {violation}");
    if let Err(violation) = run(seed, Rules::default(), plan) {
        panic!("the same schedule with the rule on: {violation}");
    }
}

macro_rules! switched_off {
    ($($name:ident: $rule:ident, $plan:expr, $wanted:expr;)*) => {
        $(#[test]
        #[cfg_attr(debug_assertions, ignore = "a long search: scripts/test runs it optimised")]
        fn $name() {
            finds($wanted, Rule::$rule, &$plan);
        })*
    };
}

switched_off! {
    check_then_insert_overlaps: InsertThenCheck, Plan::default(), Violation::is_overlap;
    a_grant_past_its_deadline_overlaps: GrantBeforeDeadline, Plan::slow(), Violation::is_overlap;
    a_late_statement_of_another_session_leaves_an_orphan: OneSession, Plan::late(), Violation::is_orphan;
    a_grant_without_a_conditional_write_overlaps: ConditionalGrant, Plan::frozen(), Violation::is_overlap;
    a_shorter_watch_overlaps: WholeWatch, Plan::jumpy(), Violation::is_overlap;
    a_removal_of_another_pulse_overlaps: ExactPulse, Plan::jumpy(), Violation::is_overlap;
    a_read_taken_for_a_renewal_overlaps: OnlyMatched, Plan::deafened(), Violation::is_overlap;
    an_expired_writer_that_does_not_look_again_overlaps: Revalidate, Plan::with_peer_fscks(), Violation::is_overlap;
    a_peer_taken_for_dead_overlaps: SparePeers, Plan::with_peers(), Violation::is_overlap;
    a_write_that_a_fail_over_takes_back_overlaps: Majority, Plan::failing_over(), Violation::is_overlap;
    a_longer_stale_age_beside_a_peer_overlaps: PeerStaleAge, Plan::with_peer_fscks(), Violation::is_overlap;
    a_text_that_is_evaluated_is_refused_or_another: Literal, Plan::default(), Violation::is_misread;
    an_install_over_a_malformed_document_overlaps: MalformedStays, Plan::with_strangers(), Violation::is_overlap;
    a_null_heartbeat_is_stale_to_a_peer_at_once: NeverNull, Plan::with_peer_clearers(), Violation::is_taken_young;
    a_fence_that_was_not_swept_overlaps: SweepFences, Plan::with_fences(), Violation::is_overlap;
}

#[test]
#[cfg_attr(debug_assertions, ignore = "a long search: scripts/test runs it optimised")]
fn no_orphan_and_no_overlap_on_a_store_that_cannot_refuse_late_statements() {
    // What comes late may stand in its own process's way until it is deleted once more: that is no harm, and rare.
    let harmful = |violation: &Violation| !violation.is_in_own_way();
    let (tally, found) = search(0..schedules() / 4, Rules::default(), &Plan::standalone(), harmful);
    if let Some((seed, violation)) = found {
        panic!("seed {seed}: {violation}");
    }
    println!("{tally:#?}");
}

/// Also on a store where what was given back may still come, and stands until it is deleted once more.
#[test]
fn nobody_is_refused_because_of_what_he_is_giving_back() {
    const SEEDS: u64 = 500;
    for plan in [Plan::tardy(), Plan { standalone: true, ..Plan::tardy() }] {
        let (tally, found) = search(0..SEEDS, Rules::default(), &plan, |_| true);
        if let Some((seed, violation)) = found {
            panic!("seed {seed}: {violation}");
        }
        assert!(tally.fscks_granted > SEEDS, "{tally:?}");
    }
}

#[test]
fn polling_writers_do_not_starve_an_fsck() {
    let plan = Plan::crowd(60, Duration::from_millis(20));
    let granted = |rules| World::new(7, rules, &plan).run().unwrap().fscks_granted;
    assert!(granted(Rules::default()) > 0, "the fsck was starved");
    assert_eq!(granted(Rules::without(Rule::FirstLook)), 0, "waiting for late-comers too should have starved it");
}
