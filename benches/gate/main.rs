//! What it costs to enter and to leave an open gate, by one thread and by several at once.
//!
//! Beside it: an `Arc` that is cloned and dropped, which is the least that a guard of a shared thing can cost.

#[path = "../support/table.rs"]
#[allow(dead_code, reason = "shared with the other benchmarks")]
mod table;

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use lockhouse::{Coordinator, GateOptions, MemoryStore, WriterGate};

use table::{Aim, Row};

/// Entries of one sample, by each thread.
const ENTRIES: u32 = 200_000;
const SAMPLES: usize = 21;
const THREADS: [usize; 4] = [1, 2, 4, 8];

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let store = MemoryStore::new();
    let coordinator = Coordinator::on_memory(&store).connect().await.unwrap();
    coordinator.init().await.unwrap();
    let gate = coordinator.gate(GateOptions::default());
    // The lease is acquired once, for all.
    let held = gate.enter().await.unwrap();
    table::head("gate", "an Arc");
    let limit = "CPU: one atomic for the entry, one for the guard, a clock read; several threads share a cache line";
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for threads in THREADS {
        let shared = Arc::new(0_u64);
        let mut row = Row::of(format!("enter and leave, {threads} at once")).limited_by(limit);
        if threads == 1 {
            row = row.aim(Aim::Within(Duration::from_nanos(100)));
        }
        for sample in 0..=SAMPLES {
            let entered = run(threads, {
                let gate = gate.clone();
                move || enter(&gate)
            });
            let cloned = run(threads, {
                let shared = shared.clone();
                move || drop(std::hint::black_box(shared.clone()))
            });
            // The first does not count.
            if sample > 0 {
                row.ours.push(entered);
                row.driver.push(cloned);
            }
        }
        row.print();
        let nanos = |samples: &[Duration]| table::share(samples, 50).unwrap().as_nanos() as f64;
        ours.push((threads as f64, nanos(&row.ours)));
        bare.push((threads as f64, nanos(&row.driver)));
    }
    table::series("gate", "enter and leave", &ours);
    table::series("gate", "an Arc, cloned and dropped", &bare);
    drop(held);
    drop(gate);
    coordinator.shutdown().await;
}

fn enter(gate: &WriterGate) {
    drop(std::hint::black_box(gate.try_enter().expect("the gate is open")));
}

/// What one call costs a thread, while so many threads do the same.
fn run(threads: usize, call: impl Fn() + Clone + Send + 'static) -> Duration {
    let barrier = Arc::new(Barrier::new(threads));
    let running: Vec<_> = (0..threads)
        .map(|_| {
            let (barrier, call) = (barrier.clone(), call.clone());
            std::thread::spawn(move || {
                barrier.wait();
                let began = Instant::now();
                for _ in 0..ENTRIES {
                    call();
                }
                began.elapsed() / ENTRIES
            })
        })
        .collect();
    let took: Vec<Duration> = running.into_iter().map(|thread| thread.join().unwrap()).collect();
    took.iter().sum::<Duration>() / u32::try_from(threads).unwrap()
}
