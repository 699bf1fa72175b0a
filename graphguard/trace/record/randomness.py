"""Random draws by name: which generator, seeded how, and what was drawn from it since then.

Under fake tensors no generator is consumed.  Every recorded draw therefore advances the real generator by some numbers, so its state names the position
in the stream, and programs that save and restore states (activation checkpointing, Megatron's trackers) get the same draw again.  A position is made of the draws before it, by operator, type and
shape: ``rand(4)`` is another draw behind ``rand(3)`` than behind ``rand(5)``.  How many numbers a kernel takes is for it to say, so draws of other kinds never lead to one position.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from graphguard.ir.draws import behind, lying, number_of, of_state
from graphguard.trace.calls import state
from graphguard.trace.calls.constants import tensors_in

#: What a verdict rests on where a program draws from torch and seeds it nowhere.
SEEDED_ALIKE = "torch has the same seed in every process: the program draws from it and seeds it nowhere"
_STEPS = 1 << 14  # numbers, at most, by which a draw moves a generator on
UNSEEDED = 67280421310721  # c10::detail::default_rng_seed_val: what a generator starts from when nobody seeds it


class Draws:
    """Numbers the draws of every generator.

    ``known``: of a seed on a CPU everything is drawn in earnest, as long as all before it was, so that what is :mod:`read <graphguard.trace.record.seeded>` is what PyTorch draws.
    ``any_made``: the program draws; ``are_read``: it reads what it draws from a seed.  ``training``: the draws that were made with gradients on, which an evaluation does not make.
    """

    def __init__(self, *, known: bool = False) -> None:
        self.known = known
        self.any_made = False
        self.are_read = False
        self.training: set[tuple[str, int]] = set()
        self._position: dict[bytes, int] = {}
        self._counted: set[bytes] = set()

    def of_call(self, func: Any, args: Any, kwargs: Any, out: Any) -> tuple[str, int] | None:
        """The draw that a call of a random operator makes, if it makes one; ``out`` is what it gives."""
        if _drops_nothing(func._schema, args, kwargs):  # noqa: SLF001
            return None
        generator, device = _drawn_from(args, kwargs)
        drawn = _drawn_by(func, args, out)
        steps = 1 + number_of(drawn) % _STEPS if drawn else 0
        with unset_fake_temporarily():
            position = self._position_of(generator)
            torch.empty(steps).uniform_(generator=generator)
            if drawn:
                self._position[_digest(generator)] = behind(position, drawn)
            self._counted.add(_digest(generator))
        return self._named(generator, device, position, out)

    def in_earnest(
        self, args: Any, kwargs: Any, draw: Callable[[], torch.Tensor], out: Any
    ) -> tuple[torch.Tensor, tuple[str, int]] | None:
        """What a random operator draws, and the draw's name; None where only its name is known."""
        generator, device = _drawn_from(args, kwargs)
        with unset_fake_temporarily():
            followed = device == "cpu" and generator.device.type == "cpu" and _digest(generator) not in self._counted
            if not self.known or not followed or generator.initial_seed() == UNSEEDED:
                return None
            position = self._position_of(generator)
            drawn = draw()
        return drawn, self._named(generator, device, position, out)

    def _position_of(self, generator: torch.Generator) -> int:
        """A number for what was drawn from a generator: 0 where nothing was, that of its state where nobody has drawn up to there."""
        digest = _digest(generator)
        if digest not in self._position:
            fresh = torch.Generator().manual_seed(generator.initial_seed())
            self._position[digest] = 0 if _digest(fresh) == digest else of_state(digest)
        return self._position[digest]

    def _named(self, generator: torch.Generator, device: str, position: int, out: Any) -> tuple[str, int]:
        """The name of a draw that gives ``out``."""
        order = _order(next(iter(tensors_in(out)), None))
        position = lying(position, order) if order else position
        seed = generator.initial_seed()
        self.any_made = True
        world = state.current_world()
        if seed == UNSEEDED:
            _assume_seeded_alike()
        stream = "default" if device == ("cpu" if world is None else world.device) else device
        name = (stream if seed == UNSEEDED else f"{stream}:{seed}", position)
        if torch.is_grad_enabled():
            self.training.add(name)
        return name


def _drawn_by(func: Any, args: Any, out: Any) -> tuple[Any, ...]:
    """What decides how many numbers a draw takes from its generator, and more; nothing where it takes none.

    Bounds and probabilities do not; the range of integers does, and whether a sample is put back.
    """
    made = next(iter(tensors_in(out)), None)
    if made is None:
        return (str(func),)
    shape = str(tuple(made.shape))
    if any(type(size) is int and size == 0 for size in made.shape):
        return ()
    name = func._schema.name.removesuffix("_").removesuffix("_like")  # noqa: SLF001
    given = [each for each in (str(tuple(tensor.shape)) for tensor in tensors_in(args)) if each != shape]
    counts = [each for each in args if type(each) in (int, bool)]
    return name, given, counts, shape, str(made.dtype), _order(made)


def _order(made: torch.Tensor | None) -> tuple[int, ...]:
    """The dims as they lie in memory, the outermost first, where that is not by rows: numbers are drawn in the order of memory."""
    if made is None or any(type(size) is not int for size in (*made.shape, *made.stride())) or made.is_contiguous():
        return ()
    return tuple(sorted(range(made.dim()), key=lambda dim: (-made.stride(dim), dim)))


def _assume_seeded_alike() -> None:
    """PyTorch's own generators start anew in every process, which scripts that leave the seed to their launcher do not mean; initial values do not matter."""
    recorder = state.current_recorder()
    if recorder is not None and recorder.phase != "prelude":
        recorder.assumed.add(SEEDED_ALIKE)


def _drawn_from(args: Any, kwargs: Any) -> tuple[torch.Generator, str]:
    """The generator that a call draws from, and the type of device that it draws on."""
    generator = kwargs.get("generator")
    generator = next((arg for arg in args if isinstance(arg, torch.Generator)), generator)
    tensor = next(iter(tensors_in(args)), None)
    device = kwargs.get("device") if tensor is None else tensor.device
    kind = torch.device(device).type if device is not None else torch.get_default_device().type
    kind = "cpu" if kind == "meta" else kind
    return default_generator(kind) if generator is None else generator, kind


def default_generator(device: str) -> torch.Generator:
    """The generator that draws on a device use when the program names none."""
    if device == "cuda" and torch.cuda.default_generators:
        return torch.cuda.default_generators[torch.cuda.current_device()]
    return torch.default_generator


def restart_unseeded() -> None:
    """Put generators that the program never seeded back to the start of their stream."""
    for generator in (torch.default_generator, *torch.cuda.default_generators):
        if generator.device.type == "cpu" and generator.initial_seed() == UNSEEDED:
            generator.manual_seed(UNSEEDED)


@contextmanager
def own_random_state() -> Iterator[None]:
    """Unseeded generators inside, the caller's state again outside."""
    generators = [torch.default_generator, *(g for g in torch.cuda.default_generators if g.device.type == "cpu")]
    before = [generator.get_state() for generator in generators]
    for generator in generators:
        generator.manual_seed(UNSEEDED)
    try:
        yield
    finally:
        for generator, kept in zip(generators, before, strict=True):
            generator.set_state(kept)


def _digest(generator: torch.Generator) -> bytes:
    return hashlib.sha256(generator.get_state().numpy().tobytes()).digest()


def _drops_nothing(schema: Any, args: Any, kwargs: Any) -> bool:
    """Whether an attention kernel is called without dropout: it is random only with it."""
    position = next((i for i, argument in enumerate(schema.arguments) if argument.name == "dropout_p"), None)
    if position is None:
        return False
    return not (args[position] if position < len(args) else kwargs.get("dropout_p", 0.0))
