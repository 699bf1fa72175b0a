"""Proved stages on disk: found by whoever comes next, believed only where this user's GraphGuard wrote them."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from graphguard.checks.proving import shelf as module
from graphguard.checks.proving.shelf import DiskShelf, user_shelf
from graphguard.refine.outcome import Outcome
from graphguard.refine.proving.memo import Memo, Result
from graphguard.refine.proving.proof import Proof
from graphguard.refine.proving.prove import prove
from graphguard.refine.stages.windows import Windowed
from tests.unit.refine.stacks import instead, stack

KEY = bytes(range(32))


def timeless(outcome: Outcome) -> Outcome:
    """What does not depend on how fast the machine is."""
    return replace(outcome, fuel=0.0, hurried=False)


def proved_with(folder: Path, layers: int = 3, key: bytes = KEY) -> Proof:
    return prove(stack(layers), Memo(DiskShelf(folder, key)))


def entries(folder: Path) -> list[Path]:
    return [entry for entry in folder.rglob("*") if entry.is_file()]


def test_the_next_process_proves_nothing_again(tmp_path: Path) -> None:
    cold, warm = proved_with(tmp_path), proved_with(tmp_path)
    assert cold.evaluated > 0
    assert warm.evaluated == 0
    assert timeless(warm.outcome) == timeless(cold.outcome)
    deeper = proved_with(tmp_path, 9)  # another program, of the same layers
    assert deeper.outcome.proved
    assert deeper.evaluated == 0


def test_relations_are_there_without_an_evaluation_in_memory(tmp_path: Path) -> None:
    cold, warm = proved_with(tmp_path), proved_with(tmp_path)
    assert {name: str(r) for name, r in warm.relations().items()} == {
        name: str(r) for name, r in cold.relations().items()
    }


def test_entries_of_another_key_are_not_believed(tmp_path: Path) -> None:
    proved_with(tmp_path, key=bytes(32))
    ours = proved_with(tmp_path)
    assert ours.outcome.proved
    assert ours.evaluated > 0


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data.replace(b"out@0 = out@1", b"out@1 = out@0").replace(b'"open":false', b'"open":true'),
        lambda data: data[:-2] + bytes([data[-2] ^ 1]) + data[-1:],
        lambda data: b"[" * 100_000,
        lambda data: data.split(b"\n")[0] + b"\n{}",
    ],
)
def test_a_damaged_entry_is_none(tmp_path: Path, damage: object) -> None:
    cold = proved_with(tmp_path)
    for entry in entries(tmp_path):
        entry.write_bytes(damage(entry.read_bytes()))  # type: ignore[operator]
    again = proved_with(tmp_path)
    assert again.evaluated == cold.evaluated
    assert timeless(again.outcome) == timeless(cold.outcome)


def test_exact_factors_come_back(tmp_path: Path) -> None:
    box = ((0, 2),)
    window = Windowed((2,), ((2,),), ((box, (3**90, 7**60), ((0,), (((0, 1, 2),),))),))
    shelf = DiskShelf(tmp_path, KEY)
    shelf.put("a", Result((window,)))
    assert shelf.get("a", Result) == Result((window,))


def test_an_entry_under_another_name_is_none(tmp_path: Path) -> None:
    shelf = DiskShelf(tmp_path, KEY)
    shelf.put("right", Result(found=("out@0 = out@1",)))
    shelf.put("wrong", Result())
    (first,) = [entry for entry in entries(tmp_path) if b"out@0" in entry.read_bytes()]
    (second,) = [entry for entry in entries(tmp_path) if entry != first]
    second.write_bytes(first.read_bytes())
    assert shelf.get("right", Result) == Result(found=("out@0 = out@1",))
    assert shelf.get("wrong", Result) is None


def test_a_signed_entry_that_is_no_result_is_none(tmp_path: Path) -> None:
    shelf = DiskShelf(tmp_path, KEY)
    shelf.put("a", Result())
    (entry,) = entries(tmp_path)
    for body in (b"[]", b"{", b'{"windows": 3}', b'{"windows": [{"shape": [], "grid": [], "pieces": [1]}]}'):
        entry.write_bytes(shelf._signature(entry.name, body) + b"\n" + body)
        assert shelf.get("a", Result) is None


def test_a_program_that_cannot_be_cut_is_known_as_a_whole(tmp_path: Path) -> None:
    capture = stack(1, backward=True)
    cold, warm = (prove(capture, Memo(DiskShelf(tmp_path, KEY))) for _ in range(2))
    assert cold.evaluated > 0
    assert warm.evaluated == 0
    assert timeless(warm.outcome) == timeless(cold.outcome) == timeless(prove(capture).outcome)


def test_a_program_that_can_be_cut_lies_there_once(tmp_path: Path) -> None:
    memo = Memo(DiskShelf(tmp_path, KEY))
    prove(stack(4), memo)
    stages = entries(tmp_path)
    prove(stack(4), memo)
    prove(stack(4), memo)
    assert entries(tmp_path) == stages


def test_what_was_not_proved_is_not_kept(tmp_path: Path) -> None:
    proved_with(tmp_path)
    spoiled = stack(3, spoil={1: instead("gg.all_reduce", None, "max", (0, 1))})
    for _ in range(2):
        assert not prove(spoiled, Memo(DiskShelf(tmp_path, KEY)), effort="hasty").outcome.proved
    kept = b"".join(entry.read_bytes() for entry in entries(tmp_path))
    assert b'"failure":""' in kept
    assert kept.count(b'"failure"') == kept.count(b'"failure":""')


def test_another_engine_proves_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proved_with(tmp_path)
    monkeypatch.setattr(module, "_engine", lambda: "another")
    assert proved_with(tmp_path).evaluated > 0


def test_two_at_once(tmp_path: Path) -> None:
    proofs: list[Proof] = []
    threads = [Thread(target=lambda: proofs.append(proved_with(tmp_path))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [proof.outcome.proved for proof in proofs] == [True] * 4
    assert proved_with(tmp_path).evaluated == 0
    assert not [entry for entry in entries(tmp_path) if entry.name.startswith(".")]


def test_what_was_used_longest_ago_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SIZE_LIMIT", 20_000)
    monkeypatch.setattr(module, "_TRIMMED_EVERY", 1)
    shelf = DiskShelf(tmp_path, KEY)
    for number in range(60):
        shelf.put(str(number), Result(found=("x" * 900,)))
        if number > 3:
            assert shelf.get("3", Result) is not None  # used all the time
        for age, entry in enumerate(sorted(entries(tmp_path), key=lambda entry: entry.stat().st_mtime_ns)):
            os.utime(entry, ns=(age, age))
    assert sum(entry.stat().st_size for entry in entries(tmp_path)) <= 20_000
    assert shelf.get("0", Result) is None
    assert shelf.get("59", Result) is not None


def test_forgetting_is_forgetting_on_disk(tmp_path: Path) -> None:
    memo = Memo(DiskShelf(tmp_path, KEY))
    prove(stack(3), memo)
    assert entries(tmp_path)
    memo.clear()
    assert not entries(tmp_path)
    assert prove(stack(3), memo).outcome.proved


def test_a_full_disk_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert proved_with(tmp_path / "file").outcome.proved


def test_the_key_is_made_once_and_is_the_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    first, second = user_shelf(), user_shelf()
    assert first is not None
    assert second is not None
    assert first._key == second._key
    key = tmp_path / "graphguard" / "key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert [path.name for path in key.parent.iterdir()] == ["key"]
    key.chmod(0o644)
    assert user_shelf() is None  # whoever can read it can sign
