//! Files removed or replaced under a living holder: it stops at once and says so.

use std::path::Path;

use super::store::{FOR_LONG, Store};

/// A holder of `verb`, under which `tamper` is done: its command is ended, with the code of a lost lease.
#[track_caller]
fn is_told(verb: &str, tamper: impl FnOnce(&Store)) {
    let store = Store::new();
    let mut holder = store.wrapped(&[verb], FOR_LONG);
    tamper(&store);
    holder.until_err("lost");
    holder.finish().assert(80);
}

fn exchange(path: &Path) {
    let other = path.with_extension("other");
    std::fs::write(&other, std::fs::read(path).unwrap()).unwrap();
    std::fs::rename(&other, path).unwrap();
}

#[test]
fn a_writer_whose_file_is_removed() {
    is_told("run", |store| std::fs::remove_file(&store.writers()[0]).unwrap());
}

#[test]
fn a_writer_whose_file_is_replaced() {
    is_told("run", |store| exchange(&store.writers()[0]));
}

#[test]
fn a_writer_whose_directory_is_moved_away() {
    is_told("run", |store| std::fs::rename(store.leases("writers"), store.leases("elsewhere")).unwrap());
}

#[test]
fn a_writer_whose_store_is_moved_away() {
    is_told("run", |store| std::fs::rename(store.leases(""), store.directory().join("elsewhere")).unwrap());
}

#[test]
fn an_fsck_whose_election_is_removed() {
    is_told("fsck", |store| std::fs::remove_file(store.leases("fsck.lock")).unwrap());
}

#[test]
fn an_fsck_whose_election_is_replaced() {
    is_told("fsck", |store| exchange(&store.leases("fsck.lock")));
}

#[test]
fn an_fsck_whose_presence_is_removed() {
    is_told("fsck", |store| std::fs::remove_file(store.leases("fsck.json")).unwrap());
}

#[test]
fn an_fsck_whose_list_of_writers_is_replaced() {
    is_told("fsck", |store| {
        std::fs::rename(store.leases("writers"), store.leases("elsewhere")).unwrap();
        std::fs::create_dir(store.leases("writers")).unwrap();
    });
}

#[test]
fn an_fsck_whose_store_is_removed() {
    is_told("fsck", |store| std::fs::remove_dir_all(store.leases("")).unwrap());
}

#[test]
fn an_fsck_that_drains_a_store_that_is_removed_gives_up() {
    let store = Store::new();
    let writer = store.wrapped(&["run", "--on-lost", "warn"], FOR_LONG);
    let fsck = super::store::Running::start(store.command(["fsck", "--", "true"]));
    store.until("an fsck that drains", |status| status["state"] == "draining");
    std::fs::remove_dir_all(store.leases("")).unwrap();
    let code = fsck.finish().code;
    assert!([78, 80].contains(&code), "{code}");
    drop(writer);
}
