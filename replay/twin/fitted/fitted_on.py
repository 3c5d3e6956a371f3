"""What a twin was fitted on, so that its file can travel: ``latency.fitted_on``.

The server (model, GPU, flags, vLLM's version), each load with the twin's errors on it, and how far the server differs
from itself. ``latency.fitted_range`` has the loads' outer ends, ``latency.held_out`` the errors of all that was unseen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from lazy_dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from replay.twin.fitted.held_out import ERRORS
from replay.twin.keys.fitted_on_keys import SWITCHES, WHOLE, WORDS
from replay.twin.keys.key import Key, Kind, keys_held_by, keys_of_fields
from replay.twin.keys.latency_keys import LATENCY
from replay.twin.keys.read_keys import values_of

if TYPE_CHECKING:
    from traces.strict.section import Section

KEY = "fitted_on"
ROLES = ("fitted", "held out", "half")
"""``half``: the first half of its requests was fitted, and the second held out."""
OF_LOAD = ("rate_per_s", "concurrency", "prompt_tokens", "output_tokens")

Flag = int | bool | str


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedLoad:
    """One observed run, and the twin's mean error per request on it, fractions; None where that is not known.

    ``role``: one of ROLES. ``rate_per_s``: None where no rate was sent. ``concurrency``: requests in flight, mean over
    time. ``prompt_tokens``, ``output_tokens``: means.
    """

    name: str
    role: str = "fitted"
    num_requests: int = 0
    rate_per_s: float | None = None
    concurrency: float | None = None
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    ttft: float | None = None
    tpot: float | None = None
    e2e: float | None = None

    def line(self) -> str:
        """Return it as an item of a list in TWIN.yaml."""
        numbers = {name: getattr(self, name) for name in (*OF_LOAD, *ERRORS)}
        parts = [
            f"name: {json.dumps(self.name)}",
            f"role: {self.role}",
            f"num_requests: {self.num_requests}",
            *(f"{name}: {value!r}" for name, value in numbers.items() if value is not None),
        ]
        return f"{{{', '.join(parts)}}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedOn:
    """A server and its loads; None where nobody told. ``num_gpus``: of one engine, ``tp`` of them share each layer.

    ``noise``: the mean difference per request between two runs of one load, by ``ttft``, ``tpot``, ``e2e``, fractions.
    ``carried_from``: the server whose twin this one was made from with few requests of its own
    (``calibrate --from``), in words.
    """

    model: str | None = None
    gpu: str | None = None
    num_gpus: int | None = None
    tp: int | None = None
    vllm_version: str | None = None
    flags: Mapping[str, Flag] = field(default_factory=dict)
    noise: Mapping[str, float] = field(default_factory=dict)
    loads: tuple[FittedLoad, ...] = ()
    carried_from: str | None = None

    def lines(self) -> list[str]:
        """Return it as lines of TWIN.yaml's latency section."""
        known = {name: getattr(self, name) for name in (*_TEXTS, *_NUMBERS)}
        lines = [f"    {name}: {json.dumps(value)}" for name, value in known.items() if value is not None]
        for name, values in (("flags", self.flags), ("noise", self.noise)):
            if values:
                shown = ", ".join(f"{key}: {json.dumps(value)}" for key, value in values.items())
                lines.append(f"    {name}: {{{shown}}}")
        if self.loads:
            lines += ["    loads:", *(f"      - {each.line()}" for each in self.loads)]
        return [f"  {KEY}:", *lines] if lines else []

    @property
    def server(self) -> str:
        """The server in a few words."""
        parts = [self.model or "a model that nobody named", f"on {self.gpu or 'a GPU that nobody named'}"]
        parts += [f"tp {self.tp}"] if (self.tp or 1) > 1 else []
        parts += [f"vLLM {self.vllm_version}" if self.vllm_version else "a version of vLLM that nobody told"]
        return ", ".join([" ".join(parts[:2]), *parts[2:]])


_TEXTS = ("model", "gpu", "vllm_version", "carried_from")
_NUMBERS = ("num_gpus", "tp")
_KINDS: Mapping[Kind, tuple[str, ...]] = {"integer": WHOLE, "boolean": SWITCHES, "text": WORDS}
_FLAG_KEYS = tuple(
    Key(path=name, kind=kind, default="", meaning="") for kind in _KINDS for name in _KINDS[kind]
)
_ERROR_KEYS = tuple(Key(path=name, kind="number", default="", meaning="") for name in ERRORS)


def read_fitted_on(latency: Section | None) -> FittedOn | None:
    """Return ``latency.fitted_on``, None where there is none; raises ConfigError on what is not of the right kind."""
    section = None if latency is None else latency.section(KEY)
    if section is None:
        return None
    section.refuse_unknown([each.name for each in fields(FittedOn)])
    return FittedOn(
        **values_of(section, keys_held_by("latency", LATENCY, FittedOn, KEY)),
        flags=_given(section.section("flags"), _FLAG_KEYS),
        noise=_given(section.section("noise"), _ERROR_KEYS),
        loads=tuple(_load(each) for each in section.sections("loads")),
    )


def _given(section: Section | None, keys: tuple[Key, ...]) -> dict[str, Any]:
    if section is None:
        return {}
    section.refuse_unknown([key.name for key in keys])
    return values_of(section, keys)


def _load(section: Section) -> FittedLoad:
    keys = keys_of_fields("", FittedLoad)
    given = _given(section, tuple(replace(key, choices=ROLES) if key.name == "role" else key for key in keys))
    if "name" not in given:
        section.fail("name", got="nothing", expected="the run's name")
    return FittedLoad(**given)
