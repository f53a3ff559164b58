"""What the same costs httk-store: one line of JSON with samples in seconds.

    peer.py URI DATABASE SAMPLES DRAINS
"""

import json
import random
import sys
import threading
import time

from httk.store.backend.mongo import MongoDatabase, MongoStore, leases


def timed(work, samples):
    work()
    took = []
    for _ in range(samples):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return took


def main(uri, name, samples, drains):
    connection = MongoDatabase(uri, name)
    MongoStore(connection, entry_records={})
    database = connection.database

    def hand_over():
        writer = leases.acquire_writer(database)
        granted = []

        def drain():
            fsck = leases.acquire_fsck(database)
            granted.append(time.perf_counter())
            fsck.release()

        draining = threading.Thread(target=drain)
        draining.start()
        # Until the pauses between its looks are as long as they get, and not always at the same moment of one.
        time.sleep(0.8 + random.random() * 0.25)
        writer.release()
        gone = time.perf_counter()
        draining.join()
        return granted[0] - gone

    result = {
        "writer": timed(lambda: leases.acquire_writer(database).release(), samples),
        "fsck": timed(lambda: leases.acquire_fsck(database).release(), samples),
        "hand_over": [hand_over() for _ in range(drains)],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
