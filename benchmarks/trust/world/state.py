"""What a process has of its own: draws, hash seeds, its number, the time, its environment."""

from __future__ import annotations

from benchmarks.trust.world.maker import PARTIAL, WHOLE, Maker

# Numbers that every process of a job has alike (with what they are), and those that each has of its own.
_ALIKE = (
    ("float(os.environ['WORLD_SIZE'])", "{count}.0"),
    ("float(dist.get_world_size())", "{count}.0"),
    ("np.random.default_rng(3).random()", "np.random.default_rng(3).random()"),
    ("random.Random(3).random()", "random.Random(3).random()"),
    ("float(len({'a', 'b', 'c'}))", "3.0"),
    ("float(sorted({'b', 'a', 'c'}).index('c'))", "2.0"),
    ("float(list(dict.fromkeys(['c', 'a', 'b'])).index('b'))", "2.0"),
    ("float(len(os.environ['RANK']))", "1.0"),
    ("float(hash(7))", "7.0"),
    ("float(sum({1, 2, 3}))", "6.0"),
    ("float(time.time() > 0)", "1.0"),
    ("float(os.getpid() > 0)", "1.0"),
)
_OWN = (
    "random.random()",
    "np.random.rand()",
    "np.random.default_rng().random()",
    "random.SystemRandom().random()",
    "float(list({'alpha', 'beta', 'gamma', 'delta', 'epsilon', 'zeta', 'eta'}).index('gamma'))",
    "float(hash('alpha') % 997 / 997)",
    "float(os.getpid() % 97 / 97)",
    "float(time.time() % 10)",
    "float(time.perf_counter() % 10)",
    "float(id(object()) % 4099 / 4099)",
    "float(os.environ['RANK']) + 1",
    "float(int.from_bytes(os.urandom(2), 'big') / 65536)",
    "float(torch.rand(()))",
    "torch.randn(1, dtype=D)",
    "float(r + 1)",
)
# Statements before a draw, and the draw.
_SEEDED = (
    ("random.seed(5)", "random.random()"),
    ("np.random.seed(5)", "np.random.rand()"),
    ("torch.manual_seed(5)", "torch.rand(1, dtype=D)"),
    ("source = torch.Generator().manual_seed(5)", "torch.rand(1, dtype=D, generator=source)"),
)
# Sources of draws that a module makes, before any rank is: each process makes its own.
_SOURCES = (
    ("np.random.default_rng()", "random()"),
    ("random.Random()", "random()"),
    ("np.random.default_rng(5)", "random()"),
    ("random.Random(5)", "random()"),
    ("np.random.RandomState()", "rand()"),
    ("np.random.RandomState(5)", "rand()"),
)


def factor(m: Maker) -> bool:
    """A factor that is the same for every process, or is not."""
    y = m.found(WHOLE, PARTIAL, int)
    if y is None:
        return False
    out, kind = m.fresh("y"), m.rng.random()
    if kind < 0.1:
        source, draw = m.one(_SOURCES)
        name = m.fresh("SOURCE")
        m.module.append(f"{name} = {source}")
        m.impl.append(f"{out} = {y.name} * ({name}.{draw} < 2)")
        m.spec.append(f"{out} = {y.name} * 1")
        if m.chance(0.5):
            m.impl[-1] = f"{out} = {y.name} * {name}.{draw}"
            m.spec[-1] = f"{out} = {y.name} * {source}.{draw}"
    elif kind < 0.4:
        number, meant = m.one(_ALIKE)
        m.impl.append(f"{out} = {y.name} * {number}")
        meant = "1.0" if m.chance(0.1) else meant.format(count=m.count * m.batch)
        m.spec.append(f"{out} = {y.name} * {meant}")
    elif kind < 0.65:
        seed, draw = m.one(_SEEDED)
        own = m.chance(0.2)
        m.impl += [seed.replace("5", "5 + r") if own else seed, f"{out} = {y.name} * {draw}"]
        m.spec += [seed, f"{out} = {y.name} * {draw}"]
    else:
        number = m.one(_OWN)
        m.impl.append(f"{out} = {y.name} * {number}")
        m.spec.append(f"{out} = {y.name} * {number if 'r + 1' not in number and 'RANK' not in number else '1.0'}")
    m.value(out, y.shape, y.layout)
    m.say("process")
    return True


def order(m: Maker) -> bool:
    """Collectives in the order of a set of texts, of a sorted one, of a dict."""
    y = m.found(PARTIAL)
    if y is None:
        return False
    parts, out = m.fresh("named"), m.fresh("y")
    names = ["alpha", "beta", "gamma", "delta", "epsilon"]
    held = ", ".join(f"{name!r}: {y.name} * {place + 1}" for place, name in enumerate(names))
    m.impl.append(f"{parts} = {{{held}}}")
    walk = m.one(
        [
            f"set({parts})",
            f"sorted(set({parts}))",
            parts,
            f"{parts}.keys() & set({parts})",
            f"list({parts})[::-1]",
            f"frozenset({parts})",
        ]
    )
    m.impl.append(f"for name in {walk}: dist.all_reduce({parts}[name]{m.group()})")
    m.impl.append(f"{out} = {parts}['beta'] - {parts}['delta']")
    m.spec.append(f"{out} = -2 * {y.name}")
    m.value(out, y.shape, WHOLE)
    m.say("process")
    return True


def branch(m: Maker) -> bool:
    """A line that is run where an accident says so; the accident is always, or never, or of its own for every process."""
    y = m.found(WHOLE)
    if y is None:
        return False
    condition, held = m.one(
        [
            ("os.getpid() > 0", True),
            ("time.time() < 0", False),
            ("os.environ.get('NOT_SET_ANYWHERE')", False),
            ("os.path.exists('/not/there')", False),
            ("'RANK' in os.environ", True),
            ("os.environ['RANK'] == '0'", False),
            ("random.random() < 2", True),
            ("id(object()) == 0", False),
        ]
    )
    out = m.fresh("y")
    m.impl.append(f"{out} = {y.name} * 2 if {condition} else {y.name}")
    m.spec.append(f"{out} = {y.name}{' * 2' if held else ''}")
    m.value(out, y.shape, WHOLE)
    m.say("process")
    return True


STEPS = (factor, factor, order, branch)
