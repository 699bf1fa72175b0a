"""Every message beyond the Language Server Protocol, in one table that the server, the documentation and the tests read.

``python -m graphguard_server.serving.protocol`` prints docs/protocol.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

VERSION: Final = 2

STATUS: Final = "graphguard/status"
CHECKS: Final = "graphguard/checks"
MARKS: Final = "graphguard/marks"
RUN: Final = "graphguard/run"
CANCEL: Final = "graphguard/cancel"
RELATIONS: Final = "graphguard/relations"
ROWS: Final = "graphguard/rows"
FIND: Final = "graphguard/find"
EXPLAIN: Final = "graphguard/explain"
REPRODUCE: Final = "graphguard/reproduce"
AWAIT_FIX: Final = "graphguard/awaitFix"
CLEAR_CACHE: Final = "graphguard/clearCache"
RESTART: Final = "graphguard/restart"
DEBUG_INFORMATION: Final = "graphguard/debugInformation"
TRUST: Final = "graphguard/trust"

RUN_STATES: Final = (
    "idle",
    "queued",
    "tracing",
    "proving",
    "proved",
    "assumed",
    "unknown",
    "broken",
    "error",
)


@dataclass(frozen=True, slots=True)
class Message:
    """A custom request or notification: its name, who sends it, the shape of what it carries, and what it is for."""

    method: str
    kind: Literal["request", "notification"]
    sender: Literal["client", "server"]
    params: str
    result: str
    purpose: str

    @property
    def command(self) -> str:
        """The name under which editors without custom requests call it through ``workspace/executeCommand``."""
        return self.method.replace("/", ".")


_RUN_KEY = "{id: string, mesh?: {[axis]: number}}"

_CELL = "{code, name, operators: [string], kind, shape: [number], text: string, location?: {uri, range}}"
_ROWS = f"[{{module, phase, state, layout, relation: string, reads: [number], cells: [null | {_CELL}]}}]"

MESSAGES: Final = (
    Message(
        STATUS,
        "notification",
        "server",
        """{
  revision: number,
  health: "ok" | "warning" | "error",
  busy: boolean,
  trusted: boolean,
  message: string,
  detail?: string,
  counts: {proved, assumed, unknown, broken, error, stale, running: number},
  processes: [{name: string, state: "stopped" | "starting" | "ready" | "waiting" | "failed", restarts: number, message: string}]
}""",
        "",
        "The state of the whole server, sent at every change. Whole state, no deltas; an older `revision` is ignored. "
        "`detail` says what to do next.",
    ),
    Message(
        CHECKS,
        "notification",
        "server",
        """{
  revision: number,
  checks: [{
    id: string, name: string, uri: string, range: Range,
    runs: [{
      mesh: {[axis]: number}, state: RunState, stale: boolean, described: boolean, cached: boolean, seconds: number,
      headline: string, message: string, location?: {uri: string, range: Range}
    }]
  }]
}""",
        "",
        "Every known check with one run per mesh: test explorer, verdict matrix, gutter of the check's line. "
        "While a run is under way `state` says so and the rest is the last result, with `stale` set. "
        "`described` says that hover and hints have their data, which follows the verdict. "
        "`RunState` is one of " + ", ".join(f"`{state}`" for state in RUN_STATES) + ".",
    ),
    Message(
        MARKS,
        "notification",
        "server",
        """{
  uri: string, version: number | null, stale: boolean,
  marks: [{line: number, state: "proved" | "assumed" | "unknown" | "broken", message: string}]
}""",
        "",
        "Marks for the gutter of one open file: the lines whose operators were checked. Sent with the diagnostics of that file.",
    ),
    Message(
        RUN,
        "request",
        "client",
        f"{{checks?: [{_RUN_KEY}], uri?: string, force?: boolean}}",
        "{queued: number}",
        "Run the named checks, those of one file, or all. Answered when accepted; results come through `graphguard/checks`. "
        "`force` runs them although nothing changed.",
    ),
    Message(
        CANCEL,
        "request",
        "client",
        f"{{checks?: [{_RUN_KEY}]}}",
        "{cancelled: number}",
        "Stop the named runs, or all; their last results stay.",
    ),
    Message(
        RELATIONS,
        "request",
        "client",
        "{uri: string, position: Position} | {check: string, mesh?: {[axis]: number}}",
        f"""null | {{
  check: string, mesh: {{[axis]: number}}, verdict: string, version: number | null, stale: boolean,
  picture: string, ranks: [[number]], columns: [number], total: number,
  groups: [{{name: string, depth: number, from: number, to: number, proved: number}}],
  breaks: [number], start?: number, focus?: number,
  findings: [{{rule: string, headline: string, needed?: string, found?: string, fixes: [string], location?: {{uri, range}}, row?: number}}],
  files: [string], first: number, rows: {_ROWS}
}}""",
        "A check's two programs side by side, for the relation explorer: rows in order of execution, one a tensor, in a tree of modules. "
        "`ranks` are the classes of ranks that compute the same; `columns` are the ranks whose cells come along. `groups` are the modules, each before those "
        "inside it: rows `from` up to `to`, of which so many are `proved`. `breaks` are the rows where refinement ends, `start` the one to "
        "begin with, `focus` the one at the position. `rows` are those around it, from `first` on; `graphguard/rows` gives the others. A row's `state` is "
        "`proved`, `broken` (off the relation while what it is made of is on it) or `off`; `layout` says in DTensor's words what `relation` says by a formula; "
        "`cells` are the specification's and those of `columns`; `reads` are the rows that it is made of.",
    ),
    Message(
        ROWS,
        "request",
        "client",
        "{picture: string, first: number, end: number, columns: [number]}",
        f"null | {{first: number, rows: {_ROWS}}}",
        "Rows of a picture from `first` up to `end`, with the cells of the ranks in `columns`; null where the picture is no longer kept.",
    ),
    Message(
        FIND,
        "request",
        "client",
        "{picture: string, text: string}",
        "null | {rows: [number]}",
        "The rows of a picture in which a text occurs: in code, names, modules, operators, layouts, relations.",
    ),
    Message(
        EXPLAIN,
        "request",
        "client",
        "{rule: string}",
        "{markdown: string}",
        "What a rule means, why it matters, and an example.",
    ),
    Message(
        REPRODUCE,
        "request",
        "client",
        _RUN_KEY,
        "{text: string, path: string}",
        "A self-contained pytest that fails until the check's code is mended, and where it would be kept; nothing is written.",
    ),
    Message(
        AWAIT_FIX,
        "request",
        "client",
        f"{{checks?: [{_RUN_KEY}]}}",
        "{fixes: number}",
        "Answered once no proved fix is looked for any more for the named checks, with how many were found; then the code actions have them.",
    ),
    Message(CLEAR_CACHE, "request", "client", "{}", "{message: string}", "Forget every cached trace and proof."),
    Message(
        RESTART,
        "request",
        "client",
        '{process?: "worker" | "prover"}',
        "{message: string}",
        "Stop the processes (or the one named) and start them again when they are next needed.",
    ),
    Message(
        DEBUG_INFORMATION,
        "request",
        "client",
        "{}",
        "{text: string}",
        "Versions, interpreters, process states and settings as text, for bug reports.",
    ),
    Message(
        TRUST,
        "notification",
        "client",
        "{trusted: boolean}",
        "",
        "The user trusts (or no longer trusts) the workspace. Untrusted, no code of the workspace is run.",
    ),
)

_INTRODUCTION = """# Protocol

Beside the methods of the Language Server Protocol 3.17 the server speaks the messages below. This page is printed from the table in
`server/graphguard_server/serving/protocol.py` by `python -m graphguard_server.serving.protocol`; a test fails where the two differ.

The answer to `initialize` carries `capabilities.experimental.graphguard.version` ({version}). Within a version fields are only added; ignore
what you do not know. Every request is also a command of `workspace/executeCommand` (name in brackets) with the parameters as its only argument.

`initializationOptions` of the client, all optional: `trusted` (boolean, default true), `interpreter` (path of the Python that runs the
workspace's code, or a list of command words), `interpreters` (the same per folder URI), `diagnostics` (`"pull"` for a client that rather asks with
`textDocument/diagnostic` than be told) and `settings`, which has the shape of the section `graphguard` of
`workspace/configuration`: `mode` (`"change"`, `"save"` or `"manual"`), `interpreter`, `inlayHints` (boolean), `semanticTokens` (boolean),
`codeLens` (boolean), `fixes` (boolean), `docs` (base address of the rules' pages).

`Diagnostic.data` is `{{rule, stale, checks: [{{id, mesh}}], fixes: number, searching: boolean}}`: `stale` diagnostics are from before the last edit;
`searching` says that fixes are still being proved. `InlayHint.data` is `{{stale}}`: a hint from before the last edit, which a client may draw paler.
"""


def documentation() -> str:
    """The text of docs/protocol.md."""
    parts = [_INTRODUCTION.format(version=VERSION)]
    for message in MESSAGES:
        arrow = "client → server" if message.sender == "client" else "server → client"
        command = f" (`{message.command}`)" if message.kind == "request" else ""
        parts.append(f"## `{message.method}`{command}\n\n{message.kind}, {arrow}\n\n{message.purpose}\n")
        parts.append(
            f"```ts\n// params\n{message.params}\n"
            + (f"// result\n{message.result}\n" if message.result else "")
            + "```\n"
        )
    return "\n".join(parts)


if __name__ == "__main__":
    print(documentation(), end="")  # noqa: T201 - this module's output is the page
