"""What is returned: tensors, numbers, texts, rows, names, nothing; under which promise; and faults of whole lines."""

from __future__ import annotations

from benchmarks.trust.world.maker import PARTIAL, WHOLE, Maker, Value

_FAULTY = 0.12


def end(m: Maker) -> str:
    """Add the last lines; the promise, as text."""
    last = m.values[-1]
    whole = [value for value in m.values if value.layout == WHOLE and m.batch == 1]
    if whole and m.chance(0.45):
        return _kinds(m, m.one(whole[-2:]))
    if whole and last.layout == WHOLE and len(whole) > 1 and m.chance(0.4):
        names = ", ".join(value.name for value in whole[-3:])
        m.both(f"return {names}")
        return '"replicate"'
    others = [value for value in m.values[:-1] if value.memory != last.memory][-1:]
    if others and m.chance(0.3):
        m.both(f"return {last.name}, {others[0].name}")
        return f"({_relation(m, last)}, {_relation(m, others[0])})"
    m.both(f"return {last.name}")
    return _relation(m, last)


def _relation(m: Maker, value: Value) -> str:
    axes = ['"dp": Shard(0)'] if m.batch > 1 else []
    if value.layout == PARTIAL:
        axes.append('"tp": Partial()')
    elif value.layout != WHOLE:
        axes.append(f'"tp": Shard({value.layout})')
    return "{" + ", ".join(axes) + "}" if axes else '"replicate"'


def _kinds(m: Maker, y: Value) -> str:
    """Results of other kinds beside a tensor that is whole."""
    m.say("results")
    n, other = y.name, m.one([value.name for value in m.values])
    same = [
        f"{n}, {n}.sum().item()",
        f"{n}.sum().item()",
        f"{n}, {n}.tolist()",
        f'{{"y": {n}, "loss": {n}.square().mean().item()}}',
        f"[{n}, {n} * 2]",
        f"{n}, None",
        f'{n}, "done"',
        f"{n}, {n}.numpy()",
        f"types.SimpleNamespace(y={n}, twice={n} * 2)",
        f"{n}, {n}.shape[0]",
        f'{{"y": {n}, "rest": ({n} * 2, {n} + 1)}}',
        f"{n}, {n} > 0",
        f"{n}, bool(True)",
        f"{n}, np.float64(2)",
        f"{n}, len({n})",
        f"{n}, ({n}, [{n}, {{'k': {n}}}])",
        f"{n}, np.arange(3)",
        f"{n}, {n}.max().item()",
        f"{n}, {{1, 2}}",
    ]
    pairs = [
        (f"{n}", f"{n} if r == 0 else None"),
        (f"{n}, {n} * 2", f"({n}, {n} * 2) if r == 0 else ({n}, None)"),
        (f"{n}, 1", f"{n}, r"),
        (f'{n}, "a"', f'{n}, "ab"[r % 2]'),
        (f"{n}, {other}.sum().item()", f"{n}, {other}.sum().item()"),
        (f"{n}, {other}.numpy()", f"{n}, {other}.numpy()"),
        (f"{n}, {other}.tolist()", f"{n}, {other}.tolist()"),
        (f"types.SimpleNamespace(y={n}, z={other})", f"types.SimpleNamespace(y={n}, z={other})"),
        (f'{{"y": {n}, "z": {n} * 2}}', f'{{"y": {n}, **({{}} if r else {{"z": {n} * 2}})}}'),
        (f"{n}, {n}.sum().item()", f"{n}, {n}.mean().item()"),
        (f"{n}, {n}", f"{n}, None"),
        (f"{n}, 2.5", f"{n}, 2.5 + 1e-3 * r"),
        (f"{n}, {n} > 0", f"{n}, ({n} > 0).double()"),
        (f"({n}, {n} * 2)", f"({n} * 2, {n})"),
        (f"{n}, np.ones(3)", f"{n}, np.zeros(3)"),
        (f"{n}, np.float64(2)", f"{n}, np.float64(2 + r)"),
        (f"{n}, {{1, 2}}", f"{n}, {{1, 2 + r}}"),
        (f"{n}, 2j", f"{n}, 3j"),
    ]
    wanted, found = (value := m.one(same), value) if m.chance(0.6) else m.one(pairs)
    m.spec.append(f"return {wanted}")
    m.impl.append(f"return {found}")
    return '"replicate"'


def spoil(m: Maker) -> None:
    """Seldom: a line of the implementation is left out, said twice, for one rank only, or before the line before it."""
    if not m.chance(_FAULTY) or len(m.impl) < 4:
        return
    place = m.rng.randrange(1, len(m.impl) - 1)
    line = m.impl[place]
    kind = m.one(["out", "twice", "rank", "swap", "swap"])
    m.say(f"line {kind}")
    if kind == "out":
        del m.impl[place]
    elif kind == "twice":
        m.impl.insert(place, line)
    elif kind == "rank" and not line.startswith(("if ", "for ")):
        m.impl[place] = f"if r == {m.rng.randrange(m.count)}: {line}"
    elif place + 1 < len(m.impl) - 1:
        m.impl[place], m.impl[place + 1] = m.impl[place + 1], line
