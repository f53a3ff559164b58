//! The process that is stopped: this test binary once more, running the one test below. It holds a writer lease and a
//! transaction, and is told what to do in it line by line.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use lockhouse::mongodb::Client;
use lockhouse::mongodb::bson::{Document, doc};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::process::spawn_kept;
use crate::{BOUND, connect};

const URI: &str = "LOCKHOUSE_FENCE_PROBE";
const DATABASE: &str = "LOCKHOUSE_FENCE_PROBE_DATABASE";
/// What an answer begins with: the test harness writes to the same stream.
const MARK: &str = "> ";

/// A process with a writer lease and a transaction that has begun. Killed when dropped.
pub(crate) struct Probe {
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
}

impl Probe {
    pub(crate) fn start(uri: &str, database: &str) -> Probe {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "probe::probe", "--nocapture"]).env(URI, uri).env(DATABASE, database);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = spawn_kept(command).unwrap();
        let (sender, answers) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some(answer) = line.strip_prefix(MARK) {
                    let _ = sender.send(answer.to_owned());
                }
            }
        });
        let orders = child.stdin.take().unwrap();
        let mut probe = Probe { child, orders, answers };
        assert_eq!(probe.answer(), "ready");
        probe
    }

    /// `fence`, `write` or `commit`; answered with `ok`, or with what went wrong.
    pub(crate) fn tell(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }

    pub(crate) fn answer(&mut self) -> String {
        self.answers.recv_timeout(BOUND).expect("the probe answers in time")
    }

    pub(crate) fn ask(&mut self, order: &str) -> String {
        self.tell(order);
        self.answer()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn say(answer: &str) {
    // One write: the harness has the same stream.
    std::io::stdout().write_all(format!("\n{MARK}{answer}\n").as_bytes()).unwrap();
    std::io::stdout().flush().unwrap();
}

/// Not a test of its own: what a [`Probe`] runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probe() {
    let Ok(uri) = std::env::var(URI) else { return };
    let database = std::env::var(DATABASE).unwrap();
    let coordinator = connect(&uri, "the probe").await;
    let lease = coordinator.acquire_writer().await.unwrap();
    let client = Client::with_uri_str(&uri).await.unwrap();
    let data = client.database(&database).collection::<Document>("data");
    let mut session = client.start_session().await.unwrap();
    // Its fence is there before the transaction that matters begins.
    lease.fenced(&mut session, async |_| Ok(())).await.unwrap();
    session.start_transaction().await.unwrap();
    say("ready");
    for order in std::io::stdin().lines().map_while(Result::ok) {
        let done: Result<(), String> = match order.as_str() {
            "fence" => lease.fence(&mut session).await.map_err(|error| format!("{:?}: {error}", error.kind())),
            "write" => {
                let written = data.insert_one(doc! { "by": "the probe" }).session(&mut session).await;
                written.map(drop).map_err(|error| error.to_string())
            }
            "commit" => session.commit_transaction().await.map_err(|error| error.to_string()),
            _ => Err("what?".to_owned()),
        };
        say(&done.err().unwrap_or_else(|| "ok".to_owned()));
    }
}
