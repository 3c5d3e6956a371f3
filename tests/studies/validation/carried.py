"""A second GPU, or another number of GPUs, from a fitted twin: ``calibrate --from`` on pairs of measured servers.

Of the silicon tables each server with enough points is fitted (physics, priors as ``calibrate`` has them, on all of its
points), carried to each other server of the same model and precision, and judged there on the points of eight users and
more. The tables have no idle requests: 20 are made from the new server's points of its fewest users, by the ratio that
the carried model has between one user and so many. Those points are not judged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from calibrate.carried.carried_model import GpuPeak, carried_model
from calibrate.carried.few_requests import fit_few
from calibrate.fit.objective.fit_trace import FitTrace, fit_trace
from replay import TwinConfig, simulate_trace
from replay.twin.latency import usual_physics
from sim import Physics
from tests.studies.validation.silicon import (
    GPUS,
    MODEL_CLASSES,
    SERVED_SEQS,
    Point,
    Prepared,
    prepare,
    read_points,
    simulated,
)
from traces import Header, Trace, make_trace

NUM_IDLE = 20
LEAST_POINTS = 6
FEWEST = 4
"""Users of the points that idle requests are made from; points of more are judged."""
NOISE = np.array([0.10, 0.03])
STEP, EVALUATIONS = 0.1, 8
BAR = 12.0
APART_US = 600_000_000
WAYS = ("physics alone", "the old twin as it is", "scaled by physics", "scaled, 20 idle requests")
LONGEST = 1_024
"""Points of longer answers are left out: they say what the others of their prompts say, and take most of the time."""

Key = tuple[str, bool, bool, bool, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A measured server: its points, ready."""

    name: str
    gpu: str
    tp: int
    points: tuple[Prepared, ...]

    @property
    def few(self) -> tuple[Prepared, ...]:
        """The points of the fewest users."""
        return tuple(each for each in self.points if each.point.concurrency <= FEWEST)

    @property
    def judged(self) -> tuple[Prepared, ...]:
        """All others."""
        return tuple(each for each in self.points if each.point.concurrency > FEWEST)


def servers_of(points: Sequence[Point]) -> dict[tuple[str, bool, bool, bool], list[Server]]:
    """Return the servers with enough points by what a pair must share: model, precision, layout of experts."""
    found: dict[tuple[str, bool, bool, bool], dict[tuple[str, int, str], list[Point]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for each in repeated_once(points):
        if each.osl <= LONGEST:
            key = (each.model, each.fp8, each.fp4, each.has_whole_experts)
            found[key][each.gpu, each.tp, each.version].append(each)
    servers: dict[tuple[str, bool, bool, bool], list[Server]] = {}
    for key, groups in found.items():
        for (gpu, tp, version), own in sorted(groups.items()):
            made = Server(
                name=f"{tp} x {gpu}" + (f" ({version})" if version else ""),
                gpu=gpu,
                tp=tp,
                points=tuple(prepare(own)),
            )
            if len(own) >= LEAST_POINTS and made.few and made.judged:
                servers.setdefault(key, []).append(made)
    return servers


def repeated_once(points: Sequence[Point]) -> list[Point]:
    """Return each load of each server once, with the medians of its measurements."""
    found: dict[tuple[object, ...], list[Point]] = defaultdict(list)
    for each in points:
        nothing = replace(each, ttft_ms=0.0, tpot_ms=0.0, id="")
        found[(nothing,)].append(each)
    return [
        replace(
            those[0],
            ttft_ms=float(np.median([each.ttft_ms for each in those])),
            tpot_ms=float(np.median([each.tpot_ms for each in those])),
        )
        for those in found.values()
    ]


def fitted(server: Server) -> Physics:
    """Return physics fitted to all of a server's points."""
    peak = server.points[0].peak
    start = Physics(peak=peak, **usual_physics(peak))  # type: ignore[arg-type]
    said = start.coefficients()
    names = [
        name
        for name, each in said.items()
        if each.prior and getattr(start, name) > 0 and start.describes(name)
    ]
    centre = np.log([getattr(start, name) for name in names])
    width = np.array([said[name].prior for name in names], np.float64)

    def model(z: np.ndarray) -> Physics:
        return replace(start, **dict(zip(names, np.exp(centre + width * z).tolist(), strict=True)))

    def residuals(z: np.ndarray) -> np.ndarray:
        made = model(z)
        off = [errors_of(each, made) / NOISE for each in server.points]
        return np.concatenate([np.clip(np.concatenate(off), -30, 30), z])

    def slopes(z: np.ndarray) -> np.ndarray:
        here = residuals(z)
        return np.stack([(residuals(z + row) - here) / STEP for row in STEP * np.eye(len(z))], axis=1)

    found = least_squares(residuals, np.zeros(len(names)), jac=slopes, loss="soft_l1", max_nfev=EVALUATIONS)
    return model(found.x)


def errors_of(ready: Prepared, model: Physics) -> np.ndarray:
    """Return log(simulated / measured) of TTFT and TPOT."""
    ttft, tpot = simulated(ready, lambda _: model)
    return np.log([ttft / ready.point.ttft_ms, tpot / ready.point.tpot_ms])


def e2e_error(ready: Prepared, model: Physics) -> float:
    """Return the error of E2E in per cent: TTFT and the mean answer's other tokens."""
    tokens = float(ready.requests.output_tokens.mean()) - 1
    ttft, tpot = simulated(ready, lambda _: model)
    point = ready.point
    return 100 * ((ttft + tokens * tpot) / (point.ttft_ms + tokens * point.tpot_ms) - 1)


def idle_trace(server: Server, model: Physics) -> tuple[FitTrace, TwinConfig]:
    """Return the idle requests of a server and its twin as carried."""
    few = server.few
    config = TwinConfig(engine=few[0].engine, latency=model)
    rng = np.random.default_rng(7)
    chosen = [few[i % len(few)] for i in range(NUM_IDLE)]
    prompts = np.array([rng.integers(int(0.8 * each.point.isl), each.point.isl + 1) for each in chosen])
    outputs = np.full(NUM_IDLE, 100)
    longest = int(prompts.max()) + 256
    config = replace(config, engine=replace(config.engine, max_model_len=longest, max_num_seqs=SERVED_SEQS))
    asked = make_trace(
        Header(tool="vtwin", mode="generated"),
        {
            "request_id": [str(i) for i in range(NUM_IDLE)],
            "arrival_time_us": np.arange(NUM_IDLE, dtype=np.int64) * APART_US,
            "input_tokens": prompts,
            "output_tokens": outputs,
        },
    )
    run, _ = simulate_trace(asked, config, record="spans")
    return fit_trace(as_measured(run, chosen, model), config, name="idle"), config


def as_measured(run: Trace, chosen: Sequence[Prepared], model: Physics) -> Trace:
    """Return idle requests with the times of their points, by the ratio of the carried model of one user and more."""
    send, first, last = (
        run.requests[name].to_numpy(float)
        for name in ("send_time_us", "content_first_time_us", "last_token_time_us")
    )
    off = {id(each): np.exp(errors_of(each, model)) for each in set_of(chosen)}
    ttft = (first - send) / [off[id(each)][0] for each in chosen]
    decoding = (last - first) / [off[id(each)][1] for each in chosen]
    moved = np.rint(send + ttft).astype(np.int64)
    ended = np.rint(send + ttft + decoding).astype(np.int64)
    run = run.without_columns("server_queue_us", "server_prefill_us", "server_decode_us")
    return run.with_columns(
        content_first_time_us=moved,
        first_chunk_time_us=moved,
        last_token_time_us=ended,
        last_chunk_time_us=ended,
    )


def set_of(chosen: Sequence[Prepared]) -> list[Prepared]:
    """Return each point once."""
    return list({id(each): each for each in chosen}.values())


def pair_errors(old: Server, old_model: Physics, new: Server) -> dict[str, np.ndarray]:
    """Return the E2E errors of the new server's judged points by each way, per cent."""
    peak = new.points[0].peak
    scaled = carried_model(
        old_model, GpuPeak(peak=old_model.peak, gpu=old.gpu), GpuPeak(peak=peak, gpu=new.gpu)
    )
    assert isinstance(scaled, Physics)
    idle, config = idle_trace(new, scaled)
    corrected = fit_few([idle], config, carried_from=old.name).config.latency
    assert isinstance(corrected, Physics)
    models = (Physics(peak=peak, **usual_physics(peak)), old_model, scaled, corrected)  # type: ignore[arg-type]
    return {
        way: np.array([e2e_error(each, model) for each in new.judged])
        for way, model in zip(WAYS, models, strict=True)
    }


def all_pairs(
    data: Path, *, only: Callable[[str], bool] = lambda _: True
) -> Iterator[tuple[str, str, str, dict[str, np.ndarray]]]:
    """Yield (model, old server, new server, errors) of every pair."""
    points, _ = read_points(data / "aiconfigurator_silicon" / "vllm_agg.csv", gpus=GPUS.values())
    for (model, *_), servers in servers_of(points).items():
        if not only(model) or len(servers) < 2:
            continue
        models = {each.name: fitted(each) for each in servers}
        for old in servers:
            for new in servers:
                if (old.gpu, old.tp) != (new.gpu, new.tp):
                    yield model, old.name, new.name, pair_errors(old, models[old.name], new)


def table(data: Path) -> str:
    """Return the Markdown table: by class of model and by what differs, the pairs' median errors of E2E."""
    groups: dict[str, list[dict[str, float]]] = defaultdict(list)
    for model, old, new, errors in all_pairs(data):
        medians = {way: float(np.median(np.abs(each))) for way, each in errors.items()}
        what = "another number of GPUs" if _gpu(old) == _gpu(new) else "another GPU"
        for group in (f"{MODEL_CLASSES[model]}, {what}", model, "all"):
            groups[group].append(medians)
    lines = [f"| pairs | n | {' | '.join(WAYS)} |", "|---" * (2 + len(WAYS)) + "|"]
    for group in sorted(groups, key=lambda name: (name == "all", "/" in name, name)):
        rows = groups[group]
        cells = (_cell([each[way] for each in rows]) for way in WAYS)
        lines.append(f"| {group} | {len(rows)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _gpu(name: str) -> str:
    return name.split(" x ")[1].split(" ", maxsplit=1)[0]


def _cell(medians: Sequence[float]) -> str:
    """Return the median over pairs, the 90th percentile, and how many pairs keep the bar."""
    kept = np.mean(np.array(medians) <= BAR)
    return f"{np.median(medians):.1f} / {np.quantile(medians, 0.9):.1f}, {100 * kept:.0f} %"
