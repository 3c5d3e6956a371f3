"""The highest rate within an SLO on a live server, as a function; ``vtwin observe --find-capacity`` prints the same.

Each step is a trace in the folder, and ``capacity.json`` says after each which there are: a search that was cut short
goes on from them.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from lazy_dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from observe.capacity.live_capacity import LiveCapacity
from observe.capacity.live_steps import (
    LiveStep,
    check_workload,
    probe_of,
    rate_of_probe,
    requests_of,
    step_of,
)
from observe.capacity.page import page_of
from observe.capacity.rate_search import NextRate, RateSearch
from observe.judged.criteria import FAILED, Criterion, criteria_of
from observe.judged.step_watch import StepWatch
from observe.observation import Observation, observe_with
from observe.settings import FRACTION, NO_WARM_UP, Limits
from observe.settings import PRECISION as PRECISIONS
from traces import ConfigError, ServerError, make_folder, note_replaced, sole_owner, write_text
from traces.strict.arguments import PATH, TEXT, OfClass, check_fields, takes

if TYPE_CHECKING:
    from observe.observation import Display
    from observe.settings import Settings
    from traces import Trace
    from traces.workload import WorkloadOptions

DOCUMENT: Final = "capacity.json"
PAGE: Final = "report.html"
PRECISION: Final = 0.03
DRAIN_S: Final = 2.0
"""How long a step that is known waits for requests in flight, before it drops them."""


Observe = Callable[..., Awaitable[Observation]]
"""Observes a step: requests, stem, watch; ``is_first``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """The rate to begin at, requests per s; ``is_near``: a twin found it."""

    rate_per_s: float
    is_near: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FindSettings:
    """How to search. ``begin``: where, None: at the workload's rate, else where a probe says.

    ``precision``: how near the rate must be known, with 99 %, as a share of it. ``good_frac``: the share of requests
    that must meet limits of each request, None: 99 %. ``resume``: go on from the steps that are in the folder;
    ``overwrite``: replace them.
    """

    begin: Begin | None = None
    precision: float = PRECISION
    good_frac: float | None = None
    resume: bool = False
    overwrite: bool = False

    def __post_init__(self) -> None:
        """Check the numbers. Raises ConfigError."""
        check_fields(self, precision=PRECISIONS, good_frac=FRACTION)


@takes(
    workload=OfClass(("WorkloadOptions",), "WorkloadOptions"),
    settings=OfClass(("Settings",), "Settings"),
    slo=TEXT,
    folder=PATH,
    how=OfClass(("FindSettings",), "FindSettings"),
)
async def find_capacity(
    workload: WorkloadOptions,
    settings: Settings,
    slo: str,
    *,
    folder: Path,
    how: FindSettings | None = None,
    display: Display | None = None,
    tell: Callable[[str], None] | None = None,
    handle_signals: bool = False,
) -> LiveCapacity:
    """Return the highest rate at which a live server keeps ``slo``, ``"ttft_p99=500ms"`` or ``"ttft=500ms"``.

    ``workload``: options of a drawn load; its rate, if any, is where the search begins, ``num_requests`` or
    ``duration`` the most of a step. Steps, document and page are written to ``folder``. Raises ConfigError for a
    question that cannot be asked, ServerError where nothing answers.
    """
    how = how or FindSettings()
    check_workload(workload)
    if settings.processes > 1 or settings.machines is not None:
        raise ConfigError(
            "--processes, --dask, --ray: cannot be combined with --find-capacity, which one process sends"
        )
    say = tell or (lambda _: None)
    criteria = criteria_of(slo, good_frac=how.good_frac, tell=say)
    asked = _question(workload, slo, how)
    make_folder(folder, option="--output")
    observe = _observing(settings, display=display, say=say, handle_signals=handle_signals)
    with sole_owner(folder):
        there = _there(folder, asked, resume=how.resume, overwrite=how.overwrite)
        live = _LiveSearch(
            workload=workload,
            folder=folder,
            criteria=criteria,
            asked=asked,
            precision=how.precision,
            observe=observe,
            tell=say,
            overwrite=how.overwrite or how.resume,
        )
        return await live.run(how.begin, there)


def _observing(
    settings: Settings, *, display: Display | None, say: Callable[[str], None], handle_signals: bool
) -> Observe:
    """Return what observes a step's requests into a stem. It raises ServerError where none is answered."""

    async def observe(requests: Trace, stem: Path, watch: StepWatch | None, *, is_first: bool) -> Observation:
        seen = await observe_with(
            requests,
            _of_step(settings, is_first=is_first),
            output=stem,
            display=display,
            tell=say,
            handle_signals=handle_signals,
            watch=watch,
        )
        if seen.num_ok == 0 and not seen.interrupted:
            raise ServerError(f"{stem.name}: got no answer to {len(seen.trace):,} requests, expected some")
        return seen

    return observe


def _of_step(settings: Settings, *, is_first: bool) -> Settings:
    """Return how to observe a step: only the first warms the server up, and none waits long for what is not judged."""
    limits: Limits = replace(settings.limits, drain_s=min(settings.limits.drain_s, DRAIN_S))
    return replace(settings, limits=limits, warmup=settings.warmup if is_first else NO_WARM_UP)


def _question(workload: WorkloadOptions, slo: str, how: FindSettings) -> dict[str, Any]:
    """Return what makes two searches the same, as JSON has it."""
    options = {name: value for name, value in asdict(workload).items() if value is not None}
    told = {
        name: value if isinstance(value, (int, float, str)) else str(value) for name, value in options.items()
    }
    return {"slo": slo, "precision": how.precision, "good_frac": how.good_frac, "workload": told}


def _there(folder: Path, asked: Mapping[str, Any], *, resume: bool, overwrite: bool) -> Mapping[str, Any]:
    """Return the document of a search that is to go on, else an empty one. Raises ConfigError."""
    path = folder / DOCUMENT
    if not path.is_file():
        return {}
    if not resume:
        if overwrite:
            return {}
        raise ConfigError(
            f"{path}: exists, expected --resume to go on, --overwrite to begin anew, or another --output"
        )
    try:
        told = json.loads(path.read_text())
        if told["question"] != asked:
            raise ConfigError(
                f"--resume: got another question than that of {path}, expected the same options"
            )
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path}: got no document of --find-capacity, expected one, or another --output"
        ) from error
    found: Mapping[str, Any] = told
    return found


@dataclass(slots=True, kw_only=True)
class _LiveSearch:
    """A search under way."""

    workload: WorkloadOptions
    folder: Path
    criteria: Sequence[Criterion]
    asked: Mapping[str, Any]
    precision: float
    observe: Observe
    tell: Callable[[str], None]
    overwrite: bool

    async def run(self, begin: Begin | None, there: Mapping[str, Any]) -> LiveCapacity:
        """Observe step by step until the search ends, or the user ends it."""
        probe_per_s = there.get("probe_rate")
        is_near = bool(there.get("begins_near", begin is not None and begin.is_near))
        first = self.workload.rate if begin is None else begin.rate_per_s
        known = [
            step_of(self.folder / each["trace"], each["rate"], self.criteria, purpose=each["purpose"])
            for each in there.get("evaluations", [])
        ]
        if known:
            self.tell(f"already there: {len(known)} of the steps")
            first = known[0].seen.rate_per_s
        if first is None:
            first = probe_per_s = probe_per_s or await self._probe()
        if first is None:
            return self._told([], None, probe_per_s, "interrupted")
        search = RateSearch(
            criteria=self.criteria, begin_per_s=first, is_near=is_near, precision=self.precision
        )
        return await self._steps(search, known, probe_per_s)

    async def _probe(self) -> float | None:
        """Return the rate to begin at, by requests that are all sent at once; None: interrupted."""
        requests = probe_of(self.workload)
        self.tell(f"probe: {len(requests)} requests at once, for a rate to begin at")
        self._may_replace(self.folder / "probe")
        seen = await self.observe(requests, self.folder / "probe", None, is_first=True)
        return None if seen.interrupted else rate_of_probe(seen.trace)

    async def _steps(
        self, search: RateSearch, steps: list[LiveStep], probe_per_s: float | None
    ) -> LiveCapacity:
        state = "finished"
        while (following := search.next_rate([each.seen for each in steps])) is not None:
            if steps and steps[-1].client_limited is not None:
                state = "client limited"
                break
            number = len(steps) + 1
            self.tell(f"step {number}, {following.rate_per_s:.4g}/s: {following.purpose}")
            try:
                step = await self._step(following, number, is_first=not steps and probe_per_s is None)
            except ServerError:
                self._forget_failed(steps, search, probe_per_s)
                raise
            if step is None:
                state = "interrupted"
                break
            steps.append(step)
            self.tell(_line_of(step, self.criteria))
            self._write(self._told(steps, search, probe_per_s, "under way"))
        found = self._told(steps, search, probe_per_s, state)
        self._write(found)
        return found

    def _forget_failed(self, steps: list[LiveStep], search: RateSearch, probe_per_s: float | None) -> None:
        """Take off the last step if its requests failed: the server had gone by then, which is no result of a rate."""
        if steps and not steps[-1].seen.is_met and steps[-1].seen.verdict.broken(self.criteria) == FAILED:
            self._write(self._told(steps[:-1], search, probe_per_s, "interrupted"))

    async def _step(self, following: NextRate, number: int, *, is_first: bool) -> LiveStep | None:
        """Return a step that was observed, None: interrupted."""
        stem = self.folder / f"step-{number:02d}"
        self._may_replace(stem)
        requests = requests_of(self.workload, following.rate_per_s, number=number, effort=following.effort)
        seen = await self.observe(requests, stem, StepWatch(self.criteria), is_first=is_first)
        if seen.interrupted:
            return None
        return step_of(stem, following.rate_per_s, self.criteria, purpose=following.purpose)

    def _may_replace(self, stem: Path) -> None:
        if (note := note_replaced(stem, overwrite=self.overwrite)) is not None:
            self.tell(note)

    def _told(
        self, steps: Sequence[LiveStep], search: RateSearch | None, probe_per_s: float | None, state: str
    ) -> LiveCapacity:
        asking = search or RateSearch(criteria=self.criteria, begin_per_s=1.0, precision=self.precision)
        counted = [each.seen for each in steps if each.client_limited is None]
        return LiveCapacity(
            found=asking.found(counted),
            steps=steps,
            criteria=self.criteria,
            question=self.asked,
            probe_per_s=probe_per_s,
            begins_near=asking.is_near,
            state=state,
        )

    def _write(self, found: LiveCapacity) -> None:
        write_text(
            self.folder / DOCUMENT,
            json.dumps(found.document(), indent=2, allow_nan=False) + "\n",
            option="--output",
            overwrite=True,
        )
        if found.state != "under way":
            write_text(self.folder / PAGE, page_of(found), option="--output")


def _line_of(step: LiveStep, criteria: Sequence[Criterion]) -> str:
    """Return a step's result in a line."""
    seen, verdict = step.seen, step.seen.verdict
    sure = "surely " if verdict.is_met is not None else "probably "
    said = f"{sure}within the SLO" if seen.is_met else f"{sure}not within the SLO: {verdict.broken(criteria)}"
    judged = f"{verdict.num_judged:,} of {step.num_sent:,} requests judged"
    return f"{step.name}: {said} ({judged}, {step.duration_s:,.0f} s)"
