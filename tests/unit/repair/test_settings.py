"""Settings by the names that functions have for them, and calls that differ in one of them."""

from __future__ import annotations

import pytest

from graphguard.ir import Node, Var
from graphguard.repair.text.settings import other_setting, other_settings, place_of, setting_of

X, Y = Var(0), Var(1)


def call(op: str, *args: object, **words: object) -> Node:
    return Node(op, (X, *args), words, (Y,))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mine", "its", "text"),
    [
        (call("aten._fft_r2c.default", (1,), 0, True), call("aten._fft_r2c.default", (1,), 1, True), "with norm='backward', the specification's with norm='ortho'"),
        (call("aten._fft_c2r.default", (1,), 0, 6), call("aten._fft_c2r.default", (1,), 2, 6), "with norm='forward', the specification's with norm='backward'"),
        (call("aten._fft_c2c.default", (1,), 2, False), call("aten._fft_c2c.default", (1,), 1, False), "with norm='backward', the specification's with norm='ortho'"),
        (call("aten._fft_c2c.default", (1,), 2, True), call("aten._fft_c2c.default", (1,), 1, True), "with norm='forward', the specification's with norm='ortho'"),
        (call("aten.mse_loss.default", Y, 2), call("aten.mse_loss.default", Y), "with reduction='sum', the specification's with reduction='mean'"),
        (call("aten.gelu.default"), call("aten.gelu.default", approximate="tanh"), "with approximate='none', the specification's with approximate='tanh'"),
        (call("aten.add.Tensor", 1), call("aten.add.Tensor", 2), ""),
        (call("aten._softmax.default", 0, False), call("aten._softmax.default", 1, True), ""),
    ],
)  # fmt: skip
def test_one_setting_that_differs(mine: Node, its: Node, text: str) -> None:
    assert other_setting(mine, its) == text


def test_numbers_without_a_name_are_told_as_numbers() -> None:
    assert other_settings(call("aten.div.Tensor", 50.0), call("aten.div.Tensor", 30.0)) == (
        "'{what}' is computed with 50, the specification's with 30"
    )
    assert other_settings(call("aten.div.Tensor", 50.0), call("aten.mul.Tensor", 30.0)) == ""


def test_a_setting_that_is_left_out_has_its_default_and_the_next_place() -> None:
    assert setting_of(call("aten.mse_loss.default", Y), "reduction") == 1
    assert place_of(call("aten.mse_loss.default", Y), "reduction") == 2
    assert place_of(call("aten.mse_loss.default", Y), "padding_mode") is None
