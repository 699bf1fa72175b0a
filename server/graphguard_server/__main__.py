"""``python -m graphguard_server``: the language server on standard input and output."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
from typing import NoReturn

from graphguard_server.assembly import assembled
from graphguard_server.processes.engine import Engine
from graphguard_server.serving.stdio import Writer, guarded_streams, serve


def run(engine: Engine) -> NoReturn:
    """Serve one client on standard input and output, then end the process."""
    own_input, own_output = guarded_streams()
    level = os.environ.get("GRAPHGUARD_LOG", "WARNING").upper()
    logging.basicConfig(stream=sys.stderr, level=level, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger("pygls").setLevel(logging.ERROR)  # at INFO it logs every body
    server = assembled(engine)
    gc.collect()
    gc.freeze()  # what was imported stays: a collection while somebody types has less to look at
    writer = Writer(own_output)
    server.protocol.set_writer(writer)
    status = asyncio.run(serve(server.connection, own_input))
    writer.close()
    sys.stderr.flush()
    os._exit(status)  # the reader's thread still waits for input and must not hold up the end


def main() -> NoReturn:
    """Serve with the installed engine."""
    from graphguard_server.processes.installed import installed_engine

    run(installed_engine())


if __name__ == "__main__":
    main()
