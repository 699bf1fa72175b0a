"""What is read instead of what, in words that a person knows."""

from graphguard.relations.explain.differences import Difference, Place, Read
from graphguard.repair.text.reads import reads_text

DRAWN = "aten.rand.default() drawn as default#{}"
FOLLOWED = "aten._fft_c2r.default('tensor', 0) drawn as unknown#{}"


def read(found: str, needed: str) -> Difference:
    return Difference((2, 0), (Read(Place(found, (1,)), Place(needed, (4,))),))


def test_leaves_go_by_the_authors_names():
    assert reads_text(read("0", "1"), "out", {"0": "q", "1": "k"}) == "out[2, 0] reads q[1], needs k[4]"


def test_what_has_no_name_goes_by_its_operator():
    told = reads_text(read(DRAWN.format(1), FOLLOWED.format(2)), "out", {})
    assert told == "out[2, 0] reads a result of rand[1], needs a result of fft_c2r[4]"


def test_what_reads_alike_is_not_told():
    alike = Read(Place(FOLLOWED.format(1), (4,)), Place(FOLLOWED.format(2), (4,)))
    assert reads_text(Difference((), (alike,)), "out", {}) == ""
