//! `demo`: the whole story in half a minute, with real processes on a real store.
//!
//! Writers come and go under writer leases; two fscks ask for the store while they do. Every process
//! notes when it worked, on the machine's own clock, and at the end nothing may overlap that must not.
//!
//! - [`cast`]: the processes.
//! - [`work`](mod@work): what each of them does, and its notes.
//! - [`timeline`]: what the notes say, and whether it is right.
//! - `replica_set`: a server for the example in `docker-compose.yml`, which is no part of the story.

mod cast;
#[cfg(feature = "mongo")]
mod replica_set;
mod timeline;
mod work;

use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;

use super::exit::Failure;
use super::store::{self, Store};
use super::{Context, output};
use cast::Cast;
use timeline::Timeline;

#[cfg(feature = "mongo")]
pub(crate) use replica_set::initiate;
pub(crate) use work::work;

/// The collection, unless another is given.
const COLLECTION: &str = "lockhouse_demo";
/// Half a second times four: a lease of the demo is valid for one and a half seconds without a refresh.
const REFRESH_INTERVAL: Duration = Duration::from_millis(500);

/// Plays the story and judges it.
pub(crate) async fn demo(context: &mut Context) -> Result<i32, Failure> {
    let (mut global, console) = (context.global.clone(), context.console.clone());
    global.collection.get_or_insert_with(|| COLLECTION.to_owned());
    if global.stale_multiplier.is_none() {
        global.refresh_interval.get_or_insert(REFRESH_INTERVAL);
    }
    let notes = work::Notes::create().map_err(|error| Failure::system("the demo has no place for its notes", error))?;
    global.store.get_or_insert_with(|| notes.store().into_os_string());
    let preparing = async {
        let store = store::open(&global, &console, None).await?;
        store.coordinator.init().await?;
        Ok::<Store, Failure>(store)
    };
    let store = tokio::select! {
        biased;
        signal = context.signals.interrupted() => return Err(Failure::interrupted(signal)),
        store = preparing => store?,
    };
    console.say("demo", &format!("store {}; this takes about ten seconds", store.name()));

    let cast = Arc::new(Cast::new(&global, &store.url, notes.file())?);
    let (done, mut played) = tokio::sync::oneshot::channel();
    let playing = Arc::clone(&cast);
    let narrator = console.clone();
    let player = std::thread::spawn(move || {
        let _ = done.send(playing.play(&narrator));
    });
    let mut interrupted: Option<std::io::Result<Signal>> = None;
    let parts = loop {
        tokio::select! {
            biased;
            signal = context.signals.interrupted() => {
                console.say("demo", "ending the demo's processes");
                cast.stop();
                interrupted.get_or_insert(signal);
            }
            parts = &mut played => break parts,
        }
    };
    let _ = player.join();
    if let Some(signal) = interrupted {
        return Err(Failure::interrupted(signal));
    }
    let parts = parts.map_err(|_| Failure::Demo("the demo broke off".to_owned()))?;
    let spans = notes.read().map_err(|error| Failure::system("the demo's notes cannot be read", error))?;
    let timeline = Timeline::new(parts, spans);
    let left = store.coordinator.status().await?;
    let left = left.fsck.iter().chain(&left.writers);
    let left: Vec<String> = left.filter(|lease| cast.is_own(lease)).map(|lease| lease.id.clone()).collect();
    show(&global, &store, &timeline)?;
    let mut faults = timeline.faults();
    if !left.is_empty() {
        faults.push(format!("leases were left behind: {}", left.join(", ")));
    }
    match faults.is_empty() {
        true => Ok(0),
        false => Err(Failure::Demo(format!("the demo failed: {}", faults.join("; ")))),
    }
}

fn show(global: &super::args::Global, store: &Store, timeline: &Timeline) -> Result<(), Failure> {
    if global.json {
        let mut object = json!({"schema": 1, "store": store.name()});
        if let (Some(object), serde_json::Value::Object(fields)) = (object.as_object_mut(), timeline.json()) {
            object.extend(fields);
        }
        output::print(&format!("{}\n", output::json_line(&object)))
    } else {
        output::print(&timeline.text())
    }
}
