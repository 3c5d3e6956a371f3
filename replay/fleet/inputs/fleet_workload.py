"""The workload of a fleet: lengths from a trace, or from a distribution of total lengths in a JSON file."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from replay.fleet.inputs import OUTPUT_FRAC
from sim.fleet import Lengths
from traces import ConfigError, Trace, format_of, prompt_tokens, read_recorded, reading_notes, served_output
from traces.strict.json_text import parse_value
from traces.strict.limits import MOST_TOKENS
from traces.strict.whole_file import whole_file

NUM_ROWS = 4000
"""This many equally likely requests stand for a distribution."""


def read_lengths(path: Path, *, output_frac: float = OUTPUT_FRAC) -> Lengths:
    """Return a workload's lengths.

    ``path``: a JSON list of [tokens, share of requests up to it], by itself or under ``cdf``; or a trace. Raises
    ConfigError or TraceError on what is neither.
    """
    if path.suffix == ".json":
        document = _json(path)
        if isinstance(document, dict) and "cdf" in document:
            document = document["cdf"]
        if isinstance(document, list):
            return lengths_of_cdf(_points(document, path), output_frac=output_frac)
    return _of_recorded(path)[0]


def read_lengths_and_notes(path: Path, *, output_frac: float = OUTPUT_FRAC) -> tuple[Lengths, list[str]]:
    """Return ``read_lengths`` and what a reader should know of the file."""
    if path.suffix == ".json" and format_of(path) is None:
        return read_lengths(path, output_frac=output_frac), []
    return _of_recorded(path)


def _of_recorded(path: Path) -> tuple[Lengths, list[str]]:
    trace = read_recorded(path)
    return lengths_of_trace(trace, name=str(path)), list(reading_notes(trace))


def lengths_of_trace(trace: Trace, *, name: str) -> Lengths:
    """Return the lengths of a trace's requests that have output. Raises ConfigError, with ``name``, where none has."""
    prompts, outputs = prompt_tokens(trace).astype(np.float64), served_output(trace).floats()
    known = outputs >= 1
    if not known.any():
        raise ConfigError(f"--workload: got {name} without a request that has output, expected some")
    lengths = Lengths(input_tokens=prompts[known], output_tokens=outputs[known])
    source = trace.header.source
    if source is not None and source.load_unknown is not None:
        return Lengths(input_tokens=prompts[known], output_tokens=outputs[known])
    arrivals = trace.column("arrival_time_us").astype("float64").fillna(math.nan)
    return _with_arrivals(lengths, np.asarray(arrivals, dtype=np.float64)[known] / 1e6)


def _with_arrivals(lengths: Lengths, arrival_s: NDArray[np.float64]) -> Lengths:
    """Return lengths with their arrivals; without them where some are not known, out of order, or all at once."""
    gaps = np.diff(arrival_s)
    is_known = len(gaps) > 0 and np.isfinite(arrival_s).all() and bool((gaps >= 0).all() and gaps.sum() > 0)
    return replace(lengths, arrival_s=arrival_s) if is_known else lengths


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
