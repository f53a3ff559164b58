//! The page as a browser shows it.

use futures::executor::block_on;
use lockhouse::LeaseKind;
use serde_json::json;

use crate::chromium::{Chromium, Look};
use crate::served::{Served, another, dead, memory};

const LIVE: &str = "return document.getElementById('link').dataset.link === 'live'";

async fn open(served: &Served) -> Chromium {
    let browser = Chromium::start(Look::default()).await;
    browser.page.goto(&format!("http://{}/", served.address)).await.unwrap();
    browser.until("the page to go live", LIVE).await;
    // Gone if the page is ever loaded anew.
    browser.ask("window.same = true").await;
    browser
}

fn shows(text: &str) -> String {
    format!("return document.body.innerText.includes({})", json!(text))
}

fn phase(word: &str) -> String {
    format!("return document.getElementById('phase').innerText === '{word}' && window.same === true")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_is_shown_as_it_happens() {
    let (store, coordinator) = tokio::task::spawn_blocking(memory).await.unwrap();
    let served = Served::ready(&coordinator);
    let browser = open(&served).await;
    browser.until("an open store", &phase("open")).await;
    let (writer, checker) = (another(&store, "import-orders"), another(&store, "check-everything"));
    let lease = writer.acquire_writer().reason("night run").await.unwrap();
    browser.until("the writer", &shows("import-orders")).await;
    assert_eq!(browser.ask("return document.querySelectorAll('.lease [role=meter]').length").await, 1);

    let draining = tokio::spawn(checker.acquire_fsck().reason("nightly").into_future());
    browser.until("the drain", &phase("draining")).await;
    browser.until("who waits", &shows("check-everything waits to have the store alone")).await;
    let said = "return document.getElementById('said').textContent === 'The store is now draining'";
    browser.until("a word for who cannot see", said).await;
    browser.until("the title", "return document.title.startsWith('draining')").await;
    lease.release().await.unwrap();
    let fsck = draining.await.unwrap().unwrap();
    browser.until("the fsck alone", &phase("exclusive")).await;
    fsck.release().await.unwrap();
    browser.until("an open store again", &phase("open")).await;
    browser.until("all of it in the last hour", "return ['open','exclusive'].every(word => [...document.querySelectorAll('.legend li')].some(li => li.innerText.includes(word)))").await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_lease_is_shown_with_its_command() {
    let (store, coordinator) = memory();
    let served = Served::ready(&coordinator);
    let browser = open(&served).await;
    let id = dead(&store, "died", LeaseKind::Writer);
    browser.until("what needs a person", &shows("Needs a person")).await;
    browser.until("the command", &shows(&format!("lockhouse prune {id}"))).await;
    browser
        .until("a full bar", "return document.querySelector('.lease.stale rect').getAttribute('width') === '100.0'")
        .await;
    coordinator.prune_stale_writers().await.unwrap();
    browser.until("nothing to do", "return !document.body.innerText.includes('Needs a person')").await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_a_holder_says_runs() {
    let (store, coordinator) = memory();
    let served = Served::ready(&coordinator);
    let browser = open(&served).await;
    let mut leases = Vec::new();
    for text in crate::page::texts().iter().map(|text| &text[..text.len().min(4000)]) {
        let hostile = another(&store, text);
        leases.push(hostile.acquire_writer().reason(text).await.unwrap());
    }
    browser
        .until("all of them", &format!("return document.querySelectorAll('.lease').length === {}", leases.len()))
        .await;
    browser.until("the script as text", &shows("<script>document.title = 'pwned'</script>")).await;
    let strange = "return [document.title.includes('pwned'), document.querySelectorAll('#live script, #live img, #live [onload], #live [onmouseover]').length]";
    assert_eq!(browser.ask(strange).await, json!([false, 0]));
    assert!(browser.page.get_alert_text().await.is_err());
    assert_eq!(browser.ask("return window.same").await, true);
    browser.close().await;
}

/// Every text's contrast against the nearest ground behind it, and what has a role without a name.
const UNREADABLE: &str = r#"
    const parse = (text) => (text.match(/[\d.]+/g) || []).map(Number);
    const linear = (part) => { part /= 255; return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4; };
    const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
    const ground = (element) => {
        for (; element; element = element.parentElement) {
            const colour = parse(getComputedStyle(element).backgroundColor);
            if (colour.length === 3 || colour[3] === 1) return colour;
        }
        return [255, 255, 255];
    };
    const bad = [];
    let texts = 0;
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const element = walker.currentNode.parentElement;
        if (!walker.currentNode.textContent.trim() || element.closest('script, style, .unseen, noscript')) continue;
        texts += 1;
        const [one, other] = [light(parse(getComputedStyle(element).color)), light(ground(element))];
        const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
        if (contrast < 4.5) bad.push(contrast.toFixed(2) + ' ' + walker.currentNode.textContent);
    }
    const name = (element) => {
        const by = element.getAttribute('aria-labelledby');
        return element.getAttribute('aria-label') || (by && document.getElementById(by)?.innerText);
    };
    for (const element of document.querySelectorAll('section:not(:empty), nav, [role=img], [role=meter]')) {
        if (!name(element)) bad.push('no name: ' + element.outerHTML.slice(0, 100));
    }
    const ids = [...document.querySelectorAll('[id]')].map((element) => element.id);
    if (new Set(ids).size !== ids.length) bad.push('an id twice: ' + ids);
    for (const role of ['main', 'header', 'footer', 'h1']) {
        if (document.querySelectorAll(role).length !== 1) bad.push('not one ' + role);
    }
    if (document.documentElement.lang !== 'en') bad.push('no language');
    return [texts, bad, getComputedStyle(document.body).backgroundColor];
"#;

#[tokio::test(flavor = "multi_thread")]
async fn everybody_can_read_it_in_the_light_and_in_the_dark_on_a_phone_and_with_a_keyboard() {
    let (store, coordinator) = memory();
    let served = Served::ready(&coordinator);
    let browser = open(&served).await;
    let writer = another(&store, "import-orders");
    let lease = writer
        .acquire_writer()
        .reason("a reason that is long enough to need more than one line on a phone")
        .await
        .unwrap();
    let own = coordinator.acquire_writer().await.unwrap();
    dead(&store, &"long".repeat(60), LeaseKind::Writer);
    browser.until("everything", &shows("Needs a person")).await;
    browser.until("the own lease", &shows("This process holds")).await;
    let mut papers = Vec::new();
    for scheme in ["light", "dark"] {
        browser.prefers(scheme).await;
        let seen = browser.ask(UNREADABLE).await;
        assert!(seen[0].as_u64().unwrap() > 30, "{seen}");
        assert_eq!(seen[1], json!([]), "{scheme}");
        papers.push(seen[2].clone());
    }
    assert_ne!(papers[0], papers[1], "the dark is dark");

    browser
        .command(
            "Emulation.setDeviceMetricsOverride",
            json!({"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": true}),
        )
        .await;
    let width = "return [document.documentElement.scrollWidth, innerWidth]";
    assert_eq!(browser.ask(width).await, json!([360, 360]), "nothing is wider than a phone");
    browser.command("Emulation.clearDeviceMetricsOverride", json!({})).await;

    // The first key gets to what skips to the leases, and a command can be reached and stays while it is.
    let tab = || async {
        for kind in ["keyDown", "keyUp"] {
            let key = json!({"type": kind, "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9});
            browser.command("Input.dispatchKeyEvent", key).await;
        }
    };
    tab().await;
    assert_eq!(browser.ask("return document.activeElement.innerText").await, "Skip to the leases");
    tab().await;
    assert_eq!(browser.ask("return document.activeElement.className").await, "command");
    let looks = "window.looked ||= (new EventSource('v1/events?looks=true').addEventListener('look', () => { window.looks = (window.looks || 0) + 1 }), true); return window.looks > 3";
    browser.until("some looks", looks).await;
    assert_eq!(browser.ask("return document.activeElement.className").await, "command");
    own.release().await.unwrap();
    lease.release().await.unwrap();
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_scripts_it_loads_itself_anew() {
    let (store, coordinator) = memory();
    let served = Served::ready(&coordinator);
    let browser = Chromium::start(Look { without_scripts: true }).await;
    browser.page.goto(&format!("http://{}/", served.address)).await.unwrap();
    browser.until("the phase", "return document.getElementById('phase').innerText === 'open'").await;
    assert_eq!(browser.ask("return document.getElementById('link').dataset.link").await, "static");
    let writer = another(&store, "import-orders");
    let lease = writer.acquire_writer().await.unwrap();
    browser.until("the writer", &shows("import-orders")).await;
    lease.release().await.unwrap();
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_goes_is_told_and_one_that_comes_back_is_found() {
    let (_store, coordinator) = memory();
    let served = Served::ready(&coordinator);
    let address = served.address;
    let browser = open(&served).await;
    tokio::task::spawn_blocking(move || served.ended()).await.unwrap();
    browser.until("the loss", "return document.getElementById('link').dataset.link === 'lost'").await;
    let again = Served::start_at(&coordinator, address);
    browser.until("to be live again", LIVE).await;
    assert_eq!(block_on(async { browser.ask("return window.same").await }), true);
    drop(again);
    browser.close().await;
}
