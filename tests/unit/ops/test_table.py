"""The table of operators knows what the rules know, and says of every operator what its rule and PyTorch say of it."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path

import pytest
import torch

import graphguard.rules.evaluate  # noqa: F401 - registers every rule
from graphguard.ops import COLLECTIVE, OPERATORS, Traits, aten, operators, traits_of
from graphguard.rules.basis.registry import RULES

ROOT = Path(__file__).parents[3]


def overload_of(op: str) -> torch._ops.OpOverload | None:
    """PyTorch's own operator of a name; None for those of other libraries, and for the functional forms that it lacks."""
    namespace, _, rest = op.partition(".")
    name, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), name, None) if namespace in ("aten", "prims") else None
    return getattr(packet, overload, None)


def family(op: str) -> str:
    """The file that holds an operator's rule."""
    return RULES[op].function.__module__.rpartition(".")[2]


SCHEMAS = {op: found._schema for op in OPERATORS if (found := overload_of(op)) is not None}


def test_every_operator_that_a_rule_knows_has_an_entry():
    assert not sorted(RULES.keys() - OPERATORS.keys())


def test_a_name_is_one_of_pytorch_s_or_of_a_rule():
    assert not [op for op in OPERATORS if op not in SCHEMAS and op not in RULES and not op.startswith("peer.")]


def test_a_name_that_is_not_declared_is_an_error_where_it_is_written():
    assert aten.add.Tensor == "aten.add.Tensor"
    with pytest.raises(AttributeError, match=r"aten\.add\.Tenser"):
        _ = aten.add.Tenser


def test_an_operator_of_somebody_else_has_no_traits():
    assert traits_of("mine.add.Tensor") == Traits()
    assert traits_of("aten.add_.Tensor") is traits_of(aten.add.Tensor)


@pytest.mark.parametrize("trait", [field.name for field in fields(Traits)])
def test_every_trait_holds_of_something(trait):
    assert operators(lambda op: getattr(op, trait) not in (False, None, ""))


def test_what_pytorch_calls_pointwise_is_so_here():
    """Of what rules compute element by element, all that PyTorch tags; ``equal``, which it tags as well, gives one truth."""
    tagged = {op for op in SCHEMAS if op in RULES and torch.Tag.pointwise in overload_of(op).tags}
    computed = {op for op in tagged if family(op) in {"elementwise", "activations", "truth"}}
    assert {aten.equal.default} == {op for op in computed - operators(lambda op: op.pointwise) if "prelu" not in op}


@pytest.mark.parametrize("op", sorted(op for op in RULES if family(op) == "declared"))
def test_what_is_declared_elementwise_is_pointwise(op):
    lines = RULES[op].function.__closure__
    assert lines is not None
    forms = {trait.form for cell in lines if isinstance(cell.cell_contents, tuple) for trait in cell.cell_contents}
    assert traits_of(op).pointwise == (forms == {"elementwise"})


def test_what_rules_only_move_is_moved():
    """A complex number is two real ones: what shows it so is no rearrangement of numbers."""
    moved = {op for op, rule in RULES.items() if rule.gives == "moved"}
    assert moved - operators(lambda op: op.moves) == {aten.view_as_real.default, aten.view_as_complex.default}


POSITIONS = {
    "dim_at": {"dim", "dims", "dim0", "start_dim"},
    "keepdim_at": {"keepdim"},
    "shape_at": {"size", "shape"},
    "number_at": {"value", "fill_value", "other"},
    "mask_at": {"mask", "condition"},
}


@pytest.mark.parametrize(
    ("op", "trait"),
    [(op, trait) for op in sorted(SCHEMAS) for trait in POSITIONS if getattr(OPERATORS[op], trait) is not None],
)
def test_an_argument_is_where_pytorch_has_it(op, trait):
    position = getattr(OPERATORS[op], trait)
    assert SCHEMAS[op].arguments[position].name in POSITIONS[trait]


def test_an_index_is_where_pytorch_has_it():
    for op in operators(lambda op: op.looks_up):
        found = OPERATORS[op].looks_up
        assert SCHEMAS[op].arguments[found.at].name in {"index", "indices", "target", "self"}


def names_in(folder):
    """Names of operators and collectives that are written out in the files of a folder, each with its place."""
    return [
        (f"{path.relative_to(ROOT)}:{node.lineno}", node.value)
        for path in sorted((ROOT / "graphguard" / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in OPERATORS | COLLECTIVE
    ]


@pytest.mark.parametrize(
    "folder", ["ir", "trace", "relations", "refine", "confirm", "diagnose", "repair", "checks", "report", "commands"]
)
def test_no_list_of_names_stands_elsewhere(folder):
    """Outside of the table and the rules, whoever means an operator names its entry."""
    assert not [place for place, name in names_in(folder) if name.startswith("aten.") or name in COLLECTIVE]
