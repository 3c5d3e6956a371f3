"""The latency models by name, and the keys of ``latency:``, part of the table in ``replay.twin.config_keys``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from replay.twin.keys.fitted_on_keys import FITTED_ON_KEYS
from replay.twin.keys.key import Key
from sim.latency import Blackbox, Extended, LatencyModel, Physics, Profiled, Roofline

FITTED: Mapping[str, type[Blackbox]] = {"blackbox": Blackbox, "extended": Extended}
"""Models whose coefficients come from a fit, by the name that TWIN.yaml gives them."""
ANALYTIC: Mapping[str, type[Physics] | type[Roofline]] = {"physics": Physics, "roofline": Roofline}
"""Models that follow from a model and a GPU."""
LATENCY_CLASSES: Mapping[str, type[LatencyModel]] = {**FITTED, **ANALYTIC, "profiled": Profiled}
LATENCY_MODELS: tuple[str, ...] = (*LATENCY_CLASSES, "auto")
"""The values of ``latency.model``."""

EXTENDED_MEANINGS: Mapping[str, str] = {
    "beta3": "µs per KV entry that decodes read.",
    "beta4": "µs per (query, key) pair that prefills attend to.",
    "beta5": "µs per prefilling request.",
    "floor": "µs that a step's dense part lasts at least: reading the weights. Decode tokens are in it, too.",
    "kappa": "Slowdown of the dense and attention parts per share of recent time above `u0` that the GPU computed.",
    "u0": "Share of recent time spent computing above which the GPU slows down (its power limit); 0 to 1.",
    "tau_s": "Seconds over which that share of time is averaged.",
    "concavity": "How much less each further decoding sequence costs: `beta2` counts D^(1 - concavity); 0 to 1.",
    "sigma": "Scatter of step times: lognormal with mean 1, from `seed` and the step's number.",
}
"""What `model: extended` has beyond blackbox; names and defaults are those of sim.Extended."""


def extended_keys() -> tuple[Key, ...]:
    """Return the coefficients that only `model: extended` takes."""
    defaults = {field.name: field.default for field in fields(Extended)}
    return tuple(
        Key(
            path=f"latency.coefficients.{name}",
            kind="number",
            default=str(defaults[name]),
            meaning=f"`extended` only. {meaning}",
        )
        for name, meaning in EXTENDED_MEANINGS.items()
    )


VIDUR_MEANINGS: Mapping[str, str] = {
    "decode_batching": "Share by which attention of several decodes takes longer than the table's; only for grouped "
    "queries. Vidur has 0.1.",
    "prefill_batching": "The same for several prompts in a step. Vidur has 0.1.",
    "nccl_launch": "µs of CPU time for each all-reduce beside the measured time. Vidur has 20.",
    "nccl_skew": "µs for each all-reduce, times tp^1.25: GPUs that wait for each other. Vidur has 0.",
}

PROFILED_KEYS: tuple[Key, ...] = (
    Key(
        path="latency.coefficients.scale",
        kind="number",
        default="1.0",
        meaning="`profiled` only. Factor on the table's times.",
    ),
    Key(
        path="latency.coefficients.step",
        kind="number",
        default="the table's",
        meaning="`profiled` only. µs per step in addition.",
    ),
    *(
        Key(
            path=f"latency.coefficients.{name}",
            kind="number",
            default="0",
            meaning=f"`profiled` only. {meaning}",
        )
        for name, meaning in VIDUR_MEANINGS.items()
    ),
    Key(
        path="latency.table",
        kind="text",
        default="of `model_config` and `hardware`, where one ships",
        meaning="`profiled` only. What `vtwin predictor train` wrote, relative to TWIN.yaml, or a table that ships, by "
        "its name (`vtwin predictor list`). `coefficients` is then optional, and so are its alphas: `alpha0` and "
        "`alpha1` are then what was learned from measured servers.",
    ),
)

FITTED_RANGE_KEYS: tuple[Key, ...] = (
    Key(
        path="latency.fitted_range",
        kind="mapping",
        default="none",
        meaning="What the coefficients were fitted on; `vtwin calibrate --write-config` writes it. `run`, `replay` and "
        "`calibrate` say by which factor a run goes beyond it. Each value is a pair, [low, high].",
    ),
    Key(
        path="latency.fitted_range.rate_per_s",
        kind="numbers",
        default="none",
        meaning="Mean request rates of the fitted traces, requests/s.",
    ),
    Key(
        path="latency.fitted_range.prompt_tokens",
        kind="numbers",
        default="none",
        meaning="Prompt lengths, 1st to 99th percentile.",
    ),
    Key(
        path="latency.fitted_range.output_tokens",
        kind="numbers",
        default="none",
        meaning="Output lengths, 1st to 99th percentile.",
    ),
    Key(
        path="latency.fitted_range.concurrency",
        kind="numbers",
        default="none",
        meaning="Requests running when one is sent, 1st to 99th percentile.",
    ),
    Key(
        path="latency.fitted_range.lasting",
        kind="numbers",
        default="none",
        meaning="The rates of `rate_per_s` that the server kept up with, and that a long run keeps within "
        "`concurrency`: up to there the twin is trusted.",
    ),
)

PACE_KEYS: tuple[Key, ...] = (
    Key(
        path="latency.pace",
        kind="mapping",
        default="none",
        meaning="How far all steps together may be longer or shorter than the coefficients say; `vtwin calibrate "
        "--write-config` writes it. `run`, `replay` and `capacity` show its effect on their answers.",
    ),
    Key(
        path="latency.pace.within",
        kind="fraction",
        default="required",
        meaning="A fraction, for runs within the fitted loads and lengths; holds for nine runs of ten.",
    ),
    Key(
        path="latency.pace.beyond",
        kind="fraction",
        default="required",
        meaning="The same for runs that go beyond them.",
    ),
)

HELD_OUT_KEYS: tuple[Key, ...] = (
    Key(
        path="latency.held_out",
        kind="mapping",
        default="none",
        meaning="How well the fit did on requests that it had not seen; `vtwin calibrate --write-config` writes it. A "
        "later `calibrate` tells by it a server that has become slower from a twin that is bad.",
    ),
    Key(
        path="latency.held_out.date",
        kind="text",
        default="none",
        meaning='The day of the fit (UTC), `"2026-11-29"`.',
    ),
    *(
        Key(
            path=f"latency.held_out.{name}",
            kind="number",
            default="none",
            meaning=f"The mean error of {what} per request, a fraction.",
        )
        for name, what in (("ttft", "TTFT"), ("tpot", "TPOT"), ("e2e", "E2E"))
    ),
    *(
        Key(
            path=f"latency.held_out.{name}_{statistic}",
            kind="number",
            default="none",
            meaning=f"By how much the twin's own error may change the {statistic} {what} from one run to another, by "
            "the runs fitted and held out, a fraction. `compare --twin` lays nothing smaller at the server's door.",
        )
        for name, what in (("ttft", "TTFT"), ("tpot", "TPOT"), ("e2e", "E2E"))
        for statistic in ("mean", "p99")
    ),
    Key(
        path="latency.held_out.far",
        kind="mapping",
        default="those above 0.1",
        meaning="A list: of `ttft`, `tpot` and `e2e`, those whose errors are too large to trust: above 10 %, per "
        "request or of a run's mean, and above what the server differs from itself where a repeat run shows that. "
        "Every answer of the twin says so.",
    ),
    Key(
        path="latency.held_out.far_p99",
        kind="mapping",
        default="those whose `_p99` is above 0.1",
        meaning="The same of those whose p99 over the held-out run is too far off.",
    ),
)

TILES_KEY = Key(
    path="latency.tiles",
    kind="numbers",
    default="none",
    meaning="`extended` only. How much longer the products of a step take than a smooth curve says, by its tokens: "
    "pairs [tokens, factor], straight lines in between. `calibrate --fit` takes them from measured products of the "
    "model on its GPU (`vtwin model info` lists the edges).",
)

LATENCY_KEYS: tuple[Key, ...] = (
    Key(
        path="latency.model",
        kind="choice",
        default="required",
        meaning="How long a step takes. `blackbox`: a straight line in the step's prefill and decode tokens; "
        "`extended`: more terms, see below; `roofline`, `physics`: from `model_config` and `hardware` "
        "(docs/explanation/latency-models.md); `profiled`: measured operators, added up (`table`); `auto`: blackbox "
        "where defaults know the server (and not only by weakly identified coefficients without traces), else physics, "
        "else profiled where `table` is given, else roofline; profiled before physics where nobody measured the "
        "experts, roofline before it for experts on an RTX PRO 6000; "
        "`FILE.py:Class`: your own, which needs `--allow-code` (docs/how-to/add-a-latency-model.md).",
        choices=LATENCY_MODELS,
    ),
    Key(
        path="latency.model_config",
        kind="text",
        default="none",
        meaning="A Hugging Face config.json, relative to TWIN.yaml, or a model that ships by its name; with `hardware` "
        "it also sizes the KV cache where `engine.num_gpu_blocks` is absent.",
    ),
    Key(
        path="latency.dtype",
        kind="text",
        default="auto",
        meaning="As vLLM's `--dtype`: auto, bfloat16, float16, float32.",
    ),
    Key(
        path="latency.kv_cache_dtype",
        kind="text",
        default="auto",
        meaning="As vLLM's `--kv-cache-dtype`: auto or fp8.",
    ),
    Key(
        path="latency.mamba_ssm_cache_dtype",
        kind="text",
        default="auto",
        meaning="As vLLM's `--mamba-ssm-cache-dtype`, of states in the cache: auto (what the model says, else its own "
        "type), float32, float16, bfloat16.",
    ),
    Key(
        path="latency.quantization",
        kind="text",
        default="auto",
        meaning="As vLLM's `--quantization`: auto (what the config.json says), or what vLLM makes "
        "of a checkpoint in 16 bits as it loads it: fp8_per_tensor, fp8_per_block, fp8_per_channel, mxfp8, mxfp4, "
        "int8_per_channel_weight_only, nvfp4_per_token; up to 0.30 fp8. Embedding, LM head and towers keep 16 bits.",
    ),
    Key(
        path="latency.peak",
        kind="mapping",
        default="of `model_config` and `hardware`",
        meaning="The times behind `roofline` and `physics`, written out: µs of each part of a step at the GPU's peak "
        "(`sim.PeakTimes`). `vtwin config show` prints it.",
    ),
    Key(
        path="latency.coefficients",
        kind="mapping",
        default="this or `defaults`",
        meaning="The numbers below, all of them but `alpha3`; with `extended`, its own in addition; with `roofline` or "
        "`physics`, those of theirs that differ from the default; `physics` also takes the name of a "
        "set that ships: `dense-2026` (its default without experts), `experts-2026` (where experts were measured), "
        "`silicon-2026` (else) or `blis-iter29`.",
    ),
    Key(
        path="latency.coefficients.alpha0",
        kind="decimal",
        default="required",
        meaning="µs from a request's arrival until it joins the queue.",
    ),
    Key(
        path="latency.coefficients.alpha1",
        kind="decimal",
        default="required",
        meaning="The same, per prompt token (prefix included).",
    ),
    Key(
        path="latency.coefficients.alpha2",
        kind="decimal",
        default="required",
        meaning="µs per output token: the k-th is seen k·alpha2 after its step; the clock does not move.",
    ),
    Key(
        path="latency.coefficients.alpha3",
        kind="decimal",
        default="0",
        meaning="µs per output: the front end hands on a step's outputs one after another, and the first token of a "
        "request comes after those of the requests that were there before. Every first token is seen so much later, "
        "times its place among its step's outputs.",
    ),
    Key(path="latency.coefficients.beta0", kind="decimal", default="required", meaning="µs per step."),
    Key(
        path="latency.coefficients.beta1",
        kind="decimal",
        default="required",
        meaning="µs per prefill token computed in the step (cache hits are not).",
    ),
    Key(
        path="latency.coefficients.beta2",
        kind="decimal",
        default="required",
        meaning="µs per decode token of the step.",
    ),
    *extended_keys(),
    *PROFILED_KEYS,
    TILES_KEY,
    *FITTED_RANGE_KEYS,
    *PACE_KEYS,
    *HELD_OUT_KEYS,
    *FITTED_ON_KEYS,
    Key(
        path="latency.defaults",
        kind="mapping",
        default="this or `coefficients`",
        meaning="Look the coefficients up in defaults.yaml: `{model, gpu, tp, vllm_version}`.",
    ),
    Key(path="latency.defaults.model", kind="text", default="required", meaning="As Hugging Face names it."),
    Key(path="latency.defaults.gpu", kind="text", default="required", meaning="`H100`, `A100-80`, …"),
    Key(path="latency.defaults.tp", kind="integer", default="1", least=1, meaning="Tensor parallelism."),
    Key(
        path="latency.defaults.vllm_version",
        kind="text",
        default="the newest on record",
        meaning="The version that the coefficients were fitted to.",
    ),
    Key(
        path="latency.defaults_file",
        kind="text",
        default="none",
        meaning="A defaults.yaml of your own, looked at before the one that ships; relative to TWIN.yaml.",
    ),
)
