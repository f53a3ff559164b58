//! What else may be in the place of a store's files: everything is refused or shown, nothing is believed.

use std::os::unix::fs::{PermissionsExt, chown, symlink};

use super::store::{Running, Store, UNTIL_EOF, with_mounts};

#[test]
fn garbage_in_a_presence_file_is_a_dead_holder_and_in_a_locked_one_a_living_one() {
    let store = Store::new();
    for content in ["", "null", "[1, 2]", "{\"version\": 99}", "\u{0}\u{1}garbage"] {
        std::fs::write(store.leases("writers/garbage.json"), content).unwrap();
        std::fs::write(store.leases("fsck.json"), content).unwrap();
        assert_eq!(store.status()["state"], "open");
        store.run(["run", "--", "true"]).assert(0);
        store.run(["fsck", "--", "true"]).assert(0);
    }
    std::fs::write(store.leases("writers/garbage.json"), "null").unwrap();
    let held = std::fs::File::open(store.leases("writers/garbage.json")).unwrap();
    held.lock().unwrap();
    assert_eq!(store.status()["writers"].as_array().unwrap().len(), 1);
    store.run(["fsck", "--drain-budget", "100ms", "--", "true"]).assert(76).says("unknown holder");
    drop(held);
    store.run(["prune"]).assert(0).out_says("removed: ");
    store.run(["prune"]).assert(0).out_says("nothing to do");
    store.run(["fsck", "--", "true"]).assert(0);
}

#[test]
fn what_cannot_be_a_lease_blocks_until_somebody_clears_it() {
    let store = Store::new();
    for (name, clear) in [("fsck.json", "clear"), ("writers/x.json", "prune")] {
        for make in ["fifo", "directory", "link"] {
            let path = store.leases(name);
            match make {
                "fifo" => nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap(),
                "directory" => std::fs::create_dir(&path).unwrap(),
                _ => symlink("/nowhere", &path).unwrap(),
            }
            store.run(["status"]).assert(81).out_says("malformed");
            let blocked = if name == "fsck.json" { ["run", "--", "true"] } else { ["fsck", "--", "true"] };
            store.run(blocked).assert(75);
            store.run([clear]).assert(0).out_says("removed");
            store.run(blocked).assert(0);
        }
    }
}

#[test]
fn links_and_strangers_in_the_place_of_elections_are_refused() {
    let store = Store::new();
    let lock = store.leases("fsck.lock");
    let elsewhere = store.directory().join("elsewhere");
    std::fs::write(&elsewhere, "").unwrap();
    std::fs::remove_file(&lock).unwrap();
    symlink(&elsewhere, &lock).unwrap();
    store.run(["fsck", "--", "true"]).assert(78).says("link");
    std::fs::remove_file(&lock).unwrap();
    nix::unistd::mkfifo(&lock, nix::sys::stat::Mode::S_IRWXU).unwrap();
    store.run(["fsck", "--", "true"]).assert(78).says("no regular file");
    std::fs::remove_file(&lock).unwrap();
    store.run(["fsck", "--", "true"]).assert(0);
}

#[test]
fn a_damaged_layout_is_no_layout() {
    let store = Store::new();
    for content in ["", "null", "{\"store_id\": 7}", "{\"store_id\": \"x\", \"generation\": \"1\"}"] {
        std::fs::write(store.leases("layout.json"), content).unwrap();
        store.run(["run", "--", "true"]).assert(78).says("lockhouse init");
        store.run(["status"]).assert(81).out_says("no layout");
    }
}

#[test]
fn files_are_private_whatever_the_umask() {
    let store = Store::bare();
    for umask in ["000", "077", "777"] {
        let path = store.directory().join(format!("s{umask}"));
        let script = format!(
            r#"umask {umask}; "$0" init && exec "$0" run -- sh -c 'stat -c "%a %n" "$1".leases "$1".leases/* "$1".leases/writers/*' sh "$1""#
        );
        let mut command = super::store::program::<&str>([]);
        command = {
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", &script, env!("CARGO_BIN_EXE_lockhouse")]).arg(&path).env("LOCKHOUSE_STORE", &path);
            drop(command);
            shell
        };
        let done = Running::start(command).finish().assert(0);
        let modes: Vec<&str> = done.out.lines().filter(|line| line.contains(".leases")).collect();
        assert!(modes.len() >= 5, "{done:?}");
        for line in modes {
            let wanted = if line.ends_with(".leases") || line.ends_with("writers") { "700 " } else { "600 " };
            assert!(line.starts_with(wanted), "umask {umask}: {line}");
        }
    }
}

/// Only root can give a file away, and only then is there something to test.
#[test]
fn a_store_of_another_user_is_denied_to_root_too() {
    let store = Store::new();
    if rustix::process::geteuid().is_root() {
        chown(store.leases(""), Some(4242), None).unwrap();
        for args in [vec!["status"], vec!["run", "--", "true"], vec!["fsck", "--", "true"], vec!["prune"]] {
            store.run(args).assert(77).says("uid 4242").says("run as that user");
        }
    } else {
        // Root's own files are another user's to us: none of them is believed.
        std::fs::remove_file(store.leases("layout.json")).unwrap();
        symlink("/etc/passwd", store.leases("layout.json")).unwrap();
        store.run(["run", "--", "true"]).assert(78);
    }
}

#[test]
fn a_file_system_that_cannot_be_written_is_denied() {
    let store = Store::new();
    let script = r#"
        mount --bind "$D" "$D"; mount -o remount,bind,ro "$D"
        "$LOCKHOUSE" status --store "$D/store"
        for verb in run fsck; do "$LOCKHOUSE" $verb --store "$D/store" -- true || echo "$verb $?"; done
    "#;
    let done = with_mounts(script, &store).assert(0).says("Read-only");
    assert!(done.out.contains("run 77") && done.out.contains("fsck 77"), "{done:?}");
}

#[test]
fn a_directory_without_rights_is_denied() {
    let store = Store::new();
    let script = r#"
        chmod 500 "$D/store.leases" "$D/store.leases/writers"
        drop="setpriv --bounding-set -all --inh-caps -all"
        for verb in run fsck; do $drop "$LOCKHOUSE" $verb --store "$D/store" -- true || echo "$verb $?"; done
        chmod 700 "$D/store.leases" "$D/store.leases/writers"
    "#;
    let done = with_mounts(script, &store).assert(0);
    assert!(done.out.contains("run 77"), "{done:?}");
}

#[test]
fn a_full_disk_is_said_and_grants_nothing() {
    let store = Store::bare();
    let script = r#"
        mkdir "$D/small"; mount -t tmpfs -o size=64k,nr_inodes=64,mode=700 none "$D/small"
        "$LOCKHOUSE" init --store "$D/small/store"
        head -c 1m /dev/zero > "$D/small/filler" || true
        for verb in run fsck; do "$LOCKHOUSE" $verb --store "$D/small/store" -- echo granted || echo "$verb $?"; done
        ls -A "$D/small/store.leases/writers"
        rm "$D/small/filler"
        "$LOCKHOUSE" fsck --store "$D/small/store" -- echo fine
    "#;
    let done = with_mounts(script, &store).assert(0).says("make room on the disk");
    assert_eq!(done.out.lines().skip(1).collect::<Vec<_>>(), ["run 69", "fsck 69", "fine"], "{done:?}");
}

#[test]
fn without_inotify_waiting_goes_on_by_polling() {
    let store = Store::new();
    // Instances are counted for each user of a user namespace: none is left in this one.
    let script = r#"
        echo 0 > /proc/sys/user/max_inotify_instances
        "$LOCKHOUSE" run --store "$D/store" -- sh -c 'echo started; sleep 0.5' &
        sleep 0.2
        "$LOCKHOUSE" fsck --store "$D/store" --wait 5s -- echo alone
        wait
    "#;
    let mut command = std::process::Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-euc", script]);
    command.env("LOCKHOUSE", env!("CARGO_BIN_EXE_lockhouse")).env("D", store.directory()).env_remove("LOCKHOUSE_STORE");
    let done = Running::start(command).finish().assert(0);
    assert_eq!(done.out.lines().collect::<Vec<_>>(), ["started", "alone"], "{done:?}");
}

#[test]
fn a_stranger_in_the_directory_of_writers_is_passed_over() {
    let store = Store::new();
    std::fs::write(store.leases("writers/README"), "not a lease").unwrap();
    std::fs::set_permissions(store.leases("writers/README"), std::fs::Permissions::from_mode(0o000)).unwrap();
    let writer = store.wrapped(&["run"], UNTIL_EOF);
    assert_eq!(store.status()["writers"].as_array().unwrap().len(), 1);
    writer.finish().assert(0);
    store.run(["fsck", "--", "true"]).assert(0);
}

/// Lists what is an owner's own, or on its way to being that: P.lock and the layout stay, nothing else.
const LEFT: &str = r#"find "$D" -name '*owner.json*' -o -name '*sock' -o -name '*.new' -o -name '*.tmp' -o -path '*/writers/*'; echo listed"#;

#[test]
fn an_owner_is_refused_on_a_full_disk_and_leaves_nothing() {
    let store = Store::bare();
    let script = format!(
        r#"
        mkdir "$D/small"; mount -t tmpfs -o size=64k,nr_inodes=64,mode=700 none "$D/small"
        export LOCKHOUSE_STORE="$D/small/store"
        "$LOCKHOUSE" init
        head -c 1m /dev/zero > "$D/small/filler" || true
        "$LOCKHOUSE" owner hold -- echo granted || echo "hold $?"
        "$LOCKHOUSE" owner status
        {LEFT}
        rm "$D/small/filler"
        "$LOCKHOUSE" owner hold -- echo fine
    "#
    );
    let done = with_mounts(&script, &store).assert(0).says("make room on the disk");
    let lines: Vec<_> = done.out.lines().skip(1).collect();
    let [hold, status, listed, fine] = lines[..] else { panic!("{done:?}") };
    assert!(status.ends_with("no owner"), "{done:?}");
    assert_eq!([hold, listed, fine], ["hold 69", "listed", "fine"], "{done:?}");
}

#[test]
fn an_owner_is_refused_where_nothing_can_be_written_and_leaves_nothing() {
    for made in [true, false] {
        let store = if made { Store::new() } else { Store::bare() };
        let script = format!(
            r#"
            mkdir -p "$D/store.leases/writers"
            mount --bind "$D" "$D"; mount -o remount,bind,ro "$D"
            export LOCKHOUSE_STORE="$D/store"
            "$LOCKHOUSE" owner hold -- echo granted || echo "hold $?"
            {LEFT}
        "#
        );
        let done = with_mounts(&script, &store).assert(0).says("Read-only");
        assert_eq!(done.out.lines().collect::<Vec<_>>(), ["hold 77", "listed"], "{done:?}");
    }
}
