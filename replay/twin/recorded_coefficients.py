"""Coefficients on record for a server: by the model's name, else by its architecture under another name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from lazy_dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import numpy as np

from replay.model.gpus import find_gpu
from replay.model.shape import ModelShape
from replay.model.shipped_models import shipped_config, shipped_models
from replay.numbers.argument_ranges import GPUS, GpuCount
from replay.twin.defaults import (
    SHIPPED,
    DefaultsEntry,
    nearest_entries,
    read_defaults,
    shipped_defaults,
    version_number,
    version_text,
)
from traces import ConfigError
from traces.strict.arguments import PATH, TEXT, takes


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The server whose coefficients are sought; ``shape``: its model's, ``vllm_version``: of the twin's file."""

    model: str
    gpu: str
    tp: GpuCount = 1
    vllm_version: str | None = None
    shape: ModelShape | None = None

    def __str__(self) -> str:
        """Return it as messages name it."""
        return f"{self.model} on {self.gpu} tp={self.tp}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An entry, or None and what is missing; ``is_other_name``: it is of a model of the same architecture."""

    entry: DefaultsEntry | None
    missing: str = ""
    is_other_name: bool = False


def find_on_record(wanted: Wanted, *, path: str | Path | None) -> Found:
    """Return the entry for a server of the version wanted, the newest without one; by name, then by architecture.

    The user's file at ``path`` comes before the shipped one.
    """
    files = [*([read_defaults(path)] if path else []), shipped_defaults()]
    other_versions: list[DefaultsEntry] = []
    for is_other_name in (False, True):
        for entries in files:
            alike = list(_alike(entries, wanted, by_shape=is_other_name))
            fitting = [entry for entry in alike if _is_of_version(entry, wanted.vllm_version)]
            exactly = [each for each in fitting if _is_exactly(each, wanted)]
            fitting = exactly or fitting
            if fitting:
                return Found(entry=_newest(fitting), is_other_name=is_other_name)
            other_versions += alike
    if other_versions:
        newest = _newest(other_versions)
        missing = f"the coefficients of {wanted} on record are of vLLM {newest.vllm_version}"
        return Found(entry=None, missing=missing)
    return Found(entry=None, missing=f"no coefficients of {wanted} are on record")


@takes(model=TEXT, gpu=TEXT, tp=GPUS, vllm_version=TEXT, path=PATH)
def lookup_defaults(
    model: str, gpu: str, *, tp: int, vllm_version: str | None = None, path: str | Path | None = None
) -> DefaultsEntry:
    """Return the entry for a server; without a version, the entry of the newest version on record.

    As ``find_on_record``; a model that ships is also found by its architecture. Raises ConfigError on a miss, naming
    the nearest entries.
    """
    wanted = Wanted(model=model, gpu=gpu, tp=tp, vllm_version=vllm_version, shape=shape_of_shipped(model))
    found = find_on_record(wanted, path=path)
    return found.entry if found.entry is not None else refuse_unrecorded(wanted, path=path)


def too_fast(entry: DefaultsEntry, shape: ModelShape | None = None) -> tuple[str, ...]:
    """Return a note where an entry's steps are shorter than reading the model's weights takes its GPUs.

    The weights of one token at the peak of memory bandwidth are the least that a step of any vLLM takes. ``shape``: the
    twin's, for an entry of a model that does not ship. The extended model has a floor of its own.
    """
    from replay.model.model_peak import peak_times

    if entry.latency_model != "blackbox":
        return ()
    step_us = float(entry.coefficients["beta0"] + entry.coefficients["beta2"])
    try:
        shape = shape_of_shipped(entry.model) or shape
        peak = None if shape is None else peak_times(shape, find_gpu(entry.gpu), tp=entry.tp)
    except ConfigError:
        return ()
    if peak is None:
        return ()
    least_us = float(peak.weights_read(np.ones(1))[0]) + peak.head_weights
    if step_us >= least_us:
        return ()
    return (
        f"latency: by the coefficients of {entry} a step of one token takes {step_us:,.0f} µs; reading the weights "
        f"alone takes {least_us:,.0f} µs: do not trust their throughput and capacity; physics may be closer",
    )


def refuse_unrecorded(wanted: Wanted, *, path: str | Path | None) -> NoReturn:
    """Raise ConfigError that names the entries most like the one wanted, or the GPUs where there is no such GPU."""
    entries = [*(read_defaults(path) if path else ()), *shipped_defaults()]
    gpu = _gpu_name(wanted.gpu)
    if all(_gpu_name(each.gpu) != gpu for each in entries):
        find_gpu(wanted.gpu, where="latency.defaults: GPU")
    near = nearest_entries(entries, wanted.model, wanted.gpu, tp=wanted.tp, vllm_version=wanted.vllm_version)
    version = f" vLLM {wanted.vllm_version}" if wanted.vllm_version else ""
    raise ConfigError(
        f"latency.defaults: got {wanted}{version}, expected an entry on record; "
        f"nearest: {'; '.join(map(str, near)) or 'none'} ({path or SHIPPED.name}). "
        "The model's own config.json is enough to compute it: latency: {model: physics, model_config: CONFIG.json}, or "
        f"`config from-serve` with --model-config{_shipped_like(wanted.model)}"
    )


def _shipped_like(model: str) -> str:
    """Return the model that ships whose name is most like one, in brackets; nothing where none is like it."""
    near = difflib.get_close_matches(model, shipped_models(), n=1, cutoff=0.7)
    return f" (one that ships: {near[0]})" if near else ""


def shape_of_shipped(model: str) -> ModelShape | None:
    """Return the shape of a model that ships, by its name."""
    if shipped_config(model) is None:
        return None
    from replay.model.hf_config import read_model_config  # as few files ask for it

    return read_model_config(model)


def _alike(entries: Iterable[DefaultsEntry], wanted: Wanted, *, by_shape: bool) -> Iterable[DefaultsEntry]:
    """Yield the entries for this GPU and parallelism of the model itself, or of one with its shape."""
    gpu = _gpu_name(wanted.gpu)
    for entry in entries:
        if (_gpu_name(entry.gpu), entry.tp) != (gpu, wanted.tp):
            continue
        is_model = _is_name_of(wanted.model, entry.model)
        if is_model if not by_shape else not is_model and _has_shape(entry, wanted.shape):
            yield entry


def _is_name_of(name: str, model: str) -> bool:
    """Return whether a name is a model's, letter case aside: in full, or without its publisher."""
    full = model.lower()
    return name.lower() in (full, full.rpartition("/")[2])


def _gpu_name(name: str) -> str:
    """Return a GPU's canonical name; for one outside the table, the given name in small letters."""
    try:
        return find_gpu(name).name.lower()
    except ConfigError:
        return name.lower()


def _has_shape(entry: DefaultsEntry, shape: ModelShape | None) -> bool:
    """Return whether an entry's model, if its config.json ships, has this architecture."""
    known = None if shape is None else shape_of_shipped(entry.model)
    return shape is not None and known is not None and made_as(known) == made_as(shape)


def made_as(shape: ModelShape) -> ModelShape:
    """Return a shape without the fields that do not affect step times."""
    of_experts = shape.mlp_precision if shape.experts is None else shape.expert_precision
    return replace(
        shape,
        name="",
        model_type="",
        max_model_len=0,
        left_out=(),
        vision=None,
        is_mm_prefix_lm=False,
        expert_precision=of_experts,
    )


def _is_exactly(entry: DefaultsEntry, wanted: Wanted) -> bool:
    version = wanted.vllm_version
    return version is not None and version_text(entry.vllm_version) == version_text(version)


def _is_of_version(entry: DefaultsEntry, version: str | None) -> bool:
    return version is None or version_number(entry.vllm_version)[:2] == version_number(version)[:2]


def _newest(entries: Sequence[DefaultsEntry]) -> DefaultsEntry:
    return max(entries, key=lambda entry: version_number(entry.vllm_version))
