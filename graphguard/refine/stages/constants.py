"""Literal tensors of a graph as arrays."""

from __future__ import annotations

from typing import Final

import numpy as np

from graphguard.ir import Constant
from graphguard.ir.written import computed
from graphguard.relations.algebra import Unsupported

_PLAIN: Final = {
    "bool": np.bool_,
    "uint8": np.uint8,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "float16": np.float16,
    "float32": np.float32,
    "float64": np.float64,
    "complex64": np.complex64,
    "complex128": np.complex128,
}
_FEW: Final = 128  # different elements that are read one by one
_MANY: Final = 65536  # elements that a call on doubles would not look at


def elements(constant: Constant, single: bool = False) -> np.ndarray:
    """The elements as bool, int64 or float64; complex ones with a last dim of 2.  Raises ``Unsupported`` where only a digest is known.

    ``single``: an element in float32 is the number that was rounded to it, as a number in a call is; a call on doubles takes what it was rounded to.
    """
    if constant.data is None:
        raise Unsupported("a literal too large to be carried along")
    shape = tuple(size for size in constant.type.shape if isinstance(size, int))
    name = constant.type.dtype
    if name == "bfloat16":
        raw = np.frombuffer(constant.data, dtype="<u2").astype(np.uint32) << 16
        return raw.view(np.float32).astype(np.float64).reshape(shape)
    kind = _PLAIN.get(name)
    if kind is None:
        raise Unsupported(f"a literal of type {name}")
    data = np.frombuffer(constant.data, dtype=np.dtype(kind).newbyteorder("<")).reshape(shape)
    if data.dtype.kind == "b":
        return data
    if data.dtype.kind == "c":
        return np.stack([data.real, data.imag], axis=-1).astype(np.float64)
    if single and name == "float32":
        return _meant(data)
    return data.astype(np.int64 if data.dtype.kind in "iu" else np.float64)


def _meant(data: np.ndarray) -> np.ndarray:
    """Elements in float32 as what was rounded to them; those of which that is not seen, and long tables, as they are."""
    if data.size > _MANY and (data != data.flat[0]).any():
        return data.astype(np.float64)
    values, places = np.unique(data, return_inverse=True)
    if len(values) > _FEW:
        return data.astype(np.float64)
    return np.array([computed(float(value)) for value in values], dtype=np.float64)[places].reshape(data.shape)
