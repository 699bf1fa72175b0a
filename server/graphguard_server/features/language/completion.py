"""``textDocument/completion``: settings in pyproject.toml, and relations where a check declares them."""

from __future__ import annotations

import re
from typing import Final

from lsprotocol import types

from graphguard.report.catalogue import RULES
from graphguard_server.serving.server import GraphGuardServer
from graphguard_server.texts.documents import path_of
from graphguard_server.texts.positions import content

METHOD: Final = types.TEXT_DOCUMENT_COMPLETION
OPTIONS: Final = types.CompletionOptions(trigger_characters=['"', "[", "="], resolve_provider=False)

SETTINGS: Final = {
    "checks": ('["checks/**/*.py"]', "Patterns of the files that hold checks."),
    "python": ('"python"', "The command of the interpreter that has the project's torch."),
    "timeout": ("60", "Seconds that one check may take."),
    "memory": ('"16 GiB"', "Memory that one check may use."),
    "rules": ("{ }", "Levels by rule: error, warning, information, hint or off."),
}
LEVELS: Final = ("error", "warning", "information", "hint", "off")
PLACEMENTS: Final = {
    "Shard(0)": "concatenation along a dim, in rank order",
    "Replicate()": "every rank has the whole tensor",
    "Partial()": "the sum over the ranks is the tensor",
}

PRAGMAS: Final = {
    "ignore[": "silence a rule on this line",
    "assume elementwise": "the operator of this line works element by element",
    "assume batched(bH, H -> bH)": "a function of the upper-case dims, alone at every position of the others",
    "assume linear(0; bI, -> bO)": "as batched, and linear in the tensor argument of that number",
}


def handle(server: GraphGuardServer, params: types.CompletionParams) -> types.CompletionList:
    """What fits at the position; nothing elsewhere, so that other servers' completions stay undisturbed."""
    path = path_of(params.text_document.uri)
    document = server.session.documents.get(params.text_document.uri)
    if path is None or document is None:
        return types.CompletionList(False, [])
    line, column = server.session.documents.ruler(path).place(params.position)
    before = content(document.lines[line])[:column]
    if path.endswith("pyproject.toml"):
        return types.CompletionList(False, _settings(document.lines[: line + 1], before))
    return types.CompletionList(False, _relations(server, before) if document.language == "python" else [])


def _settings(lines: tuple[str, ...], before: str) -> list[types.CompletionItem]:
    table = next((line.strip() for line in reversed(lines) if line.lstrip().startswith("[")), "")
    if table == "[tool.graphguard.rules]" or (table == "[tool.graphguard]" and before.lstrip().startswith("rules")):
        if re.search(r"=\s*\"?\w*$", before.rpartition("{")[2]):
            return [_item(level, f'"{level}"', "", types.CompletionItemKind.EnumMember) for level in LEVELS]
        return [
            _item(rule, f"{rule} = ", text.summary, types.CompletionItemKind.Property) for rule, text in RULES.items()
        ]
    if table == "[tool.graphguard]" and "=" not in before:
        kind = types.CompletionItemKind.Property
        return [_item(name, f"{name} = {value}", text, kind) for name, (value, text) in SETTINGS.items()]
    return []


def _relations(server: GraphGuardServer, before: str) -> list[types.CompletionItem]:
    """After ``out_relations=`` and ``in_relations=``: the placements; in a waiver: the rules."""
    if re.search(r"#\s*graphguard:\s*ignore\[[\w-]*$", before):
        return [_item(rule, rule, text.summary, types.CompletionItemKind.EnumMember) for rule, text in RULES.items()]
    if re.search(r"#\s*graphguard:\s*\w*$", before):
        return [_item(text, text, detail, types.CompletionItemKind.Keyword) for text, detail in PRAGMAS.items()]
    declared = re.search(r".*\b(out_relations|in_relations)\s*=\s*(.*)$", before)
    if declared is None or declared[2].count(")") > declared[2].count("("):
        return []
    items = [_item(name, name, text, types.CompletionItemKind.Function) for name, text in PLACEMENTS.items()]
    if declared[1] == "out_relations" and not declared[2].strip():
        for word, text in (("infer", "any clean relation, shown"), ("replicate", "every rank has every output")):
            items.append(_item(f'"{word}"', f'"{word}"', text, types.CompletionItemKind.EnumMember))
        items += [
            _item(f'{{"{axis}": {name}}}', f'{{"{axis}": {name}}}', text, types.CompletionItemKind.Struct)
            for axis in sorted({axis for run in server.session.runs() for axis in run.shown_mesh})
            for name, text in PLACEMENTS.items()
        ]
    return items


def _item(label: str, text: str, detail: str, kind: types.CompletionItemKind) -> types.CompletionItem:
    return types.CompletionItem(label=label, insert_text=text, detail=detail or None, kind=kind)
