"""What a check may ask of the world outside its files, in many spellings, and the edit after which the answer is another."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

# Where files may lie that no project owns.
_PLACES = ("{project}", "{project}/data", "{project}/.hidden", "{beside}", "{temporary}", "{memory}")
_PRESENCE = (
    "os.path.exists({file!r})",
    "os.path.isfile({file!r})",
    "os.path.lexists({file!r})",
    "os.access({file!r}, os.R_OK)",
    "Path({file!r}).exists()",
    "Path({file!r}).is_file()",
    "any(name == {name!r} for name in os.listdir({folder!r}))",
    "len([entry for entry in os.scandir({folder!r}) if entry.name == {name!r}])",
    "len(glob.glob({folder!r} + '/' + {name!r}[:4] + '*'))",
    "len(list(Path({folder!r}).glob({name!r}[:4] + '*')))",
    "sum({name!r} in names for _, _, names in os.walk({folder!r}))",
    "any(path.name == {name!r} for path in Path({folder!r}).iterdir())",
    "bool(shutil.which({file!r}) or os.path.exists({file!r}))",
    "subprocess.run(['test', '-e', {file!r}]).returncode == 0",
    "len(os.popen('ls ' + {file!r} + ' 2>/dev/null').read()) > 0",
    "opened({file!r})",
    "status({file!r})",
)
_CONTENT = (
    "len(open({file!r}).read()) // 4",
    "len(Path({file!r}).read_text()) // 4",
    "len(Path({file!r}).read_bytes()) // 4",
    "os.path.getsize({file!r}) // 4",
    "os.stat({file!r}).st_size // 4",
    "Path({file!r}).stat().st_size // 4",
    "os.path.getmtime({file!r}) > 1e9",
    "Path({file!r}).stat().st_mtime_ns > 10**18",
    "next(entry for entry in os.scandir({folder!r}) if entry.name == {name!r}).stat().st_size // 4",
    "len(subprocess.run(['cat', {file!r}], capture_output=True).stdout) // 4",
    "len(os.read(os.open({file!r}, os.O_RDONLY), 100)) // 4",
    "len(linecache.getline({file!r}, 1)) // 4",
    "len(np.fromfile({file!r}, dtype=np.uint8)) // 4",
    "int(subprocess.check_output(['wc', '-c', {file!r}]).split()[0]) // 4",
    "len(mmap.mmap(os.open({file!r}, os.O_RDONLY), 0, prot=mmap.PROT_READ)) // 4",
)
_VARIABLE = (
    "{name!r} in os.environ",
    "os.environ.get({name!r}) == 'set'",
    "os.getenv({name!r}) == 'set'",
    "os.getenvb({name!r}.encode()) == b'set'",
    "{name!r}.encode() in os.environb",
    "os.environb.get({name!r}.encode()) == b'set'",
    "dict(os.environ).get({name!r}) == 'set'",
    "os.environ.copy().get({name!r}) == 'set'",
    "any(name == {name!r} for name in os.environ)",
    "('{name}', 'set') in os.environ.items()",
    "os.path.expandvars('$' + {name!r}) == 'set'",
    "len(os.popen('echo -n $' + {name!r}).read())  // 3",
    "subprocess.run(['printenv', {name!r}], capture_output=True).returncode == 0",
    "{name!r} in {{**os.environ}}",
    "os.environ.setdefault({name!r}, 'not') == 'set'",
    "os.environ.pop({name!r}, 'not') == 'set'",
)
_MODULE = (
    "importlib.util.find_spec({name!r}) is not None",
    "imported({name!r})",
    "guarded_{name}",
    "any(module.name == {name!r} for module in pkgutil.iter_modules([{folder!r}]))",
)


@dataclass(frozen=True, slots=True)
class Question:
    """An expression that is a small number, what must be there before it is asked, and what changes its value.

    ``before`` and ``after`` are files by path (None: it is not there); the variables likewise.  ``prelude`` are lines of its file.
    """

    expression: str
    before: dict[str, str | None]
    after: dict[str, str | None]
    variables: tuple[dict[str, str], dict[str, str]] = ({}, {})
    prelude: str = ""


def question(rng: random.Random, name: str, places: dict[str, str]) -> Question:
    """A question whose files and variables are called ``name``; ``places`` are folders by what they are."""
    kind = rng.choice(("presence", "presence", "content", "content", "variable", "module"))
    if kind == "variable":
        variable = name.upper()
        there = {variable: "set"}
        sides = ({}, there) if rng.random() < 0.7 else (there, {})
        return Question(rng.choice(_VARIABLE).format(name=variable), {}, {}, sides)
    folder = rng.choice(_PLACES[:1] if kind == "module" else _PLACES).format(**places)
    file = f"{folder}/{name}" + (".py" if kind == "module" else "")
    spelled = (
        str(Path(file).relative_to(places["project"])) if folder == places["project"] and kind != "module" else file
    )
    inside = folder if spelled == file else "."
    texts = {"file": spelled, "folder": inside, "name": name}
    if kind == "module":
        prelude = f"try:\n    from {name} import VALUE as guarded_{name}\nexcept ImportError:\n    guarded_{name} = 0\n"
        return Question(
            rng.choice(_MODULE).format(**texts | {"folder": folder}),
            {file: None},
            {file: "VALUE = 1\n"},
            prelude=prelude,
        )
    if kind == "presence":
        sides = (None, "here") if rng.random() < 0.7 else ("here", None)
        return Question(rng.choice(_PRESENCE).format(**texts), {file: sides[0]}, {file: sides[1]})
    return Question(rng.choice(_CONTENT).format(**texts), {file: "abc"}, {file: "abcdefghij"})
