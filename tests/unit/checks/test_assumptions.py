"""What comments in a program assume of operators that nobody else knows."""

from graphguard.refine.proving.prove import prove
from graphguard.trace.source.sources import meaning_digest

OPERATOR = """
import torch
import torch.distributed as dist
import graphguard as gg

@torch.library.custom_op("mine::squash", mutates_args=())
def squash(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.numpy().copy())

@squash.register_fake
def _(x):
    return torch.empty_like(x)

def spec(x):
    return squash(x)

def part(x, rank):
    return torch.cat([
        squash(x[:2]), squash(x[2:])
    ])

@gg.check(mesh={"tp": 2})
def check(mesh):
    return gg.Refinement(spec, lambda x: part(x, 0), (gg.tensor(4, 3),), out_relations="replicate")
"""


def test_what_a_comment_assumes_of_an_operator_is_assumed_and_listed(project):
    def judged(text):
        capture = project.capture("own.py", text)
        assert not capture.troubles
        return capture, prove(capture).outcome

    capture, outcome = judged(OPERATOR)
    assert capture.traits == {}
    assert not outcome.proved
    said = OPERATOR.replace("return squash(x)\n", "return squash(x)  # graphguard: assume elementwise\n")
    capture, outcome = judged(said)
    assert capture.traits == {"mine.squash.default": "elementwise"}
    assert outcome.proved
    assert "mine.squash.default is elementwise, as a comment says" in {*capture.assumed, *outcome.assumed}
    below = OPERATOR.replace("    ])\n", "    ])  # graphguard: assume batched(bs -> bs)\n")
    assert judged(below)[0].traits == {"mine.squash.default": "batched(bs -> bs)"}


GRADIENT = """
import torch
import graphguard as gg

@torch.library.custom_op("mine::cube", mutates_args=())
def cube(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.numpy().copy())

@cube.register_fake
def _(x):
    return torch.empty_like(x)

@torch.library.custom_op("mine::cube_backward", mutates_args=())
def cube_backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(grad.numpy().copy())

@cube_backward.register_fake
def _(grad, x):
    return torch.empty_like(x)

def backward(ctx, grad):
    (x,) = ctx.saved_tensors
    return cube_backward(grad, x)

cube.register_autograd(backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))

class Whole(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.cubed(x * self.scale)

    def cubed(self, x):
        return cube(x)

class Parts(Whole):
    def cubed(self, x):
        return torch.cat([cube(x[:2]), cube(x[2:])])

@gg.check(mesh={"tp": 2})
def check(mesh):
    return gg.Refinement(Whole(), Parts(), (gg.tensor(4, 3),), out_relations="replicate")
"""


def test_what_is_assumed_of_a_function_reaches_its_gradient(project):
    def judged(text):
        capture = project.capture("gradient.py", text)
        assert not capture.troubles
        return capture.traits, prove(capture).outcome.proved

    forward = GRADIENT.replace("return cube(x)\n", "return cube(x)  # graphguard: assume elementwise\n")
    traits = {"mine.cube.default": "elementwise", "mine.cube_backward.default": "elementwise"}
    assert judged(GRADIENT) == ({}, False)
    assert judged(forward) == (traits, True)
    rows = GRADIENT.replace("return cube(x)\n", "return cube(x)  # graphguard: assume batched(bs -> bs)\n")
    assert judged(rows) == ({"mine.cube.default": "batched(bs -> bs)"}, False)  # of two arguments it would say nothing
    both = rows.replace(
        "cube_backward(grad, x)\n", "cube_backward(grad, x)  # graphguard: assume linear(0; bs, bs -> bs)\n"
    )
    assert judged(both) == (
        {**traits, "mine.cube.default": "batched(bs -> bs)", "mine.cube_backward.default": "linear(0; bs, bs -> bs)"},
        True,
    )


def test_what_comments_assume_is_part_of_a_files_meaning():
    text = b"y = f(x)  # a comment\nz = g(y)\n"
    said = b"y = f(x)  # graphguard: assume elementwise\nz = g(y)\n"
    assert meaning_digest(text) == meaning_digest(text.replace(b"a comment", b"another"))
    assert meaning_digest(said) != meaning_digest(text)
    assert meaning_digest(said) != meaning_digest(said.replace(b"elementwise", b"linear(0; b -> b)"))
    assert meaning_digest(said) == meaning_digest(b"\n# moved\n" + said)
    moved = b"y = f(x)\nz = g(y)  # graphguard: assume elementwise\n"
    assert meaning_digest(said) != meaning_digest(moved)


def test_two_words_for_one_operator_are_a_trouble(project):
    said = OPERATOR.replace("return squash(x)\n", "return squash(x)  # graphguard: assume elementwise\n")
    said = said.replace("    ])\n", "    ])  # graphguard: assume batched(bs -> bs)\n")
    capture = project.capture("own.py", said)
    assert [trouble.rule for trouble in capture.troubles] == ["trace-error"]
    assert "say one of them" in capture.troubles[0].message
