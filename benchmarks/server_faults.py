"""Kills, stops, hangs and floods the server's processes, and the server, at random moments; every round must end with a cold run's diagnostics.

``python benchmarks/server_faults.py --rounds 200 --seed 1``; exit status 1 where a round does not.  Most rounds run on stand-in processes, which answer
within milliseconds; ``--real`` says how many run on the real ones: the tracing worker, the children it has just forked, the prover, the server itself.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "server"))

from lsp_editor import CHECK, MODEL, STAND_IN, Editor, editing
from process_tree import alive, children, hurt

ROOT = Path(__file__).parents[1]
WORKER, PROVER = "trace/__main__.py", "proving.prover"
PAUSE = 0.7  # how long a stopped server stays stopped
ORPHAN_SECONDS = 3.0


@dataclass(frozen=True)
class Scene:
    """A project, its texts by name, texts that misbehave, and what may be hurt: a name with how its process is found."""

    command: list[str]
    file: str
    texts: dict[str, str]
    troubles: tuple[str, ...]
    victims: dict[str, Callable[[int], int | None]]
    others: dict[str, str] = field(default_factory=dict)
    moment: float = 0.3
    patience: float = 30.0

    def project(self, folder: Path) -> Path:
        """The project's files in a new folder."""
        folder.mkdir()
        (folder / "pyproject.toml").write_text('[tool.graphguard]\nchecks = ["*.py"]\n')
        for name, text in {self.file: next(iter(self.texts.values())), **self.others}.items():
            (folder / name).write_text(text)
        return folder


def named(part: str) -> Callable[[int], int | None]:
    """Finds the descendant whose command line has a part: the oldest, for forked copies have the same."""
    return lambda pid: min((child for child, command in children(pid).items() if part in command), default=None)


def traced(pid: int) -> int | None:
    """The child that the worker forked last: it imports, records or runs numbers."""
    found = sorted(child for child, command in children(pid).items() if WORKER in command)
    return found[-1] if len(found) > 1 else None


def stand_in() -> Scene:
    """The toy engine of the tests."""
    fixed = MODEL.replace("    return h\n", "    all_reduce(h)\n    return h\n")
    slow = {
        name: text.replace("    return h\n", "    SLOW = 1\n    return h\n")
        for name, text in (("slow", MODEL), ("slow and fixed", fixed))
    }
    return Scene(
        STAND_IN,
        "model.py",
        {"broken": MODEL, "fixed": fixed, **slow},
        tuple(MODEL.replace("return h", f"return {word}") for word in ("HANG", "NOISE", "FLOOD", "CRASH")),
        {"worker": named("worker.py"), "prover": named("prover.py")},
        {"check_mlp.py": CHECK},
    )


def real() -> Scene:
    """An example with the installed engine; the misbehaviour is the user's code."""
    broken = (ROOT / "examples" / "mlp_missing_all_reduce.py").read_text()
    fixed = broken.replace("        return y\n", "        dist.all_reduce(y, group=self.group)\n        return y\n")
    doubled = fixed.replace("        return y\n", "        return y * 2\n")
    words = (
        "while True: pass",
        "__import__('os')._exit(3)",
        "__import__('os').kill(__import__('os').getpid(), 9)",
        "while True: print('x' * 1000)",
        "__import__('time').sleep(1000)",
    )
    return Scene(
        [sys.executable, "-m", "graphguard_server"],
        "mlp.py",
        {"broken": broken, "fixed": fixed, "doubled": doubled},
        tuple(broken.replace("        return y\n", f"        {word}\n        return y\n") for word in words),
        {"worker": named(WORKER), "traced child": traced, "prover": named(PROVER), "server": lambda pid: pid},
        moment=1.5,
        patience=240.0,
    )


Seen = list[tuple[str, int, bool]]


def seen(editor: Editor, uri: str) -> Seen:
    """What the client shows of a file."""
    return [(str(each.code), each.range.start.line, each.data["stale"]) for each in editor.diagnostics(uri)]


async def quiet(editor: Editor, seconds: float) -> None:
    """Wait until every check has a fresh result and nothing is under way."""
    await editor.settled(seconds)
    await editor.until(lambda: not editor.status().get("busy", True), seconds)


async def cold(scene: Scene, folder: Path, text: str) -> Seen:
    """The diagnostics of a fresh server."""
    cache = {"GRAPHGUARD_CACHE_DIR": str(folder.parent / "cold")}
    async with editing(folder, folder.parent / "log", command=scene.command, environment=cache) as editor:
        uri = editor.open(scene.file, text)
        await quiet(editor, scene.patience)
        return seen(editor, uri)


class Trial:
    """A session that is hurt round by round, and begun again where the server itself was killed."""

    def __init__(self, scene: Scene, folder: Path, chance: random.Random) -> None:
        self.scene = scene
        self.folder = folder
        self.chance = chance
        self.hurts: Counter[str] = Counter()
        self.orphans = 0
        self._stack = AsyncExitStack()
        self.editor: Editor
        self.uri = ""

    async def begin(self) -> None:
        """Start a server and open the file."""
        cache = {"GRAPHGUARD_CACHE_DIR": str(self.folder.parent / "cache")}
        session = editing(self.folder, self.folder.parent / "log", command=self.scene.command, environment=cache)
        self.editor = await self._stack.enter_async_context(session)
        self.uri = self.editor.open(self.scene.file)

    async def end(self) -> None:
        """Shut the server down."""
        await self._stack.aclose()

    async def round(self) -> str:
        """An edit, one to three faults at random moments, a last edit; returns the name of the last text."""
        chance, scene = self.chance, self.scene
        self.editor.change(self.uri, chance.choice([*scene.texts.values(), *scene.troubles]))
        for _ in range(chance.randint(1, 3)):
            await asyncio.sleep(chance.uniform(0, scene.moment))
            await self._hurt(chance.choice(list(scene.victims)))
        name = chance.choice(list(scene.texts))
        self.editor.change(self.uri, scene.texts[name] + f"# {chance.random()}\n")
        return name

    async def _hurt(self, victim: str) -> None:
        how = self.chance.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
        deadline = time.monotonic() + self.scene.moment
        while (pid := self.scene.victims[victim](self.editor.pid)) is None:  # not started yet, or nothing is traced now
            if time.monotonic() > deadline:
                return
            await asyncio.sleep(0.01)
        self.hurts[f"{victim} {how.name}"] += 1
        if victim != "server":
            hurt(pid, how)
        elif how is signal.SIGSTOP:
            hurt(pid, how)
            await asyncio.sleep(PAUSE)
            hurt(pid, signal.SIGCONT)
        else:
            await self._kill_server(pid)

    async def _kill_server(self, pid: int) -> None:
        """Kill it as the system does when memory runs out: nothing that it started may be left; then the editor starts another."""
        left = list(children(pid))
        hurt(pid, signal.SIGKILL)
        for child in left:
            hurt(child, signal.SIGCONT)  # one that we stopped before it had asked to be ended with its parent
        deadline = time.monotonic() + ORPHAN_SECONDS
        while any(alive(child) for child in left) and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        self.orphans += sum(alive(child) for child in left)
        abandoned, self._stack = self._stack, AsyncExitStack()
        try:
            async with asyncio.timeout(5):
                await abandoned.aclose()
        except Exception as error:  # noqa: BLE001 - the goodbye to a server that is gone fails in many ways
            print(f"(the killed server did not say goodbye: {type(error).__name__})")
        await self.begin()


async def play(scene: Scene, rounds: int, seed: int) -> int:
    """Run the rounds of one scene; returns how many ended with other diagnostics, or left a process behind."""
    wrong = 0
    slowest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        root = scene.project(Path(folder) / "project")
        expected = {name: await cold(scene, root, text) for name, text in scene.texts.items()}
        trial = Trial(scene, root, random.Random(seed))
        await trial.begin()
        await quiet(trial.editor, scene.patience)
        for number in range(rounds):
            started = time.monotonic()
            name = await trial.round()
            try:
                await trial.editor.until(
                    lambda name=name: (
                        seen(trial.editor, trial.uri) == expected[name] and not trial.editor.status().get("busy", True)
                    ),
                    scene.patience,
                )
                await quiet(trial.editor, scene.patience)
            except TimeoutError:
                wrong += 1
                found = seen(trial.editor, trial.uri)
                print(f"round {number}: {name}: {found} instead of {expected[name]}; {trial.editor.status()}")
            slowest = max(slowest, time.monotonic() - started)
        restarts = {each["name"]: each["restarts"] for each in trial.editor.status()["processes"]}
        await trial.end()
    kind = "stand-in" if scene.command is STAND_IN else "real"
    print(
        f"{rounds} rounds on {kind} processes, {wrong} wrong, slowest {slowest:.1f} s, last session's restarts {restarts}"
    )
    print(f"hurt: {dict(sorted(trial.hurts.items()))}; left behind: {trial.orphans}", flush=True)
    return wrong + trial.orphans


async def main(rounds: int, on_real: int, seed: int) -> int:
    """Both scenes; returns what went wrong."""
    wrong = await play(real(), on_real, seed) if on_real else 0
    return wrong + (await play(stand_in(), rounds - on_real, seed) if rounds > on_real else 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--real", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sys.exit(1 if asyncio.run(main(options.rounds, options.real, options.seed)) else 0)
