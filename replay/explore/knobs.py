"""Every knob of the page, once: its place in a run's options, its range, and when it is there.

The page's form, the command, the YAML and the reading of a state all follow from this table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from lazy_dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from replay.explore.asked_run import AskedRun
from replay.model.gpus import shipped_gpus
from replay.model.shipped_models import shipped_models
from replay.twin.config_keys import all_keys
from replay.twin.keys.cluster_keys import OWN_FUNCTION
from traces import ConfigError, parse_slo
from traces.workload import drawn_lengths, parse_shares, share_groups, workload_from_options

if TYPE_CHECKING:
    from replay.twin.keys.key import Key
    from replay.twin.twin_config import TwinConfig
    from traces.workload import Gaussian, WorkloadOptions

Kind = Literal["number", "integer", "choice", "switch"]
Place = Literal["workload", "sessions", "key", "option", "slo", "share"]

MOST_INSTANCES = 256
MOST_SHARES = 8
"""Service classes, tenants or clients of which the page has the share of each."""
SHARE = "share_"
"""What the name of such a knob begins with."""
MOST_TURNED = 20_000
"""Requests of a turn; more of them are simulated behind it, by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageStart:
    """What the page begins with: the run that its command line asks for, and its twin.

    ``has_sessions``: whether requests of the load belong to sessions. ``shares``: the rate fractions that can be
    others, by service class, tenant or client, {} for none.
    """

    asked: AskedRun
    twin: TwinConfig
    has_sessions: bool
    shares: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """A setting that can be turned.

    ``name``: as in a state. ``at``: the field of its option table, the key of TWIN.yaml, or the metric of a limit.
    ``least``, ``most``: what the page takes; ``on_log``: its slider goes by factors. ``choices``: of words.
    ``is_there``: whether the page has it, for what it begins with. ``of_begin``: what it begins with, "" for nothing.
    ``if_empty``: the lengths that are drawn where nothing says a value.
    """

    name: str
    label: str
    group: str
    place: Place
    at: str
    kind: Kind = "integer"
    unit: str = ""
    least: float = 1
    most: float = 1
    on_log: bool = True
    choices: Callable[[], tuple[str, ...]] = tuple
    is_there: Callable[[PageStart], bool] = lambda _: True
    of_begin: Callable[[PageStart], object] | None = None
    if_empty: Callable[[PageStart], Gaussian] | None = None
    meaning: str = ""

    def begins(self, begin: PageStart) -> str:
        """Return its value as the page begins, "" where nothing says one."""
        if self.of_begin is not None:
            return _text(self.of_begin(begin))
        if self.place == "workload":
            return _text(getattr(begin.asked.workload, self.at))
        if self.place == "sessions":
            return _text(getattr(begin.asked.sessions, self.at))
        if self.place == "slo":
            limits = parse_slo(begin.asked.slo) if begin.asked.slo else {}
            return _text(limits[self.at] / 1e3) if self.at in limits else ""
        if self.place == "key" and self.at.startswith("engine."):
            return _text(getattr(begin.twin.engine, self.at.partition(".")[2]))
        return dict(begin.asked.settings).get(self.at, "")

    def read(self, text: str) -> object:
        """Return the value that a state's text stands for. Raises ConfigError, which begins with the knob's name."""
        if self.kind == "switch":
            if text not in ("true", "false"):
                raise ConfigError(f"{self.name}: got {text!r}, expected true or false")
            return text
        if self.kind == "choice":
            if text not in self.choices():
                raise ConfigError(f"{self.name}: got {text!r}, expected one of {', '.join(self.choices())}")
            return text
        try:
            value = int(text) if self.kind == "integer" else float(text)
        except ValueError:
            value = float("nan")
        if not self.least <= value <= self.most:
            what = "a whole number" if self.kind == "integer" else "a number"
            raise ConfigError(
                f"{self.name}: got {text[:40]!r}, expected {what} from {self.least:g} to {self.most:,.12g}"
            )
        return value


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).removesuffix(".0")


def _has(field: str) -> Callable[[PageStart], bool]:
    return lambda begin: getattr(begin.asked.workload, field) is not None


def _may_have_rate(begin: PageStart) -> bool:
    return begin.asked.workload.rate is not None or begin.asked.workload.workload is not None


def _draws_lengths(begin: PageStart) -> bool:
    load = begin.asked.workload
    return all(each is None for each in (load.trace, load.like, load.workload))


def _is_recorded(begin: PageStart) -> bool:
    return begin.asked.workload.trace is not None or begin.asked.workload.like is not None


def _has_sessions(begin: PageStart) -> bool:
    return begin.has_sessions and _is_recorded(begin)


def _names_model(begin: PageStart) -> bool:
    return begin.twin.shape is not None and begin.twin.is_plain_server


def _names_gpu(begin: PageStart) -> bool:
    return _names_model(begin) and bool(begin.twin.gpus_of_pools)


def _is_one_pool(begin: PageStart) -> bool:
    return len(begin.twin.cluster.pools) == 1


def _has_tier(begin: PageStart) -> bool:
    return begin.twin.tier is not None


def _num_instances(begin: PageStart) -> int:
    return begin.twin.cluster.pools[0].num_slots


def _routing(begin: PageStart) -> str:
    return begin.asked.routing or str(getattr(begin.twin.cluster.routing, "name", "round-robin"))


def _engine(name: str, label: str, most: float, *, least: float = 1, unit: str = "") -> Knob:
    return Knob(
        name=name,
        label=label,
        group="Server",
        place="key",
        at=f"engine.{name}",
        least=least,
        most=most,
        unit=unit,
    )


def _switch(name: str, label: str) -> Knob:
    return Knob(name=name, label=label, group="Server", place="key", at=f"engine.{name}", kind="switch")


def _load(
    name: str, label: str, unit: str, most: float, is_there: Callable[[PageStart], bool], *, least: float = 1
) -> Knob:
    return Knob(
        name=name,
        label=label,
        group="Load",
        place="workload",
        at=name,
        kind="integer" if least >= 1 else "number",
        unit=unit,
        least=least,
        most=most,
        is_there=is_there,
    )


def _length(name: str, label: str, most: float) -> Knob:
    knob = _load(name, label, "tokens", most, _draws_lengths)
    side = name.partition("_")[0]
    return replace(knob, if_empty=lambda begin: drawn_lengths(begin.asked.workload, side))


def _limit(metric: str, label: str, most: float) -> Knob:
    return Knob(
        name=f"slo_{metric}",
        label=label,
        group="Limits of a request",
        place="slo",
        at=metric,
        kind="number",
        unit="ms",
        least=0.1,
        most=most,
        meaning="Empty: no limit. With a limit the capacity is looked for.",
    )


KNOBS: tuple[Knob, ...] = (
    _load("rate", "Rate", "requests/s", 100_000, _may_have_rate, least=0.001),
    _load("concurrency", "Users", "at once", 10_000, _has("concurrency")),
    _load(
        "speed",
        "Speed of the trace",
        "times",
        1_000,
        lambda begin: begin.asked.workload.trace is not None,
        least=0.001,
    ),
    Knob(
        name="sessions",
        label="Sessions at once",
        group="Load",
        place="sessions",
        at="sessions",
        most=10_000,
        is_there=_has_sessions,
    ),
    Knob(
        name="think_time_scale",
        label="Think times",
        group="Load",
        place="sessions",
        at="think_time_scale",
        kind="number",
        unit="times",
        least=0,
        most=100,
        on_log=False,
        is_there=_has_sessions,
    ),
    _load(
        "rounds",
        "Rounds of a session",
        "",
        100,
        lambda begin: _draws_lengths(begin) and _has("rounds")(begin),
    ),
    _length("prompt_tokens", "Prompt", 200_000),
    _length("output_tokens", "Answer", 100_000),
    _load("prompt_scale", "Prompt lengths", "times", 100, _is_recorded, least=0.01),
    _load("output_scale", "Answer lengths", "times", 100, _is_recorded, least=0.01),
    _load(
        "num_requests",
        "Requests of a turn",
        "",
        MOST_TURNED,
        lambda begin: begin.asked.workload.trace is None,
    ),
    _limit("ttft", "TTFT", 600_000),
    _limit("tpot", "TPOT", 60_000),
    _limit("e2e", "E2E", 3_600_000),
    _engine("max_num_seqs", "Seats (max_num_seqs)", 8_192),
    _engine("max_num_batched_tokens", "Tokens of a step (max_num_batched_tokens)", 262_144),
    _engine("num_gpu_blocks", "KV cache (num_gpu_blocks)", 10_000_000, least=2, unit="blocks"),
    _engine("max_model_len", "Longest request (max_model_len)", 10_000_000, unit="tokens"),
    _switch("enable_prefix_caching", "Prefix caching"),
    _switch("enable_chunked_prefill", "Chunked prefill"),
    replace(
        _engine("num_cpu_blocks", "KV tier in host memory (num_cpu_blocks)", 10_000_000, unit="blocks"),
        is_there=_has_tier,
    ),
    Knob(
        name="kv_offloading_size",
        label="KV tier in host memory (kv_offloading_size)",
        group="Model and GPU",
        place="key",
        at="hardware.kv_offloading_size",
        kind="number",
        unit="GiB",
        least=0,
        most=100_000,
        on_log=False,
        is_there=lambda begin: _names_gpu(begin) and not _has_tier(begin),
    ),
    Knob(
        name="model",
        label="Model",
        group="Model and GPU",
        place="key",
        at="latency.model_config",
        kind="choice",
        choices=lambda: tuple(shipped_models()),
        is_there=_names_model,
        meaning="Of those that ship. Empty: the file's.",
    ),
    Knob(
        name="gpu",
        label="GPU",
        group="Model and GPU",
        place="key",
        at="hardware.gpu",
        kind="choice",
        choices=lambda: tuple(each.name for each in shipped_gpus()),
        is_there=_names_gpu,
        of_begin=lambda begin: dict(begin.asked.settings).get("hardware.gpu", begin.twin.gpus_of_pools[0][0]),
    ),
    Knob(
        name="tp",
        label="GPUs that share each layer (tp)",
        group="Model and GPU",
        place="key",
        at="hardware.tp",
        most=64,
        is_there=_names_gpu,
        of_begin=lambda begin: dict(begin.asked.settings).get("hardware.tp", begin.twin.gpus_of_pools[0][1]),
    ),
    Knob(
        name="instances",
        label="Instances",
        group="Fleet",
        place="option",
        at="instances",
        most=MOST_INSTANCES,
        is_there=_is_one_pool,
        of_begin=_num_instances,
        meaning="Servers behind a router.",
    ),
    Knob(
        name="routing",
        label="Routing",
        group="Fleet",
        place="option",
        at="routing",
        kind="choice",
        choices=lambda: tuple(
            each for each in _key("cluster.routing.policy").choices if each != OWN_FUNCTION
        ),
        is_there=_is_one_pool,
        of_begin=_routing,
        meaning="How the router chooses; it needs several instances.",
    ),
)
"""All of them, in the order of the page."""


def knobs_of(begin: PageStart) -> dict[str, Knob]:
    """Return the knobs that the page has, by name."""
    own = [each for each in KNOBS if each.is_there(begin)]
    of_load = sum(each.group == "Load" for each in own)  # which stand first
    return {each.name: each for each in (*own[:of_load], *_share_knobs(begin), *own[of_load:])}


def _share_knobs(begin: PageStart) -> list[Knob]:
    """Return a knob for each service class, tenant or client that has a share of the load."""
    return [
        Knob(
            name=f"{SHARE}{name}",
            label=f"Share of {name}",
            group="Shares of the load",
            place="share",
            at=name,
            kind="number",
            least=0.001,
            most=1_000,
            of_begin=lambda begin, name=name: f"{begin.shares[name]:g}",  # type: ignore[misc] # bound at once
            meaning="In proportion to the others.",
        )
        for name in begin.shares
    ]


def shares_of(workload: WorkloadOptions) -> dict[str, float]:
    """Return the shares that the page has knobs for: of service classes, else tenants, else clients, where several.

    Their names mean the same in ``--shares``. Raises ConfigError.
    """
    if workload.workload is None:
        return {}
    said = parse_shares(workload.shares).keys() if workload.shares else set[str]()
    before: set[str] = set()
    for group in share_groups(workload_from_options(workload)).values():
        can_be_said = all(name == name.strip() and "," not in name for name in group)
        is_first = not before & group.keys()  # a name is looked up among classes first
        if 1 < len(group) <= MOST_SHARES and can_be_said and is_first and said <= group.keys():
            return group
        before |= group.keys()
    return {}


def form_of(begin: PageStart) -> list[dict[str, object]]:
    """Return the page's form: a row for each knob, with the value that it begins with."""
    return [
        {
            "name": each.name,
            "label": each.label,
            "group": each.group,
            "kind": each.kind,
            "unit": each.unit,
            "least": each.least,
            "most": each.most,
            "on_log": each.on_log,
            "choices": list(each.choices()),
            "begins": each.begins(begin),
            **_if_empty(each, begin),
        }
        for each in knobs_of(begin).values()
    ]


def _if_empty(knob: Knob, begin: PageStart) -> dict[str, str]:
    """Return what is simulated where a knob says no value, as a number and in words, or else what the knob means."""
    if knob.if_empty is not None and not knob.begins(begin):
        drawn = knob.if_empty(begin)
        said = f"Empty: drawn, {drawn.mean:g} on average with a standard deviation of {drawn.std_dev:g}."
        return {"if_empty": f"{drawn.mean:g}", "meaning": said}
    of_key = first_sentence(_key(knob.at).meaning) if knob.place == "key" else ""
    return {"if_empty": "", "meaning": knob.meaning or of_key}


def first_sentence(text: str) -> str:
    """Return what a key means in its first sentence, without the marks of Markdown."""
    return f"{text.replace('`', '').partition('. ')[0].removesuffix('.')}."


def turned(begin: PageStart, state: Mapping[str, str]) -> AskedRun:
    """Return the run that a state asks for; what it does not name is as in the beginning. Raises ConfigError."""
    knobs, asked = knobs_of(begin), begin.asked
    limits = {each.at: each.begins(begin) for each in knobs.values() if each.place == "slo"}
    for name in sorted(state.keys() - knobs.keys()):
        raise ConfigError(
            f"{name[:40]}: got a setting that this page does not have, expected one of {', '.join(knobs)}"
        )
    for knob in knobs.values():
        text = state.get(knob.name, knob.begins(begin))
        if text == knob.begins(begin):
            continue
        value = knob.read(text) if text else None
        if knob.place == "slo":
            limits[knob.at] = text
        elif text:
            asked = _put(asked, knob, value)
    said = [f"{metric}={value}ms" for metric, value in limits.items() if value]
    return replace(asked, slo=",".join(said) or None)


def values_of(begin: PageStart, state: Mapping[str, str]) -> dict[str, str]:
    """Return every knob's value in a state, as text."""
    return {name: state.get(name, each.begins(begin)) for name, each in knobs_of(begin).items()}


def at_fault(message: str) -> str:
    """Return the name of the knob that a fault is about, "" where it is about none of them."""
    place = message.partition(":")[0].strip()
    if place.startswith((SHARE, "--shares ")):
        return f"{SHARE}{place.removeprefix('--shares ').removeprefix(SHARE)}"
    key = place.partition(" ")[0]  # engine.max_num_batched_tokens 2048: …
    for each in KNOBS:
        if place == f"--slo {each.at}" or key in (each.name, each.at, f"--{each.at.replace('_', '-')}"):
            return each.name
    return ""


def _put(asked: AskedRun, knob: Knob, value: Any) -> AskedRun:  # noqa: ANN401 - of the knob's kind
    if knob.place == "workload":
        return replace(asked, workload=replace(asked.workload, **{knob.at: value}))
    if knob.place == "sessions":
        given: Any = str(value) if knob.kind == "integer" else value
        return replace(asked, sessions=replace(asked.sessions, **{knob.at: given}))
    if knob.place == "share":
        said = parse_shares(asked.workload.shares) if asked.workload.shares else {}
        text = ",".join(f"{name}={share:g}" for name, share in {**said, knob.at: value}.items())
        return replace(asked, workload=replace(asked.workload, shares=text))
    if knob.place == "key":
        others = tuple(each for each in asked.settings if each[0] != knob.at)
        return replace(asked, settings=(*others, (knob.at, _text(value))))
    return replace(asked, **{knob.at: value})


@lru_cache(maxsize=1)
def _keys() -> Mapping[str, Key]:
    return {each.path: each for each in all_keys()}


def _key(path: str) -> Key:
    return _keys()[path]
