"""The candidates of ``tune``: every combination of some values of a few settings with which a server can start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from lazy_dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from replay.capacity.assumed_seats import are_seats_assumed
from replay.capacity.value import price_of
from replay.console.twins import check_starts
from replay.twin.config_read import load_config
from replay.twin.keys.overlay import Setting, parse_settings, variants_of
from replay.twin.server.startup import startup_faults
from replay.twin.twin_config import TwinConfig
from traces import ConfigError

if TYPE_CHECKING:
    from replay.model.prices import ServerPrices

SEATS = "engine.max_num_seqs"
TOKENS = "engine.max_num_batched_tokens"
CHUNKED = "engine.enable_chunked_prefill"
TP = "hardware.tp"
AROUND = (0.25, 0.5, 1, 2, 4)
"""Multiples of the server's own limits that are tried by default."""
LEAST_TOKENS = 256
"""No smaller token budget is tried unless given: every prompt would take many steps."""
End = Literal["largest", "smallest"]
MOST = 2000
"""More combinations than this are refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A server that could be started.

    ``settings``: those that differ from the file; none for the file's own server, unless its seats are
    assumed. ``values``: of all that is varied.
    ``price_per_hour``: of all its servers, None without prices.
    """

    settings: tuple[Setting, ...]
    twin: TwinConfig
    values: Mapping[str, str] = field(default_factory=dict)
    price_per_hour: float | None = None

    @property
    def num_gpus(self) -> int | None:
        """How many GPUs all its servers take together; None where the file names no hardware."""
        return sum(self.twin.num_gpus.values()) or None

    @property
    def amount(self) -> float:
        """What its rate is divided by, where amounts differ: its price, or without prices the number of its GPUs."""
        return self.num_gpus or 1 if self.price_per_hour is None else self.price_per_hour

    @property
    def name(self) -> str:
        """Return what differs, in a line."""
        return ", ".join(each.short for each in self.settings) or "as it is"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """All servers to try, the file's own first, and why each of the other combinations cannot start.

    ``unanswered``: combinations that are not tried, since the twin does not know what they would change, and why.
    ``axes``: the values of each setting that is varied; ``usual``: those of them that are not the user's own.
    ``fixed``: settings of all of them.
    """

    tried: tuple[Candidate, ...]
    impossible: tuple[tuple[str, str], ...]
    unanswered: tuple[tuple[str, str], ...] = ()
    axes: tuple[tuple[Setting, ...], ...] = ()
    usual: tuple[str, ...] = ()
    fixed: tuple[Setting, ...] = ()


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
    config: Path,
    defaults: Path | None,
    asked: Sequence[str],
    *,
    anyway: bool = False,
    prices: ServerPrices | None = None,
    option: str = "--set",
) -> Candidates:
    """Return the file's own server and every combination of the values that vLLM would start with.

    ``asked``: ``KEY=V1,V2`` texts, as after ``--set``; a single value is set in all, the file's own server included.
    ``anyway``: servers that vLLM would refuse to start are candidates, too. ``option``: named in an error. Raises
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
        raise ConfigError(f"{option}: got {len(combinations):,} combinations, expected at most {MOST:,}")
    found = _started(
        _Asked(config=config, defaults=defaults, fixed=fixed, anyway=anyway, prices=prices), own, combinations
    )
    if len(found.tried) == 1:
        reason = next((each[1] for each in (*found.unanswered, *found.impossible)), "")
        why = f" ({reason})" if reason else ""
        raise ConfigError(
            f"{option}: got no server but the file's own, expected values to compare it with{why}"
        )
    given = {axis[0].key for axis in settings}
    usual = tuple(key for key in (SEATS, TOKENS) if key not in given)
    return replace(found, axes=tuple(axes), usual=usual, fixed=fixed)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What every candidate is read from."""

    config: Path
    defaults: Path | None
    fixed: tuple[Setting, ...]
    anyway: bool
    prices: ServerPrices | None


def _started(
    asked: _Asked, own: TwinConfig, combinations: Sequence[Sequence[Setting]], *, with_own: bool = True
) -> Candidates:
    """Return the file's own server first, where wanted, and of the combinations those that vLLM would start."""
    known = {fault.partition(" ")[0] for fault in startup_faults(own.engine)}
    stated = (Setting(SEATS, str(own.engine.max_num_seqs)),) if are_seats_assumed(own) else ()
    first = Candidate(
        settings=stated, twin=own, values=_own_values(own), price_per_hour=price_of(own, asked.prices)
    )
    tried, impossible, unanswered = [first] if with_own else [], [], []
    for settings_of_one in combinations:
        name = ", ".join(each.short for each in settings_of_one)
        try:
            twin = load_config(
                asked.config, defaults=asked.defaults, settings=(*asked.fixed, *settings_of_one)
            )
        except ConfigError as error:
            impossible.append((name, str(error)))
            continue
        values = {each.key: each.value for each in settings_of_one}
        faults = () if asked.anyway else startup_faults(twin.engine)
        if new := [fault for fault in faults if fault.partition(" ")[0] not in known]:
            impossible.append((name, new[0]))
        elif told := [each for each in twin.unanswered if each.key not in own.unanswered_keys]:
            unanswered.append((name, told[0].note))
        elif _is_same_server(twin, own):
            tried[:1] = [replace(each, values={**each.values, **values}) for each in tried[:1]]
        else:
            changes = _changes(settings_of_one, own=own, twin=twin)
            price = price_of(twin, asked.prices)
            tried.append(Candidate(settings=changes, twin=twin, values=values, price_per_hour=price))
    return Candidates(tried=tuple(tried), impossible=tuple(impossible), unanswered=tuple(unanswered))


def _own_values(own: TwinConfig) -> dict[str, str]:
    engine = own.engine
    return {SEATS: str(engine.max_num_seqs), TOKENS: str(engine.max_num_batched_tokens)}


class Border:
    """The grid around a best server, which grows where that lies on its border.

    ``impossible``: servers beyond it that vLLM would not start, and why.
    """

    def __init__(
        self,
        candidates: Candidates,
        config: Path,
        defaults: Path | None = None,
        *,
        anyway: bool = False,
        prices: ServerPrices | None = None,
    ) -> None:
        """Begin with the candidates that there are. The others: as they were read."""
        self._own = candidates.tried[0].twin
        every = {axis[0].key: axis for axis in candidates.axes}
        self._axes = {key: [each.value for each in axis] for key, axis in every.items()}
        for key, value in candidates.tried[0].values.items():
            if key in self._axes and value not in self._axes[key]:
                self._axes[key].append(value)
        self._usual = candidates.usual
        self._asked = _Asked(
            config=config, defaults=defaults, fixed=candidates.fixed, anyway=anyway, prices=prices
        )
        self._refused: dict[tuple[str, str], str] = {}
        self.impossible: list[tuple[str, str]] = []

    def beyond(self, best: Candidate, alike: Sequence[Candidate] = ()) -> Sequence[Candidate]:
        """Return the servers just beyond the borders that the best, or one as good as it, lies on.

        Beyond the best one's border they have all values of the other settings, beyond the others' their own. None
        where no border is near, or where the values there are the user's.
        """
        found: list[Candidate] = []
        for key in self._usual:
            ends = {each: value for other in alike for each, value in self._further(key, other).items()}
            own = self._further(key, best)
            for end, value in {**ends, **own}.items():
                near = [each for each in alike if self._further(key, each).get(end) == value]
                combinations = self._slab(key, value) if end in own else self._lines(key, value, near)
                more = _started(self._asked, self._own, combinations, with_own=False)
                self.impossible += more.impossible
                found += more.tried
                if more.tried:
                    self._axes[key].append(value)
                else:
                    reasons = [reason for _, reason in (*more.impossible, *more.unanswered)]
                    self._refused[key, end] = reasons[0] if reasons else "the same server"
        return found

    def _slab(self, key: str, value: str) -> list[tuple[Setting, ...]]:
        """Return a value of a setting with every combination of the others."""
        rest = [
            tuple(Setting(other, each) for each in values)
            for other, values in self._axes.items()
            if other != key
        ]
        return [tuple(each) for each in variants_of([(Setting(key, value),), *rest])]

    def _lines(self, key: str, value: str, near: Sequence[Candidate]) -> list[tuple[Setting, ...]]:
        """Return servers with another value of one setting."""
        every = [
            tuple(Setting(*item) for item in {**each.values, key: value}.items() if item[0] in self._axes)
            for each in near
        ]
        return list(dict.fromkeys(every))

    def _further(self, key: str, best: Candidate) -> dict[End, str]:
        """Return the values beyond those of a setting: twice the largest, or half the smallest."""
        least = LEAST_TOKENS if key == TOKENS else 1
        values = [int(each) for each in self._axes.get(key, [])]
        here, found = int(best.values.get(key, 0)), dict[End, str]()
        if values and here == max(values) and (key, "largest") not in self._refused:
            found["largest"] = str(2 * here)
        if values and here == min(values) and here > least and (key, "smallest") not in self._refused:
            found["smallest"] = str(max(least, here // 2))
        return found

    def of(self, best: Candidate) -> list[BorderValue]:
        """Return the settings whose largest, or smallest, value tried is the best server's."""
        found = []
        for key, values in self._axes.items():
            numbers = sorted({number for each in values if (number := _number(each)) is not None})
            here = _number(best.values.get(key, ""))
            if len(numbers) < 2 or here not in (numbers[0], numbers[-1]):
                continue
            end: End = "largest" if here == numbers[-1] else "smallest"
            if end == "smallest" and here == (LEAST_TOKENS if key == TOKENS else 1) and key in self._usual:
                continue
            why = self._refused.get((key, end))
            found.append(BorderValue(key=key, value=best.values[key], end=end, refused=why))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class BorderValue:
    """A best server's setting that lies at the end of the values tried; ``refused``: why none beyond it can be."""

    key: str
    value: str
    end: End
    refused: str | None = None

    @property
    def text(self) -> str:
        """Return it as part of a sentence."""
        return f"{self.key.rpartition('.')[2]} {self.value} is the {self.end} that was tried"


def border_text(values: Sequence[BorderValue]) -> str:
    """Return the sentence that says whether something beyond a best server may be better."""
    open_ended = [each.text for each in values if each.refused is None]
    said = [f"{', '.join(open_ended)}: values beyond may be better"] if open_ended else []
    said += [f"{each.text}: beyond it, {each.refused}" for each in values if each.refused is not None]
    return "; ".join(said)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _is_same_server(twin: TwinConfig, own: TwinConfig) -> bool:
    return twin.engine == own.engine and twin.cluster == own.cluster and twin.num_gpus == own.num_gpus


def _changes(settings: Sequence[Setting], *, own: TwinConfig, twin: TwinConfig) -> tuple[Setting, ...]:
    """Return the settings without those that the file's own server has as well, as far as it is known."""
    return tuple(
        each
        for each in settings
        if not each.key.startswith("engine.")
        or (own.fitted is not None and each.key.removeprefix("engine.") in own.assumed)
        or getattr(own.engine, each.key.removeprefix("engine."), None)
        != getattr(twin.engine, each.key.removeprefix("engine."), object())
    )
