"""Measurements in one form for all files: an operator, its features, its times, its source."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from lazy_dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from replay.model import Layout, ModelShape
from replay.model.matmuls import LayerKind
from traces import ExitCode, VtwinError

Floats = NDArray[np.float64]


class ProfileError(VtwinError):
    """A profile that is missing, malformed, or has no rows for the model asked for (exit code 3)."""

    exit_code: ClassVar[int] = ExitCode.TRACE


class MissingRows(ProfileError):  # noqa: N818 - it says what is missing, as its siblings say what is wrong
    """A sound profile that has no rows of the model asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """Why a file lacks operators of the model; ``kind``: the layers that they are of, None: they are of the model.

    ``operator``: which it is, None: all that the file might have.
    """

    kind: LayerKind | None
    text: str
    operator: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTable:
    """Measured times of one operator.

    ``points``: a row per measured point, a column per feature, no point twice; ``time_us``: float64 µs, >= 0.
    ``source``: the file; ``notes``: what was done to the file's rows where they are not this very operator.
    """

    operator: str
    features: tuple[str, ...]
    points: Floats
    time_us: Floats
    source: str
    notes: tuple[str, ...] = ()

    @property
    def domain(self) -> tuple[tuple[float, float], ...]:
        """The smallest and largest value of each feature."""
        low, high = self.points.min(axis=0), self.points.max(axis=0)
        return tuple(zip(low.tolist(), high.tolist(), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileQuery:
    """What a profile is read for. ``served_model``: its name in CPU overhead profiles; ``vllm_version``: of tables.

    ``gpus_per_node`` None: all GPUs are in one. ``has_whole_experts``: each GPU has some, not a slice of all.
    """

    shape: ModelShape
    gpu: str
    tp: int
    pp: int = 1
    gpus_per_node: int | None = None
    served_model: str | None = None
    vllm_version: str | None = None
    has_whole_experts: bool = False

    @property
    def all_reduces(self) -> tuple[str, ...]:
        """The operators that add up vectors of all GPUs: of hidden states, and of what a norm over all heads needs."""
        names = ("tensor_parallel_comm", "qk_norm_comm")
        return names if self.shape.qk_norm == "all heads" else names[:1]

    @property
    def expert_ranks(self) -> int:
        """How many GPUs have whole experts, 1 where all have slices; as vLLM can start it (``Layout.served``)."""
        layout = Layout(enable_expert_parallel=self.has_whole_experts).served(self.shape, tp=self.tp)
        return self.tp if layout.enable_expert_parallel else 1

    @property
    def has_several_nodes(self) -> bool:
        """Whether the GPUs do not fit into one node, so that stages may talk over the network."""
        return self.gpus_per_node is not None and self.tp * self.pp > self.gpus_per_node


def operator_table(
    operator: str,
    features: Mapping[str, Iterable[float]],
    time_us: Iterable[float],
    *,
    source: str,
    notes: tuple[str, ...] = (),
) -> OperatorTable:
    """Return a table with every point once, its time the median of the rows that measured it."""
    columns = [np.asarray(list(values), np.float64) for values in features.values()]
    times = np.asarray(list(time_us), np.float64)
    if len(times) == 0:
        raise ProfileError(f"{operator}: got no row with a time, expected some ({source})")
    points, which = np.unique(np.column_stack(columns), axis=0, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    cuts = np.flatnonzero(np.diff(which.ravel()[order])) + 1
    medians = np.array([np.median(group) for group in np.split(times[order], cuts)])
    return OperatorTable(
        operator=operator,
        features=tuple(features),
        points=points,
        time_us=medians,
        source=source,
        notes=notes,
    )


def nearest_name(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most like ``name``, for the hint of an error."""
    names = sorted(known)
    return (difflib.get_close_matches(name, names, n=1, cutoff=0.0) or ["nothing"])[0]


def nearest_row(wanted: dict[str, float], rows: Floats) -> dict[str, float]:
    """Return the row of a table that differs least from what was wanted, in the ratios of its values.

    ``rows``: a column per key of ``wanted``.
    """
    target = np.array([float(value) for value in wanted.values()])
    ratios = np.abs(np.log((rows + 1.0) / (target + 1.0)))
    found = rows[int(np.argmin(ratios.sum(axis=1)))]
    return dict(zip(wanted, found.tolist(), strict=True))


def shown(values: dict[str, float]) -> str:
    """Return features and their values as an error shows them."""
    return ", ".join(f"{name}={value:g}" for name, value in values.items())
