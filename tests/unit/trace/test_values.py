"""What is known while nothing is computed: constants, constants through collectives, sizes and numbers that only the data decides, random draws."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from programs import ops_of, record, record_ranks, run, run_ranks
from torch import nn
from torch.utils.checkpoint import checkpoint

from graphguard.ir import Graph, Sym
from graphguard.trace.record.capture import trouble_of

X = torch.arange(8.0).reshape(4, 2)


def graph_of(program: Any, *inputs: torch.Tensor, **how: Any) -> Graph:
    trace = record(program, inputs or (X,), **how)
    assert trace.graph is not None, trace.troubles
    return trace.graph


# -- constants ---------------------------------------------------------------------------------------------------------
def test_constants_are_known_where_python_asks() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        sizes = torch.tensor([1, 3]) * 1
        sizes[0] += 0
        first, second = x.split(sizes.tolist())
        assert bool((sizes.sum() == 4).all())
        return first * sizes[1].item() + float(torch.arange(3).numpy().sum()) + second.sum()

    assert torch.equal(run(graph_of(program), {"in0": X})["out[0]"], program(X))


def test_a_constant_that_meets_an_input_is_not_known_any_more() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        table = torch.zeros(4)
        table.add_(x[:, 0])
        return x if table.sum() > 0 else -x

    with pytest.raises(Exception) as caught:  # noqa: PT011  # torch's own class moves between versions
        record(program, [X])
    trouble = trouble_of(caught.value, 0)
    assert "depends on its inputs" in trouble.message
    assert trouble.span is not None
    assert trouble.span.file == __file__


def test_masks_that_are_known_select_known_rows() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        even = torch.arange(4) % 2 == 0
        return x[even] * 2

    graph = graph_of(program)
    assert graph.types[graph.outputs["out[0]"]].shape == (2, 2)
    assert torch.equal(run(graph, {"in0": X})["out[0]"], program(X))


def test_factories_keep_their_type() -> None:
    def program(x: torch.Tensor) -> Any:
        return (
            torch.arange(3.0),
            torch.zeros(2),
            torch.full((2,), 7),
            torch.ones_like(x, dtype=torch.bool),
            torch.linspace(0, 1, 3),
        )

    before = torch.get_default_dtype()
    graph = graph_of(program)
    torch.set_default_dtype(torch.float64)
    try:
        found = run(graph, {"in0": X})
    finally:
        torch.set_default_dtype(before)
    for index, value in enumerate(program(X)):
        assert found[f"out[{index}]"].dtype == value.dtype
        assert torch.equal(found[f"out[{index}]"], value)


def test_tensors_from_outside_are_constants() -> None:
    outside = torch.randn(4, 4)[:, ::2]
    graph = graph_of(lambda x: x * outside + torch.tensor([1.0, 2.0]))
    assert len(graph.constants) == 2
    assert torch.equal(run(graph, {"in0": X})["out[0]"], X * outside + torch.tensor([1.0, 2.0]))


def test_changing_a_tensor_from_outside_changes_only_the_recording() -> None:
    outside = torch.zeros(2)

    def program(x: torch.Tensor) -> torch.Tensor:
        outside.add_(1)
        return x + outside

    assert torch.equal(run(graph_of(program), {"in0": X})["out[0]"], X + 1)
    assert torch.equal(outside, torch.zeros(2))


# -- constants through collectives -------------------------------------------------------------------------------------
def test_a_reduced_constant_is_the_same_on_every_rank() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        count = torch.tensor(float(dist.get_rank()))
        dist.all_reduce(count)
        return x * (count * 2) if count.item() == 1 else x

    graphs = record_ranks(program, [X], {"w": 2})
    assert all("gg.all_reduce" in ops_of(graph) for graph in graphs)
    assert all(torch.equal(found["out[0]"], X * 2) for found in run_ranks(graphs, {"in0": X}))


def test_several_rounds_of_asking() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        total = 0.0
        for _ in range(3):
            count = torch.tensor(total + dist.get_rank() + 1)
            dist.all_reduce(count)
            total = count.item()
        return x * total

    graphs = record_ranks(program, [X], {"w": 2})
    assert all(torch.equal(found["out[0]"], X * 21) for found in run_ranks(graphs, {"in0": X}))


def test_a_constant_reduced_with_data_is_data() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        count = x.sum() if dist.get_rank() == 0 else torch.tensor(1.0)
        dist.all_reduce(count)
        return x if count.item() > 0 else -x

    from graphguard.trace.calls.lockstep import rounds

    def one(rank: int, answers: Any) -> Any:
        try:
            return record(program, [X], rank, {"w": 2}, answers=answers)
        except Exception as error:  # noqa: BLE001  # rank 0 asks for what only the data decides
            from graphguard.trace.record.capture import RankTrace

            return RankTrace(None, (trouble_of(error, rank),))

    first, second = rounds(lambda ranks, answers: [one(rank, answers) for rank in ranks], 2)
    assert "depends on its inputs" in first.troubles[0].message
    assert second.waiting


def test_a_draw_is_never_a_constant() -> None:
    with pytest.raises(Exception, match="data-dependent"):
        record(lambda x: x if torch.rand(()).item() > 0.5 else -x, [X])


# -- what only the data decides ----------------------------------------------------------------------------------------
def test_a_number_out_of_the_data_is_the_tensor_it_was_read_from() -> None:
    graph = graph_of(lambda x: x * x.sum().item())
    ((_, var),) = graph.symbols.items()
    assert graph.nodes[-1].args[1] == var
    assert graph.nodes[0].outs == (var,)


def test_dispatch_of_tokens_has_symbolic_sizes() -> None:
    def dispatch(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ranks = dist.get_world_size()
        expert = x[:, 0].long().remainder(ranks)
        order = expert.argsort()
        counts = torch.stack([(expert == e).sum() for e in range(ranks)])
        received = torch.empty_like(counts)
        dist.all_to_all_single(received, counts)
        sent, got = counts.tolist(), received.tolist()
        buffer = x.new_empty(sum(got), x.shape[1])
        dist.all_to_all_single(buffer, x[order], got, sent)
        back = torch.empty_like(x)
        dist.all_to_all_single(back, buffer @ w, sent, got)
        out = torch.empty_like(back)
        out[order] = back
        return out

    graphs = record_ranks(dispatch, [X, torch.eye(2)], {"ep": 2})
    assert ops_of(graphs[0]).count("gg.all_to_all") == 3
    assert any(isinstance(size, Sym) for kind in graphs[0].types.values() for size in kind.shape)
    assert len(graphs[0].symbols) == 4
    assert graphs[0].types[graphs[0].outputs["out[0]"]].shape == (4, 2)


# -- random draws ------------------------------------------------------------------------------------------------------
def draws(graph: Graph) -> list[tuple[str, int]]:
    return [node.draw for node in graph.nodes if node.draw is not None]


def test_draws_are_counted_by_generator_and_seed() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator().manual_seed(5)
        y = torch.rand(2) + torch.rand(2)
        torch.manual_seed(3)
        return y + torch.rand(2) + torch.rand(2, generator=generator)

    found = draws(graph_of(program))
    assert [stream for stream, _ in found] == ["default", "default", "default:3", "default:5"]
    assert [position == 0 for _, position in found] == [True, False, True, True]


def test_a_restored_state_draws_the_same_again() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        state = torch.get_rng_state()
        a = torch.rand(2)
        torch.set_rng_state(state)
        return a - torch.rand(2)

    assert draws(graph_of(program)) == [("default", 0), ("default", 0)]


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputed_dropout_drops_the_same(reentrant: bool) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        y = checkpoint(lambda t: F.dropout(t * 2, 0.5), x, use_reentrant=reentrant)
        y.sum().backward()
        return x.grad

    found = draws(graph_of(program))
    assert len(found) == 2
    assert len(set(found)) == 1


def test_attention_with_dropout_and_its_backward_share_the_draw() -> None:
    q = torch.randn(1, 2, 4, 8)
    graph = graph_of(lambda q: F.scaled_dot_product_attention(q, q, q, dropout_p=0.1), q, backward=True)
    forward, backward = (node for node in graph.nodes if node.op.startswith("gg.sdpa"))
    assert forward.draw == backward.draw == ("default", 0)
    assert forward.args[4:] == (0.1, False, None, False)
    assert backward.args[4] == forward.outs[0]


@pytest.mark.parametrize("grouped", [False, True])
def test_attention_trains_its_bias(grouped: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, heads, 4, 8, generator=generator) for heads in (4, 2 if grouped else 4))
    bias = torch.randn(4, 4, generator=generator)

    def program(q: torch.Tensor, k: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, k + 1, bias, scale=0.3, enable_gqa=grouped)

    graph = graph_of(program, q, k, bias, backward=True)
    assert "gg.sdpa" not in ops_of(graph)
    found = run(graph, {"in0": q, "in1": k, "in2": bias})
    leaves = [t.clone().requires_grad_() for t in (q, k, bias)]
    out = program(*leaves)
    for index, grad in enumerate(torch.autograd.grad(out.sum(), leaves)):
        assert torch.allclose(found[f"grad[{index}]"], grad, atol=1e-5), index
    assert torch.allclose(found["out[0]"], out, atol=1e-6)


def test_attention_is_masked_in_one_way_only() -> None:
    q = torch.randn(1, 2, 4, 8)
    with pytest.raises(RuntimeError, match="attn_mask"):
        record(lambda q: F.scaled_dot_product_attention(q, q, q, torch.zeros(4, 4), is_causal=True), [q])


# -- kept as what they are ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_flex_attention_is_its_unfused_form_with_the_programs_functions_inside(dtype: torch.dtype | None) -> None:
    from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

    def flexible(q: torch.Tensor) -> Any:
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 16, 16, device="cpu")
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
            out, aux = flex_attention(
                q,
                q,
                q,
                lambda s, b, h, i, j: s + 2.0 ** -(h + 1.0) * (j - i),
                mask,
                return_aux=AuxRequest(lse=True),
            )
        return out, aux.lse, torch.autograd.grad(out.float().sin().sum() + aux.lse.sum(), q)[0]

    def plain(q: torch.Tensor) -> Any:
        i, j = torch.arange(16)[:, None], torch.arange(16)
        x, key, value = (q if dtype is None else q.to(dtype) for _ in range(3))
        bias = 2.0 ** -torch.arange(1.0, 3.0)[:, None, None] * (j - i)
        scores = (x.float() @ key.float().transpose(-2, -1) / 8**0.5 + bias).masked_fill(i < j, float("-inf"))
        out = scores.softmax(-1).to(x.dtype) @ value
        lse = scores.logsumexp(-1)
        return out, lse, torch.autograd.grad(out.float().sin().sum() + lse.sum(), q)[0]

    q = torch.randn(1, 2, 16, 8, generator=torch.Generator().manual_seed(0))
    graph = graph_of(lambda q: flexible(q.detach().requires_grad_()), q)
    found = run(graph, {"in0": q})
    for index, value in enumerate(plain(q.requires_grad_())):
        assert found[f"out[{index}]"].dtype == value.dtype
        torch.testing.assert_close(found[f"out[{index}]"], value)


def test_autocast_really_casts() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x.t()

    graph = graph_of(program)
    assert graph.types[graph.outputs["out[0]"]].dtype == "bfloat16"
    assert ops_of(graph).count("aten._to_copy.default") == 2


def test_attention_in_a_layer_of_pytorch() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    graph = graph_of(lambda x: layer(x), torch.randn(2, 3, 8), backward=True)
    assert "gg.sdpa" in ops_of(graph)
    assert "gg.sdpa_backward" in ops_of(graph)


def test_a_recurrent_layer_is_taken_apart() -> None:
    layer = nn.LSTM(4, 3)
    with torch.no_grad():
        graph = graph_of(lambda x: layer(x)[0], torch.randn(2, 2, 4))
    assert not [op for op in ops_of(graph) if "mkldnn" in op]
    assert "aten.sigmoid.default" in ops_of(graph)
