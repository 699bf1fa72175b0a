import io

from graphguard.commands.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_nothing_where_there_is_no_terminal():
    stream = io.StringIO()
    progress = Progress(stream, 80)
    progress.show("working")
    progress.clear()
    assert stream.getvalue() == ""


def test_the_line_is_drawn_over_itself_and_taken_away():
    stream = Terminal()
    progress = Progress(stream, 80, total=7, done=2)
    progress.show("checks/a.py::a tp=2")
    progress.clear()
    progress.clear()
    assert stream.getvalue() == "\r\x1b[2K[3/7] checks/a.py::a tp=2\r\x1b[2K"


def test_the_line_stays_one_line():
    stream = Terminal()
    Progress(stream, 20).show("日本" * 20)
    assert stream.getvalue().count("日") + stream.getvalue().count("本") == 9
