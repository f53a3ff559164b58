"""httk-store as a process of its own, told line by line what to do.

Each line of standard input is one JSON object, `{"do": VERB, ...}`, with the verb's arguments beside it; each is
answered by one line, `{"ok": ...}` or `{"error": CLASS, "message": TEXT}`, in order. A verb that waits makes
the next ones wait. The end of the input ends the process.

    agent.py URI DATABASE
"""

import json
import random
import sys
import time
import traceback
from dataclasses import dataclass

from pymongo import ReturnDocument

from httk.store.backend.mongo import MongoDatabase, MongoStore
from httk.store.backend.mongo import leases


@dataclass(frozen=True)
class Part:
    """What a `Whole` depends on: garbage for httk-store's sweep once no `Whole` names it."""

    name: str


@dataclass(frozen=True)
class Whole:
    name: str
    part: Part


def say(answer):
    print(json.dumps(answer), flush=True)


class Agent:
    def __init__(self, uri, name):
        self.connection = MongoDatabase(uri, name)
        self.database = self.connection.database
        self.store = None
        self.lease = None

    # ---- leases ----

    @staticmethod
    def timing(arguments):
        interval = arguments.pop("refresh_interval", None)
        return leases.DEFAULT_TIMING if interval is None else leases.LeaseTiming(interval, stale_multiplier=3)

    def acquire_writer(self, **arguments):
        self.lease = leases.acquire_writer(self.database, timing=self.timing(arguments))
        return {"id": self.lease.identifier, "owner": self.lease.owner, "generation": self.lease.generation}

    def acquire_fsck(self, force=False, pause=False, **arguments):
        if not pause:
            self.lease = leases.acquire_fsck(self.database, force=force, timing=self.timing(arguments))
            return {"id": self.lease.identifier, "owner": self.lease.owner}
        # Between the insert of the lease, whose heartbeat is null, and its first heartbeat.
        first_heartbeat = leases.FsckLease.refresh_heartbeat

        def pause_and_refresh(lease, *, force=False):
            leases.FsckLease.refresh_heartbeat = first_heartbeat
            say({"ok": "paused"})
            sys.stdin.readline()
            lease.refresh_heartbeat(force=force)

        leases.FsckLease.refresh_heartbeat = pause_and_refresh
        return self.acquire_fsck(force=force)

    def refresh(self):
        self.lease.refresh_heartbeat(force=True)

    def release(self):
        self.lease.release()

    def clear_stale_lock(self, **arguments):
        leases.clear_stale_lock(self.database, timing=self.timing(arguments))

    # ---- the store ----

    def open(self):
        self.store = MongoStore(self.connection, entry_records={})
        self.store.ensure_collections(Whole)

    def save(self, name, part):
        return self.store.save(Whole(name, Part(part)))

    def fetch(self, sid):
        whole = self.store.fetch(Whole, sid)
        return [whole.name, whole.part.name]

    def forget(self, sid):
        """Removes one document behind the store's back, which leaves its part to the sweep."""
        return self.database["whole"].delete_one({"_id": sid}).deleted_count

    def fsck(self, force=False):
        summary = self.store.fsck(force=force, known_types=(Whole, Part))
        return {
            "generation": summary.generation,
            "violations": list(summary.violations),
            "repaired": sum(collection.repaired for collection in summary.collections.values()),
            "deleted": sum(collection.deleted for collection in summary.collections.values()),
        }

    # ---- contention ----

    def contend(self, rounds, seed):
        """Takes leases of both kinds in turn with others who do the same, and tells who was inside with whom.

        Everybody who holds a lease is counted in one document, so an overlap is seen by whoever comes second.
        """
        chance = random.Random(seed)
        seen = {"granted": 0, "refused": 0, "overlaps": []}
        give_up = time.monotonic() + 90
        while seen["granted"] < rounds and time.monotonic() < give_up:
            kind = "fsck" if chance.random() < 0.3 else "writer"
            acquire = leases.acquire_fsck if kind == "fsck" else leases.acquire_writer
            try:
                lease = acquire(self.database)
            except leases.StoreLockedError:
                # A refusal is quick and a drain is not: without a pause all tries would be spent on one fsck.
                seen["refused"] += 1
                time.sleep(chance.random() * 0.04)
                continue
            seen["granted"] += 1
            inside = self.count(kind, 1)
            alone = inside["fsck"] == 1 and inside["writer"] == 0
            if not alone if kind == "fsck" else inside["fsck"] != 0:
                seen["overlaps"].append({"kind": kind, "writer": inside["writer"], "fsck": inside["fsck"]})
            self.count(kind, -1)
            lease.release()
        return seen

    def count(self, kind, by):
        return self.database["inside"].find_one_and_update(
            {"_id": 0}, {"$inc": {kind: by}}, return_document=ReturnDocument.AFTER
        )


def main():
    agent = Agent(*sys.argv[1:])
    for line in iter(sys.stdin.readline, ""):
        request = json.loads(line)
        verb = request.pop("do")
        try:
            say({"ok": getattr(agent, verb)(**request)})
        except Exception as error:
            traceback.print_exc()
            say({"error": type(error).__name__, "message": str(error)})


main()
