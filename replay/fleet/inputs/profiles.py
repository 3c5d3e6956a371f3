"""Profiles by name, from a file of their figures, or derived from a twin."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from contextlib import suppress
from lazy_dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from replay.fleet.inputs.fleet_ranges import OF_PROFILE
from replay.fleet.inputs.fleet_workload import mean_tokens
from replay.fleet.inputs.profile_steps import MOST_CHUNKS, DraftedSteps, Ints, prompts, seats_of
from replay.model.gpus import find_gpu
from replay.model.prices import list_prices_per_hour
from replay.profiles.known_errors import KnownError, known_error_of
from replay.twin.kv_cache.groups import GROUPS, group_fields, read_groups
from sim import (
    UNBOUNDED,
    EngineConfig,
    Extended,
    HeldBlocks,
    InvalidConfig,
    LatencyModel,
    without_checkpoints,
)
from sim.fleet import GpuProfile, Lengths
from sim.fleet.step_pools import StepTimes, fitting, mean_context
from sim.latency import Fitting
from traces import ConfigError
from traces.strict.section import Section, read_section
from traces.strict.whole_file import is_there
from traces.strict.yaml_nodes import shown

if TYPE_CHECKING:
    from replay.twin.fitted import FittedRange, HeldOut
    from replay.twin.twin_config import TwinConfig

SHIPPED = Path(__file__).with_name("profiles.yaml")
NAMES = tuple(each.name for each in fields(GpuProfile))
OF_GROUPS = (GROUPS, "max_concurrent_batches", "num_speculative_tokens")
CONTEXTS = (0.25, 0.5, 1.0, 2.0)
"""Multiples of the workload's own context at which a derived profile is compared with its model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileMisfit:
    """How far a profile's iterations are from its model's, as shares of the model's: median and largest."""

    median: float
    largest: float
    num_batches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSource:
    """A profile, and what simulates it: its own twin, or an engine that follows the profile.

    ``misfit``: None where the profile is not derived from a model. ``gpus``: by name, of one engine.
    ``kv_bytes_per_token``: in all layers; None where no model is named. ``has_list_price``: in dollars; none was given.
    ``error``: how far its latency model was off on measured servers that it was not fitted to, where that is known.
    ``idle_between_w``: of one engine, where the profile's idle power is assumed. ``is_fitted``: its twin says to which
    loads it was fitted, ``fitted``: which; ``held_out``: and how far it was off on others. ``outside_server``: how its
    server differs from the one that it was fitted on. ``assumes_memory``: nobody told the size of its KV cache.
    ``steps``: a twin's own, at the workload's lengths, where the profile has straight lines.
    """

    name: str
    profile: GpuProfile
    engine: EngineConfig
    latency: LatencyModel
    misfit: ProfileMisfit | None
    gpus: Mapping[str, int]
    kv_bytes_per_token: int | None = None
    has_list_price: bool = False
    error: KnownError | None = None
    idle_between_w: tuple[float, float] | None = None
    is_fitted: bool = False
    held_out: HeldOut | None = None
    fitted: FittedRange | None = None
    outside_server: str | None = None
    assumes_memory: bool = False
    steps: StepTimes | None = None

    @property
    def currency(self) -> str:
        """The currency of its costs, "" of a user's own prices, which do not say it."""
        return "USD" if self.has_list_price else ""


def shipped_profiles() -> dict[str, GpuProfile]:
    """Return the table of profiles by name."""
    document = yaml.safe_load(SHIPPED.read_text())
    return {name: GpuProfile(**figures) for name, figures in document["profiles"].items()}


FILES = (".yaml", ".yml", ".json")
"""What ends so is a file, and no profile of the table."""


def power_source() -> str:
    """Return where the power figures of the table are from, and which of them are assumed."""
    return str(yaml.safe_load(SHIPPED.read_text())["power"])


def read_source(
    text: str, lengths: Lengths, *, context: int, prices: Mapping[str, float] | None = None
) -> ProfileSource:
    """Return what ``--profile`` names: a profile of the table, a file with a profile's figures, or a TWIN.yaml.

    A twin's profile is derived for these lengths. Raises ConfigError.
    """
    named = shipped_profiles()
    plain = text.removesuffix("-80")  # as the table of GPUs calls the larger A100
    if plain in named:
        low, high = yaml.safe_load(SHIPPED.read_text())["idle_between_w"][plain]
        of_table = replace(
            from_profile(plain, named[plain], context=context),
            idle_between_w=(low, high),
            has_list_price=True,
        )
        return priced(of_table, prices)
    path = Path(text)
    if path.suffix in FILES and not is_there(path):
        files = list[str]()
        with suppress(OSError):  # a folder that is not there, or cannot be read
            files = [str(each) for each in path.parent.iterdir() if each.suffix in FILES]
        near = difflib.get_close_matches(text, files, n=1)
        raise ConfigError(f"--profile: no such file: {text}{f'; nearest: {near[0]}' if near else ''}")
    if not text or not is_there(path):
        near = difflib.get_close_matches(plain.upper(), list(named), n=1)
        raise ConfigError(
            f"--profile: got {text!r}, expected {', '.join(named)}, MODEL@GPU:TP, or a file (a TWIN.yaml, or a profile)"
            f"{f'; nearest: {near[0]}' if near else ''}"
        )
    section = read_section(path)
    if "w_s" in section:
        section.refuse_unknown(NAMES)
        figures = {name: _figure(section, name) for name in section.nodes if name != GROUPS}
        groups = read_groups(section, caches_prefixes=False) or ()
        try:
            profile = GpuProfile(**figures, kv_cache_groups=groups)  # type: ignore[arg-type]  # checked by the profile itself
        except (InvalidConfig, TypeError) as error:
            raise ConfigError(f"{error} ({path})") from error
        return priced(from_profile(path.stem, profile, context=context), prices)
    from replay.twin.config_read import load_config

    source = from_twin(load_config(path, allows_cluster=False), lengths, context=context, name=path.stem)
    if prices and not source.gpus:
        raise ConfigError(f"--prices: needs the GPU of the twin, expected hardware.gpu in its file ({path})")
    return priced(source, prices)


def _figure(section: Section, name: str) -> float | bool:
    """Return a figure of a profile's file, within its range. Raises ConfigError."""
    if name not in OF_PROFILE:
        value: float | bool | None = section.boolean(name)
        assert value is not None  # noqa: S101 - the key is there
        return value
    low, high = OF_PROFILE[name]
    expected = f"a number of {low:,} to {high:,}"
    if isinstance(low, int):
        value, expected = section.integer(name, least=low), f"a whole number of {low:,} to {high:,}"
    else:
        value = float(section.decimal(name, expected=expected) or 0)
    if value is None or not low <= value <= high:
        section.fail(name, got=shown(section.nodes[name]), expected=expected)
    return value


def priced(source: ProfileSource, prices: Mapping[str, float] | None) -> ProfileSource:
    """Return a source with the prices' cost per hour, without any with the list prices where all its GPUs have one.

    A profile that has a price of its own keeps it, unless prices are given. Raises ConfigError where its GPU has no
    price among those that are given.
    """
    if not prices:
        listed = list_prices_per_hour()
        if source.profile.cost_per_hour > 0 or not source.gpus or not set(source.gpus) <= set(listed):
            return source
        return replace(priced(source, listed), has_list_price=True)
    gpus = source.gpus or {find_gpu(source.name, where="--profile").name: source.profile.num_gpus}
    missing = [name for name in gpus if name not in prices]
    if missing:
        raise ConfigError(f"--prices: got none of {missing[0]}, expected one")
    cost = sum(prices[name] * number for name, number in gpus.items())
    return replace(source, profile=replace(source.profile, cost_per_hour=cost), has_list_price=False)


def from_profile(name: str, profile: GpuProfile, *, context: int) -> ProfileSource:
    """Return a profile with an engine that follows it: chunks, seats, blocks, and the time of an iteration.

    Raises ConfigError where no engine can.
    """
    try:
        engine, latency = _as_engine(profile, context)
    except InvalidConfig as error:
        raise ConfigError(f"profile {name}: {error}, at a context of {context:,} tokens") from error
    return ProfileSource(name=name, profile=profile, engine=engine, latency=latency, misfit=None, gpus={})


def _as_engine(profile: GpuProfile, context: int) -> tuple[EngineConfig, LatencyModel]:
    slots = max(1, profile.num_slots(context))
    engine = EngineConfig(
        max_num_seqs=slots,
        max_num_batched_tokens=slots * profile.chunk_tokens,
        long_prefill_token_threshold=profile.chunk_tokens,
        block_size=profile.block_size,
        num_gpu_blocks=profile.num_blocks + 1,  # vLLM's null block
        max_model_len=max(context, 2),
        kv_cache_groups=tuple(
            replace(group, mode="none") for group in without_checkpoints(profile.kv_cache_groups)
        ),
        enable_prefix_caching=False,
        async_scheduling=False,
        frontend="none",
    )
    latency = Extended(
        alpha0=round(profile.frontend_s * 1e6, 6),
        alpha1=round(profile.frontend_token_s * 1e6, 6),
        alpha2=round(profile.output_token_s * 1e6, 6),
        alpha3=round(profile.handed_on_s * 1e6, 6),
        beta0=round(profile.w_s * 1e6, 6),
        beta1=round(profile.prefill_token_s * 1e6, 6),
        beta2=0,
        beta3=profile.h_s / profile.calibration_context * 1e6,
        beta4=profile.prefill_pair_s * 1e6,
    )
    return engine, latency


def of_context(source: ProfileSource, context: int) -> ProfileSource:
    """Return a source whose engine is that of a pool for requests of at most ``context`` tokens.

    A profile of the table has more seats the shorter they are; a twin's engine stays as it is.
    """
    if source.misfit is not None:
        return source
    made = from_profile(source.name, source.profile, context=context)
    return replace(source, engine=made.engine)


def from_twin(twin: TwinConfig, lengths: Lengths, *, context: int, name: str) -> ProfileSource:
    """Return the profile of a twin at these lengths: W and H from the model's own step times, and how well they fit.

    ``w_s`` and ``h_s``: the line through steps of one request of the workload's mean length to as many as run at once,
    with drafts the time of a step over the tokens that it brings a request (``DraftedSteps``). The prompts' compute is
    fitted to steps of one chunk each, by tokens and by pairs.
    """
    engine, model = twin.engine, twin.latency
    tokens, drafts = mean_tokens(lengths), DraftedSteps.of(engine)
    held, blocks = HeldBlocks.of(engine), engine.num_gpu_blocks - 1
    if engine.num_gpu_blocks == UNBOUNDED:
        blocks = engine.max_num_seqs * held.fullest(context)
    seats = seats_of(held_by(engine, lengths))
    times = drafts.seconds_a_token(model, seats, np.full(len(seats), tokens))
    slope = max(float(np.polyfit(seats, times, 1)[0]), 0.0) if len(seats) > 1 else 0.0
    w_s = max(float((times - slope * seats).mean()), 1e-6)
    per_token, per_pair = _prefill(model, engine, w_s)
    power = _power_of(twin.num_gpus)
    profile = GpuProfile(
        w_s=w_s,
        h_s=slope * context / tokens,
        calibration_context=context,
        chunk_tokens=engine.max_num_batched_tokens,
        block_size=engine.block_size,
        num_blocks=max(blocks, 1),
        max_slots=engine.max_num_seqs,
        prefill_token_s=per_token,
        prefill_pair_s=per_pair,
        num_gpus=sum(twin.num_gpus.values()) or 1,
        reserves_context=False,
        kv_cache_groups=held.groups,
        max_concurrent_batches=held.num_batches,
        num_speculative_tokens=held.tokens_per_decode - 1,
        **_outside(model),
        **power.figures,
    )
    return ProfileSource(
        name=name,
        profile=profile,
        engine=engine,
        latency=model,
        misfit=misfit_of(profile, model, seats, tokens, drafts=drafts),
        gpus=twin.num_gpus,
        kv_bytes_per_token=twin.kv_bytes_per_token,
        error=known_error_of(twin),
        idle_between_w=power.idle_between_w,
        steps=_steps_of(model, profile, lengths, drafts=drafts),
        **_of_fit(twin),
    )


def _steps_of(
    model: LatencyModel, profile: GpuProfile, lengths: Lengths, *, drafts: DraftedSteps
) -> StepTimes:
    """Return the model's steps of up to all seats that decode, and of as many mean prompts as fit into one."""
    seats = seats_of(profile.max_slots)
    contexts = np.full(len(seats), mean_context(lengths))
    numbers = np.unique(np.geomspace(1, fitting(profile, lengths), MOST_CHUNKS))
    tokens = max(float(lengths.new_tokens.mean()), 1.0)
    whole, rest = divmod(tokens, profile.chunk_tokens)
    chunks = np.minimum(
        tokens, [*np.full(int(whole), float(profile.chunk_tokens)), *([rest] if rest else [])]
    )
    before = float(lengths.input_tokens.mean()) - tokens + np.cumsum(chunks) - chunks
    prompts_s = (
        [float(model.durations_us(prompts(numbers, chunks, before)).sum()) / 1e6]
        if len(chunks) > 1
        else model.durations_us(prompts(numbers, chunks, before)) / 1e6
    )
    return StepTimes(
        num_decodes=seats.astype(np.float64),
        decode_s=drafts.seconds_a_token(model, seats, contexts) * drafts.tokens_a_step,
        num_prompts=numbers,
        prompts_s=np.asarray(prompts_s, np.float64),
        tokens_a_step=drafts.tokens_a_step,
    )


def _of_fit(twin: TwinConfig) -> dict[str, Any]:
    """Return what a twin says of its fit and of its memory, by fields of ``ProfileSource``."""
    is_own = twin.latency.fitting is Fitting.FREELY and not twin.latency_reason
    return {
        "held_out": twin.held_out,
        "fitted": twin.fitted,
        "outside_server": twin.outside_server,
        "assumes_memory": twin.assumes_memory,
        "is_fitted": twin.fitted is not None or is_own,
    }


def _outside(model: LatencyModel) -> dict[str, float]:
    """Return what requests and tokens take outside of the engine, as a profile has it."""
    alphas = {
        "frontend_s": model.alpha0,
        "frontend_token_s": model.alpha1,
        "output_token_s": model.alpha2,
        "handed_on_s": model.alpha3,
    }
    return {name: float(value) / 1e6 for name, value in alphas.items()}


@dataclass(frozen=True, slots=True)
class _Power:
    """A profile's power figures, and between which the idle power of one engine lies; None where it is not known."""

    figures: Mapping[str, float]
    idle_between_w: tuple[float, float] | None = None


def _power_of(gpus: Mapping[str, int]) -> _Power:
    """Return the power of an engine's GPUs where they are of one kind that the table has."""
    document = yaml.safe_load(SHIPPED.read_text())
    name, number = next(((each.removesuffix("-80"), times) for each, times in gpus.items()), ("", 0))
    if len(gpus) != 1 or name not in document["profiles"]:
        return _Power({})
    own = document["profiles"][name]
    watts = {key: float(own[key]) * number for key in ("idle_w", "nominal_w")}
    low, high = (each * number for each in document["idle_between_w"][name])
    return _Power(watts | {key: own[key] for key in ("power_k", "power_x0")}, (low, high))


def held_by(engine: EngineConfig, lengths: Lengths) -> int:
    """Return how many requests of these lengths run at once: all seats, or what the KV cache holds.

    One full group: of requests of the mean length, block by block or not.
    """
    if engine.num_gpu_blocks == UNBOUNDED:
        return engine.max_num_seqs
    usable, held = engine.num_gpu_blocks - 1, HeldBlocks.of(engine)
    if held.groups:
        fit = held.num_requests(usable, lengths.input_tokens, lengths.output_tokens)
    else:
        fit = int(usable * engine.block_size / mean_tokens(lengths))
    return max(1, min(engine.max_num_seqs, fit))


def _prefill(model: LatencyModel, engine: EngineConfig, w_s: float) -> tuple[float, float]:
    """Return the compute of prompts per token and per pair, seconds: steps of one chunk, less what any step takes."""
    from scipy.optimize import nnls

    sizes = np.unique(np.geomspace(16, engine.max_num_batched_tokens, MOST_CHUNKS).astype(np.int64))
    pairs = sizes * (sizes + 1) // 2
    times = model.durations_us(prompts(np.ones(1), sizes.astype(np.float64), np.zeros(1)))
    more = np.maximum(times / 1e6 - w_s, 0.0)
    weight = 1 / np.maximum(times / 1e6, 1e-9)
    per_token, per_pair = nnls(np.column_stack([sizes, pairs]) * weight[:, None], more * weight)[0]
    return float(per_token), float(per_pair)


def misfit_of(
    profile: GpuProfile,
    model: LatencyModel,
    seats: Ints,
    tokens: float,
    *,
    drafts: DraftedSteps,
) -> ProfileMisfit:
    """Return how far the profile's iterations are from the model's, over seats and contexts around the workload's."""
    grid = [(n, tokens * factor) for n in seats for factor in CONTEXTS]
    numbers = np.array([each[0] for each in grid], np.int64)
    contexts = np.array([each[1] for each in grid])
    real = drafts.seconds_a_token(model, numbers, contexts)
    told = profile.w_s + profile.h_s * contexts / profile.calibration_context * numbers
    off = np.abs(told / real - 1)
    return ProfileMisfit(median=float(np.median(off)), largest=float(off.max()), num_batches=len(grid))


def profile_yaml(source: ProfileSource) -> str:
    """Return a profile as a file that ``--profile`` takes."""
    head = f"# profile of {source.name}\n"
    if source.misfit is not None:
        head += (
            f"# its iterations against the model's over {source.misfit.num_batches} batches: "
            f"median {source.misfit.median:.1%}, largest {source.misfit.largest:.1%}\n"
        )
    if source.held_out is not None and source.held_out.doubt:
        head += f"# {source.held_out.doubt}\n"
    return head + yaml.safe_dump(profile_figures(source.profile), sort_keys=False)


def profile_figures(profile: GpuProfile) -> dict[str, object]:
    """Return a profile's figures by name; what bears on groups only where there are any."""
    figures = asdict(profile)
    if profile.kv_cache_groups:
        return figures | {GROUPS: [group_fields(group) for group in profile.kv_cache_groups]}
    return {name: figures[name] for name in NAMES if name not in OF_GROUPS}
