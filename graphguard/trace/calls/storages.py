"""The memory that tensors show, by number: in the order in which a recording meets it, or as a copy of a layer says."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from graphguard.trace.calls.events import Ref
from graphguard.trace.calls.geometry import geometry_of


class Storages:
    """Numbers storages; those that were met stay alive, so that no other one takes their identity."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self._met: list[torch.UntypedStorage | None] = []
        self._alive: list[torch.UntypedStorage] = []

    def ref(self, tensor: torch.Tensor) -> Ref:
        """What memory a fake tensor shows."""
        return Ref(self.number(tensor.untyped_storage()), geometry_of(tensor))

    def number(self, storage: torch.UntypedStorage) -> int:
        """The number of a storage, in the order in which they are first met."""
        number = self.numbers.get(storage._cdata)  # noqa: SLF001
        if number is None:
            number = self.numbers[storage._cdata] = len(self._met)  # noqa: SLF001
            self._met.append(storage)
        return number

    def known(self, tensor: torch.Tensor) -> int | None:
        """The number of the storage that a fake tensor shows, if it has been met."""
        return self.numbers.get(tensor.untyped_storage()._cdata)  # noqa: SLF001

    def met(self, number: int) -> torch.UntypedStorage | None:
        """The storage of that number, if it is there."""
        return self._met[number]

    def reserve(self, count: int) -> int:
        """The first of so many numbers for storages that are not there yet."""
        first = len(self._met)
        self._met.extend([None] * count)
        return first

    def is_memory(self, number: int, tensor: torch.Tensor) -> None:
        """The storage of that number is the one that a tensor shows."""
        storage = tensor.untyped_storage()
        self.numbers[storage._cdata] = number  # noqa: SLF001
        self._met[number] = storage

    def are_memories(self, numbers: Mapping[int, int]) -> None:
        """Storages that were met under some numbers have others."""
        for met, number in numbers.items():
            storage = self._met[met]
            if met != number and storage is not None:
                self.numbers[storage._cdata] = number  # noqa: SLF001
                self._alive.append(storage)
                self._met[number] = self._met[number] or storage
