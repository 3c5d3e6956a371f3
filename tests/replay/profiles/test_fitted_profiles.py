"""``vtwin profiles``: a row per fitted twin, its screen, and the way in which a question leaves it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import vtwin

TWIN = """\
vllm_version: "0.24.0"
engine: {max_num_seqs: 64, max_num_batched_tokens: 2048, num_gpu_blocks: 4000, max_model_len: 8192}
latency:
  model: blackbox
  coefficients: {alpha0: 9000, alpha1: 1, alpha2: 0, beta0: 6000, beta1: 20, beta2: 30}
"""
PROFILE = """\
  fitted_range:
    {rate_per_s: [1, 4], prompt_tokens: [10, 900], output_tokens: [1, 200], concurrency: [1, 20], lasting: [1, 3]}
  pace: {within: 0.01, beyond: 0.026}
  held_out: {date: "2026-11-29", ttft: 0.16, tpot: 0.02, e2e: 0.03, far: [ttft]}
  fitted_on:
    model: "meta-llama/Llama-3.1-8B"
    gpu: "H100"
    num_gpus: 2
    tp: 2
    vllm_version: "0.24.0"
    flags: {max_num_batched_tokens: 2048, async_scheduling: true}
    noise: {e2e: 0.021}
    loads:
      - {name: "low", role: fitted, num_requests: 300, rate_per_s: 1.0, concurrency: 3.2, ttft: 0.1, e2e: 0.02}
      - {name: "high", role: held out, num_requests: 400, rate_per_s: 4.0, e2e: 0.03}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a profile, a twin that nobody fitted, an older fit and a broken one below it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text(TWIN + PROFILE)
    (tmp_path / "plain.yaml").write_text(TWIN)
    (tmp_path / "grid.yml").write_text("workloads: {a: {rate: 4}}\n")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "old.yaml").write_text(TWIN + "  held_out: {e2e: 0.2}\n")
    (tmp_path / "below" / "broken.yaml").write_text(TWIN + "  held_out: {e2e: many}\n")
    return tmp_path


def asked(*words: str) -> int:
    return vtwin.main(["profiles", *words])


def test_the_list_has_a_row_for_each_fitted_twin(capsys: pytest.CaptureFixture[str]) -> None:
    assert asked("list") == 0
    told = capsys.readouterr()
    head, old, good = (line.split() for line in told.out.splitlines())
    assert head[:4] == ["file", "model", "GPU", "tp"]
    assert old == ["below/old.yaml", "-", "-", "-", "-", "-", "20.0", "%", "-", "no"]
    assert " ".join(good) == (
        "good.yaml meta-llama/Llama-3.1-8B 2 x H100 2 0.24.0 1 to 4/s 3.0 % 2026-11-29 not its TTFT"
    )
    assert told.out.splitlines()[0].startswith("file            model                    GPU ")
    assert told.err.splitlines() == [
        'warning: left out: latency.held_out.e2e: got "many", expected a fraction >= 0 (below/broken.yaml:6)'
    ]


def test_the_list_for_programs_and_of_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asked("list", "good.yaml", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)["profiles"]
    assert (row["fitted_on"]["gpu"], row["e2e_error"], row["trust"]) == ("H100", 0.03, "not its TTFT")
    (tmp_path / "empty").mkdir()
    assert asked("list", "empty") == 0
    assert "no fitted twin here" in capsys.readouterr().out
    assert asked("list", "nowhere") == 2
    assert "FOLDER: got nowhere, expected a folder" in capsys.readouterr().err
    for inside, shown in ((".", "below/old.yaml"), ("empty", f"{tmp_path}/below/old.yaml")):
        monkeypatch.chdir(tmp_path / inside)
        assert asked("list", str(tmp_path)) == 0
        assert capsys.readouterr().out.splitlines()[1].startswith(f"{shown} ")


def test_a_carried_twin_is_trusted_as_far_as_its_pace(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    text = PROFILE.replace("far: [ttft]", "far: []").replace(
        "within: 0.01, beyond: 0.026", "within: 0.12, beyond: 0.2"
    )
    for name, more, trust in (("own", "", "means"), ("made", "    carried_from: an H100\n", "carried, ±12%")):
        (here / f"{name}.yaml").write_text(TWIN + text + more)
        assert asked("list", f"{name}.yaml") == 0
        assert capsys.readouterr().out.splitlines()[1].endswith(f"  {trust}")


@pytest.mark.parametrize(
    ("far", "trust", "doubt"),
    [
        ("far: [], far_p99: []", "means and p99", "trust: means and p99"),
        (
            "far: [], far_p99: [ttft]",
            "means, not p99",
            "do not trust this twin's p99 of TTFT: it was off by more",
        ),
        (
            "far: [], tpot_p99: 0.27",
            "means, not p99",
            "do not trust this twin's p99 of TPOT: it was off by more",
        ),
        ("far: [], far_p99: [], tpot_p99: 0.27", "means and p99", "trust: means and p99"),
        ("far: [ttft], far_p99: [ttft]", "not its TTFT", "do not trust this twin's TTFT: "),
        ("far: [ttft], far_p99: [tpot]", "not its TTFT, nor p99", "do not trust this twin's TTFT: "),
    ],
)
def test_a_p99_that_is_far_off_stands_beside_no_plain_yes(
    capsys: pytest.CaptureFixture[str], here: Path, far: str, trust: str, doubt: str
) -> None:
    (here / "p99.yaml").write_text(TWIN + PROFILE.replace("far: [ttft]", far))
    assert asked("list", "p99.yaml") == 0
    assert capsys.readouterr().out.splitlines()[1].endswith(f"  {trust}")
    assert asked("show", "p99.yaml") == 0
    *others, last = capsys.readouterr().out.splitlines()
    assert last.startswith(doubt)
    told = "from run to run the twin's error changes the p99 by up to TPOT 27.0 %"
    assert (told in others) is ("tpot_p99" in far)
    assert asked("show", "p99.yaml", "--json") == 0
    assert json.loads(capsys.readouterr().out)["trust"] == trust


SCREEN = """\
twin          good.yaml (blackbox)
fitted on     meta-llama/Llama-3.1-8B on H100, tp 2, vLLM 0.24.0
GPUs          2 of one engine
on            2026-11-29
flags         max_num_batched_tokens 2048, async_scheduling true
load          1 to 4 requests/s
prompts       10 to 900 tokens
outputs       1 to 200 tokens
concurrency   1 to 20 running
noise         two runs of one load differ per request by E2E 2.1 %

mean error per request, by load:
run               requests  req/s  in flight  prompt  output    TTFT  TPOT    E2E
low   fitted           300      1        3.2       -       -  10.0 %     -  2.0 %
high  held out         400      4          -       -       -       -     -  3.0 %

held out: TTFT 16%, TPOT 2%, E2E 3% per request, on requests that the twin's fit had not seen
inside of the fit all steps together may be 1.0 % longer or shorter, beyond it 2.6 %, nine times of ten
do not trust this twin's TTFT: its errors were TTFT 16%"""
OF_NOBODY = """\
twin          made.yaml (auto)
fitted on     a model that nobody named on a GPU that nobody named, a version of vLLM that nobody told
made from     the twin of an H100, with few requests of its own

trust: not known
"""


def test_the_screen_says_what_it_was_fitted_on_and_how_it_degrades(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    assert asked("show", "good.yaml") == 0
    assert capsys.readouterr().out.startswith(SCREEN)
    (here / "made.yaml").write_text("latency:\n  fitted_on: {carried_from: an H100, num_gpus: 1}\n")
    assert asked("show", "made.yaml") == 0
    assert capsys.readouterr().out == OF_NOBODY


def test_the_document_of_a_profile_is_its_file_s(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "bare.yaml").write_text("latency:\n  fitted_on: {}\n")
    (here / "dated.yaml").write_text('latency:\n  held_out: {date: "2026-11-29", far: []}\n')
    of = {}
    for name in ("good", "bare", "dated"):
        assert asked("show", f"{name}.yaml", "--json") == 0
        of[name] = json.loads(capsys.readouterr().out)
    assert of["good"]["pace"] == {"within": 0.01, "beyond": 0.026}
    assert of["good"]["fitted_range"]["rate_per_s"] == [1, 4]
    assert (of["good"]["held_out"]["ttft"], of["good"]["e2e_error"]) == (0.16, 0.03)
    assert [of["bare"][key] for key in ("pace", "fitted_range", "held_out")] == [None] * 3
    assert [of[name]["trust"] for name in of] == ["not its TTFT", "not known", "means"]
    assert [of[name]["latency_model"] for name in of] == ["blackbox", "auto", "auto"]


def test_a_question_inside(capsys: pytest.CaptureFixture[str]) -> None:
    flags = "--max-num-seqs 256 --max-num-batched-tokens 1024"
    load = ("--rate", "4", "--input-len", "900", "--output-len", "200", "--concurrency", "20")
    server = ("--model", "Llama-3.1-8B", "--gpu", "h100", "--tp", "2", "--vllm-version", "0.24.9")
    assert asked("check", "good.yaml", *load, *server, "--flags", flags) == 0
    assert capsys.readouterr().out == "inside: meta-llama/Llama-3.1-8B on H100, tp 2, vLLM 0.24.0\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--model", "Qwen/Qwen3-8B"), "model Qwen/Qwen3-8B, fitted on meta-llama/Llama-3.1-8B"),
        (("--gpu", "H200"), "GPU H200, fitted on H100"),
        (("--flags", "--tensor-parallel-size 4"), "tp 4, fitted on 2"),
        (("--vllm-version", "0.32.0"), "vLLM 0.32.0, fitted on 0.24.0"),
        (("--rate", "8"), "load by a factor 2.0 (8 requests/s, fitted up to 4)"),
        (
            ("--rate", "4"),
            "load: 4 requests/s; above 3 a long run may have more requests at once than were fitted",
        ),
        (("--concurrency", "40"), "concurrency by a factor 2.0 (40 running, fitted up to 20)"),
        (("--input-len", "1800"), "prompts by a factor 2.0 (1800 tokens, fitted up to 900)"),
        (("--output-len", "400"), "outputs by a factor 2.0 (400 tokens, fitted up to 200)"),
        (("--flags", "--no-async-scheduling"), "async_scheduling false, fitted with true"),
        (
            ("--flags", "--enforce-eager"),
            "enforce_eager true: the file does not say what it was fitted with",
        ),
        (("--flags", "--kv-cache-dtype fp8"), "kv_cache_dtype fp8, fitted with auto"),
        (("--flags", "-O3 --port 1"), "--optimization-level: the file does not say what it was fitted with"),
    ],
)
def test_a_question_that_leaves(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    assert asked("check", "good.yaml", *words) == 1
    assert capsys.readouterr().out.splitlines() == [told]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("--flags", "--max-num-batched-tokns 8"),
            "got --max-num-batched-tokns, expected flags of `vllm serve`",
        ),
        (("--flags", "--max-num-batched-tokns 8"), "the nearest is --max-num-batched-tokens"),
        (("--flags", "max-num-seqs 8"), "--flags: got 2 words behind no flag that takes them"),
        (("--gpu", "Foo"), "--gpu: got 'Foo', expected a GPU of the table ("),
        (("--vllm-version", "newest"), "--vllm-version: got 'newest', expected a version"),
    ],
)
def test_what_nobody_knows_is_refused(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    assert asked("check", "good.yaml", *words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


def test_a_rate_is_inside_only_if_the_file_says_how_many_run_at_it(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    (here / "older.yaml").write_text(TWIN + PROFILE.replace(", lasting: [1, 3]", ""))
    assert asked("check", "older.yaml", "--rate", "4") == 1
    assert "how many requests run at once at a rate" in capsys.readouterr().out
    assert asked("check", "older.yaml", "--rate", "4", "--concurrency", "20") == 0


def test_several_ways_out_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert asked("check", "good.yaml", "--gpu", "H200", "--rate", "8", "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["is_inside"], len(document["leaves"])) == (False, 2)


def test_what_a_file_does_not_say_is_no_yes(capsys: pytest.CaptureFixture[str]) -> None:
    assert asked("check", "below/old.yaml", "--gpu", "H100", "--rate", "1") == 1
    assert capsys.readouterr().out.splitlines() == [
        "GPU H100: the file does not say which GPU it was fitted on",
        "rates: the file does not say which it was fitted on",
        "load: the file does not say how many requests run at once at a rate; ask with --concurrency, too",
    ]
    assert asked("check", "good.yaml", "--gpu", "h100-sxm", "--rate", "3.05") == 0


def test_a_twin_that_nobody_fitted_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert asked("check", "plain.yaml") == 2
    assert "plain.yaml: got a file without latency.fitted_on" in capsys.readouterr().err
