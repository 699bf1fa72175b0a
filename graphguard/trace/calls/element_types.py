"""Which element types operators take together: what PyTorch's kernels refuse, and its shape functions do not."""

from __future__ import annotations

from typing import Any, Final

import torch

from graphguard.trace.calls.kinds import Kind

#: Operators, by the places of tensors that must be of one type.
_ALIKE: Final = {
    "mm": (0, 1), "addmm": (0, 1, 2), "mv": (0, 1), "addmv": (0, 1, 2), "addbmm": (0, 1, 2), "linear": (0, 1, 2), "sdpa": (0, 1, 2), "_cdist_forward": (0, 1),
    "convolution": (0, 1, 2), "nll_loss_forward": (0, 2), "nll_loss2d_forward": (0, 2), "binary_cross_entropy": (0, 1),
    "index_add": (0, 3), "index_copy": (0, 3), "index_reduce": (0, 3), "index_put": (0, 2), "_index_put_impl": (0, 2),
}  # fmt: skip
#: Operators of a tensor with parameters of its type, or of float32 where its type is narrow, by the places of the parameters.
_NORMS: Final = {"native_group_norm": (1, 2), "native_layer_norm": (2, 3)}
#: Operators whose first tensors may be of any type but these.
_NO_INTEGERS: Final = frozenset(("_softmax", "_log_softmax", "multinomial", "bernoulli"))
_NO_TRUTHS: Final = frozenset(("mm", "bmm", "addmm", "mv", "baddbmm"))
_NO_FLOATS: Final = frozenset(("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"))
#: One element of any type fills where a mask is true.
_FILLING: Final = frozenset(("index_put", "_index_put_impl"))
_CLASSES: Final = {"nll_loss_forward": 1, "nll_loss2d_forward": 1}


def refuse_types(kind: Kind, args: Any) -> None:
    """Raise the ``RuntimeError`` that a kernel would, where operands of these element types have none."""
    name = kind.short_name.removesuffix("_")
    places = _ALIKE.get(name) or _NORMS.get(name)
    if places is not None and not (name in _FILLING and _is_one_element(args[2])):
        types = [args[place].dtype for place in places if place < len(args) and isinstance(args[place], torch.Tensor)]
        if name in _NORMS and args[0].dtype not in (torch.bfloat16, torch.float16):
            types.append(args[0].dtype)
        if len(set(types)) > 1:
            raise RuntimeError(
                f"expected operands of {name} to have the same dtype, but got: {', '.join(map(_name, types))}"
            )
    first = args[0].dtype if args and isinstance(args[0], torch.Tensor) else torch.float32
    integers = not (first.is_floating_point or first.is_complex)
    if (
        (name in _NO_INTEGERS and integers)
        or (name in _NO_TRUTHS and first is torch.bool)
        or (name in _NO_FLOATS and not integers)
    ):
        raise RuntimeError(f'"{name}" not implemented for {_name(first)}')
    place = _CLASSES.get(name)
    if place is not None and args[place].dtype not in (torch.int64, torch.uint8):
        raise RuntimeError(f"expected target dtype to be Long or Byte, but got {_name(args[place].dtype)}")


def _is_one_element(tensor: torch.Tensor) -> bool:
    """Whether a tensor has one element, as far as its sizes are known."""
    return all(type(size) is int and size == 1 for size in tensor.shape)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
