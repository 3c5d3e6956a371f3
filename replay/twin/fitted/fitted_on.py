"""What a twin was fitted on, so that its file can travel: ``latency.fitted_on``.

The server (model, GPU, flags, vLLM's version), each load with the twin's errors on it, and how far the server differs
from itself. ``latency.fitted_range`` has the loads' outer ends, ``latency.held_out`` the errors of all that was unseen.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from replay.twin.fitted.held_out import ERRORS
from replay.twin.keys.fitted_on_keys import FLAGS, SWITCHES, WHOLE

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


def read_fitted_on(latency: Section | None) -> FittedOn | None:
    """Return ``latency.fitted_on``, None where there is none; raises ConfigError on what is not of the right kind."""
    section = None if latency is None else latency.section(KEY)
    if section is None:
        return None
    section.refuse_unknown([each.name for each in fields(FittedOn)])
    return FittedOn(
        model=section.text("model"),
        gpu=section.text("gpu"),
        vllm_version=section.text("vllm_version"),
        carried_from=section.text("carried_from"),
        num_gpus=section.integer("num_gpus", least=1),
        tp=section.integer("tp", least=1),
        flags=_flags(section.section("flags")),
        noise=_errors(section.section("noise")),
        loads=tuple(_load(each) for each in section.sections("loads")),
    )


def _flags(section: Section | None) -> dict[str, Flag]:
    if section is None:
        return {}
    section.refuse_unknown(FLAGS)
    return dict(_flags_in(section))


def _flags_in(section: Section) -> Iterator[tuple[str, Flag]]:
    for name in FLAGS:
        value: Flag | None
        if name in WHOLE:
            value = section.integer(name, least=0)
        elif name in SWITCHES:
            value = section.boolean(name)
        else:
            value = section.text(name)
        if value is not None:
            yield name, value


def _errors(section: Section | None) -> dict[str, float]:
    if section is None:
        return {}
    section.refuse_unknown(ERRORS)
    found = {name: _number(section, name) for name in ERRORS}
    return {name: value for name, value in found.items() if value is not None}


def _load(section: Section) -> FittedLoad:
    section.refuse_unknown([each.name for each in fields(FittedLoad)])
    name = section.text("name")
    if name is None:
        section.fail("name", got="nothing", expected="the run's name")
    return FittedLoad(
        name=name,
        role=section.text("role", choices=ROLES) or ROLES[0],
        num_requests=section.integer("num_requests", least=0) or 0,
        **{key: _number(section, key) for key in (*OF_LOAD, *ERRORS)},
    )


def _number(section: Section, name: str) -> float | None:
    value = section.decimal(name, expected="a number >= 0")
    return None if value is None else float(value)
