"""GRID.yaml: which runs a sweep has."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from glob import escape
from lazy_dataclasses import dataclass, fields
from pathlib import Path
from typing import get_type_hints

import yaml

from replay.model.prices import list_prices_per_hour, prices_from, read_prices
from replay.twin.keys.overlay import parse_settings, variants_of
from traces import ConfigError, format_of, quoted, read_recorded, reading_notes, tool_version
from traces.console.old_spellings import OLD_OPTIONS
from traces.strict.section import Section, read_section
from traces.strict.swapped import check_no_twin_for_grid
from traces.strict.tell import tell_note
from traces.strict.yaml_nodes import parse_yaml, plain_value, read_text
from traces.workload import WorkloadOptions

KEYS = ("config", "configs", "set", "workloads", "seeds", "slo", "warmup_frac", "prices")
LISTED = "list"
"""The value of ``prices`` for the list prices that ship."""
MOST_RUNS = 100_000
"""The grid is laid out before it runs, and its table has a row a run."""
MOST_SEED = 2**63 - 1
Value = str | int | float | bool
OLD_KEYS = {
    old.removeprefix("--").replace("-", "_"): new.removeprefix("--") for old, new in OLD_OPTIONS.items()
}
"""Options of a workload by names that they had before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRun:
    """One simulation of a sweep; everything in it is plain data that another process, or machine, can have.

    ``settings``: KEY=VALUE as after ``--set``; ``load``: options of ``vtwin run`` by their names, seed included;
    ``gpu_prices``: per GPU and hour. ``digest`` says whether a result on disk is of this run,
    ``config_digest`` whether a configuration that was read is its own.
    """

    config_name: str
    config: str
    settings: tuple[tuple[str, str], ...]
    workload: str
    load: tuple[tuple[str, Value], ...]
    seed: int
    slo: str | None
    warmup_frac: float | None
    gpu_prices: tuple[tuple[str, float], ...]
    config_digest: str
    digest: str

    def columns(self) -> dict[str, Value]:
        """Return what the run is, as columns of the table."""
        return {
            "config": self.config_name,
            "workload": self.workload,
            "seed": self.seed,
            **{key: plain(value) for key, value in self.settings},
            **{f"load.{key}": value for key, value in self.load if key != "seed"},
        }


def plain(text: str) -> Value:
    """Return a setting's value as a number or a truth value where it is one."""
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):  # an impossible date, a number of too many digits
        return text
    is_number = isinstance(value, int | float | bool) and math.isfinite(value)
    return value if is_number else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """All runs of a sweep, in order. ``has_list_prices``: the grid gives no prices."""

    runs: tuple[SweepRun, ...]
    has_list_prices: bool


def read_grid(path: Path) -> Grid:
    """Return the runs that a GRID.yaml describes. Raises ConfigError, one line with file and line number.

    Paths in it are relative to the file.
    """
    files_digest.cache_clear()  # the files may have changed since the last grid
    content_digest.cache_clear()
    root = read_section(path)
    check_no_twin_for_grid(path)
    root.refuse_unknown(KEYS)
    configs, loads, seeds = _configs(root, path.parent), _loads(root, path.parent), _seeds(root)
    settings = parse_settings(_settings(root))
    number = len(configs) * math.prod(map(len, settings)) * len(loads) * len(seeds)
    if number > MOST_RUNS:
        raise _too_many(number, path)
    variants = variants_of(settings)
    slo = root.text("slo")
    share = root.decimal("warmup_frac", expected="a share of the run in [0, 1)")
    prices = _prices(root, path.parent)
    runs = [
        _run(
            config_name=config_name,
            config=config,
            settings=tuple((each.key, each.value) for each in variant),
            workload=workload,
            load=(*load, ("seed", seed)),
            seed=seed,
            slo=slo,
            warmup_frac=None if share is None else float(share),
            gpu_prices=tuple(sorted(prices.items())),
            folder=path.parent,
        )
        for (config_name, config), variant, (workload, load), seed in itertools.product(
            configs.items(), variants, loads, seeds
        )
    ]
    return Grid(runs=tuple(runs), has_list_prices=_has_list_prices(root))


def _too_many(number: int, path: Path | str) -> ConfigError:
    return ConfigError(f"{path}: got {number:,} runs, expected at most {MOST_RUNS:,}")


def _run(*, folder: Path, **parts: object) -> SweepRun:
    """Return a run with the digest of all that it depends on: files' contents, but not their paths."""
    load, config = parts["load"], str(parts["config"])
    assert isinstance(load, tuple)  # noqa: S101 - as it was made above
    paths = [str(value) for key, value in load if key in path_options()]
    config_digest = files_digest(config)
    known = {
        **parts,
        "config": config_digest,
        "load": [
            (key, _place(str(value), folder) if key in path_options() else value) for key, value in load
        ],
        "files": [content_digest(name) for name in paths],
        "tool": tool_version(),
    }
    digest = hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:20]
    return SweepRun(**parts, config_digest=config_digest, digest=digest)  # type: ignore[arg-type]  # the parts are the fields but one


def _place(name: str, folder: Path) -> str:
    """Return a path as it is from the grid's folder, where it is inside it."""
    path, inside = Path(name), folder.resolve()
    return str(path.relative_to(inside)) if path.is_relative_to(inside) else name


@lru_cache(maxsize=1024)
def files_digest(config: str) -> str:
    """Return a digest of a configuration and of the files beside it that it names."""
    path = Path(config)
    whole = hashlib.sha256(content_digest(config).encode())
    try:
        named = texts_of(parse_yaml(read_text(path, expected="a YAML file"), file=config))
    except ConfigError:  # its runs will say so
        named = set()
    for text in sorted(named):
        with suppress(OSError, ValueError):  # a text that is no path at all
            if (path.parent / text).is_file():
                whole.update(f"{text} {content_digest(str(path.parent / text))}".encode())
    return whole.hexdigest()


def texts_of(node: yaml.Node | None) -> set[str]:
    """Return every text in a document."""
    if isinstance(node, yaml.ScalarNode):
        return {str(node.value)}
    if isinstance(node, yaml.SequenceNode):
        return set().union(*map(texts_of, node.value))
    if isinstance(node, yaml.MappingNode):
        return set().union(*(texts_of(value) for _, value in node.value))
    return set()


@lru_cache(maxsize=1024)
def content_digest(name: str) -> str:
    """Return a digest of a file, or of all files that begin with the name (a trace's stem)."""
    path = Path(name)
    found = [path] if path.is_file() else sorted(path.parent.glob(f"{escape(path.name)}.*"))
    whole = hashlib.sha256()
    for each in found:
        if each.is_file():
            whole.update(each.name.encode())
            whole.update(each.read_bytes())
    return whole.hexdigest()


def notes_of_files(runs: Sequence[SweepRun]) -> list[str]:
    """Return what a reader should know of the files of other tools that the workloads are from. Raises TraceError."""
    loads = dict.fromkeys(run.load for run in runs)
    named = dict.fromkeys(str(value) for load in loads for key, value in load if key in ("trace", "like"))
    return [
        f"{name}: {line}"
        for name in named
        if format_of(Path(name)) is not None
        for line in reading_notes(read_recorded(Path(name)))
    ]


def doubts_of_configs(runs: Sequence[SweepRun]) -> list[str]:
    """Return which configurations not to trust, by their fits. A file that cannot be read has none: its runs say so."""
    from replay.twin.config_read import load_config

    found = []
    for name, config in dict.fromkeys((run.config_name, run.config) for run in runs):
        with suppress(ConfigError):
            found += [f"{name}: {doubt}" for doubt in load_config(config).doubts]
    return found


@lru_cache(maxsize=1)
def path_options() -> frozenset[str]:
    """Return the names of the workload options that are files."""
    hints = get_type_hints(WorkloadOptions)
    return frozenset(
        each.name for each in fields(WorkloadOptions) if Path in getattr(hints[each.name], "__args__", ())
    )


def _configs(root: Section, folder: Path) -> dict[str, str]:
    """Return the configurations' paths by name."""
    one, several = (
        root.text("config"),
        root.section("configs", expected="a mapping of names to TWIN.yaml files"),
    )
    if one is not None and several is not None:
        root.refuse_together("config", "configs")
    if one is None and several is None:
        root.fail("config", got="neither this nor configs", expected="one of them")
    if several is None:
        return {Path(str(one)).stem: _resolved(root, "config", str(one), folder)}
    named = {
        name: several.text(name) or several.fail(name, got="nothing", expected="a path")
        for name in several.nodes
    }
    if not named:
        root.fail("configs", got="nothing", expected="names with the paths of TWIN.yaml files")
    return {name: _resolved(several, name, path, folder) for name, path in named.items()}


def _settings(root: Section) -> list[str]:
    """Return ``set`` as texts of ``--set``."""
    section = root.section("set", expected="a mapping of keys to values")
    if section is None:
        return []
    return [f"{key}={','.join(map(_text, _values(section, key)))}" for key in section.nodes]


def _text(value: object) -> str:
    """Return a value as it is written after ``--set``."""
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, list | dict) else str(value)


def _values(section: Section, key: str) -> list[object]:
    """Return the values of a key: the items of a list, or the one there is."""
    node = section.nodes[key]
    value = plain_value(node, where=section.path(key), file=section.file, error=section.error)
    values = value if isinstance(value, list) else [value]
    if not values or None in values:
        section.fail(key, got="nothing", expected="a value, or a list of values")
    return values


def _loads(root: Section, folder: Path) -> list[tuple[str, tuple[tuple[str, Value], ...]]]:
    """Return each workload with each combination of its options: (name, options)."""
    section = root.section("workloads", expected="a mapping of names to options of vtwin run")
    if section is None or not section.nodes:
        root.fail(
            "workloads", got="nothing", expected="names with options of vtwin run (chat: {rate: [2, 4]})"
        )
    known = [each.name for each in fields(WorkloadOptions) if each.name != "seed"]
    found: list[tuple[str, tuple[tuple[str, Value], ...]]] = []
    for name in section.nodes:
        options = section.section(name, expected="options of vtwin run")
        assert options is not None  # noqa: S101 - the name is there
        options.refuse_unknown(
            [*known, *OLD_KEYS],
            elsewhere={"seed": "seeds, at the top", **{k.replace("_", "-"): k for k in known}},
        )
        for old in set(OLD_KEYS) & set(options.nodes):
            tell_note(f"{options.path(old)}: `{old}` is now `{OLD_KEYS[old]}` ({options.file})")
        values = [
            [(_new_name(key), _scalar(options, key, value, folder)) for value in _values(options, key)]
            for key in options.nodes
        ]
        number = len(found) + math.prod(map(len, values))
        if number > MOST_RUNS:  # before there are so many
            raise _too_many(number, section.file)
        found += [(name, tuple(combination)) for combination in itertools.product(*values)]
    return found


def _scalar(section: Section, key: str, value: object, folder: Path) -> Value:
    if not isinstance(value, str | int | float | bool) or (
        isinstance(value, float) and not math.isfinite(value)
    ):
        section.fail(key, got=str(value), expected="a value, or a list of values")
    return _resolved(section, key, str(value), folder) if _new_name(key) in path_options() else value


def _new_name(key: str) -> str:
    """Return today's name of an option of a workload."""
    return OLD_KEYS.get(key, key)


def _resolved(section: Section, key: str, text: str, folder: Path) -> str:
    """Return a path of the grid as an absolute one. Raises ConfigError for a text that can be none."""
    try:
        path = (folder / text).resolve()
        path.exists()  # a name may be too long
    except (OSError, ValueError):
        section.fail(key, got=quoted(text), expected="a path")
    return str(path)


def _seeds(root: Section) -> list[int]:
    """Return the seeds: as listed, or as many as said, from 1; one where nothing is said."""
    if "seeds" not in root:
        return [1]
    values = _values(root, "seeds")
    if isinstance(values[0], int) and len(values) == 1 and not isinstance(values[0], bool):
        node = root.nodes["seeds"]
        if not isinstance(node, yaml.SequenceNode):
            values = list(range(1, min(values[0], MOST_RUNS + 1) + 1))  # more are refused by their number
    seeds = [
        value
        for value in values
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_SEED
    ]
    if not seeds or len(set(seeds)) < len(values):
        root.fail(
            "seeds",
            got=str(values),
            expected=f"how many, or a list of different integers of 0 to {MOST_SEED}",
        )
    return seeds


def _prices(root: Section, folder: Path) -> Mapping[str, float]:
    """Return the prices: from a file, written here, or the list prices that ship."""
    if "prices" not in root:
        return {}
    if isinstance(root.nodes["prices"], yaml.ScalarNode):
        named = root.text("prices") or ""
        return list_prices_per_hour() if named == LISTED else read_prices(folder / named, what="prices")
    section = root.section("prices")
    assert section is not None  # noqa: S101 - the key is there
    return prices_from(section)


def _has_list_prices(root: Section) -> bool:
    node = root.nodes.get("prices")
    return isinstance(node, yaml.ScalarNode) and node.value == LISTED


def words_of(load: Sequence[tuple[str, Value]]) -> list[str]:
    """Return options as words of a command line."""
    words = []
    for key, value in load:
        name = f"--{key.replace('_', '-')}"
        if isinstance(value, bool):
            words += [name] if value else []
        else:
            words += [name, str(value)]
    return words
