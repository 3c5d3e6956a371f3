"""Running a list of loads against one server: into one folder, one trace each; an interrupted list can be resumed."""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Sequence
from lazy_dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from observe.observation import Observation, observe_with
from observe.plan.loads import IdlePace, ListedLoad, estimate_s, pace_of_probe, probing_load
from observe.server.http_client import ServerClient
from observe.server.server_facts import ask_server
from observe.settings import NO_WARM_UP, Settings
from traces import (
    ServerError,
    TraceError,
    companion_file,
    note_replaced,
    read_trace,
    request_metrics,
    select_rows,
    sole_owner,
)
from traces.workload import answer_decides

if TYPE_CHECKING:
    from traces import Trace

Observe = Callable[[ListedLoad, Path], Awaitable[Observation]]
"""Observes one load into one stem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One load of a campaign and its trace; ``observation`` None: it was there already."""

    load: ListedLoad
    trace: Trace
    observation: Observation | None

    @property
    def is_interrupted(self) -> bool:
        """Whether it was begun now, and broken off."""
        return self.observation is not None and bool(self.observation.interrupted)


async def run_loads(
    loads: Sequence[ListedLoad],
    folder: Path,
    *,
    observe: Observe,
    resume: bool,
    overwrite: bool = False,
    tell: Callable[[str], None],
) -> list[Outcome]:
    """Observe the loads in turn into ``folder``; with ``resume`` without those whose trace is complete.

    Ends after the first that is interrupted. Raises what observing raises; ConfigError, before anything is sent, where
    a measured trace would be replaced and not ``overwrite`` (with ``resume``: one that is whole, of another load).
    """
    with sole_owner(folder):
        return await _run_loads(loads, folder, observe=observe, resume=resume, overwrite=overwrite, tell=tell)


async def _run_loads(
    loads: Sequence[ListedLoad],
    folder: Path,
    *,
    observe: Observe,
    resume: bool,
    overwrite: bool,
    tell: Callable[[str], None],
) -> list[Outcome]:
    kept = [finished_trace(folder / load.name, load) if resume else None for load in loads]
    for load, there in zip(loads, kept, strict=True):
        stem = folder / load.name
        replaceable = overwrite or (resume and is_broken_off(stem))
        if there is None and (note := note_replaced(stem, overwrite=replaceable)) is not None:
            tell(note)
    outcomes: list[Outcome] = []
    for number, (load, there) in enumerate(zip(loads, kept, strict=True), start=1):
        stem = folder / load.name
        if (lower := over_saturated_below(load, outcomes)) is not None:
            tell(f"load {number} of {len(loads)}, {load.name}: left out, {lower} was over-saturated")
            continue
        if there is not None:
            tell(f"load {number} of {len(loads)}, {load.name}: already there")
            outcomes.append(Outcome(load=load, trace=there, observation=None))
            continue
        tell(f"load {number} of {len(loads)}, {load.name}: {load.purpose}")
        observation = await observe(load, stem)
        outcomes.append(Outcome(load=load, trace=observation.trace, observation=observation))
        if observation.interrupted:
            break
    return outcomes


def over_saturated_below(load: ListedLoad, outcomes: Sequence[Outcome]) -> str | None:
    """Return the name of a load of a lower rate at which the server fell behind, so that it was ended, or None."""
    for each in outcomes:
        client, rate = each.trace.header.client, each.load.rate_per_s
        if (
            client is not None
            and client.over_saturated
            and rate is not None
            and rate < (load.rate_per_s or 0.0)
        ):
            return each.load.name
    return None


def finished_trace(stem: Path, load: ListedLoad) -> Trace | None:
    """Return the trace at ``stem`` if it is the whole of this very load, or was over-saturated, else None."""
    try:
        trace = read_trace(stem)
    except TraceError:
        return None
    client = trace.header.client
    if client is None or not client.finished or client.interrupted:
        return None
    planned = load.requests
    if client.over_saturated:
        planned = select_rows(planned, np.isin(planned.column("request_id"), trace.column("request_id")))
    if len(trace) != len(planned):
        return None
    same = all(
        np.array_equal(trace.column(name).to_numpy(), planned.column(name).to_numpy())
        for name in ("request_id", "prefix_length")
    )
    lengths = planned.column("output_tokens").to_numpy(dtype=np.int64)
    asked = trace.column("max_tokens")
    same = same and bool(asked.notna().all()) and np.array_equal(asked.to_numpy(dtype=np.int64), lengths)
    return trace if same and _as_planned(trace, planned) else None


def is_broken_off(stem: Path) -> bool:
    """Return whether the trace at ``stem`` is the beginning of an unfinished run."""
    if not companion_file(stem, ".yaml").is_file():  # killed before the header was written, or nothing at all
        return True
    try:
        trace = read_trace(stem, events=False)
    except TraceError:
        return False
    client = trace.header.client
    return client is not None and (
        not client.finished or bool(client.interrupted) or len(trace) < (client.num_planned or 0)
    )


def _as_planned(trace: Trace, planned: Trace) -> bool:
    """Return whether times and prompts are the planned ones, as far as the plan, and not an answer, decided them."""
    waited = answer_decides(planned) | ~planned.cells("arrival_time_us").is_known
    due, was_due = planned.column("arrival_time_us"), trace.column("arrival_time_us")
    added, own = planned.column("new_input_tokens"), planned.column("input_tokens")
    return bool(
        due[~waited].equals(was_due[~waited])
        and added.equals(trace.column("new_input_tokens"))
        and own[~waited].equals(trace.column("input_tokens")[~waited])
    )


async def model_length(settings: Settings) -> int | None:
    """Return the server's limit on prompt and output together, or None if it does not say."""
    client = ServerClient(settings.endpoint)
    try:
        return (await ask_server(client, model=settings.model)).info.max_model_len
    finally:
        await client.close()


async def estimate_all(
    loads: Sequence[ListedLoad], settings: Settings, *, rate_per_s: float | None
) -> list[float]:
    """Return about how many seconds each load takes, estimated from four requests sent now.

    Raises ServerError if those are not answered.
    """
    probe = probing_load(loads)
    with tempfile.TemporaryDirectory(prefix="vtwin-probe-") as folder:
        quiet = replace(
            settings,
            warmup=NO_WARM_UP,
            engine_log=None,
            scrape_s=None,
            scrapes_vllm=False,
            processes=1,
            machines=None,
        )
        seen = await observe_with(probe, quiet, output=Path(folder) / "probe")
    if seen.num_ok < len(probe):
        said = seen.trace.column("error_message").dropna().tolist()
        raise ServerError(
            f"probe: got {said[0] if said else 'no answer'}, expected an answer to each of 4 requests"
        )
    pace: IdlePace = pace_of_probe(request_metrics(seen.trace)["e2e_us"].tolist(), probe)
    return [estimate_s(load, pace, rate_per_s=rate_per_s) for load in loads]
