"""Files that are compiled before anybody asks: what an import makes of them is what it would have made of them."""

import warnings
from pathlib import Path
from types import ModuleType

import pytest

from graphguard.trace import sources
from graphguard.trace.sources import ProjectFiles, compile_in_advance, file_of


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch):
    monkeypatch.setattr(sources, "_compiled", {})


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "model.py"
    path.write_text("WIDTH = 4\n")
    return path


def value(files: ProjectFiles, file: Path) -> object:
    names: dict[str, object] = {}
    exec(files.compile(str(file)), names)
    return names["WIDTH"]


def test_the_same_text_is_compiled_once(file):
    compile_in_advance([str(file)], 10.0)
    files = ProjectFiles({})
    assert files.compile(str(file)) is ProjectFiles({}).compile(str(file))
    assert files.read == {str(file): b"WIDTH = 4\n"}
    assert sources.linecache.getline(str(file), 1) == "WIDTH = 4\n"


def test_another_text_is_compiled_anew(file):
    compile_in_advance([str(file)], 10.0)
    assert value(ProjectFiles({str(file): "WIDTH = 5"}), file) == 5
    file.write_text("WIDTH = 6\n")
    assert value(ProjectFiles({}), file) == 6


@pytest.mark.parametrize("text", ["WIDTH = (\n", "WIDTH = 1 is 1\n", "\0", "WIDTH = " + "(" * 1000 + ")" * 1000])
def test_what_the_import_has_to_say_is_left_to_it(file, text):
    """Errors, and warnings, which are printed where the file is compiled."""
    file.write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        compile_in_advance([str(file), str(file.with_name("gone.py"))], 10.0)
        with (
            pytest.raises((SyntaxError, ValueError, MemoryError))
            if "1 is 1" not in text
            else pytest.warns(SyntaxWarning)
        ):
            ProjectFiles({}).compile(str(file))


def test_no_more_than_there_is_time_for(file):
    compile_in_advance([str(file)], -1.0)
    assert not sources._compiled


class Anything(ModuleType):
    def __getattr__(self, name: str) -> type:
        return object


def test_a_stand_in_among_the_modules_has_no_file():
    """Programs put modules there that answer every question, and objects that are none."""
    assert file_of(Anything("flash_attn")) == ""
    assert file_of(object()) == ""
    assert file_of(sources) == sources.__file__
