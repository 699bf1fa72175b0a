"""Stands in for the prover: a value made by ``partial(...)`` must be given to ``all_reduce`` later in its function."""

from __future__ import annotations

import ast
import hashlib
import os
import sys

from graphguard.trace.process import wire

PROOFS: dict[str, dict[str, str]] = {}


def span(path: str, text: str, node: ast.AST) -> dict:
    lines = text.split("\n")
    column = len(lines[node.lineno - 1].encode()[: node.col_offset].decode()) + 1
    end = len(lines[node.end_lineno - 1].encode()[: node.end_col_offset].decode()) + 1
    return {"file": path, "line": node.lineno, "column": column, "end_line": node.end_lineno, "end_column": end}


def calls(text: str, name: str) -> list[tuple[ast.Call, str]]:
    """Calls of ``name`` with the variable they are bound to, or are given."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            call, variable = node.value, ast.unparse(node.targets[0])
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and node.value.args:
            call, variable = node.value, ast.unparse(node.value.args[0])
        else:
            continue
        if isinstance(call.func, ast.Name) and call.func.id == name:
            found.append((call, variable))
    return found


def prove(texts: dict[str, str]) -> dict:
    key = hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest()
    PROOFS[key] = texts
    findings = []
    for path, text in texts.items():
        reduced = {variable for _, variable in calls(text, "all_reduce")}
        for call, variable in calls(text, "partial"):
            if variable not in reduced:
                line = text.split("\n")[call.lineno - 1]
                indent = line[: len(line) - len(line.lstrip())]
                here = {
                    "file": path,
                    "line": call.end_lineno + 1,
                    "column": 1,
                    "end_line": call.end_lineno + 1,
                    "end_column": 1,
                }
                edit = {"span": here, "text": f"{indent}all_reduce({variable})\n"}
                findings.append({"span": span(path, text, call), "variable": variable, "edit": edit})
    return {"proof": key, "findings": findings}


def end_once(texts: dict[str, str]) -> None:
    """Where a file says FORGET: end, and with that forget every proof, the first time."""
    for path, text in texts.items():
        mark = path + ".forgotten"
        if "FORGET" in text and not os.path.exists(mark):
            with open(mark, "w"):
                os._exit(1)


def places(proof: str) -> list[dict]:
    end_once(PROOFS[proof])
    found = []
    for path, text in PROOFS[proof].items():
        for name, relation in (
            ("partial", "sum({0}@0, {0}@1)"),
            ("all_reduce", "{0}@0 = {0}@1"),
            ("shard", "concat({0}@0, {0}@1; dim=1)"),
        ):
            for call, variable in calls(text, name):
                row = {
                    "span": span(path, text, call),
                    "side": "implementation",
                    "operator": f"toy.{name}",
                    "shape": [2, 8],
                }
                found.append(
                    {**row, "text": relation.format(variable), "ranks": [0, 1], "phase": "forward", "depth": 0}
                )
    return found


def with_counterparts(rows: list[dict], texts: dict[str, str]) -> list[dict]:
    """Values of a file beside one named spec.py have their counterpart in its return statement."""
    for path, text in texts.items():
        if path.endswith("spec.py"):
            node = next(each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.Return))
            place = span(path, text, node)
            rows = [{**row, "counterpart": place} for row in rows]
            there = {
                "span": place,
                "side": "specification",
                "operator": "toy",
                "shape": [2],
                "text": "h@0",
                "phase": "forward",
            }
            rows.append({**there, "counterpart": rows[-1]["span"]})
    return rows


def picture(proof: str) -> dict:
    """What is shared, and the partial sum made of it, on two ranks; both programs run the same code."""
    found = [(row["operator"], row) for row in places(proof) if row["operator"] in ("toy.shard", "toy.partial")]
    sites = [{"kind": "operator", "operators": [operator], "spans": [row["span"]]} for operator, row in found]
    rows = []
    for number, (operator, row) in enumerate(sorted(found, key=lambda each: each[1]["span"]["line"])):
        site = next(at for at, each in enumerate(sites) if each["spans"] == [row["span"]])
        broken = operator == "toy.partial"
        cell = {"site": site, "name": "", "shape": [2, 8], "text": "" if broken else f"a[:, {4 * number}:8]"}
        rows.append(
            {
                "module": "mlp",
                "phase": "forward",
                "state": "broken" if broken else "proved",
                "layout": "" if broken else "Shard(1) over tp",
                "relation": "" if broken else row["text"],
                "cells": [{**cell, "text": ""}, cell, cell],
                "reads": [number - 1] if broken else [],
            }
        )
    proved = sum(row["state"] == "proved" for row in rows)
    groups = [{"name": "mlp", "depth": 0, "start": 0, "end": len(rows), "proved": proved}]
    return {"sites": sites, "ranks": [[0, 1]], "rows": rows, "groups": groups}


def main() -> None:
    stream = os.fdopen(os.dup(1), "wb")
    while (message := wire.read(sys.stdin.buffer)) is not None:
        if "id" not in message:
            continue
        method, params = message["method"], message["params"]
        if method == "prove":
            wire.write(stream, {"id": message["id"], "result": prove(params["texts"])})
        elif method == "places":
            wire.write(
                stream,
                {"id": message["id"], "result": with_counterparts(places(params["proof"]), PROOFS[params["proof"]])},
            )
        elif method == "relations":
            wire.write(
                stream,
                {
                    "id": message["id"],
                    "result": {"out": "out@0 = out@1", "up.weight": "concat(up.weight@0, up.weight@1; dim=0)"},
                },
            )
        elif method == "claimed":
            wire.write(stream, {"id": message["id"], "result": ["inputs: x 2×8", "gradients: not compared"]})
        elif method == "picture":
            wire.write(stream, {"id": message["id"], "result": picture(params["proof"])})
        else:
            wire.write(stream, {"id": message["id"], "result": {}})


main()
