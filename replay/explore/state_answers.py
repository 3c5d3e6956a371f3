"""What a state of the page is answered with: the command's own document first, then curves, then sharper figures.

Each function yields messages, between which a newer turn may take the place of the one under way. Nothing is computed
here that a command does not compute: a run is ``Run.document()``, a curve and a capacity are ``vtwin capacity``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from replay.capacity.page import curve_pictures
from replay.capacity.question import asked_capacity, drawn
from replay.capacity.text import why_none
from replay.explore.build_twin import FILE, build_form, built, twin_text
from replay.explore.interval_rows import with_intervals
from replay.explore.knobs import MOST_TURNED, PageStart, form_of, shares_of, turned, values_of
from replay.explore.shown_pictures import documents_of
from replay.model.prices import ServerPrices, list_price_notes, list_prices_per_hour, read_server_prices
from replay.profiles.known_errors import known_error_of
from replay.search.evaluation import Evaluation, Evaluator
from replay.search.load import load_of
from replay.simulation.command import why_no_answer
from replay.simulation.one_server_page import hits_picture, latency_pictures, run_title, use_pictures
from replay.simulation.variants.simulated import columns_of
from replay.simulation.variants.variant import Variant, result_of
from replay.trace.summary_text import failures_note
from replay.twin.config_write import dump_config
from traces import ConfigError, TraceError, parse_run_slo, request_latencies
from traces.facts import json_text
from traces.pages.request_figures import throughput_picture

if TYPE_CHECKING:
    from replay.capacity.capacity import Capacity
    from replay.explore.asked_run import AskedRun
    from replay.simulation.simulated_run import Run
    from replay.twin.twin_config import TwinConfig
    from traces import RunLimit

Message = dict[str, object]
SHARPER = 100_000
"""Requests of the run that follows a turn."""
OF_BUILT = "twin."
"""What the names begin with that a state has of a twin that the form made."""
KEPT_BUILT = 8
"""Twins of the form that are kept read."""
SHARES = (0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
"""Of the rate in hand: rates of the curve where no limit says how far it should go."""


class StateAnswers:
    """StateAnswers to states of one page. ``begin``: what it begins with; ``prices``: what servers cost."""

    def __init__(self, asked: AskedRun, prices: Path | None) -> None:
        """Keep what the page begins with; it is read when it is first asked for."""
        self._asked = asked
        self._prices = prices

    @cached_property
    def begin(self) -> PageStart:
        """What the page begins with. Raises ConfigError and TraceError."""
        return _start_of(self._asked)

    def at(self, state: Mapping[str, str]) -> tuple[PageStart, dict[str, str]]:
        """Return what a state begins with, and the knobs that it turns. Raises ConfigError and TraceError.

        Where it has keys of a twin that the form made (``twin.engine.max_num_seqs``), it begins with that twin alone.
        """
        values = {name: text for name, text in state.items() if name.startswith(OF_BUILT)}
        if not values:
            return self.begin, dict(state)
        built = tuple(sorted((name.removeprefix(OF_BUILT), text) for name, text in values.items()))
        return _built_start(self._asked, built), {
            name: text for name, text in state.items() if name not in values
        }

    def asked(self, state: Mapping[str, str]) -> AskedRun:
        """Return the run that a state asks for. Raises ConfigError and TraceError."""
        return turned(*self.at(state))

    @cached_property
    def prices(self) -> ServerPrices:
        """What servers cost: as the user says, else list prices, which not every GPU has."""
        if self._prices is not None:
            return read_server_prices(self._prices)
        return ServerPrices(per_gpu=list_prices_per_hour())

    def to(self, what: str, state: Mapping[str, str]) -> Iterator[Message | None]:
        """Return the messages that answer a question, None between its parts. Raises ConfigError and TraceError."""
        ways: dict[str, Callable[[Mapping[str, str]], Iterator[Message | None]]] = {
            "form": self.form,
            "turn": self.turn,
            "document": self.document,
            "further": self.further,
            "build": built,
        }
        return ways[what](state) if what in ways else iter(())

    def check(self, state: Mapping[str, str]) -> None:
        """Raise ConfigError or TraceError on a beginning, or a state of it, that no turn can have."""
        _ = self.prices
        _check_load(self.begin.asked, self.begin.twin)
        try:
            asked = self.asked(state)
        except ConfigError as error:
            raise ConfigError(f"--state {error}") from None
        _check_load(asked, asked.twin())

    def form(self, state: Mapping[str, str]) -> Iterator[Message]:
        """Yield the form for the twin of a state, and what it is about; the first where the state's cannot be."""
        try:
            begin, _ = self.at(state)
        except (ConfigError, TraceError):  # which the state's turn tells
            begin = self.begin
        yield {
            "kind": "form",
            "knobs": form_of(begin),
            "keys": build_form(),
            "twin": str(begin.asked.config),
        }

    def turn(self, state: Mapping[str, str]) -> Iterator[Message | None]:
        """Yield the answer to a state; None between its parts. Raises ConfigError and TraceError."""
        begin, turns = self.at(state)
        asked = turned(begin, turns)
        twin = asked.twin()
        yield None
        _check_load(asked, twin)
        yield None
        run = asked.run(twin)
        yield None
        _ = run.summary
        yield None
        yield {**self._told(asked, run), "values": values_of(begin, turns)}

    def document(self, state: Mapping[str, str]) -> Iterator[Message | None]:
        """Yield the document of a state's run, as ``vtwin run --json`` prints it."""
        run = self.asked(state).run()
        yield None
        yield {"kind": "document", "text": json_text(run.document())}

    def _told(self, asked: AskedRun, run: Run) -> Message:
        span_us = float(max(run.summary["duration_us"], 1))
        pictures = use_pictures(run.usage, span_us)
        if (hits := hits_picture(run.trace, span_us)) is not None:
            pictures["hits"] = hits
        pictures["throughput"] = throughput_picture(run.trace, span_us)
        return {
            "kind": "answer",
            "title": _title(run),
            "verdict": run.summary["verdict"],
            "has_rate": has_rate(asked),
            "trust": trust_of(run),
            "warnings": list(run.warnings),
            "prices": self._priced_by(run.twin),
            "column": self._column(run),
            "over_time": documents_of(pictures),
            "latencies": documents_of(
                latency_pictures(
                    request_latencies(run.trace), run.simulation.batch_sizes(), run.plan.settings.slo_us
                )
            ),
            "command": asked.command(),
            "twin": str(asked.config),
            "built": asked.built,
            "yaml": dump_config(run.twin),
        }

    def _priced_by(self, twin: TwinConfig) -> str:
        """Return whose prices the table's costs are of, and in which currency; "" where it has none."""
        gpus = {name for name, _ in twin.gpus_of_pools}
        if not gpus:
            return ""
        if self._prices is not None:
            return f"Costs are in the currency of {self._prices.name}."
        return " ".join(f"{note[0].upper()}{note[1:]}." for note in list_price_notes(gpus))

    def _column(self, run: Run) -> dict[str, str]:
        """Return a run's figures by their names, as the table of several variants has them."""
        variant = Variant(settings={}, varied={}, twin=run.twin, trace=run.plan.asked)
        column = columns_of([result_of(run, variant, prices=self.prices)])[0]
        return with_intervals(column, run.summary)

    def further(self, state: Mapping[str, str]) -> Iterator[Message | None]:
        """Yield what follows a turn by itself: the curve over rates, a longer run, the capacity with its interval.

        Where a load has none of them, a curve without figures says why.
        """
        asked = self.asked(state)
        twin = asked.twin()
        yield None
        if not has_rate(asked):
            yield from self._longer(asked, twin)
            return
        try:
            yield from _curve(asked, twin)
            if (
                twin.assumes_memory
                and (doubt := asked.run(twin).kv_doubt) is not None
                and (line := doubt.line())
            ):
                yield {"kind": "doubt", "text": line}
            yield from self._longer(asked, twin)
            if asked.slo and asked.workload.trace is None:  # whose curve has all that there is
                yield _capacity(asked, twin)
        except (ConfigError, TraceError) as error:
            yield {"kind": "curve", "figures": [], "capacity": "", "fault": str(error), "is_rough": False}

    def _longer(self, asked: AskedRun, twin: TwinConfig) -> Iterator[Message | None]:
        """Yield the figures of a longer run, where the load is drawn, can be longer, and the fleet is no large one."""
        number, load = sum(pool.instances for pool in twin.cluster.pools), asked.workload
        if any(each is not None for each in (load.trace, load.batch, load.stages)) or number > MOST_LONGER:
            return
        longer = asked.sharper(SHARPER)
        run = longer.run(twin)
        yield None
        yield {
            "kind": "sharper",
            "num_requests": len(run.trace),
            "column": self._column(run),
            "title": _title(run),
            "command": longer.command(),
        }


def _start_of(asked: AskedRun) -> PageStart:
    """Return what a page begins with that asks for a run first. Raises ConfigError and TraceError."""
    twin = asked.twin()
    trace = asked.load(twin)
    has_sessions = "session_id" in trace.table and bool(trace.cells("session_id").is_known.any())
    return PageStart(asked=asked, twin=twin, has_sessions=has_sessions, shares=shares_of(asked.workload))


@lru_cache(maxsize=KEPT_BUILT)
def _built_start(first: AskedRun, values: tuple[tuple[str, str], ...]) -> PageStart:
    """Return the beginning with a twin of a form's values and the first one's load and limits. Raises ConfigError."""
    text = twin_text({name: text.strip() for name, text in values})
    return _start_of(
        replace(first, config=FILE, built=text, settings=(), instances=None, routing=None, defaults=None)
    )


def _check_load(asked: AskedRun, twin: TwinConfig) -> None:
    """Raise ConfigError on a load of too many requests for a turn, TraceError on one that cannot be read."""
    number = len(asked.load(twin))
    if number > MOST_TURNED:
        raise ConfigError(
            f"--num-requests: got a load of {number:,} requests, expected at most {MOST_TURNED:,} for a turn"
        )


MOST_LONGER = 64
"""Instances up to which a longer run follows."""


MOST_LOST = 0.5
"""Where more of the requests are not answered, and nothing says whether the server keeps up, the headline is that."""


def _title(run: Run) -> str:
    """Return the headline: the run's page's, or in the command's words why there are no answers to tell of."""
    counts = run.summary["num_by_status"]
    num, num_ok = sum(counts.values()), counts.get("ok", 0)
    said = run_title(run.summary, "server" if run.twin.is_plain_server else "fleet")
    if num_ok == 0:
        said = why_no_answer(run)
    elif run.summary["verdict"] is None and num_ok < (1 - MOST_LOST) * num:
        said = "; ".join([failures_note(counts) or said, *run.summary["num_by_reason"]])
    return f"{said[0].upper()}{said[1:]}."


def has_rate(asked: AskedRun) -> bool:
    """Return whether requests come at a rate, which can be another one."""
    load = asked.workload
    is_paced = any(
        each is not None for each in (load.concurrency, load.batch, load.stages, asked.sessions.sessions)
    )
    return not is_paced


def trust_of(run: Run) -> list[str]:
    """Return how far a run can be trusted, in sentences: what the twin was fitted on, and by how much it may be off."""
    twin, told = run.twin, []
    error = known_error_of(twin)
    if error is not None:
        of_others = "" if error.is_of_this_gpu else " of other GPUs"
        told.append(
            f"Step times follow from model and GPU. On measured servers{of_others} half of such answers were "
            f"off by more than the first figure, one of ten by more than the second: "
            f"TTFT {error.text('ttft')}, TPOT {error.text('tpot')}"
        )
    elif twin.fitted is None:
        told.append("The twin does not say on which loads it was fitted")
    elif run.outside is None and twin.outside_server is None:
        told.append("The run is within the loads and lengths that the twin was fitted on")
    else:
        told += [
            f"{each[0].upper()}{each[1:]}" for each in (run.outside, twin.outside_server) if each is not None
        ]
    if run.band is not None:
        told.append(
            f"All steps may be off by {run.band['delta_frac']:.1%} together: the pace bands of the table"
        )
    return told


def _curve(asked: AskedRun, twin: TwinConfig) -> Iterator[Message | None]:
    """Yield latencies over rate of the same requests, with the capacity where limits say what it is."""
    limits = parse_run_slo(asked.slo) if asked.slo else ()
    fitted = _fitted(twin)
    if not limits:
        trace = asked.load(twin)
        load = load_of(trace, twin)
        evaluator = Evaluator(loads=[load], limits=())
        points = []
        for share in SHARES:
            points.append(evaluator.at(load.own_rate_per_s * share))
            yield None
        yield _told_curve(points, (), rate_per_s=None, fitted=fitted, capacity="", rate=load.own_rate_per_s)
        return
    workload = replace(asked.workload, rate=None)
    traces, drawing = drawn(workload, seeds=1)
    found, _ = asked_capacity(traces, twin, limits, with_binding=False, drawing=drawing, price_per_hour=None)
    yield None
    yield _told_curve(
        found.curve,
        limits,
        rate_per_s=found.rate_per_s,
        fitted=fitted,
        capacity=_in_words(found, limits),
        is_rough=workload.trace is None,
    )


def _in_words(found: Capacity, limits: Sequence[RunLimit]) -> str:
    """Return the capacity in a line, or why there is none, as the command has it."""
    return str(found) if found.rate_per_s is not None else why_none(found, limits)


def _told_curve(
    points: Sequence[Evaluation],
    limits: Sequence[RunLimit],
    *,
    rate_per_s: float | None,
    fitted: tuple[float, float] | None,
    **more: object,
) -> Message:
    """Return the curve through these points; without figures where there is none, or where nothing finished at any."""
    is_drawn = any(np.isfinite(times).any() for each in points for times in each.curve_us.values())
    shown = curve_pictures(points, limits, capacity=rate_per_s, fitted=fitted) if is_drawn else {}
    if points and not is_drawn:
        more["fault"] = "no request finished at any rate"
    return {"kind": "curve", "figures": documents_of(shown), "is_rough": False, **more}


def _capacity(asked: AskedRun, twin: TwinConfig) -> Message:
    """Return the capacity as ``vtwin capacity`` finds it, with its interval and the curve around it."""
    limits = parse_run_slo(asked.slo or "")
    traces, drawing = drawn(replace(asked.workload, rate=None, num_requests=None), seeds=None)
    found, question = asked_capacity(
        traces, twin, limits, with_binding=False, drawing=drawing, price_per_hour=None
    )
    return _told_curve(
        found.curve,
        limits,
        rate_per_s=found.rate_per_s,
        fitted=_fitted(twin),
        capacity=_in_words(found, limits),
        notes=list(question.notes),
    )


def _fitted(twin: TwinConfig) -> tuple[float, float] | None:
    """Return the request rates that a twin was fitted on, of all its servers together."""
    if twin.fitted is None or twin.fitted.rate_per_s is None:
        return None
    number = sum(pool.instances for pool in twin.cluster.pools)
    low, high = twin.fitted.rate_per_s
    return low * number, high * number
