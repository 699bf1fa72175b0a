"""Keys of stages: two programs that differ in one thing that a proof may depend on have two, and twins are told apart by what they say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from graphguard.ir import Capture, DType, Graph, Node, TensorType, Var
from graphguard.ir.graph import Arg, Constant
from graphguard.ir.joining import join
from graphguard.refine.proving.memo import Memo
from graphguard.refine.proving.prove import prove
from graphguard.refine.stages.calls import Calls, Unspelt
from graphguard.refine.stages.cuts import Division, divided
from graphguard.refine.stages.spelling import Speller
from graphguard.refine.stages.twins import Programs
from graphguard.refine.stages.windows import Windowed
from tests.unit.refine.stacks import stack

#: Literals many of which are equal in Python.
LITERALS: list[Arg] = [
    *(None, 0, 1, False, True, 0.0, -0.0, 1.0, float("nan"), float("inf"), "0", "1", "float32", DType("float32")),
    *((), (0,), (1,), (False,), (True,), (0.0,), (-0.0,), (1.0,), (None,), ((1,),), ((True,),), (1, 1), (DType("float32"),)),
]  # fmt: skip
Windows = dict[tuple[int, int], tuple[Var, Windowed | None]]


def divided_stack(capture: Capture) -> Division | None:
    return divided(capture, join(capture.ranks))


def window(shape: tuple[int, ...], offset: int = 0, factor: int = 1) -> Windowed:
    """A tensor that is another of its shape, or that from an offset on, or a multiple of it."""
    dims = tuple(((dim, 1, size),) for dim, size in enumerate(shape))
    box = tuple((0, size) for size in shape)
    return Windowed(shape, tuple((size,) for size in shape), ((box, (factor, 1), ((offset, 0), dims)),))


def wholes(division: Division) -> Windows:
    """Every rank's cut tensors are the specification's."""
    return {
        (graph, var.id): (cut[0], window(division.graphs[graph].types[var].shape) if graph else None)  # type: ignore[arg-type]
        for cut in division.cuts
        for graph, var in enumerate(cut)
    }


def keys(capture: Capture, division: Division | None = None, windows: Windows | None = None) -> tuple[object, ...]:
    """The rows of all stages and of what is promised after them."""
    division = division or divided_stack(capture)
    assert division is not None
    windows = wholes(division) if windows is None else windows
    leaves = {leaf.name: leaf for leaf in capture.leaves}
    spellers: dict[int, Speller] = {}
    rows: list[object] = [sorted(division.floats)]
    for stage in division.stages:
        speller = spellers.setdefault(stage.region, Speller(division, leaves, {}))
        rows += speller.stage(stage, windows).rows
        rows += speller.promised(stage)[0].rows
    assert repr(rows) == repr(
        eval(repr(rows), {"nan": float("nan"), "inf": float("inf")})
    )  # a shelf knows rows by their text
    return tuple(rows[1:])


def changed(capture: Capture, graph: int, new: Graph) -> Capture:
    if graph == 0:
        return replace(capture, spec=new)
    ranks = list(capture.ranks)
    ranks[graph - 1] = new
    return replace(capture, ranks=tuple(ranks))


def with_node(graph: Graph, index: int, node: Node) -> Graph:
    return replace(graph, nodes=(*graph.nodes[:index], node, *graph.nodes[index + 1 :]))


def other_arguments(arg: Arg) -> Iterator[Arg]:
    """Arguments that are not this one, of its kind and of kinds in which it has an equal."""
    if isinstance(arg, tuple):
        for place, item in enumerate(arg):
            for other in other_arguments(item):
                yield (*arg[:place], other, *arg[place + 1 :])
        yield (*arg, 1)
    elif isinstance(arg, int):
        yield from (arg + 1, -arg - 1, float(arg), str(arg))
        if arg in (0, 1):
            yield bool(arg)
    elif isinstance(arg, str):
        yield f"{arg}2"


def mutants(graph: Graph) -> Iterator[tuple[str, Graph]]:
    """Graphs that differ from one in one thing."""
    for index, node in enumerate(graph.nodes):
        for place, arg in enumerate(node.args):
            for other in other_arguments(arg):
                args = (*node.args[:place], other, *node.args[place + 1 :])
                yield f"{index} {node.op}: {other!r} for {arg!r}", with_node(graph, index, replace(node, args=args))
        yield f"{index} {node.op}: another argument", with_node(graph, index, replace(node, args=(*node.args, None)))
        yield f"{index} {node.op}: a keyword", with_node(graph, index, replace(node, kwargs={"a": 1}))
        yield f"{index} {node.op}: another operator", with_node(graph, index, replace(node, op=f"{node.op}2"))
        yield f"{index} {node.op}: a draw", with_node(graph, index, replace(node, draw=("seed", 0)))
        for out in node.outs:
            kind = graph.types[out]
            for other in (TensorType(kind.shape, "bfloat16"), TensorType((*kind.shape, 1), kind.dtype)):
                yield f"{index} {node.op}: {other}", replace(graph, types={**graph.types, out: other})
        tensors = [place for place, arg in enumerate(node.args) if isinstance(arg, Var)]
        if len(tensors) == 2 and node.args[0] != node.args[1]:
            swapped = (node.args[1], node.args[0], *node.args[2:])
            yield f"{index} {node.op}: swapped", with_node(graph, index, replace(node, args=swapped))


@pytest.mark.parametrize(("graph", "backward"), [(0, False), (1, False), (2, False), (2, True)])
def test_every_part_of_a_program_is_in_its_keys(graph: int, backward: bool) -> None:
    """The first rank, its twin, and the specification: no change of one call leaves all keys as they were."""
    capture = stack(2 if backward else 4, backward=backward)
    joined = join(capture.ranks)
    known = keys(capture, divided(capture, joined))
    source = (capture.spec, *capture.ranks)[graph]
    assert source is not None
    count = 0
    for what, mutant in mutants(source):
        other = changed(capture, graph, mutant)
        division = divided(other, joined)
        if division is None:
            continue
        try:
            found = keys(other, division)
        except Unspelt:
            continue
        assert found != known, what
        assert repr(found) != repr(known), what
        count += 1
    assert count > 100


def literal(*said: Arg) -> Capture:
    """A stack in which the relu of the second layer of each rank has an argument of the rank's own."""
    capture = stack(4, len(said), backward=False)
    ranks = []
    for graph, argument in zip(capture.ranks, said, strict=True):
        place = [index for index, node in enumerate(graph.nodes) if node.op == "aten.relu.default"][1]
        node = graph.nodes[place]
        ranks.append(with_node(graph, place, replace(node, args=(*node.args, argument))))
    return replace(capture, ranks=tuple(ranks))


def test_twins_are_told_apart_by_their_literals() -> None:
    pairs = list(product(LITERALS, repeat=2))
    found = [keys(literal(*pair)) for pair in pairs]
    assert len(set(found)) == len(set(map(repr, found))) == len(pairs)


def test_which_twin_says_what_is_told_apart() -> None:
    said = list(product((1, True, 0.0, -0.0), repeat=4))
    found = [keys(literal(*each)) for each in said]
    assert len(set(found)) == len(set(map(repr, found))) == len(said)


def test_ranks_of_one_program_are_twins_and_others_are_not() -> None:
    capture = stack(3, 4)
    assert Programs.of((capture.spec, *capture.ranks)).twins == {0: [], 1: [2, 3, 4]}  # type: ignore[arg-type]
    graph = capture.ranks[2]
    for what, mutant in mutants(graph):
        if "another operator" in what or "TensorType" in what or "a draw" in what or "swapped" in what:
            twins = Programs.of((capture.spec, *changed(capture, 3, mutant).ranks)).twins  # type: ignore[arg-type]
            assert twins == {0: [], 1: [2, 4], 3: []}, what


@pytest.mark.parametrize("table", ["inputs", "constants", "labels", "outputs"])
def test_ranks_that_read_or_give_other_things_are_no_twins(table: str) -> None:
    capture = stack(2, 2)
    one, other = capture.ranks
    literals = {
        Var(len(one.types) + place): Constant(TensorType((2,), "float32"), "ab"[place], None) for place in (0, 1)
    }
    types = {**one.types, **{var: literal.type for var, literal in literals.items()}}
    one, other = (replace(graph, types=types, constants=literals) for graph in (one, other))
    assert Programs.of((one, one, other)).twins == {0: [], 1: [2]}
    known = getattr(other, table)
    changed_ = dict(zip(known, [*list(known.values())[1:], *list(known.values())[:1]], strict=True))
    assert Programs.of((one, one, replace(other, **{table: changed_}))).twins == {0: [], 1: [], 2: []}


def test_cut_tensors_of_twins_are_told_apart() -> None:
    """What comes in as another window is another stage, whichever rank it comes in at."""
    capture = stack(4, 2, backward=False)
    division = divided_stack(capture)
    assert division is not None
    found = []
    for ways in product(((0, 1), (0, 2), (1, 1)), repeat=2):
        windows = wholes(division)
        for graph, (offset, factor) in enumerate(ways, 1):
            var = division.cuts[0][graph]
            shape = division.graphs[graph].types[var].shape
            windows[graph, var.id] = (division.cuts[0][0], window(shape, offset, factor))  # type: ignore[arg-type]
        found.append(keys(capture, division, windows))
    assert len(set(found)) == len(set(map(repr, found))) == 9


def test_numbers_of_twins_are_those_that_they_would_have_alone() -> None:
    """No two tensors of a region go by one number, but for leaves, literals and cut tensors that are the specification's."""
    capture = stack(4, 4, backward=True)
    division = divided_stack(capture)
    assert division is not None
    speller = Speller(division, {leaf.name: leaf for leaf in capture.leaves}, {})
    region = division.stages[1].region
    for stage in division.stages:
        if stage.region == region:
            speller.stage(stage, wholes(division))
    made = [
        number
        for graph, numbers in enumerate(speller.numbers())
        for var, number in numbers.items()
        if var in division.made[graph] and (graph, var) not in wholes(division)
    ]
    assert len(made) == len(set(made))
    for graph, numbers in enumerate(speller.numbers()):
        assert {var: speller.number(graph, var) for var in numbers} == numbers


def test_calls_are_the_same_with_and_without_a_twin() -> None:
    """What a twin is said to say is what its calls say by themselves."""
    capture = literal(1, True, 1.0, 1)
    graphs = (capture.spec, *capture.ranks)
    programs = Programs.of(graphs)  # type: ignore[arg-type]
    assert programs.twins == {0: [], 1: [2, 3, 4]}
    for graph in (2, 3, 4):
        alone = Calls.of(graphs[graph])  # type: ignore[arg-type]
        together = [programs.unlike[graph].get(index, head) for index, head in enumerate(programs.calls[graph].heads)]
        assert repr(together) == repr(list(alone.heads))
        assert programs.calls[graph].reads == alone.reads
        assert programs.calls[graph].kinds == alone.kinds


def mixed(narrow: bool) -> Capture:
    """Layers but the last multiply by a tenth: a literal in float32 in the specification, a number in the ranks; the last has perhaps a tensor of another type."""
    capture = stack(4, 2, backward=False)
    tenth = Constant(TensorType((), "float32"), "tenth", b"\xcd\xcc\xcc\x3d")
    assert capture.spec is not None

    def of(graph: Graph, spec: bool) -> Graph:
        types, nodes = dict(graph.types), []
        held = Var(len(types))
        types[held] = tenth.type
        for node in graph.nodes:
            nodes.append(node)
            if node.op == "aten.relu.default" and sum(each.op == node.op for each in nodes) < 4:
                made = node.outs[0]
                before = Var(len(types))
                types[before] = types[made]
                nodes[-1] = replace(node, outs=(before,))
                nodes.append(Node("aten.mul.Tensor", (before, held if spec else 0.1), {}, (made,)))
        if narrow:
            wide = Var(len(types))
            types[wide] = TensorType((3, 4), "float64")
            x = next(var for var, name in graph.inputs.items() if name == "x")
            nodes.append(Node("aten._to_copy.default", (x,), {"dtype": DType("float64")}, (wide,)))
        return replace(graph, nodes=tuple(nodes), types=types, constants={held: tenth} if spec else {})

    return replace(capture, spec=of(capture.spec, True), ranks=tuple(of(graph, False) for graph in capture.ranks))


def test_a_literal_in_float32_is_the_number_it_was_rounded_from_beside_doubles_too() -> None:
    """What is computed in float32 rounds a number in a call as it rounded the literal; only a call on doubles takes what float32 has made of it."""
    memo = Memo()
    assert prove(mixed(narrow=False), memo).outcome.proved
    assert prove(mixed(narrow=True), effort="hasty").outcome.proved
    assert prove(mixed(narrow=True), memo, effort="hasty").outcome.proved
