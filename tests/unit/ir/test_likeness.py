"""Two recorded specifications are the same where they compute the same, wherever they are written."""

from dataclasses import replace

import pytest

from graphguard.ir import (
    Capture,
    CheckRef,
    Constant,
    Frame,
    Graph,
    Leaf,
    Node,
    Placement,
    Promise,
    Span,
    TensorType,
    Var,
)
from graphguard.ir.likeness import same_program, same_question

KIND = TensorType((2, 3), "float32")
X, W, H, Y = (Var(number) for number in range(4))
SPEC = Graph(
    {X: "x"},
    {W: Constant(KIND, "digest", None)},
    (Node("aten.mul.Tensor", (X, W), {}, (H,)), Node("aten.add.Tensor", (H, X), {"alpha": 1}, (Y,))),
    dict.fromkeys((X, W, H, Y), KIND),
    {"out": Y},
)
CAPTURE = Capture(
    CheckRef("c.py::c", "c", Span("c.py", 1)),
    {"dp": 2},
    (Leaf("x", "input", KIND),),
    SPEC,
    (),
    (Promise("out", {"dp": Placement("shard")}),),
)


def test_places_and_numbers_of_tensors_do_not_count():
    elsewhere = tuple(replace(node, stack=0, module="m") for node in SPEC.nodes)
    frames = {"frames": (Frame(Span("other.py", 7), "f"),), "stacks": ((0,),)}
    assert same_program(SPEC, replace(SPEC, nodes=elsewhere, **frames))
    far = {var: Var(var.id + 40) for var in SPEC.types}
    moved = Graph(
        {far[X]: "x"},
        {far[W]: SPEC.constants[W]},
        (
            Node("aten.mul.Tensor", (far[X], far[W]), {}, (far[H],)),
            Node("aten.add.Tensor", (far[H], far[X]), {"alpha": 1}, (far[Y],)),
        ),
        dict.fromkeys(far.values(), KIND),
        {"out": far[Y]},
    )
    assert same_program(SPEC, moved)


FIRST, LAST = SPEC.nodes


@pytest.mark.parametrize(
    "other",
    [
        replace(SPEC, nodes=(replace(FIRST, op="aten.div.Tensor"), LAST)),
        replace(SPEC, nodes=(replace(FIRST, args=(W, X)), LAST)),
        replace(SPEC, nodes=(FIRST, replace(LAST, args=(X, H)))),
        replace(SPEC, nodes=(FIRST, replace(LAST, kwargs={"alpha": 1.0}))),  # another number of the same value
        replace(SPEC, nodes=(FIRST, replace(LAST, kwargs={"alpha": True}))),
        replace(SPEC, nodes=(FIRST, replace(LAST, args=(H, 0)))),  # a number is no tensor of that number
        replace(SPEC, nodes=(FIRST, replace(LAST, draw=("default", 0)))),
        replace(SPEC, constants={W: Constant(KIND, "another", None)}),
        replace(SPEC, types={**SPEC.types, H: TensorType((2, 3), "bfloat16")}),
        replace(SPEC, outputs={"out": H}),
        replace(
            SPEC, nodes=(*SPEC.nodes, Node("aten.neg.default", (Y,), {}, (Var(9),))), types={**SPEC.types, Var(9): KIND}
        ),
    ],
)
def test_as_many_operators_are_not_the_same_program(other):
    assert not same_program(SPEC, other)
    assert not same_question(CAPTURE, replace(CAPTURE, spec=other))


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (CAPTURE, True),
        (replace(CAPTURE, leaves=(Leaf("x", "input", KIND, low=0),)), False),
        (replace(CAPTURE, promises=(Promise("out", {"dp": Placement("replicate")}),)), False),
        (replace(CAPTURE, promises=()), True),  # what is promised no longer is looked for elsewhere
        (replace(CAPTURE, spec=None), False),
    ],
)
def test_inputs_and_promises_belong_to_the_question(other, same):
    assert same_question(CAPTURE, other) == same
