//! Starting the wrapper, and watching it and its processes.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// How long anything may take that ought to happen soon.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The wrapper and its options, up to the `--`: the one place that knows which program is tested.
pub(crate) fn wrapper_command(options: &[&str]) -> Vec<OsString> {
    let mut words = vec![probe().into_os_string(), "run".into()];
    words.extend(options.iter().map(OsString::from));
    words
}

/// The probe, built anew if its sources changed: `cargo test --test child` alone builds no examples.
fn probe() -> PathBuf {
    static PROBE: OnceLock<PathBuf> = OnceLock::new();
    PROBE
        .get_or_init(|| {
            let tests = std::env::current_exe().unwrap();
            let probe = tests.parent().unwrap().with_file_name("examples").join("child_probe");
            let root = Path::new(env!("CARGO_MANIFEST_DIR"));
            let sources = [root.join("src/cli"), root.join("tests/support/child_probe.rs")];
            let newest = sources.iter().map(|path| newest(path)).max().unwrap();
            let built = fs::metadata(&probe).and_then(|metadata| metadata.modified());
            if built.is_ok_and(|built| built > newest) {
                return probe;
            }
            let cargo =
                Command::new(env!("CARGO")).args(["build", "--example", "child_probe"]).current_dir(root).status();
            assert!(cargo.unwrap().success(), "the probe cannot be built");
            probe
        })
        .clone()
}

fn newest(path: &Path) -> SystemTime {
    let own = fs::metadata(path).unwrap().modified().unwrap();
    let Ok(entries) = fs::read_dir(path) else {
        return own;
    };
    entries.map(|entry| newest(&entry.unwrap().path())).max().map_or(own, |inner| inner.max(own))
}

/// One wrapper to be started, with a directory of its own as working directory.
pub(crate) struct Wrapper {
    pub(crate) dir: TempDir,
    options: Vec<&'static str>,
    before: Vec<OsString>,
    env: Vec<(&'static str, OsString)>,
}

impl Wrapper {
    pub(crate) fn new() -> Wrapper {
        Wrapper { dir: tempfile::tempdir().unwrap(), options: Vec::new(), before: Vec::new(), env: Vec::new() }
    }

    pub(crate) fn option(mut self, words: &[&'static str]) -> Wrapper {
        self.options.extend(words);
        self
    }

    /// A program in front that starts the wrapper.
    pub(crate) fn below(mut self, words: &[&str]) -> Wrapper {
        self.before = words.iter().map(OsString::from).collect();
        self
    }

    /// A lease that is valid for so long after a refresh.
    pub(crate) fn window(mut self, window: Duration) -> Wrapper {
        self.env.push(("PROBE_WINDOW_MS", window.as_millis().to_string().into()));
        self
    }

    pub(crate) fn refreshed(mut self) -> Wrapper {
        self.env.push(("PROBE_REFRESH", "1".into()));
        self
    }

    /// A lease that is lost when this file appears in the directory.
    pub(crate) fn lost_with(mut self, file: &str) -> Wrapper {
        self.env.push(("PROBE_LOST_FILE", self.dir.path().join(file).into()));
        self
    }

    pub(crate) fn env(mut self, name: &'static str, value: impl Into<OsString>) -> Wrapper {
        self.env.push((name, value.into()));
        self
    }

    /// Sets up the variables that describe the lease, for a shell that starts the wrapper as `$W -- CMD`.
    pub(crate) fn prepare_shell(&self, shell: &mut Command) {
        let words = wrapper_command(&self.options);
        shell.env("W", words.join(std::ffi::OsStr::new(" "))).envs(self.env.iter().cloned());
        shell.current_dir(self.dir.path());
    }

    pub(crate) fn command(&self, command: &[&str]) -> Command {
        let mut words = self.before.clone();
        words.extend(wrapper_command(&self.options));
        words.push("--".into());
        words.extend(command.iter().map(OsString::from));
        let mut all = Command::new(&words[0]);
        all.args(&words[1..]).envs(self.env.iter().cloned()).current_dir(self.dir.path());
        all
    }

    pub(crate) fn output(&self, command: &[&str]) -> Output {
        self.command(command).output().unwrap()
    }

    /// Runs a script and returns its exit code.
    pub(crate) fn code(&self, script: &str) -> i32 {
        self.output(&["sh", "-c", script]).status.code().unwrap()
    }

    pub(crate) fn start(self, script: &str) -> Running {
        let errors = self.dir.path().join("stderr");
        let child = self
            .command(&["sh", "-c", script])
            .stdin(Stdio::null())
            .stderr(fs::File::create(&errors).unwrap())
            .spawn()
            .unwrap();
        Running { dir: self.dir, child, errors }
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join(file)
    }
}

/// A wrapper that runs.
pub(crate) struct Running {
    dir: TempDir,
    child: Child,
    errors: PathBuf,
}

impl Running {
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    pub(crate) fn send(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join(file)
    }

    pub(crate) fn touch(&self, file: &str) {
        fs::write(self.path(file), "").unwrap();
    }

    pub(crate) fn notes(&self) -> String {
        fs::read_to_string(&self.errors).unwrap()
    }

    /// Waits until the wrapper says something.
    pub(crate) fn until_noted(&self, text: &str) {
        until(&format!("a note {text:?}"), || self.notes().contains(text));
    }

    /// Waits until the command has written its pid (or another number) to a file.
    pub(crate) fn number(&self, file: &str) -> Pid {
        number(&self.path(file))
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for the wrapper's end, and returns its exit code (or 1000 + signal).
    pub(crate) fn wait(&mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or_else(|| 1000 + status.signal().unwrap());
            }
            assert!(Instant::now() < end, "the wrapper never ended; it said:\n{}", self.notes());
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a file holds a whole line with a number.
pub(crate) fn number(path: &Path) -> Pid {
    until(&format!("a number in {}", path.display()), || {
        fs::read_to_string(path).is_ok_and(|text| text.ends_with('\n'))
    });
    Pid::from_raw(fs::read_to_string(path).unwrap().trim().parse().unwrap())
}

/// Waits for a condition.
pub(crate) fn until(what: &str, condition: impl FnMut() -> bool) {
    within(PATIENCE, what, condition);
}

/// Waits for a condition that has to come true in this time.
pub(crate) fn within(bound: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + bound;
    while !condition() {
        assert!(Instant::now() < end, "waited for {what}, in vain");
        thread::sleep(Duration::from_millis(2));
    }
}

/// The state letter of a process, if it exists.
pub(crate) fn state(pid: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Whether a process exists and is no zombie.
pub(crate) fn lives(pid: Pid) -> bool {
    state(pid).is_some_and(|state| state != 'Z' && state != 'X')
}

/// The dead children that `parent` has not reaped.
pub(crate) fn zombies_of(parent: Pid) -> usize {
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("stat")).ok())
        .filter(|stat| {
            let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
            rest.starts_with(&format!("Z {parent} "))
        })
        .count()
}
