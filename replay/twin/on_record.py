"""Coefficients on record for a server: by the model's name, else by its architecture under another name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from replay.model.hf_config import read_model_config
from replay.model.shape import ModelShape
from replay.model.shipped import shipped_config
from replay.twin.defaults import DefaultsEntry, read_defaults, shipped_defaults, version_number


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which server coefficients are looked for; ``shape``: its model's, ``vllm_version``: of the twin's file."""

    model: str
    gpu: str
    tp: int
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
            if fitting:
                return Found(entry=_newest(fitting), is_other_name=is_other_name)
            other_versions += alike
    if other_versions:
        newest = _newest(other_versions)
        missing = f"the coefficients of {wanted} on record are of vLLM {newest.vllm_version}"
        return Found(entry=None, missing=missing)
    return Found(entry=None, missing=f"no coefficients of {wanted} are on record")


def shape_of_shipped(model: str) -> ModelShape | None:
    """Return the shape of a model that ships, by its name."""
    return read_model_config(model) if shipped_config(model) is not None else None


def _alike(entries: Iterable[DefaultsEntry], wanted: Wanted, *, by_shape: bool) -> Iterable[DefaultsEntry]:
    """Yield the entries for this GPU and parallelism of the model itself, or of one with its shape."""
    for entry in entries:
        if (entry.gpu.lower(), entry.tp) != (wanted.gpu.lower(), wanted.tp):
            continue
        is_model = entry.model.lower() == wanted.model.lower()
        if is_model if not by_shape else not is_model and _has_shape(entry, wanted.shape):
            yield entry


def _has_shape(entry: DefaultsEntry, shape: ModelShape | None) -> bool:
    """Return whether an entry's model, where its config.json ships, is made as this one is."""
    known = None if shape is None else shape_of_shipped(entry.model)
    return shape is not None and known is not None and _made_as(known) == _made_as(shape)


def _made_as(shape: ModelShape) -> ModelShape:
    """Return a shape without what does not bear on how long a step takes."""
    return replace(shape, name="", model_type="", max_model_len=0, left_out=())


def _is_of_version(entry: DefaultsEntry, version: str | None) -> bool:
    return version is None or version_number(entry.vllm_version)[:2] == version_number(version)[:2]


def _newest(entries: Sequence[DefaultsEntry]) -> DefaultsEntry:
    return max(entries, key=lambda entry: version_number(entry.vllm_version))
