"""The documentation is right as it stands: its programs are run, its commands print what it says, its links lead somewhere, and the site has all of its pages.

``--record`` writes into a page what its commands print today.
"""

import ast
import importlib.util
import re
import sys
from pathlib import Path

import pytest

from .pages import PageError, blocks, followed, packages, untried

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
USERS = ("ci", "concepts", "faq", "limits", "start", "unknown")
# Pages that are followed from top to bottom.
FOLLOWED = [ROOT / "README.md", *(DOCS / f"{name}.md" for name in USERS), *sorted((DOCS / "how").glob("[a-z]*.md"))]
# Pages whose Python explains, in pieces that do not run alone; the programs of the guide are run by test_guide.py.
PIECES = {"CONTRIBUTING.md", "docs/engine.md", "docs/guide.md", "docs/tracing.md"}
INSTALLED = {"graphguard", "pytest", "numpy", "torch"}


def loaded(path: Path):
    specification = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


SITE = loaded(DOCS / "repository.py")
DOCUMENTS = sorted([*DOCS.rglob("*.md"), *(ROOT / path for path in SITE.PAGES)])


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def followed_pages():
    for path in FOLLOWED:
        text = path.read_text(encoding="utf-8")
        own = {Path(block.title).stem for block in blocks(text)}
        frameworks = sorted(packages(text) - own - INSTALLED - sys.stdlib_module_names)
        marks = [pytest.mark.slow, pytest.mark.timeout(900), *([pytest.mark.frameworks] if frameworks else [])]
        yield pytest.param(path, frameworks, id=shown(path), marks=marks)


@pytest.mark.parametrize(("path", "frameworks"), [*followed_pages()])
def test_a_page_does_what_it_says(path, frameworks, tmp_path, request):
    missing = [name for name in frameworks if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: make frameworks")
    page = path.read_text(encoding="utf-8")
    found = followed(page, tmp_path)
    if request.config.getoption("--record"):
        path.write_text(found, encoding="utf-8")
    else:
        assert found == page


@pytest.mark.parametrize("path", FOLLOWED, ids=shown)
def test_every_file_of_a_page_is_run(path):
    text = path.read_text(encoding="utf-8")
    assert not untried(text)
    assert all(block.title for block in blocks(text) if block.language in ("python", "diff"))


@pytest.mark.parametrize("path", DOCUMENTS, ids=shown)
def test_python_of_a_page_is_python(path):
    """A page that is not followed has pieces only: these of rules are written with the rule, whose cases are run."""
    python = [block.body for block in blocks(path.read_text(encoding="utf-8")) if block.language == "python"]
    for body in python:
        ast.parse(body)
    assert not python or path in FOLLOWED or shown(path) in PIECES or path.parent.name == "rules"


@pytest.mark.parametrize("path", DOCUMENTS, ids=shown)
def test_links_lead_somewhere(path):
    text = "".join(part for fenced, part in SITE.parts(path.read_text(encoding="utf-8")) if not fenced)
    for link in SITE.LINK.finditer(text):
        if ":" not in link["target"]:
            target = (path.parent / link["target"]).resolve() if link["target"] else path
            assert target.exists(), link[0]
            assert not link["anchor"] or link["anchor"][1:] in anchors(target), link[0]


def anchors(path: Path) -> set[str]:
    """The places of a page, as GitHub and the site name them."""
    text = "".join(part for fenced, part in SITE.parts(path.read_text(encoding="utf-8")) if not fenced)
    titles = re.findall(r"^#+ (.+)$", text, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_page_is_in_the_navigation_once():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    pages = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]
    assert sorted(re.findall(r"[\w/-]+\.md$", navigation, flags=re.M)) == sorted([*pages, *SITE.PAGES.values()])


PAGE = """
```python title="checks/double.py"
import graphguard as gg
```

```diff title="checks/double.py"
-import graphguard as gg
+import graphguard
```

```console
$ graphguard check checks/double.py
checks/double.py: no checks
```
"""


def test_what_a_command_prints_is_compared(tmp_path):
    page = followed(PAGE, tmp_path)
    assert page != PAGE
    assert (tmp_path / "checks/double.py").read_text() == "import graphguard\n"
    assert followed(page, tmp_path / "again") == page
    gap = re.sub(r"(double.py\n)[^`]+", r"\1...\n", page)
    assert "...\n```" in gap
    assert followed(gap, tmp_path / "gap") == gap


def test_a_page_runs_our_commands_only(tmp_path):
    with pytest.raises(PageError, match="not 'rm'"):
        followed("```console\n$ rm -r checks\n```\n", tmp_path)


def test_an_edit_has_one_place(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\nx = 1\n")
    with pytest.raises(PageError, match="2 places"):
        followed('```diff title="a.py"\n-x = 1\n+x = 2\n```\n', tmp_path)


def test_a_file_that_no_command_names_is_told():
    assert untried(PAGE) == []
    assert untried(PAGE.replace("$ graphguard check checks/double.py", "$ graphguard doctor")) == ["checks/double.py"]
