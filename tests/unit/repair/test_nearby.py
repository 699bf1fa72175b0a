"""Drafts made of what the files have already: each kind on a text that has the mistake, and on one that only looks like it."""

import textwrap

import pytest

from graphguard.ir import Capture, CheckRef, Frame, Graph, Span
from graphguard.refine.finding import Finding
from graphguard.repair.nearby.near import MOST, near, nearby
from graphguard.repair.nearby.scene import Mistake
from graphguard.repair.text.frames import Sources
from graphguard.repair.writing.applied import edited
from graphguard.report.diagnostics import TextEdit

FILE = "model.py"
HEAD = "import torch\nimport torch.distributed as dist\n"


def sources(text: str, computing: str = "") -> Sources:
    """The file, whose operators come from the lines with ``computing``."""
    lines = [number for number, line in enumerate(text.splitlines(), 1) if computing and computing in line]
    frames = tuple(Frame(Span(FILE, line, 1, line, 2), "f") for line in lines)
    ranks = (Graph({}, {}, (), {}, {}, frames=frames),) if frames else ()
    capture = Capture(CheckRef(f"{FILE}::c", "c", Span(FILE, 1)), {"tp": 2}, (), None, ranks, ())
    return Sources.of(capture, lambda file: text if file == FILE else None)


def found(text: str, at: str) -> tuple[str, list[Mistake]]:
    """The file, and what may be wrong with it where a finding is on the line with ``at``."""
    text = HEAD + textwrap.dedent(text).lstrip("\n")
    line = text.count("\n", 0, text.index(at)) + 1
    finding = Finding("wrong-relation", "x", Span(FILE, line, 1, line, 2))
    return text, near(finding, sources(text))


def after(text: str, at: str) -> list[str]:
    """The file after each draft."""
    text, mistakes = found(text, at)
    return [edited(text, list(each.edits)) for each in mistakes]


def changed(text: str, at: str, old: str, new: str) -> bool:
    """Whether some draft makes ``new`` of ``old``, and nothing else."""
    whole = HEAD + textwrap.dedent(text).lstrip("\n")
    assert old in whole
    return whole.replace(old, new, 1) in after(text, at)


ATTACHED = """
    def attached(x, loss):
        return x * 1

    def forward(x, loss):
        attached(x, loss)
        return x
"""


def test_a_result_that_nothing_reads_takes_the_place_of_its_argument() -> None:
    assert changed(ATTACHED, "return x\n", "    attached(x, loss)", "    x = attached(x, loss)")


def test_a_call_that_returns_nothing_or_works_in_place_gives_no_result() -> None:
    text = """
        def noted(x):
            print(x)

        def forward(x):
            noted(x)
            dist.all_reduce(x)
            return x
    """
    assert not any("= noted" in each or "= dist" in each for each in after(text, "noted(x)\n"))


IDLE = """
    def clip(model, most):
        parameters = [p for p in model.parameters()]
        grads = [p.grad for p in parameters]
        total = norm(parameters)
        scale_grads(grads, total, most)
        return total

    def other(model, most):
        return most
"""


@pytest.mark.parametrize(("computing", "is_drafted"), [("total = norm", True), ("scale_grads", False), ("", False)])
def test_a_call_by_which_nothing_is_computed_gets_what_its_argument_is_made_of(
    computing: str, is_drafted: bool
) -> None:
    text = HEAD + textwrap.dedent(IDLE).lstrip("\n")
    finding = Finding("wrong-relation", "x", Span(FILE, 7, 1, 7, 2))
    drafts = near(finding, sources(text, computing))
    wanted = text.replace("scale_grads(grads", "scale_grads(parameters")
    assert (wanted in [edited(text, list(each.edits)) for each in drafts]) is is_drafted
    assert not any("scale_grads(grads, most" in edited(text, list(each.edits)) for each in drafts)


LEFT_OUT = """
    def backward_of(grad, key=None, value=None):
        return grad, key, value

    def backward(grad, keys):
        key, value = keys
        return backward_of(grad)
"""


def test_parameters_that_are_in_sight_are_given() -> None:
    assert changed(LEFT_OUT, "return backward_of", "backward_of(grad)", "backward_of(grad, key=key, value=value)")


def test_what_an_object_keeps_is_given_to_all_calls_that_lack_it() -> None:
    text = """
        class Layer:
            def __init__(self, width, tp_size=1):
                self.width = width // tp_size

        class Model:
            def __init__(self, tp_size):
                self.tp_size = tp_size
                self.build()

            def build(self):
                self.up = Layer(4)
                self.down = Layer(8)
    """
    first = found(text, "self.build()")[1][0]
    assert len(first.edits) == 2
    assert {edit.text for edit in first.edits} == {", tp_size=self.tp_size"}


def test_a_name_that_is_bound_below_is_not_in_sight() -> None:
    text = LEFT_OUT.replace("        key, value = keys\n        return", "        out =").replace(
        "backward_of(grad)\n", "backward_of(grad)\n        key, value = keys\n        return out\n"
    )
    assert not any("key=key" in each for each in after(text, "out = backward_of"))


def test_a_list_gets_the_members_that_a_parameter_has() -> None:
    text = """
        def embedding_ranks(pp_ranks, shared, more_ranks):
            found = [pp_ranks[0]]
            if shared:
                found.append(pp_ranks[-1])
            return sorted(found)
    """
    assert changed(text, "found.append", "    return sorted", "    found += more_ranks\n    return sorted")


def test_a_summand_is_divided_by_a_count_that_is_not_read() -> None:
    text = """
        def step(loss, aux, num_batches):
            total = loss + aux
            return total
    """
    assert changed(text, "total = loss", "loss + aux", "loss + aux / num_batches")


def test_a_collective_gets_the_group_that_is_not_read() -> None:
    text = """
        def reduced(x, tp_group):
            dist.all_reduce(x)
            return x
    """
    assert changed(text, "return x", "dist.all_reduce(x)", "dist.all_reduce(x, group=tp_group)")


def test_a_parameter_that_other_functions_of_its_name_read_is_no_lack() -> None:
    text = """
        class One:
            def step(self, loss, aux, num_batches):
                return loss + aux

        class Other:
            def step(self, loss, aux, num_batches):
                return loss + aux / num_batches
    """
    assert not any("+ aux / num_batches" in each.split("class Other")[0] for each in after(text, "return loss + aux\n"))


UNCALLED = """
    def interleaved(q, k, v):
        return torch.stack([q, k, v], 1).flatten(0, 1)

    def load(q, k, v):
        return torch.cat([q, k, v])
"""


def test_a_function_that_nothing_calls_takes_the_place_of_what_is_made_of_the_same() -> None:
    assert changed(UNCALLED, "torch.cat", "torch.cat([q, k, v])", "interleaved(q, k, v)")


def test_a_function_that_something_names_is_not_idle() -> None:
    used = UNCALLED + "\n    def other(q, k, v):\n        return interleaved(q, k, v)\n"
    assert not any("return interleaved(q, k, v)\n\n" in each for each in after(used, "torch.cat"))


@pytest.mark.parametrize(
    ("made", "line"),
    [("Norm()", True), ("Linear()", False)],  # a layer of another kind needs no such mark
)
def test_a_mark_is_set_for_its_like(made: str, line: bool) -> None:
    text = f"""
        class Attention:
            def __init__(self):
                self.q_norm = {made}
                self.k_norm = Norm()
                self.k_norm.weight.reduced = True
    """
    assert any("self.q_norm.weight.reduced = True" in each for each in after(text, "self.q_norm")) is line


def test_a_mark_that_is_asked_for_is_copied_as_another_one_is() -> None:
    text = """
        def sharded(parameter):
            made = torch.clone(parameter)
            made.embedded = getattr(parameter, "embedded", False)
            return made

        def norm(parameters):
            return sum(each for each in map(sharded, parameters) if not getattr(each, "shared", False))
    """
    copied = 'made.shared = getattr(parameter, "shared", False)'
    assert any(copied in each for each in after(text, "def norm"))


def test_a_call_gets_what_another_call_of_its_function_gets() -> None:
    text = """
        def grouped(parameters, axes):
            return parameters, axes

        def axes_of(mesh):
            return mesh

        def build(model, mesh):
            dense = grouped(model.dense, axes_of(mesh))
            axes = (1,)
            return dense, grouped(model.experts, axes)
    """
    assert changed(text, "return dense", "axes = (1,)", "axes = axes_of(mesh)")


ORDER = """
    def scattered(x, group):
        x = x.chunk(2)[0]
        dist.all_reduce(x, group=group)
        return x
"""


def test_statements_change_places_where_one_reads_what_the_other_sets() -> None:
    first, second = "x = x.chunk(2)[0]", "dist.all_reduce(x, group=group)"
    assert changed(ORDER, "return x", f"    {first}\n    {second}", f"    {second}\n    {first}")


def test_statements_stay_where_the_second_needs_the_first_or_nothing_of_it() -> None:
    needed = ORDER.replace("x = x.chunk(2)[0]", "y = x.chunk(2)[0]").replace("all_reduce(x", "all_reduce(y")
    apart = ORDER.replace("dist.all_reduce(x, group=group)", "y = torch.zeros(2)")
    for text in (needed, apart):
        assert not any("chunk(2)[0]\n    return" in each for each in after(text, "return x"))


def test_a_name_is_read_as_it_was_before_it_was_set_again() -> None:
    text = """
        class Layer:
            def forward(self, x):
                ids = self.own_ids
                x, ids = self.sent(x, ids)
                return self.back(x, ids)
    """
    assert changed(text, "return self.back", "back(x, ids)", "back(x, self.own_ids)")


FLAG = """
    class Layer:
        def __init__(self, width, reduce_results=False):
            self.width, self.reduce_results = width, reduce_results

    def build(is_parallel):
        return Layer(4, {given})
"""


def test_a_flag_that_is_given_is_turned() -> None:
    text = FLAG.format(given="reduce_results=True")
    assert changed(text, "return Layer", "reduce_results=True", "reduce_results=False")


def test_a_flag_that_is_left_out_is_decided_by_what_decides_others() -> None:
    text = FLAG.format(given="sharded=not is_parallel")
    given = "sharded=not is_parallel"
    assert changed(text, "return Layer", given, f"{given}, reduce_results=is_parallel")
    assert changed(text, "return Layer", given, f"{given}, reduce_results=True")


def test_another_group_of_the_same_object_or_in_sight() -> None:
    text = """
        class State:
            def __init__(self, tp_group, dp_group):
                self.tp_group = tp_group
                self.dp_group = dp_group

            def reduced(self, x):
                dist.all_reduce(x, group=self.tp_group)
                return x
    """
    assert changed(text, "return x", "group=self.tp_group", "group=self.dp_group")
    assert changed(text, "return x", "self.tp_group = tp_group", "self.tp_group = dp_group")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("rank % heads", "rank // heads"),
        ("(rank - 1) % size", "(rank + 1) % size"),
        ("x.permute(1, 2, 0)", "x.permute(2, 1, 0)"),
    ],
)
def test_operators_and_orders_are_written_otherwise(old: str, new: str) -> None:
    text = f"""
        def forward(x, index, rank, heads, size):
            y = {old}
            return y
    """
    assert changed(text, "return y", old, new)


@pytest.mark.parametrize(("asked", "wanted"), [("rank % 2", True), ("index % 2", False), ("(index - 1) % 2", False)])
def test_what_a_branch_asks_of_anything_but_a_rank_is_no_mistake_of_writing(asked: str, wanted: bool) -> None:
    text = f"""
        def forward(x, index, rank):
            y = x if {asked} == 0 else 2 * x
            return y
    """
    assert changed(text, "return y", asked, asked.replace("%", "//")) is wanted


def test_the_inverse_of_an_order_is_taken_of_tensors_alone() -> None:
    text = HEAD + "def forward(x, index, parts, i):\n    y = x[index]\n    part = parts[i]\n    return y + part\n"
    finding = Finding("wrong-relation", "x", Span(FILE, 6, 1, 6, 2))
    texts = [edited(text, list(each.edits)) for each in near(finding, sources(text, "x[index]"))]
    assert text.replace("[index]", "[torch.argsort(index)]") in texts
    assert text.replace("[i]", "[torch.argsort(i)]") not in texts


def test_a_mark_that_decides_elsewhere_is_not_set() -> None:
    text = """
        class Layer:
            def __init__(self, weights, config):
                self.named = config.named
                for weight in weights:
                    weight.shared = config.shared
                    weight.colour = config.colour

        def reduced(weights):
            return [weight for weight in weights if getattr(weight, "shared", False)]
    """
    assert changed(text, "return [", "weight.shared = config.shared", "weight.shared = False")
    assert not changed(text, "return [", "weight.colour = config.colour", "weight.colour = False")


LOOPS = """
    def step(self, masters):
        for i, master in enumerate(masters):
            {above} = dist.get_rank(self.groups[i])
            master.sub_(self.gradients(i))
        for i, master in enumerate(masters):
            self.parts[i][{read}].copy_(master)
"""


def test_what_a_loop_left_under_a_name_is_set_in_the_next_loop() -> None:
    text, line = LOOPS.format(above="part", read="part"), "self.parts[i][part].copy_(master)"
    assert changed(text, "self.parts", line, f"part = dist.get_rank(self.groups[i])\n        {line}")
    other = LOOPS.format(above="part", read="i")
    line = "self.parts[i][i].copy_(master)"
    assert not changed(other, "self.parts", line, f"part = dist.get_rank(self.groups[i])\n        {line}")


MASK = """
    def forward(x, bound, settings):
        if settings.stage > 0:
            x = x * 2
        mask = x > bound
        return x * mask
"""


def test_a_bound_is_another_one_where_tensors_are_compared_and_nowhere_else() -> None:
    text = HEAD + textwrap.dedent(MASK).lstrip("\n")
    line = text.count("\n", 0, text.index("return")) + 1
    finding = Finding("wrong-relation", "x", Span(FILE, line, 1, line, 2))
    texts = [edited(text, list(each.edits)) for each in near(finding, sources(text, "x > bound"))]
    assert text.replace("x > bound", "x >= bound") in texts
    assert not any("settings.stage >= 0" in each for each in texts)


GATHERS = """
    class Ranks:
        def _gather(self, x, is_partial):
            return x + 1 if is_partial else x

        def gather_partial(self, x):
            return self._gather(x, is_partial=True)

        def gather_replicate(self, x):
            \"\"\"What each has whole.\"\"\"
            return self._gather(x, is_partial=False)

    class Layer:
        def forward(self, x):
            return self.ranks.gather_partial(x)
"""


def test_what_a_function_differs_in_from_its_sibling_is_chosen_by_its_caller() -> None:
    assert changed(GATHERS, "return x + 1", "self.ranks.gather_partial", "self.ranks.gather_replicate")
    assert not changed(GATHERS, "return x + 1", "is_partial=True", "is_partial=False")


def test_a_flag_is_turned_in_a_function_that_has_no_sibling() -> None:
    alone = GATHERS.replace("def gather_replicate(self, x)", "def gather_replicate(self, x, more)")
    assert changed(alone, "return x + 1", "is_partial=True", "is_partial=False")


def test_a_call_gets_what_another_one_gives_to_a_parameter_of_that_name() -> None:
    text = """
        class Column:
            def __init__(self, width, tp_group=None):
                self.group = tp_group

        class Row:
            def __init__(self, width, tp_group=None):
                self.group = tp_group

        class Attention:
            def __init__(self, groups):
                self.q = Column(4)
                self.k = Column(4)
                self.out = Row(4, groups.tp)
    """
    whole = HEAD + textwrap.dedent(text).lstrip("\n")
    assert whole.replace("Column(4)", "Column(4, tp_group=groups.tp)") in after(text, "self.q")


def test_claims_worlds_and_what_stands_outside_of_functions_are_left_alone() -> None:
    text = """
        IS_PARALLEL = dict(parallel=True)

        def groups(tp_rank, dp_rank):
            return dist.new_group([tp_rank % 2])

        def check(mesh):
            def impl(x, tp_rank, dp_rank):
                return dict(parallel=True, rank=tp_rank % 2)

            return gg.Refinement(None, impl, ())
    """
    assert not found(text, "dict(parallel=True, rank")[1]


def test_the_nearest_come_first_and_no_more_than_are_worth_recording() -> None:
    far = "\n".join(f"def far_{n}(tp_rank, dp_rank):\n    return tp_rank % 2\n" for n in range(MOST))
    text = far + "\ndef forward(a_rank, b_rank):\n    return a_rank // 2\n"
    mistakes = found(text, "a_rank // 2")[1]
    assert mistakes[0].title == "write b_rank"
    assert len(mistakes) <= MOST


def test_drafts_are_made_on_top_of_earlier_edits_where_these_lie_apart() -> None:
    text = HEAD + textwrap.dedent(UNCALLED).lstrip("\n")
    line = text.count("\n", 0, text.index("torch.cat")) + 1
    finding = Finding("wrong-relation", "x", Span(FILE, line, 1, line, 2))
    above = TextEdit(Span(FILE, 1, 1, 1, 1), "import os\n")
    made = next(each for each in nearby(finding, sources(text), (above,)) if "interleaved" in each.fix.title)
    assert made.texts[FILE].startswith("import os\n")
    assert "return interleaved(q, k, v)" in made.texts[FILE]
    same = TextEdit(Span(FILE, line, 1, line, 99), "    return q")
    assert not any("interleaved" in each.fix.title for each in nearby(finding, sources(text), (same,)))


def test_what_a_function_reads_of_another_object_is_in_sight_and_a_comma_at_the_end_does_not_matter() -> None:
    text = """
        def attend(q, k, table=None):
            return q, k, table

        def forward(q, k):
            context = current()
            if context.tables is not None:
                k = context.cache
            return attend(
                q,
                k,
            )
    """
    assert changed(text, "return attend", "        k,\n    )", "        k, table=context.tables,\n    )")


def test_in_what_a_branch_asks_no_other_size_is_written() -> None:
    body = """
        class Bucket:
            def __init__(self, group, most):
                self.group, self.world_size, self.bucket_size = group, dist.get_world_size(group), most

            def add(self, x, held):
                if held + x.numel() < self.bucket_size:
                    return x
                return x / self.bucket_size
    """
    assert changed(body, "return x / self", "x / self.bucket_size", "x / self.world_size")
    assert not changed(body, "return x / self", "< self.bucket_size", "< self.world_size")
