//! What a container without a shell asks of the program itself: whether a service is well, and a token for it.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use crate::client::with;
use crate::program::{Finished, Running, Store, program};
use crate::served::{Served, listening, memory, until};

fn check(address: &str) -> Finished {
    let mut command = program(["serve", "--check"]);
    command.env("LOCKHOUSE_LISTEN", address);
    Running::start(command).finish()
}

#[test]
fn a_service_that_is_well_says_so_and_one_that_is_gone_does_not() {
    let (_store, coordinator) = memory();
    let served = Served::ready(&coordinator);
    let address = served.address.to_string();
    assert_eq!(check(&address).assert(0).out, "ok\n");
    // Where it listens on every address. This one does not, but loopback is one of them.
    let everywhere = format!("0.0.0.0:{}", served.address.port());
    assert_eq!(check(&everywhere).assert(0).out, "ok\n");
    served.ended();
    check(&address).assert(69).says("no service answers");
}

#[test]
fn other_programs_are_not_well() {
    let talks = |answer: &'static [u8]| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(answer);
            // Until the other side hangs up.
            let _ = stream.read_to_end(&mut Vec::new());
        });
        (address, thread)
    };
    let (address, thread) = talks(b"HTTP/1.1 503 No\r\nContent-Length: 18\r\n\r\nsupervisor: ended\n");
    check(&address).assert(69).says("no answer in time");
    thread.join().unwrap();
    let (address, thread) = talks(b"");
    let silent = check(&address).assert(69).says("no answer in time");
    assert!(silent.err.contains(&address), "{silent:?}");
    thread.join().unwrap();
    let (address, thread) = talks(&[b'x'; 64 << 10]);
    check(&address).assert(69).says("is not well");
    thread.join().unwrap();
}

#[test]
fn a_token_that_it_made_opens_its_service() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    let path = file.to_str().unwrap();
    let made = Running::start(program(["token", path])).finish().assert(0);
    assert_eq!(made.out, "", "a token goes into no log unasked");
    let shown = Running::start(program(["token", "--show", path])).finish().assert(0);
    assert_eq!(shown.out, std::fs::read_to_string(&file).unwrap());

    let store = Store::new();
    let (_running, address) = listening(store.command(["serve", "--token-file", path]));
    until(address, "/readyz", "to be ready", |answer| answer.code == 200);
    assert_eq!(with(address, "/v1/status", &[]).code, 401);
    let said = format!("Bearer {}", shown.out.trim_end());
    assert_eq!(with(address, "/v1/status", &[("Authorization", &said)]).code, 200);
}

#[test]
fn a_token_file_that_is_there_is_kept_or_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "0123456789abcdef0123456789abcdef\n").unwrap();
    let path = file.to_str().unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let refused = Running::start(program(["token", "--show", path])).finish().assert(77).says("chmod 600");
    assert_eq!(refused.out, "");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let kept = Running::start(program(["token", "--show", path])).finish().assert(0);
    assert_eq!(kept.out, "0123456789abcdef0123456789abcdef\n");
    let nowhere = directory.path().join("none/token");
    Running::start(program(["token", nowhere.to_str().unwrap()])).finish().assert(70).says("none/token");
}
