"""Which engine flags are best, as a function; ``vtwin tune`` computes the same and prints it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from replay.capacity.question import drawn
from replay.console.ready import prepare_engine
from replay.numbers.argument_ranges import BEST, SEEDS, WORKLOAD
from replay.search.seeds import DEFAULT_SEEDS
from replay.tuning.candidate_search import TuneAsked, Tuned, search
from replay.tuning.candidates import Border, candidates_of
from traces import parse_run_slo
from traces.strict.arguments import TEXT, Written, takes
from traces.workload import WorkloadOptions

TWIN_FILE = Written("the path of TWIN.yaml, whose keys vary", is_path=True)


@takes(workload=WORKLOAD, config=TWIN_FILE, slo=TEXT, keep=BEST, seeds=SEEDS)
def tune(
    workload: WorkloadOptions,
    config: Path | str,
    slo: str,
    *,
    settings: Sequence[str] = (),
    keep: int = 3,
    seeds: int = DEFAULT_SEEDS,
) -> Tuned:
    """Return the engine flags that serve the highest rate within ``slo``, the best ``keep`` with intervals.

    ``config``: TWIN.yaml; ``settings``: ``KEY=V1,V2`` texts, as after ``--set``; none: limits around the file's own.
    Raises ConfigError on a file, a workload or limits that cannot be searched.
    """
    limits = parse_run_slo(slo)
    candidates = candidates_of(Path(config), None, list(settings))
    traces, drawing = drawn(workload, seeds=seeds)
    prepare_engine(candidates.tried[0].twin, trace=traces[0])
    border = Border(candidates, Path(config))
    found = search(traces, candidates.tried, limits, keep=keep, drawing=drawing, border=border)
    return replace(found, asked=TuneAsked(candidates=candidates, limits=tuple(limits)))
