"""A twin that its fit calls far is doubted beside every answer of it: in what people read, and in the JSON document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import vtwin
from tests.calibrate.few_resamples import draw_few_resamples
from tests.test_option_ranges import app, commands_under

TWIN = """\
engine: {max_num_seqs: 16, max_num_batched_tokens: 2048, num_gpu_blocks: 2000, max_model_len: 4096}
latency:
  model: blackbox
  coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 8000, beta1: 40, beta2: 60}
  held_out: {date: "2026-11-29", ttft: 0.4, tpot: 0.02, e2e: 0.3, far: [ttft, e2e]}
hardware: H100
"""
GRID = """\
config: twin.yaml
set: {engine.max_num_seqs: [8, 16]}
workloads: {chat: {rate: 8, prompt_tokens: 300, output_tokens: 30, num_requests: 50}}
"""
POOLS = """\
router: length
pools:
  - {name: short, profile: A100, up_to: 512}
  - {name: long, profile: twin.yaml, up_to: 4096}
"""
LENGTHS = "--prompt-tokens 300 --output-tokens 30"
LOAD = f"{LENGTHS} --rate 8 --num-requests 50"
FLEET = "--workload cdf.json --rate 20 --slo ttft_p99=2s --no-verify"
ONE = f"--profile twin.yaml {FLEET}"
ASKED = {
    "run": f"run --config twin.yaml {LOAD}",
    "run of two instances": f"run --config twin.yaml {LOAD} --instances 2",
    "run of several rates": f"run --config twin.yaml {LENGTHS} --sweep 4,8 --num-requests 50",
    "run of several settings": f"run --config twin.yaml {LOAD} --set engine.max_num_seqs=8,16",
    "run of a batch": f"run --config twin.yaml {LENGTHS} --batch 32",
    "replay": "replay a --config twin.yaml",
    "capacity": f"capacity --config twin.yaml {LENGTHS} --num-requests 400 --seeds 2 --slo ttft_p99=500ms",
    "capacity of settings": f"capacity --config twin.yaml {LENGTHS} --num-requests 400 --seeds 2 --slo ttft_p99=500ms "
    "--set engine.max_num_seqs=8,16",
    "capacity of sessions": f"capacity --config twin.yaml {LENGTHS} --sessions --rounds 2 --num-requests 200 "
    "--slo ttft_p99=900ms",
    "tune": f"tune --config twin.yaml {LENGTHS} --num-requests 800 --slo ttft_p99=500ms --max-num-seqs 16 --top 1",
    "sweep": "sweep grid.yaml",
    "compare": "compare a b --twin twin.yaml",
    "fleet size": f"fleet size {ONE}",
    "fleet size simulated": "fleet size --profile twin.yaml --workload cdf.json --rate 20 --slo ttft_p99=2s "
    "--num-requests 1000",
    "fleet size of two pools": f"fleet size --layout split {ONE}",
    "fleet size apart": f"fleet size --layout disagg {ONE}",
    "fleet size of profiles": "fleet size --compare --profile twin.yaml,A100 --workload cdf.json --rate 20 "
    "--slo ttft_p99=2s",
    "fleet size of a file": f"fleet size pools.yaml {FLEET}",
    "fleet split": f"fleet split {ONE}",
    "fleet disagg": f"fleet disagg {ONE}",
    "fleet pools": f"fleet pools pools.yaml {FLEET}",
    "fleet whatif": f"fleet whatif {ONE}",
    "fleet profile": "fleet profile --from twin.yaml --workload cdf.json",
    "fleet routers": "fleet routers --profile twin.yaml --split 300 --workload cdf.json --rate 20 --slo ttft_p99=2s "
    "--no-verify --num-requests 1000",
    "rollouts": "rollouts --config twin.yaml --batch 2 --samples 2 --batches 1 --output-tokens 9",
    "fleet flex": f"fleet flex {ONE}",
    "fleet reserve": "fleet reserve --profile twin.yaml --workload cdf.json --slo ttft_p99=2s --diurnal 20:5 "
    "--burst-price 2x --no-verify",
}
DOUBT = "do not trust this twin yet"
OF_A_TWIN = {"config", "profile", "source", "twin", "grid", "pools"}
"""Parameters that name a twin, or a file that names one."""
NO_ANSWER = {
    "calibrate": "judges the twin itself",
    "calibrate guided": "fits costs",
    "calibrate host": "fits costs",
    "calibrate models": "judges latency models itself",
    "config show": "shows the file, not what it predicts",
    "predictor train": "its profile is measured kernels",
    "observe": "begins a search on the server itself, whose answers count",
    "explore": "tells it beside each answer of its page",
    "serve": "tells it as it starts; its answers are in vLLM's words",
    "trace convert": "its source is a file of another tool",
    "validate": "makes a twin, and judges it",
}
"""Commands with such a parameter that answer nothing from a twin, and why."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    draw_few_resamples(monkeypatch)
    for name, text in {"twin.yaml": TWIN, "grid.yaml": GRID, "pools.yaml": POOLS}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "cdf.json").write_text(json.dumps([[128, 0.1], [512, 0.6], [1024, 1.0]]))
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    """Return what a command prints on stdout and on stderr."""
    capsys.readouterr()
    assert vtwin.main(list(words)) == 0
    found = capsys.readouterr()
    return found.out, found.err


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", ASKED)
def test_a_far_twin_is_doubted_beside_its_answer(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ASKED[name].split()
    for stem in {"a", "b"} & set(words):
        made = ["run", "--config", "twin.yaml", *LOAD.split(), "--output", stem]
        assert vtwin.main(made) == 0
    out, said = told(capsys, *words)
    assert (out + said).count(DOUBT) == (2 if name == "fleet profile" else 1)  # its file has it, too
    out, _ = told(capsys, *words, "--json")
    assert DOUBT in json.dumps(json.loads(out))


@pytest.mark.usefixtures("folder")
def test_a_twin_that_is_near_is_not_doubted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "twin.yaml").write_text(TWIN.replace("[ttft, e2e]", "[]"))
    for name in ("run", "fleet profile", "run of several rates", "sweep"):
        out, said = told(capsys, *ASKED[name].split(), "--json")
        assert "do not trust" not in out + said


def test_every_command_that_takes_a_twin_is_asked() -> None:
    takes = {
        name for name, command in commands_under(app()) if OF_A_TWIN & {each.name for each in command.params}
    }
    asked = {name for name in takes if any(text.startswith(f"{name} ") for text in ASKED.values())}
    assert takes - asked == set(NO_ANSWER)
