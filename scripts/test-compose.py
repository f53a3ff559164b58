"""The example of docker-compose.yml, from its start to its end. Run by scripts/test-compose.

    test-compose.py COMPOSE…

Waits for conditions with a bound, and says what it saw last.
"""

import base64
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

PROJECT = f"lockhouse-test-{os.getpid()}"
COMPOSE = sys.argv[1:]
BASE = f"http://127.0.0.1:{os.environ['LOCKHOUSE_PORT']}"
# Enough for a busy machine; nothing waits so long when all is well.
BOUND = 180

passed = 0


def say(text):
    print(f"test-compose: {text}", flush=True)


def compose(*words, project=PROJECT, **options):
    options = {"check": True, "text": True, "stdin": subprocess.DEVNULL, **options}
    return subprocess.run([*COMPOSE, "--project-name", project, *words], **options)


def docker(*words):
    return subprocess.run(["docker", *words], check=True, text=True, capture_output=True).stdout.strip()


def ask(path, login=None):
    """The code and the text of an answer."""
    request = urllib.request.Request(BASE + path)
    if login:
        request.add_header("Authorization", login)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def until(what, look):
    """Looks until it gives something true."""
    global passed
    begin = time.monotonic()
    while True:
        seen = look()
        if seen[0]:
            passed += 1
            say(f"{what}: after {time.monotonic() - begin:.1f} s")
            return seen[1]
        if time.monotonic() - begin > BOUND:
            raise AssertionError(f"waited {BOUND} s in vain for: {what}; last seen: {seen[1]}")
        time.sleep(0.2)


def expect(what, holds, seen):
    global passed
    if not holds:
        raise AssertionError(f"{what}: {seen}")
    passed += 1
    say(what)


def sweep():
    """A run that was killed outright leaves its project behind."""
    form = '{{.Label "com.docker.compose.project"}}'
    for project in set(docker("ps", "--all", "--format", form).split()):
        owner = project.removeprefix("lockhouse-test-")
        if owner != project and owner.isdigit() and not os.path.exists(f"/proc/{owner}"):
            down(project)


def down(project=PROJECT):
    compose("down", "--volumes", "--remove-orphans", "--timeout", "5", project=project, capture_output=True)


def leases(status, state):
    return sorted(lease["holder"]["label"] for lease in status["writers"] if lease["state"] == state)


def example():
    compose("up", "--detach")
    shown = compose("exec", "-T", "serve", "/lockhouse", "token", "--show", "/run/lockhouse/token", capture_output=True)
    token = shown.stdout.strip()
    bearer = f"Bearer {token}"
    browser = "Basic " + base64.b64encode(f"me:{token}".encode()).decode()

    def status(shows):
        def look():
            code, text = ask("/v1/status", bearer)
            if code != 200:
                return False, (code, text)
            found = json.loads(text)
            return shows(found), found

        return look

    def page(word):
        def look():
            code, text = ask("/", browser)
            return code == 200 and word in text, (code, text[:2000])

        return look

    def both(found):
        return found["state"] == "open" and leases(found, "fresh") == ["writer-1", "writer-2"]

    before = until("the status shows both writers", status(both))
    for label in ("writer-1", "writer-2"):
        until(f"the page shows {label}", page(label))
    until("it is ready", lambda: (lambda answer: (answer[0] == 200, answer))(ask("/readyz")))
    code, text = ask("/v1/status")
    expect("nobody sees it without the token", code == 401 and "writer" not in text, (code, text))
    container = compose("ps", "--quiet", "serve", capture_output=True).stdout.strip()
    until(
        "its own health check passes",
        lambda: (lambda health: (health == "healthy", health))(
            docker("inspect", "--format", "{{.State.Health.Status}}", container)
        ),
    )
    expect("it is not root", docker("inspect", "--format", "{{.Config.User}}", container) == "65532:65532", container)

    # The fsck drains them, and everybody can see it.
    words = [*COMPOSE, "--project-name", PROJECT, "run", "--rm", "-T", "fsck"]
    fsck = subprocess.Popen(words, stdin=subprocess.DEVNULL, text=True, stderr=subprocess.PIPE)
    try:
        until("the status shows the drain", status(lambda found: found["state"] == "draining" and found["writers"]))
        until("the page shows the drain", page('data-phase="draining"'))
        alone = until("the fsck is alone", status(lambda found: found["state"] == "exclusive"))
        expect("no writer is in", alone["writers"] == [], alone)
        until("the page shows it", page('data-phase="exclusive"'))
        _, errors = fsck.communicate(timeout=BOUND)
        expect("the fsck ends well", fsck.returncode == 0, errors)
    finally:
        fsck.kill()
    after = until("both writers are back", status(both))
    expect("the generation is raised", after["generation"] == before["generation"] + 1, after["generation"])

    # A writer is killed outright: an engine starts nothing again that a person killed.
    victim = compose("ps", "--quiet", "writer-1", capture_output=True).stdout.strip()
    # At the beginning of a turn, so that it is not between two of them when the signal comes.
    def turn(found):
        return next((lease["id"] for lease in found["writers"] if lease["holder"]["label"] == "writer-1"), None)

    old = turn(after)
    until("the first writer has a new turn", status(lambda found: turn(found) not in (None, old)))
    docker("kill", "--signal", "KILL", victim)
    until("its lease is stale", status(lambda found: leases(found, "stale") == ["writer-1"]))
    code, text = ask("/readyz")
    expect("it is not ready, and says why", code == 503 and "stale_writers" in text, (code, text))
    code, text = ask("/metrics", bearer)
    series = 'lockhouse_store_leases{kind="writer",state="stale"} 1'
    expect("the metric of the alert says so", series in text.splitlines(), (code, text))
    compose("run", "--rm", "-T", "prune", capture_output=True)
    until("it is ready again after a prune", lambda: (lambda answer: (answer[0] == 200, answer))(ask("/readyz")))


def leave(*_):
    raise SystemExit(1)


for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, leave)
sweep()
failed = 1
try:
    example()
    failed = 0
except (AssertionError, subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
    say(f"FAILED: {error} {getattr(error, 'stderr', None) or ''}")
    compose("logs", "--no-color", "--tail", "15", check=False)
finally:
    # Another signal must not keep it from being taken away.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    down()
left = docker("ps", "--all", "--quiet", "--filter", f"label=com.docker.compose.project={PROJECT}")
left += docker("volume", "ls", "--quiet", "--filter", f"label=com.docker.compose.project={PROJECT}")
if left:
    say(f"FAILED: left behind: {left}")
    failed = 1
print(f"{passed} passed, {failed} failed")
sys.exit(failed)
