"""What a check claims, as an editor tells it."""

from graphguard.checks.proving.claims import claimed
from graphguard.ir import Capture, CheckRef, Placement, Promise, Span, TensorType
from graphguard.ir.capture import Leaf, Like

WHOLE = {"tp": Placement("replicate")}


def of(*leaves: Leaf, promises: tuple[Promise, ...]) -> tuple[str, ...]:
    check = CheckRef("m.py::c", "c", Span("m.py", 1, 1, 1, 2))
    return claimed(Capture(check, {"tp": 2}, leaves, None, (), promises))


def test_inputs_results_and_gradients():
    x = Leaf("x", "input", TensorType((2, 5), "float32"))
    w = Leaf("w", "parameter", TensorType((5, 3), "float32"))
    gradients = tuple(Promise(f"grad({leaf.name})", Like(leaf.name)) for leaf in (x, w))
    assert of(x, w, promises=(Promise("out", WHOLE), *gradients)) == (
        "inputs: x 2×5; 1 parameter",
        "claimed: out: Replicate",
        "gradients: compared, of 2 tensors",
    )


def test_many_results_and_no_gradients():
    step = Leaf("step", "input", TensorType((), "int64"))
    outs = tuple(Promise(f"out[{number}]", WHOLE) for number in range(6))
    inputs, results, gradients = of(step, promises=outs)
    assert inputs == "inputs: step scalar"
    assert results.endswith("out[3]: Replicate and 2 more")
    assert gradients == "gradients: not compared"
