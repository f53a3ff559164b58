//! What the page says in its HTML alone, and that all of it is text.

use futures::executor::block_on;
use lockhouse::{Coordinator, LeaseKind};
use mongodb::bson::{Bson, DateTime, Document, doc};

use crate::client::{Answer, get};
use crate::program::Store;
use crate::served::{Served, another, dead, memory, serve_on, until};

#[test]
fn without_a_script_all_facts_are_there_and_it_loads_anew() {
    let (store, coordinator) = memory();
    let served = Served::ready(&coordinator);
    let empty = get(served.address, "/");
    assert!(empty.head.contains("text/html") && empty.body.contains("Nobody writes."), "{empty:?}");
    assert!(empty.body.contains("<noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript>"));
    // Nothing is loaded from anywhere.
    assert!(!empty.body.contains("http://") && !empty.body.contains("https://") && !empty.body.contains("@import"));
    let policy = empty.header("content-security-policy").unwrap();
    let nonce = policy.split("script-src 'nonce-").nth(1).unwrap().split('\'').next().unwrap();
    assert_eq!(empty.body.matches(&format!("nonce=\"{nonce}\"")).count(), 2);
    assert_eq!(empty.body.matches("<script").count() + empty.body.matches("<style").count(), 2);
    assert!(!empty.body.contains(" style="), "the policy forbids them");
    assert!(!get(served.address, "/").body.contains(nonce), "a nonce is used once");

    let writer = another(&store, "import-orders");
    let lease = block_on(writer.acquire_writer().reason("night run").into_future()).unwrap();
    let page = until(served.address, "/", "the writer", |page| page.body.contains("import-orders"));
    for fact in
        ["1 writer in the store", "night run", "fresh", "role=\"meter\"", "<h1 id=\"phase\" data-phase=\"open\">"]
    {
        assert!(page.body.contains(fact), "{fact}");
    }
    let checker = another(&store, "checker");
    let draining =
        std::thread::spawn(move || block_on(checker.acquire_fsck().reason("nightly").into_future()).unwrap());
    let page = until(served.address, "/", "the drain", |page| page.body.contains("data-phase=\"draining\""));
    assert!(page.body.contains("waits to have the store alone") && page.body.contains("nightly"), "{page:?}");
    block_on(lease.release()).unwrap();
    let fsck = draining.join().unwrap();
    until(served.address, "/", "the fsck", |page| page.body.contains("data-phase=\"exclusive\""));
    block_on(fsck.release()).unwrap();
    until(served.address, "/", "its trace", |page| page.body.contains("<strong>granted</strong>"));
    // What the script exchanges is the same, without the frame.
    let part = get(served.address, "/?part=live");
    assert!(part.body.starts_with("<header") && !part.body.contains("<script"), "{part:?}");
}

#[test]
fn what_needs_a_person_comes_with_its_command() {
    let (store, coordinator) = memory();
    let served = Served::ready(&coordinator);
    let id = dead(&store, "died", LeaseKind::Writer);
    let page = until(served.address, "/", "the stale writer", |page| page.body.contains("Needs a person"));
    assert!(page.body.contains(&format!("lockhouse prune {id}")), "{page:?}");
    block_on(coordinator.prune_stale_writers().into_future()).unwrap();
    dead(&store, "died too", LeaseKind::Fsck);
    let page = until(served.address, "/", "the stale fsck", |page| page.body.contains("data-phase=\"blocked\""));
    assert!(page.body.contains("lockhouse clear") && page.body.contains("died too"), "{page:?}");
    store.set_reachable(false);
    let page = until(served.address, "/", "the outage", |page| page.body.contains("data-phase=\"unreachable\""));
    assert!(page.body.contains("What is below is as it was") && page.body.contains("died too"), "{page:?}");
}

#[test]
fn ten_thousand_writers_are_the_worst_and_a_number() {
    let (store, coordinator) = memory();
    let crowd = block_on(Coordinator::on_memory(&store).label("crowd").connect()).unwrap();
    let all = (0..10_000).map(|_| crowd.acquire_writer().into_future());
    let leases = block_on(futures::future::try_join_all(all)).unwrap();
    let id = dead(&store, "the worst", LeaseKind::Writer);
    let served = Served::ready_or_not(&coordinator);
    // The crowd is refreshed by the clock that was shifted, and the dead one is left.
    let page = until(served.address, "/", "all of them", |page| page.body.contains("10,001 writers, 1 stale"));
    assert!(page.body.contains(&format!("lockhouse prune {id}")), "{page:?}");
    assert!(page.body.contains("and 9,951 more writers"), "{}", page.body.len());
    assert_eq!(page.body.matches("<li class=\"lease ").count(), 50);
    assert!(page.body.len() < 100_000, "{}", page.body.len());
    let first = page.body.split("<li class=\"lease ").nth(1).unwrap();
    assert!(first.starts_with("writer stale") && first.contains("the worst"), "{first}");
    drop(leases);
}

/// A document as somebody who wants to do harm would write it.
fn hostile(n: usize, label: &str) -> Document {
    let now = DateTime::now();
    let owner = format!("owner {n} <b>");
    doc! {
        "_id": format!("lease/{n}<img src=x onerror=alert(1)>"), "kind": "writer", "owner": &owner, "heartbeat": now,
        "lockhouse": {
            "for": &owner, "version": 1, "beats": 1_i64, "acquired": now, "refresh_interval_ms": 500_i64,
            "stale_after_ms": 2000_i64, "reason": label, "phase": Bson::Null,
            "holder": { "host": label, "pid": 1_i64, "user": label, "program": label, "label": label, "boot_id": label },
        },
    }
}

/// The texts of `hostile`: each is one way to break out.
pub(crate) fn texts() -> Vec<String> {
    vec![
        "<script>document.title = 'pwned'</script>".to_owned(),
        "\"><svg onload=alert(1)>".to_owned(),
        "' onmouseover='alert(1)".to_owned(),
        "</style></title></textarea><script>alert(2)</script>".to_owned(),
        "line\nbreaks\r\nand\u{2028}more".to_owned(),
        "\u{202e}gnp.exe\u{2066}\u{200f}".to_owned(),
        "&lt;b&gt; &amp; {{7*7}} ${7*7}".to_owned(),
        "long ".repeat(20_000),
    ]
}

#[test]
fn whatever_a_holder_calls_itself_it_is_text() {
    let store = Store::new();
    store.behind(|leases| async move {
        for (n, text) in texts().iter().enumerate() {
            leases.insert_one(hostile(n, text)).await.unwrap();
        }
    });
    let (_serve, address) = serve_on(&store);
    let all = |page: &Answer| page.body.contains("8 writers") && page.body.contains("Needs a person");
    let page = until(address, "/", "the hostile writers, stale by now", all).body;
    assert!(page.len() < 200_000, "a hundred kilobytes of a label are not shown: {}", page.len());
    assert_eq!(page.matches("<script").count(), 1, "that of the page itself");
    assert!(page.contains("&lt;script&gt;document.title"), "it is there as text");
    for bad in ["<svg onload", "<img", "<b>", "\u{202e}", "\u{2066}", "\u{200f}", "\u{2028}", "breaks\r"] {
        assert!(!page.contains(bad), "{bad:?}");
    }
    assert!(page.contains(r"line\nbreaks"), "a line break is shown as what it is");
    // An id that is no word for a shell is quoted.
    assert!(page.contains("lockhouse prune 'lease/0&lt;img src=x onerror=alert(1)&gt;'"), "{page}");
    let metrics = get(address, "/metrics").body;
    assert!(!metrics.contains("pwned") && !metrics.contains("long long"));
    let status = get(address, "/v1/status").json();
    assert!(status["writers"].as_array().unwrap().iter().any(|writer| writer["holder"]["label"] == texts()[0]));
}
