"""What operators make of fake tensors: noted where it was worked out, and known to the next recording."""

import json

import pytest
import torch

from graphguard.trace.calls.kernels import Kernels
from graphguard.trace.record.capture import Recording
from graphguard.trace.record.operators import rehearse_call
from graphguard.trace.worlds.world import World


@pytest.fixture(autouse=True)
def nothing_known():
    forget()
    yield
    forget()


def forget() -> None:
    Kernels.answers.clear()


def worked_out(program, mesh=None):
    """The calls that a program, which is given its recording and returns its output, had to work out."""
    with World(0, mesh or {}) as world, Recording(world) as recording:
        recording.phase = "forward"
        recording.output("out", program(recording))
    recording.finish()
    return recording.unseen


def recorded(rows):
    """The calls that a small forward and backward pass over ``rows`` rows had to work out."""

    def program(recording):
        layer = torch.nn.Linear(6, 10)
        x = recording.leaf("x", (rows, 6), torch.float32, requires_grad=True)
        y = torch.nn.functional.silu(layer(x)).clamp(min=0.1).masked_fill(x[:, :1] > 0, float("-inf"))
        a, b = y.chunk(2, -1)
        loss = (a * b).to(torch.float64).softmax(-1).sum()
        recording.phase = "backward"
        loss.backward()
        return loss

    return worked_out(program, {"a": 2})


def test_what_was_rehearsed_is_not_worked_out_again():
    calls = recorded(5)
    assert calls
    forget()
    assert [json.loads(call)[0] for call in calls if not rehearse_call(call)] == []
    assert recorded(5) == ()


def test_other_shapes_are_new():
    for call in recorded(5):
        rehearse_call(call)
    assert recorded(7)


def test_a_result_that_the_worker_does_not_come_to_is_not_kept():
    call = next(call for call in recorded(5) if json.loads(call)[0] == "mul")
    row = json.loads(call)
    row[-1]["tensor"][1] = [5, 6]
    forget()
    assert not rehearse_call(json.dumps(row, separators=(",", ":")))
    assert len(Kernels.answers) == 0


def attended(scale):
    """The calls that attention on scaled operands, and its gradient, had to work out."""

    def program(recording):
        x = recording.leaf("x", (1, 2, 3, 4), torch.float32, requires_grad=True)
        y = torch.nn.functional.scaled_dot_product_attention(x * scale, x / scale, x + scale).sum()
        recording.phase = "backward"
        y.backward()
        return y

    return worked_out(program)


def test_attention_is_rehearsed_like_pytorchs_own_operators():
    calls = attended(2.5)
    assert {"gg.sdpa", "gg.sdpa_backward"} <= {json.loads(call)[0] for call in calls}
    forget()
    assert all(rehearse_call(call) for call in calls)
    assert attended(2.5) == ()


def test_another_number_to_calculate_with_is_nothing_new():
    assert attended(2.5)
    assert attended(3.5) == ()
    assert attended(2), "a whole number gives other types"


def test_another_number_elsewhere_is_new():
    def recorded_with(number):
        return worked_out(lambda r: torch.nn.functional.celu(r.leaf("x", (3,), torch.float32), number))

    assert recorded_with(2.0)
    assert recorded_with(3.0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "not JSON",
        '["no_such_operator","default","torch.float32",[],{},null]',
        '["add","Tensor","torch.float32",[{"tensor":["torch.float32",[2],[1],0,-8,false,0]},1],{},null]',
        '["add","Tensor","os.system",[1,1],{},null]',
        '["add","Tensor","torch.float32",[{"unknown":1},{"again":9}],{},null]',
        '["ones","default","torch.float32",[{"list":[2]}],{"device":{"device":"cuda"}},null]',
        '["item","default","torch.float32",[{"tensor":["torch.float32",[],[],0,4,false,0]}],{},1]',
    ],
)
def test_damaged_notes_do_no_harm(text):
    assert not rehearse_call(text)
    assert len(Kernels.answers) == 0
    assert torch.get_default_dtype() is torch.float32


def test_the_mode_of_the_caller_is_part_of_the_call():
    with World(0, {}) as world, Recording(world) as recording:
        torch.set_default_dtype(torch.float64)
        recording.phase = "forward"
        recording.output("out", torch.ones(3) + 1)
    recording.finish()
    torch.set_default_dtype(torch.float32)
    calls = recording.unseen
    assert any("float64" in call for call in calls)
    forget()
    assert all(rehearse_call(call) for call in calls)
