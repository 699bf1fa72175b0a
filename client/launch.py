"""Runs a module of the engine bundled in the extension: ``python launch.py graphguard_server [ARGUMENTS]``.

The bundled packages come first here, in the server's own process.  In the processes that run user code they must come last, so that
the project's own versions win; the environment variables tell whoever starts those processes where the bundle lies.
"""

import os
import runpy
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ENGINE = os.path.join(HERE, "engine")
LIBRARIES = os.path.join(HERE, "libs")

if __name__ == "__main__":
    del sys.argv[0]
    sys.path[0:1] = [ENGINE, LIBRARIES]
    os.environ["GRAPHGUARD_ENGINE_PATH"] = ENGINE
    os.environ["GRAPHGUARD_FALLBACK_PATH"] = LIBRARIES
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
