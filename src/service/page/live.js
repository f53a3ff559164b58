// Makes the page live: each look at the store exchanges what was made on the server. Without it the page loads itself
// anew; nothing is shown that was not in the HTML.
"use strict";
(() => {
  const live = document.getElementById("live");
  const link = document.getElementById("link");
  const said = document.getElementById("said");
  // The router may be mounted anywhere, with or without a slash at the end.
  const base = location.pathname.replace(/\/?$/, "/");
  document.querySelectorAll("footer a").forEach((a) => { a.href = base + a.getAttribute("href"); });
  const words = { static: "As of loading", live: "Live", lost: "Not live: trying to reach the service again" };
  const tell = (state) => { link.dataset.link = state; link.textContent = words[state]; };

  let busy = false, again = false;
  const phase = () => document.getElementById("phase").dataset.phase;
  let before = phase();

  const exchange = (text) => {
    const made = new DOMParser().parseFromString(text, "text/html");
    const focused = document.activeElement;
    const focus = live.contains(focused) ? focused.id || null : null;
    // A command that somebody is about to copy stays under his hand.
    const selection = getSelection();
    if (selection && !selection.isCollapsed && live.contains(selection.anchorNode)) return;
    if (live.contains(focused) && !focus && focused.classList.contains("command")) return;
    live.replaceChildren(...made.body.childNodes);
    if (focus) document.getElementById(focus)?.focus({ preventScroll: true });
    live.querySelectorAll("a[href='v1/status']").forEach((a) => { a.href = base + "v1/status"; });
    const now = phase();
    if (now !== before) {
      said.textContent = "The store is now " + now;
      document.title = document.title.replace(before, now);
      before = now;
    }
  };

  const refresh = async () => {
    if (document.hidden) return;
    if (busy) { again = true; return; }
    busy = true;
    try {
      const answer = await fetch(base + "?part=live", { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.status);
      exchange(await answer.text());
      tell("live");
    } catch {
      tell("lost");
    }
    busy = false;
    if (again) { again = false; refresh(); }
  };

  let source;
  const listen = () => {
    source = new EventSource(base + "v1/events?looks=true");
    source.addEventListener("open", refresh);
    source.addEventListener("look", refresh);
    source.addEventListener("error", () => {
      tell("lost");
      // A refused connection is not tried again by itself.
      if (source.readyState === EventSource.CLOSED) setTimeout(listen, 2000);
    });
  };
  document.addEventListener("visibilitychange", refresh);
  // What is kept for the way back must not keep a connection.
  addEventListener("pagehide", () => source.close());
  addEventListener("pageshow", (event) => { if (event.persisted) listen(); });
  listen();
})();
