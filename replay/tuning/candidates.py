"""The candidates of ``tune``: every combination of some values of a few settings with which a server can start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from replay.twin.config_read import load_config
from replay.twin.keys.overlay import Setting, parse_settings, variants_of
from replay.twin.server.startup import startup_faults
from replay.twin.twin_config import TwinConfig
from replay.twins import check_starts
from traces import ConfigError

SEATS = "engine.max_num_seqs"
TOKENS = "engine.max_num_batched_tokens"
CHUNKED = "engine.enable_chunked_prefill"
TP = "hardware.tp"
AROUND = (0.25, 0.5, 1, 2, 4)
"""Multiples of the server's own limits that are tried by default."""
LEAST_TOKENS = 256
"""No smaller token budget is tried unless given: every prompt would take many steps."""
MOST = 2000
"""More combinations than this are refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A server that could be started. ``settings``: those that differ from the file; none for the file's own server."""

    settings: tuple[Setting, ...]
    twin: TwinConfig

    @property
    def num_gpus(self) -> int | None:
        """How many GPUs all its servers take together; None where the file names no hardware."""
        return sum(self.twin.num_gpus.values()) or None

    @property
    def name(self) -> str:
        """Return what differs, in a line."""
        return ", ".join(each.short for each in self.settings) or "as it is"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """All servers to try, the file's own first, and why each of the other combinations cannot start.

    ``unanswered``: combinations that are not tried, since the twin does not know what they would change, and why.
    """

    tried: tuple[Candidate, ...]
    impossible: tuple[tuple[str, str], ...]
    unanswered: tuple[tuple[str, str], ...] = ()


def axes_of(own: TwinConfig, asked: Sequence[str]) -> list[tuple[Setting, ...]]:
    """Return the values to try of each setting: those given as ``KEY=V1,V2``, and vLLM's own three limits.

    Seats and token budget are tried at 1/4 to 4 times the server's own, chunked prefill on and off. Raises ConfigError.
    """
    found = parse_settings(asked)
    given = {axis[0].key for axis in found}
    engine = own.engine
    usual = {
        SEATS: sorted({max(1, round(engine.max_num_seqs * factor)) for factor in AROUND}),
        TOKENS: sorted(
            {
                max(LEAST_TOKENS, engine.max_num_seqs, round(engine.max_num_batched_tokens * factor))
                for factor in AROUND
            }
        ),
    }
    for key, values in usual.items():
        if key not in given:
            found.append(tuple(Setting(key, str(value)) for value in values))
    if CHUNKED not in given:
        found.append((Setting(CHUNKED, "true"), Setting(CHUNKED, "false")))
    return found


def candidates_of(
    config: Path, defaults: Path | None, asked: Sequence[str], *, anyway: bool = False
) -> Candidates:
    """Return the file's own server and every combination of the values that vLLM would start with.

    ``asked``: ``KEY=V1,V2`` texts, as after ``--set``; a single value is set in all, the file's own server included.
    ``anyway``: servers that vLLM would refuse to start are candidates, too. Raises
    ConfigError where the file itself is wrong, or nothing is left to compare.
    """
    settings = parse_settings(asked)
    fixed = tuple(axis[0] for axis in settings if len(axis) == 1)
    own = load_config(config, defaults=defaults, settings=fixed)
    if not anyway:
        check_starts(own)
    axes = [axis for axis in axes_of(own, asked) if axis[0] not in fixed]
    combinations = variants_of(axes)
    if len(combinations) > MOST:
        raise ConfigError(f"--set: got {len(combinations):,} combinations, expected at most {MOST:,}")
    known = {fault.partition(" ")[0] for fault in startup_faults(own.engine)}
    tried, impossible, unanswered = [Candidate(settings=(), twin=own)], [], []
    for settings_of_one in combinations:
        name = ", ".join(each.short for each in settings_of_one)
        try:
            twin = load_config(config, defaults=defaults, settings=(*fixed, *settings_of_one))
        except ConfigError as error:
            impossible.append((name, str(error)))
            continue
        faults = () if anyway else startup_faults(twin.engine)
        if new := [fault for fault in faults if fault.partition(" ")[0] not in known]:
            impossible.append((name, new[0]))
        elif told := [each for each in twin.unanswered if each.key not in own.unanswered_keys]:
            unanswered.append((name, told[0].note))
        elif not _is_same_server(twin, own):
            tried.append(Candidate(settings=_changes(settings_of_one, own=own, twin=twin), twin=twin))
    if len(tried) == 1:
        reason = next((each[1] for each in (*unanswered, *impossible)), "")
        why = f" ({reason})" if reason else ""
        raise ConfigError(f"--set: got no server but the file's own, expected values to compare it with{why}")
    return Candidates(tried=tuple(tried), impossible=tuple(impossible), unanswered=tuple(unanswered))


def _is_same_server(twin: TwinConfig, own: TwinConfig) -> bool:
    return twin.engine == own.engine and twin.cluster == own.cluster and twin.num_gpus == own.num_gpus


def _changes(settings: Sequence[Setting], *, own: TwinConfig, twin: TwinConfig) -> tuple[Setting, ...]:
    """Return the settings without those that the file's own server has as well."""
    return tuple(
        each
        for each in settings
        if not each.key.startswith("engine.")
        or getattr(own.engine, each.key.removeprefix("engine."), None)
        != getattr(twin.engine, each.key.removeprefix("engine."), object())
    )
