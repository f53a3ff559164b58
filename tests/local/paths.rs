//! Every way to a store leads to the same one, and what would be another store is refused.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::store::{Store, UNTIL_EOF, program, with_mounts};
use super::support::running::Running;

fn run_at(at: &Path, args: &[&str]) -> super::store::Finished {
    let mut command = program(args);
    command.arg("--store").arg(at);
    Running::start(command).finish()
}

#[test]
fn a_link_a_relative_path_and_a_url_lead_to_the_same_store() {
    let store = Store::new();
    std::fs::write(&store.at, "data").unwrap();
    let holder = store.wrapped(&["fsck"], UNTIL_EOF);
    let elsewhere = tempfile::tempdir().unwrap();
    symlink(&store.at, elsewhere.path().join("link")).unwrap();
    symlink(store.directory(), elsewhere.path().join("directory")).unwrap();
    run_at(&elsewhere.path().join("link"), &["status"]).assert(75);
    run_at(&elsewhere.path().join("directory/store"), &["status"]).assert(75);
    run_at(Path::new(&format!("file://{}", store.at.display())), &["status"]).assert(75);
    let mut relative = program(["status", "--store", "./sub/../store"]);
    std::fs::create_dir(store.directory().join("sub")).unwrap();
    Running::start({
        relative.current_dir(store.directory());
        relative
    })
    .finish()
    .assert(75);
    holder.finish().assert(0);
}

#[test]
fn a_bind_mount_of_the_directory_leads_to_the_same_store() {
    let store = Store::new();
    let script = r#"
        mkdir "$D/seen"; mkdir "$D/inner"
        "$LOCKHOUSE" init --store "$D/inner/store"
        mount --bind "$D/inner" "$D/seen"
        "$LOCKHOUSE" fsck --store "$D/inner/store" -- sh -c '"$LOCKHOUSE" status --store "$D/seen/store"; echo code $?'
    "#;
    let done = with_mounts(script, &store).assert(0);
    assert!(done.out.contains("exclusive") && done.out.contains("code 75"), "{done:?}");
}

#[test]
fn a_mount_point_is_refused() {
    let store = Store::bare();
    for (make, mount) in [
        (r#"echo data > "$D/store"; echo other > "$D/other""#, r#"mount --bind "$D/other" "$D/store""#),
        (r#"mkdir "$D/store""#, r#"mount -t tmpfs none "$D/store""#),
    ] {
        let script = format!(r#"rm -rf "$D/store"; {make}; {mount}; exec "$LOCKHOUSE" init --store "$D/store""#);
        with_mounts(&script, &store).assert(78).says("mount point").says("name a path inside it");
    }
}

#[test]
fn a_hard_link_and_a_dangling_link_are_refused() {
    let store = Store::bare();
    std::fs::write(&store.at, "data").unwrap();
    std::fs::hard_link(&store.at, store.directory().join("twin")).unwrap();
    store.run(["init"]).assert(78).says("2 links");
    let link = store.directory().join("link");
    symlink(store.directory().join("nowhere"), &link).unwrap();
    run_at(&link, &["init"]).assert(78).says("leads nowhere");
    run_at(&store.directory().join("no/such/store"), &["init"]).assert(78).says("its directory");
    run_at(Path::new("/"), &["init"]).assert(78).says("root directory");
    run_at(Path::new("/dev/null"), &["init"]).assert(78);
}

#[test]
fn a_name_may_have_200_bytes_and_a_directory_220() {
    let store = Store::bare();
    let deep = store.directory().join("d".repeat(220));
    std::fs::create_dir(&deep).unwrap();
    let longest = deep.join("s".repeat(200));
    run_at(&longest, &["init"]).assert(0);
    let mut command = program(["run", "--", "true"]);
    command.env("LOCKHOUSE_STORE", &longest);
    Running::start(command).finish().assert(0);
    run_at(&deep.join("s".repeat(201)), &["init"]).assert(78).says("at most 200");
}

#[test]
fn a_path_that_is_no_text_works_and_shows_in_json() {
    let store = Store::bare();
    let odd = store.directory().join(OsStr::from_bytes(b"caf\xe9"));
    run_at(&odd, &["init"]).assert(0);
    let status = run_at(&odd, &["status", "--json"]).assert(0).json();
    assert!(status["store"].as_str().unwrap().ends_with("caf\u{fffd}"), "{status}");
    // The base64 of the whole path ends with that of its last bytes, wherever the groups of three begin.
    let bytes = status["store_bytes"].as_str().unwrap();
    assert!(!bytes.is_empty() && store.run(["status", "--json"]).json().get("store_bytes").is_none());
    let mut command = program(["run", "--", "sh", "-c", r#"exec "$0" status"#, env!("CARGO_BIN_EXE_lockhouse")]);
    command.env("LOCKHOUSE_STORE", &odd);
    Running::start(command).finish().assert(0);
}

#[test]
fn a_directory_that_everybody_may_write_is_refused_unless_sticky() {
    let store = Store::bare();
    let mode = |mode| std::fs::set_permissions(store.directory(), std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o777);
    store.run(["init"]).assert(77).says("chmod o-w");
    mode(0o1777);
    store.run(["init"]).assert(0);
    mode(0o700);
}

#[test]
fn a_store_without_a_layout_is_refused_and_nothing_is_made() {
    let store = Store::bare();
    store.run(["run", "--", "true"]).assert(78).says("lockhouse init");
    store.run(["fsck", "--", "true"]).assert(78).says("lockhouse init");
    store.run(["status"]).assert(81);
    assert_eq!(std::fs::read_dir(store.directory()).unwrap().count(), 0);
    let made = store.run(["init", "--json"]).assert(0).json();
    let again = store.run(["init", "--json"]).assert(0).json();
    assert_eq!((&made["made"], &again["made"]), (&true.into(), &false.into()));
}

#[test]
fn an_unknown_file_system_has_to_be_allowed_by_name() {
    let store = Store::bare();
    let script = r#"
        mkdir "$D/box"; mount -t ramfs none "$D/box"; chmod 700 "$D/box"
        exec "$LOCKHOUSE" init --store "$D/box/store"
    "#;
    with_mounts(script, &store).assert(0);
    // Of the types that can be mounted anywhere, this one is not known to keep locks.
    let script = r#"
        mkdir "$D/cg"; mount -t cgroup2 none "$D/cg"
        exec "$LOCKHOUSE" init --store "$D/cg/store"
    "#;
    with_mounts(script, &store).assert(77).says("--allow-filesystem cgroup2").says("/cg");
}
