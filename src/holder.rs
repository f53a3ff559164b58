//! Who holds a lease, for people. Nothing decides by it: pids and host names are not unique.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The process that holds a lease, as that process described itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Holder {
    /// The host's name (in a container, the container's).
    pub host: String,
    /// The process id in the holder's own pid namespace.
    pub pid: u32,
    /// The user's name, or `uid N`.
    pub user: String,
    /// The program's file name.
    pub program: String,
    /// What the program was told to call itself.
    pub label: Option<String>,
    /// The kernel's boot id: two holders with the same pid and host but another boot id are two processes.
    pub boot_id: Option<String>,
}

impl Holder {
    /// This process.
    pub fn here(label: Option<String>) -> Holder {
        let program = std::env::args_os().next().map(std::path::PathBuf::from);
        let program = program.as_deref().and_then(std::path::Path::file_name);
        Holder {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            pid: std::process::id(),
            user: user(),
            program: program.map_or_else(|| "unknown".to_owned(), |name| name.to_string_lossy().into_owned()),
            label,
            boot_id: std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().to_owned()),
        }
    }
}

/// The name in the environment is what people know themselves by; the number is always true.
fn user() -> String {
    ["USER", "LOGNAME"]
        .iter()
        .filter_map(|name| std::env::var(name).ok())
        .find(|name| !name.is_empty())
        .unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()))
}

impl fmt::Display for Holder {
    /// `alice@web1 pid 4242 (backup)`, with control characters escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}@{} pid {} ({})", self.user, self.host, self.pid, self.program);
        f.write_str(&crate::describe::brief(&text))?;
        match &self.label {
            Some(label) => write!(f, " \"{}\"", crate::describe::brief(label)),
            None => Ok(()),
        }
    }
}
