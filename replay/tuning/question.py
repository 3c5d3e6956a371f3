"""Which engine flags are best, as a function; ``vtwin tune`` computes the same and prints it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from replay.capacity.assumed_seats import are_seats_assumed
from replay.capacity.capacity import short_run_note
from replay.capacity.question import drawn
from replay.console.ready import prepare_engine
from replay.numbers.argument_ranges import BEST, SEEDS, WORKLOAD
from replay.search.seeds import DEFAULT_SEEDS
from replay.tuning.candidate_search import TuneAsked, Tuned, search
from replay.tuning.candidates import Border, Candidates, candidates_of
from traces import RunLimit, parse_run_slo, reading_notes
from traces.strict.arguments import TEXT, Written, takes
from traces.workload import WorkloadOptions

if TYPE_CHECKING:
    from replay.twin.twin_config import TwinConfig
    from traces import Trace

ASSUMED = (
    "how many seats the server has is not known: the server as it is, and the gain, are those of an assumed "
    "max_num_seqs. Observe with --scrape, or give engine.max_num_seqs"
)
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
    before = (*notes_before(candidates.tried[0].twin), *reading_notes(traces[0]))
    return asked_of(found, candidates, border, limits, warnings=(*before, *notes_after(found, traces[0])))


def asked_of(
    found: Tuned,
    candidates: Candidates,
    border: Border,
    limits: Sequence[RunLimit],
    *,
    warnings: Sequence[str],
) -> Tuned:
    """Return a search's outcome with its question, the servers beyond the first grid's border included."""
    tried = replace(candidates, impossible=(*candidates.impossible, *border.impossible))
    return replace(found, asked=TuneAsked(candidates=tried, limits=tuple(limits), warnings=tuple(warnings)))


def notes_before(own: TwinConfig) -> tuple[str, ...]:
    """Return the notes on the twin's file, each once, and that its seats are assumed where they are."""
    return (*dict.fromkeys(own.notes), *((ASSUMED,) if are_seats_assumed(own) else ()))


def notes_after(found: Tuned, trace: Trace) -> list[str]:
    """Return notes if runs were short, or if the best server works beyond what the twin was fitted on."""
    notes = []
    if found.asks and not any(each.is_too_short for _, each in found.best[:1]):
        notes.append(
            f"{len(trace):,} requests are too few to rank all servers by. --num-requests {found.asks} is better"
        )
    for _, capacity in found.best[:1]:
        short = short_run_note(capacity, capacity.num_requests)
        notes += [each for each in (short, found.beyond_fit) if each is not None]
    return notes
