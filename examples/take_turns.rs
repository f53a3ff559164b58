//! The whole story on a store inside this process: writers come and go, an fsck drains them and works alone,
//! a writer that comes meanwhile is told who holds the store.

use std::time::Duration;

use futures::StreamExt;
use lockhouse::{Coordinator, MemoryStore, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let store = MemoryStore::new();
    let importer = Coordinator::on_memory(&store).label("importer").connect().await?;
    let nightly = Coordinator::on_memory(&store).label("nightly").connect().await?;
    importer.init().await?;

    let writer = importer.acquire_writer().reason("import orders").await?;
    println!("importer writes at generation {}", writer.generation());

    let mut request = nightly.acquire_fsck().reason("nightly check");
    let mut progress = request.progress();
    let fsck = tokio::spawn(async move { request.await });
    if let Some(drain) = progress.next().await {
        println!("fsck drains, and waits for:");
        for lease in &drain.waiting_for {
            println!("  {lease}");
        }
    }
    writer.check()?;
    writer.release().await?;
    println!("importer has left");

    let fsck = fsck.await.expect("the task does not panic")?;
    println!("fsck has the store alone, at generation {}", fsck.generation());
    let refused = importer.acquire_writer().await.expect_err("nobody writes beside an fsck");
    println!("importer is told: {refused}");

    let waiting = tokio::spawn(async move { importer.acquire_writer().wait(Duration::from_secs(10)).await });
    fsck.release().await?;
    let writer = waiting.await.expect("the task does not panic")?;
    println!("importer writes again, at generation {}", writer.generation());
    writer.release().await
}
