"""ServeGen's production data: per client a series of rates and of arrival shapes, and length histograms.

Source of the format: github.com/alibaba/ServeGen at f891d118: a folder of ``chunk-N-trace.csv`` (start of an
interval in s, requests/s in it, the gaps' coefficient of variation, the family fitted to them, its shape and its
scale) and ``chunk-N-dataset.json`` (by start of a longer interval in s: token histograms as text, and the share of
the output that is reasoning). They are not request logs: a workload is drawn from them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from lazy_dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from traces.errors import ConfigError, TraceError
from traces.strict.json_text import finite, parse_value, read_bytes
from traces.strict.limits import MOST_REQUESTS, MOST_S, MOST_TOKENS
from traces.workload.basics import ArrivalProcess
from traces.workload.lengths import Constant, Empirical, Separate, Shares
from traces.workload.model import CV_RANGE, ActiveWindow, Arrival, Client, cv_of_shape

_HINT: Final = "expected a folder of ServeGen's chunk-N-trace.csv and chunk-N-dataset.json"
_NAME: Final = re.compile(r"chunk-(\d+)-trace\.csv(?:\.gz)?")
_FAMILY: Final[Mapping[str, ArrivalProcess]] = {"Gamma": "gamma", "Weibull": "weibull"}
_US: Final = 1_000_000
DEFAULT_SPAN_S: Final = 600.0
MOST_RATE_PER_S: Final = 1e6
"""The highest rate of one client: a thousand times that of a large service in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The part to draw: ``span_s`` from ``start_s`` on (None: where the data is busiest), all rates times ``scale``.

    ``span_s`` inf: to the end of the data.
    """

    start_s: float | None = None
    span_s: float = DEFAULT_SPAN_S
    scale: float = 1.0
    seed: int = 42


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """The clients that send in a cut, and notes on it; ``start_s`` and ``span_s`` as resolved."""

    clients: tuple[Client, ...]
    start_s: float
    span_s: float
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Interval:
    """A client's arrivals from ``start_s`` on, until its next interval begins."""

    start_s: float
    rate_per_s: float
    arrival: Arrival


@dataclass(frozen=True, slots=True, kw_only=True)
class _Histograms:
    """A client's lengths and shares of reasoning from ``start_s`` on, as text in the file; parsed on use."""

    start_s: float
    input_tokens: str
    output_tokens: str
    reason_ratio: str
    file: str

    @property
    def has_lengths(self) -> bool:
        """Whether any request was counted."""
        return len(self.input_tokens) > len("{}") and len(self.output_tokens) > len("{}")

    def lengths(self) -> tuple[Empirical, Empirical]:
        """Return prompt and output lengths. Raises TraceError."""
        return _tokens(self.input_tokens, file=self.file), _tokens(self.output_tokens, file=self.file)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chunk:
    """One client of the data."""

    name: str
    intervals: tuple[_Interval, ...]
    histograms: tuple[_Histograms, ...]
    step_s: float

    def at(self, time_s: float) -> _Histograms | None:
        """Return the lengths at ``time_s``: of its interval, else of the nearest one that has any."""
        known = [each for each in self.histograms if each.has_lengths]
        if not known:
            return None
        place = bisect_right([each.start_s for each in known], time_s) - 1
        return known[max(place, 0)]


def servegen_clients(folder: Path, cut: Cut) -> Population:
    """Return the clients of the data in ``folder``, one per chunk, times from the cut's start.

    Raises TraceError that names file and line for content that the format does not allow, ConfigError for a cut in
    which no client sends.
    """
    chunks = _chunks(folder)
    last = max(chunk.intervals[-1].start_s + chunk.step_s for chunk in chunks)
    start_s = _busiest(chunks, cut.span_s) if cut.start_s is None else cut.start_s
    span_s = min(cut.span_s, max(last - start_s, 0.0)) if cut.span_s == np.inf else cut.span_s
    found = [_client(chunk, cut, start_s=start_s, span_s=span_s) for chunk in chunks]
    clients = tuple(client for client in found if client is not None)
    expected = sum(
        (window.trace_rate_per_s or 0) * (window.end_us - window.start_us) / _US
        for client in clients
        for window in client.windows
    )
    if expected > MOST_REQUESTS:
        raise TraceError(f"{folder}: got {expected:.3g} requests, expected at most {MOST_REQUESTS:,}")
    if not clients:
        raise ConfigError(
            f"--start: got {start_s:g} s, in which no client sends for {span_s:g} s, expected one of "
            f"0 to {last:g} s ({folder})"
        )
    said = (
        f"drawn from {len(clients)} clients of {len(chunks)}, {span_s:g} s from second {start_s:g} of the data, "
        f"rates times {cut.scale:g}",
        "prompt and output lengths are drawn apart: the data has no joint histogram",
        *_about_clipped(clients),
    )
    return Population(clients=clients, start_s=start_s, span_s=span_s, notes=said)


def _client(chunk: _Chunk, cut: Cut, *, start_s: float, span_s: float) -> Client | None:
    """Return the chunk as a client with a window per interval of the cut; None if it sends nothing then."""
    end_s = start_s + span_s
    windows: list[ActiveWindow] = []
    for interval in chunk.intervals:
        begin, end = max(interval.start_s, start_s), min(interval.start_s + chunk.step_s, end_s)
        start_us, end_us = round((begin - start_s) * _US), round((end - start_s) * _US)
        counted = chunk.at(begin)
        if start_us >= end_us or interval.rate_per_s <= 0 or counted is None:
            continue
        prompt, output = counted.lengths()
        windows.append(
            ActiveWindow(
                start_us=start_us,
                end_us=end_us,
                trace_rate_per_s=interval.rate_per_s * cut.scale,
                arrival=interval.arrival,
                prompt=prompt,
                output=output,
                reason_shares=_shares(counted.reason_ratio, file=counted.file),
            )
        )
    if not windows:
        return None
    one = Constant(value=1)  # every window has its own
    return Client(id=chunk.name, lengths=Separate(prompt=one, output=one), windows=tuple(windows))


def _about_clipped(clients: tuple[Client, ...]) -> tuple[str, ...]:
    """Return how many intervals have burstier gaps than can be drawn."""
    _, high = CV_RANGE
    windows = [window for client in clients for window in client.windows]
    number = sum(window.arrival is not None and window.arrival.cv >= high for window in windows)
    said = f"{number} of {len(windows)} intervals have gaps of a cv above {high:g}: drawn with it"
    return (said,) if number else ()


def _busiest(chunks: list[_Chunk], span_s: float) -> float:
    """Return the start of the interval from which on the most requests come within ``span_s``."""
    starts = sorted({interval.start_s for chunk in chunks for interval in chunk.intervals})
    place = {start: i for i, start in enumerate(starts)}
    rates, step = np.zeros(len(starts)), max(chunk.step_s for chunk in chunks)
    for chunk in chunks:
        for interval in chunk.intervals:
            rates[place[interval.start_s]] += interval.rate_per_s
    number = min(max(round(span_s / step), 1), len(starts))
    sums = np.convolve(rates, np.ones(number), mode="valid")
    return starts[int(np.argmax(sums))]


# ── files


def _chunks(folder: Path) -> list[_Chunk]:
    found = {int(match[1]): path for path in _files(folder) if (match := _NAME.fullmatch(path.name))}
    if not found:
        raise TraceError(f"{folder}: got none of its files, {_HINT}")
    return [_chunk(found[number], name=f"chunk-{number}") for number in sorted(found)]


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise TraceError(f"{folder}: got no folder, {_HINT}")
    return list(folder.iterdir())


def _chunk(path: Path, *, name: str) -> _Chunk:
    intervals = _intervals(path)
    places = [path.with_name(f"{name}-dataset.json{ending}") for ending in ("", ".gz")]
    dataset = next((file for file in places if file.exists()), None)
    if dataset is None:
        raise TraceError(f"{places[0].name}: got no such file beside {path.name}, {_HINT}")
    starts = [interval.start_s for interval in intervals]
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    if gaps and min(gaps) <= 0:
        raise TraceError(f"{path.name}: got two intervals that start at once, expected each start once")
    step = min(gaps, default=DEFAULT_SPAN_S)
    return _Chunk(name=name, intervals=intervals, histograms=_histograms(dataset), step_s=step)


def _text(path: Path) -> str:
    try:
        return read_bytes(path, expected="a file of ServeGen's").decode()
    except UnicodeDecodeError as error:
        raise TraceError(f"{path.name}: got {error.reason} at byte {error.start}, {_HINT}") from error


def _intervals(path: Path) -> tuple[_Interval, ...]:
    rows = []
    for number, line in enumerate(_text(path).splitlines(), start=1):
        if line.strip():
            try:
                rows.append(_interval(line))
            except ValueError as error:
                expected = "expected start, rate, cv, Gamma or Weibull or none, shape, scale"
                raise TraceError(f"{path.name}:{number}: got {line!r} ({error}), {expected}") from error
    if not rows:
        raise TraceError(f"{path.name}: got no rows, {_HINT}")
    return tuple(sorted(rows, key=lambda row: row.start_s))


def _interval(line: str) -> _Interval:
    """Return the interval of a line: the fitted shape where there is one, else Poisson. Raises ValueError."""
    start, rate, _, family, shape, _ = (cell.strip() for cell in line.split(","))
    rate_per_s = finite(rate)
    if not 0 <= rate_per_s <= MOST_RATE_PER_S:
        raise ValueError(f"a rate that is not in [0, {MOST_RATE_PER_S:g}]")
    if not 0 <= finite(start) <= MOST_S:
        raise ValueError("a start that cannot be")
    if rate_per_s == 0 or not family:
        return _Interval(start_s=float(start), rate_per_s=rate_per_s, arrival=Arrival())
    if family not in _FAMILY:
        raise ValueError(f"{family!r} is no known family")
    low, high = CV_RANGE
    process = _FAMILY[family]
    if not float(shape) > 0:
        raise ValueError("a shape that is not above 0")
    cv = min(max(cv_of_shape(process, float(shape)), low), high)
    return _Interval(start_s=float(start), rate_per_s=rate_per_s, arrival=Arrival(process=process, cv=cv))


def _histograms(path: Path) -> tuple[_Histograms, ...]:
    try:
        said: Any = parse_value(_text(path))
        return tuple(
            sorted(
                (
                    _Histograms(
                        start_s=finite(start),
                        input_tokens=str(each["input_tokens"]),
                        output_tokens=str(each["output_tokens"]),
                        reason_ratio=str(each.get("reason_ratio", "{}")),
                        file=path.name,
                    )
                    for start, each in said.items()
                ),
                key=lambda each: each.start_s,
            )
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TraceError(f"{path.name}: got {type(error).__name__}: {error}, {_HINT}") from error


def _pairs(text: str, *, file: str) -> dict[float, float]:
    """Return value and weight of each bar of a histogram, which the file writes as a Python literal."""
    try:
        bars = [bar.split(":") for bar in text.strip("{} ").split(",") if bar.strip()]
        return {_tokens_of(value): finite(weight) for value, weight in bars if finite(weight) > 0}
    except ValueError as error:
        raise TraceError(f"{file}: got {text:.40}…, expected a histogram {{value: weight, …}}") from error


def _tokens_of(value: str) -> float:
    number = finite(value)
    if not 0 <= number <= MOST_TOKENS:
        raise ValueError("a length that cannot be")
    return number


@lru_cache(maxsize=1024)
def _tokens(text: str, *, file: str) -> Empirical:
    """Return a histogram of lengths; 0 tokens count as 1."""
    weights: dict[int, float] = {}
    for value, weight in _pairs(text, file=file).items():
        weights[max(round(value), 1)] = weights.get(max(round(value), 1), 0.0) + weight
    if not weights:
        raise TraceError(f"{file}: got {text:.40}, expected a weight above 0")
    tokens = tuple(sorted(weights))
    return Empirical(tokens=tokens, weights=tuple(weights[token] for token in tokens))


@lru_cache(maxsize=1024)
def _shares(text: str, *, file: str) -> Shares | None:
    """Return a histogram of shares of reasoning; None for an empty one."""
    pairs = _pairs(text, file=file)
    if not pairs:
        return None
    values = tuple(sorted(pairs))
    return Shares(values=values, weights=tuple(pairs[value] for value in values))
