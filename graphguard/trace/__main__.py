"""``python -m graphguard.trace``, or this file as a script: the tracing worker.

As a script it runs in any interpreter: this copy of GraphGuard is made importable by its place, and nothing else is put before what
the interpreter has itself.  ``GRAPHGUARD_FALLBACK_PATH`` lists folders to look in last.
"""

import importlib.util
import os
import sys


def _adopt_this_copy() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != here]
    package = os.path.dirname(here)
    place = os.path.join(package, "__init__.py")
    spec = importlib.util.spec_from_file_location("graphguard", place, submodule_search_locations=[package])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["graphguard"] = module
    spec.loader.exec_module(module)
    sys.path += [folder for folder in os.environ.get("GRAPHGUARD_FALLBACK_PATH", "").split(os.pathsep) if folder]


if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036 - the user's interpreter, not the one that GraphGuard is installed in
        sys.exit("GraphGuard needs Python 3.11 or newer; " + sys.executable + " is " + sys.version.split()[0])
    if not __package__:
        _adopt_this_copy()
    from graphguard.trace.programs.worker import main

    main()
