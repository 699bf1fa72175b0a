"""What is recorded of collectives is what real processes compute, forward and backward, bit for bit."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from graphguard.trace.source.errors import TracingError

pytestmark = pytest.mark.filterwarnings("ignore")
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    from snippets import W

    folder = tmp_path_factory.mktemp("gloo")
    command = [sys.executable, str(HERE / "gloo.py")]
    processes = [subprocess.Popen([*command, str(rank), str(folder)], cwd=HERE) for rank in range(W)]
    try:
        for process in processes:
            assert process.wait(timeout=300) == 0
    finally:
        for process in processes:
            process.kill()
    return [torch.load(folder / f"{rank}.pt") for rank in range(W)]


def names() -> list[str]:
    sys.path.insert(0, str(HERE))
    from snippets import SNIPPETS

    return list(SNIPPETS)


@pytest.mark.parametrize("name", names())
def test_equals_gloo(name: str, real: list[dict[str, object]]) -> None:
    from gloo import table
    from programs import record_ranks, run_ranks
    from snippets import SNIPPETS, W

    expected = [results[name] for results in real]
    if isinstance(expected[0], str):
        pytest.fail(f"gloo: {expected[0]}")

    def program(leaf: torch.Tensor) -> torch.Tensor:
        x = leaf[dist.get_rank()].detach().requires_grad_()
        y = SNIPPETS[name](x)
        if not y.requires_grad:
            return y
        try:
            (grad,) = torch.autograd.grad(y.sum(), x)
        except RuntimeError:
            return y
        return y, grad

    graphs = record_ranks(program, [table()], {"w": W})
    for found, (value, grad) in zip(run_ranks(graphs, {"in0": table()}), expected, strict=True):
        assert torch.equal(found["out[0]"], value)
        assert (grad is None) == ("out[1]" not in found)
        if grad is not None:
            assert torch.equal(found["out[1]"], grad)


def test_coalesced_calls_are_single_ones() -> None:
    from programs import ops_of, record_ranks, run_ranks
    from snippets import W, coalesced

    graphs = record_ranks(coalesced, [torch.ones(3)], {"w": W})
    assert ops_of(graphs[1]).count("gg.all_reduce") == 2
    assert torch.equal(run_ranks(graphs, {"in0": torch.ones(3)})[2]["out[0]"], torch.full((3,), 20.0))


def test_a_gather_may_stack() -> None:
    from programs import record_ranks, run_ranks
    from snippets import W, all_gather_stacked

    x = torch.arange(6.0).reshape(2, 3)
    graphs = record_ranks(lambda leaf: all_gather_stacked(leaf * dist.get_rank()), [x], {"w": W})
    expected = torch.stack([x * rank for rank in range(W)]) * 2
    assert all(torch.equal(found["out[0]"], expected) for found in run_ranks(graphs, {"in0": x}))


def test_permute_sends_to_the_named_rank() -> None:
    from programs import record_ranks, run_ranks
    from snippets import W, functional_permute

    x = torch.ones(8, 4)
    graphs = record_ranks(lambda leaf: functional_permute(leaf * dist.get_rank()), [x], {"w": W})
    assert [found["out[0]"][0].item() for found in run_ranks(graphs, {"in0": x})] == [4, 1, 2, 3]


def test_a_premultiplied_sum_keeps_its_factor() -> None:
    from programs import record_ranks, run_ranks

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 1
        dist.all_reduce(y, op=dist._make_nccl_premul_sum(0.25))
        return y

    graphs = record_ranks(program, [torch.ones(3)], {"w": 2})
    assert torch.equal(run_ranks(graphs, {"in0": torch.ones(3)})[0]["out[0]"], torch.full((3,), 0.5))


def test_premultiplied_sums_keep_their_own_factors() -> None:
    from programs import record_ranks, run_ranks

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        half, quarter = (dist._make_nccl_premul_sum(factor) for factor in (0.5, 0.25))
        y, z, part, piece, wholes = x * 1, x * 1, torch.empty(2), torch.empty(2), [x * 1, x * 1]
        dist.all_reduce(y, quarter)
        dist.reduce_scatter_tensor(part, x * 1, op=half)
        dist.reduce_scatter(piece, list((x * 1).chunk(2)), op=quarter)
        dist.all_reduce_coalesced(wholes, op=half)
        with dist._coalescing_manager():
            dist.all_reduce(z, op=half)
        return y, part, piece, *wholes, z

    graphs = record_ranks(program, [torch.ones(4)], {"w": 2})
    found = run_ranks(graphs, {"in0": torch.ones(4)})[0]
    assert [float(found[f"out[{i}]"][0]) for i in range(6)] == [0.5, 1.0, 0.5, 1.0, 1.0, 1.0]


def test_a_constant_goes_through_a_premultiplied_sum() -> None:
    from programs import record_ranks, run_ranks

    def program(x: torch.Tensor) -> torch.Tensor:
        count = torch.tensor(float(dist.get_rank() + 1))
        dist.all_reduce(count, op=dist._make_nccl_premul_sum(0.5))
        return x * count.item()

    graphs = record_ranks(program, [torch.ones(3)], {"w": 2})
    assert torch.equal(run_ranks(graphs, {"in0": torch.ones(3)})[0]["out[0]"], torch.full((3,), 1.5))


def test_a_sum_premultiplied_by_a_tensor_is_said() -> None:
    from programs import record

    def program(x: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(y := x * 1, op=dist._make_nccl_premul_sum(torch.ones(1)))
        return y

    with pytest.raises(TracingError, match="by a tensor"):
        record(program, [torch.ones(3)], 0, {"w": 2})


def test_a_reduction_without_a_meaning_here_is_said() -> None:
    from programs import record

    def program(x: torch.Tensor) -> torch.Tensor:
        y = (x > 0).int()
        dist.all_reduce(y, op=dist.ReduceOp.BOR)
        return y

    (trouble,) = record(program, [torch.ones(3)], 0, {"w": 2}).troubles
    assert (trouble.rule, "bor" in trouble.message) == ("unsupported-operator", True)
    assert trouble.span is not None
