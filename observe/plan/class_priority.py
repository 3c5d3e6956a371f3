"""vLLM's ``priority`` of each service class, for ``observe --class-priority``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from traces import ConfigError

if TYPE_CHECKING:
    from traces import Trace


def parse_class_priorities(text: str) -> dict[str, int]:
    """Return the priorities of ``critical=0,batch=5`` by class. Raises ConfigError."""
    found: dict[str, int] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not name or not value.removeprefix("-").isdecimal() or abs(int(value)) >= 2**31:
            raise ConfigError(
                f"--class-priorities: got {part.strip()!r}, expected CLASS=INTEGER (critical=0,batch=5)"
            )
        found[name] = int(value)
    return found


def priority_notes(
    trace: Trace, of_class: Mapping[str, int] | None, *, scheduling_policy: str | None
) -> tuple[str, ...]:
    """Return warnings about the priorities that are sent: classes without one, or all equal."""
    stated = trace.column("vllm_priority")
    classes = trace.column("slo_class").where(stated.isna()).fillna("")
    sent = stated if of_class is None else stated.fillna(classes.map(of_class).astype("Int64"))
    if of_class is None and stated.isna().all():
        return ()
    said: list[str] = []
    if of_class is not None:
        unknown = classes[(classes != "") & ~classes.isin(list(of_class))].value_counts()
        said += [
            f"{unknown[name]} requests of class {name!r} are sent without a priority"
            for name in unknown.index
        ]
    if sent.fillna(0).nunique() < 2:
        said.append("all requests have the same priority: a priority policy has nothing to choose by")
    if scheduling_policy == "fcfs" and (sent.fillna(0) != 0).any():
        said.append("the server's scheduling policy is fcfs: vLLM refuses priorities other than 0")
    return tuple(said)
