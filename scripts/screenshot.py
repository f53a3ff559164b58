"""Takes the picture of a page through a WebDriver that runs: scripts/screenshot.py PORT URL FILE."""

import base64
import json
import os
import sys
import time
import urllib.error
import urllib.request

PATIENCE = 60


def ask(url, body=None, method=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)["value"]


def until(what, look):
    give_up = time.monotonic() + PATIENCE
    while True:
        try:
            if look():
                return
        except OSError:
            pass
        if time.monotonic() > give_up:
            sys.exit(f"waited in vain for {what}")
        time.sleep(0.2)


def main():
    port, page, file = sys.argv[1:]
    driver = f"http://127.0.0.1:{port}"
    until("the driver", lambda: ask(f"{driver}/status")["ready"])
    # As the tests of the page start it.
    options = {"args": ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                        "--hide-scrollbars", "--force-device-scale-factor=1", "--window-size=1280,1340"]}
    if os.environ.get("LOCKHOUSE_TEST_CHROMIUM"):
        options["binary"] = os.environ["LOCKHOUSE_TEST_CHROMIUM"]
    capabilities = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
    session = f"{driver}/session/{ask(f'{driver}/session', capabilities)['sessionId']}"
    try:
        ask(f"{session}/url", {"url": page})
        shown = ("const text = document.body.innerText; return document.getElementById('link').dataset.link === 'live'"
                 " && text.includes('waits to have the store alone') && text.includes('Needs a person')")
        until("the drain", lambda: ask(f"{session}/execute/sync", {"script": shown, "args": []}))
        picture = base64.b64decode(ask(f"{session}/screenshot"))
    finally:
        ask(session, method="DELETE")
    with open(file, "wb") as out:
        out.write(picture)


main()
