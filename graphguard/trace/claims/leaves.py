"""The leaves of a check while a program is recorded: each made once, on first use, and known by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from graphguard.ir import Leaf, TensorType
from graphguard.trace.calls.constants import constant_of
from graphguard.trace.claims.inputs import Input
from graphguard.trace.claims.outputs import OutputType, known_sizes
from graphguard.trace.claims.parameters import State, local_tensor
from graphguard.trace.record.capture import Recording
from graphguard.trace.source.errors import TracingError


class Leaves:
    """Makes the graph inputs of one recording; every program of a check makes the same ones.

    ``device`` is where the program expects its inputs (None: where the world has its tensors).
    """

    def __init__(self, recording: Recording, device: Any = None) -> None:
        self._recording = recording
        self._device = device
        self._made: dict[str, tuple[Leaf, Any]] = {}

    def of_input(self, one: Input) -> Any:
        """The leaf of an input; names of parameters and inputs may coincide, their leaves do not."""
        value = None if one.value is None else self._elements(one.name, one.value)
        return self._make(one.as_leaf(), value, self._device)

    def of_state(self, state: State) -> Any:
        """The leaf of one of the specification's parameters or buffers.

        A buffer that was built as a table (a mask, a rotary table) keeps its values; one that starts out uniform (running statistics) is unknown.
        """
        value = self._recording.known(local_tensor(state.tensor)) if state.kind == "buffer" else None
        with self._recording.on_real_tensors():
            if value is not None and not is_table(value):
                value = None
        return self._make(Leaf(state.name, state.kind, type_of(state.tensor)), value, state.tensor.device)

    def of_cotangent(self, output: OutputType, device: Any) -> Any:
        """The gradient that arrives at an output of the specification; it arrives where the output is."""
        return self._make(
            Leaf(f"cotangent({output.name})", "cotangent", TensorType(known_sizes(output), output.dtype)), None, device
        )

    def found(self) -> tuple[Leaf, ...]:
        """Every leaf made so far, in order."""
        return tuple(leaf for leaf, _ in self._made.values())

    def _elements(self, name: str, fixed: torch.Tensor) -> torch.Tensor:
        """What ``gg.constant`` was given, which the check itself may have made; raises ``TracingError`` where that is not known."""
        value = self._recording.known(fixed)
        if value is None:
            raise TracingError(
                "trace-error",
                f"gg.constant was given a tensor whose elements are not known, as the input {name!r}:"
                " make it of numbers, as torch.arange and torch.tensor do, or outside of the check",
            )
        return value

    def _make(self, leaf: Leaf, value: Any, device: Any) -> Any:
        if leaf.name not in self._made:
            dtype = getattr(torch, leaf.type.dtype)
            shape = tuple(size for size in leaf.type.shape if isinstance(size, int))  # a leaf's are all known
            tensor = self._recording.leaf(leaf.name, shape, dtype, value=value, device=device)
            if value is not None:
                with self._recording.on_real_tensors():
                    leaf = replace(leaf, value=constant_of(value))
            self._made[leaf.name] = leaf, tensor
        return self._made[leaf.name][1]


def type_of(tensor: Any) -> TensorType:
    """Shape and element type of a tensor."""
    return TensorType(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))


def is_table(value: torch.Tensor) -> bool:
    """Whether a tensor holds more than one distinct value."""
    return value.numel() > 1 and bool((value != value.flatten()[0]).any())
