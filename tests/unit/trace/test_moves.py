"""Tensors that get other memory while a program is recorded keep their object, as in eager PyTorch: an optimiser made before goes on with them.

Every program runs on a model that it builds itself and on one that was built, with its optimiser, before the recording began.
"""

import copy
import multiprocessing
from collections.abc import Callable
from typing import Any

import pytest
import torch
from programs import assert_equals_eager, record, run
from torch import nn

Change = Callable[[nn.Module], Any]
CHANGES: dict[str, Change] = {}
X = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))


def change(function: Change) -> Change:
    CHANGES[function.__name__] = function
    return function


@change
def to_double(model):
    model.double()


@change
def to_half_and_back(model):
    model.half()
    model.float()


@change
def to_dtype(model):
    model.to(torch.float64)


@change
def with_a_gradient(model):
    model(X).sum().backward()
    model.double()


@change
def new_parameters_on_demand(model):
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        model.double()
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)


@change
def shared(model):
    model.share_memory()
    assert model.weight.is_shared()


@change
def other_data(model):
    for parameter in model.parameters():
        parameter.data = parameter.data * 2 + 1


@change
def data_of_another_type(model):
    for parameter in model.parameters():
        parameter.data = parameter.data.double()


@change
def data_in_place(model):
    for parameter in model.parameters():
        parameter.data.mul_(2)


@change
def data_of_a_tensor_that_changes(model):
    other = torch.ones(4, 4)
    model.weight.data = other
    other.mul_(3)


@change
def from_a_vector(model):
    vector = nn.utils.parameters_to_vector(model.parameters())
    nn.utils.vector_to_parameters(2 * vector, model.parameters())


@change
def swapped(model):
    other = nn.Parameter(model.weight.detach() * 2)
    torch.utils.swap_tensors(model.weight, other)
    model.other = other


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, turn: Change, x: torch.Tensor) -> tuple[Any, ...]:
    turn(model)
    for _ in range(2):
        model(x.to(model.weight.dtype)).square().sum().backward()
    optimizer.step()
    values = tuple(parameter.detach().clone() for parameter in model.parameters())
    return values + tuple(p.grad.clone() for p in model.parameters() if p.grad is not None)


def built() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(4, 4)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.arange(parameter.numel()).view_as(parameter) / 10)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


@pytest.mark.parametrize("name", list(CHANGES))
def test_a_model_of_its_own(name: str) -> None:
    assert_equals_eager(lambda x: trained(*built(), CHANGES[name], x), X)


@pytest.mark.parametrize("name", list(CHANGES))
def test_a_model_from_outside(name: str) -> None:
    model, optimizer = built()
    expected = trained(*copy.deepcopy((model, optimizer)), CHANGES[name], X)
    trace = record(lambda x: trained(model, optimizer, CHANGES[name], x), [X])
    assert trace.graph is not None, trace.troubles
    found = run(trace.graph, {"in0": X})
    for index, value in enumerate(expected):
        assert torch.equal(found[f"out[{index}]"], value), index


def test_new_parameters_from_the_meta_device() -> None:
    def program(x):
        model = nn.Linear(4, 4, device="meta")
        before = model.weight
        model.to_empty(device="cpu")
        return x + float(before is model.weight) + float(before.device.type == "meta")

    assert_equals_eager(program, X)


def test_shared_modules_share_what_they_become() -> None:
    def program(x):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        model[1].weight = model[0].weight
        with torch.no_grad():
            model[0].weight.fill_(0.5)
        model.double()
        model[0].weight.data.add_(x.double().sum())
        return model[1].weight

    assert_equals_eager(program, X)


def test_a_module_that_converts_itself() -> None:
    def program(x):
        class Own(nn.Linear):
            def _apply(self, fn, recurse=True):
                super()._apply(fn, recurse)
                self.scale = 2.0
                return self

        model = nn.Sequential(Own(4, 4))
        model.double()
        return x * model[0].scale

    assert_equals_eager(program, X)


def cuda_in_a_child(program: Callable[[torch.Tensor], Any]) -> Any:
    """What recording on CUDA gives, as text or tensors: believing in CUDA is for good, so it happens in a process of its own."""

    def child(results: Any) -> None:
        try:
            trace = record(program, [X], device="cuda")
            assert trace.graph is not None, trace.troubles
            results.put(run(trace.graph, {"in0": X})["out[0]"].numpy())
        except BaseException as error:  # noqa: BLE001  # told to the parent
            results.put(str(error))

    context = multiprocessing.get_context("fork")
    results = context.Queue()
    process = context.Process(target=child, args=(results,))
    process.start()
    found = results.get(timeout=120)
    process.join()
    return found


@pytest.mark.parametrize("outside", [False, True])
def test_moved_to_cuda_with_its_optimizer(outside: bool) -> None:
    model, optimizer = built()

    def program(x):
        own, steps = (model, optimizer) if outside else built()
        return trained(own.cuda(), steps, lambda _: None, x.cuda())[0]

    found = cuda_in_a_child(program)
    assert torch.equal(torch.as_tensor(found), trained(*built(), lambda _: None, X)[0])


def test_a_used_tensor_from_outside_stays_where_it_is() -> None:
    model, _ = built()

    def program(x):
        model(x.cpu()).sum().backward()
        model.weight.data = model.weight.data.cuda()
        return x

    assert "build the model inside the check" in cuda_in_a_child(program)
