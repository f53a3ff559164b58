//! A `mongod` of a test's own: one process on a free loopback port, killed when dropped and in any case
//! when the test process ends. Tests that only need *a* server take a database of the shared one
//! (`database`); this one is for what would disturb others: signals, parameters, users, clocks.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use mongodb::Client;
use mongodb::bson::{Document, doc};
use rustix::process::Signal;

use super::database::{self, TestDatabase};
use super::poll::eventually;
use super::process::{ServerProcess, describe};
use super::scratch::Scratch;
use super::server_clock::ServerClock;
use super::uri::Uri;

/// The name of every replica set that tests make.
pub(crate) const SET_NAME: &str = "lockhouse";

/// A start takes a second or two; ten such servers at once on a busy machine take longer.
const START_BOUND: Duration = Duration::from_secs(60);
const STOP_BOUND: Duration = Duration::from_secs(60);

/// Exit code of a server that finds its port taken.
const ADDRESS_IN_USE: i32 = 48;

/// What a server of one's own is to be like. The default is a standalone server without users.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// A replica set of this one member, so that there are transactions and change streams.
    pub(crate) replica_set: bool,
    /// Users must log in; `root` is made, and the server's `uri()` carries its password.
    pub(crate) auth: bool,
    /// Further `--setParameter name=value`.
    pub(crate) parameters: Vec<(String, String)>,
    /// A clock that `Mongod::clock` shifts.
    pub(crate) faketime: bool,
    /// For a replica set: `settings.electionTimeoutMillis`. The server's own default is ten seconds.
    pub(crate) election_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            replica_set: false,
            auth: false,
            parameters: Vec::new(),
            faketime: false,
            election_timeout: Duration::from_secs(10),
        }
    }
}

impl Options {
    /// A replica set of one member.
    pub(crate) fn replica_set() -> Self {
        Self { replica_set: true, ..Self::default() }
    }
}

/// The server. See the module.
#[derive(Debug)]
pub(crate) struct Mongod {
    process: ServerProcess,
    clock: Option<ServerClock>,
    port: u16,
    options: Options,
    uri: Uri,
    // Last, so that the directory goes after the process that writes in it.
    directory: Scratch,
}

impl Mongod {
    /// Starts a server and waits until it takes writes.
    ///
    /// # Panics
    ///
    /// When there is no `mongod` on this machine (with what to do about it), or it does not start.
    pub(crate) async fn start(options: Options) -> Self {
        let mut server = Self::start_bare(options).await;
        if server.options.replica_set {
            let member = doc! { "_id": 0, "host": server.address() };
            initiate(&server, vec![member.into()]).await;
            server.wait_until_primary().await;
        }
        if server.options.auth {
            // The first user may be made from this machine without logging in.
            let admin = server.client().await.database("admin");
            admin
                .run_command(doc! { "createUser": "root", "pwd": "root", "roles": ["root"] })
                .await
                .expect("make the first user");
            server.uri = Uri::parse(&format!("mongodb://root:root@{}/?authSource=admin", server.address()));
        }
        if server.options.replica_set {
            server.uri = server.uri.with_option("replicaSet", SET_NAME);
        }
        server
    }

    /// Starts a server that, with `replica_set`, waits to be told which members its set has.
    pub(crate) async fn start_bare(options: Options) -> Self {
        let binary = binary().unwrap_or_else(|why| panic!("{why}\n{}", super::shared::ADVICE));
        for _ in 0..10 {
            let directory = Scratch::new("mongod");
            std::fs::create_dir(directory.path().join("data")).expect("make a data directory");
            let port = free_port();
            match launch(&binary, &directory, port, &options).await {
                Ok((process, clock)) => {
                    return Self {
                        uri: Uri::parse(&format!("mongodb://127.0.0.1:{port}/")),
                        process,
                        clock,
                        port,
                        options,
                        directory,
                    };
                }
                // Somebody took the port in between.
                Err(NotStarted::AddressInUse) => {}
                Err(NotStarted::Failed(why)) => panic!("{} did not start: {why}", binary.display()),
            }
        }
        panic!("ten free ports in a row were taken by others before mongod could listen");
    }

    /// The connection string, with the password of `root` if users must log in.
    pub(crate) fn uri(&self) -> String {
        self.uri.to_string()
    }

    /// `127.0.0.1:port`.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// A database of its own for a test, as on the shared servers.
    pub(crate) fn database(&self) -> TestDatabase {
        TestDatabase::on(&self.uri)
    }

    /// A client that speaks to this server whatever its role is.
    pub(crate) async fn client(&self) -> Client {
        database::connect(&self.uri.clone().directly_to(&self.address())).await
    }

    /// The handle that shifts this server's clock.
    ///
    /// # Panics
    ///
    /// When the server was started without `faketime`.
    pub(crate) fn clock(&self) -> &ServerClock {
        self.clock.as_ref().expect("started with Options::faketime")
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.process.ended().is_none()
    }

    /// SIGKILL: the server has no moment to say goodbye. It is gone when this returns.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// SIGTERM: an orderly end. It is gone when this returns.
    pub(crate) fn stop(&mut self) {
        self.process.terminate(STOP_BOUND);
    }

    /// SIGSTOP: connections stay, nothing answers.
    pub(crate) fn pause(&self) {
        self.process.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub(crate) fn resume(&self) {
        self.process.signal(Signal::CONT);
    }

    /// Starts the server again, on the same port and data, after `kill` or `stop`. It answers when this
    /// returns; a replica set of one takes writes again.
    pub(crate) async fn restart(&mut self) {
        self.restart_bare().await;
        if self.options.replica_set {
            self.wait_until_primary().await;
        }
    }

    pub(crate) async fn restart_bare(&mut self) {
        assert!(!self.is_running(), "restart without kill or stop before it");
        let binary = binary().unwrap_or_else(|why| panic!("{why}"));
        match launch(&binary, &self.directory, self.port, &self.options).await {
            Ok((process, clock)) => (self.process, self.clock) = (process, clock),
            Err(why) => panic!("{} did not start again: {why:?}", binary.display()),
        }
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    async fn wait_until_primary(&self) {
        let admin = self.client().await.database("admin");
        eventually(START_BOUND, "the only member to become primary", || async {
            match admin.run_command(doc! { "hello": 1 }).await {
                Ok(hello) if hello.get_bool("isWritablePrimary").unwrap_or(false) => Ok(()),
                other => Err(other),
            }
        })
        .await;
    }
}

/// Makes a replica set of `members`, the first of which is `server`.
pub(crate) async fn initiate(server: &Mongod, members: Vec<mongodb::bson::Bson>) {
    let election = server.options().election_timeout.as_millis();
    let election = i32::try_from(election).expect("an election timeout in range");
    let config = doc! {
        "_id": SET_NAME,
        "members": members,
        "settings": {
            "electionTimeoutMillis": election,
            // Members must hear of each other several times in one election timeout.
            "heartbeatIntervalMillis": (election / 4).clamp(100, 2_000),
        },
    };
    let reply: mongodb::error::Result<Document> =
        server.client().await.database("admin").run_command(doc! { "replSetInitiate": config }).await;
    reply.expect("initiate the replica set");
}

#[derive(Debug)]
enum NotStarted {
    AddressInUse,
    Failed(String),
}

async fn launch(
    binary: &Path,
    directory: &Scratch,
    port: u16,
    options: &Options,
) -> Result<(ServerProcess, Option<ServerClock>), NotStarted> {
    let log = directory.path().join("mongod.log");
    let mut command = Command::new(binary);
    command
        .args(["--bind_ip", "127.0.0.1", "--nounixsocket", "--logappend"])
        .args(["--port", &port.to_string(), "--wiredTigerCacheSizeGB", "0.25"])
        .arg("--dbpath")
        .arg(directory.path().join("data"))
        .arg("--logpath")
        .arg(&log)
        .args(["--setParameter", "enableTestCommands=1"])
        .args(["--setParameter", "diagnosticDataCollectionEnabled=false"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    for (name, value) in &options.parameters {
        command.args(["--setParameter", &format!("{name}={value}")]);
    }
    if options.replica_set {
        command.args(["--replSet", SET_NAME, "--oplogSize", "64"]);
    }
    if options.auth {
        command.arg("--auth");
        if options.replica_set {
            command.arg("--keyFile").arg(key_file(directory.path()));
        }
    }
    let clock = options.faketime.then(|| ServerClock::install(&mut command, directory.path()));
    let failed = |why: String| NotStarted::Failed(format!("{why}; its log ends:\n{}", tail(&log)));
    let mut process = ServerProcess::start(command).map_err(|error| failed(error.to_string()))?;
    let ended = eventually(START_BOUND, "mongod to listen", || {
        let state = match (process.ended(), TcpStream::connect(("127.0.0.1", port))) {
            (Some(status), _) => Ok(Some(status)),
            (None, Ok(_)) => Ok(None),
            (None, Err(error)) => Err(error),
        };
        async move { state }
    })
    .await;
    match ended {
        None => Ok((process, clock)),
        Some(status) if status.code() == Some(ADDRESS_IN_USE) => Err(NotStarted::AddressInUse),
        Some(status) => Err(failed(describe(status))),
    }
}

/// Members of a set with users know each other by this file, which nobody else may read.
fn key_file(directory: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = directory.join("key");
    if !path.exists() {
        std::fs::write(&path, "bG9ja2hvdXNlIHRlc3RzIG9ubHk=").expect("write the key file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).expect("protect the key file");
    }
    path
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(8).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

/// A port that nobody listens on, below the range from which the kernel takes the ports of outgoing
/// connections: a server that is killed and started again must find its port free.
pub(crate) fn free_port() -> u16 {
    let free =
        |port: u16| -> io::Result<TcpListener> { TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)) };
    (0..1000)
        .map(|_| fastrand::u16(18_000..32_000))
        .find(|port| free(*port).is_ok())
        .expect("a free port between 18000 and 32000")
}

/// The server's program: `LOCKHOUSE_TEST_MONGOD`, or `mongod` on the path.
pub(crate) fn binary() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os("LOCKHOUSE_TEST_MONGOD") {
        let path = PathBuf::from(named);
        return if path.is_file() {
            Ok(path)
        } else {
            Err(format!("LOCKHOUSE_TEST_MONGOD names {}, which is no file", path.display()))
        };
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths)
        .map(|directory| directory.join("mongod"))
        .find(|path| path.is_file())
        .ok_or_else(|| "no mongod: LOCKHOUSE_TEST_MONGOD is not set and none is on the PATH".into())
}
