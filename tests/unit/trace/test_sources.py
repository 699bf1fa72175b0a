"""Files that are compiled before anybody asks: what an import makes of them is what it would have made of them."""

import os
import sysconfig
import warnings
from pathlib import Path
from types import ModuleType

import pytest

from graphguard.trace.source import sources
from graphguard.trace.source.sources import ProjectFiles, compile_for_others, compile_in_advance, file_of, take_compiled


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


def test_what_has_changed_since_is_compiled_once_for_all(file, monkeypatch):
    other = file.with_name("other.py")
    other.write_text("WIDTH = 1\n")
    compile_in_advance([str(file), str(other)], 10.0)
    files = ProjectFiles({str(file): "WIDTH = 7\n"})
    compiled = compile_for_others(files, [str(file), str(other), str(file.with_name("gone.py"))], 10.0)
    assert {path: text for path, (text, _) in compiled.items()} == {str(file): b"WIDTH = 7\n"}
    monkeypatch.setattr(sources, "_compiled", {})
    take_compiled(compiled)
    code = files.compile(str(file))
    assert code is files.compile(str(file)), "it was not compiled here"
    assert value(files, file) == 7
    assert value(ProjectFiles({str(file): "WIDTH = 8\n"}), file) == 8, "another text is"


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


def test_a_package_of_this_environment_counts_where_it_is_said_to(monkeypatch):
    """Also in a virtual environment, below whose own name for the standard library its packages lie."""
    monkeypatch.setattr(sources, "_counted", set())
    file = os.path.join(sysconfig.get_path("purelib"), "framework", "trainer.py")
    assert not sources.is_own_code(file)
    sources.count_as_own(["framework"])
    try:
        assert sources.is_own_code(file)
        assert not sources.is_standard(file)
        assert sources.is_standard(os.__file__)
    finally:
        sources.is_installed.cache_clear()
        sources.is_standard.cache_clear()
