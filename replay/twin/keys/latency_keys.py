"""The latency models by name, and what the keys of ``latency:`` mean; all else follows from what holds their values."""

from __future__ import annotations

from collections.abc import Mapping

from replay.twin.keys.fitted_on_keys import FLAGS
from replay.twin.keys.key import KeyText, Sayings
from sim.latency import LATENCY_CLASSES, Blackbox, Extended, Fitting

FITTED = tuple(name for name, model in LATENCY_CLASSES.items() if model.fitting is Fitting.FREELY)
"""Models whose coefficients come from a fit, by the name that TWIN.yaml gives them."""
LATENCY_MODELS = (*LATENCY_CLASSES, "auto")
"""The values of ``latency.model``."""
EXTENDED_MEANINGS: Mapping[str, str] = {
    name: each.meaning
    for name, each in Extended.coefficients().items()
    if name not in Blackbox.coefficients()
}
"""What `model: extended` has beyond blackbox."""
_LATENCIES = ("ttft", "tpot", "e2e")


def _coefficients() -> Sayings:
    """Return what is said of the coefficients that the reference lists: blackbox's, then each model's own."""
    said: Sayings = {}
    for model, cls in LATENCY_CLASSES.items():
        for name, each in cls.coefficients().items():
            only = "" if name in Blackbox.coefficients() else f"`{model}` only. "
            if each.meaning:
                said.setdefault(
                    f"coefficients.{name}", KeyText(f"{only}{each.meaning}", default=each.default)
                )
    return said


LATENCY: Sayings = {
    "model": KeyText(
        "How long a step takes. `blackbox`: a straight line in the step's prefill and decode tokens; `extended`: more "
        "terms, see below; `roofline`, `physics`: from `model_config` and `hardware` "
        "(docs/explanation/latency-models.md); `profiled`: measured operators, added up (`table`); `auto`: blackbox "
        "where defaults know the server (and not only by weakly identified coefficients without traces), else physics, "
        "else profiled where `table` is given, else roofline; profiled before physics where nobody measured the "
        "experts, roofline before it for experts on an RTX PRO 6000; "
        "`FILE.py:Class`: your own, which needs `--allow-code` (docs/how-to/add-a-latency-model.md).",
        default="required",
        choices=LATENCY_MODELS,
    ),
    "model_config": "A Hugging Face config.json, relative to TWIN.yaml, or a model that ships by its name; with "
    "`hardware` it also sizes the KV cache where `engine.num_gpu_blocks` is absent.",
    "dtype": "As vLLM's `--dtype`: auto, bfloat16, float16, float32.",
    "kv_cache_dtype": "As vLLM's `--kv-cache-dtype`: auto or fp8.",
    "mamba_ssm_cache_dtype": "As vLLM's `--mamba-ssm-cache-dtype`, of states in the cache: auto (what the model says, "
    "else its own type), float32, float16, bfloat16.",
    "quantization": "As vLLM's `--quantization`: auto (what the config.json says), or what vLLM makes of a checkpoint "
    "in 16 bits as it loads it: fp8_per_tensor, fp8_per_block, fp8_per_channel, mxfp8, mxfp4, "
    "int8_per_channel_weight_only, nvfp4_per_token; up to 0.30 fp8. Embedding, LM head and towers keep 16 bits.",
    "peak": KeyText(
        "The times behind `roofline` and `physics`, written out: µs of each part of a step at the GPU's peak "
        "(`sim.PeakTimes`). `vtwin config show` prints it.",
        default="of `model_config` and `hardware`",
    ),
    "coefficients": KeyText(
        "The numbers below, all of them but `alpha3`; with `extended`, its own in addition; with `roofline` or "
        "`physics`, those of theirs that differ from the default; `physics` also takes the name of a set that ships: "
        "`dense-2026` (its default without experts), `experts-2026` (where experts were measured), `silicon-2026` "
        "(else) or `blis-iter29`.",
        default="this or `defaults`",
    ),
    **_coefficients(),
    "table": KeyText(
        "`profiled` only. What `vtwin predictor train` wrote, relative to TWIN.yaml, or a table that ships, by its "
        "name (`vtwin predictor list`). `coefficients` is then optional, and so are its alphas: `alpha0` and `alpha1` "
        "are then what was learned from measured servers.",
        kind="text",
        default="of `model_config` and `hardware`, where one ships",
    ),
    "tiles": KeyText(
        "`extended` only. How much longer the products of a step take than a smooth curve says, by its tokens: pairs "
        "[tokens, factor], straight lines in between. `calibrate --fit` takes them from measured products of the "
        "model on its GPU (`vtwin model info` lists the edges).",
        kind="numbers",
    ),
    "fitted_range": "What the coefficients were fitted on; `vtwin calibrate --write-config` writes it. `run`, "
    "`replay` and `calibrate` say by which factor a run goes beyond it. Each value is a pair, [low, high].",
    "fitted_range.rate_per_s": "Mean request rates of the fitted traces, requests/s.",
    "fitted_range.prompt_tokens": "Prompt lengths, 1st to 99th percentile.",
    "fitted_range.output_tokens": "Output lengths, 1st to 99th percentile.",
    "fitted_range.concurrency": "Requests running when one is sent, 1st to 99th percentile.",
    "fitted_range.lasting": "The rates of `rate_per_s` that the server kept up with, and that a long run keeps within "
    "`concurrency`: up to there the twin is trusted.",
    "pace": "How far all steps together may be longer or shorter than the coefficients say; `vtwin calibrate "
    "--write-config` writes it. `run`, `replay` and `capacity` show its effect on their answers.",
    "pace.within": "A fraction, for runs within the fitted loads and lengths; holds for nine runs of ten.",
    "pace.beyond": "The same for runs that go beyond them.",
    "held_out": "How well the fit did on requests that it had not seen; `vtwin calibrate --write-config` writes it. A "
    "later `calibrate` tells by it a server that has become slower from a twin that is bad.",
    "held_out.date": 'The day of the fit (UTC), `"2026-11-29"`.',
    **{
        f"held_out.{name}": f"The mean error of {name.upper()} per request, a fraction."
        for name in _LATENCIES
    },
    **{
        f"held_out.{name}_{statistic}": "By how much the twin's own error may change the "
        f"{statistic} {name.upper()} from one run to another, by the runs fitted and held out, a fraction. `compare "
        "--twin` lays nothing smaller at the server's door."
        for name in _LATENCIES
        for statistic in ("mean", "p99")
    },
    "held_out.far": KeyText(
        "A list: of `ttft`, `tpot` and `e2e`, those whose errors are too large to trust: above 10 %, per request or "
        "of a run's mean, and above what the server differs from itself where a repeat run shows that. Every answer "
        "of the twin says so.",
        default="those above 0.1",
    ),
    "held_out.far_p99": KeyText(
        "The same of those whose p99 over the held-out run is too far off.",
        default="those whose `_p99` is above 0.1",
    ),
    "fitted_on": "The server and the loads that the twin was fitted on; `vtwin calibrate --write-config` writes it, "
    "`vtwin profiles` shows it. Every answer of a twin whose model, GPU, version or flags are now others says so.",
    "fitted_on.model": "The served model.",
    "fitted_on.gpu": "Its GPU.",
    "fitted_on.num_gpus": KeyText("How many GPUs one engine had.", least=1),
    "fitted_on.tp": KeyText("How many of them shared each layer.", least=1),
    "fitted_on.vllm_version": "vLLM's version, as the server or the user told it; absent where nobody did.",
    "fitted_on.flags": f"Flags of `vllm serve`, by name: {', '.join(f'`{name}`' for name in FLAGS)}. "
    "`max_num_batched_tokens` may be smaller, and what the engine simulates may differ.",
    "fitted_on.noise": "`{ttft, tpot, e2e}`: how far two runs of one load were apart, per request, fractions.",
    "fitted_on.loads": "A list of the observed runs: `name`, `role` (`fitted`, `held out`, or `half` of either), "
    "`num_requests`, `rate_per_s`, `concurrency` (requests in flight, mean over time), mean `prompt_tokens` and "
    "`output_tokens`, and the twin's mean error per request there (`ttft`, `tpot`, `e2e`, fractions).",
    "fitted_on.carried_from": "The server whose twin this one was made from (`calibrate --from`).",
    "defaults": KeyText(
        "Look the coefficients up in defaults.yaml: `{model, gpu, tp, vllm_version}`.",
        default="this or `coefficients`",
    ),
    "defaults.model": "As Hugging Face names it.",
    "defaults.gpu": "`H100`, `A100-80`, …",
    "defaults.tp": "Tensor parallelism.",
    "defaults.vllm_version": KeyText(
        "The version that the coefficients were fitted to.", default="the newest on record"
    ),
    "defaults_file": KeyText(
        "A defaults.yaml of your own, looked at before the one that ships; relative to TWIN.yaml.",
        kind="text",
    ),
}
