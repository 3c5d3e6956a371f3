"""Speculative decoding as a server was configured, or as it was measured, in the engine's settings."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from itertools import accumulate
from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from replay.model.hf_config import read_model_config
from replay.twin.kv_cache.groups import DRAFT_MODEL, HEAD_METHODS, METHOD, MTP
from replay.twin.start.json_flags import no_json
from replay.twin.start.model_and_gpu import config_at_hand
from traces import ConfigError
from traces.strict.secrets import redact_url

if TYPE_CHECKING:
    from traces import SpecDecode

ASSUMED_ACCEPTANCE: Final = 0.7
"""The chance of each draft whose predecessors were accepted, where none is given: a placeholder, and named so."""

WITHOUT_LOOKAHEAD: Final = ("ngram", "ngram_gpu", "[ngram]", "suffix", "medusa", "mlp_speculator")
"""Methods that draft without KV slots of the target's cache (vllm 0.32.0 v1/core/sched/scheduler.py:Scheduler: only
EAGLE, MTP and draft models have num_lookahead_tokens)."""

MOST_SHOWN: Final = 200
"""Characters of a value in a message."""
MOST_NAME: Final = 40
"""Characters of a setting's name."""

READ_HIDDEN_STATES: Final = ("eagle", "eagle3", "mtp", "dflash", "dspark")
"""Methods whose prefix hits lose their last block (config/speculative.py:use_eagle_block_drop); so do ``…_mtp``, which
vLLM calls mtp."""

SYNCHRONOUS: Final = ("ngram", "[ngram]", "suffix", "medusa", "mlp_speculator", "custom_class")
"""Methods for which vLLM turns async scheduling off (config/vllm.py:VllmConfig.__post_init__)."""

KNOWN_METHODS: Final = tuple(
    dict.fromkeys(
        (*HEAD_METHODS, *READ_HIDDEN_STATES, *WITHOUT_LOOKAHEAD, *SYNCHRONOUS, "extract_hidden_states")
    )
)

LEGACY_HASHES: Final = "disable_lookahead_block_hashes"

NAMED: Final = (("eagle-", "eagle"), ("eagle3", "eagle3"), ("dflash", "dflash"), ("dspark", "dspark"))
"""What a model's name has in it, and the method that vLLM takes for it."""

MODELLED: Final = (
    "method",
    "num_speculative_tokens",
    "rejection_sample_method",
    "synthetic_acceptance_rates",
    "synthetic_acceptance_length",
    "disable_eagle_block_drop",
    LEGACY_HASHES,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """Settings of the engine, and lines to tell."""

    engine: Mapping[str, object]
    notes: tuple[str, ...]


def from_config(flag: str, value: str | None) -> Speculation:
    """Return the settings of ``--speculative-config JSON``. Raises ConfigError without JSON, or without a number."""
    try:
        given = json.loads(value or "")
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{flag}: {no_json(value)}") from error
    number = given.get("num_speculative_tokens") if isinstance(given, dict) else None
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ConfigError(
            f"{flag}: got JSON without num_speculative_tokens >= 1, expected "
            '{"method": …, "num_speculative_tokens": N, …} with N >= 1'
        )
    return _of_drafts(flag, given, number)


def _of_drafts(flag: str, given: Mapping[str, object], number: int) -> Speculation:
    """Return the settings of a --speculative-config that drafts ``number`` tokens."""
    method = _method(given)
    if method not in KNOWN_METHODS and not method.endswith("_mtp"):
        near = difflib.get_close_matches(method, KNOWN_METHODS, n=3, cutoff=0.0)
        raise ConfigError(
            f"{flag}: got method {method[:MOST_SHOWN]!r}, expected one that vLLM has (nearest: {', '.join(near)})"
        )
    engine: dict[str, object] = {
        "num_speculative_tokens": number,
        "num_lookahead_tokens": 0 if method in WITHOUT_LOOKAHEAD else number,
    }
    is_mtp = method == MTP or method.endswith("_mtp")
    if is_mtp:
        engine[METHOD] = MTP
    named = given.get("model")
    file = config_at_hand(named) if method in HEAD_METHODS and isinstance(named, str) else None
    if method in HEAD_METHODS:
        engine[METHOD] = method
    if file is not None:
        engine[DRAFT_MODEL] = file
    reads_hidden_states = method in READ_HIDDEN_STATES or is_mtp
    if reads_hidden_states and not given.get("disable_eagle_block_drop"):
        engine["use_eagle"] = True
    notes = _told(flag, given, is_read=file is not None or is_mtp)
    if method in SYNCHRONOUS:
        engine["async_scheduling"] = False
        notes.append(f"async_scheduling: false, as vLLM sets it with {method} drafts")
    rates = _synthetic_rates(flag, given, number)
    if rates is None:
        rates = [ASSUMED_ACCEPTANCE]
        notes.append(
            f"synthetic_acceptance_rates: {ASSUMED_ACCEPTANCE} for each draft is assumed, not measured; the header of "
            "an observed trace has it (--from-trace), by vLLM's counters vllm:spec_decode_*"
        )
    engine["synthetic_acceptance_rates"] = rates
    return Speculation(engine=engine, notes=tuple(notes))


def _told(flag: str, given: Mapping[str, object], *, is_read: bool) -> list[str]:
    """Return the notes on what is not simulated; ``is_read``: the drafting model's config.json is available."""
    notes = [
        f"{flag}: {_shown(name, item)} is in the time that drafting takes, if at all (engine.draft_us)"
        for name, item in given.items()
        if name not in MODELLED and not (name == "model" and is_read)
    ]
    if given.get(LEGACY_HASHES):
        notes.append(
            f"{flag}: {LEGACY_HASHES} is not simulated; with vllm_version 0.33 hits lose no block to drafts "
            "all the same"
        )
    return notes


def _shown(name: str, item: object) -> str:
    """Return a setting as a note quotes it: numbers and the drafting model's name; any other text may be a key."""
    is_told = isinstance(item, int | float) or item is None or (name == "model" and isinstance(item, str))
    shown = f" {redact_url(json.dumps(item))}" if is_told else ""
    return f"{name[:MOST_NAME]}{shown[:MOST_SHOWN]}"


def _method(given: Mapping[str, object]) -> str:
    """Return the method as vLLM 0.32.0 finds it (config/speculative.py: __post_init__).

    A model that drafts goes by its name, and then by what it is: one with MTP layers drafts by them.
    """
    said, named = str(given.get("method") or "draft_model").lower(), given.get("model")
    name = str(named or "").lower()
    if not given.get("method") and name in WITHOUT_LOOKAHEAD:
        return name
    if said != "draft_model":
        return said
    usual = MTP if isinstance(named, str) and _has_mtp_layers(named) else "draft_model"
    return next((each for mark, each in NAMED if mark in name), usual)


def _has_mtp_layers(model: str) -> bool:
    """Return whether a model's config.json, if available, has layers that draft for it."""
    file = config_at_hand(model)
    try:
        return file is not None and read_model_config(file).mtp is not None
    except ConfigError:  # a file that cannot be read is refused when the TWIN.yaml is read
        return False


def _synthetic_rates(flag: str, given: Mapping[str, object], number: int) -> list[float] | None:
    """Return the acceptance rates that the server was configured with, None if real drafts decide."""
    if given.get("rejection_sample_method") != "synthetic":
        return None
    rates, length = given.get("synthetic_acceptance_rates"), given.get("synthetic_acceptance_length")
    if isinstance(rates, list) and all(isinstance(rate, int | float) for rate in rates):
        return [float(rate) for rate in rates]
    if isinstance(length, int | float) and 1 <= length <= number + 1:
        return [min(max(float(length) - 1 - place, 0.0), 1.0) for place in range(number)]
    raise ConfigError(
        f"{flag}: got rejection_sample_method synthetic without rates, expected synthetic_acceptance_rates or "
        f"synthetic_acceptance_length in [1, {number + 1}]"
    )


def from_counters(measured: SpecDecode) -> Speculation:
    """Return the settings that accept as often as a measured server did, position by position.

    Accepted fractions fall from position to position; a rise due to rounding or to a counter read in mid-step is cut.
    """
    by_position = list(measured.accepted_frac_per_position)
    drafts = measured.num_drafts
    number = len(by_position) or (round(measured.num_draft_tokens / drafts) if drafts else 0)
    if number < 1:
        return Speculation(engine={}, notes=())
    rates = list(accumulate(by_position, min)) if by_position else [_chance_of_each(measured, number)]
    shown = ", ".join(f"{rate:.3g}" for rate in rates)
    return Speculation(
        engine={
            "num_speculative_tokens": number,
            "num_lookahead_tokens": number,
            "synthetic_acceptance_rates": [min(max(round(rate, 6), 0.0), 1.0) for rate in rates],
        },
        notes=(
            f"synthetic_acceptance_rates: {shown}, by the server's counters vllm:spec_decode_* "
            f"({drafts:,} drafts of {number})",
            f"num_lookahead_tokens: {number} assumed, as for EAGLE, MTP and draft models; 0 for n-grams",
        ),
    )


def _chance_of_each(measured: SpecDecode, number: int) -> float:
    """Return the chance r of each draft whose predecessors were accepted that gives the mean: r + r² + … + r^k."""
    wanted = measured.num_accepted_tokens / measured.num_drafts
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        is_low = sum(middle**place for place in range(1, number + 1)) < wanted
        low, high = (middle, high) if is_low else (low, middle)
    return high
