"""What may hide a mistake: axes and dims that are of one size."""

import pytest

from graphguard.ir import Capture, CheckRef, Leaf, Span, TensorType
from graphguard.refine.found.frontiers import cautions_of

HIDES = "a shard count taken from the wrong one does not show"


def capture(mesh: dict[str, int], *shapes: tuple[int, ...]) -> Capture:
    leaves = tuple(Leaf(f"x{at}", "input", TensorType(shape, "float32")) for at, shape in enumerate(shapes))
    return Capture(CheckRef("c.py::a", "a", Span("c.py", 1)), mesh, leaves, None, (), ())


@pytest.mark.parametrize(
    ("mesh", "said"),
    [
        ({"dp": 2, "tp": 3}, ()),
        ({"dp": 1, "tp": 1}, ()),
        ({"dp": 2, "tp": 2}, (f"mesh axes 'dp' and 'tp' both have size 2: {HIDES}",)),
        ({"dp": 2, "pp": 2, "tp": 2}, (f"mesh axes 'dp', 'pp' and 'tp' all have size 2: {HIDES}",)),
        (
            {"dp": 2, "pp": 3, "tp": 2, "cp": 3},
            (
                f"mesh axes 'dp' and 'tp' both have size 2: {HIDES}",
                f"mesh axes 'pp' and 'cp' both have size 3: {HIDES}",
            ),
        ),
    ],
)
def test_axes_of_one_size(mesh: dict[str, int], said: tuple[str, ...]) -> None:
    assert cautions_of(capture(mesh)) == said


def test_dims_of_one_extent() -> None:
    assert cautions_of(capture({"tp": 2}, (4, 3), (4, 1, 1, 4))) == (
        "input 'x1' has several dims of extent 4: one taken for another does not show",
    )
