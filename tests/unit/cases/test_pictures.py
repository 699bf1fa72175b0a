import xml.etree.ElementTree as ElementTree

from graphguard.report import text
from graphguard.report.layout import Page
from tests.cases.pictures import picture
from tests.unit.report.reports import BROKEN, sources


def test_a_picture_shows_every_line_in_its_colours():
    coloured = text.findings([BROKEN], sources(), Page(100, colour=True))
    plain = text.findings([BROKEN], sources(), Page(100))
    tree = ElementTree.fromstring(picture(coloured))
    lines = ["".join(line.itertext()) for line in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert lines == plain.rstrip("\n").split("\n")
    first = next(tree.iter("{http://www.w3.org/2000/svg}tspan"))
    assert (first.text, first.get("fill")) == ("error[missing-reduction]", "#f47067")


def test_browsers_keep_the_spaces_of_a_picture():
    """They collapse them unless each line says so itself: what a group says does not reach its lines."""
    lines = [*ElementTree.fromstring(picture("  --> a.py\n   |")).iter("{http://www.w3.org/2000/svg}text")]
    assert [line.get("{http://www.w3.org/XML/1998/namespace}space") for line in lines] == ["preserve", "preserve"]
