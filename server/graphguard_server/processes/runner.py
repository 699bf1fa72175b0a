"""Runs one check: drives its steps from the event loop and sends them to the worker and the prover."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from graphguard.checks.judging.requests import CheckRequest, Step, Steps
from graphguard.ir.fuel import hanging_after
from graphguard.report.diagnostics import Report
from graphguard_server.processes.processes import CallFailedError, Process

log = logging.getLogger(__name__)

STEP_GRACE: Final = 30.0
PROOF_SECONDS: Final = (
    1200.0  # longer than the largest proof on a machine that is slow and busy: a prover that takes more hangs
)


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

    async def call(step: Step) -> Any:
        if step.process == "prover":
            return await prover.call(step.method, step.params, PROOF_SECONDS)
        bounds = {"memory": memory, "timeout": request.timeout} if step.method == "capture" else {}
        limit = hanging_after(step.params["steps"]) if step.method == "confirm" else request.timeout
        return await worker.call(step.method, {**bounds, **step.params}, limit + STEP_GRACE)

    try:
        while True:
            wanted = generator.send(answer)
            if isinstance(wanted, Report):
                interim(wanted)
                answer = None
                continue
            stage(wanted if isinstance(wanted, Step) else wanted[0])
            if isinstance(wanted, Step):
                answer = await call(wanted)
            else:
                answer = await _together([call(each) for each in wanted])
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


async def _together(calls: list[Coroutine[Any, Any, Any]]) -> tuple[Any, ...]:
    """The answers of calls that run beside each other; where one fails the others are cancelled."""
    tasks = [asyncio.ensure_future(each) for each in calls]
    try:
        return tuple(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
