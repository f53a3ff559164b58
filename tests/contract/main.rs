//! One suite for every backend, through the public API: what a user of lockhouse may rely on whatever
//! keeps the leases. Each promise is a function that is run on each kind of store.

#[path = "../support/mod.rs"]
mod support;

mod acquiring;
mod clearing;
mod gating;
mod holding;
mod leaving;
mod looking;
mod measuring;
mod store;

/// Makes a test of every named promise for every kind of store; those behind `aging` only for the kinds that know
/// their holders by the age of heartbeats. What a store does instead that knows who lives is in `tests/local`.
macro_rules! contract {
    ($module:ident: $($promise:ident),*; aging: $($aging:ident),*;) => {
        mod $module {
            mod memory {
                contract!(@tests $module memory: $($promise)* $($aging)*);
            }

            #[cfg(feature = "local")]
            mod local {
                contract!(@tests $module local: $($promise)*);
            }

            #[cfg(feature = "mongo")]
            mod replica_set {
                contract!(@tests $module replica_set: $($promise)* $($aging)*);
            }

            #[cfg(feature = "mongo")]
            mod standalone {
                contract!(@tests $module standalone: $($promise)* $($aging)*);
            }
        }
    };
    (@tests $module:ident $store:ident: $($promise:ident)*) => {
        $(#[tokio::test]
        async fn $promise() {
            crate::$module::$promise(crate::store::Store::$store()).await;
        })*
    };
}

mod on {
    contract!(
        acquiring:
        writers_share_the_store,
        an_fsck_is_alone_and_its_refusals_name_it,
        a_generation_is_raised_or_left,
        a_wait_is_bounded_in_all_and_names_the_holder,
        a_waiter_gets_in_when_the_store_is_free,
        a_waiting_writer_registers_only_when_it_saw_no_fsck,
        a_spent_drain_budget_names_who_was_left_and_frees_the_store,
        progress_tells_who_is_waited_for,
        a_coordinator_does_not_wait_for_itself,
        fscks_that_follow_one_another_let_writers_in,
        bad_requests_are_invalid;
        aging:
        stale_writers_end_a_drain_unless_somebody_said_that_they_are_dead,
        a_dead_fsck_is_replaced_by_force_and_a_fresh_one_is_not;
    );

    contract!(
        holding: ;
        aging:
        a_heartbeat_is_refreshed_when_it_is_due_or_forced,
        a_lease_lives_on_by_itself,
        a_holder_hears_of_its_loss_in_every_way,
        a_displaced_holder_touches_nobody_elses_document,
        events_come_in_order,
        the_deadline_comes_before_the_stale_age,
        a_lease_that_was_cut_off_comes_back_unless_somebody_came_in_between;
    );

    contract!(
        gating:
        all_writes_of_a_process_share_one_lease,
        a_gate_closes_for_an_fsck_and_opens_after_it,
        a_gate_can_be_told_to_fail,
        an_entry_waits_no_longer_than_it_was_told,
        an_idle_gate_gives_its_lease_back,
        a_gate_goes_with_its_last_handle,
        an_entry_that_nobody_waits_for_leaves_nothing,
        an_entry_hears_why_there_can_be_no_lease,
        nobody_is_inside_while_an_fsck_is_alone;
        aging:
        a_gate_that_is_cut_off_closes_and_opens_anew;
    );

    contract!(
        leaving:
        a_release_is_confirmed_and_a_drop_is_one_too,
        a_shutdown_gives_everything_back,
        a_shutdown_withdraws_what_is_being_acquired,
        the_last_coordinator_may_go_inside_an_async_context,
        an_acquisition_that_nobody_waits_for_leaves_nothing;
        aging: ;
    );

    contract!(
        clearing:
        with_nothing_there_nothing_is_cleared,
        what_is_fresh_is_spared;
        aging:
        what_is_dead_goes_after_its_whole_stale_age,
        what_moves_while_it_is_watched_is_spared,
        only_what_was_named_is_cleared,
        a_dry_run_changes_nothing;
    );

    contract!(
        looking:
        looking_changes_nothing;
        aging:
        a_status_shows_everything,
        the_history_tells_what_was_done;
    );

    contract!(
        measuring:
        an_acquisition_that_nobody_waits_for_is_counted_as_withdrawn,
        the_entries_of_gates_are_counted,
        an_ended_coordinator_shows_no_sign_of_life;
        aging:
        acquisitions_and_leases_are_counted,
        what_fails_and_what_is_lost_is_counted;
    );
}
