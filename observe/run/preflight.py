"""Before the clock starts: whether this machine can send the load at all."""

from __future__ import annotations

from collections import Counter

from observe.plan.send_plan import SendPlan
from observe.senders.shortage import missing_descriptors
from observe.settings import Settings
from traces import ClosedLoop, ConfigError


def need_descriptors(plan: SendPlan, settings: Settings) -> None:
    """Raise ConfigError if more requests are sent at one moment than a process may have connections."""
    at_once = num_sent_at_once(plan, cap=settings.limits.max_concurrency)
    per_process = -(-at_once // settings.processes)
    if (missing := missing_descriptors(per_process)) is not None:
        there, needed = missing
        raise ConfigError(
            f"load: got {at_once:,} requests at once and {there:,} file descriptors, expected {needed:,} or more of "
            "them (ulimit -n), a smaller --concurrency, or --max-concurrency"
        )


def refuse_cap_on_waves(loop: ClosedLoop | None, settings: Settings) -> None:
    """Raise ConfigError for waves, each of which is sent at once, with a cap that would hold some of one back."""
    if settings.limits.has_cap and loop is not None and loop.in_waves:
        raise ConfigError(
            "--max-concurrency, --prefill-concurrency: cannot be combined with waves (--batch), which are sent at once"
        )


def num_sent_at_once(plan: SendPlan, *, cap: int | None) -> int:
    """Return how many requests are certainly in flight together: of a closed loop's users, or due at one moment."""
    loop = plan.closed_loop
    if loop is not None:
        number = min(loop.concurrency, len(plan.chains))
    else:
        due = Counter(plan.due_us[row] for chain in plan.chains for row in plan.begins_of(chain))
        number = max(due.values(), default=0)
    return number if cap is None else min(number, cap)
