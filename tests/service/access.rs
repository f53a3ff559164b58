//! Who may ask: hosts, tokens and their files.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use lockhouse::service::{Access, Limits, Options, Token};

use crate::client::{get, with};
use crate::program::{Running, program};
use crate::served::{Served, memory, often, until};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// All that is not health.
const GUARDED: [&str; 5] = ["/", "/metrics", "/v1/status", "/v1/events", "/?part=live"];

#[test]
fn a_page_of_elsewhere_cannot_read_it_by_a_name_of_its_own() {
    let (_store, coordinator) = memory();
    let served = Served::ready(&coordinator);
    for path in GUARDED.iter().chain(&["/healthz", "/readyz"]) {
        let answer = with(served.address, path, &[("Host", "rebound.example:7411")]);
        assert_eq!(answer.code, 421, "{path}: {answer:?}");
        assert!(!answer.body.contains("writer"), "{answer:?}");
    }
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1:99", "[::1]:7411"] {
        assert_eq!(with(served.address, "/v1/status", &[("Host", host)]).code, 200, "{host}");
    }
}

#[test]
fn with_a_token_health_is_open_and_the_rest_is_not() {
    let (_store, coordinator) = memory();
    let options = Options { access: Access::Token(Token::new(TOKEN).unwrap()), ..often() };
    let served = Served::start(&coordinator, options, Limits::default());
    until(served.address, "/readyz", "to be ready", |answer| answer.code == 200);
    let foreign = ("Host", "monitor.example");
    assert_eq!(with(served.address, "/healthz", &[foreign]).code, 200);
    let bearer = format!("Bearer {TOKEN}");
    for path in GUARDED {
        for wrong in [None, Some("Bearer wrong"), Some("Bearer "), Some(&bearer[..bearer.len() - 1])] {
            let said: Vec<_> = wrong.iter().map(|wrong| ("Authorization", *wrong)).chain([foreign]).collect();
            let answer = with(served.address, path, &said);
            assert_eq!(answer.code, 401, "{path} {wrong:?}");
            assert!(
                answer.head.contains("www-authenticate: Bearer") && answer.head.contains("www-authenticate: Basic")
            );
        }
        if path != "/v1/events" {
            assert_eq!(with(served.address, path, &[foreign, ("Authorization", &bearer)]).code, 200, "{path}");
        }
    }
    // As a browser says it.
    let basic = "Basic bWU6MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
    assert_eq!(with(served.address, "/", &[("Authorization", basic)]).code, 200);
}

#[test]
fn every_answer_forbids_what_it_does_not_need() {
    let (_store, coordinator) = memory();
    let served = Served::ready(&coordinator);
    for path in ["/", "/healthz", "/metrics", "/v1/status", "/nowhere"] {
        let answer = get(served.address, path);
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
        assert!(answer.header("content-security-policy").unwrap().starts_with("default-src 'none'"), "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), None, "{path}");
    }
}

fn serve(args: &[&str]) -> Running {
    let mut command = program([&["serve", "--store", "/nonexistent/store"], args].concat());
    command.env_remove("LOCKHOUSE_LISTEN");
    Running::start(command)
}

#[test]
fn a_token_file_that_is_no_secret_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8], mode: u32| {
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let token = format!("{TOKEN}\n").into_bytes();
    let cases = [
        (file("empty", b"", 0o600), 78, "is empty"),
        (file("line", b"\n", 0o600), 78, "is empty"),
        (file("short", b"secret\n", 0o600), 78, "openssl rand"),
        (file("binary", b"\xff\xfe\x00\x01", 0o600), 78, "no text"),
        (file("two", b"0123456789abcdef\n0123456789abcdef\n", 0o600), 78, "printable ASCII"),
        (file("long", &[b'a'; 5000], 0o600), 78, "longer than"),
        (file("world", &token, 0o604), 77, "chmod 600"),
        (file("group-may-write", &token, 0o620), 77, "chmod 600"),
        (directory.path().join("missing").to_str().unwrap().to_owned(), 77, "No such file"),
        (directory.path().to_str().unwrap().to_owned(), 78, "not a file"),
    ];
    for (path, code, why) in cases {
        let ran = serve(&["--listen", "127.0.0.1:0", "--token-file", &path]).finish().assert(code).says(why);
        assert!(!ran.err.contains(TOKEN) && !ran.err.contains("secret\n"), "{ran:?}");
        assert!(!ran.err.contains("listening"), "{ran:?}");
    }
    // A user who may not read it. Root may read everything, so nobody stands in, with a program that he may reach.
    let secret = file("secret", &token, 0o000);
    let (own, copy) = (program(["serve"]), directory.path().join("lockhouse"));
    std::fs::copy(own.get_program(), &copy).unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(copy);
    command.args(["serve", "--store", "/nonexistent/store", "--token-file", &secret, "--listen", "127.0.0.1:0"]);
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    Running::start(command).finish().assert(77).says("Permission denied");
}

#[test]
fn beyond_this_machine_it_needs_a_token() {
    serve(&["--listen", "0.0.0.0:0"]).finish().assert(64).says("--token-file");
    serve(&["--listen", "[::]:0"]).finish().assert(64).says("needs a token");
    serve(&["--listen", "example.org:80"]).finish().assert(64).says("127.0.0.1:7411");
}
