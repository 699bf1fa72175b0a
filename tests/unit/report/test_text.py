import itertools
from dataclasses import replace

from graphguard.ir import Span
from graphguard.report import text
from graphguard.report.diagnostics import REAL_ARITHMETIC, RelatedPlace
from graphguard.report.layout import Page

from .reports import BROKEN, FILE, MISSING, NOT_RUN, REFINES, TEXT, UNKNOWN, sources

WIDE = Page(100)


def test_a_finding_reads_like_a_compiler_error():
    assert text.findings([BROKEN], sources(), WIDE) == (
        """\
error[missing-reduction]: 'y' is a partial sum over axis 'tp' and is used as if it were whole
  --> examples/mlp.py:10:16
   |
 5 |         return self.down(gelu(self.up(x)))
   |                --------------------------- the specification computes it here
...
 9 |         h = gelu(self.up(x))
10 |         return self.down(h)
   |                ^^^^^^^^^^^^
   |
   = needed: out = out@0 = out@1
   = found: sum(out@0, out@1)
   = counterexample: rank 1, out[0, 2]: 3, specification 6
   = inputs: tp=2; all ones: x 2x8x64
   = fix: all_reduce(y) over 'tp' before the return (proved, moves 4.0 KiB)
   |
 9 |         h = gelu(self.up(x))
10 -         return self.down(h)
10 +         y = self.down(h)
11 +         dist.all_reduce(y, group=self.group)
12 +         return y

"""
    )


def test_the_summary_has_one_line_for_every_check_and_the_totals():
    assert text.summary([REFINES, BROKEN, NOT_RUN], WIDE) == (
        """\
examples/mlp.py::mlp  tp=2  refines  41 ms
examples/mlp.py::mlp  tp=2  broken  41 ms
    assumed: 0 <= ids < 100
examples/mlp.py::mlp        could not run  0 ms

3 checks: 1 refine, 1 broken, 1 could not run
"""
    )


def test_what_several_checks_rest_on_is_said_once():
    shown = text.summary([BROKEN, BROKEN, REFINES], WIDE)
    assert shown.count("0 <= ids < 100") == 1
    assert shown.endswith("3 checks: 1 refine, 2 broken\nassumed (2 checks): 0 <= ids < 100\n")


def test_what_every_proof_assumes_stands_last():
    report = replace(REFINES, assumed=(REAL_ARITHMETIC, "0 <= ids < 100"))
    shown = text.summary([report], WIDE).splitlines()
    assert shown[1] == "    assumed: 0 <= ids < 100"
    assert shown[3] == "1 check: 1 refine"
    assert " ".join(line.strip() for line in shown[4:]) == f"assumed: {REAL_ARITHMETIC}"


def test_inputs_of_a_counterexample_are_grouped_by_their_values():
    names = [f"w{number}" for number in range(8)]
    example = replace(
        BROKEN.counterexample,
        shapes={"x": (2, 3), **dict.fromkeys(names, (4,))},
        inputs={"x": "integers -2..2, seed 1", **dict.fromkeys(names, "all ones")},
    )
    shown = text.findings([replace(BROKEN, counterexample=example)], sources(), Page(200))
    assert (
        "= inputs: tp=2; integers -2..2, seed 1: x 2x3; all ones: w0 4, w1 4, w2 4, w3 4, w4 4, w5 4 and 2 more\n"
        in shown
    )


def test_a_further_fix_is_named_once():
    (fix,) = MISSING.fixes
    others = (fix, replace(fix, bytes_moved=0), replace(fix, title="other"), replace(fix, title="other"))
    shown = text.findings([replace(BROKEN, diagnostics=(replace(MISSING, fixes=others),))], sources(), WIDE)
    assert shown.count("= or: ") == 2


def test_verbose_shows_relations():
    formula, words = "    h = concat(h@0, h@1; dim=2)\n", "    h: Shard(2) over tp\n"
    assert formula in text.summary([BROKEN], WIDE, verbose=1)  # where no words say it
    told = replace(BROKEN, layouts={"h": "Shard(2) over tp"})
    assert words in text.summary([told], WIDE, verbose=1)
    assert formula in text.summary([told], WIDE, verbose=2)
    assert words not in text.summary([told], WIDE, verbose=2)


def test_the_counterexample_stands_with_the_first_error_only():
    report = replace(BROKEN, diagnostics=(*UNKNOWN.diagnostics, MISSING, MISSING))
    shown = text.findings([report], sources(), WIDE)
    assert shown.count("counterexample:") == 1
    assert shown.index("warning[unproved]") < shown.index("counterexample:")


def test_a_mark_in_another_file_gets_its_own_excerpt():
    other = "/project/lib/layers.py"
    report = replace(
        BROKEN, diagnostics=(replace(MISSING, related=(RelatedPlace(Span(other, 1, 1, 1, 7), "called here"),)),)
    )
    shown = text.findings([report], replace(sources(), texts={FILE: TEXT, other: "linear(x)\n"}), WIDE)
    assert "  ::: lib/layers.py:1:1\n   |\n 1 | linear(x)\n   | ------ called here\n" in shown


def test_two_calls_at_one_place_are_marked_once():
    twice = replace(MISSING, related=MISSING.related * 2)
    shown = text.findings([replace(BROKEN, diagnostics=(twice,))], sources(), WIDE)
    assert shown.count("the specification computes it here") == 1


def test_carets_stand_below_wide_characters_and_tabs():
    source = TEXT.replace("        return self.down(h)", "\treturn '日本', self.down(h)")
    span = Span(FILE, 10, 15, 10, 27)
    shown = text.findings(
        [replace(BROKEN, diagnostics=(replace(MISSING, span=span, related=()),))], sources(source), WIDE
    )
    line, carets = shown.splitlines()[4:6]
    assert line == "10 |     return '日本', self.down(h)"
    assert carets == "   |                    ^^^^^^^^^^^^"


def test_a_long_line_is_cut_around_the_mark():
    source = TEXT.replace("return self.down(h)", "return " + "aaaa, " * 40 + "self.down(h)" + ", bbbb" * 40)
    start = 16 + 6 * 40
    diagnostic = replace(MISSING, span=Span(FILE, 10, start, 10, start + 12), related=(), fixes=())
    shown = text.findings([replace(BROKEN, diagnostics=(diagnostic,))], sources(source), Page(60)).splitlines()
    line, carets = next((a, b) for a, b in itertools.pairwise(shown) if "^" in b)
    assert len(line) <= 60
    assert line[carets.index("^") : carets.rindex("^") + 1] == "self.down(h)"
    assert line.startswith("10 | ...")
    assert line.endswith("...")


def test_a_long_range_is_cut_in_its_middle():
    source = "call(\n" + "".join(f"    argument_{number},\n" for number in range(30)) + ")\n"
    diagnostic = replace(MISSING, span=Span(FILE, 1, 1, 32, 2), related=(), fixes=())
    shown = text.findings([replace(BROKEN, diagnostics=(diagnostic,))], sources(source), WIDE)
    assert "argument_1," in shown
    assert "argument_15," not in shown
    assert "argument_29," in shown


def test_a_file_that_is_gone_still_gives_the_message():
    shown = text.findings([BROKEN], sources(""), WIDE)
    assert "  --> examples/mlp.py:10:16\n" in shown
    assert "= note: the specification computes it here" in shown
    assert "= fix: all_reduce(y)" in shown


def test_no_escape_sequence_of_a_source_reaches_the_terminal():
    source = TEXT.replace("self.down(h)", "'\x1b[31m'(h)   ")
    assert "\x1b" not in text.findings([BROKEN], sources(source), WIDE)


def test_colours_only_where_asked_for():
    assert "\x1b[1;31merror[missing-reduction]\x1b[0m" in text.findings([BROKEN], sources(), Page(100, colour=True))
    assert "\x1b" not in text.render([BROKEN, REFINES], sources(), WIDE)


def test_notes_are_wrapped_to_the_width():
    diagnostic = replace(MISSING, message="headline\nneeded: " + "word " * 40, fixes=())
    shown = text.findings([replace(BROKEN, diagnostics=(diagnostic,), counterexample=None)], sources(), Page(60))
    assert all(len(line) <= 60 for line in shown.splitlines() if "word" in line)
    assert shown.count("word") == 40


def test_a_finding_that_meshes_share_is_told_once():
    second = replace(BROKEN, mesh={"tp": 4}, diagnostics=(replace(MISSING, message="the same on 4 ranks"),))
    shown = text.findings([REFINES, BROKEN, second], sources(), WIDE)
    assert shown.count("error[") == 1
    assert "   = meshes: tp=2; tp=4\n" in shown
    assert shown.count("counterexample:") == 1


def test_two_findings_at_one_place_stay_two():
    assert text.findings([replace(BROKEN, diagnostics=(MISSING, MISSING))], sources(), WIDE).count("error[") == 2


def test_what_is_said_at_the_check_itself_is_told_apart_by_its_words():
    reports = [
        replace(NOT_RUN, diagnostics=(replace(NOT_RUN.diagnostics[0], message=message, span=NOT_RUN.check.span),))
        for message in ("one", "two", "one")
    ]
    assert text.findings(reports, sources(), WIDE).count("error[") == 2


def test_errors_below_one_line_are_told_apart_by_their_words_and_by_where_they_were_raised():
    raised = RelatedPlace(Span("lib.py", 3), "raised here")
    errors = [
        ("size 4 is too small", raised),
        ("size 8 is too small", raised),
        ("another", raised),
        ("another", replace(raised, span=Span("lib.py", 9))),
    ]
    line = Span(FILE, 10, 16)
    reports = [
        replace(NOT_RUN, diagnostics=(replace(NOT_RUN.diagnostics[0], message=said, span=line, related=(place,)),))
        for said, place in errors
    ]
    assert text.findings(reports, sources(), WIDE).count("error[") == 3


def test_a_finding_of_an_earlier_check_is_pointed_at():
    other = replace(BROKEN, check=replace(BROKEN.check, id="examples/other.py::mlp"))
    told = set()
    assert "error[" in text.findings([BROKEN], sources(), WIDE, told)
    assert text.findings([other], sources(), WIDE, told) == ""
    assert "broken  41 ms  (the finding of examples/mlp.py::mlp)\n" in text.summary([BROKEN, other], WIDE)
