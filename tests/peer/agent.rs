//! httk-store as a process beside the test, driven line by line (`agent.py` says how).

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc::{self, UnboundedReceiver, error::TryRecvError};

use crate::support::database::TestDatabase;
use crate::support::process::spawn_kept;

/// Starting Python and its libraries takes seconds on a busy machine, and a drain waits for a test's next step.
const BOUND: Duration = Duration::from_secs(60);

/// What to do when there is no Python with the library.
const ADVICE: &str = "\
The tests with the Python peer need httk-store. Run scripts/test, which makes a Python that has it. Or set
  LOCKHOUSE_TEST_PEER_PYTHON  a Python 3.12 in which `pip install 'httk-store[mongodb]'` was run";

/// One process with httk-store, killed when dropped and in any case when the test process ends.
#[derive(Debug)]
pub(crate) struct Agent {
    child: Child,
    requests: ChildStdin,
    answers: UnboundedReceiver<Value>,
}

/// A refusal by the library: its exception's class and text.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) class: String,
    pub(crate) message: String,
}

impl Agent {
    /// On one database. It has connected when its first answer comes.
    pub(crate) fn start(database: &TestDatabase) -> Agent {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peer/agent.py");
        let mut command = Command::new(python());
        command.arg(script).args([&database.uri(), database.name()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = spawn_kept(command).unwrap_or_else(|error| panic!("Python does not start: {error}\n{ADVICE}"));
        let requests = child.stdin.take().expect("its input is a pipe");
        let answers = lines(child.stdout.take().expect("its output is a pipe"));
        Agent { child, requests, answers }
    }

    /// One that has made its store in this database, or opened the one that is there.
    pub(crate) async fn with_store(database: &TestDatabase) -> Agent {
        let mut agent = Agent::start(database);
        agent.ask(json!({ "do": "open" })).await;
        agent
    }

    /// Sends a request and returns what it gave.
    pub(crate) async fn ask(&mut self, request: Value) -> Value {
        self.send(&request);
        self.answer().await.unwrap_or_else(|refusal| panic!("{request}: {refusal:?}"))
    }

    /// Sends a request that the library is to refuse.
    pub(crate) async fn refused(&mut self, request: Value) -> Refusal {
        self.send(&request);
        match self.answer().await {
            Err(refusal) => refusal,
            Ok(value) => panic!("{request} was to be refused and gave {value}"),
        }
    }

    /// Sends a request without waiting for its answer.
    pub(crate) fn send(&mut self, request: &Value) {
        writeln!(self.requests, "{request}").expect("the agent reads");
    }

    /// The next answer.
    pub(crate) async fn answer(&mut self) -> Result<Value, Refusal> {
        let answer = tokio::time::timeout(BOUND, self.answers.recv()).await;
        let answer = answer.unwrap_or_else(|_| panic!("no answer from the agent within {BOUND:?}"));
        result(answer.unwrap_or_else(|| panic!("the agent has ended: see its last lines above\n{ADVICE}")))
    }

    /// The next answer if it has come.
    pub(crate) fn answer_so_far(&mut self) -> Option<Result<Value, Refusal>> {
        match self.answers.try_recv() {
            Ok(answer) => Some(result(answer)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => panic!("the agent has ended"),
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn result(mut answer: Value) -> Result<Value, Refusal> {
    match answer.get("error").and_then(Value::as_str) {
        Some(class) => {
            let message = answer["message"].as_str().unwrap_or_default().to_owned();
            Err(Refusal { class: class.to_owned(), message })
        }
        None => Ok(answer["ok"].take()),
    }
}

fn lines(output: ChildStdout) -> UnboundedReceiver<Value> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let answer = serde_json::from_str(&line).unwrap_or_else(|error| panic!("not an answer: {line}: {error}"));
            if sender.send(answer).is_err() {
                break;
            }
        }
    });
    receiver
}

fn python() -> PathBuf {
    match std::env::var_os("LOCKHOUSE_TEST_PEER_PYTHON") {
        Some(python) if Path::new(&python).is_file() => python.into(),
        Some(python) => panic!("LOCKHOUSE_TEST_PEER_PYTHON names {}, which is no file\n{ADVICE}", python.display()),
        None => panic!("LOCKHOUSE_TEST_PEER_PYTHON is not set\n{ADVICE}"),
    }
}
