"""Copied layers give the graph that recording each of them gives, to the byte; and what is not the same is not copied."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, event, settings
from hypothesis import given as given_by
from hypothesis import strategies as st
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from graphguard.ir import Graph
from graphguard.trace.pure import texts
from graphguard.trace.pure.lookups import Doubt
from graphguard.trace.pure.purity import lookups_of
from graphguard.trace.record.capture import RankTrace, Recording
from graphguard.trace.source.rewriting import rewritten
from graphguard.trace.worlds.world import World, warm
from tests.unit.trace import layered
from tests.unit.trace.layered import DIM, TOKENS, Stack, stack

Drive = Callable[[Recording, nn.Module], None]


@pytest.fixture(autouse=True, scope="module")
def _warm() -> None:
    warm()


@pytest.fixture(autouse=True)
def _counters() -> Iterator[None]:
    yield
    layered.SCALE = 1.0


def trace_of(
    build: Callable[[], nn.Module], drive: Drive, *, copies: bool, mesh: dict[str, int] | None = None
) -> RankTrace:
    """One recording, from the same state of everything that layers look at."""
    layered.SEEN.clear()
    layered.SHARED["count"], layered.SCALE = 0, 1.0
    with World(0, mesh or {"tp": 2}) as world:
        recording = Recording(world, copies=copies)
        with recording:
            model = build() if mesh is None else build(world.mesh.get_group("tp"))  # type: ignore[call-arg]
            for name, tensor in model.named_parameters():
                recording.bind(tensor, recording.leaf(name, tuple(tensor.shape), tensor.dtype))
            recording.root(model)
            recording.phase = "forward"
            drive(recording, model)
        return recording.finish()


def given(recording: Recording, name: str = "x", *, requires_grad: bool = True) -> torch.Tensor:
    return recording.leaf(name, (2, TOKENS, DIM), torch.float32, requires_grad=requires_grad)


def gradients(recording: Recording, model: nn.Module, *further: torch.Tensor) -> None:
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            recording.output(f"grad({name})", parameter.grad)
    for i, tensor in enumerate(further):
        if tensor.grad is not None:
            recording.output(f"grad[{i}]", tensor.grad)


def plainly(recording: Recording, model: nn.Module) -> None:
    """Forward, and backward from a sum."""
    x = given(recording)
    out = model(x)
    recording.output("out", out)
    out.sum().backward()
    gradients(recording, model, x)


def numbered(graph: Graph | None) -> str:
    """A graph whose variables are numbered as they are met: memory that nothing reads may have taken a number."""
    numbers: dict[str, int] = {}
    return re.sub(r"(?<=Var\(id=)\d+", lambda match: str(numbers.setdefault(match[0], len(numbers))), repr(graph))


def compared(build: Callable[..., nn.Module], drive: Drive = plainly, mesh: dict[str, int] | None = None) -> int | str:
    """How many layers were copied, with the graph that there is without copies; or why the recording gave up."""
    copied = trace_of(build, drive, copies=True, mesh=mesh)
    if copied.gave_up:
        assert copied.graph is None
        return copied.gave_up
    whole = trace_of(build, drive, copies=False, mesh=mesh)
    assert repr(copied.troubles) == repr(whole.troubles)
    assert numbered(copied.graph) == numbered(whole.graph)
    assert (copied.assumed, copied.published, copied.opened) == (whole.assumed, whole.published, whole.opened)
    return len(copied.copied)


@pytest.mark.parametrize(
    ("layer", "count"),
    [
        (layered.PreNorm, 5),
        (layered.PostNorm, 5),
        (layered.Decoder, 5),
        (layered.Mlp, 5),
        (lambda: layered.Numbered(3), 5),
        (lambda: layered.Squaring(1), 5),
        (lambda: layered.InPlaceInside(1), 4),
        (lambda: layered.Branching(1), 5),
        (lambda: layered.LookingBackward(1), 5),
        # of these only the parts are
        (lambda: layered.Detached(1), 4),
        (lambda: layered.Unused(1), 4),
        (lambda: layered.Viewed(1), 5),
        (lambda: layered.Same(1), 4),
        (lambda: layered.InPlace(1), 0),
        (lambda: layered.Reading(1), 5),
        (lambda: layered.Counting(1), 5),
        (lambda: layered.Appending(1), 5),
        (lambda: layered.Remembering(1), 5),
        (lambda: layered.CountingBackward(1), 5),
        (lambda: layered.Called(1), 5),
        (lambda: layered.Asking(1), 5),
        (lambda: layered.Property(1), 5),
        (lambda: layered.Configured(layered.Settings()), 1),
        (layered.Dropping, 4),
    ],
    ids=lambda value: getattr(value, "__name__", None) if isinstance(value, type) else None,
)
def test_layers(layer: Callable[[], nn.Module], count: int) -> None:
    assert compared(lambda: stack(layer)) == count


class Case:
    """A program, and what is to come of it: how many layers are copied, or why the recording gives up."""

    def __init__(self, name: str, build: Callable[..., nn.Module], expected: int | str, drive: Drive = plainly) -> None:
        self.name, self.build, self.expected, self.drive = name, build, expected, drive


def indexed(layer: Callable[[int], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: Stack(*(layer(i) for i in range(6)))


def shared(make: Callable[[], Any], layer: Callable[[Any], nn.Module]) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        one = make()
        return Stack(*(layer(one) for _ in range(6)))

    return build


GRAPH = "the program looks at the autograd graph"
ADDED = "the gradients of a copied layer are added to others"
CHANGED = "what a copied layer read has been changed"
KEPT = "the gradients of a copied layer are looked after"
NOT_PLAIN = "the backward pass through a copied layer is no plain one"
OTHER = "what a copied layer looks up is another thing now"
PROGRAMS = [
    Case("a number that nobody looks at", indexed(layered.Numbered), 5),
    Case("every other layer", indexed(layered.Alternating), 1),
    Case("super", indexed(layered.Indexed), 5),
    Case("one configuration", shared(layered.Settings, layered.Configured), 5),
    Case("one layer shared by all", shared(lambda: nn.Linear(DIM, DIM), layered.Tied), 1),
    Case("a parameter from outside", shared(lambda: nn.Linear(DIM, DIM), lambda one: layered.Outside(0, one)), 1),
    Case("a list as default", indexed(layered.Defaults), 5),
    Case("frozen", layered.frozen, 4),
    Case("another epsilon", layered.other_epsilon, 4),
    Case("a hook", layered.hooked, 4),
    Case("a watched parameter", layered.watched_parameter, 0),
    Case("an accumulator that is watched", layered.accumulator_hook, 0),
    Case("another forward", layered.replaced_forward, 4),
    Case("a subclass", layered.subclassed, 4),
    Case("tied layers", layered.tied_layers, KEPT),
    Case("tied inside", layered.tied_inside, 4),
    Case("one memory", layered.one_memory, 4),
    Case("weight norm", layered.weight_norm, 4),
    Case("unrolled", layered.Unrolled, 3),
    Case("twice", layered.Twice, KEPT),
    Case("kept", layered.Kept, ADDED),
    Case("early", layered.Early, ADDED),
    Case("early, but for the first", layered.EarlyButForTheFirst, 5),
    Case("two results", layered.Passing, 5),
    Case("checkpointed", layered.Checkpointed, 0),
    Case("checkpointed, reentrant", layered.Reentrant, 5),
    Case("nested", indexed(layered.Nested), 11),
    Case("a class changed", layered.Patched, 2),
    Case("pytorch changed", layered.Replaced, 2),
    Case("updated", layered.Updated, CHANGED),
    Case("updated unseen", layered.UpdatedUnseen, 5),
    Case("autocast", layered.Casting, 2),
    Case("no gradients first", layered.Ungraded, 2),
    Case("hooks between", layered.HookedBetween, 0),
    Case("the graph is looked at", layered.Looked, GRAPH),
    Case("changed in place between", layered.Residual, CHANGED),
]


@pytest.mark.parametrize("case", PROGRAMS, ids=lambda case: case.name)
def test_programs(case: Case) -> None:
    assert compared(case.build, case.drive) == case.expected


# -- what the program does with what its layers return ------------------------------------------------------------------
def twice_through(recording: Recording, model: nn.Module) -> None:
    out = model(given(recording))
    out.sum().backward(retain_graph=True)
    out.sum().backward()
    gradients(recording, model)


def of_gradients(recording: Recording, model: nn.Module) -> None:
    x = given(recording)
    (grad,) = torch.autograd.grad(model(x).pow(2).sum(), x, create_graph=True)
    grad.sum().backward()
    gradients(recording, model)


def wanted(recording: Recording, model: nn.Module) -> None:
    x = given(recording)
    hidden = [x]
    for layer in model.layers:  # type: ignore[union-attr]
        hidden.append(layer(hidden[-1]))
    grads = torch.autograd.grad(hidden[-1].sum(), hidden[:-1])
    for i, grad in enumerate(grads):
        recording.output(f"grad[{i}]", grad)


def wanted_inputs(recording: Recording, model: nn.Module) -> None:
    x = given(recording)
    model(x).sum().backward(inputs=[x])
    gradients(recording, model, x)


def accumulated(recording: Recording, model: nn.Module) -> None:
    """One backward pass after the other."""
    for i in range(2):
        model(given(recording, f"x{i}")).sum().backward()
    gradients(recording, model)


def accumulated_later(recording: Recording, model: nn.Module) -> None:
    """Both backward passes after both forward passes."""
    outs = [model(given(recording, f"x{i}")).sum() for i in range(2)]
    for out in outs:
        out.backward()
    gradients(recording, model)


def stepping(recording: Recording, model: nn.Module) -> None:
    """Two steps of training, with gradients that are clipped in place."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for i in range(2):
        out = model(given(recording, f"x{i}"))
        optimizer.zero_grad()
        out.sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        recording.output(f"out{i}", out)
    for name, parameter in model.named_parameters():
        recording.output(f"new({name})", parameter)


def without_gradients(recording: Recording, model: nn.Module) -> None:
    with torch.no_grad():
        recording.output("out", model(given(recording)))


def forward_only(recording: Recording, model: nn.Module) -> None:
    recording.output("out", model(given(recording)))


def evaluated(recording: Recording, model: nn.Module) -> None:
    model.eval()
    plainly(recording, model)


def in_training_and_not(recording: Recording, model: nn.Module) -> None:
    model.layers[3].eval()  # type: ignore[index, union-attr]
    plainly(recording, model)


def no_input_gradient(recording: Recording, model: nn.Module) -> None:
    recording.output("out", out := model(given(recording, requires_grad=False)))
    out.sum().backward()
    gradients(recording, model)


def other_lines(recording: Recording, model: nn.Module) -> None:
    """Gradients arrive from two places."""
    layers = list(model.layers)  # type: ignore[union-attr, arg-type]
    x = given(recording) * 1
    for layer in layers[:3]:
        x = layer(x)
    middle = x.detach().requires_grad_()
    y = middle
    for layer in layers[3:]:
        y = layer(y)
    y.sum().backward()
    x.backward(middle.grad)
    gradients(recording, model)


def with_side(recording: Recording, model: nn.Module) -> None:
    side = recording.leaf("side", (DIM,), torch.float32)
    recording.output("out", out := model(given(recording), side))
    out.sum().backward()
    gradients(recording, model)


def with_trained_side(recording: Recording, model: nn.Module) -> None:
    side = recording.leaf("side", (DIM,), torch.float32, requires_grad=True)
    recording.output("out", out := model(given(recording), side))
    out.sum().backward()
    gradients(recording, model, side)


def with_cache(recording: Recording, model: nn.Module) -> None:
    recording.output("out", out := model(given(recording), []))
    out.sum().backward()
    gradients(recording, model)


def with_mask(recording: Recording, model: nn.Module) -> None:
    mask = torch.ones(TOKENS, TOKENS).triu(1).bool()
    recording.output("out", out := model(given(recording), mask))
    out.sum().backward()
    gradients(recording, model)


def with_known(recording: Recording, model: nn.Module) -> None:
    """A table that is known, and changed by somebody on the way."""
    table = torch.arange(DIM).float() - 1
    x = given(recording) * 1
    for i, layer in enumerate(model.layers):  # type: ignore[union-attr, arg-type]
        if i == 3:
            table = table + 2
        x = layer(x, table)
    x.sum().backward()
    gradients(recording, model)


def with_changed(recording: Recording, model: nn.Module) -> None:
    """A table that is known, and changed in place by somebody on the way."""
    table = torch.arange(DIM).float() - 1
    x = given(recording) * 1
    for i, layer in enumerate(model.layers):  # type: ignore[union-attr, arg-type]
        if i == 3:
            table.add_(2)
        x = layer(x, table)
    x.sum().backward()
    gradients(recording, model)


def other_scale(recording: Recording, model: nn.Module) -> None:
    """A global is another one for the last layers."""
    x = given(recording) * 1
    for i, layer in enumerate(model.layers):  # type: ignore[union-attr, arg-type]
        layered.SCALE = 2.0 if i > 3 else 1.0
        x = layer(x)
    x.sum().backward()
    gradients(recording, model)


def other_scale_back(recording: Recording, model: nn.Module) -> None:
    """A global is another one in the backward pass."""
    out = model(given(recording))
    layered.SCALE = 3.0
    out.sum().backward()
    gradients(recording, model)


def first_retained(recording: Recording, model: nn.Module) -> None:
    """The gradient of what the layer that was recorded gives is kept."""
    x = given(recording) * 1
    layers = list(model.layers)  # type: ignore[arg-type]
    first = x = layers[0](x)
    first.retain_grad()
    for layer in layers[1:]:
        x = layer(x)
    x.sum().backward()
    gradients(recording, model, first)


def first_changed(recording: Recording, model: nn.Module) -> None:
    """What the layer that was recorded gives is written to."""
    layers = list(model.layers)  # type: ignore[arg-type]
    x = layers[0](given(recording) * 1)
    x.mul_(2.0)
    for layer in layers[1:]:
        x = layer(x)
    x.sum().backward()
    gradients(recording, model)


def first_done(recording: Recording, model: nn.Module) -> None:
    """The backward pass of the layer that was recorded has been, and its graph is gone, before that of the others."""
    model.requires_grad_(requires_grad=False)
    layers = list(model.layers)  # type: ignore[arg-type]
    inputs = given(recording)
    first = layers[0](inputs * 1)
    x = cut = first.detach().requires_grad_()
    for layer in layers[1:]:
        x = layer(x)
    first.sum().backward()
    x.sum().backward()
    gradients(recording, model, inputs, cut)


def read_elsewhere(recording: Recording, model: nn.Module) -> None:
    """Parameters of copied layers are in the loss as well."""
    out = model(given(recording))
    penalty = sum(p.square().sum() for p in model.parameters())
    (out.sum() + penalty).backward()
    gradients(recording, model)


def read_elsewhere_first(recording: Recording, model: nn.Module) -> None:
    """The same, in a backward pass before."""
    out = model(given(recording))
    sum(p.square().sum() for p in list(model.parameters())[-1:]).backward()  # type: ignore[union-attr]
    out.sum().backward()
    gradients(recording, model)


def flat(recording: Recording, model: nn.Module) -> None:
    """Gradients are looked at as one row of numbers, which only some can be."""
    model(given(recording)).sum().backward()
    for i, parameter in enumerate(model.parameters()):
        assert parameter.grad is not None
        recording.output(f"grad[{i}]", parameter.grad.view(-1))


def longer(recording: Recording, model: nn.Module) -> None:
    """A list that layers look at grows on the way."""
    x = given(recording) * 1
    for layer in model.layers:  # type: ignore[union-attr]
        layered.SEEN.append(1)
        x = layer(x)
    x.sum().backward()
    gradients(recording, model)


def other_configuration(recording: Recording, model: nn.Module) -> None:
    x = given(recording) * 1
    for i, layer in enumerate(model.layers):  # type: ignore[union-attr, arg-type]
        layer.config.scale = float(i // 3)
        x = layer(x)
    x.sum().backward()
    gradients(recording, model)


def other_data(recording: Recording, model: nn.Module) -> None:
    """A parameter has other memory after its layer was called."""
    x = given(recording) * 1
    for layer in model.layers:  # type: ignore[union-attr]
        x = layer(x)
    for layer in model.layers:  # type: ignore[union-attr]
        layer.mlp.up.weight.data = layer.mlp.up.weight.data * 2
    x.sum().backward()
    gradients(recording, model)


def hooked_later(recording: Recording, model: nn.Module) -> None:
    out = model(given(recording))
    for layer in model.layers:  # type: ignore[union-attr]
        layer.mlp.up.weight.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(2))
    out.sum().backward()
    gradients(recording, model)


def retained(recording: Recording, model: nn.Module) -> None:
    x = given(recording) * 1
    hidden = []
    for layer in model.layers:  # type: ignore[union-attr]
        x = layer(x)
        x.retain_grad()
        hidden.append(x)
    x.sum().backward()
    gradients(recording, model, *hidden)


def retained_twice(recording: Recording, model: nn.Module) -> None:
    """Gradients of hidden states that are added up over two backward passes."""
    x = given(recording) * 1
    hidden = []
    for layer in model.layers:  # type: ignore[union-attr]
        x = layer(x)
        x.retain_grad()
        hidden.append(x)
    hidden[2].sum().backward(retain_graph=True)
    gradients(recording, model, *hidden)


def watched_later(recording: Recording, model: nn.Module) -> None:
    """All modules are watched from after the calls on."""
    out = model(given(recording))
    hook = register_module_forward_pre_hook(lambda module, args: layered.SEEN.append(1))
    try:
        out.sum().backward()
    finally:
        hook.remove()
    recording.output("seen", out * (1 + len(layered.SEEN)))
    gradients(recording, model)


def caught(recording: Recording, model: nn.Module) -> None:
    """A program that catches whatever is raised."""
    out = model(given(recording))
    try:
        out.sum().backward(retain_graph=True)
    except BaseException:  # noqa: BLE001 - the very point
        out.sum().backward()
    gradients(recording, model)


def transposed(recording: Recording, model: nn.Module) -> None:
    """A layer's argument is turned in place after it was called."""
    x = given(recording) * 1
    for layer in model.layers:  # type: ignore[union-attr]
        y = layer(x)
        x.transpose_(0, 1)
        x = y
    x.sum().backward()
    gradients(recording, model)


def mixed_types(recording: Recording, model: nn.Module) -> None:
    """Arguments of other kinds for the last layers."""
    x = given(recording) * 1
    for i, layer in enumerate(model.layers):  # type: ignore[union-attr, arg-type]
        x = layer(x if i < 4 else x[:1])
    x.sum().backward()
    gradients(recording, model)


def strided(recording: Recording, model: nn.Module) -> None:
    """Some arguments lie in memory otherwise."""
    x = given(recording) * 1
    for i, layer in enumerate(model.layers):  # type: ignore[union-attr, arg-type]
        x = layer(x if i % 2 else x.transpose(0, 1).contiguous().transpose(0, 1))
    x.sum().backward()
    gradients(recording, model)


def part_of_one(recording: Recording, model: nn.Module) -> None:
    """Gradients arrive as parts of one: expanded, and cut out of something larger."""
    x = given(recording) * 1
    for layer in model.layers:  # type: ignore[union-attr]
        x = torch.cat([layer(x), x], 1)[:, :TOKENS]
    x.sum().backward()
    gradients(recording, model)


def dtypes(recording: Recording, model: nn.Module) -> None:
    """The default type changes on the way."""
    x = given(recording) * 1
    for i, layer in enumerate(model.layers):  # type: ignore[union-attr, arg-type]
        torch.set_default_dtype(torch.float64 if i > 3 else torch.float32)
        x = layer(x)
    torch.set_default_dtype(torch.float32)
    x.sum().backward()
    gradients(recording, model)


def keywords(recording: Recording, model: nn.Module) -> None:
    side = recording.leaf("side", (DIM,), torch.float32)
    x = given(recording) * 1
    for i, layer in enumerate(model.layers):  # type: ignore[union-attr, arg-type]
        x = layer(x, side=side) if i % 2 else layer(side=side, x=x)
    x.sum().backward()
    gradients(recording, model)


PLAIN = indexed(layered.Numbered)
DRIVES = [
    Case("twice through", PLAIN, NOT_PLAIN, twice_through),
    Case("gradients of gradients", PLAIN, NOT_PLAIN, of_gradients),
    Case("gradients of hidden states", PLAIN, NOT_PLAIN, wanted),
    Case("gradients of inputs alone", PLAIN, NOT_PLAIN, wanted_inputs),
    Case("accumulated", lambda: stack(layered.PreNorm), 5, accumulated),
    Case(
        "accumulated later",
        lambda: stack(layered.PreNorm),
        "the gradients of a copied layer are looked after",
        accumulated_later,
    ),
    Case("steps", lambda: stack(layered.Decoder), 5, stepping),
    Case("no gradients", lambda: stack(layered.Decoder), 5, without_gradients),
    Case(
        "no gradients, parts in a list",
        indexed(lambda _: layered.Composed(("plain", "norm"), 0.5)),
        5,
        without_gradients,
    ),
    Case("forward only", lambda: stack(layered.Decoder), 5, forward_only),
    Case("dropout that is off", lambda: stack(layered.Dropping), 5, evaluated),
    Case("dropout that is off in one", lambda: stack(layered.Dropping), 4, in_training_and_not),
    Case("no gradient of the input", lambda: stack(layered.PreNorm), 4, no_input_gradient),
    Case("two backward passes", lambda: stack(layered.PreNorm), 5, other_lines),
    Case("a side input", indexed(layered.Crossed), 5, with_side),
    Case("a side input with a gradient", indexed(layered.Crossed), 5, with_trained_side),
    Case("a cache", indexed(layered.Caching), 5, with_cache),
    Case("a mask", lambda: stack(layered.Decoder), 5, with_mask),
    Case("a known table", indexed(layered.Crossed), 4, with_known),
    Case("a branch on a known table", indexed(layered.Picking), 4, with_known),
    Case("a global", indexed(layered.Scaled), 4, other_scale),
    Case("a global in the backward pass", indexed(layered.LookingBackward), OTHER, other_scale),
    Case("a global before the backward pass", indexed(layered.LookingBackward), OTHER, other_scale_back),
    Case("the first is kept", PLAIN, KEPT, first_retained),
    Case("the first is written to", PLAIN, 5, first_changed),
    Case("the first is done", PLAIN, 5, first_done),
    Case("parameters in the loss", PLAIN, KEPT, read_elsewhere),
    Case("parameters in a loss before", PLAIN, KEPT, read_elsewhere_first),
    Case("gradients that lie otherwise", lambda: stack(layered.Turned), 5, flat),
    Case("a list that grows", indexed(layered.Lengths), 1, longer),
    Case("a configuration that changes", shared(layered.Settings, layered.Configured), 4, other_configuration),
    Case("other memory", PLAIN, CHANGED, other_data),
    Case("hooks after the call", PLAIN, GRAPH, hooked_later),
    Case("retained", PLAIN, ADDED, retained),
    Case("retained, of a graph that is kept", PLAIN, ADDED, retained_twice),
    Case("watched after the call", PLAIN, OTHER, watched_later),
    Case("everything is caught", PLAIN, NOT_PLAIN, caught),
    Case("turned in place", PLAIN, "the calls of copied layers are asked for", transposed),
    Case("other sizes", PLAIN, 3, mixed_types),
    Case("other strides", PLAIN, 5, strided),
    Case("parts of one gradient", PLAIN, ADDED, part_of_one),
    Case("a table that is changed", indexed(layered.Crossed), CHANGED, with_changed),
    Case("default types", PLAIN, OTHER, dtypes),
    Case("keywords", indexed(layered.Crossed), 4, keywords),
]


@pytest.mark.parametrize("case", DRIVES, ids=lambda case: case.name)
def test_drives(case: Case) -> None:
    assert compared(case.build, case.drive) == case.expected


@pytest.mark.parametrize(
    ("layer", "count"),
    [(layered.Parallel, 5), (layered.Entered, 5), (layered.Waiting, 0)],
)
def test_parallel(layer: Callable[[Any], nn.Module], count: int) -> None:
    def build(group: Any) -> nn.Module:
        return Stack(*(layer(group) for _ in range(6)))

    assert compared(build, mesh={"tp": 2}) == count


# -- code that is not followed -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", [name for name in vars(layered) if name.startswith("Odd")])
def test_not_followed(name: str) -> None:
    layer = getattr(layered, name)
    layer = layer(0)
    with pytest.raises(Doubt):
        lookups_of(layer, (torch.ones(2, TOKENS, DIM),), {})


@pytest.mark.parametrize("name", [name for name in vars(layered) if name.startswith("Even")])
def test_followed(name: str) -> None:
    lookups_of(getattr(layered, name)(0), (torch.ones(2, TOKENS, DIM),), {})


ANSWERED = """
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.scale = nn.Linear(8, 8), 2.5

    def forward(self, x):
        return self.linear(x) * int(self.scale) * max(1, x.shape[0])
"""


@pytest.mark.parametrize("changed", [False, True])
def test_files_that_are_compiled_otherwise(tmp_path: Path, changed: bool) -> None:
    """Calls of ``int`` are answered by us in the user's files; a file that is another one by now is not what runs."""
    file = tmp_path / "layer.py"
    tree = rewritten(ANSWERED.encode(), str(file))
    assert isinstance(tree, ast.Module)
    file.write_text(ANSWERED.replace("2.5", "3.5") if changed else ANSWERED)
    names: dict[str, Any] = {"__name__": "layer"}
    exec(compile(tree, str(file), "exec", dont_inherit=True), names)
    lookups_of(names["Layer"](), (torch.ones(2, TOKENS, DIM),), {})
    if changed:
        file.write_text(ANSWERED.replace("int(", "bool("))
        linecache.checkcache(str(file))
        texts._answered.cache_clear()
        texts._plain.cache_clear()
        texts.source_of.cache_clear()
        with pytest.raises(Doubt, match="is not what runs"):
            lookups_of(names["Layer"](), (torch.ones(2, TOKENS, DIM),), {})


# -- any program --------------------------------------------------------------------------------------------------------
def driven(between: list[str], end: str) -> Drive:
    """Layer after layer, with something after each."""

    def drive(recording: Recording, model: nn.Module) -> None:
        x = given(recording) * 1
        kept = torch.zeros_like(x)
        layers: list[Any] = list(model.layers)  # type: ignore[union-attr, arg-type]
        for layer, what in zip(layers, between, strict=True):
            if what == "early":
                kept = kept + x * 3
            with torch.set_grad_enabled(what != "ungraded"):
                y = layer(x)
            x = after(what, x, y, layer)
            if what == "keep":
                kept = kept + y
        out = x + kept
        recording.output("out", out)
        if end == "step":
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            out.pow(2).sum().backward()
            optimizer.step()
            for name, parameter in model.named_parameters():
                recording.output(f"new({name})", parameter)
        elif end != "forward":
            (out.sum() if end == "sum" else out.pow(2).mean()).backward()
        gradients(recording, model)

    return drive


def after(what: str, before: torch.Tensor, x: torch.Tensor, layer: Any) -> torch.Tensor:
    """What a program does with a layer's result before the next layer has it."""
    if what == "double":
        return x * 2
    if what == "in place":
        x.add_(1)
    elif what == "leak":
        before.mul_(2)
    elif what == "clone":
        return x.clone()
    elif what == "hook":
        x.requires_grad and x.register_hook(lambda grad: grad * 2)
    elif what == "view":
        return x.transpose(0, 1).contiguous().transpose(0, 1)
    elif what == "update":
        with torch.no_grad():
            layer.parts[0].bias.add_(1)
    elif what == "unseen":
        layer.parts[0].weight.data.mul_(2)
    elif what == "same":
        return x + before
    elif what == "retain":
        x.requires_grad and x.retain_grad()
    return x


def outcome(build: Callable[[], nn.Module], drive: Drive, *, copies: bool) -> RankTrace | str:
    try:
        return trace_of(build, drive, copies=copies)
    except RuntimeError as error:
        return str(error)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given_by(st.data())
def test_any_program(data: st.DataObject) -> None:
    kinds = tuple(data.draw(st.lists(st.sampled_from(layered.KINDS), min_size=1, max_size=3)))
    count = data.draw(st.integers(4, 6))
    between = data.draw(st.lists(st.sampled_from(layered.BETWEEN), min_size=count, max_size=count))
    end = data.draw(st.sampled_from(("sum", "mean", "step", "forward")))
    odd = data.draw(st.integers(0, 2 * count))
    how = data.draw(st.sampled_from(("scale", "frozen", "eval", "kind", "shared", "hook")))

    def build() -> nn.Module:
        model = Stack(*(layered.Composed(kinds, 0.5) for _ in range(count)))
        if odd < count:
            layer: Any = model.layers[odd]
            if how == "scale":
                layer.scale = 2.0
            elif how == "frozen":
                layer.parts[0].weight.requires_grad_(False)
            elif how == "eval":
                layer.eval()
            elif how == "kind":
                layer.kinds = ("plain", *kinds[1:])
            elif how == "shared":
                layer.parts[0] = model.layers[odd - 1].parts[0]
            else:
                layer.parts[0].register_forward_hook(lambda module, args, out: out * 2)
        return model

    drive = driven(between, end)
    copied = outcome(build, drive, copies=True)
    if isinstance(copied, RankTrace) and copied.gave_up:
        event("gave up: " + copied.gave_up)
        return
    whole = outcome(build, drive, copies=False)
    if isinstance(copied, str) or isinstance(whole, str):
        event("raises")
        assert copied == whole
        return
    event(f"{len(copied.copied)} copied")
    assert numbered(copied.graph) == numbered(whole.graph)
