"""Reports as notebooks show them."""

import linecache
from dataclasses import replace
from html.parser import HTMLParser

from graphguard.ir import Span
from graphguard.report.diagnostics import Diagnostic
from graphguard.report.notebook import ShownReport, html, sources_of

from .reports import BROKEN, REFINES

VOID = {"br", "hr", "img"}


class Outline(HTMLParser):
    """The open elements: none may be left open, none closed twice."""

    def __init__(self, text):
        super().__init__()
        self.open, self.summaries = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "summary":
            self.summaries.append(data)


def test_a_report_shows_verdict_findings_and_what_it_rests_on():
    shown = ShownReport.of(BROKEN)._repr_html_()
    outline = Outline(shown)
    assert outline.open == []
    assert ">broken</b> <code>mlp</code> on tp=2, 41 ms" in shown
    assert "error[missing-reduction]: &#x27;y&#x27; is a partial sum" in shown
    assert outline.summaries[0] == "What it rests on (1)"
    assert "<script" not in shown


def test_relations_are_folded_by_module():
    names = ("x", "layers.0.attn.h", "layers.0.attn.out", "layers.1.ffn.h")
    shown = html(replace(REFINES, relations=dict.fromkeys(names, "concat(h@0, h@1; dim=1)")))
    outline = Outline(shown)
    assert outline.open == []
    assert outline.summaries == ["Relations of 4 tensors", "layers.0.attn", "layers.1.ffn"]
    assert shown.count("<code>concat(h@0, h@1; dim=1)</code>") == 4


def test_names_are_text_and_no_markup():
    assert "<b>x" not in html(replace(REFINES, relations={"<b>x</b>": "<i>y"}, cautions=("<u>",)))


def test_cells_that_only_python_knows_are_quoted():
    linecache.cache["<cell 1>"] = (5, None, ["y = f(x)\n"], "<cell 1>")
    found = Diagnostic("wrong-scale", "wrong-scale", "twice", "error", Span("<cell 1>", 1, 5, 1, 9))
    report = replace(BROKEN, diagnostics=(found,))
    assert sources_of([report]).line("<cell 1>", 1) == "y = f(x)"
    assert "1 | y = f(x)" in html(report)
