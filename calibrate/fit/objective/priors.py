"""What is known of a coefficient before any trace is seen: from the roofline, from a GPU's kind, from any transformer.

A workload of equal lengths shows only a sum of two coefficients, and a quiet one shows no GPU slowing down. What the
traces leave open then is not zero but what such hardware usually does, with a width, and the report says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replay import TwinConfig
    from replay.model.matmuls.tiles import Tiles
    from sim import Physics
    from traces.header import ServerInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """A coefficient is expected at ``centre``, give or take ``width`` (a standard deviation, the same unit)."""

    centre: float
    width: float
    source: str

    def text(self) -> str:
        """Return the prior as text for a report."""
        return f"{self.centre:.4g} ± {self.width:.2g} ({self.source})"


WAY_IN = {"alpha0": 20_000.0, "alpha1": 20.0}
"""How large (µs) the way into the queue may well be: HTTP, tokenizing, hand-over. It weighs as much as one request
of all: nothing where the traces say anything, and what prevents that a part of an overloaded trace's queue is taken for
the way in."""

POWER_LIMITED = ("A100", "A800", "H20", "H100", "H200", "H800", "B200", "B300", "L40", "GH200", "MI3")
"""GPUs whose clock falls when large products run all the time: the power limit is below what those would draw."""
SLOWDOWN = Prior(centre=0.6, width=0.3, source="power-limited data-centre GPUs")
"""What beyond the fitted loads is expected of such a GPU. A fit does not expect it: knowing the GPU must not slow a
twin down that no trace shows to be slow."""
SLOWDOWN_POSSIBLE = Prior(
    centre=0.0, width=0.6, source="power-limited data-centre GPUs: no slowdown that nothing shows"
)
SLOWDOWN_UNKNOWN = Prior(
    centre=0.0, width=0.25, source="a GPU that is not known: no slowdown that nothing shows"
)
THRESHOLD = Prior(centre=0.3, width=0.2, source="power-limited data-centre GPUs")
"""Decoding draws 0.5 to 0.7 of the power limit and large products 1.1 to 1.4, were they let: their average reaches the
limit where products take 0.4 to 0.6 of the time; a lone H100 with a 14B model began to slow down at 0.3 to 0.4."""
THRESHOLD_UNKNOWN = Prior(centre=0.2, width=0.25, source="a GPU that is not known")
MEMORY = Prior(centre=5.0, width=5.0, source="power and temperature follow the load of the last seconds")

CONCAVITY = Prior(centre=0.5, width=0.25, source="measured servers, 4 to 512 users")
CONCAVITY_UNKNOWN = Prior(centre=0.3, width=0.3, source="a GPU that is not known")
ATTENTION_SHARE = 4e-5
"""A (query, key) pair costs 4·layers·width products, a token 2·weights: from 2e-5 (70B) to 9e-5 (0.5B) of it."""
READING_SHARE = 8e-6
"""KV bytes of a token per byte of weights: 2e-6 (70B, grouped heads) to 4e-5 (7B, a key for every query)."""
FLOOR_SHARE = 0.7
"""How much of a quiet step's time goes into reading the weights: 0.5 for small models, 0.9 for large ones."""


def proportions(*, beta1: float, step_us: float) -> dict[str, Prior]:
    """Return what holds of any transformer, from what a prefill token and a quiet step cost."""
    origin = "proportions of any transformer"
    pair, entry, floor = ATTENTION_SHARE * beta1, READING_SHARE * step_us, FLOOR_SHARE * step_us
    return {
        "beta3": Prior(centre=entry, width=entry, source=origin),
        "beta4": Prior(centre=pair, width=pair, source=origin),
        "floor": Prior(centre=floor, width=0.4 * step_us, source=origin),
        "concavity": CONCAVITY_UNKNOWN,
        "kappa": SLOWDOWN_UNKNOWN,
        "u0": THRESHOLD_UNKNOWN,
        "tau_s": MEMORY,
    }


def known_priors(
    server: ServerInfo,
    *,
    model_config: str | Path | None = None,
    gpu: str | None = None,
    tp: int | None = None,
) -> dict[str, Prior]:
    """Return what model and GPU imply, as far as they are known: by the options, else by a trace's header.

    ``model_config``: a config.json, or the name of a model that ships. Raises ConfigError on an option that names
    nothing known; what only the header says may be unknown.
    """
    from replay.model import expected_coefficients, find_gpu, read_model_config
    from traces.errors import ConfigError

    priors: dict[str, Prior] = {}
    gpu_name = gpu or server.gpu
    if gpu_name is not None and any(kind in gpu_name.upper() for kind in POWER_LIMITED):
        priors |= {"kappa": SLOWDOWN_POSSIBLE, "u0": THRESHOLD, "tau_s": MEMORY, "concavity": CONCAVITY}
    which = model_config or server.model
    if gpu_name is None or which is None:
        return priors
    try:
        shape, row = read_model_config(which), find_gpu(gpu_name)
    except ConfigError:
        if model_config is not None:
            raise
        return priors
    for name, prior in expected_coefficients(shape, row, tp=tp or server.tensor_parallel or 1).items():
        width = prior.value * prior.relative_width
        priors[name] = Prior(centre=prior.value, width=width, source=prior.source)
    return priors


def known_physics(
    server: ServerInfo,
    config: TwinConfig,
    *,
    model_config: str | Path | None = None,
    gpu: str | None = None,
    tp: int | None = None,
) -> tuple[Physics | None, str]:
    """Return physics of the server, and where there is none, why: not known model or GPU, or not of a learned kind.

    Named by the options, else by the twin's file (``hardware``, ``latency.model_config``), else by a trace's header.
    """
    from replay import load_config
    from replay.model import find_gpu, read_model_config
    from replay.model.peak import peak_times
    from replay.twin.latency import DEFAULT_PHYSICS, physics_covers, physics_sets
    from sim import Physics
    from traces.errors import ConfigError

    if isinstance(config.latency, Physics):
        return config.latency, ""
    if model_config is None and gpu is None and config.source is not None:
        try:
            found = load_config(config.source, latency_model="physics").latency
        except ConfigError:
            found = None
        if isinstance(found, Physics):
            return found, ""
    which, where = model_config or server.model, gpu or server.gpu
    missing = [name for name, value in (("model", which), ("GPU", where)) if value is None]
    if which is None or where is None:
        return None, f"{' and '.join(missing)} not known (--model-config, --gpu)"
    try:
        shape, row = read_model_config(which), find_gpu(where)
        peak = peak_times(shape, row, tp=tp or server.tensor_parallel or 1)
    except ConfigError as error:
        return None, str(error)
    if not physics_covers(shape):
        return None, f"it was learned on models of another kind than {shape.name}"
    return Physics(peak=peak, **physics_sets()[DEFAULT_PHYSICS]), ""  # type: ignore[arg-type]


def known_tiles(
    server: ServerInfo,
    config: TwinConfig,
    *,
    model_config: str | Path | None = None,
    gpu: str | None = None,
    tp: int | None = None,
) -> Tiles:
    """Return the tiles of the server's products: those of the twin's file, else what measured products say.

    Model and GPU are those of the options, else of the twin's file (``hardware``, ``latency.model_config``), else of a
    trace's header. Where either is not known, or has no measured products, the answer has the reason.
    """
    from replay.model import find_gpu, read_model_config
    from replay.model.matmuls.tiles import Tiles, tiles_of
    from sim import Extended
    from traces.errors import ConfigError

    if isinstance(config.latency, Extended) and config.latency.tiles:
        return Tiles(factors=config.latency.tiles)
    named = config.gpus_of_pools[0] if config.gpus_of_pools else None
    which, where = model_config or server.model, gpu or (named[0] if named else server.gpu)
    has_shape = model_config is None and config.shape is not None
    missing = [name for name, value in (("model", which or config.shape), ("GPU", where)) if value is None]
    if missing or where is None:
        return Tiles(reason=f"{' and '.join(missing)} not known (--model-config, --gpu)")
    try:
        shape = config.shape if has_shape and config.shape is not None else read_model_config(str(which))
        row = find_gpu(where)
    except ConfigError as error:
        return Tiles(reason=str(error))
    ranks = tp or (named[1] if named and gpu is None else None) or server.tensor_parallel or 1
    return tiles_of(shape, row, tp=ranks)


def with_priors(*parts: Mapping[str, Prior]) -> dict[str, Prior]:
    """Return all priors, a later part's before an earlier one's."""
    together: dict[str, Prior] = {}
    for part in parts:
        together.update(part)
    return together
