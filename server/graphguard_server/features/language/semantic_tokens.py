"""``textDocument/semanticTokens/full``: names coloured by how their tensor is laid out; off by default."""

from __future__ import annotations

import re
from typing import Final

from lsprotocol import types

from graphguard_server.features.language.tensors import assigned_in
from graphguard_server.serving.server import GraphGuardServer
from graphguard_server.texts.documents import path_of
from graphguard_server.texts.positions import units

METHOD: Final = types.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL
MODIFIERS: Final = ("replicated", "sharded", "partial", "unrelated")
OPTIONS: Final = types.SemanticTokensLegend(token_types=["variable"], token_modifiers=list(MODIFIERS))


def handle(server: GraphGuardServer, params: types.SemanticTokensParams) -> types.SemanticTokens:
    """Tokens for the assigned names; while a text is checked anew the last ones keep still."""
    path = path_of(params.text_document.uri)
    session = server.session
    if path is None or not session.settings.semantic_tokens:
        return types.SemanticTokens(data=[])
    found: dict[tuple[int, int], tuple[int, int]] = {}
    lines = session.documents.lines(path)
    for assigned in assigned_in(session, path):
        line, column, name = assigned.line, assigned.column, assigned.name
        start = units(lines[line][: column - len(name)], session.documents.encoding)
        modifier = 1 << MODIFIERS.index(layout(assigned.places[-1].text))
        found.setdefault((line, start), (units(name, session.documents.encoding), modifier))
    return types.SemanticTokens(data=_encoded(found))


def layout(relation: str) -> str:
    """The layout that a relation's text speaks of."""
    if relation.startswith("sum(") or "partial sum of " in relation:
        return "partial"
    if relation.startswith("concat(") or re.search(r"\[[^\]]*:[^\]]*\]$", relation):
        return "sharded"
    return "unrelated" if relation.startswith(("not on", "no clean")) else "replicated"


def _encoded(tokens: dict[tuple[int, int], tuple[int, int]]) -> list[int]:
    data: list[int] = []
    before = (0, 0)
    for (line, start), (length, modifiers) in sorted(tokens.items()):
        data += [line - before[0], start - before[1] if line == before[0] else start, length, 0, modifiers]
        before = (line, start)
    return data
