"""What a script's loaders hand out, traced back to the items of its datasets.

Every batch of the reference is an unknown, one row an item.  A rank's batch is put together of the rows that its items have there, so that what a sampler picks and what a collator makes of it
are recorded as they are.  Items are known by their index; those of a stream, and what a collator makes of numbers, by their content.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, RandomSampler, Subset
from torch.utils.data._utils import fetch as fetchers
from torch.utils.data._utils.collate import default_collate
from torch.utils.data.dataloader import _BaseDataLoaderIter

from graphguard.ir import Leaf, Span, TensorType
from graphguard.trace.calls.constants import constant_of
from graphguard.trace.record.capture import Recording
from graphguard.trace.scripts.places import own_place
from graphguard.trace.scripts.script import Item, Place, Script
from graphguard.trace.source.sources import is_own_code

_NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64}
_FETCHERS = (fetchers._MapDatasetFetcher, fetchers._IterableDatasetFetcher)  # noqa: SLF001 - the one way to a dataset


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of the reference: its items, and of every tensor in it the shape and type of its leaf, and digests of its rows where they are known."""

    name: str
    items: tuple[Item, ...]
    types: dict[str, tuple[tuple[int, ...], torch.dtype]] = field(default_factory=dict)
    rows: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reading:
    """Items that a loader handed out at once, as ``batch``; ``loader`` tells it from others, ``made`` is where it was made, and ``read`` where the batch was asked for.

    ``shuffles``: the whole of the dataset, by a sampler of PyTorch's that knows no ranks.
    """

    loader: str
    batch: str
    items: tuple[Item, ...]
    trains: bool
    made: Span | None
    read: Span | None
    shuffles: bool = False


def mark(reading: int, row: int, path: str) -> str:
    """The output that says what an item's tensor is: no result of the script's."""
    return f"sample({reading},{row},{path})"


_MARK = re.compile(r"sample\((\d+),(\d+),.*\)", re.DOTALL)


def marked(output: str) -> tuple[int, int] | None:
    """The reading, and the row in it, of which an output says what it is; None for any other."""
    match = _MARK.fullmatch(output)
    return None if match is None else (int(match[1]), int(match[2]))


class Samples:
    """Stands between loaders and datasets in the process of one program; ``ask`` gives the reference's batches, None where this is the reference."""

    def __init__(
        self, recording: Recording, script: Script, rank: int, ask: Callable[[], Sequence[Batch]] | None
    ) -> None:
        self.leaves: dict[str, Leaf] = {}
        self.batches: list[Batch] = []
        self.readings: list[Reading] = []
        self._recording = recording
        self._script = script
        self._pairs = script.places.get(rank, {})
        self._paired = frozenset(place for pairs in script.places.values() for place in pairs.values())
        self._ask = ask
        self._asked: tuple[dict[str, Batch], dict[Item, Place]] | None = None
        self._tensors: dict[str, torch.Tensor] = {}
        self._drawn_before: dict[Item, tuple[int, bytes]] = {}
        self._datasets: list[Any] = []
        self._loaders: list[Any] = []

    # -- between loaders and datasets ----------------------------------------------------------------------------------
    def install(self) -> None:
        """From now on, for the rest of this process."""
        samples, make, begin = self, DataLoader.__init__, _BaseDataLoaderIter.__init__
        following = _BaseDataLoaderIter._next_index  # noqa: SLF001

        takes = inspect.signature(make)

        @functools.wraps(make)
        def made(loader: Any, *args: Any, **kwargs: Any) -> None:
            given = takes.bind(loader, *args, **kwargs).arguments
            # what worker processes would fetch is fetched here
            given.update(num_workers=0, prefetch_factor=None, persistent_workers=False, timeout=0)
            given.pop("multiprocessing_context", None)
            make(**given)
            loader.__dict__["_graphguard_made"] = own_place()

        def begun(iterator: Any, loader: Any) -> None:
            begin(iterator, loader)
            if not any(loader is one for one in samples._loaders):
                samples._loaders.append(loader)
            iterator.__dict__["_graphguard_loader"] = loader

        def next_index(iterator: Any) -> Any:
            index = following(iterator)
            if samples._ask is None and isinstance(index, list):
                for _ in range(samples._script.merged - 1):
                    try:
                        index = [*index, *following(iterator)]
                    except StopIteration:
                        break
            samples._loader = iterator.__dict__["_graphguard_loader"]
            return index

        DataLoader.__init__ = made
        _BaseDataLoaderIter.__init__ = begun
        _BaseDataLoaderIter._next_index = next_index  # noqa: SLF001
        torch.from_numpy = self._arriving(torch.from_numpy)
        for fetcher in _FETCHERS:
            fetcher.fetch = self._fetching(fetcher.fetch)

    _loader: Any = None

    def _fetching(self, usual: Callable[..., Any]) -> Callable[..., Any]:
        def fetch(fetcher: Any, index: Any) -> Any:
            collate, plain = fetcher.collate_fn, fetcher.auto_collation

            def traced(data: Any) -> Any:
                indices = list(index) if plain else [index]
                listed = list(data) if plain else [data]
                items = [self._item(fetcher, at, one) for at, one in zip(indices, listed, strict=False)]
                if any(item is None for item in items):
                    return collate(data)
                known = tuple(item for item in items if item is not None)
                self._note(known)
                rows = self._replaced(listed, known, "", numbers=plain and collate is default_collate)
                batch = collate(rows if plain else rows[0])
                return self._by_content(batch, len(known), "") if plain else batch

            fetcher.collate_fn = traced
            try:
                return usual(fetcher, index)
            finally:
                fetcher.collate_fn = collate

        return fetch

    def _note(self, items: tuple[Item, ...], site: str = "") -> None:
        loader = self._loader
        number = next((place for place, one in enumerate(self._loaders) if one is loader), 0)
        made = None if site or loader is None else loader.__dict__.get("_graphguard_made")
        # an item is the same whenever it is read: a script may look at a batch before it trains on it
        again = next((batch for batch in self.batches if batch.items == items), None)
        batch = again or Batch(f"batch {len(self.batches) + 1}" if self.batches else "batch", items)
        name = batch.name
        self.batches.append(batch)
        shuffles = not site and loader is not None and _shuffles(loader)
        self.readings.append(
            Reading(site or str(number), name, items, torch.is_grad_enabled(), made, own_place(), shuffles)
        )

    def _arriving(self, usual: Callable[..., Any]) -> Callable[..., Any]:
        """Arrays of whole numbers that the script itself makes tensors of, such as tokens out of a file, are samples as well: known by their content."""

        @functools.wraps(usual)
        def from_numpy(array: Any) -> Any:
            made = usual(array)
            place = own_place()
            whole = not (made.is_floating_point() or made.is_complex() or made.dtype is torch.bool)
            digest = self._digest(made) if whole and place is not None and made.numel() > 1 else None
            if digest is None or place is None or not is_own_code(place.file):
                return made
            site = f"{os.path.basename(place.file)}:{place.line}"
            item = self._drawn(Item(f"the arrays at {site}", digest))
            self._note((item,), site)
            return self._row(item, 0, "", tuple(made.shape), made.dtype)

        return from_numpy

    def _drawn(self, item: Item) -> Item:
        """An array, as another item each time that a script which reads what it draws comes upon it after it drew again: what is drawn with replacement comes twice."""
        if not self._recording.knows_draws:
            return item
        with self._recording.on_real_tensors():
            state = torch.get_rng_state().numpy().tobytes()
        times, before = self._drawn_before.get(item, (0, b""))
        times += state != before
        self._drawn_before[item] = times, state
        return Item(item.dataset, f"{item.index}:{times}") if times > 1 else item

    def _item(self, fetcher: Any, index: Any, content: Any) -> Item | None:
        """Which item of which dataset this is; None for one of a stream that does not tell."""
        dataset = fetcher.dataset
        if isinstance(fetcher, fetchers._IterableDatasetFetcher):  # noqa: SLF001
            digest = self._digest(content)
            return None if digest is None else Item(self._dataset(dataset), digest)
        while isinstance(dataset, Subset | ConcatDataset) and isinstance(index, int):
            dataset, index = _within(dataset, index)
        return Item(self._dataset(dataset), str(int(index) if isinstance(index, int) else index))

    def _dataset(self, dataset: Any) -> str:
        number = next((place for place, one in enumerate(self._datasets) if one is dataset), None)
        if number is None:
            number = len(self._datasets)
            self._datasets.append(dataset)
        return f"{type(dataset).__name__}{f' {number + 1}' if number else ''}"

    # -- items by their index ------------------------------------------------------------------------------------------
    def _replaced(self, values: Sequence[Any], items: Sequence[Item], path: str, *, numbers: bool) -> list[Any]:
        """The same structures with rows of leaves in place of tensors, and of what a usual collator makes tensors of."""
        first = values[0]
        kinds = [_kind(value, numbers=numbers) for value in values]
        if all(kind is not None and kind == kinds[0] for kind in kinds):
            shape, dtype = kinds[0] or ((), torch.float32)
            return [self._row(item, row, path, shape, dtype) for row, item in enumerate(items)]
        if isinstance(first, Mapping) and all(
            isinstance(one, Mapping) and one.keys() == first.keys() for one in values
        ):
            columns = {
                key: self._replaced([one[key] for one in values], items, f'{path}["{key}"]', numbers=numbers)
                for key in first
            }
            return [{key: columns[key][row] for key in first} for row in range(len(values))]
        if isinstance(first, tuple | list) and all(
            isinstance(one, tuple | list) and len(one) == len(first) for one in values
        ):
            parts = [
                self._replaced([one[place] for one in values], items, f"{path}[{place}]", numbers=numbers)
                for place in range(len(first))
            ]
            made = [[part[row] for part in parts] for row in range(len(values))]
            named = hasattr(first, "_fields")
            return [type(first)(*one) if named else type(first)(one) for one in made]
        return list(values)

    def _row(self, item: Item, row: int, path: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """An item of the batch that is being read, in memory of its own."""
        return self._marked(self._found_row(item, row, path, shape, dtype).clone(), row, path)

    def _marked(self, value: torch.Tensor, row: int, path: str) -> torch.Tensor:
        """A tensor that stands for an item, noted: whether anything is made of it shows at the end."""
        self._recording.output(mark(len(self.readings) - 1, row, path), value)
        if self.readings[-1].trains:
            self._recording.trains_on(value)
        return value

    def _found_row(self, item: Item, row: int, path: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        if self._ask is None:
            batch = self.batches[-1]
            batch.types[path] = ((len(batch.items), *shape), dtype)
            return self._leaf(batch.name + path, *batch.types[path]).select(0, row)
        batches, places = self._reference()
        place = self._pairs.get(item) or self._unpaired(places.get(item))
        if place is not None and place.batch in batches:
            whole = batches[place.batch].types.get(path)
            if whole is not None and whole[0][1:] == shape and whole[1] == dtype:
                return self._leaf(place.batch + path, *whole).select(0, place.row)
        return self._leaf(f"{item.dataset}[{item.index}]{path}", shape, dtype)

    def _unpaired(self, place: Place | None) -> Place | None:
        """A row of the reference, unless it is another item's, which stands for the one that is there: as of a batch that is read ahead."""
        return None if place in self._paired else place

    def _reference(self) -> tuple[dict[str, Batch], dict[Item, Place]]:
        if self._asked is None:
            assert self._ask is not None
            batches = self._ask()
            places: dict[Item, Place] = {}
            for batch in batches:
                for row, item in enumerate(batch.items):
                    places.setdefault(item, Place(batch.name, row))
            self._asked = {batch.name: batch for batch in batches}, places
        return self._asked

    def _leaf(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        if name not in self._tensors:
            self._tensors[name] = self._recording.leaf(name, shape, dtype, device="cpu")
            self.leaves[name] = Leaf(name, "input", TensorType(shape, str(dtype).removeprefix("torch.")))
        return self._tensors[name]

    # -- what collators make of numbers, by its content -----------------------------------------------------------------
    def _by_content(self, value: Any, count: int, path: str) -> Any:
        """A batch with rows of leaves in place of tensors whose numbers are known, one row an item."""
        if isinstance(value, torch.Tensor):
            return self._unknown(value, count, path)
        if isinstance(value, Mapping):
            made = {key: self._by_content(item, count, f'{path}["{key}"]') for key, item in value.items()}
            if type(value) is dict:
                return made
            for key, item in made.items():
                value[key] = item  # type: ignore[index]
            return value
        if type(value) in (tuple, list):
            return type(value)(self._by_content(item, count, f"{path}[{place}]") for place, item in enumerate(value))
        return value

    def _unknown(self, value: torch.Tensor, count: int, path: str) -> torch.Tensor:
        known = self._recording.known(value, 1 << 20) if value.ndim and value.shape[0] == count else None
        if known is None or known.numel() < 2 or bool((known == known.flatten()[0]).all()):
            return value  # of one number, as a mask of ones: what programs branch on
        with self._recording.on_real_tensors():
            digests = tuple(constant_of(row).digest for row in known)
        shape, dtype = tuple(known.shape), known.dtype
        if self._ask is None:
            batch = self.batches[-1]
            batch.types[path], batch.rows[path] = (shape, dtype), digests
            leaf = self._leaf(batch.name + path, shape, dtype)
            return torch.stack([self._marked(leaf.select(0, row).clone(), row, path) for row in range(count)])
        items = self.batches[-1].items
        rows = [self._found(digest, items[row], path, shape[1:], dtype) for row, digest in enumerate(digests)]
        return torch.stack(
            [
                self._marked((value.select(0, row) if found is None else found).clone(), row, path)
                for row, found in enumerate(rows)
            ]
        )

    def _found(
        self, digest: str, item: Item, path: str, shape: tuple[int, ...], dtype: torch.dtype
    ) -> torch.Tensor | None:
        """The reference's row of these elements, or of the item that stands for this one."""
        batches = self._reference()[0]
        place = self._pairs.get(item) or self._unpaired(_place_of(digest, path, batches.values()))
        whole = None if place is None else batches[place.batch].types.get(path)
        if place is None or whole is None or whole[0][1:] != shape or whole[1] != dtype:
            return None
        return self._leaf(place.batch + path, *whole).select(0, place.row)

    def _digest(self, content: Any) -> str | None:
        words = list(self._words(content))
        if any(word is None for word in words):
            return None
        return "#" + hashlib.sha256("\n".join(map(str, words)).encode()).hexdigest()[:12]  # no number, as an index is

    def _words(self, content: Any) -> Iterator[str | None]:
        if isinstance(content, torch.Tensor):
            known = self._recording.known(content, 1 << 20)
            yield None if known is None else constant_of(known).digest
        elif isinstance(content, Mapping):
            for key, item in content.items():
                yield str(key)
                yield from self._words(item)
        elif isinstance(content, tuple | list):
            for item in content:
                yield from self._words(item)
        elif hasattr(content, "tobytes"):
            yield hashlib.sha256(content.tobytes()).hexdigest()
        else:
            yield repr(content) if isinstance(content, str | int | float | bytes | None) else None


def _place_of(digest: str, path: str, batches: Iterable[Batch]) -> Place | None:
    """Where the reference has a row of these elements."""
    for batch in batches:
        if digest in batch.rows.get(path, ()):
            return Place(batch.name, batch.rows[path].index(digest))
    return None


def _shuffles(loader: Any) -> bool:
    batches = getattr(loader, "batch_sampler", None)
    sampler = getattr(batches, "sampler", None) if type(batches) is BatchSampler else getattr(loader, "sampler", None)
    return type(sampler) is RandomSampler and type(batches) in (BatchSampler, type(None))


def _within(dataset: Any, index: int) -> tuple[Any, Any]:
    """The dataset that another one shows a part of, and the item's index there."""
    if isinstance(dataset, Subset):
        return dataset.dataset, dataset.indices[index]
    place = next(place for place, end in enumerate(dataset.cumulative_sizes) if index < end)
    return dataset.datasets[place], index - (dataset.cumulative_sizes[place - 1] if place else 0)


def _kind(value: Any, *, numbers: bool) -> tuple[tuple[int, ...], torch.dtype] | None:
    """Shape and type of the tensor that a value is, or that a usual collator makes of it."""
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.dtype
    if not numbers:
        return None
    if type(value) in _NUMBERS:
        return (), _NUMBERS[type(value)]
    if hasattr(value, "dtype") and hasattr(value, "__array__"):
        try:
            return tuple(value.shape), getattr(torch, str(value.dtype))
        except AttributeError:
            return None
    return None
