"""TWIN.yaml read, strictly: the one way from a file to a configuration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from replay.twin.cluster_section import read_cluster, server_roots
from replay.twin.config_keys import DEFAULT_SEED
from replay.twin.keys.overlay import Setting, named, overlaid, setting_of
from replay.twin.keys.ranges import check_ranges
from replay.twin.peers.own_words import in_own_words
from replay.twin.server.engine_section import other_places
from replay.twin.server.read_server import read_server
from replay.twin.twin_config import TwinConfig
from replay.twin.what_if.unanswered import Change, Simulated, unanswered_of
from sim import (
    InvalidConfig,
)
from traces import ConfigError
from traces.strict.arguments import PATH, TEXT, TWIN, takes
from traces.strict.section import Section, read_section, section_of_text
from traces.strict.swapped import check_twin_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_TOP = ("vllm_version", "compatibility", "engine", "latency", "hardware", "cluster", "seed")


@takes(twin=TWIN)
def twin_of(twin: TwinConfig | str | Path) -> TwinConfig:
    """Return a twin, read from its TWIN.yaml if that is what is given. Raises ConfigError."""
    return load_config(twin) if isinstance(twin, str | Path) else twin


@takes(path=PATH, defaults=PATH, latency_model=TEXT)
def load_config(
    path: str | Path,
    *,
    defaults: str | Path | None = None,
    latency_model: str | None = None,
    allows_cluster: bool = True,
    settings: Sequence[Setting | str] = (),
    learned: Sequence[Setting] = (),
    text: str | None = None,
) -> TwinConfig:
    """Return the configuration of the TWIN.yaml at ``path``; ``defaults`` is a defaults file to search first.

    ``settings``: keys in place of the file's own, or in addition; as text: ``"engine.max_num_seqs=64"``. ``learned``:
    values that the server reports for keys that the file leaves open: other values are derived from them, but they do
    not count as a change of settings.

    ``latency_model``: another than the file names, with its own coefficients in place of the file's.
    ``allows_cluster``: False of a caller that answers for one server: a file with a ``cluster`` section is refused.
    ``text``: what would stand at ``path``, of a twin that is in no file yet.

    Raises ConfigError, one line with file and line number, at the first thing that is wrong.
    """
    path = Path(path)
    root = _root_of(path, text, needs_keys=not settings)
    root = overlaid(root, learned) if learned else root
    if not settings:
        try:
            return _read(
                root, path, defaults=defaults, latency_model=latency_model, allows_cluster=allows_cluster
            )
        except ConfigError as error:
            raise ConfigError(in_own_words(str(error))) from error
    changes = [setting_of(each) for each in settings]
    plain, root = root, overlaid(root, changes)
    try:
        found = _read(
            root, path, defaults=defaults, latency_model=latency_model, allows_cluster=allows_cluster
        )
    except ConfigError as error:
        raise ConfigError(in_own_words(str(named(error, changes)))) from error
    return _told(
        found,
        (plain, root),
        changes,
        read=lambda changed: _read(
            changed, path, defaults=defaults, latency_model=latency_model, allows_cluster=allows_cluster
        ),
    )


def _root_of(path: Path, text: str | None, *, needs_keys: bool) -> Section:
    if text is None:
        check_twin_file(path)
    root = read_section(path) if text is None else section_of_text(text, file=str(path))
    if needs_keys and not root.nodes:
        raise ConfigError(f"file: got nothing in it, expected a TWIN.yaml ({path})")
    return root


def read_config_text(text: str, path: Path) -> TwinConfig:
    """Return the configuration of TWIN.yaml text, as if it stood at ``path``. Raises ConfigError."""
    root = section_of_text(text, file=str(path))
    return _read(root, path, defaults=None, latency_model=None, allows_cluster=True)


def _told(
    found: TwinConfig,
    roots: tuple[Section, Section],
    settings: Sequence[Setting],
    *,
    read: Callable[[Section], TwinConfig],
) -> TwinConfig:
    """Return a twin that lists the settings it cannot answer. ``roots``: the file's, and with the settings."""

    def is_read(setting: Setting) -> bool:
        without = [each for each in settings if each is not setting]
        try:
            return _simulated(read(overlaid(roots[0], without))) != _simulated(found)
        except ConfigError:  # a required section
            return True

    change = Change(
        own=roots[0],
        changed=roots[1],
        own_servers=lambda: _simulated(read(roots[0])),
        servers=_simulated(found),
        folder=Path() if found.source is None else found.source.parent,
        is_read=is_read,
    )
    unanswered = unanswered_of(change, settings)
    return replace(found, unanswered=unanswered, notes=(*found.notes, *(each.note for each in unanswered)))


def _simulated(twin: TwinConfig) -> list[Simulated]:
    """Return each pool's server."""
    return [(pool.engine, pool.latency) for pool in twin.cluster.pools]


def _read(
    root: Section,
    path: Path,
    *,
    defaults: str | Path | None,
    latency_model: str | None,
    allows_cluster: bool,
) -> TwinConfig:
    """Return the configuration of a file's root."""
    if "cluster" in root and not allows_cluster:
        line = root.key_lines["cluster"]
        raise ConfigError(
            "cluster: got one, expected a single engine here: run, replay, capacity, sweep, tune and serve simulate "
            f"clusters ({root.file}:{line})"
        )
    root.refuse_unknown(_TOP, elsewhere=other_places())
    check_ranges(root)
    seed = root.integer("seed", least=0, most=2**63 - 1)
    seed = DEFAULT_SEED if seed is None else seed
    try:
        servers = [
            read_server(each, folder=path.parent, defaults=defaults, seed=seed, latency_model=latency_model)
            for each in server_roots(root)
        ]
    except InvalidConfig as error:  # of a figure derived from other keys
        raise ConfigError(f"engine.{error} ({root.file})") from error
    first = servers[0]
    cluster = read_cluster(
        root,
        [(server.engine, server.latency) for server in servers],
        seed=seed,
        compatibility=first.compatibility,
        vllm_version=first.vllm_version,
        folder=path.parent,
        kv_bytes_per_token=[server.kv_bytes_per_token for server in servers],
        gpus=[_num_gpus(server) for server in servers],
    )
    return replace(_together(servers), asked_cluster=cluster, source=path)


def _together(servers: Sequence[TwinConfig]) -> TwinConfig:
    """Return the first server with what is to be told of all."""
    return replace(
        servers[0],
        notes=tuple(dict.fromkeys(note for server in servers for note in server.notes)),
        doubts=tuple(dict.fromkeys(doubt for server in servers for doubt in server.doubts)),
        peaks=tuple(peak for server in servers for peak in server.peaks),
        will_not_start=tuple(dict.fromkeys(fault for server in servers for fault in server.will_not_start)),
        gpus_of_pools=tuple(each for server in servers for each in server.gpus_of_pools),
    )


def _num_gpus(server: TwinConfig) -> int:
    """Return how many GPUs a server has: of its hardware, or as many as it has pipeline stages."""
    stages = server.engine.pipeline_parallel_size
    return sum(number for _, number in server.gpus_of_pools) or stages
