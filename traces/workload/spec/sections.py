"""The sections of a workload specification below its top: distributions, arrivals, windows, clients.

Every key of the format is in a table, with the reader of its value and its line in the reference page.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, replace
from typing import Any, Final, get_args

from traces.workload.basics import ArrivalProcess, InvalidWorkload, require
from traces.workload.lengths import (
    Constant,
    Distribution,
    Empirical,
    Exponential,
    Gaussian,
    Lengths,
    Lognormal,
    ParetoLognormal,
    Recorded,
    Separate,
    TotalSplit,
    Uniform,
    Zipf,
    require_lengths,
)
from traces.workload.model import (
    CV_RANGE,
    ONE_ROUND,
    ActiveWindow,
    Arrival,
    Client,
    Modalities,
    NetworkPath,
    Parts,
    Rounds,
    SloClass,
    cv_of_shape,
)
from traces.workload.spec.fields import (
    Section,
    boolean,
    integer,
    key,
    list_of,
    not_negative,
    number,
    one_of,
    read_section,
    shown,
    text,
    within,
)
from traces.workload.spec.length_files import FromFile, LengthFiles
from traces.workload.spec.think_time import think_time

DEFAULT_PREFIX_LENGTH: Final = 50
"""Tokens of a prefix group without a length in any of its clients (BLIS's default)."""

V1_SLO_CLASSES: Final = {"realtime": "critical", "interactive": "standard"}
"""Version 1's names of two of the classes."""

DISTRIBUTIONS: Final[dict[str, type[Any]]] = {
    "gaussian": Gaussian,
    "exponential": Exponential,
    "lognormal": Lognormal,
    "pareto_lognormal": ParetoLognormal,
    "constant": Constant,
    "uniform": Uniform,
    "zipf": Zipf,
    "empirical": Empirical,
}


def _lengths_or_file(value: object) -> Distribution | FromFile:
    given = read_section(value, DISTRIBUTION)
    if "file" not in given:
        return _lengths_distribution(value)
    kind = given["type"]
    require(kind == "empirical", f"file: cannot be combined with type {kind}, expected type empirical")
    require("params" not in given, "file: cannot be combined with params")
    return FromFile(path=given["file"])


def _distribution(value: object) -> Distribution:
    given = read_section(value, DISTRIBUTION)
    require("file" not in given, "file: got one, expected it in a client's input and output_distribution")
    cls = DISTRIBUTIONS[given["type"]]
    params = given.get("params", {})
    with within("params"):
        return _of_class(cls, params)


def _lengths_distribution(value: object) -> Distribution:
    """Return a distribution of lengths, none of which is 0."""
    distribution = _distribution(value)
    with within("params"):
        return require_lengths(distribution)


def _of_class(cls: type[Any], params: Mapping[Any, Any]) -> Distribution:
    if cls is Empirical:
        return _empirical(params)
    distribution: Distribution = cls(**read_section(params, params_of(cls)))
    return distribution


def _empirical(params: Mapping[Any, Any]) -> Empirical:
    pairs = {}
    for name, weight in params.items():
        with within(str(name)):
            token = int(name) if isinstance(name, str) and name.isdecimal() else name
            pairs[integer(token)] = number(weight)
    ordered = sorted(pairs)
    return Empirical(tokens=tuple(ordered), weights=tuple(pairs[token] for token in ordered))


def _mapping(value: object) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise InvalidWorkload(f"got {shown(value)}, expected a mapping")
    return value


def params_of(cls: type[Any]) -> Section:
    """Return the keys of a distribution's params: its class's fields, those without a default required."""
    section = {}
    for field in fields(cls):
        whole = str(field.type).startswith("int")
        read, kind = (integer, "an integer") if whole else (number, "a number")
        section[field.name] = key(read, kind, "", required=field.default is MISSING)
    return section


def _arrival(value: object) -> Arrival:
    given = read_section(value, ARRIVAL)
    process: ArrivalProcess = given["process"]
    cv: float | None = given.get("cv")
    shape: float | None = given.get("shape")
    scale: float | None = given.get("scale")
    require(scale is None or shape is not None, "scale: needs shape (or give cv alone)")
    require(scale is None or 0 < scale < math.inf, f"scale: got {scale}, expected µs > 0")
    if process in ("poisson", "constant"):
        fixed = 1.0 if process == "poisson" else 0.0
        require(cv is None or cv == fixed, f"cv: got {cv}, expected {fixed:g} or none for process {process}")
        require(shape is None, f"shape: got {shape}, expected none for process {process}")
        return Arrival(process=process, cv=fixed)
    require(cv is None or shape is None, "cv: cannot be combined with shape")
    rate = None
    if shape is not None:
        cv = _checked_cv_of_shape(process, shape)
        if scale is not None:
            mean_us = scale * (shape if process == "gamma" else math.gamma(1 + 1 / shape))
            rate = 1e6 / mean_us
    if cv is None:
        raise InvalidWorkload(f"cv: got none, expected one for process {process}")
    return Arrival(process=process, cv=cv, rate_per_s=rate)


def _checked_cv_of_shape(process: ArrivalProcess, shape: float) -> float:
    require(shape > 0, f"shape: got {shape:g}, expected a number > 0")
    cv = cv_of_shape(process, shape)
    low, high = CV_RANGE
    expected = f"a {process} shape whose coefficient of variation is in [{low:g}, {high:g}]"
    require(low <= cv <= high, f"shape: got {shape:g}, expected {expected}")
    return cv


def _window(value: object) -> ActiveWindow:
    given = read_section(value, WINDOW)
    renamed = {WINDOW_FIELDS.get(name, name): item for name, item in given.items()}
    return ActiveWindow(**renamed)


def _lifecycle(value: object) -> tuple[ActiveWindow, ...]:
    windows: tuple[ActiveWindow, ...] = read_section(value, LIFECYCLE).get("windows", ())
    return windows


def _growth(value: object) -> bool:
    return bool(one_of("accumulate", "none", "")(value) == "accumulate")


def _rounds(value: object) -> Rounds:
    given = read_section(value, MULTI_TURN)
    pause = given.get("think_time_us", 0)
    drawn = not isinstance(pause, int)
    return Rounds(
        number=given["max_rounds"],
        think_time_us=0 if drawn else pause,
        think_time=pause if drawn else None,
        accumulate=given.get("context_growth", False),
        once=given.get("single_session", False),
    )


def _reasoning(value: object) -> Mapping[str, Any]:
    return read_section(value, REASONING)


def _network(value: object) -> NetworkPath:
    given = read_section(value, NETWORK)
    rtt, bandwidth = given.get("rtt_ms", 0.0), given.get("bandwidth_mbps", 0.0)
    for name, amount in (("rtt_ms", rtt), ("bandwidth_mbps", bandwidth)):
        require(0 <= amount < math.inf, f"{name}: got {amount:g}, expected a finite number >= 0")
    return NetworkPath(rtt_us=round(rtt * 1000), bandwidth_mbps=bandwidth or None)


def _multimodal(value: object) -> Modalities:
    given = read_section(value, MULTIMODAL)
    parts: dict[str, Parts | None] = {}
    for name in ("image", "audio", "video"):
        tokens, count = given.get(f"{name}_distribution"), given.get(f"{name}_count_distribution")
        require(tokens is None or count is not None, f"{name}_distribution: needs {name}_count_distribution")
        require(count is None or tokens is not None, f"{name}_count_distribution: needs {name}_distribution")
        parts[name] = None if tokens is None or count is None else Parts(count=count, tokens=tokens)
    return Modalities(text=given.get("text_distribution"), **parts)


def _slo_class(value: object) -> str:
    name = text(value)
    return str(one_of(*get_args(SloClass))(V1_SLO_CLASSES.get(name, name)))


DISTRIBUTION: Final[Section] = {
    "type": key(one_of(*DISTRIBUTIONS), " / ".join(DISTRIBUTIONS), "Family.", required=True),
    "params": key(_mapping, "mapping", "Its parameters, see below."),
    "file": key(
        text,
        "path",
        "Of type empirical, in place of params: a trace (formats as for --trace) whose prompts or outputs are "
        "drawn, as they were served, or a JSON file of token counts and weights. Where both distributions of a "
        "client name one trace, whole requests are drawn: sharing, class, tenant and the rest of a row stay "
        "together, and what the client says itself stands. Counted from the specification's folder.",
    ),
}

ARRIVAL: Final[Section] = {
    "process": key(
        one_of(*get_args(ArrivalProcess)),
        " / ".join(get_args(ArrivalProcess)),
        "Family of the gaps.",
        required=True,
    ),
    "cv": key(
        number, "number", "Coefficient of variation of the gaps, for gamma and weibull: above 1 in bursts."
    ),
    "shape": key(number, "number", "The family's shape, in place of cv."),
    "scale": key(
        number,
        "µs > 0",
        "With shape: the family's scale, so that the client sends at a rate of its own, whatever its share.",
    ),
}

WINDOW_FIELDS: Final = {
    "trace_rate": "trace_rate_per_s",
    "input_distribution": "prompt",
    "output_distribution": "output",
}

WINDOW: Final[Section] = {
    "start_us": key(not_negative, "µs", "Begin of the activity, from the run's start.", required=True),
    "end_us": key(not_negative, "µs", "Its end.", required=True),
    "trace_rate": key(
        number,
        "requests/s",
        "Weighs the client against the others then active, in place of rate_fraction; where aggregate_rate "
        "is 0: its rate. In all windows of a specification or in none.",
    ),
    "arrival": key(_arrival, "arrival", "In place of the client's."),
    "input_distribution": key(_lengths_distribution, "distribution", "In place of the client's."),
    "output_distribution": key(_lengths_distribution, "distribution", "In place of the client's."),
}

LIFECYCLE: Final[Section] = {
    "windows": key(list_of(_window), "list", "When the client is active, see below; they must not overlap.")
}

MULTI_TURN: Final[Section] = {
    "max_rounds": key(integer, "integer >= 1", "Rounds of every session.", required=True),
    "think_time_us": key(
        think_time,
        "µs, or text",
        "Pause between an answer and the next round: µs, or what it is drawn from as BLIS spells it, in seconds: "
        "lognormal:mu=1,sigma=0.5,min=0.5,max=60, constant:value=500ms. Default 0.",
    ),
    "context_growth": key(
        _growth,
        "accumulate / none",
        "Whether a prompt is all that was said before, answers included, and input_distribution more. "
        "Default none.",
    ),
    "single_session": key(
        boolean, "true / false", "Whether the client has one session in all. Default false."
    ),
}

NETWORK: Final[Section] = {
    "rtt_ms": key(number, "ms", "Round trip. Default 0."),
    "bandwidth_mbps": key(
        number, "Mbit/s", "Of prompt and answer at 4 bytes a token; 0: no limit (the default)."
    ),
}

MULTIMODAL: Final[Section] = {
    "text_distribution": key(
        _distribution, "distribution", "Text tokens of a prompt. Default: input_distribution."
    ),
    **{
        name: item
        for kind, plural in (("image", "images"), ("audio", "clips"), ("video", "videos"))
        for name, item in (
            (f"{kind}_distribution", key(_distribution, "distribution", f"Tokens of each of its {plural}.")),
            (f"{kind}_count_distribution", key(_distribution, "distribution", f"How many {plural} it has.")),
        )
    },
}

REASONING: Final[Section] = {
    "multi_turn": key(_rounds, "mapping", "The rounds, see below."),
    "reason_ratio_distribution": key(
        _distribution, "distribution", "How much of an answer is reasoning, in per cent: 0 to 100."
    ),
}

# ── clients

SHARED: Final[Section] = {
    "tenant_id": key(text, "text", "Tenant the requests are accounted to."),
    "slo_class": key(_slo_class, " / ".join(get_args(SloClass)), "Service class."),
    "priority": key(
        integer,
        "integer",
        "vtwin's own: vLLM's priority of each request, lower is more urgent. Default: by slo_class, "
        "where the policy goes by priorities.",
    ),
    "model": key(text, "text", "Model asked for; absent: the run's."),
    "adapter": key(text, "text", "LoRA adapter asked for."),
    "rate_fraction": key(
        number,
        "number > 0",
        "Share of aggregate_rate, in proportion to the fractions of those active at the time. Default 1.",
    ),
    "arrival": key(_arrival, "arrival", "The gaps between requests. Default Poisson."),
    "input_distribution": key(_lengths_or_file, "distribution", "Prompt lengths without the shared prefix."),
    "output_distribution": key(_lengths_or_file, "distribution", "Output lengths."),
    "total_distribution": key(
        _lengths_distribution,
        "distribution",
        "vtwin's own: total lengths, in place of the two above, split by prefill_to_decode_ratio.",
    ),
    "prefill_to_decode_ratio": key(
        number, "number > 0", "vtwin's own: output = ceil(total / (1 + ratio)), the rest is prompt."
    ),
    "prefix_group": key(text, "text", "Requests of one group share their leading tokens."),
    "prefix_length": key(
        not_negative,
        "tokens",
        "How many, before the prompt's own. Default: that of the group's first client with one, else 50.",
    ),
    "streaming": key(boolean, "true / false", "Whether the answer is streamed. Default true."),
    "timeout": key(
        not_negative, "µs", "The client gives up this long after the arrival; 0: never (the default)."
    ),
    "slo_target_us": key(not_negative, "µs", "Target for the time to the first token."),
    "network": key(
        _network, "mapping", "The way to the server, see below: a simulated client's times include it."
    ),
    "multimodal": key(
        _multimodal,
        "mapping",
        "Prompts of text, images, audio and video, see below, in place of input_distribution.",
    ),
    "reasoning": key(
        _reasoning,
        "mapping",
        "Sessions of several rounds (rate_fraction is then of sessions), and the share of reasoning.",
    ),
    "guided_frac": key(
        number, "fraction", "vtwin's own: share of requests whose answers are held to a grammar. Default 0."
    ),
    "closed_loop": key(
        boolean,
        "true / false",
        "Of sessions: whether a think time begins with the answer, or rounds have times of their own, a think "
        "time apart. Either way a round waits for the answer to the one before. Default true.",
    ),
}

CLIENT: Final[Section] = {
    "id": key(text, "text", "Name, each once; its random streams bear it. Default client-0, client-1 …"),
    **SHARED,
    "concurrency": key(
        not_negative,
        "integer",
        "A closed loop with this many users, in place of rate_fraction and arrival; for one client alone.",
    ),
    "think_time_us": key(not_negative, "µs", "Their pause between answer and next request. Default 0."),
    "lifecycle": key(_lifecycle, "mapping", "When the client is active. Default always."),
}


def read_client(value: object) -> dict[str, Any]:
    """One entry of ``clients``: read and checked, for ``build_client``."""
    given = read_section(value, CLIENT)
    if given.get("concurrency"):
        for name in ("rate_fraction", "arrival", "lifecycle"):
            require(name not in given, f"{name}: cannot be combined with concurrency")
    elif "think_time_us" in given:
        raise InvalidWorkload("think_time_us: needs concurrency")
    given["windows"] = given.pop("lifecycle", ())
    return given


def _lengths(given: dict[str, Any], files: LengthFiles) -> Lengths:
    prompt, output = given.pop("input_distribution", None), given.pop("output_distribution", None)
    if prompt is None and given.get("modalities") is not None:
        prompt = given["modalities"].text or Constant(value=1)
    total, ratio = given.pop("total_distribution", None), given.pop("prefill_to_decode_ratio", None)
    if total is None and ratio is None:
        require(prompt is not None, "input_distribution: got none, expected a distribution")
        require(output is not None, "output_distribution: got none, expected a distribution")
        return files.lengths(prompt, output)
    require(total is not None, "prefill_to_decode_ratio: needs total_distribution")
    require(prompt is None and output is None, "total_distribution: cannot be combined with input_distribution or "
            "output_distribution")  # fmt: skip
    require(ratio is not None, "total_distribution: needs prefill_to_decode_ratio")
    return TotalSplit(total=total, prefill_to_decode_ratio=ratio)


def build_client(
    given: Mapping[str, Any], *, name: str, prefixes: Mapping[str, int], files: LengthFiles
) -> Client:
    """Return the client that an entry describes; ``name`` is its id unless it has one."""
    values = {field: item for field, item in given.items() if field not in ("concurrency", "think_time_us")}
    timeout = values.pop("timeout", 0)
    reasoning: Mapping[str, Any] = values.pop("reasoning", {})
    rounds: Rounds = reasoning.get("multi_turn", ONE_ROUND)
    values["reason_percent"] = reasoning.get("reason_ratio_distribution")
    values["modalities"] = values.pop("multimodal", None)
    if "closed_loop" in values:
        require(rounds.number > 1, "closed_loop: needs reasoning.multi_turn")
    waits = values.pop("closed_loop", True)
    group = values.get("prefix_group")
    if group is not None:
        values.setdefault("prefix_length", prefixes[group])
    windows: tuple[ActiveWindow, ...] = values["windows"]
    lengths = _lengths(values, files)
    if not isinstance(lengths, Separate):
        drawn = any(window.prompt or window.output for window in windows)
        source = "total_distribution" if isinstance(lengths, TotalSplit) else "whole requests of a file"
        require(not drawn, f"lifecycle: lengths in a window cannot be combined with {source}")
    if isinstance(lengths, Recorded):
        for other in ("reasoning", "multimodal", "guided_frac"):
            require(other not in given, f"{other}: cannot be combined with whole requests of a file")
        shares = lengths.shares_prefixes and group is not None
        require(not shares, "prefix_group: cannot be combined with requests that have their own")
    return Client(
        **{"id": name, **values},
        lengths=lengths,
        timeout_us=timeout or None,
        rounds=replace(rounds, waits=waits),
    )


def prefix_lengths(members: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Each prefix group's length for clients without one of their own."""
    lengths: dict[str, int] = {}
    members = tuple(members)
    for given in members:
        if "prefix_group" in given and given.get("prefix_length"):
            lengths.setdefault(given["prefix_group"], given["prefix_length"])
    groups = {given["prefix_group"] for given in members if "prefix_group" in given}
    return {group: lengths.get(group, DEFAULT_PREFIX_LENGTH) for group in groups}
