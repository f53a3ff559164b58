//! One store by many names, and long ones.

use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lockhouse::owner::{
    Candidate, Ownership, StatusOnly, Takeover, control_status, read_state, serve_control, socket_path, watch,
};

use crate::probe::Probe;
use crate::support::scratch::Scratch;
use crate::{PATIENCE, Store};

#[test]
fn a_link_and_a_relative_path_lead_to_the_same_owner() {
    let store = Store::new();
    fs::write(store.path(), "").unwrap();
    symlink(store.path(), store.beside(".link")).unwrap();
    let directory = Scratch::new("link");
    symlink(store.directory(), directory.path().join("d")).unwrap();
    let owner = Candidate::new(store.path(), "b").unwrap().elect().unwrap().unwrap();
    let from_here = |path: &Path| {
        let here = std::env::current_dir().unwrap();
        let up: PathBuf = here.components().skip(1).map(|_| "..").collect();
        up.join(path.strip_prefix("/").unwrap())
    };
    for way in [
        store.beside(".link"),
        directory.path().join("d/p"),
        directory.path().join("d/p.link"),
        from_here(&store.path()),
        store.directory().join("./x/../p"),
        store.directory().join(".").join("p"),
    ] {
        if way.components().any(|part| part.as_os_str() == "x") {
            fs::create_dir_all(store.directory().join("x")).unwrap();
        }
        assert!(Candidate::new(&way, "b").unwrap().elect().unwrap().is_none(), "{}", way.display());
        let seen = read_state(&way).unwrap();
        assert_eq!(seen.state().unwrap().instance, owner.instance(), "{}", way.display());
        assert_eq!(socket_path(&way).unwrap(), socket_path(store.path()).unwrap());
    }
}

#[test]
fn a_bind_mount_of_the_directory_leads_to_the_same_owner() {
    let store = Store::new();
    let elsewhere = Scratch::new("bind");
    let in_mount = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]);
        command.arg(store.directory()).arg(elsewhere.path());
        command
    };
    let mount = "mount --bind \"$1\" \"$2\" && shift 2";
    let possible = in_mount(mount).output();
    if !possible.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("not tried, for this user may not mount: {possible:?}");
        return;
    }
    let there = elsewhere.path().join("p");
    let mut command = in_mount(&format!("{mount} && exec \"$@\""));
    command.arg(std::env::current_exe().unwrap());
    let mut owner = Probe::start_by(command, "serving", &there);
    assert_eq!(owner.answer(), "owner");
    assert!(Candidate::new(store.path(), "b").unwrap().elect().unwrap().is_none());
    let seen = read_state(store.path()).unwrap();
    assert_eq!(seen.state().unwrap().pid, owner.pid().as_raw().unsigned_abs());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let status = runtime.block_on(control_status(store.path(), PATIENCE)).unwrap();
    assert_eq!(status.instance, seen.state().unwrap().instance);
    owner.kill();
    assert_eq!(read_state(store.path()).unwrap(), Ownership::Nobody);
}

/// Everything an owner and its followers do, on a path of this length.
async fn works(path: &Path, inside: bool) {
    let socket = socket_path(path).unwrap();
    let owner = Candidate::new(path, "b").unwrap().elect().unwrap().unwrap();
    let server = serve_control(&owner, StatusOnly::of(&owner)).unwrap();
    assert!(fs::symlink_metadata(&socket).unwrap().file_type().is_socket());
    assert_eq!(socket.ends_with("sock") && socket.parent().unwrap().extension().is_some(), inside, "{socket:?}");
    assert_eq!(control_status(path, PATIENCE).await.unwrap().instance, owner.instance());
    let mut watching = watch(path).await.unwrap();
    let mut follower = Takeover::new(path, "b").unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(200), follower.elected()).await.is_err());
    server.close();
    assert!(!socket.exists());
    owner.release();
    tokio::time::timeout(PATIENCE, watching.ended()).await.unwrap();
    tokio::time::timeout(PATIENCE, follower.elected()).await.unwrap().unwrap().release();
}

#[tokio::test]
async fn a_socket_is_reached_however_long_its_path_is() {
    let store = Store::new();
    works(&store.directory().join("x".repeat(200)), true).await;
    let deep = store.directory().join("d".repeat(220));
    fs::create_dir(&deep).unwrap();
    works(&deep.join("p"), true).await;
    works(&deep.join("x".repeat(200)), true).await;
    let short = tempfile::tempdir().unwrap();
    works(&short.path().join("p"), false).await;
    let error = Candidate::new(store.directory().join("x".repeat(201)), "b").unwrap_err();
    assert!(error.to_string().contains("201 bytes"), "{error}");
}

#[tokio::test]
async fn the_border_between_both_addresses_is_a_hundred_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let room = 100 - directory.path().as_os_str().len() - "/.sock".len();
    works(&directory.path().join("x".repeat(room)), false).await;
    works(&directory.path().join("x".repeat(room + 1)), true).await;
}

#[tokio::test]
async fn a_name_that_is_no_text_is_as_good_as_any() {
    use std::os::unix::ffi::OsStrExt;
    let directory = tempfile::tempdir().unwrap();
    works(&directory.path().join(std::ffi::OsStr::from_bytes(b"p\xff\xfe q")), false).await;
}
