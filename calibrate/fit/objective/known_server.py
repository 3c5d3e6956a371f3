"""The server of the traces: model, GPU and tensor parallelism, and what follows from them.

Named by the options, else by the twin's file (``hardware``, ``latency.model_config``), else by a trace's header.
"""

from __future__ import annotations

from contextlib import suppress
from lazy_dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sim import Physics
from traces import ConfigError

if TYPE_CHECKING:
    from replay import TwinConfig
    from replay.model import Gpu, ModelShape
    from replay.model.matmuls import Tiles
    from traces import ServerInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownServer:
    """A server as far as it is known; ``reason``: what is missing, or why a name is not usable.

    ``gpu_name``: as it was named, also where no table has it. ``is_by_option``: model or GPU is another than the twin's
    file may say.
    """

    shape: ModelShape | None = None
    gpu: Gpu | None = None
    gpu_name: str | None = None
    tp: int = 1
    reason: str = ""
    is_by_option: bool = False


def known_server(
    server: ServerInfo,
    config: TwinConfig | None = None,
    *,
    model_config: str | Path | None = None,
    gpu: str | None = None,
    tp: int | None = None,
) -> KnownServer:
    """Return what is known of a server.

    ``model_config``: a config.json, or the name of a model that ships. Raises ConfigError on an option with an unknown
    name; a name in a header may be unknown.
    """
    own_gpu = config.gpus_of_pools[0][0] if config is not None and config.gpus_of_pools else None
    peak = config.peaks[0] if config is not None and config.peaks else None
    own_shape = config.shape if config is not None and model_config is None else None
    gpu_name, which = gpu or own_gpu or server.gpu, model_config or server.model
    ranks = tp or (peak.tp if peak is not None else None) or server.tensor_parallel or 1
    missing = [name for name, value in (("model", own_shape or which), ("GPU", gpu_name)) if value is None]
    if missing or gpu_name is None:
        reason = f"{' and '.join(missing)} not known (--model-config, --gpu)"
        return KnownServer(gpu_name=gpu_name, tp=ranks, reason=reason)
    from replay.model import find_gpu, read_model_config

    try:
        shape = own_shape or read_model_config(str(which))
        is_by_option = model_config is not None or gpu is not None
        return KnownServer(
            shape=shape, gpu=find_gpu(gpu_name), gpu_name=gpu_name, tp=ranks, is_by_option=is_by_option
        )
    except ConfigError as error:
        if model_config is not None:
            raise
        return KnownServer(gpu_name=gpu_name, tp=ranks, reason=str(error))


def known_physics(known: KnownServer, config: TwinConfig) -> tuple[Physics | None, str]:
    """Return physics of the server, or why there is none: not known, or not of a kind it was learned on.

    Of a twin's file that names both it is as the file has it: numbers of its own, stages, experts' layout.
    """
    from replay import load_config
    from replay.model import peak_times
    from replay.twin import physics_covers, usual_physics

    if isinstance(config.latency, Physics):
        return config.latency, ""
    if config.source is not None and not known.is_by_option:
        with suppress(ConfigError):
            found = load_config(config.source, latency_model="physics", allows_cluster=False).latency
            if isinstance(found, Physics):
                return found, ""
    if known.shape is None or known.gpu is None:
        return None, known.reason
    try:
        peak = peak_times(known.shape, known.gpu, tp=known.tp)
    except ConfigError as error:
        return None, str(error)
    if not physics_covers(known.shape):
        return None, f"it was learned on models of another kind than {known.shape.name}"
    return Physics(peak=peak, **usual_physics(peak)), ""  # type: ignore[arg-type]


def known_tiles(known: KnownServer, config: TwinConfig) -> Tiles:
    """Return the tiles of the server's products: those of the twin's file, else from measured products."""
    from replay.model.matmuls import Tiles, tiles_of

    if config.latency.tile_factors:
        return Tiles(factors=config.latency.tile_factors)
    if known.shape is None or known.gpu is None:
        return Tiles(reason=known.reason)
    return tiles_of(known.shape, known.gpu, tp=known.tp)
