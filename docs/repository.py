"""Hooks of mkdocs: the site shows README.md and its like as pages, and the sources that pages link to.

Documents link to one another and to sources as they lie in the repository. Here these links become those of the site.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from posixpath import dirname, normpath, relpath
from typing import Any

ROOT = Path(__file__).parents[1]
# Documents outside of docs/, and the pages that they are.
PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "client/README.md": "vscode.md",
    "tests/cases/README.md": "cases.md",
}
_FENCED = re.compile(r"^[ ]*(`{3,}).*?^[ ]*\1[ ]*$", re.M | re.S)
# A link or a picture, in the text outside of fenced blocks.
LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^()\s#]*)(?P<anchor>#[^()\s]*)?\)")
_SOURCE = """---
search:
  exclude: true
---
# {path}

`````{language}
{text}
`````
"""


def on_files(files: Any, config: Any) -> Any:
    """Add the documents outside of docs/, and a page for each source that any document links to."""
    from mkdocs.structure.files import File, InclusionLevel

    for path, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / path)))
    for path in sorted({linked for file in files.documentation_pages() for linked in _sources(file)}):
        source = ROOT / path
        content = _SOURCE.format(path=path, language=source.suffix[1:], text=source.read_text(encoding="utf-8"))
        files.append(File.generated(config, _page(path), content=content, inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links as they are on the site; a folder of the repository is named only."""
    place = page.file.src_uri
    if place.startswith("source/"):
        return markdown

    def rewritten(link: re.Match[str]) -> str:
        path = _path(link["target"], place)
        if path is None:
            return link[0]
        if (ROOT / path).is_dir():
            return link["text"]
        return f"{link['image']}[{link['text']}]({relpath(_page(path), dirname(place) or '.')}{link['anchor'] or ''})"

    markdown = markdown.replace("<details>", '<details markdown="1">')  # what is in it is Markdown, as on GitHub
    return "".join(part if fenced else LINK.sub(rewritten, part) for fenced, part in parts(markdown))


def _sources(file: Any) -> Iterator[str]:
    """The files outside of the documents that a page links to."""
    for fenced, part in parts(file.content_string):
        for link in () if fenced else LINK.finditer(part):
            path = _path(link["target"], file.src_uri)
            if path is not None and path not in PAGES and not path.startswith("docs/") and (ROOT / path).is_file():
                yield path


def _path(target: str, place: str) -> str | None:
    """The path in the repository that a page's link means; None for an address or a place on the page itself."""
    if not target or ":" in target:
        return None
    origin = {page: path for path, page in PAGES.items()}.get(place, f"docs/{place}")
    return normpath(f"{dirname(origin)}/{target}".lstrip("/"))


def _page(path: str) -> str:
    """Where the site has a file of the repository."""
    return PAGES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else f"source/{path}.md")


def parts(markdown: str) -> Iterator[tuple[bool, str]]:
    """The text in order, each part with whether it is a fenced block."""
    end = 0
    for block in _FENCED.finditer(markdown):
        yield False, markdown[end : block.start()]
        yield True, block[0]
        end = block.end()
    yield False, markdown[end:]
