"""Messages between parent and child, over a socket, and a cluster's connections where the child is elsewhere.

Pickles with their length before them: both ends are this very program, as one user, or as the users of one cluster,
whose workers run whatever they are sent.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Mapping, Sequence
from lazy_dataclasses import dataclass
from typing import TypeAlias

from observe.plan.send_plan import SendPlan
from observe.processes.partition import Share
from observe.record.recorder import AnswerCounts
from observe.run.dispatch import RunFacts
from observe.settings import Settings
from traces import ProcessInfo

_LENGTH_BYTES = 8
_BUFFER = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildJob:
    """A child's job: its share of ``plan``, into the trace at ``path``, which has been begun; None: into ``Lines``."""

    plan: SendPlan
    share: Share
    settings: Settings
    path: str | None
    id_prefix: str
    prebuild_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartSignal:
    """Begin, due times counted from this moment of the child's CLOCK_MONOTONIC."""

    start_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Send nothing more; ``reason``: a result of the run, None for the user's interrupt."""

    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """Drop the requests in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """All bodies are built; ``library`` and ``clock_name`` as of the sender."""

    library: str
    clock_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterReport:
    """The counters of a child's ``Progress`` by name; arrays only from where the last report ended.

    ``outcomes``: whether each request that ended since then was answered whole.
    """

    totals: Mapping[str, int]
    by_name: Mapping[str, Mapping[str, int]]
    histograms: Mapping[str, Sequence[int]]
    tails: Mapping[str, bytes]
    outcomes: Sequence[bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Whole lines of the trace's tables since the last report, as a CSV file has them."""

    rows: bytes
    events: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The share is done, or was ended; ``cpu_s`` as of ``Executor``."""

    facts: RunFacts
    cpu_s: float
    answer_counts: AnswerCounts
    clock_name: str
    info: ProcessInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A row could not be written."""

    message: str


Command: TypeAlias = ChildJob | StartSignal | Drain | Abort
Answer: TypeAlias = Ready | CounterReport | Lines | Done | Refused


def packed(message: Command | Answer) -> bytes:
    """Return a message as bytes."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return len(body).to_bytes(_LENGTH_BYTES) + body


async def receive(reader: asyncio.StreamReader) -> object:
    """Return the next message, None if the other end is gone, in mid-message or between two.

    An end that says what is no message is as good as gone.
    """
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES))
        body = bytearray()
        while len(body) < length:
            body += await reader.readexactly(min(length - len(body), _BUFFER))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    try:
        message: object = pickle.loads(body)  # noqa: S301  from our own child or parent, see above
    except Exception:  # pickle raises whatever the bytes make it raise
        return None
    return message if isinstance(message, Command | Answer) else None
