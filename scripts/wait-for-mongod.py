"""Waits until a MongoDB server takes writes; with a name, first makes it a replica set of one member.

    wait-for-mongod.py HOST:PORT [REPLICA_SET]

Speaks just enough of the wire protocol itself, because neither a shell nor a driver may be there.
"""

import socket
import struct
import sys
import time

BOUND = 60


def bson(document):
    def element(key, value):
        name = key.encode() + b"\0"
        if isinstance(value, str):
            text = value.encode() + b"\0"
            return b"\x02" + name + struct.pack("<i", len(text)) + text
        if isinstance(value, int):
            return b"\x10" + name + struct.pack("<i", value)
        if isinstance(value, list):
            return b"\x04" + name + bson({str(i): item for i, item in enumerate(value)})
        return b"\x03" + name + bson(value)

    body = b"".join(element(key, value) for key, value in document.items())
    return struct.pack("<i", len(body) + 5) + body + b"\0"


def ask(address, command):
    """The raw reply; what is looked for in it is found without decoding."""
    message = struct.pack("<ib", 0, 0) + bson({**command, "$db": "admin"})
    header = struct.pack("<iiii", 16 + len(message), 1, 0, 2013)
    with socket.create_connection(address, timeout=5) as server:
        server.sendall(header + message)
        stream = server.makefile("rb")
        length = struct.unpack("<i", stream.read(4))[0]
        return stream.read(length - 4)


def main():
    host, port = sys.argv[1].rsplit(":", 1)
    replica_set = sys.argv[2] if len(sys.argv) > 2 else None
    member = {"_id": 0, "host": sys.argv[1]}
    writable = b"\x08isWritablePrimary\0\x01"
    give_up = time.monotonic() + BOUND
    initiated = False
    seen = "nothing"
    while time.monotonic() < give_up:
        try:
            if replica_set and not initiated:
                config = {"_id": replica_set, "members": [member]}
                seen = ask((host, int(port)), {"replSetInitiate": config})
                initiated = b"\x01ok\0" + struct.pack("<d", 1) in seen or b"AlreadyInitialized" in seen
            else:
                seen = ask((host, int(port)), {"hello": 1})
                if writable in seen:
                    return
        except (OSError, struct.error) as error:
            seen = error
        time.sleep(0.1)
    sys.exit(f"{sys.argv[1]} takes no writes after {BOUND} s; last seen: {seen}")


main()
