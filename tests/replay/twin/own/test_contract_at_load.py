"""A user's own model is checked when it is loaded, and what goes wrong in a user's file is told with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

import vtwin
from replay import allowing_code, load_config
from traces import ConfigError

OWN = """\
from dataclasses import dataclass
import numpy as np
from sim import LatencyModel
from sim.latency.latency_model import TABULATED
from sim.latency.tabulated import StepTable

@dataclass(frozen=True, slots=True, kw_only=True)
class Mine(LatencyModel):
    entry_us: float = 0.1
    engine_kind = property(lambda self: TABULATED)

    def table(self):
        return StepTable(compute=np.zeros(3), reading=np.zeros(3), rest=np.array([0.0, 9.0, 9.0]), entry=self.entry_us)

    def engine_terms(self):
        return self.table().terms()

    def durations_us(self, batch):
        return np.rint(self.table().durations(batch)).astype(np.int64)
"""
SERVED = (
    'engine: {max_num_seqs: 8, num_gpu_blocks: 100}\nlatency: {model: "own.py:Mine", coefficients: {%s}}\n'
)
ROUTED = """\
engine: {max_num_seqs: 8, num_gpu_blocks: 100}
latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 9, beta1: 0, beta2: 0}}
cluster: {instances: 2, routing: {policy: "own.py:mine"}}
"""


def loaded(folder: Path, code: str, coefficients: str = "") -> None:
    (folder / "own.py").write_text(code)
    (folder / "twin.yaml").write_text(SERVED % coefficients)
    with allowing_code():
        load_config(folder / "twin.yaml")


def test_a_model_that_keeps_the_contract_is_taken(tmp_path: Path) -> None:
    loaded(tmp_path, OWN)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("0.0, 9.0, 9.0", "0.0, 9.0, -9.0", r"Mine\.rest\[2\]: got -9, expected a number of µs >= 0"),
        ("compute=np.zeros(3)", "compute=np.full(3, -1.0)", r"Mine\.compute\[0\]: got -1, expected"),
        ("0.0, 9.0, 9.0", "0.0, 9.0, np.nan", r"Mine\.rest\[2\]: got nan, expected"),
        ("float = 0.1", "float = -0.1", r"Mine\.entry: got -0.1, expected"),
        ("TABULATED)", "7)", r"Mine\.engine_kind: got 7, expected one of 0, 1, 2, 3"),
        (
            "return self.table().terms()",
            "return None",
            r"Mine\.engine_terms\(\): got NoneType, expected a numpy array",
        ),
        (
            ".astype(np.int64)",
            "",
            r"Mine\.durations_us\(\): got 8 values of float64 for 8 steps, expected int64",
        ),
        (
            "np.rint(",
            "0 * np.rint(",
            r"Mine\.durations_us\(\): got 0 µs for a decode step of 1 with 1 tokens each",
        ),
    ],
)
def test_a_model_that_breaks_the_contract_is_refused_with_the_field(
    before: str, after: str, message: str, tmp_path: Path
) -> None:
    assert before in OWN
    with pytest.raises(ConfigError, match=message) as caught:
        loaded(tmp_path, OWN.replace(before, after))
    assert "twin.yaml:2" in str(caught.value)


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("        return self.table().terms()", "        return 1 / 0", 16),
        ("        return np.rint(", "        np.no_such_name\n        return np.rint(", 19),
        ("import numpy as np", "import numpy as np\n1 / 0", 3),
    ],
)
def test_an_exception_in_a_user_s_model_is_the_user_s_with_file_and_line(
    before: str,
    after: str,
    line: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN.replace(before, after))
    (tmp_path / "twin.yaml").write_text(SERVED % "")
    asked = ["run", "--config", "twin.yaml", "--rate", "1", "--num-requests", "2", "--allow-code"]
    assert vtwin.main(asked) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert f"at own.py:{line}" in told
    assert "fault of vtwin" not in told


def test_what_goes_wrong_after_loading_is_the_user_s_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    later = OWN.replace(
        "    def durations_us",
        "    def queue_delay_us(self, tokens):\n        return {}[1]\n\n    def durations_us",
    )
    (tmp_path / "own.py").write_text(later)
    (tmp_path / "twin.yaml").write_text(SERVED % "")
    asked = ["run", "--config", "twin.yaml", "--rate", "1", "--num-requests", "2", "--allow-code"]
    assert vtwin.main(asked) == 2
    (told,) = [each for each in capsys.readouterr().err.splitlines() if "Error" in each]
    assert "KeyError: 1, at own.py:19" in told


def test_a_router_that_fails_names_its_own_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(
        "def mine(fleet, request, time_us):\n    return fleet.no_such_column[0]\n"
    )
    (tmp_path / "twin.yaml").write_text(ROUTED)
    asked = ["run", "--config", "twin.yaml", "--rate", "1", "--num-requests", "2", "--allow-code"]
    assert vtwin.main(asked) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "AttributeError" in told
    assert "at own.py:2" in told
