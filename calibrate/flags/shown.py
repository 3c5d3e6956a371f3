"""Evidence of a run on flags that its server does not report: requests that ran while others waited, full steps.

A limit is recognised by being reached repeatedly and never exceeded. Seats: requests wait, and no more run; with a full
KV cache or a full step the number that run would vary. Tokens of a step: the same total for different requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from lazy_dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from traces import TraceError, companion_file, stem_of

if TYPE_CHECKING:
    import pandas as pd

    from sim import HeldBlocks
    from traces import Trace

Floats = NDArray[np.float64]

SEATS, TOKENS = "max_num_seqs", "max_num_batched_tokens"
LEAST_WAITING = 3
"""Requests without a first token in a trace: one or two may be in their prefill, so more must be waiting."""
LEAST_SCRAPES = 5
"""Fewer scrapes with a queue show no limit."""
REACHED, LEAST_REACHED = 0.1, 10
"""A limit of seats is reached for this share of the time in which others wait, and this many separate times. With 200
to 600 requests at 60 a second, 8, 32 and 64 seats were reached for 0.12 to 0.7 of it, 18 times or more; the highest
number with a full KV cache or full steps was reached for 0.06 of it, 7 times, at most."""
NEAR, MOSTLY = 0.75, 0.5
"""And for most of that time almost as many run: this share of the limit."""
FULL_KV = 0.9
"""In a KV cache that is fuller than this, requests may wait for blocks."""
ROOM = 0.8
"""The running requests must need a smaller share of the KV cache, else its blocks may have been the limit."""
ALIKE = 0.05
"""Requests whose lengths vary by less need equal numbers of blocks: unknown KV blocks may then be the limit."""
LEAST_FULL_STEPS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The highest number seen of what a flag limits. ``is_limit``: it was the limit, others had to wait.

    ``is_servers``: from the server's own gauges or log, not only a client's view of it. ``how``: the text for messages.
    """

    name: str
    most: int
    is_limit: bool
    is_servers: bool
    how: str


def shown_by(path: Path, trace: Trace) -> tuple[Shown, ...]:
    """Return the evidence in a run's recordings: its gauges, its engine's steps, and the trace at ``path`` itself.

    Raises TraceError for a file that is not one of gauges.
    """
    stem = stem_of(path)
    found = (
        _seats_of_gauges(companion_file(stem, ".gauges.csv")),
        *_of_steps(companion_file(stem, ".steps.csv")),
        seats_of_trace(trace),
    )
    return tuple(each for each in found if each is not None)


def _seats_of_gauges(path: Path) -> Shown | None:
    """Return what ``observe --scrape`` recorded of running and waiting requests; None where there is no such file."""
    if not path.exists():
        return None
    running, waiting, usage = _gauges(path)
    if len(running) == 0:
        return None
    most, queued = int(running.max()), (waiting > 0) & (usage < FULL_KV)
    return Shown(
        name=SEATS,
        most=most,
        is_limit=int(queued.sum()) >= LEAST_SCRAPES
        and _is_reached(running[queued], most, lasts=np.ones(int(queued.sum()))),
        is_servers=True,
        how=f"its gauges show at most {most} running, also in the {int(queued.sum())} of {len(running)} scrapes in "
        "which others waited",
    )


def _gauges(path: Path) -> tuple[Floats, Floats, Floats]:
    """Return running and waiting requests and the share of KV blocks in use, a row per scrape and engine."""
    import pandas as pd

    try:
        table = pd.read_csv(path)
        parts = table["gauge"].str.extract(r'^vllm:(\w+)(?:.*engine="(\d+)")?')
        table = table.assign(name=parts[0], engine=parts[1].fillna("0"))
        wanted = table[
            table["name"].isin(["num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"])
        ]
        wide = wanted.pivot_table(index=["time_us", "engine"], columns="name", values="value", aggfunc="sum")
    except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        raise TraceError(f"{path.name}: got {error}, expected columns time_us, gauge, value") from error
    if not {"num_requests_running", "num_requests_waiting"} <= set(wide.columns):
        return (np.empty(0),) * 3
    usage = wide.get("kv_cache_usage_perc", wide["num_requests_running"] * 0)
    columns = (wide["num_requests_running"], wide["num_requests_waiting"], usage)
    running, waiting, used = (np.asarray(each, dtype=np.float64) for each in columns)
    known = np.isfinite(running) & np.isfinite(waiting)
    return running[known], waiting[known], np.nan_to_num(used[known])


def _of_steps(path: Path) -> Iterator[Shown]:
    """Yield what ``observe --engine-log`` recorded of steps: the most requests and the most tokens in one."""
    import pandas as pd

    if not path.exists():
        return
    table = pd.read_csv(path)
    named = ("num_prefill_requests", "num_prefill_tokens", "num_decode_requests", "num_decode_tokens")
    if len(table) == 0 or not set(named) <= set(table.columns):
        return
    requests = int((table["num_prefill_requests"] + table["num_decode_requests"]).max())
    yield Shown(
        name=SEATS,
        most=requests,
        is_limit=False,
        is_servers=True,
        how=f"its engine log has a step of {requests} requests",
    )
    yield _tokens_of(table)


def _tokens_of(steps: pd.DataFrame) -> Shown:
    """Return the most tokens of a step: the limit where steps of different requests have exactly as many."""
    tokens = steps["num_prefill_tokens"] + steps["num_decode_tokens"]
    full = steps[tokens == tokens.max()]
    most = int(tokens.max())
    return Shown(
        name=TOKENS,
        most=most,
        is_limit=len(full) >= LEAST_FULL_STEPS and int(full["num_decode_tokens"].nunique()) > 1,
        is_servers=True,
        how=f"its engine log has {len(full)} steps of {most} tokens and none of more",
    )


def seats_of_trace(trace: Trace, *, held: HeldBlocks | None = None) -> Shown | None:
    """Return how many requests were answered at once; None if the times of answers are not known.

    A request is answered from its first token to its last, and waits before. None also for several engines. ``held``:
    what requests hold of the KV cache; None: one block of all layers per block of tokens.
    """
    from traces import finished_ok, send_or_arrival_us

    if trace.header.server.num_engines > 1:
        return None
    kept = finished_ok(trace)
    sent = np.asarray(send_or_arrival_us(trace), np.float64)[kept]
    first, last = (
        trace.cells(name).floats()[kept] for name in ("content_first_time_us", "last_token_time_us")
    )
    known = np.isfinite(first) & np.isfinite(last)
    if not known.any():
        return None
    answered, waiting, lasts = _over_time(sent[known], first[known], last[known])
    most, queued = int(answered[lasts > 0].max(initial=0)), (waiting >= LEAST_WAITING) & (lasts > 0)
    during = float(lasts[queued].sum())
    times_reached = int(
        np.count_nonzero(np.diff(answered[queued] == most, prepend=False) & (answered[queued] == most))
    )
    return Shown(
        name=SEATS,
        most=most,
        is_limit=times_reached >= LEAST_REACHED
        and _has_room(trace, kept, most=most, held=held)
        and _is_reached(answered[queued], most, lasts=lasts[queued]),
        is_servers=False,
        how=f"at most {most} requests were answered at once, also in the {during / 1e6:.3g} s in which others waited",
    )


def _has_room(trace: Trace, kept: NDArray[np.bool_], *, most: int, held: HeldBlocks | None) -> bool:
    """Return whether the KV cache would have held more than ``most`` of the requests, by its size in the header."""
    from traces import prompt_tokens

    tokens = prompt_tokens(trace)[kept] + trace.cells("output_tokens").floats()[kept]
    server = trace.header.server
    if server.num_gpu_blocks is None or server.block_size is None:
        return float(np.nanstd(tokens)) > ALIKE * float(np.nanmean(tokens))
    if held is not None:
        each = held.at_end(np.maximum(tokens[np.isfinite(tokens)], 1))
        return most * float(each.mean()) < ROOM * server.num_gpu_blocks
    return most * float(np.nanmean(tokens)) < ROOM * server.num_gpu_blocks * server.block_size


def _over_time(sent: Floats, first: Floats, last: Floats) -> tuple[Floats, Floats, Floats]:
    """Return, from each event to the next, how many are answered, how many wait, and for how long (µs)."""
    none, one = np.zeros(len(sent)), np.ones(len(sent))
    at = np.concatenate([sent, first, last])
    order = np.argsort(at, kind="stable")
    waiting = np.concatenate([one, -one, none])[order].cumsum()
    answered = np.concatenate([none, one, -one])[order].cumsum()
    return answered, waiting, np.append(np.diff(at[order]), 0.0)


def _is_reached(running: Floats, most: int, *, lasts: Floats) -> bool:
    """Return whether ``most`` limits the running requests while others wait: often reached, mostly almost reached.

    ``lasts``: for how long this many run.
    """
    total = float(lasts.sum())
    return (
        float(lasts[running == most].sum()) >= REACHED * total
        and float(lasts[running >= NEAR * most].sum()) >= MOSTLY * total
    )
