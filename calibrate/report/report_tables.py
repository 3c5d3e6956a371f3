"""The report's tables as text, for the Markdown and the HTML alike: a heading and rows of cells."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from calibrate import number_format
from calibrate.compare.metric_errors import MetricErrors
from calibrate.compare.phases import PHASE_NAMES
from calibrate.compare.rates import Rate
from calibrate.compare.served import LATENCIES as SERVED_LATENCIES
from calibrate.compare.served import STATISTICS as SERVED_STATISTICS
from calibrate.compare.served import ServedSide, served_sides
from calibrate.findings import Calibration, Compared
from calibrate.fit.model_selection import TOLERANCE
from calibrate.fit.objective.coefficients import UNITS
from calibrate.fit.result import Fit
from calibrate.fit.uncertainty import Coefficient
from calibrate.run_to_run.bands import MetricBand
from traces.facts import Fact, count
from traces.statistics.bootstrap import Estimate

TextTable = tuple[list[str], list[list[str]]]

ALIKE = 0.01
"""With a smaller relative difference two rows of a table would be the same."""
FRACTIONS = ("good_frac", "prefix_hit_frac")


CANDIDATE_HEAD = ("model", "held-out E2E off by", "held-out loss", "")


def candidate_rows(fit: Fit) -> list[list[str]]:
    """Return the latency models that were compared, the chosen one marked; empty where none was to be chosen."""
    return [
        [
            each.name,
            number_format.percent(each.e2e_off),
            f"{each.loss:.3f}",
            "chosen" if each.chosen else "" if each.is_shown else "no slowdown shows",
        ]
        for each in fit.candidates
    ]


def choice_text(fit: Fit) -> str:
    """Return why the chosen model was chosen, in a sentence; empty where none was to be chosen."""
    chosen = next((each for each in fit.candidates if each.chosen), None)
    if chosen is None:
        return ""
    if chosen.e2e_off <= min(each.e2e_off for each in fit.candidates if each.is_shown):
        return f"{chosen.name}: its held-out E2E is the nearest"
    return (
        f"{chosen.name}: its held-out E2E is as near as the best one's within {100 * TOLERANCE:g} %, and of such "
        "models it extrapolates most safely beyond the fitted loads"
    )


BLACKBOX_HEAD = ("blackbox, not chosen", "value", "interval", "unit")


def blackbox_rows(fit: Fit) -> list[list[str]]:
    """Return blackbox's coefficients where another model was chosen; empty otherwise."""
    return [coefficient_cells(each) for each in fit.blackbox]


def coefficient_cells(each: Coefficient) -> list[str]:
    """Return a coefficient's name, value, interval and unit."""
    value, low, high = (number_format.coefficient(end) for end in (each.value, each.low, each.high))
    between = number_format.NONE if each.low is None else f"{low} … {high}"
    return [each.name, value, between, UNITS[each.name]]


def shown_metrics(errors: Mapping[str, MetricErrors]) -> list[str]:
    """Return the metrics worth a row: TTFT from due only where it is another than TTFT, on one side at least."""
    due, sent = errors.get("ttft_from_due_us"), errors.get("ttft_us")
    if due is None or sent is None:
        return list(errors)
    differ = _differ(due.observed, sent.observed) or _differ(due.simulated, sent.simulated)
    return [name for name in errors if name != "ttft_from_due_us" or differ]


PER_REQUEST_MEANING = (
    "observed and simulated are means; MAPE and bias are means over requests of |error| / observed and error / "
    "observed, in which short requests count as much as long ones"
)
EXPECTED = (
    "expected: the error that remains even of a right twin, since requests come a little earlier or later within a "
    "step: the MAPE of a request's median over runs of the twin with such arrivals"
)
OF_GAPS = (
    "ITL is of gaps between tokens; its errors per request are TPOT's, a request's mean gap being its TPOT"
)

TERMS = (
    "R: correlation of the two values of a request, 1 where they rise together on a line; rank R: the same of their "
    "ranks, which long requests do not lead; KS: largest distance between the two curves of the distributions, 0 to 1; "
    "Wasserstein: mean distance between these curves, as a time"
)
CONDITION_NUMBER = "large where coefficients can make up for each other, 1 where none can"


def is_of_gaps_only(errors: Mapping[str, MetricErrors], name: str) -> bool:
    """Return whether a metric's errors per request are another's: a request's mean ITL is its TPOT."""
    itl, tpot = errors.get("itl_us"), errors.get("tpot_us")
    if name != "itl_us" or itl is None or tpot is None:
        return False
    couples = ((itl.mape.value, tpot.mape.value), (itl.bias.value, tpot.bias.value))
    return itl.n == tpot.n and all(
        a is not None and b is not None and math.isclose(a, b, rel_tol=ALIKE, abs_tol=1e-4)
        for a, b in couples
    )


def reading_of(calibration: Calibration) -> str:
    """Return the meaning of the columns of held-out errors and of their intervals, in a few sentences."""
    meant = [PER_REQUEST_MEANING, *([OF_GAPS] if is_of_gaps_only(calibration.holdout, "itl_us") else [])]
    meant += ratio_notes(calibration.holdout)
    if calibration.pairs.again is not None:
        meant += [EXPECTED, calibration.options.run_to_run.text()]
    return "; ".join([*meant, *band_texts(calibration.bands)])


def band_texts(bands: Mapping[str, MetricBand]) -> list[str]:
    """Return the ranges of one request's latencies, a clause per metric."""
    return [
        f"one request's {number_format.METRIC_NAMES[name]}: {band.low:.3g} to {band.high:.3g} times the expected one "
        f"(of held-out requests {band.holds_frac:.0%} are)"
        for name, band in bands.items()
    ]


def has_expected(errors: Mapping[str, MetricErrors]) -> bool:
    """Return whether any metric has errors of expected values."""
    return any(each.mape_expected is not None for each in errors.values())


def _of_ratios(found: MetricErrors) -> str:
    """Return how many of the requests have errors of their own, where that is not all."""
    return "" if found.num_ratios == found.n else f" ({found.num_ratios:,})"


def ratio_notes(errors: Mapping[str, MetricErrors]) -> list[str]:
    """Return what a second number of requests is, where a table has one."""
    if all(each.num_ratios == each.n for each in errors.values()):
        return []
    return ["n in brackets: the requests behind MAPE and bias; an observed time of 0 has neither"]


def metric_facts(
    errors: Mapping[str, MetricErrors], noise: Mapping[str, MetricErrors], name: str
) -> list[Fact]:
    """Return a metric's errors per request, of the mean and of p99, its correlations and distances.

    Errors per request are left out if they equal another metric's, expected ones unless some metric has them, and the
    noise floor's unless there is one.
    """
    found, again = errors[name], noise.get(name)
    told = not is_of_gaps_only(errors, name)
    return [
        Fact("name", "metric", number_format.METRIC_NAMES[name]),
        Fact("n", "n", found.n, count, note=_of_ratios(found)),
        _percent("mape", "MAPE", found.mape if told else None),
        *(
            [_percent("expected", "expected", found.mape_expected if told else None)]
            if has_expected(errors)
            else []
        ),
        *([_percent("noise", "noise floor", again.mape if again and told else None)] if noise else []),
        _percent("bias", "bias per request", found.bias if told else None, signed=True),
        _percent("mean", "mean", found.rel_error["mean"], signed=True),
        _percent("p99", "p99", found.rel_error["p99"], signed=True),
        _share("pearson_r", "R", found.pearson_r if told else None),
        _share("spearman_r", "rank R", found.spearman_r if told else None),
        _share("ks", "KS", found.ks),
        Fact(
            "distance",
            "Wasserstein",
            found.wasserstein_us.value,
            number_format.duration,
            none=number_format.NONE,
        ),
    ]


def _percent(key: str, term: str, found: Estimate | None, *, signed: bool = False) -> Fact:
    """Return an estimate as a percentage with its interval; a dash where there is none."""
    if found is None:
        return Fact(key, term, number_format.NONE)
    aside = number_format.percent_interval(found, signed=signed)
    return Fact(key, term, number_format.percent(found.value, signed=signed), aside=aside)


def _share(key: str, term: str, found: Estimate | None) -> Fact:
    """Return a correlation or a distance with its interval; a dash where there is none."""
    if found is None:
        return Fact(key, term, number_format.NONE)
    low, high = number_format.share(found.low), number_format.share(found.high)
    return Fact(
        key, term, number_format.share(found.value), aside="" if found.low is None else f"{low} … {high}"
    )


def _differ(one: Mapping[str, float | None], other: Mapping[str, float | None]) -> bool:
    """Return whether a statistic differs by more than ``ALIKE`` of the greater value."""
    couples = [(one[name] or 0.0, other[name] or 0.0) for name in one]
    return any(abs(a - b) > ALIKE * max(abs(a), abs(b)) for a, b in couples)


def amount(name: str, value: float | None) -> str:
    """Return a rate as it is read: shares as percentages, counts without decimals, the others as numbers."""
    if name == "num_preemptions":
        return tokens(value)
    return number_format.percent(value) if name in FRACTIONS else number_format.rate(value)


def rates_table(calibration: Calibration) -> TextTable:
    """Return the runs' rates on both sides, with the noise floor's error, and the saturated runs' capacity."""
    noise = {} if calibration.noise is None else calibration.noise.accuracy.rates
    rows = [
        _rate_row(name, rate, noise.get(name) if noise else None, has_noise=bool(noise))
        for name, rate in calibration.held_out.rates.items()
    ]
    rows += [
        _rate_row(
            name, rate, None, has_noise=bool(noise), label=f"capacity, {number_format.RATE_NAMES[name]}"
        )
        for name, rate in calibration.held_out.capacity.items()
        if name.endswith("throughput")
    ]
    head = ["over the run", "n", "observed", "simulated", "relative", "interval"]
    return [*head, *(["noise floor"] if noise else [])], rows


def _rate_row(name: str, rate: Rate, noise: Rate | None, *, has_noise: bool, label: str = "") -> list[str]:
    cells = [
        label or number_format.RATE_NAMES[name],
        f"{rate.n:,}",
        amount(name, rate.observed),
        amount(name, rate.simulated),
        number_format.percent(rate.rel_error.value, signed=True),
        number_format.percent_interval(rate.rel_error, signed=True),
    ]
    if has_noise:
        cells.append(number_format.percent(None if noise is None else noise.rel_error.value, signed=True))
    return cells


def equivalence_table(calibration: Calibration) -> TextTable:
    """Return the tests of equivalence: ratio of the means, margin, p-value."""
    rows = [
        [
            number_format.METRIC_NAMES[name],
            number_format.share(each.ratio),
            f"{number_format.share(1 / (1 + each.margin))} … {number_format.share(1 + each.margin)}",
            number_format.p_value(each.p_value),
            number_format.NONE if each.equivalent is None else "yes" if each.equivalent else "not shown",
        ]
        for name, each in calibration.equivalence.items()
    ]
    return ["equivalence of means", "ratio", "margin", "p", "equivalent"], rows


def served_table(runs: Sequence[Compared]) -> tuple[list[str], list[list[str]], list[int]]:
    """Return a row per run and side in absolute numbers, and where each run after the first begins."""
    found = [(each.source.name, role, side) for each in runs for role, side in _both_sides(each)]
    names, columns = [], []
    for metric in SERVED_LATENCIES:
        values = [side.latencies_us[metric] for _, _, side in found]
        of_statistics = [
            [None if each is None else each[place] for each in values]
            for place in range(len(SERVED_STATISTICS))
        ]
        unit, shown = number_format.in_one_unit(*of_statistics)
        names += [f"{number_format.METRIC_NAMES[metric]} {each}, {unit}" for each in SERVED_STATISTICS]
        columns += shown
    rows = [
        [
            name if role == "observed" else "",
            role,
            number_format.rate(side.requests_per_s),
            number_format.rate(side.output_tokens_per_s),
            *times,
        ]
        for (name, role, side), times in zip(found, zip(*columns, strict=True), strict=True)
    ]
    head = ["run", "", "requests/s", "output tokens/s", *names]
    return head, rows, [2 * number for number in range(1, len(runs))]


def _both_sides(compared: Compared) -> Iterator[tuple[str, ServedSide]]:
    yield from zip(("observed", "simulated"), served_sides(compared.pairs), strict=True)


def origin_table(calibration: Calibration) -> TextTable:
    """Return a mean request's phases on both sides and how much of the error each brings."""
    assert calibration.origin is not None  # noqa: S101 - the caller has looked
    phases = calibration.origin.phases
    unit, columns = number_format.in_one_unit(
        [phase.observed for phase in phases.values()],
        [phase.simulated for phase in phases.values()],
        [phase.error.value for phase in phases.values()],
    )
    rows = [
        [
            PHASE_NAMES[name],
            *times,
            number_format.percent(phase.share.value, signed=True),
            number_format.percent_interval(phase.share, signed=True),
        ]
        for (name, phase), times in zip(phases.items(), zip(*columns, strict=True), strict=True)
    ]
    return ["phase of a mean request", *sides(unit), "of E2E", "interval"], rows


def sides(unit: str) -> list[str]:
    """Return the headings of both sides and their difference, with the unit."""
    return [f"{name}, {unit}" for name in ("observed", "simulated", "error")]


def worst_table(calibration: Calibration) -> TextTable:
    """Return the worst requests: where to find them and how long each side takes."""
    many = len({each.trace for each in calibration.worst}) > 1
    unit, (arrivals,) = number_format.in_one_unit([each.arrival_us for each in calibration.worst])
    rows = [
        [
            each.request_id,
            *([each.trace] if many else []),
            arrival,
            tokens(each.prompt_tokens),
            tokens(each.output_tokens),
            f"{each.in_flight:,}",
            phases(each.observed_phases),
            phases(each.simulated_phases),
            number_format.percent(each.rel_error, signed=True),
        ]
        for each, arrival in zip(calibration.worst, arrivals, strict=True)
    ]
    head = ["request", *(["trace"] if many else []), f"arrival, {unit}", "prompt", "output", "in flight"]
    return [*head, "observed", "simulated", "E2E error"], rows


def tokens(value: float | None) -> str:
    """Return a number of tokens."""
    return number_format.NONE if value is None else f"{value:,.0f}"


def phases(values: Sequence[float]) -> str:
    """Return a request's phases one after another, as ``1 ms + 2 ms + …``."""
    return " + ".join(number_format.duration(value) for value in values)


def saturation_rows(calibration: Calibration) -> list[list[str]]:
    """Return, per trace, whether the server served the load, and the numbers behind it."""
    return [
        [
            each.source.name,
            each.saturation.state,
            _slope(each.saturation.slope_per_s),
            number_format.NONE if each.saturation.backlog is None else f"{each.saturation.backlog:,}",
            f"{number_format.share(each.saturation.index)} ({number_format.share(each.saturation.floor)})",
            each.saturation.reason,
        ]
        for each in calibration.traces
    ]


SATURATION_HEAD = ["trace", "load", "in flight, per s", "backlog", "index (chance below)", "why"]


def _slope(slope: Estimate) -> str:
    if slope.value is None:
        return number_format.NONE
    if slope.low is None or slope.high is None:
        return number_format.signed(slope.value)
    value, low, high = (number_format.signed(each) for each in (slope.value, slope.low, slope.high))
    return f"{value} ({low} … {high})"


def steps_table(calibration: Calibration) -> TextTable:
    """Return how far single steps of engine logs are from the twin's."""
    rows = [
        [
            each.source.name,
            f"{len(each.steps.steps):,}",
            number_format.percent(each.steps.mape),
            number_format.percent(each.steps.bias, signed=True),
            number_format.percent(each.steps.time_error, signed=True),
            number_format.share(each.steps.pearson_r),
        ]
        for each in calibration.traces
        if each.steps is not None
    ]
    return ["engine log of", "steps", "MAPE", "bias", "time in all", "R"], rows


def strata_rows(calibration: Calibration) -> tuple[list[str], list[tuple[str, str, str]]]:
    """Return the metrics that are shown by kind of request, and (by, which, n) of every kind."""
    metrics = list(dict.fromkeys(name for each in calibration.strata for name in each.mape))
    kinds = [(number_format.STRATUM_NAMES[each.by], each.label, f"{each.n:,}") for each in calibration.strata]
    return metrics, kinds
