"""The workload of a fleet: lengths from a trace, or from a distribution of total lengths in a JSON file."""

from __future__ import annotations

import itertools
import math
from lazy_dataclasses import dataclass
from pathlib import Path

import numpy as np

from replay.fleet.inputs import OUTPUT_FRAC
from replay.fleet.inputs.whole_requests import WholeRequests, lengths_of_requests, whole_requests
from sim.fleet import Lengths
from traces import ConfigError, Trace, read_recorded, reading_notes
from traces.strict.json_text import parse_value
from traces.strict.limits import MOST_TOKENS
from traces.strict.whole_file import whole_file
from traces.workload import with_total_limit, workload_of

NUM_ROWS = 4000
"""This many equally likely requests stand for a distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetWorkload:
    """A workload: the lengths that formulas take, and the requests that simulated engines are sent.

    ``whole`` None: lengths are all that is known. ``notes``: what a reader should know of the file.
    """

    lengths: Lengths
    whole: WholeRequests | None = None
    notes: tuple[str, ...] = ()


def read_workload(
    workload: Trace | Lengths | Path | str,
    *,
    output_frac: float = OUTPUT_FRAC,
    total_tokens_max: int | None = None,
) -> FleetWorkload:
    """Return a workload, its requests cut to ``total_tokens_max`` tokens, prompt and answer together; None: not.

    ``workload``: a trace, lengths, or a file of either: a JSON list of [tokens, share of requests up to it], by itself
    or under ``cdf``; or a trace. Raises ConfigError or TraceError on what is neither.
    """
    if isinstance(workload, Lengths):
        return _cut(FleetWorkload(lengths=workload), total_tokens_max)
    path = Path("a trace") if isinstance(workload, Trace) else Path(workload)
    if path.suffix == ".json":
        document = _json(path)
        if isinstance(document, dict) and "cdf" in document:
            document = document["cdf"]
        if isinstance(document, list):
            lengths = lengths_of_cdf(_points(document, path), output_frac=output_frac)
            return _cut(FleetWorkload(lengths=lengths), total_tokens_max)
    trace = workload if isinstance(workload, Trace) else read_recorded(path)
    if total_tokens_max is not None:
        trace = with_total_limit(workload_of(trace), total_tokens_max)
    return workload_of_trace(trace, name=str(path))


def _cut(found: FleetWorkload, most: int | None) -> FleetWorkload:
    """Return lengths with prompts cut so that a request has at most this many tokens; None: any number."""
    if most is None:
        return found
    outputs = np.minimum(found.lengths.output_tokens, most - 1)
    inputs = np.minimum(found.lengths.input_tokens, most - outputs)
    share = float((found.lengths.total_tokens > most).mean())
    told = (
        f"{share:.2%} of the requests cut to {most:,} tokens, prompt and answer together (--total-tokens-max)"
    )
    return FleetWorkload(lengths=Lengths(input_tokens=inputs, output_tokens=outputs), notes=(told,))


def workload_of_trace(trace: Trace, *, name: str) -> FleetWorkload:
    """Return a trace's requests that have output. Raises ConfigError, with ``name``, where none has."""
    whole = whole_requests(trace, name=name)
    return FleetWorkload(
        lengths=lengths_of_requests(whole), whole=whole, notes=(*reading_notes(trace), *whole.notes())
    )


def _json(path: Path) -> object:
    try:
        return parse_value(whole_file(path))
    except OSError as error:
        raise ConfigError(
            f"--workload: got {path}, expected a file that can be read ({error.strerror})"
        ) from error
    except ValueError as error:
        raise ConfigError(f"--workload: got {path}, expected JSON ({error})") from error


def _points(document: list[object], path: Path) -> list[tuple[float, float]]:
    """Return the points of a distribution. Raises ConfigError if they are not valid."""
    points = []
    for each in document:
        is_pair = isinstance(each, list) and len(each) == 2 and all(isinstance(x, int | float) for x in each)
        if not is_pair:
            raise ConfigError(
                f"--workload: got {each!r} in {path}, expected [tokens, share of requests up to it]"
            )
        assert isinstance(each, list)  # noqa: S101 - as just seen
        points.append((float(each[0]), float(each[1])))
        if not points[-1][0] <= MOST_TOKENS or not 0 <= points[-1][1] <= 1 + 1e-6:
            raise ConfigError(
                f"--workload: got {each!r} in {path}, expected at most {MOST_TOKENS} tokens, and a share"
            )
    rises = all(a[0] < b[0] and a[1] <= b[1] for a, b in itertools.pairwise(points))
    if not points or not rises or points[0][0] <= 0 or not math.isclose(points[-1][1], 1, abs_tol=1e-6):
        raise ConfigError(
            f"--workload: got {path}, expected tokens and shares that rise, the last share being 1"
        )
    return points


def lengths_of_cdf(
    points: list[tuple[float, float]], *, output_frac: float, num_rows: int = NUM_ROWS
) -> Lengths:
    """Return equally likely requests with these total lengths, evenly through the distribution, longest included.

    Between two points lengths are spread evenly. ``output_frac`` of each is output, one token at least.
    """
    tokens = np.array([1.0, *(each[0] for each in points)])
    shares = np.array([0.0, *(each[1] for each in points)])
    rises = np.concatenate([[True], np.diff(shares) > 0])
    total = np.interp((np.arange(num_rows) + 0.5) / num_rows, shares[rises], tokens[rises])
    total = np.maximum(np.rint(total), 2.0)
    outputs = np.clip(np.rint(total * output_frac), 1.0, total - 1)
    return Lengths(input_tokens=total - outputs, output_tokens=outputs)


def fitting_context(lengths: Lengths) -> int:
    """Return the smallest power of two that holds the longest request, 512 at least."""
    longest = math.ceil(math.log2(float(lengths.total_tokens.max())))
    return max(512, int(2**longest))


def mean_tokens(lengths: Lengths) -> float:
    """Return the tokens of a request while it runs, on average over the time it does."""
    return float((lengths.output_tokens * lengths.total_tokens).sum() / lengths.output_tokens.sum())
