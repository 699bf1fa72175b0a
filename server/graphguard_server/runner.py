"""Runs one check: drives its steps from the event loop and sends them to the worker and the prover."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from graphguard.checks.steps import CheckRequest, Step, Steps
from graphguard.report.diagnostics import Report
from graphguard_server.processes import CallFailedError, Process

log = logging.getLogger(__name__)

STEP_GRACE: Final = 30.0
PROOF_SECONDS: Final = 300.0


class RunFailedError(RuntimeError):
    """A check could not be run to its end; the text says why."""


async def run_steps(
    steps: Callable[[CheckRequest], Steps],
    request: CheckRequest,
    worker: Process,
    prover: Process,
    interim: Callable[[Report], None],
    stage: Callable[[Step], None],
    memory: int | None = None,
) -> Report:
    """The report of a check; ``interim`` is told of reports before the last, ``stage`` of every step; ``memory`` bounds the worker's children, in bytes.

    Raises ``ProcessDiedError`` where a process ended underway (the whole check may be tried again) and ``RunFailedError`` where a step was answered with an error.
    """
    generator = steps(request)
    answer: Any = None
    try:
        while True:
            wanted = generator.send(answer)
            if isinstance(wanted, Report):
                interim(wanted)
                answer = None
                continue
            stage(wanted)
            if wanted.process == "prover":
                answer = await prover.call(wanted.method, wanted.params, PROOF_SECONDS)
            else:
                bounds = {"memory": memory, "timeout": request.timeout} if wanted.method == "capture" else {}
                answer = await worker.call(wanted.method, {**bounds, **wanted.params}, request.timeout + STEP_GRACE)
    except StopIteration as end:
        report: Report = end.value
        return report
    except CallFailedError as error:
        raise RunFailedError(str(error)) from error
    except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
        log.exception("the steps of %s::%s failed", request.file, request.name)
        raise RunFailedError(f"a defect of GraphGuard: {error!r}; please report it") from error
    finally:
        generator.close()
