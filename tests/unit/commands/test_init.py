import pytest

from graphguard.cli import main


def test_a_new_project_checks_at_once(tmp_path, monkeypatch, capsys):
    assert main(["init", str(tmp_path)]) == 0
    monkeypatch.chdir(tmp_path)
    assert main(["check"]) == 0
    assert "checks/first_check.py::column_linear  tp=2  refines" in capsys.readouterr().out


def test_what_is_there_is_left_alone(tmp_path, capsys):
    (tmp_path / "pyproject.toml").write_text('[tool.graphguard]\nchecks = ["mine.py"]')
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "first_check.py").write_text("mine")
    assert main(["init", str(tmp_path)]) == 0
    assert (tmp_path / "pyproject.toml").read_text() == '[tool.graphguard]\nchecks = ["mine.py"]'
    assert (tmp_path / "checks" / "first_check.py").read_text() == "mine"


@pytest.mark.parametrize("before", ["[project]\nname = 'x'\n", "[project]\nname = 'x'", ""])
def test_a_section_is_added(tmp_path, before):
    (tmp_path / "pyproject.toml").write_text(before)
    assert main(["init", str(tmp_path)]) == 0
    text = (tmp_path / "pyproject.toml").read_text()
    assert text.startswith(before)
    assert text.endswith('[tool.graphguard]\nchecks = ["checks/*.py"]\n')


def test_a_file_that_is_no_toml(tmp_path, capsys):
    (tmp_path / "pyproject.toml").write_text("[project\n")
    assert main(["init", str(tmp_path)]) == 2
    assert "pyproject.toml: not TOML" in capsys.readouterr().err
