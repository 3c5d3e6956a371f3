"""Settings that a twin cannot answer: which key was changed, and why it has no effect here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from lazy_dataclasses import dataclass, fields
from pathlib import Path

import yaml

from replay.model.gpus import find_gpu
from replay.twin.cluster_section import server_roots
from replay.twin.config_keys import all_keys
from replay.twin.hardware import read_shape
from replay.twin.keys.latency_keys import FITTED
from replay.twin.keys.overlay import Setting
from replay.twin.what_if.readers_of_keys import (
    ANALYTIC,
    BY_DEFAULTS,
    NEEDS,
    ON_RECORD,
    OWN,
    OWN_AT_PEAK,
    TOWER_TP_MODE,
    WITH_TABLE,
    Readers,
    readers_of,
)
from sim import EngineConfig
from sim.latency import LATENCY_CLASSES, Fitting, LatencyModel
from traces import ConfigError
from traces.strict.section import Section
from traces.strict.yaml_nodes import is_null

Simulated = tuple[EngineConfig, LatencyModel]
"""One simulated server, or the server of one pool."""
SHAPE_KEYS = (
    "latency.model_config",
    "latency.dtype",
    "latency.kv_cache_dtype",
    "latency.mamba_ssm_cache_dtype",
    "latency.quantization",
)
_POOL = re.compile(r"cluster\.pools\[(\d+)\]\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswered:
    """A changed key without an effect here. ``reason``: why, ``cure``: what would answer it."""

    key: str
    reason: str
    cure: str = ""

    @property
    def note(self) -> str:
        """The line for a reader."""
        told = f"{self.key}: no answer here. {self.reason}"
        return f"{told}. {self.cure}" if self.cure else told


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A file, and the file with settings: ``own`` and ``changed`` roots, and the servers that each of them makes.

    ``folder``: of the file. ``is_read``: whether a setting changes an engine at all, the others staying as they are.
    """

    own: Section
    changed: Section
    own_servers: Callable[[], Sequence[Simulated]]
    servers: Sequence[Simulated]
    folder: Path
    is_read: Callable[[Setting], bool]


SAYS_NONE = {("hardware.kv_offloading_size", "0")}
"""Values that mean the same as a missing key; they change no simulation."""


def unanswered_of(change: Change, settings: Sequence[Setting]) -> tuple[Unanswered, ...]:
    """Return the settings that the twin cannot answer, each key once, in the settings' order."""
    before, after = server_roots(change.own), server_roots(change.changed)
    if len(before) != len(after) or len(after) > len(change.servers):
        before = [change.own] * len(after)
    found: dict[str, Unanswered] = {}
    for setting in settings:
        for number in _servers_of(setting, len(after)):
            for each in _of_server(setting, (before[number], after[number]), number, change):
                found.setdefault(each.key, each)
    return tuple(found.values())


def _servers_of(setting: Setting, number: int) -> range:
    """Return which servers a setting affects: its pool's, or all."""
    pool = _POOL.match(setting.key)
    if pool is None:
        return range(number)
    place = int(pool.group(1))
    return range(place, min(place + 1, number))


def _of_server(
    setting: Setting,
    roots: tuple[Section, Section],
    number: int,
    change: Change,
) -> Iterator[Unanswered]:
    """Yield one setting's unanswered keys for one server. ``roots``: the server's, before and after."""
    below = _POOL.sub("", setting.key)
    engine, model = change.servers[number]
    kind = kind_of(roots[1], model)
    for path in _changed(below, *roots):
        if path in SHAPE_KEYS and _is_same_shape(*roots, folder=change.folder):
            continue
        if (path, setting.value) in SAYS_NONE:
            continue
        if path == "engine.async_scheduling":
            told = _async(engine, change, number)
        elif path == "engine.num_speculative_tokens":
            told = _drafts(roots[1], engine)
        elif path in NEEDS:
            told = _needed(path, engine)
        elif path == TOWER_TP_MODE:
            told = None if change.is_read(setting) else _NO_TOWER_SHARED
        else:
            readers = readers_of(path)
            told = None if readers is None else _unread(path, readers, kind, roots[1])
            if readers is not None and not readers.kinds and readers.engine and change.is_read(setting):
                told = None
        if told is not None:
            yield told


def kind_of(root: Section, model: LatencyModel) -> str:
    """Return the source of a server's step times, as the table of readers calls it."""
    section = root.section("latency")
    name = next((name for name, cls in LATENCY_CLASSES.items() if type(model) is cls), None)
    if name is None:
        return OWN_AT_PEAK if any(each.name == "peak" for each in fields(model)) else OWN
    if (
        section is None
        or name not in FITTED
        or (section.text("model") == "extended" and "defaults" not in section)
    ):
        return name
    if "defaults" in section:
        return BY_DEFAULTS
    return name if "coefficients" in section and section.text("model") != "auto" else ON_RECORD


def _unread(path: str, readers: Readers, kind: str, root: Section) -> Unanswered | None:
    """Return the reason why step times of this kind do not depend on a key; None where they do."""
    if kind in readers.kinds:
        latency = root.section("latency")
        is_at_peak = readers.through_peak and kind != ON_RECORD
        if not is_at_peak or latency is None or "peak" not in latency:
            return None
        return Unanswered(
            key=path, reason="latency.peak is written out in its place", cure="Take latency.peak away"
        )
    if not readers.kinds and readers.engine:
        return Unanswered(
            key=path,
            reason="It changes nothing: the KV cache's size is given, or the file names neither model nor hardware",
            cure="Take engine.num_gpu_blocks away, and name latency.model_config and hardware",
        )
    only = f"; {_ONLY_ENGINE}" if readers.engine else ""
    cure = _MEASURE if readers.kinds.issuperset(ANALYTIC) else ""
    return Unanswered(key=path, reason=f"{_KINDS[kind]} do not go by it{only}", cure=cure)


_ONLY_ENGINE = "only the engine's own limits and its KV cache do, where the file does not give them"
_MEASURE = "Measure such a server and fit it, or set latency.model to physics, with latency.model_config and hardware"
_KINDS: Mapping[str, str] = {
    **{
        name: f"The step times of {name} are coefficients of one measured server and"
        for name in LATENCY_CLASSES
    },
    **{name: f"The step times of {name} are a table of one measured server and" for name in WITH_TABLE},
    **{name: f"The step times of {name}" for name in ANALYTIC},
    ON_RECORD: "The step times are coefficients on record and",
    BY_DEFAULTS: "The step times are coefficients that latency.defaults looks up and",
    OWN: "The step times of your own model, which has no field peak,",
    OWN_AT_PEAK: "The step times of your own model",
}


_NO_TOWER_SHARED = Unanswered(
    key=TOWER_TP_MODE,
    reason="It changes nothing: one GPU has each layer, or no vision tower is known that shares images out, or their "
    "time is given (engine.encoder_token_us)",
    cure="Name a model that sees images (latency.model_config) and hardware.tp, with latency.model roofline or physics",
)


def _async(engine: EngineConfig, change: Change, number: int) -> Unanswered | None:
    """Return a note if async scheduling is switched: the step times do not include what it hides."""
    if engine.host_step_us or engine.host_prefill_us:
        return None
    try:
        own = change.own_servers()
    except ConfigError:  # a file that is incomplete without the settings had no value before
        return None
    if engine.async_scheduling == own[min(number, len(own) - 1)][0].async_scheduling:
        return None
    now, measured = ("on", "off") if engine.async_scheduling else ("off", "on")
    return Unanswered(
        key="engine.async_scheduling",
        reason=f"It is switched {now}, with the step times of a server that had it {measured}: the CPU's work between "
        "steps, which async scheduling hides, is not known apart from them",
        cure="Measure a server with the other setting, and find that time with `vtwin calibrate host`, or give "
        "engine.host_step_us and engine.host_prefill_us",
    )


def _drafts(root: Section, engine: EngineConfig) -> Unanswered | None:
    """Return a note if drafts are requested and their cost is not given."""
    section = root.section("engine")
    is_known = engine.draft_us > 0 or (section is not None and "draft_us" in section)
    if engine.num_speculative_tokens == 0 or is_known:
        return None
    return Unanswered(
        key="engine.num_speculative_tokens",
        reason="engine.draft_us is not given, so that drafting takes no time and every accepted draft is free",
        cure="Give engine.draft_us (µs per drafted token and step; 0 says that they are free)",
    )


def draft_notes(root: Section, engine: EngineConfig, model: LatencyModel) -> tuple[str, ...]:
    """Return the note that a file's own drafts take no time; nothing for a fitted model, which may include them."""
    if model.fitting is Fitting.FREELY or _drafts(root, engine) is None:
        return ()
    return (
        "engine.draft_us is not given: drafting takes no time, and every accepted draft is free. Give µs per "
        "drafted token and step",
    )


def _needed(path: str, engine: EngineConfig) -> Unanswered | None:
    """Return the note that a key has no effect while the key that it needs is at its default."""
    other = NEEDS[path]
    value = getattr(engine, other)
    if value != getattr(EngineConfig(), other):
        return None
    if path == "engine.priority_scoring" and engine.priority_scoring == "constant":
        return None
    return Unanswered(
        key=path, reason=f"It does nothing while engine.{other} is {value}", cure=f"Set engine.{other}, too"
    )


def _changed(below: str, own: Section, root: Section) -> Iterator[str]:
    """Yield the keys at or below a path whose value has changed; absent keys have their default."""
    before, after = dict(_leaves(own)), dict(_leaves(root))
    removed = [path for path in before if path.startswith("engine.")]
    for path in dict.fromkeys((*after, *removed, below)):
        is_inside = path == below or path.startswith(f"{below}.")
        if is_inside and _value(path, before) != _value(path, after):
            yield path


def _leaves(root: Section) -> Iterator[tuple[str, str]]:
    """Yield a server's values in a root, by path; ``hardware: H100`` is its gpu."""
    for name in ("engine", "latency", "hardware"):
        if name in root:
            yield from _leaves_below(name, root.nodes[name])


def _leaves_below(path: str, node: yaml.Node) -> Iterator[tuple[str, str]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _leaves_below(f"{path}.{key.value}", value)
    elif isinstance(node, yaml.SequenceNode):
        yield path, ",".join(str(each.value) for each in node.value)
    elif not is_null(node):
        yield ("hardware.gpu" if path == "hardware" else path), str(node.value)


def _value(path: str, leaves: Mapping[str, str]) -> object:
    """Return a key's value in one form: numbers as numbers, a GPU by its name."""
    text = leaves.get(path, _defaults().get(path, ""))
    if path == "hardware.gpu" and text in leaves.values():
        try:
            return find_gpu(text, where=path).name
        except ConfigError:
            return text
    try:
        return float(text)
    except ValueError:
        return text


@lru_cache(maxsize=1)
def _defaults() -> Mapping[str, str]:
    """Return the table's defaults by key."""
    return {key.path: key.default for key in all_keys()}


def _is_same_shape(own: Section, root: Section, *, folder: Path) -> bool:
    """Return whether two roots describe the same model in different words, such as bfloat16 for auto."""
    try:
        shapes = [
            None if section is None else read_shape(section, folder=folder)
            for section in (own.section("latency"), root.section("latency"))
        ]
    except ConfigError:
        return False
    return shapes[0] is not None and shapes[0] == shapes[1]
