"""The engine section of a TWIN.yaml, with vLLM's defaults for keys that it does not give."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args

from replay.twin.config_keys import FOREIGN_NAMES, RULES_VERSION, VERSION, engine_keys
from replay.twin.drafts import without_drafts
from replay.twin.engine_defaults import LIMITS, Server, with_defaults
from replay.twin.keys.key import Key
from replay.twin.keys.read_keys import value_of
from replay.twin.kv_cache.groups import (
    GROUP_KEYS,
    GROUPS,
    drafting_method,
)
from replay.twin.kv_cache.match_unit import UNIT, UNIT_KEY
from replay.twin.kv_cache.retention_interval import INTERVAL, RETENTION_KEY
from sim import (
    KNOWN_VERSIONS,
    Compatibility,
    EngineConfig,
    EngineSettings,
    InvalidConfig,
    engine_defaults,
    is_known,
)
from traces import ConfigError, cut
from traces.strict.section import Section
from traces.strict.yaml_nodes import place

NOT_OF_V0 = ("async_scheduling", "enable_chunked_prefill")
NOT_OF_OTHERS = ("async_scheduling", "enable_prefix_caching")
"""What is off with ``batching: vllm-v0``, and with the other schedulers, unless the file says so itself."""


def read_version(root: Section) -> str:
    """Return the version whose scheduling rules hold."""
    version = root.text("vllm_version") or RULES_VERSION
    if not is_known(version):
        line = root.key_lines["vllm_version"]
        raise ConfigError(
            f"vllm_version: got {cut(str(version))}, expected {KNOWN_VERSIONS} ({root.file}:{line})"
        )
    return version


def read_engine(
    root: Section, server: Server, *, seed: int, num_stages: int
) -> tuple[EngineConfig, tuple[str, ...]]:
    """Return the engine section, with vLLM's own limits for missing ones, and lines that say so."""
    section = root.section("engine")
    given: dict[str, object] = {}
    if section is not None:
        keys = engine_keys()
        names = [key.path.split(".")[1] for key in (*keys, *GROUP_KEYS, RETENTION_KEY, UNIT_KEY)]
        section.refuse_unknown(names, elsewhere=other_places())
        given = without_drafts({key.name: _engine_value(section, key) for key in keys})
        drafting_method(section)  # a wrong version is reported before missing settings of its drafts
    if root.text("compatibility", choices=get_args(Compatibility)) == "blis":
        given["compatibility"] = "blis"
        given["async_scheduling"] = given.get("async_scheduling") or False
    if (batching := given.get("batching")) not in {None, "vllm"}:
        for name in NOT_OF_V0 if batching == "vllm-v0" else NOT_OF_OTHERS:
            given[name] = given.get(name) or False
    if given.get("num_speculative_tokens"):
        given["seed"] = seed
    said = {name: value for name, value in given.items() if value is not None}
    if given.get("compatibility") != "blis":
        said.setdefault("pipeline_parallel_size", num_stages)
    stages = said.get("pipeline_parallel_size", 1)
    assert isinstance(stages, int)  # noqa: S101 - the reader has seen to it
    defaults = engine_defaults(server.vllm_version, num_stages=stages)
    settings = {**defaults, "vllm_version": server.vllm_version, **said}
    if settings.get("compatibility") == "blis":
        return _engine_from(settings, section), ()
    settings, notes = with_defaults(settings, server)
    return _engine_from(settings, section), notes


def assumed_flags(root: Section) -> tuple[str, ...]:
    """Return the flags that a file does not give and whose default in vLLM depends on the GPU."""
    section = root.section("engine")
    return tuple(name for name in LIMITS if section is None or name not in section)


def written_keys(root: Section) -> frozenset[str]:
    """Return the engine's keys that a file gives, and the version where it gives that."""
    section = root.section("engine")
    own = frozenset() if section is None else frozenset(section.nodes)
    return own | ({VERSION} if VERSION in root else set())


def _engine_value(section: Section, key: Key) -> object:
    """Return a key's value; the engine's lists are shares."""
    return section.fractions(key.name) if key.kind == "numbers" else value_of(section, key)


def as_settings(engine: EngineSettings) -> EngineSettings:
    """Return an engine's settings to be changed one after the other; ``checked`` checks them together, once."""
    return EngineSettings(**{item.name: getattr(engine, item.name) for item in fields(engine)})


def checked(settings: EngineSettings, root: Section) -> EngineConfig:
    """Return the engine with settings that follow from the whole file.

    Raises ConfigError, with the line of the key or of the groups where the file gives them, without one where neither
    is written: a figure derived from other keys is none that the engine can run with.
    """
    try:
        return EngineConfig(**{item.name: getattr(settings, item.name) for item in fields(settings)})
    except InvalidConfig as error:
        name, _, complaint = str(error).partition(": ")
        section = root.section("engine")
        lines = {} if section is None else section.key_lines
        line = lines.get(name if name in (INTERVAL, UNIT) else GROUPS, 0)
        raise ConfigError(f"engine.{name}: {complaint} ({place(root.file, line)})") from error


def _engine_from(given: dict[str, object], section: Section | None) -> EngineConfig:
    try:
        return EngineConfig(**given)  # type: ignore[arg-type]  # every value was read by its field's type
    except InvalidConfig as error:
        if section is None:
            raise
        name, _, complaint = str(error).partition(": ")
        line = section.key_lines.get(name, section.line)
        raise ConfigError(f"engine.{name}: {complaint} ({place(section.file, line)})") from error


def other_places() -> dict[str, str]:
    """Return the right section of keys that are often put into a wrong one."""
    places = {key.path.rsplit(".", 1)[-1]: key.path for key in engine_keys()}
    return {**{name.replace("_", "-"): path for name, path in places.items()}, **places, **FOREIGN_NAMES}
