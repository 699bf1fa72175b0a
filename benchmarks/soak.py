"""Half an hour of random edits, saves and reopenings with the real engine: memory stays flat and the last diagnostics are a cold run's.

``python benchmarks/soak.py --minutes 30 --seed 1``; exit status 1 where either does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "server"))

from lsp_editor import Editor, editing
from process_tree import children

ROOT = Path(__file__).parents[1]
REAL = [sys.executable, "-m", "graphguard_server"]
FILES = ("mlp_missing_all_reduce.py", "mlp_gradient_not_reduced.py", "data_parallel.py")
GROWTH = 1.25
WARM_UP = 0.25


def memory(pid: int) -> int:
    """Resident bytes of a process; 0 where it is gone."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    except OSError:
        return 0
    return 0


def memories(editor: Editor) -> dict[str, int]:
    """Resident bytes of the server, the worker (without its children of the moment) and the prover."""
    found = {"server": memory(editor.pid)}
    for pid, command in children(editor.pid).items():
        name = "prover" if "proving.prover" in command else "worker"
        found[name] = max(found.get(name, 0), memory(pid))
    return found


def changed(text: str, chance: random.Random) -> str:
    """A random edit: a comment, a number, a line taken out or doubled, or a text that does not parse."""
    lines = text.splitlines(keepends=True)
    at = chance.randrange(len(lines))
    kind = chance.randrange(5)
    if kind == 0:
        lines.insert(at, f"# {chance.random()}\n")
    elif kind == 1:
        lines.append(f"\nUNUSED = {chance.randrange(10**6)}\n")
    elif kind == 2:
        del lines[at]
    elif kind == 3:
        lines.insert(at, lines[at])
    else:
        lines.insert(at, "def unfinished(\n")
    return "".join(lines)


def seen(editor: Editor, uris: list[str]) -> list[tuple[str, str, int, bool]]:
    """What the client shows."""
    return [
        (uri.rpartition("/")[2], str(each.code), each.range.start.line, each.data["stale"])
        for uri in uris
        for each in editor.diagnostics(uri)
    ]


async def quiet(editor: Editor) -> None:
    """Wait until nothing is under way and every result is fresh."""
    await asyncio.sleep(1.0)
    await editor.until(lambda: not editor.status()["busy"] and not editor.status()["counts"]["stale"], 300)


async def soak(
    folder: Path, seconds: float, seed: int
) -> tuple[list[dict[str, int]], list[tuple[str, str, int, bool]]]:
    """Edit at random; returns memory over time and what is shown at the end, with the original texts."""
    chance = random.Random(seed)
    samples: list[dict[str, int]] = []
    async with editing(folder, folder / "log", command=REAL) as editor:
        originals = {editor.open(name): (folder / name).read_text() for name in FILES}
        uris = list(originals)
        await quiet(editor)
        end = time.monotonic() + seconds
        next_sample = 0.0
        while time.monotonic() < end:
            uri = chance.choice(uris)
            action = chance.random()
            if action < 0.7:
                editor.change(uri, changed(originals[uri], chance))
            elif action < 0.8:
                editor.change(uri, originals[uri])
            elif action < 0.9:
                editor.save(uri)
            else:
                editor.close(uri)
                editor.open(Path(uri).name)
            await asyncio.sleep(chance.expovariate(2.0))
            if time.monotonic() > next_sample:
                samples.append(memories(editor))
                next_sample = time.monotonic() + max(seconds / 60, 2)
            del editor.checks[:-1], editor.statuses[:-1], editor.marks[:-1]
            editor.published = {uri: editor.published[uri][-1:] for uri in editor.published}
        for uri in uris:
            editor.change(uri, originals[uri])
        await quiet(editor)
        samples.append(memories(editor))
        return samples, seen(editor, uris)


async def cold(folder: Path) -> list[tuple[str, str, int, bool]]:
    """What a fresh server shows for the original texts."""
    async with editing(folder, folder / "log", command=REAL) as editor:
        uris = [editor.open(name) for name in FILES]
        await quiet(editor)
        return seen(editor, uris)


def main(minutes: float, seed: int) -> int:
    """Soak, compare, print."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pyproject.toml").write_text('[tool.graphguard]\nchecks = ["*.py"]\n')
        for file in FILES:
            (folder / file).write_text((ROOT / "examples" / file).read_text())
        samples, last = asyncio.run(soak(folder, 60 * minutes, seed))
        expected = asyncio.run(cold(folder))
    warm = samples[int(len(samples) * WARM_UP)]
    grown = {name: samples[-1].get(name, 0) / max(size, 1) for name, size in warm.items()}
    for name, size in warm.items():
        print(f"{name:8} {size / 2**20:8.1f} MiB after the first quarter, x{grown[name]:.2f} at the end")
    same = last == expected
    print("the last diagnostics are a cold run's" if same else f"shown {last}\ncold  {expected}")
    return int(not same or any(factor > GROWTH for factor in grown.values()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sys.exit(main(options.minutes, options.seed))
