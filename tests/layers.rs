//! Imports only ever point down the picture in the design: the program uses the library's public face, the
//! service is a client of the public face, the owner uses the engine and the local backend, the engine knows backends only through their trait, and a backend
//! knows nothing of the engine but the words it answers in.

use std::fs;
use std::path::{Path, PathBuf};

/// What the files below a folder may not name.
const FORBIDDEN: &[(&str, &[&str])] = &[
    ("src/cli", &["crate::lease", "crate::backend", "crate::coordinator", "crate::connect", "crate::request"]),
    (
        "src/service",
        &["crate::cli", "crate::lease", "crate::backend", "crate::coordinator", "crate::connect", "crate::request"],
    ),
    (
        "src/owner",
        &["crate::cli", "crate::service", "crate::backend::mongo", "mongodb::", "bson::", "crate::lease::supervisor"],
    ),
    // Records know the store by its path, and who may write by being told.
    (
        "src/records",
        &[
            "crate::cli",
            "crate::service",
            "crate::owner",
            "crate::spool",
            "crate::lease",
            "crate::backend",
            "crate::coordinator",
            "tokio::",
        ],
    ),
    // The spool knows the disk and the records; who may write, and when, is its callers' affair.
    (
        "src/spool",
        &[
            "crate::cli",
            "crate::service",
            "crate::owner",
            "crate::lease",
            "crate::backend::mongo",
            "crate::backend::memory",
            "crate::coordinator",
            "crate::records::sqlite",
            "tokio::",
        ],
    ),
    // Who only reads takes no part: no election, no spool, no life of an open store.
    (
        "src/owner/store/read_only.rs",
        &["super::registry", "super::life", "super::core", "Candidate", "crate::spool", "crate::owner::lock"],
    ),
    ("src/cli/records/scan.rs", &["Writing", "Store::open", "super::writing"]),
    ("src/cli/records/look.rs", &["Writing", "Store::open", "super::writing"]),
    // So is it with ingestion: which store it is, and by what right, it is told.
    (
        "src/owner/ingest",
        &["crate::lease", "crate::backend", "crate::coordinator", "crate::records::sqlite", "super::super", "tokio::"],
    ),
    (
        "src/lease",
        &[
            "crate::cli",
            "crate::service",
            "crate::owner",
            "crate::spool",
            "crate::backend::mongo",
            "mongodb::",
            "bson::",
        ],
    ),
    (
        "src/backend",
        &[
            "crate::cli",
            "crate::service",
            "crate::owner",
            "crate::spool",
            "crate::coordinator",
            "crate::connect",
            "crate::request",
            "crate::lease::supervisor",
        ],
    ),
    ("src/coordinator.rs", &["crate::owner", "crate::service"]),
    ("src/connect.rs", &["crate::owner", "crate::service"]),
    ("src/clock.rs", &["crate::lease", "crate::backend", "crate::error"]),
    ("src/timing.rs", &["crate::lease", "crate::backend", "crate::clock"]),
    // An error carries what a look showed, of the leases and of the owner, and knows nothing else of them.
    (
        "src/error.rs",
        &[
            "crate::backend",
            "crate::coordinator",
            "crate::owner::OwnerLock",
            "crate::owner::lock",
            "crate::owner::control",
        ],
    ),
];

fn sources(at: &Path, found: &mut Vec<PathBuf>) {
    if at.is_file() {
        found.push(at.to_owned());
        return;
    }
    for entry in fs::read_dir(at).unwrap_or_else(|error| panic!("{}: {error}", at.display())) {
        let path = entry.unwrap().path();
        // The simulation stands above the engine that it drives.
        if !path.ends_with("simulation") {
            sources(&path, found);
        }
    }
}

#[test]
fn imports_point_down() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut wrong = Vec::new();
    for (folder, names) in FORBIDDEN {
        let mut files = Vec::new();
        sources(&root.join(folder), &mut files);
        assert!(!files.is_empty(), "{folder} is empty");
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            for (line, name) in code.flat_map(|line| names.iter().map(move |name| (line, name))) {
                if line.contains(name) {
                    wrong.push(format!("{}: {}", file.display(), line.trim()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "imports that point up:\n{}", wrong.join("\n"));
}

/// Only SQLite opens the file of the records, and only one folder speaks to SQLite; nothing there tells the time.
#[test]
fn sqlite_has_one_home_and_its_file_one_opener() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    sources(&root.join("src"), &mut files);
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let at_home = file.starts_with(root.join("src/records/sqlite"));
        for line in code {
            assert!(at_home || !line.contains("rusqlite"), "{} speaks to SQLite: {line}", file.display());
            let opens = ["File::open(", "OpenOptions", "fs::read", "CURRENT_TIMESTAMP", "strftime", "'now'"];
            let of_directory = line.contains("path.parent()");
            let opened = opens.iter().any(|word| line.contains(word));
            assert!(!at_home || of_directory || !opened, "{} opens a file or tells the time: {line}", file.display());
        }
    }
}

/// Only one file writes the server's time, and only `main.rs` ends the process.
#[test]
fn dangerous_words_have_one_home() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    sources(&root.join("src"), &mut files);
    for (word, home) in [("\"$$NOW\"", "src/backend/mongo/statements.rs"), ("process::exit(", "src/main.rs")] {
        for file in &files {
            let text = fs::read_to_string(file).unwrap();
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let named = code.filter(|line| line.contains(word)).count();
            let at_home = file.ends_with(home) || file.components().any(|part| part.as_os_str() == "tests");
            assert!(at_home || named == 0, "{} names {word}, whose home is {home}", file.display());
        }
    }
}
