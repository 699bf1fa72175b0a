"""What the loaders of a script handed out on one rank and on many: which items every rank must have read, and what is wrong where it has not."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from graphguard.ir import Span, Trouble
from graphguard.ir.left import without_notes
from graphguard.trace.graph.meetings import without_stops
from graphguard.trace.programs.job import Job, Recorded
from graphguard.trace.programs.starts import add_up_what_differs
from graphguard.trace.scripts.program import Run
from graphguard.trace.scripts.script import Item, Place, Script

RULE: Final = "wrong-shard"
_SHOWN: Final = 8
_SAMPLER: Final = "fix: give the DataLoader a sampler that knows the ranks, as DistributedSampler(dataset) does, and no shuffle of its own"

_DRAWN: Final = "fix: take other ones on every rank: by its place, or by a seed that depends on it"


@dataclass(frozen=True, slots=True)
class Loader:
    """One loader that trains: what the reference read of it, in batches of these ``names``, and what every rank read, each in batches."""

    names: tuple[str, ...]
    alone: tuple[tuple[Item, ...], ...]
    ranks: tuple[tuple[tuple[Item, ...], ...], ...]
    made: Span | None
    read: Span | None
    shuffles: bool

    @property
    def reference(self) -> list[Item]:
        """All items that the reference read."""
        return [item for batch in self.alone for item in batch]

    @property
    def shares(self) -> dict[tuple[tuple[Item, ...], ...], list[int]]:
        """The ranks that read the same, by what they read."""
        found: dict[tuple[tuple[Item, ...], ...], list[int]] = {}
        for rank, batches in enumerate(self.ranks):
            found.setdefault(batches, []).append(rank)
        return found

    @property
    def together(self) -> list[Item]:
        """All items that ranks read, those of ranks that read the same once."""
        return [item for batches in self.shares for batch in batches for item in batch]

    @property
    def missed(self) -> list[Item]:
        """What the reference read and no rank did."""
        together = set(self.together)
        return [item for item in self.reference if item not in together]

    @property
    def fix(self) -> str:
        """How every rank would read its own."""
        return _SAMPLER if self.made is not None else _DRAWN

    @property
    def place(self) -> Span | None:
        """Where the loader was made, as far as that is known."""
        return self.made or self.read


def loaders(alone: Run, ranks: Sequence[Run]) -> Iterator[Loader]:
    """The loaders of which something trains."""
    for number in dict.fromkeys(one.loader for run in ranks for one in run.readings if one.trains):
        own = [[one for one in run.readings if one.loader == number and one.trains] for run in (alone, *ranks)]
        first = next((one for each in own[1:] for one in each), None)
        batches = [tuple(one.items for one in each) for each in own]
        yield Loader(
            tuple(one.batch for one in own[0]),
            batches[0],
            tuple(batches[1:]),
            None if first is None else first.made,
            None if first is None else first.read,
            first is not None and first.shuffles,
        )


def _runs(specification: Recorded, ranks: Sequence[Recorded]) -> tuple[Run, list[Run]] | None:
    runs = [rank.run for rank in ranks]
    known = [run for run in runs if run is not None]
    if specification.run is None or len(known) < len(runs):
        return None
    return specification.run, known


def replanned(job: Job, specification: Recorded, ranks: Sequence[Recorded]) -> Job | None:
    """The job as it is to be recorded again, after what was seen; None where this recording is good."""
    script = job.script
    if script is None:
        return None
    meshes = [rank.again for rank in ranks if rank.again is not None]
    if meshes:
        return replace(job, mesh=meshes[0], script=replace(script, mesh=True))
    runs = _runs(specification, ranks)
    if runs is None:
        return None
    found = [one for one in loaders(*runs) if one.reference]
    if any(True for one in found for _ in _wrong(one, job, script, runs, ranks)):
        return None
    # a rank that reads nothing gets what others read
    changed = replace(script, parts=script.parts or any(sum(map(bool, one.shares)) > 1 for one in found))
    if script.reference == script.arguments and script.merged == 1:
        merged = {len(one.together) // len(one.reference) for one in found if _is_multiple(one)}
        changed = replace(changed, merged=max(merged, default=1))
    if changed.merged == script.merged and not script.places:
        changed = replace(changed, places=_pairs(found, len(ranks), job.draws))
    return None if changed == script else replace(job, script=changed)


def _is_multiple(one: Loader) -> bool:
    return bool(one.reference) and len(one.together) % len(one.reference) == 0


def _pairs(found: Sequence[Loader], size: int, chance: bool) -> dict[int, dict[Item, Place]]:
    """For loaders that shuffle, by rank and item, the row of the reference that stands for the item, where it has others."""
    places: dict[int, dict[Item, Place]] = {rank: {} for rank in range(size)}
    for one in found:
        if not _is_shuffled(one, chance) or Counter(one.together) == Counter(one.reference):
            continue
        free = [
            [Place(name, row) for row in range(len(batch))] for name, batch in zip(one.names, one.alone, strict=True)
        ]
        turns = len(next(iter(one.shares))) == len(
            one.alone
        )  # a batch of every rank for one of the reference; else one after the other
        for batches, ranks in one.shares.items():
            for place, batch in enumerate(batches):
                for item in batch:
                    left = free[place] if turns else next(filter(None, free), [])
                    if left:
                        found_place = left.pop(0)
                        for rank in ranks:
                            places[rank][item] = found_place
    return {rank: pairs for rank, pairs in places.items() if pairs}


def _is_shuffled(one: Loader, chance: bool) -> bool:
    """Whether what is read is in no order, on one rank or on any: then which items come first means nothing.  What is known by its content alone is where the script reads what it draws."""
    if not all(item.index.isdecimal() for item in one.reference):
        return chance
    return any(
        _unordered(items) for items in (one.reference, *([i for b in batches for i in b] for batches in one.ranks))
    )


def _unordered(items: Sequence[Item]) -> bool:
    numbers = [int(item.index) for item in items if item.index.isdecimal()]
    return len(numbers) == len(items) and numbers != sorted(numbers)


def wrong_samples(job: Job, specification: Recorded, ranks: Sequence[Recorded]) -> list[Trouble]:
    """Items that are read twice, or by nobody: what no arithmetic after it can mend."""
    runs = _runs(specification, ranks)
    if job.script is None or runs is None:
        return []
    return [trouble for one in loaders(*runs) for trouble in _wrong(one, job, job.script, runs, ranks)][:1]


def _wrong(
    one: Loader, job: Job, script: Script, runs: tuple[Run, list[Run]], ranks: Sequence[Recorded]
) -> Iterator[Trouble]:
    """What is wrong with what one loader handed out: the first thing that is."""
    if not one.together:
        return
    replicas = max(run.replicas for run in runs[1])
    message = _alike(one, replicas, ranks) or _twice(one) or _left_out(one)
    if message is None and not _is_shuffled(one, job.draws) and len(one.together) == len(one.reference):
        message = _others(one)
    if message is not None:
        yield _trouble(one, f"{message}\n{one.fix}")
    elif (message := _unlike_counts(one, script)) is not None:
        # what a script reads by itself cannot be made more on one rank: then nothing is wrong, and nothing can be compared
        yield _trouble(one, message, "trace-error" if script.merged == 1 or one.made is None else RULE)


def _alike(one: Loader, replicas: int, recorded: Sequence[Recorded]) -> str | None:
    """Ranks that read the same where they should share: their gradients are averaged, or all of them read as much as one rank alone does, and not all of that.

    Where they read all of it, each may take its own part of what it has read.
    """
    shared = next((ranks for ranks in one.shares.values() if len(ranks) > 1), None)
    count = sum(len(batch) for batches in one.ranks for batch in batches)
    is_share = bool(one.missed) and count == len(one.reference)
    if shared is None or not (len(one.shares) < replicas or is_share):
        return None
    if not one.missed and _work_apart(recorded):
        return None
    items = [item for batch in one.ranks[shared[0]] for item in batch]
    lost = f"; {_items(one.missed)} by none" if is_share else ""
    needed = f"each of the {replicas} ranks whose gradients are averaged" if replicas else "every rank"
    return f"{_ranks(shared)} read the same samples: {_items(items)}{lost}\nneeded: other samples on {needed}"


def _work_apart(ranks: Sequence[Recorded]) -> bool:
    """Whether what ranks reduce together is not computed alike on all of them."""
    traces = [rank.trace for rank in ranks]
    graphs = tuple(trace.graph for trace in traces if trace is not None and trace.graph is not None)
    return len(graphs) == len(ranks) and add_up_what_differs(
        tuple(without_stops(without_notes(graph)[0])[0] for graph in graphs)
    )


def _twice(one: Loader) -> str | None:
    item = next((item for item, count in Counter(one.together).items() if count > 1), None)
    if item is None or len(set(one.reference)) < len(one.reference):
        return None
    readers = [rank for rank, batches in enumerate(one.ranks) if any(item in batch for batch in batches)]
    lost = f"; {_items(one.missed)} by none" if one.missed else ""
    return f"sample {_named(item)} is read by {_ranks(readers)}{lost}\nneeded: every sample once"


def _left_out(one: Loader) -> str | None:
    if not set(one.together) < set(one.reference):
        return None
    return f"no rank reads {_items(one.missed)}, which one rank alone reads\nneeded: every sample once"


def _others(one: Loader) -> str | None:
    others = [item for item in one.together if item not in set(one.reference)]
    if not others:
        return None
    return f"the ranks read {_items(others)}, and one rank alone {_items(one.missed)} instead\nneeded: the same samples in both"


def _unlike_counts(one: Loader, script: Script) -> str | None:
    """Numbers of samples of which one is not the other, nor as many times the other as there are ranks."""
    many, alone = len(one.together), len(one.reference)
    if many == alone or (script.merged == 1 and script.reference == script.arguments and _is_multiple(one)):
        return None
    if script.reference != script.arguments:
        return (
            f"with --reference-args one rank alone reads {alone} samples for a step, and the ranks {many}\n"
            f"fix: have it read {many}; without --reference-args it reads as many at once as all ranks"
        )
    counts = ", ".join(str(sum(map(len, batches))) for batches in one.ranks)
    return (
        f"the ranks read {many} samples for a step, and one rank alone {alone}\n"
        f"found: {counts} samples on the ranks in turn\n"
        "needed: the same samples in both, or as many on every rank as on one alone\n"
        'fix: give every rank equally many, or one rank what all of them read: --reference-args "--batch-size ..."'
    )


def _trouble(one: Loader, message: str, rule: str = RULE) -> Trouble:
    related = ((one.read, "read here"),) if one.made is not None and one.read is not None else ()
    return Trouble(rule, message, one.place, None, (), related)


def _ranks(ranks: Sequence[int]) -> str:
    words = [f"rank {rank}" for rank in ranks]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _named(item: Item) -> str:
    return f"{item.index} of {item.dataset}" if item.index.isdecimal() else f"of {item.dataset}"


def _items(items: Sequence[Item]) -> str:
    if not items:
        return "none"
    if not all(item.index.isdecimal() for item in items):
        return f"{len(items)} of {items[0].dataset}"
    numbers = [int(item.index) for item in items]
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]} of {items[0].dataset}"
    shown = ", ".join(item.index for item in items[:_SHOWN])
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return f"{shown}{more} of {items[0].dataset}"


def _missing(specification: Recorded, ranks: Sequence[Recorded]) -> Iterator[str]:
    graphs = [
        one.trace.graph for one in (specification, *ranks) if one.trace is not None and one.trace.graph is not None
    ]
    held = {name for graph in graphs[1:] for name in graph.outputs}
    yield from (name for name in (graphs[0].outputs if graphs else ()) if name not in held)


def sampling_cautions(job: Job, specification: Recorded, ranks: Sequence[Recorded]) -> Iterator[str]:
    """What may not be meant, or shows little: loaders of which every rank shuffles all, each in its own way; steps that change nothing."""
    runs = _runs(specification, ranks)
    if job.script is not None and runs is not None and not runs[0].moves:
        yield (
            "the learning rate is 0 in the steps that were recorded, as a warm-up begins: parameters do not change, whatever their gradients are; "
            f"--steps {job.script.steps + 1} records more"
        )
    for one in loaders(*runs) if job.script is not None and runs is not None else ():
        if one.shuffles and len(one.shares) > 1 and one.place is not None:
            where = f"{os.path.basename(one.place.file)}:{one.place.line}"
            yield f"every rank shuffles the whole dataset by itself ({where}): in an epoch, samples are read twice or not at all"


def sampling_told(
    job: Job, specification: Recorded, ranks: Sequence[Recorded], *, start_alike: bool = False
) -> tuple[list[str], list[str]]:
    """What a verdict on a script rests on, and what of it is not compared; ``start_alike``: its parameters are known to."""
    runs = _runs(specification, ranks)
    script = job.script
    if script is None or runs is None:
        return [], []
    assumed = []
    if script.merged > 1:
        assumed.append(f"one rank alone reads {script.merged} batches at once, as all ranks together do")
    if script.places:
        assumed.append(
            "which samples come first is chance: those that the ranks read stand for those that one rank alone reads"
        )
    if any(item.index.isdecimal() for one in loaders(*runs) for item in one.reference):
        assumed.append("an item of a dataset is the same on every rank, and whenever it is read")
    if not start_alike and not any(run.broadcasts for run in runs[1]):
        assumed.append("parameters start alike on all ranks, as a seed, a broadcast or a checkpoint makes them")
    if script.parts:
        if script.loss:
            assumed.append("the loss is the mean of the ranks' own, each of its part of the samples")
    elif len(runs[1]) > 1 and any(run.readings for run in runs[1]):
        assumed.append("all ranks read the same samples")
    left = [line for run in (runs[0], *runs[1]) for line in run.not_compared]
    left += [f"'{name}' of one rank alone, which no rank has" for name in _missing(specification, ranks)]
    if not script.loss:
        left.append(
            "the loss: the ranks' own neither are it nor average to it; what is differentiated from them is compared"
        )
    elif not runs[0].losses:
        left.append("a loss: backward is called on no single number")
    wrote = list(dict.fromkeys(path for run in (runs[0], *runs[1]) for path in run.wrote))
    if wrote:
        more = f" and {len(wrote) - _SHOWN} more" if len(wrote) > _SHOWN else ""
        left.append(f"what the script writes, which went to {script.scratch}: {', '.join(wrote[:_SHOWN])}{more}")
    untraced = not any(run.readings for run in runs[1])
    if untraced:
        assumed.append(
            "samples come from no DataLoader: they are the numbers that the script itself makes or reads, the same on one rank and on each of many"
        )
    return list(dict.fromkeys(assumed)), list(dict.fromkeys(left))
