"""A small project on disk, for the tests of the command line."""

CHECKS = """\
import torch
import torch.distributed as dist
import torch.nn.functional as F

import graphguard as gg


def spec(x, w):
    return F.linear(x, w)


def parts(x, w):
    rank = dist.get_rank()
    return x.chunk(2, 1)[rank], w.chunk(2, 1)[rank]


INPUTS = (gg.tensor(3, 4), gg.tensor(5, 4))


@gg.check(mesh={"tp": 2})
def right(mesh):
    def impl(x, w):
        y = F.linear(*parts(x, w))
        dist.all_reduce(y, group=mesh.get_group("tp"))
        return y

    return gg.Refinement(spec, impl, INPUTS, out_relations="replicate")
"""

WRONG = """

@gg.check(mesh={"tp": 2})
def wrong(mesh):
    def impl(x, w):
        y = F.linear(*parts(x, w))
        return y

    return gg.Refinement(spec, impl, INPUTS, out_relations="replicate")
"""

UNKNOWN = """

@gg.check(mesh={"tp": 2})
def open_question(mesh):
    def impl(x):
        return x.sin().square() + x.cos().square()

    return gg.Refinement(torch.ones_like, impl, (gg.tensor(3, 4),), out_relations="replicate")
"""


def write_project(folder, *parts, name="model.py"):
    (folder / "checks").mkdir(exist_ok=True)
    (folder / "pyproject.toml").write_text('[tool.graphguard]\nchecks = ["checks/*.py"]\n')
    (folder / "checks" / name).write_text("".join((CHECKS, *parts)))
