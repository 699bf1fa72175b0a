"""What a program asks of its machine while it is recorded is noted, and another answer today makes what was recorded stale."""

import os
import sys

import pytest
from test_audits import in_child

from graphguard.ir.codec import dumps, loads
from graphguard.trace.depends.footprint import Watch, unchanged
from graphguard.trace.source.sources import ProjectFiles, import_file

RUN = {  # by name: what the program does, and what changes the answer
    "os.path.exists": ("os.path.exists('flag')", "touch flag"),
    "os.path.lexists": ("os.path.lexists('flag')", "touch flag"),
    "Path.exists": ("Path('flag').exists()", "touch flag"),
    "Path.is_file": ("Path('flag').is_file()", "touch flag"),
    "os.path.isfile": ("os.path.isfile('data.txt')", "rm data.txt && mkdir data.txt"),
    "os.path.isdir": ("os.path.isdir('folder')", "rm -r folder && touch folder"),
    "os.access": ("os.access('flag', os.R_OK)", "touch flag"),
    "os.path.getsize": ("os.path.getsize('data.txt')", "echo more >> data.txt"),
    "os.stat": ("os.stat('data.txt').st_size", "echo more >> data.txt"),
    "Path.stat": ("Path('data.txt').stat().st_mtime", "touch -d 2001-01-01 data.txt"),
    "os.path.getmtime": ("os.path.getmtime('data.txt')", "touch -d 2001-01-01 data.txt"),
    "os.path.samefile": ("os.path.samefile('data.txt', 'folder/one')", "ln -f folder/one data.txt"),
    "os.readlink": ("os.readlink('link')", "ln -sf folder link"),
    "os.path.realpath": ("os.path.realpath('link')", "ln -sf folder link"),
    "glob": ("glob.glob('folder/*')", "touch folder/two"),
    "glob below": ("glob.glob('**/*.txt', recursive=True)", "touch folder/two.txt"),
    "os.listdir": ("os.listdir('folder')", "rm folder/one"),
    "os.listdir of the current folder": ("os.listdir()", "touch flag"),
    "Path.iterdir": ("list(Path('folder').iterdir())", "touch folder/two"),
    "Path.rglob": ("list(Path('.').rglob('*.txt'))", "touch folder/two.txt"),
    "os.walk": ("list(os.walk('.'))", "touch folder/two"),
    "os.scandir": ("[e.stat().st_size for e in os.scandir('folder')]", "echo more >> folder/one"),
    "shutil.which": ("shutil.which('tool', path='folder')", "touch folder/tool && chmod +x folder/tool"),
    "open": ("open('data.txt').read()", "echo more >> data.txt"),
    "open that fails": ("try_open('flag')", "touch flag"),
    "open of a source": ("open('program.py').read()", "echo '# a comment' >> program.py"),
    "np.fromfile": ("numpy.fromfile('data.txt', dtype='uint8')", "echo more >> data.txt"),
    "torch.load": ("torch.load('numbers.pt')", "cp other.pt numbers.pt"),
    "open in a temporary folder": ("open(TEMPORARY).read()", "echo more >> $TEMPORARY"),
    "open of what it appends to": ("append('data.txt')", "echo more >> data.txt"),
    "a module that is missing": ("try_import('fast_kernels')", "touch fast_kernels.py"),
    "a package that is missing": ("importlib.util.find_spec('fast_kernels')", "mkdir fast_kernels"),
    "a module of a package that is missing": ("try_import('package.fast')", "touch package/fast.py"),
    "a module before another": ("__import__('own')", "mkdir own && touch own/__init__.py"),
    "os.environ": ("os.environ['ASKED']", "ASKED=2"),
    "os.environ.get": ("os.environ.get('NOT_SET')", "NOT_SET=1"),
    "in os.environ": ("'NOT_SET' in os.environ", "NOT_SET=1"),
    "os.getenvb": ("os.getenvb(b'NOT_SET')", "NOT_SET=1"),
    "os.environb": ("os.environb.get(b'ASKED')", "ASKED=2"),
    "every variable": ("[k for k in os.environ if k.startswith('NOT_')]", "NOT_SET=1"),
    "a copy of the environment": ("dict(os.environ)", "NOT_SET=1"),
}
HARMLESS = {
    "exists, of another content": ("os.path.exists('data.txt')", "echo more >> data.txt"),
    "isfile, of another content": ("Path('data.txt').is_file()", "echo more >> data.txt"),
    "size, of another time": ("os.path.getsize('data.txt')", "touch -d 2001-01-01 data.txt"),
    "names, of another content": ("os.listdir('folder')", "echo more >> folder/one"),
    "glob, of another content": ("glob.glob('folder/*')", "echo more >> folder/one"),
    "a file that nobody asked for": ("open('data.txt').read()", "touch flag folder/two"),
    "what it writes itself": ("[open('mine', 'w').write('a'), open('mine').read()]", "rm mine"),
    "a folder of its own": ("[os.makedirs('mine/deep'), os.listdir('mine/deep')]", "rm -r mine"),
    "a comment in a module": ("__import__('own')", "echo '# comment' >> own.py"),
    "a variable that nobody asked for": ("os.environ.get('NOT_SET')", "OTHER=1"),
    "the null device": ("open(os.devnull).read()", "true"),
    "what torch looks at": ("torch.get_num_threads()", "touch flag"),
}
BEYOND = {
    "a child process": "subprocess.run(['true'])",
    "os.system": "os.system('true')",
    "the kernel": "open('/proc/self/stat').read()",
    "a folder of the kernel's": "os.listdir('/proc')",
    "another host": "try_connect()",
    "a large file": "open('large', 'rb').read(1)",
    "space on the disk": "shutil.disk_usage('.')",
}
PROGRAM = """
import glob, importlib.util, os, shutil, socket, subprocess
from pathlib import Path
import numpy, torch
TEMPORARY = {temporary!r}

def try_open(path):
    try:
        return open(path).read()
    except OSError:
        return None

def try_import(name):
    try:
        return __import__(name)
    except ImportError:
        return None

def append(path):
    with open(path, "a") as stream:
        stream.write("x" if stream.tell() > 3 else "y")

def try_connect():
    try:
        socket.create_connection(("127.0.0.1", 9), timeout=0.1)
    except OSError:
        return None

{asked}
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    import torch

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASKED", "1")
    (tmp_path / "folder").mkdir()
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "folder" / "one").write_text("one")
    (tmp_path / "own.py").write_text("X = 1\n")
    (tmp_path / "link").symlink_to("data.txt")
    (tmp_path / "data.txt").write_text("1.5\n")
    (tmp_path / "large").write_bytes(bytes(2**24 + 1))
    torch.save(torch.ones(2), tmp_path / "numbers.pt")
    torch.save(torch.zeros(2), tmp_path / "other.pt")
    return tmp_path


def footprint_of(project, asked, temporary=""):
    """What is noted where a program does something, as it is read again from the disk."""
    (project / "program.py").write_text(PROGRAM.format(asked=asked, temporary=temporary))

    def run():
        files = ProjectFiles({})
        files.install()
        watch = Watch(files)
        watch.install()
        import_file(str(project / "program.py"), str(project), files)
        found = watch.found()
        return {"environment": found.environment, "answers": found.answers, "lost": found.lost}

    found = in_child(run)
    return found.pop("lost"), loads(dumps(found))


def change(command, temporary=""):
    """Do what a shell command says; an assignment is one to our own environment."""
    name, is_assignment, value = command.partition("=")
    if is_assignment and name.isidentifier():
        return {**os.environ, name: value}
    assert os.system(command.replace("$TEMPORARY", temporary)) == 0
    return dict(os.environ)


@pytest.mark.parametrize("name", RUN)
def test_another_answer_makes_it_stale(project, name, tmp_path_factory):
    asked, command = RUN[name]
    temporary = str(tmp_path_factory.mktemp("elsewhere") / "file")
    with open(temporary, "w") as stream:
        stream.write("1")
    lost, footprint = footprint_of(project, asked, temporary)
    assert not lost
    if "append" not in asked:
        assert unchanged(footprint, os.environ)
    assert not unchanged(footprint, change(command, temporary))


@pytest.mark.parametrize("name", HARMLESS)
def test_what_was_not_asked_leaves_it_fresh(project, name):
    asked, command = HARMLESS[name]
    lost, footprint = footprint_of(project, asked)
    assert not lost
    assert unchanged(footprint, change(command))


@pytest.mark.parametrize("name", BEYOND)
def test_what_cannot_be_compared_is_not_kept(project, name):
    lost, _ = footprint_of(project, BEYOND[name])
    assert lost


def test_processes_of_a_check_that_had_different_answers_are_not_kept(project):
    _, first = footprint_of(project, "open('data.txt').read()")
    (project / "data.txt").write_text("2.5\n")
    _, second = footprint_of(project, "open('data.txt').read()")
    from graphguard.trace.depends.footprint import Footprint

    merged = Footprint(answers=first["answers"])
    merged.merge(Footprint(answers=second["answers"]))
    assert merged.lost == str(project / "data.txt")


def test_an_unknown_question_is_a_damaged_entry():
    with pytest.raises(KeyError):
        unchanged({"environment": {}, "answers": {"weather": {"/": "fine"}}}, {})


def test_this_python_asks_by_the_functions_that_are_heard():
    """``os.path`` and ``pathlib`` go by ``os.stat``; were they written in C, nothing would be heard."""
    assert type(os.path.exists).__name__ == type(os.path.getsize).__name__ == "function", sys.version
