"""Repairs as text: the edit a developer would have typed, in the idiom of the file."""

import ast
import textwrap
from fractions import Fraction

import pytest

from graphguard.ir import Capture, CheckRef, Span, Var
from graphguard.refine.finding import Finding
from graphguard.repair.drafting.candidates import named_first
from graphguard.repair.graph.edits import InsertReduction
from graphguard.repair.text.program import Program, first_operand, further, parse
from graphguard.repair.text.vocabulary import group_expressions, size_expressions
from graphguard.repair.writing import gradients, plans, source
from graphguard.repair.writing.applied import edited
from graphguard.repair.writing.dead import use_result
from graphguard.repair.writing.removal import remove_call, remove_factor
from graphguard.repair.writing.source import Draft

FILE = "model.py"


def capture(**mesh: int) -> Capture:
    return Capture(CheckRef("a::b", "b", Span(FILE, 1)), mesh, (), None, (), ())


def program(text: str) -> Program:
    parsed = parse(FILE, textwrap.dedent(text).lstrip())
    assert parsed is not None
    return parsed


def span_of(program: Program, text: str) -> Span:
    """The range of the only place where ``text`` stands."""
    start = program.text.index(text)
    line = program.text.count("\n", 0, start) + 1
    column = start - (program.text.rfind("\n", 0, start) + 1) + 1
    return Span(FILE, line, column, line, column + len(text))


def apply(program: Program, draft: Draft) -> str:
    return edited(program.text, list(draft.edits))


REDUCE = InsertReduction({0: Var(1), 1: Var(1)}, "tp")


def first(program: Program, expression: str, **mesh: int) -> str:
    drafts = source.insert_reduction(program, span_of(program, expression), REDUCE, capture(**(mesh or {"tp": 2})))
    return apply(program, next(drafts))


def test_assigned_value_is_reduced_in_place_with_the_group_of_the_class() -> None:
    file = program(
        """
        import torch.distributed as dist

        class Row:
            def __init__(self, tp_group):
                self.tp_group = tp_group

            def forward(self, x):
                h = x @ self.weight  # row parallel
                return h
        """
    )
    expected = "h = x @ self.weight  # row parallel\n        dist.all_reduce(h, group=self.tp_group)\n"
    assert expected in first(file, "x @ self.weight")


def test_aliased_import_and_returned_value() -> None:
    file = program(
        """
        from torch import distributed as td

        def forward(x, w, group):
            return F.linear(x, w)
        """
    )
    assert first(file, "F.linear(x, w)").splitlines()[3:] == [
        "    partial = F.linear(x, w)",
        "    td.all_reduce(partial, group=group)",
        "    return partial",
    ]


def test_import_is_added_and_world_needs_no_group() -> None:
    file = program(
        """
        import torch

        def forward(x, w):
            y = torch.mm(x, w)
            return y
        """
    )
    assert first(file, "torch.mm(x, w)").splitlines()[:2] == ["import torch", "import torch.distributed as dist"]
    assert "    dist.all_reduce(y)\n" in first(file, "torch.mm(x, w)")


def test_subgroup_is_never_the_world() -> None:
    file = program("import torch.distributed as dist\ndef f(x, w):\n    y = x @ w\n    return y\n")
    assert list(source.insert_reduction(file, span_of(file, "x @ w"), REDUCE, capture(dp=2, tp=2))) == []


def test_mesh_gives_the_group_of_the_axis() -> None:
    file = program("import torch.distributed as dist\ndef f(x, w, mesh):\n    y = x @ w\n    return y\n")
    assert 'dist.all_reduce(y, group=mesh.get_group("tp"))' in first(file, "x @ w", dp=2, tp=2)


def test_line_ends_stay_as_they_are() -> None:
    file = program("import torch.distributed as dist\ndef f(x, w):\n    y = x @ w\n    return y\n")
    crlf = parse(FILE, file.text.replace("\n", "\r\n"))
    assert crlf is not None
    text = first(crlf, "x @ w")
    assert "    y = x @ w\r\n    dist.all_reduce(y)\r\n" in text
    assert "\n" not in text.replace("\r\n", "")


def test_bias_moves_behind_the_reduction() -> None:
    file = program(
        """
        import torch.distributed as dist

        def forward(x, w, b):
            h = x @ w + b
            dist.all_reduce(h)
            return h
        """
    )
    drafts = source.add_after_reduction(file, span_of(file, "x @ w + b"), span_of(file, "dist.all_reduce(h)"))
    assert apply(file, next(drafts)).splitlines()[3:] == [
        "    h = x @ w",
        "    dist.all_reduce(h)",
        "    h = h + b",
        "    return h",
    ]


def test_extra_reduction_goes_with_its_line() -> None:
    file = program("import torch.distributed as dist\ndef f(h):\n    dist.all_reduce(h)\n    return h\n")
    draft = next(remove_call(file, span_of(file, "dist.all_reduce(h)")))
    assert apply(file, draft) == "import torch.distributed as dist\ndef f(h):\n    return h\n"


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("dist.all_reduce(g)", "dist.all_reduce(g, op=dist.ReduceOp.AVG)"),
        ("dist.all_reduce(g, op=dist.ReduceOp.SUM)", "dist.all_reduce(g, op=dist.ReduceOp.AVG)"),
    ],
)
def test_sum_becomes_mean(call: str, expected: str) -> None:
    file = program(f"import torch.distributed as dist\ndef f(g):\n    {call}\n    return g\n")
    assert expected in [apply(file, draft) for draft in source.change_reduce(file, span_of(file, call), "avg")][-1]


def test_mean_by_division_that_every_backend_has() -> None:
    file = program("import torch.distributed as dist\ndef f(g, pg):\n    dist.all_reduce(g, group=pg)\n    return g\n")
    draft = next(source.change_reduce(file, span_of(file, "dist.all_reduce(g, group=pg)"), "avg"))
    assert "    dist.all_reduce(g, group=pg)\n    g.div_(dist.get_world_size(pg))\n" in apply(file, draft)


FORGOTTEN = """
import torch
import torch.distributed as dist

class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad, None

def forward(x, w, group):
    x = Copy.apply(x, group)
    return torch.nn.functional.linear(x, w)
"""


def test_forgetful_backward_is_mended_where_it_stands() -> None:
    file = program(FORGOTTEN)
    span = span_of(file, "torch.nn.functional.linear(x, w)")
    text = apply(file, next(gradients.in_backward(file, span, "tp", [])))
    assert (
        "        grad = grad.contiguous()\n        dist.all_reduce(grad, group=ctx.group)\n        return grad, None\n"
        in text
    )


def test_operand_is_wrapped_where_no_function_can_be_mended() -> None:
    file = program("import torch\ndef forward(x, w, group):\n    return torch.mm(x, w)\n")
    draft = next(gradients.reduced_operand(file, span_of(file, "torch.mm(x, w)"), "tp", ["group"]))
    text = apply(file, draft)
    assert "torch.mm(ReduceGradient.apply(x, group), w)" in text
    assert "import torch.distributed as dist" in text
    assert parse(FILE, text) is not None


HELPED = FORGOTTEN.replace(
    "class Copy",
    """def reduced(x):
    x = x.clone()
    dist.all_reduce(x)
    return x

class Copy""",
)


def test_backward_uses_the_reduction_that_its_file_has() -> None:
    file = program(HELPED)
    draft = next(gradients.in_backward(file, span_of(file, "torch.nn.functional.linear(x, w)"), "tp", []))
    assert "        return reduced(grad), None\n" in apply(file, draft)
    assert draft.place == span_of(file, "return grad, None")


def test_parameter_is_wrapped_where_it_is_read() -> None:
    file = program(
        """
        class Norm:
            def forward(self, x):
                weight = self.norm.weight
                return layer_norm(x, weight)

        class Reduced(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.view_as(x)

            @staticmethod
            def backward(ctx, grad):
                return _reduce(grad)
        """
    )
    call = file.expression(span_of(file, "layer_norm(x, weight)"))
    assert call is not None
    draft = next(gradients.reduced_parameter(file, call, "block.norm.weight", "tp", []))
    assert "        weight = Reduced.apply(self.norm.weight)\n" in apply(file, draft)


def test_operand_of_a_method_is_the_tensor_and_not_a_constant() -> None:
    file = program("def f(scores):\n    return scores.most(COUNT, dim=-1)\n")
    operand = first_operand(file.expression(span_of(file, "scores.most(COUNT, dim=-1)")))
    assert operand is not None
    assert file.source(operand) == "scores"


def test_parts_are_sent_in_rank_order_where_their_list_is_made() -> None:
    file = program(
        """
        def exchange(x, received, ranks):
            sent = [part.contiguous() for part in reversed(x.chunk(ranks))]
            dist.all_to_all(received, sent)
        """
    )
    draft = next(source.change_concatenation(file, span_of(file, "dist.all_to_all(received, sent)"), "order", ()))
    assert "for part in x.chunk(ranks)]" in apply(file, draft)
    assert draft.place == span_of(file, "reversed(x.chunk(ranks))")


def test_a_call_without_arguments_is_not_the_collective_itself() -> None:
    file = program("import torch.distributed as dist\ndef f(loss, tp_group):\n    loss.backward()\n")
    place = span_of(file, "loss.backward()")
    assert list(source.change_reduce(file, place, "avg")) == []
    assert list(source.change_group(file, place, "tp", capture(dp=2, tp=2))) == []


def test_group_that_is_given_by_position_is_replaced() -> None:
    file = program("def f(x, tp_group, dp_group):\n    return Reduce.apply(x, dp_group)\n")
    drafts = source.change_group(file, span_of(file, "Reduce.apply(x, dp_group)"), "tp", capture(dp=2, tp=2))
    assert "Reduce.apply(x, tp_group)" in apply(file, next(drafts))


def test_local_name_of_a_group_comes_before_its_expression() -> None:
    file = program(
        """
        import torch.distributed as dist

        def f(mesh, x):
            group, ranks = mesh.get_group("tp"), mesh["tp"].size()
            y = x.sum()
            return y
        """
    )
    assert "dist.all_reduce(y, group=group)" in first(file, "x.sum()")


@pytest.mark.parametrize(
    ("expression", "title"),
    [
        ("h.to(torch.half)", "remove .to(torch.half)"),
        ("(a + b) / 2", "remove / 2"),
        ("h.float()", "remove .float()"),
        ("2 * (a + b)", "remove 2 *"),
    ],
)
def test_title_shows_all_that_is_taken_out(expression: str, title: str) -> None:
    file = program(f"def f(a, b, h):\n    x = {expression}\n    return x\n")
    assert next(remove_factor(file, span_of(file, expression))).title == title


def test_cast_inside_a_call_goes_alone() -> None:
    file = program("def f(h):\n    dist.send(h.half(), 1)\n    return h\n")
    draft = next(remove_factor(file, span_of(file, "h.half()")))
    assert "    dist.send(h, 1)\n" in apply(file, draft)


TAKEN_OUT = [
    ("x = g\n    x /= 2\n    return x", "x /= 2", "x = g\n    return x"),
    ("if a:\n        g /= 2\n    return g", "g /= 2", "return g"),
    ("if a: g /= 2\n    return g", "g /= 2", "return g"),
    ("if a.pop():\n        g /= 2\n    return g", "g /= 2", "if a.pop():\n        pass\n    return g"),
    ("if a:\n        g /= 2\n    else:\n        b()\n    return g", "g /= 2", "if a:\n        pass\n    else:\n        b()\n    return g"),
    ("for g in a:\n        g *= 2\n    return g", "g *= 2", "for g in a:\n        pass\n    return g"),
    ("a(); g = g * 2\n    return g", "g * 2", "a()\n    return g"),
    ("g = g * 2; a()\n    return g", "g * 2", "a()\n    return g"),
    ("a.grad.data.div_(2)\n    return g", "a.grad.data.div_(2)", "return g"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "place", "expected"), TAKEN_OUT)
def test_a_statement_that_only_scales_goes_with_what_stands_for_it_alone(body: str, place: str, expected: str) -> None:
    file = program(f"def f(a, b, g):\n    {body}\n")
    draft = next(remove_factor(file, span_of(file, place)))
    assert apply(file, draft) == f"def f(a, b, g):\n    {expected}\n"


def test_an_augmented_assignment_that_adds_is_no_factor() -> None:
    file = program("def f(a, g):\n    g += a\n    return g\n")
    assert not list(remove_factor(file, span_of(file, "g += a")))


def test_factor_prefers_a_name_that_is_not_there_already() -> None:
    file = program(
        """
        import torch.distributed as dist
        STEPS = 2

        def f(x, total):
            ranks = dist.get_world_size()
            for part in x.chunk(STEPS):
                total = total + part
            total = total / ranks
            return total
        """
    )
    value = file.expression(span_of(file, "total / ranks"))
    assert value is not None
    assert size_expressions(file, value, Fraction(1, 2), capture(dp=2)) == ["STEPS", "ranks"]


def test_largest_of_a_pair_is_reduced_with_the_maximum() -> None:
    file = program("import torch.distributed as dist\ndef f(x):\n    top = x.max(-1).values\n    return top\n")
    edit = InsertReduction({0: Var(1), 1: Var(1)}, "tp", "max")
    draft = next(source.insert_reduction(file, span_of(file, "x.max(-1)"), edit, capture(tp=2)))
    assert "    top = x.max(-1).values\n    dist.all_reduce(top, op=dist.ReduceOp.MAX)\n" in apply(file, draft)


def test_dropped_result_gets_the_name_that_is_read() -> None:
    file = program("def f(y, group):\n    funcol.all_reduce(y, 'sum', group)\n    return y\n")
    draft = next(use_result(file, span_of(file, "funcol.all_reduce(y, 'sum', group)")))
    assert apply(file, draft) == "def f(y, group):\n    y = funcol.all_reduce(y, 'sum', group)\n    return y\n"


@pytest.mark.parametrize(
    ("before", "groups"),
    [
        ("", ["self.tp_group"]),
        ("tp_group = make()\n", ["tp_group", "self.tp_group"]),
        ("from groups import tp_group\n", ["tp_group", "self.tp_group"]),
        ("from groups import *\n", ["tp_group", "self.tp_group"]),
    ],
)
def test_a_parameter_of_another_function_names_no_group(before: str, groups: list[str]) -> None:
    file = program(
        before
        + textwrap.dedent(
            """
            class Row:
                def __init__(self, tp_group):
                    self.tp_group = tp_group
                    self.size = dist.get_world_size(tp_group)

                def forward(self, x):
                    return x @ self.weight
            """
        )
    )
    value = file.expression(span_of(file, "x @ self.weight"))
    assert value is not None
    assert sorted(group_expressions(file, value, "tp")) == sorted(groups)


def test_the_gradient_that_is_meant_is_reduced_before_all_of_them() -> None:
    file = program(
        """
        import torch
        import torch.distributed as dist

        def step(loss, up, down):
            a, b = torch.autograd.grad(loss, (up, down))
            return a, b / 2
        """
    )
    call = span_of(file, "torch.autograd.grad(loss, (up, down))")
    titles = [draft.title for draft in gradients.after_backward(file, call, "dp", ["one", "other"], {"b", "x"})]
    assert titles[:3] == ["all_reduce(b) over 'dp'", "all_reduce(a, b) over 'dp'", "all_reduce(a) over 'dp'"]
    assert "group=one" in apply(file, next(gradients.after_backward(file, call, "dp", ["one", "other"], {"b"})))
    unknown = next(gradients.after_backward(file, call, "dp", ["one"]))
    assert unknown.title == "all_reduce(a, b) over 'dp'"


PLANS = """
import graphguard as gg
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

@gg.check(mesh={"tp": 2})
def first(mesh):
    return parallelize_module(Net(), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel(output_layouts=A())})

def helper(mesh):
    return {"up": ColwiseParallel(), "down": RowwiseParallel(output_layouts=B())}

@gg.check(mesh={"tp": 2})
def second(mesh):
    return parallelize_module(Net(), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel(output_layouts=C())})
"""


def test_the_plan_of_the_check_itself_comes_first_and_that_of_another_never() -> None:
    file = program(PLANS)
    check = span_of(file, "second")
    changed = [apply(file, draft) for draft in plans.output_layouts(file, "down", check)]
    assert "RowwiseParallel(output_layouts=Replicate())})" in changed[1]
    assert "output_layouts=C()" not in changed[0]
    assert all("output_layouts=A()" in text for text in changed)
    assert any("output_layouts=B()" not in text for text in changed)
    places = [draft.place for draft in plans.sequence_parallel(file, "norm", check)]
    assert [place.line for place in places if place is not None] == [13, 9]


def test_the_operand_of_an_equation_is_a_tensor() -> None:
    file = program('y = torch.einsum("ab,bc->ac", x, w)\n')
    operand = first_operand(file.expression(span_of(file, 'torch.einsum("ab,bc->ac", x, w)')))
    assert operand is not None
    assert file.source(operand) == "x"


@pytest.mark.parametrize(
    ("text", "count", "expected"),
    [
        ("2", 1, "3"),
        ("past - 1", 1, "past"),
        ("past", -2, "past - 2"),
        ("2 + rank * length", -1, "1 + rank * length"),
        ("1 + rank * length", -1, "rank * length"),
        ("1 + start", -3, "start - 2"),
        ("past - 1 + k.shape[1]", 2, "past + 1 + k.shape[1]"),
        ("-1", 1, "0"),
        ("-start", 1, "-start + 1"),
    ],
)
def test_a_bound_some_places_further_on(text: str, count: int, expected: str) -> None:
    parsed = program(text)
    statement = parsed.tree.body[0]
    assert isinstance(statement, ast.Expr)
    assert further(parsed, statement.value, count) == expected


def test_fixes_of_another_gradient_come_last() -> None:
    titles = ["reduce the gradient of f(x) over 'tp'", "write f(x)", "reduce the gradient of x over 'tp'", "remove f"]
    rows = [(Span(FILE, 1), Draft(title, ())) for title in titles]
    found = named_first(rows, Finding("gradient-not-reduced", "", None, tensor="x"))
    assert [draft.title for _, draft in found] == [titles[1], titles[2], titles[3], titles[0]]
    assert named_first(rows, Finding("gradient-not-reduced", "", None)) == rows


@pytest.mark.parametrize(
    ("factor", "title"),
    [
        (Fraction(2, 5), "multiply by 2/5"),
        (Fraction(1, 3), "divide by 3"),
        (Fraction(3**-0.5), "multiply by 0.57735"),
    ],
)
def test_a_factor_is_titled_as_it_is_read(factor: Fraction, title: str) -> None:
    scores = program("s = q @ k\n")
    assert [draft.title for draft in source.scale(scores, span_of(scores, "q @ k"), factor, [])] == [title]
