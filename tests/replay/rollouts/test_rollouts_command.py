"""``vtwin rollouts``: what is printed, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import vtwin
from replay import RolloutSettings, load_config, run_rollouts
from replay.rollouts.prompt_samples import draw_samples, long_tailed
from traces import ConfigError
from traces.workload import WorkloadOptions, clipping_notes

TWIN = """\
engine: {max_num_seqs: 16, max_num_batched_tokens: 2048, max_model_len: 4096, num_gpu_blocks: 4000}
latency:
  model: blackbox
  coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 6000, beta1: 10, beta2: 50}
"""
LENGTHS = ["--prompt-tokens", "100", "--output-tokens", "60", "--output-tokens-stdev", "80"]
ASKED = ["--batch", "6", "--samples", "4", "--batches", "2", *LENGTHS]


@pytest.fixture
def config(tmp_path: Path) -> str:
    (tmp_path / "twin.yaml").write_text(TWIN)
    return str(tmp_path / "twin.yaml")


def document(capsys: pytest.CaptureFixture[str], config: str, *more: str) -> dict[str, object]:
    assert vtwin.main(["rollouts", "--config", config, *ASKED, "--json", *more]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)["rollouts"]
    return found


@pytest.mark.parametrize("more", [[], ["--instances", "2"]], ids=["a server", "a cluster"])
def test_the_document_has_every_way(capsys: pytest.CaptureFixture[str], config: str, more: list[str]) -> None:
    found: dict[str, object] = document(capsys, config, "--update-time", "2s", "--batch-share", "0.9", *more)
    plain = found["plain"]
    assert isinstance(plain, dict)
    assert isinstance(found["others"], list)
    assert [(each["way"], each["times"], each["share"]) for each in found["others"]] == [
        ("oversubscribed", 1.1, 1.0),
        ("oversubscribed", 1.25, 1.0),
        ("oversubscribed", 1.5, 1.0),
        ("partial", 1.0, 0.9),
    ]
    assert found["update_us"] == 2_000_000
    ends = [each["end_us"] for each in plain["batches"]]
    assert ends == [each["times_us"]["0.9"] for each in plain["batches"]]
    assert plain["end_us"]["mean"] == pytest.approx(np.mean(ends))
    update = np.mean([2e6 / (2e6 + end) for end in ends])
    assert plain["update_frac"]["mean"] == pytest.approx(update)
    # the 90 % t interval of two values: t of one degree of freedom is 6.314
    assert plain["end_us"]["half_width"] == pytest.approx(6.3138 * abs(ends[0] - ends[1]) / 2, rel=1e-4)


def test_the_table_shows_the_ways_beside_the_plain_batch(
    capsys: pytest.CaptureFixture[str], config: str
) -> None:
    assert vtwin.main(["rollouts", "--config", config, *ASKED, "--oversubscribe", "1.25"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("rollouts    2 batches of 6 prompts x 4 samples (24)")
    firsts = [line.split("  ")[0] for line in lines]
    assert {"plain", "oversubscribed 1.25", "partial, 0.9"} <= set(firsts)
    assert any(line.startswith("seats idle  ") for line in lines)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--samples", "4", "--rate", "2"], "--batch: got nothing, expected the prompts of a batch"),
        ([*ASKED, "--rate", "2"], "--rate: cannot be combined with --batch"),
        ([*ASKED, "--concurrency", "2"], "--concurrency: cannot be combined with --batch"),
        ([*ASKED, "--rounds", "2"], "--rounds: cannot be combined with --batch"),
        ([*ASKED, "--trace", "t"], "--batch: cannot be combined with --trace"),
        ([*ASKED, "--waves", "2"], "--waves: rollouts have none, expected --batches"),
        ([*ASKED, "--report", "p.html"], "No such option '--report'"),
        ([*ASKED, "--set", "engine.max_num_seqs=8,16"], "--set: got 2 variants, expected one server or cluster"),
        ([*ASKED, "--batch-share", "0"], "batch_share: got 0.0, expected a number from 1e-06 to 1"),
        ([*ASKED, "--partial-share", "1.5"], "partial_share: got 1.5, expected a number from 1e-06 to 1"),
        ([*ASKED, "--oversubscribe", "0.5"], "oversubscriptions: got 0.5, expected a number from 1 to 10"),
        ([*ASKED, "--oversubscribe", "x"], "--oversubscribe: got 'x', expected numbers"),
        ([*ASKED, "--update-time", "-1"], "--update-time: got -1, expected seconds >= 0"),
        (["--batch", "6", "--update-time", "30s"], "Missing option '--samples'"),
        ([*ASKED, "--output-tokens-max", "9000", "--output-tokens-min", "8000", "--output-tokens", "8000"], "never"),
        (["--batch", "1000000", "--samples", "100000"], "--batch: got 1.5e+11, expected"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_in_a_line(
    capsys: pytest.CaptureFixture[str], config: str, args: list[str], said: str
) -> None:
    assert vtwin.main(["rollouts", "--config", config, *args]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err.replace("\n", " ")


def test_the_old_spelling_is_read_and_told(capsys: pytest.CaptureFixture[str], config: str) -> None:
    assert vtwin.main(["run", "--config", config, *ASKED, "--json"]) == 0
    captured = capsys.readouterr()
    assert "`vtwin run --samples` is now `vtwin rollouts`" in captured.err
    assert vtwin.main(["rollouts", "--config", config, *ASKED, "--json"]) == 0
    assert capsys.readouterr().out == captured.out


def test_samples_of_a_prompt_are_alike_and_more_of_them_change_none() -> None:
    workload = WorkloadOptions(
        prompt_tokens_stdev=90, prompt_tokens=100, output_tokens=50, output_tokens_stdev=60, seed=3
    )
    few, many = (draw_samples(long_tailed(workload), each=4, number=number, batches=2) for number in (8, 12))
    for one, other in zip(few, many, strict=True):
        assert one.prompt_tokens.tolist() == other.prompt_tokens[:8].tolist()
        assert one.output_tokens.tolist() == other.output_tokens[:8].tolist()
        assert all(len(set(other.prompt_tokens[i : i + 4].tolist())) == 1 for i in (0, 4, 8))
        assert len(set(other.output_tokens.tolist())) > 4
    assert few[0].output_tokens.tolist() != few[1].output_tokens.tolist()
    assert set(few[0].prompt.tolist()).isdisjoint(few[1].prompt.tolist())


def test_a_lognormal_has_the_mean_and_deviation_that_were_asked_for() -> None:
    workload = WorkloadOptions(
        output_tokens=500, output_tokens_stdev=700, output_tokens_min=1, output_tokens_max=200_000, seed=1
    )
    (drawn,) = draw_samples(long_tailed(workload), each=1, number=200_000, batches=1)
    assert drawn.output_tokens.mean() == pytest.approx(500, rel=0.02)
    assert drawn.output_tokens.std() == pytest.approx(700, rel=0.06)
    assert np.median(drawn.output_tokens) < 320
    narrow = WorkloadOptions(
        output_tokens=500, output_tokens_stdev=700, output_tokens_max=600, output_shape="lognormal", rate=1.0
    )
    (note,) = clipping_notes(narrow)
    clipped = float((drawn.output_tokens > 600).mean())
    assert f"about {clipped:.0%} of the output lengths" in note


def test_one_batch_has_no_interval_and_python_asks_the_same(config: str) -> None:
    settings = RolloutSettings(prompts=3, samples=2, batches=1, oversubscriptions=())
    found = run_rollouts(WorkloadOptions(output_tokens=20), load_config(config), settings)
    assert [each.way for each in found.others] == ["partial"]
    assert found.change(found.others[0]).half_width is None
    took = found.full_us(found.plain.batches[0]) / 1e6
    assert str(found).splitlines()[0] == f"plain: {took:.4g} s per 6 answers"
    assert repr(found) == f"<Rollouts: plain: {took:.4g} s per 6 answers>"
    with pytest.raises(ConfigError, match="samples: got 0"):
        RolloutSettings(prompts=3, samples=0)
