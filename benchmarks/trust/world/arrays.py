"""Constants by way of numpy, which shares memory with tensors, or does not."""

from __future__ import annotations

from benchmarks.trust.world.maker import PARTIAL, WHOLE, Maker


def mask(m: Maker) -> bool:
    """A factor for every column, which is written after the tensor was made of it, or before."""
    y = m.found(WHOLE, PARTIAL, dims=2)
    if y is None:
        return False
    columns = y.shape[1]
    array, tensor, out = m.fresh("array"), m.fresh("mask"), m.fresh("y")
    cells = f"[{m.rng.randrange(columns)}]" if m.chance(0.5) else "[1:3]"
    made = m.one(
        [
            f"torch.from_numpy({array})",
            f"torch.as_tensor({array})",
            f"torch.asarray({array})",
            f"torch.tensor({array})",
            f"torch.from_numpy({array}.copy())",
            f"torch.from_numpy({array}).clone()",
            f"torch.from_numpy({array}[:])",
        ]
    )
    shared = not any(word in made for word in ("torch.tensor", "copy", "clone"))
    written = m.one(
        [
            f"{array}{cells} = 3",
            f"{array}{cells} += 2",
            f"np.add({array}, 2, out={array}, where=np.isin(np.arange({columns}), np.arange({columns}){cells}))",
            f"np.copyto({array}{cells}, 3)" if ":" in cells else f"{array}.put({cells[1:-1]}, 3)",
        ]
    )
    early = m.chance(0.4)
    lines = [f"{array} = np.ones({columns})", f"{tensor} = {made}"]
    lines.insert(1 if early else 2, m.on_a_rank(written) if m.chance(0.2) else written)
    m.impl += [*lines, f"{out} = {y.name} * {tensor}"]
    seen = early or shared
    m.spec.append(f"{tensor} = torch.ones({columns}, dtype=D)")
    if seen != m.chance(0.15):
        m.spec.append(f"{tensor}{cells} = 3")
    m.spec.append(f"{out} = {y.name} * {tensor}")
    m.value(out, y.shape, y.layout)
    m.say("numpy")
    return True


def filled(m: Maker) -> bool:
    """A tensor that is filled through its array."""
    y = m.found(WHOLE, PARTIAL, dims=2)
    if y is None:
        return False
    columns = y.shape[1]
    tensor, out, cell = m.fresh("mask"), m.fresh("y"), m.rng.randrange(columns)
    array = m.one(
        [
            f"{tensor}.numpy()",
            f"np.asarray({tensor})",
            f"np.from_dlpack({tensor})",
            f"np.array({tensor})",
            f"{tensor}.clone().numpy()",
            f"{tensor}.detach().numpy()",
        ]
    )
    copied = array.startswith("np.array(") or "clone" in array
    m.impl.append(f"{tensor} = torch.ones({columns}, dtype=D)")
    if m.chance(0.5):
        m.impl.append(f"{array}[{cell}] = 3")
    else:
        name = m.fresh("array")
        m.impl += [
            f"{name} = {array}",
            m.one([f"{name}[{cell}] = 3", f"{name}[{cell}] += 2", f"{name}[{cell}:{cell + 1}] = 3"]),
        ]
    m.impl.append(f"{out} = {y.name} * {tensor}")
    m.spec.append(f"{tensor} = torch.ones({columns}, dtype=D)")
    if copied == m.chance(0.15):
        m.spec.append(f"{tensor}[{cell}] = 3")
    m.spec.append(f"{out} = {y.name} * {tensor}")
    m.value(out, y.shape, y.layout)
    m.say("numpy")
    return True


def of_data(m: Maker) -> bool:
    """A value that is changed through its array."""
    y = m.found(WHOLE, PARTIAL)
    if y is None or sum(each.memory == y.memory for each in m.values) > 1:
        return False
    m.impl.append(
        m.one(
            [
                f"np.multiply({y.name}.numpy(), 2, out={y.name}.numpy())",
                f"{y.name}.numpy()[:] *= 2",
                f"{y.name} = torch.from_numpy({y.name}.numpy() * 2)",
            ]
        )
    )
    m.spec.append(f"{y.name} = {y.name} * 2")
    m.say("numpy")
    return True


STEPS = (mask, mask, filled, filled, of_data)
