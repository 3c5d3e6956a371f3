"""The plan of ``vtwin demo``: a server with known coefficients, two loads to fit, a third held out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

ENGINE = """\
engine:
  max_num_seqs: 32
  max_num_batched_tokens: 512
  num_gpu_blocks: 2000
  block_size: 16
  max_model_len: 4096
"""
TRUTH = {"alpha0": 4000, "alpha1": 5, "alpha2": 0, "beta0": 12000, "beta1": 60, "beta2": 500}
"""µs: the emulated server's."""
GUESS = {"alpha0": 1000, "alpha1": 1, "alpha2": 0, "beta0": 5000, "beta1": 20, "beta2": 100}
"""µs: where the fit begins."""
RATES = {"low": 4.0, "high": 11.0, "holdout": 8.0}
"""Requests per second of each load; the last one is held out."""
SECONDS = 8
"""How long each load lasts."""
LENGTHS = (
    *("--prompt-tokens", "200", "--prompt-tokens-stdev", "120"),
    *("--output-tokens", "40", "--output-tokens-stdev", "20"),
)


def twin_yaml(coefficients: Mapping[str, int]) -> str:
    """Return the server's TWIN.yaml with these coefficients."""
    return f"{ENGINE}latency:\n  model: blackbox\n  coefficients: {json.dumps(dict(coefficients))}\n"


def observations(url: str, folder: Path, *, is_repeated: bool) -> list[list[str]]:
    """Return the arguments of every ``observe`` command; ``is_repeated``: an earlier demo's traces are replaced."""
    again = ["--overwrite"] if is_repeated else []
    return [
        [
            *("--url", url, "--rate", f"{rate:g}", "--num-requests", str(round(rate * SECONDS))),
            *("--seed", str(seed), *LENGTHS, "--output", str(folder / name), *again),
        ]
        for seed, (name, rate) in enumerate(RATES.items(), start=1)
    ]


def calibration(folder: Path, *, guess: Path) -> list[str]:
    """Return the arguments of the ``calibrate`` command."""
    *fitted, held_out = (str(folder / name) for name in RATES)
    return [
        *(*fitted, "--config", str(guess), "--fit", "--latency-model", "blackbox", "--holdout", held_out),
        *("--report", str(folder / "report"), "--write-config", str(folder / "twin.yaml")),
    ]
