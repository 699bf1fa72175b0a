"""Sends random and mutated messages to the server: it must answer a probe after every batch, end with status 0 and leave no process.

``python benchmarks/server_fuzz.py --messages 100000 --seed 1``
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import queue
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "server"))

from lsp_editor import CHECK, MODEL, STAND_IN
from process_tree import alive, children

BATCH = 500
PROBE_SECONDS = 60.0
WORDS = [
    "",
    "x",
    "file:///etc/passwd",
    "file:///%00",
    "untitled:1",
    "🙂",
    "\ud800",
    "a" * 5000,
    "../..",
    "None",
    "graphguard.run",
]
NUMBERS = [0, 1, -1, 2**31 - 1, 2**31, 2**63, -(2**63), 0.5, 1e300]


def seeds(uri: str) -> list[dict[str, Any]]:
    """Well-formed messages that the mutations start from."""
    document = {"uri": uri}
    place = {"line": 5, "character": 8}
    whole = {"start": {"line": 0, "character": 0}, "end": {"line": 9, "character": 0}}
    at = {"textDocument": document, "position": place}
    requests: list[tuple[str, Any]] = [
        ("textDocument/hover", at),
        ("textDocument/definition", at),
        ("textDocument/typeDefinition", at),
        ("textDocument/references", {**at, "context": {"includeDeclaration": True}}),
        ("textDocument/completion", at),
        ("textDocument/codeAction", {"textDocument": document, "range": whole, "context": {"diagnostics": []}}),
        ("textDocument/codeLens", {"textDocument": document}),
        ("textDocument/documentSymbol", {"textDocument": document}),
        ("textDocument/inlayHint", {"textDocument": document, "range": whole}),
        ("textDocument/semanticTokens/full", {"textDocument": document}),
        ("workspace/symbol", {"query": "mlp"}),
        ("workspace/executeCommand", {"command": "graphguard.run", "arguments": [{"force": False}]}),
        ("graphguard/run", {"checks": [{"id": "check_mlp.py::mlp", "mesh": {"tp": 2}}]}),
        ("graphguard/cancel", {"checks": []}),
        ("graphguard/relations", {"uri": uri, "position": place}),
        ("graphguard/explain", {"rule": "wrong-scale"}),
        ("graphguard/debugInformation", {}),
    ]
    notifications: list[tuple[str, Any]] = [
        ("textDocument/didOpen", {"textDocument": {"uri": uri, "languageId": "python", "version": 1, "text": MODEL}}),
        (
            "textDocument/didChange",
            {"textDocument": {"uri": uri, "version": 2}, "contentChanges": [{"range": whole, "text": MODEL}]},
        ),
        ("textDocument/didChange", {"textDocument": {"uri": uri, "version": 3}, "contentChanges": [{"text": MODEL}]}),
        ("textDocument/didSave", {"textDocument": document}),
        ("textDocument/didClose", {"textDocument": document}),
        ("workspace/didChangeConfiguration", {"settings": {"graphguard": {"mode": "change"}}}),
        ("workspace/didChangeWatchedFiles", {"changes": [{"uri": uri, "type": 2}]}),
        ("workspace/didChangeWorkspaceFolders", {"event": {"added": [], "removed": []}}),
        ("$/cancelRequest", {"id": 3}),
        ("$/setTrace", {"value": "off"}),
        ("window/workDoneProgress/cancel", {"token": "graphguard-1"}),
        ("graphguard/trust", {"trusted": True}),
    ]
    found: list[dict[str, Any]] = [
        {"jsonrpc": "2.0", "id": 0, "method": method, "params": params} for method, params in requests
    ]
    return found + [{"jsonrpc": "2.0", "method": method, "params": params} for method, params in notifications]


def junk(chance: random.Random, depth: int = 0) -> Any:
    """A random JSON value."""
    pick = chance.randrange(8 if depth < 3 else 6)
    if pick == 6:
        return [junk(chance, depth + 1) for _ in range(chance.randrange(4))]
    if pick == 7:
        return {
            chance.choice([*WORDS, "uri", "line", "id"]): junk(chance, depth + 1) for _ in range(chance.randrange(4))
        }
    return [None, True, False, chance.choice(NUMBERS), chance.choice(WORDS), chance.choice(WORDS)][pick]


def mutated(message: Any, chance: random.Random) -> Any:
    """The message with one random place replaced, removed or added."""
    holders = [message]
    for holder in holders:
        inner = holder.values() if isinstance(holder, dict) else holder
        holders.extend(each for each in inner if isinstance(each, dict | list) and each)
    holder = chance.choice([each for each in holders if each] or [{"method": "x"}])
    key = chance.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    action = chance.randrange(4)
    if action == 0 and isinstance(holder, dict):
        del holder[key]
    elif action == 1 and isinstance(holder, dict):
        holder[chance.choice(WORDS)] = junk(chance)
    else:
        holder[key] = junk(chance)
    return message


class Client:
    """A client that sends anything and reads everything."""

    def __init__(self, folder: Path) -> None:
        environment = {**os.environ, "STAND_IN_LOG": str(folder / "log")}
        self.process = subprocess.Popen(
            STAND_IN, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
        self.answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        while line := stream.readline():
            length = 0
            while line.strip():
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
                line = stream.readline()
            number = json.loads(stream.read(length)).get("id")
            if isinstance(number, str) and number.startswith("probe"):
                self.answers.put(number)

    def send(self, message: Any) -> None:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)

    def probe(self, name: str) -> float:
        """Seconds until a harmless request is answered; raises ``queue.Empty``."""
        started = time.monotonic()
        self.send({"jsonrpc": "2.0", "id": name, "method": "graphguard/explain", "params": {"rule": "wrong-scale"}})
        assert self.process.stdin is not None
        self.process.stdin.flush()
        while self.answers.get(timeout=PROBE_SECONDS) != name:
            continue
        return time.monotonic() - started


def fuzz(messages: int, seed: int) -> None:
    """Send the messages; raises where the server does not answer, or does not end well."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in (("pyproject.toml", "[tool.graphguard]\n"), ("model.py", MODEL), ("check_mlp.py", CHECK)):
            (folder / file).write_text(text)
        client = Client(folder)
        root = folder.as_uri()
        client.send(
            {
                "jsonrpc": "2.0",
                "id": "probe-first",
                "method": "initialize",
                "params": {"processId": None, "rootUri": root, "capabilities": {}},
            }
        )
        client.send({"jsonrpc": "2.0", "method": "initialized", "params": {}})
        starts = seeds((folder / "model.py").as_uri())
        slowest = 0.0
        for number in range(messages):
            message = copy.deepcopy(chance.choice(starts))
            if "id" in message:
                message["id"] = number
            for _ in range(chance.choice((0, 1, 1, 2, 4))):
                if message.get("method") in ("exit", "shutdown"):
                    break
                message = mutated(message, chance)
            if message.get("method") in ("exit", "shutdown"):
                continue
            raw = json.dumps(message).encode()
            if chance.random() < 0.05:
                cut = chance.randrange(len(raw))
                raw = raw[:cut] + bytes([chance.randrange(256)]) + raw[cut + 1 :]
            client.send(raw)
            if number % BATCH == BATCH - 1:
                slowest = max(slowest, client.probe(f"probe-{number}"))
        client.probe("probe-last")
        family = children(client.process.pid)
        client.send({"jsonrpc": "2.0", "id": "probe-end", "method": "shutdown"})
        client.send({"jsonrpc": "2.0", "method": "exit"})
        assert client.process.stdin is not None
        client.process.stdin.flush()
        status = client.process.wait(10)
        assert status == 0, f"exit status {status}"
        left = [command for pid, command in family.items() if alive(pid)]
        assert not left, left
    print(f"{messages} messages, slowest answer after a batch of {BATCH}: {slowest:.2f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    fuzz(options.messages, options.seed)
