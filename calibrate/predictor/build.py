"""``vtwin predictor train`` without its command: profiles in, a table's file out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from calibrate.predictor.component_tables import ComponentTable, StepTables, build_tables
from calibrate.predictor.components import ESSENTIAL
from calibrate.predictor.measured import ProfileError, ProfileQuery
from calibrate.predictor.profiles.sources import Sources, read_profiles
from replay.model import Gpu
from replay.twin import AFTER, StepTableFile

PROJECTIONS = (
    *("attn_pre_proj", "attn_post_proj", "state_in_proj", "state_out_proj"),
    *("mlp_up_proj", "mlp_down_proj", "moe"),
)
DOMAIN_FEATURES = {
    "tokens": ("tokens", PROJECTIONS),
    "decode_sequences": ("batch", ("attn_decode", "state_decode")),
    "keys": ("keys", ("attn_decode",)),
}
"""For each edge that is compared with the engine's limits: the feature, and the components whose edge counts."""


class TrainedTables(NamedTuple):
    """The table of a model on a GPU, ready to be written, and the operators that it was made from."""

    file: StepTableFile
    made: StepTables

    def document(self) -> dict[str, object]:
        """Return what ``vtwin predictor train --json`` prints of the table: all but its times."""
        components = self.file.about["components"]
        assert isinstance(components, list), "made by train"  # noqa: S101 - our own document
        slim = [{k: v for k, v in each.items() if k != "time_us"} for each in components]
        return {
            **self.file.about,
            "components": slim,
            "domain": dict(self.file.domain),
            "step_us": self.file.step_us,
        }


def train(
    profiles: Sequence[Path],
    wanted: ProfileQuery,
    gpu: Gpu,
    *,
    names: Collection[str] = (),
    cache: Path | None = None,
    step_overhead_us: float | None = None,
    strict: bool = False,
    tell: Callable[[str, int, int], None] = lambda *_: None,
) -> TrainedTables:
    """Return the table of a model on a GPU, which ``replay.twin.write_step_tables`` writes, and its operators.

    ``names``: regressions to try, all where empty. ``step_overhead_us``: replaces the five CPU costs.
    ``strict``: raises ProfileError where a projection or attention is in no profile, rather than let a roofline
    stand in. Raises ProfileError, one line, on profiles that cannot be used.
    """
    sources = read_profiles(profiles, wanted)
    if step_overhead_us is not None:
        sources = _without_cpu_costs(sources)
    made = build_tables(sources, wanted, gpu, names=names, cache=cache, tell=tell)
    warnings = tuple(_warnings(made, sources))
    lacking = [
        each.component.name
        for each in made.components
        if each.report is None and each.component.base in ESSENTIAL
    ]
    if strict and lacking:
        raise ProfileError(f"{', '.join(lacking)}: in none of the profiles" + _why(lacking, sources))
    file = _file_of(made, wanted, gpu, step_overhead_us=step_overhead_us, warnings=warnings)
    return TrainedTables(file, made)


def _without_cpu_costs(sources: Sources) -> Sources:
    """Return the profiles without the CPU's time between steps."""
    kept = {
        name: table
        for name, table in sources.tables.items()
        if table.features != ("sequences",) or name == "lm_head"
    }
    return Sources(tables=kept, complaints=sources.complaints)


def _file_of(
    made: StepTables,
    wanted: ProfileQuery,
    gpu: Gpu,
    *,
    step_overhead_us: float | None,
    warnings: Sequence[str],
) -> StepTableFile:
    """Return the table as it is written."""
    tables = {name: getattr(made, name) for name in ("tokens_us", "sequences_us", "decode_us", "prefill_us")}
    if made.tokens_after_us is not None:
        tables[AFTER] = made.tokens_after_us
    if made.chunks_us is not None:
        tables["chunks_us"] = made.chunks_us
    return StepTableFile(
        tables=tables,
        step_us=made.step_us if step_overhead_us is None else step_overhead_us,
        domain=_domain(made),
        about={
            "model": wanted.shape.name,
            "gpu": gpu.name,
            "tp": wanted.tp,
            "pp": wanted.pp,
            "expert_ranks": wanted.expert_ranks,
            "gpus_per_node": wanted.gpus_per_node,
            "grouped_queries": any(
                each.attention is not None and each.attention.is_grouped for each in wanted.shape.mixers
            ),
            "warnings": list(warnings),
            "components": [_component(each) for each in made.components],
        },
    )


def _why(operators: Sequence[str], sources: Sources) -> str:
    """Return in brackets why the profiles lack operators, two reasons at most; nothing where they do not say."""
    told = [each.text for each in sources.complaints if each.operator is None or each.operator in operators]
    return f" ({'; '.join(list(dict.fromkeys(told))[:2])})" if told else ""


def _warnings(made: StepTables, sources: Sources) -> list[str]:
    """Return the warnings: components that a roofline replaces, and why the profiles do not have them."""
    absent = [each.component for each in made.components if each.report is None]
    lines = []
    essential = [each.name for each in absent if each.base in ESSENTIAL]
    small = [each.name for each in absent if each.base not in ESSENTIAL and each.group != "cpu"]
    if essential:
        lines.append(f"not measured, a roofline stands in: {', '.join(essential)}{_why(essential, sources)}")
    if small:
        lines.append(f"not measured, bytes over bandwidth stand in: {', '.join(small)}")
    if any(each.group == "cpu" for each in absent):
        lines.append(f"CPU costs not measured: {made.step_us:g} µs per step stand in")
    return lines


def _domain(made: StepTables) -> dict[str, float]:
    """Return up to which value each axis was measured: the least over the components that matter to it."""
    found = {}
    for axis, (feature, components) in DOMAIN_FEATURES.items():
        edges = [
            each.report.domain[each.report.features.index(feature)][1]
            for each in made.components
            if each.report is not None
            and each.component.base in components
            and feature in each.report.features
        ]
        if edges:
            found[axis] = min(edges)
    return found


def _component(made: ComponentTable) -> dict[str, object]:
    """Return a component's entry in the file: how it is known, and its own times if they have one axis."""
    component, report = made.component, made.report
    about: dict[str, object] = {
        "name": component.name,
        "group": component.group,
        "axis": component.axis,
        "runs_per_step": made.count,
    }
    if report is None:
        about["from"] = "stand-in"
    else:
        about |= {"from": "profile", **{k: v for k, v in asdict(report).items() if k != "operator"}}
    if made.time_us.ndim == 1:
        about["time_us"] = [float(f"{value:.6g}") for value in made.time_us.tolist()]
    if made.after_us is not None and not np.array_equal(made.after_us, made.time_us):
        about["time_after_us"] = [float(f"{value:.6g}") for value in made.after_us.tolist()]
    return about
