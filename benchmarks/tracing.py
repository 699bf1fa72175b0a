"""How long it takes to record a model, and next to what: ``python -m benchmarks.tracing``.

Ratios compare medians of alternating repetitions in this one process; absolute times depend on the machine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from benchmarks.llama_tp import Config, Llama
from graphguard.ir import Graph
from graphguard.trace import provenance
from graphguard.trace.capture import Recording
from graphguard.trace.recorder import new_fake_mode
from graphguard.trace.world import World, warm

REPETITIONS = 3


def record(config: Config, ways: int, rank: int = 0) -> tuple[Graph, float, float]:
    """Forward and backward of one program: its graph, seconds of recording, seconds of functionalisation."""
    with World(rank, {"tp": ways}) as world:
        recording = Recording(world)
        with recording:
            torch.set_default_dtype(torch.bfloat16)
            model = Llama(config, None if ways == 1 else world.mesh.get_group("tp"))
            tokens = recording.leaf("tokens", (1, 128), torch.int64)
            labels = recording.leaf("labels", (1, 128), torch.int64)
            for name, parameter in model.named_parameters():
                recording.bind(parameter, recording.leaf(name, tuple(parameter.shape), parameter.dtype))
            recording.root(model)
            recording.phase = "forward"
            start = time.perf_counter()
            loss = model(tokens, labels)
            recording.output("out", loss)
            loss.backward()
            for name, parameter in model.named_parameters():
                recording.output(f"grad({name})", parameter.grad)
            recorded = time.perf_counter()
        trace = recording.finish()
        done = time.perf_counter()
    assert trace.graph is not None, trace.troubles
    return trace.graph, recorded - start, done - recorded


def with_make_fx(config: Config, ways: int) -> float:
    """Seconds that ``make_fx`` takes on the same model, forward and backward, on fake tensors."""
    with World(0, {"tp": ways}) as world, new_fake_mode():
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        try:
            model = Llama(config, None if ways == 1 else world.mesh.get_group("tp"))
            tokens = torch.zeros(1, 128, dtype=torch.int64)
            names, parameters = zip(*model.named_parameters(), strict=True)

            def step(tokens: torch.Tensor, *values: torch.Tensor) -> Any:
                loss = torch.func.functional_call(model, dict(zip(names, values, strict=True)), (tokens, tokens))
                return loss, *torch.autograd.grad(loss, values)

            start = time.perf_counter()
            make_fx(step)(tokens, *parameters)
            return time.perf_counter() - start
        finally:
            torch.set_default_dtype(before)


def without_provenance(run: Callable[[], float]) -> float:
    """The same recording with no stack walked."""
    walk = provenance.walk
    provenance.walk = lambda frame, stop: ()
    try:
        return run()
    finally:
        provenance.walk = walk


def alternating(*runs: Callable[[], float]) -> list[float]:
    """The median of each, taken in turns so that the machine's mood is shared."""
    for run in runs:
        run()
    seconds: list[list[float]] = [[] for _ in runs]
    for _ in range(REPETITIONS):
        for run, found in zip(runs, seconds, strict=True):
            found.append(run())
    return [statistics.median(found) for found in seconds]


def total(config: Config, ways: int) -> float:
    """Recording and functionalisation of rank 0."""
    _, recording, functional = record(config, ways)
    return recording + functional


def main() -> None:
    """Print the table."""
    warm()
    two = Config(layers=2)
    for ways, name in ((1, "sequential"), (2, "TP 2, rank 0")):
        whole, recording, bare, fx = alternating(
            lambda w=ways: total(two, w),
            lambda w=ways: record(two, w)[1],
            lambda w=ways: without_provenance(lambda: record(two, w)[1]),
            lambda w=ways: with_make_fx(two, w),
        )
        nodes = len(record(two, ways)[0].nodes)
        print(f"2 layers, {name}: {nodes} nodes, {whole * 1e3:.0f} ms, of which recording {recording * 1e3:.0f} ms")
        print(f"  make_fx {fx * 1e3:.0f} ms: {fx / whole:.2f} times as long")
        print(f"  provenance: {(recording - bare) / recording:.1%} of recording")
    one, deep = alternating(lambda: total(Config(layers=1), 2), lambda: total(Config(layers=32), 2))
    print(f"32 layers over 1 layer, TP 2: {deep * 1e3:.0f} ms / {one * 1e3:.0f} ms = {deep / one:.1f}")


if __name__ == "__main__":
    main()
