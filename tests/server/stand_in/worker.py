"""Stands in for the tracing worker: "captures" the texts of a check's files without running them.

Names in the code ask for misbehaviour: ``SLOW`` takes half a second, ``HANG`` never answers, ``CRASH`` ends the process, ``NOISE`` writes
something that is no frame, ``NONSENSE`` answers what nobody expects, ``FLOOD`` sends a hundred thousand notifications first.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from graphguard.trace.process import wire

STREAM = os.fdopen(os.dup(1), "wb")
LOCK = threading.Lock()
CANCELLED: set[int] = set()


def send(message: dict) -> None:
    with LOCK:
        wire.write(STREAM, message)


def texts_of(params: dict) -> dict[str, str]:
    """The check's file and the project's files that it imports by name."""
    overlay, root = params["overlay"], Path(params["root"])
    waiting, texts = [params["file"]], {}
    while waiting:
        path = waiting.pop()
        if path in texts or not (path in overlay or Path(path).is_file()):
            continue
        texts[path] = overlay[path] if path in overlay else Path(path).read_bytes().decode()
        imports = [line.split()[1] for line in texts[path].splitlines() if line.startswith(("from ", "import "))]
        waiting += [str(root / (name.replace(".", "/") + ".py")) for name in imports]
    return texts


def capture(number: int, params: dict) -> None:
    texts = texts_of(params)
    code = "\n".join(line.partition("#")[0] for text in texts.values() for line in text.splitlines())
    with open(os.environ["STAND_IN_LOG"], "a") as log:
        log.write(f"capture {params['name']} {params['mesh']}\n")
    if "CRASH" in code:
        os._exit(3)
    if "NOISE" in code:
        with LOCK:
            STREAM.write(b"hello, this is a print of the user's code\n" * 10)
            STREAM.flush()
    if "FLOOD" in code:
        for _ in range(100_000):
            send({"method": "progress", "params": {"stage": "trace"}})
    end = time.monotonic() + (3600 if "HANG" in code else 0.5 if "SLOW" in code else 0)
    while time.monotonic() < end and number not in CANCELLED:
        time.sleep(0.01)
    if number in CANCELLED:
        send({"id": number, "error": {"code": "cancelled", "message": "cancelled"}})
    else:
        send({"id": number, "result": {} if "NONSENSE" in code else {"texts": texts}})


def main() -> None:
    while (message := wire.read(sys.stdin.buffer)) is not None:
        if message["method"] == "ping":
            send({"id": message["id"], "result": {}})
        elif message["method"] == "cancel":
            CANCELLED.add(message["params"]["id"])
        elif message["method"] == "capture":
            threading.Thread(target=capture, args=(message["id"], message["params"]), daemon=True).start()
        elif message["method"] == "list":
            send({"id": message["id"], "result": {"checks": [{"name": "mlp", "meshes": [{"tp": 2}, {"tp": 8}]}]}})
        else:
            send({"id": message["id"], "result": {}})


main()
