"""A profile computed from a model's config.json and a row of the table of GPUs, and the terms that it is made of.

The terms are those of the latency model itself (``sim/latency/roofline.py``): each is the step time of that model with
everything else at zero, so there is no second table and no second formula.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from lazy_dataclasses import dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from replay.fleet.inputs.fleet_workload import mean_tokens
from replay.fleet.inputs.profile_steps import decodes, prompts, seats_of
from replay.fleet.inputs.profiles import ProfileSource, from_twin, held_by
from replay.twin.config_read import load_config
from replay.twin.server.startup import lowered_limits
from replay.twin.twin_config import TwinConfig
from sim.fleet import Lengths
from sim.latency import PeakTimes, Roofline, StepBatch
from traces import ConfigError
from traces.strict.whole_file import is_a_file

COUNTS = ("num_experts", "num_experts_per_token", "window", "dp", "ep", "tp", "pp")
"""Fields of ``PeakTimes`` that say how a term counts and take no time themselves."""
OVERHEADS = (
    *("all_reduce_us", "layer_us", "moe_layer_us", "step_us", "sequence_us"),
    *("cpu_step_us", "cpu_sequence_us", "batching"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What makes a term: fields of ``PeakTimes``, coefficients of ``Roofline``, and what is said of it."""

    name: str
    peak: tuple[str, ...] = ()
    overheads: tuple[str, ...] = ()
    source: str


ATTENTION = ("decode_entry", "kv_entry", "windowed_decode_entry", "windowed_kv_entry")
PARTS = (
    Part(name="weights read", peak=("weights", "head_weights"), source="weight bytes / effective bandwidth"),
    Part(
        name="expert weights read",
        peak=("expert_weights",),
        source="bytes of the experts that the step's tokens touch / effective bandwidth",
    ),
    Part(
        name="products",
        peak=("matmul", "head_matmul", "expert_matmul"),
        source="2 FLOPs per weight and token / effective compute",
    ),
    Part(name="layers", overheads=("layer_us", "moe_layer_us"), source="assumed µs per layer"),
    Part(
        name="all-reduce",
        peak=("all_reduce", "num_all_reduces", "all_to_all", "num_all_to_alls", "send_recv", "waiting"),
        overheads=("all_reduce_us",),
        source="bytes / effective link, and assumed µs per collective",
    ),
    Part(
        name="KV read",
        peak=ATTENTION,
        source="KV bytes / effective bandwidth, or attention's FLOPs where they take longer",
    ),
    Part(
        name="GQA batching",
        peak=(*ATTENTION, "is_grouped"),
        overheads=("batching",),
        source="assumed share of the KV read, for several requests at once (Vidur's figure)",
    ),
    Part(
        name="activations, KV written",
        peak=("activation", "kv_write"),
        source="bytes per token / effective bandwidth",
    ),
    Part(
        name="step and sampling",
        overheads=("step_us", "sequence_us"),
        source="assumed µs per step and request",
    ),
    Part(
        name="CPU scheduling",
        overheads=("cpu_step_us", "cpu_sequence_us"),
        source="assumed µs per step and request, beside the GPU's",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTerm:
    """What one part of a step adds to W and to H, seconds; ``source``: how it is got."""

    name: str
    w_s: float
    h_s: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillBounds:
    """A step of one chunk of a prompt, seconds: its products and pairs, its bytes, and all of the step."""

    tokens: int
    compute_s: float
    memory_s: float
    step_s: float

    @property
    def bound(self) -> str:
        """Which of the two takes longer."""
        return "compute" if self.compute_s >= self.memory_s else "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """A profile with its terms, which add up to its W and H."""

    source: ProfileSource
    terms: tuple[StepTerm, ...]
    prefill: PrefillBounds
    assumptions: Mapping[str, float]


def computed(model: str, gpu: str, *, tp: int, lengths: Lengths, context: int) -> Computed:
    """Return the profile of a model on this many GPUs, and its terms, at these lengths.

    ``model``: a config.json or a model that ships; ``gpu``: a name of the table. Raises ConfigError on what is
    neither, and where the model does not fit.
    """
    twin = computed_twin(model, gpu, tp=tp)
    source = from_twin(twin, lengths, context=context, name=f"{Path(model).name}@{gpu}:{tp}")
    roofline = twin.latency
    assert isinstance(roofline, Roofline)  # noqa: S101 - as computed_twin asked for
    assumed = {
        each.name: float(getattr(roofline, each.name))
        for each in fields(Roofline)
        if each.name in OVERHEADS or each.name.endswith("_efficiency")
    }
    return Computed(
        source=source,
        terms=tuple(terms_of(roofline, held_by(twin.engine, lengths), lengths, context=context)),
        prefill=prefill_bounds(roofline, twin.engine.max_num_batched_tokens),
        assumptions=assumed,
    )


def computed_twin(model: str, gpu: str, *, tp: int) -> TwinConfig:
    """Return the twin that model and GPU give: roofline, and the engine as vLLM sets it up there.

    A KV cache too small for the model's own context shortens it, as in ``vtwin model compare``; one with fewer blocks
    than sequences lowers their number. Raises ConfigError.
    """
    twin = _read(model, gpu, tp, {})
    more = lowered_limits(twin.engine, twin.will_not_start)
    if not more:
        return twin
    found = _read(model, gpu, tp, more)
    if found.will_not_start:
        raise ConfigError(found.will_not_start[0])
    return found


def _read(model: str, gpu: str, tp: int, engine: Mapping[str, object]) -> TwinConfig:
    named = str(Path(model).resolve()) if is_a_file(Path(model)) else model
    document: dict[str, object] = {
        "latency": {"model": "roofline", "model_config": named},
        "hardware": {"gpu": gpu, "tp": tp},
    }
    if engine:
        document["engine"] = dict(engine)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "computed.yaml"
        path.write_text(json.dumps(document))
        try:
            return load_config(path, allows_cluster=False)
        except ConfigError as error:  # vtwin wrote this file: its path would tell a user nothing
            raise ConfigError(str(error).rpartition(" (")[0] or str(error)) from error


def terms_of(model: Roofline, most: int, lengths: Lengths, *, context: int) -> list[StepTerm]:
    """Return what each part of a step adds to the profile's W and H; the last is what overlaps, and negative.

    W and H are a straight line through the model's steps of 1 to ``most`` decodes. A line's fit is linear in
    what it is fitted to, so the parts' own lines and the overlap's add up to the profile's.
    """
    tokens = mean_tokens(lengths)
    seats = seats_of(most)
    batch = decodes(seats, np.full(len(seats), tokens))
    whole = model.step_table().durations(batch) / 1e6
    found, rest = [], whole
    for part in PARTS:
        times = alone(model, part, batch) / 1e6
        if part.name == "GQA batching":  # a factor on the read, not a time of its own
            times -= alone(model, replace(part, overheads=()), batch) / 1e6
        if not times.any():
            continue
        found.append(_term(part.name, part.source, seats, times, per=context / tokens))
        rest = rest - times
    hidden = "products hide reading, and the GPU's time the CPU's"
    return [*found, _term("overlap", hidden, seats, rest, per=context / tokens)]


def _term(
    name: str,
    source: str,
    seats: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    times: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    *,
    per: float,
) -> StepTerm:
    slope = float(np.polyfit(seats, times, 1)[0]) if len(seats) > 1 else 0.0
    return StepTerm(name=name, w_s=float((times - slope * seats).mean()), h_s=slope * per, source=source)


def alone(model: Roofline, part: Part, batch: StepBatch) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return the times of steps in which one part alone takes time, float64 [n] µs."""
    kept = {*part.peak, *COUNTS}
    if "layers" in part.name:
        kept |= {"num_layers", "num_moe_layers"}
    peak = PeakTimes(
        **{
            each.name: getattr(model.peak, each.name)
            if each.name in kept
            else type(getattr(model.peak, each.name))()
            for each in fields(PeakTimes)
        }
    )
    zero = {name: 0.0 for name in OVERHEADS if name not in part.overheads}
    return np.asarray(replace(model, peak=peak, **zero).step_table().durations(batch))  # type: ignore[arg-type]


def prefill_bounds(model: Roofline, chunk: int) -> PrefillBounds:
    """Return a step of one chunk. Its operations add up, so it takes longer than either bound; the greater names it."""
    batch = prompts(np.ones(1), np.array([float(chunk)]), np.zeros(1))
    compute = Part(
        name="compute",
        peak=("matmul", "head_matmul", "expert_matmul", "prefill_pair", "windowed_prefill_pair"),
        source="",
    )
    memory = Part(
        name="memory", peak=("weights", "head_weights", "expert_weights", "activation", "kv_write"), source=""
    )
    return PrefillBounds(
        tokens=chunk,
        compute_s=float(alone(model, compute, batch)[0]) / 1e6,
        memory_s=float(alone(model, memory, batch)[0]) / 1e6,
        step_s=float(model.step_table().durations(batch)[0]) / 1e6,
    )
