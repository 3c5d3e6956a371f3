"""The end of a run whose server surely falls behind: ``vtwin observe --stop-over-saturated``.

The test is that of a step of ``--find-capacity``: requests in flight grow from each tenth of the run to the next. It
holds for requests that come at one rate throughout; where the rate rises, more are in flight without any overload.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from observe.judged.step_watch import StepWatch
from traces import ConfigError
from traces.workload import flag

if TYPE_CHECKING:
    from observe.judged.judged_step import StepVerdict
    from traces import Trace
    from traces.workload import WorkloadOptions

OPTION = "--stop-over-saturated"
_OTHER_LOADS = ("concurrency", "batch", "stages", "trace", "workload")


def over_saturation_watch(requests: Trace) -> StepWatch:
    """Return what ends a run of these requests once the server surely falls behind.

    Raises ConfigError for requests whose times are the answers' doing.
    """
    if requests.header.closed_loop is not None:
        raise ConfigError(
            f"{OPTION}: got a load that waits for answers, expected requests at one rate: its queue cannot grow"
        )
    return StepWatch((), ends=_falls_behind)


def _falls_behind(verdict: StepVerdict) -> str | None:
    if not verdict.is_behind:
        return None
    return (
        f"over-saturated: {verdict.grown_frac:.0%} of the requests piled up, {verdict.answered_per_s or 0:.4g}/s were "
        f"answered ({OPTION})"
    )


def check_one_rate(workload: WorkloadOptions, *, has_list: bool) -> None:
    """Raise ConfigError for a load without one rate throughout; ``has_list``: ``--repeat``, ``--plan`` or a search."""
    given = [flag(name) for name in _OTHER_LOADS if getattr(workload, name) is not None]
    if has_list:
        given.append("--repeat, --plan and --find-capacity, which judge their runs themselves")
    if workload.rate is not None and not math.isfinite(workload.rate):
        given.append(f"--rate {workload.rate}")
    if given:
        raise ConfigError(
            f"{OPTION}: cannot be combined with {given[0]}, expected one rate throughout (--rate R, --sweep 1,2,4)"
        )
