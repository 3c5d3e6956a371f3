"""What a cluster's run says beyond its means: groups of requests, pathologies, the measured window, other choices."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vtwin
from replay.cluster.pathologies import blocked_times, num_overtaken
from replay.trace.group_summary import jain_fairness

SERVER = """\
engine: {max_num_seqs: 4, max_num_batched_tokens: 512, num_gpu_blocks: 400, max_model_len: 2048%s}
latency: {model: blackbox, coefficients: {alpha0: 200, alpha1: 0, alpha2: 0, beta0: 8000, beta1: 20, beta2: 30}}
"""


def trace_of(folder: Path, columns: dict[str, list[object]]) -> Path:
    """Write a small trace as a user's own table would be converted."""
    table = folder / "mine.csv"
    names = list(columns)
    rows = zip(*columns.values(), strict=True)
    table.write_text("\n".join([",".join(names), *(",".join(map(str, row)) for row in rows)]) + "\n")
    mapping = ",".join(f"{name}={name}:s" if name == "arrival" else f"{name}={name}" for name in names)
    command = [
        "trace",
        "convert",
        str(table),
        "--from",
        "csv",
        "--columns",
        mapping,
        "--output",
        str(folder / "in"),
    ]
    assert vtwin.main(command) == 0
    return folder / "in"


def replayed(
    folder: Path,
    trace: Path,
    config: str,
    *options: str,
    capsys: pytest.CaptureFixture[str],
    as_json: bool = True,
) -> dict[str, object]:
    """Return the document of a replay, or what the terminal shows under ``text``."""
    (folder / "twin.yaml").write_text(config)
    capsys.readouterr()
    command = [
        "replay",
        str(trace),
        "--config",
        str(folder / "twin.yaml"),
        "--output",
        str(folder / "out"),
        *options,
    ]
    assert vtwin.main([*command, *(["--json"] if as_json else [])]) == 0
    out = capsys.readouterr().out
    return json.loads(out) if as_json else {"text": out}  # type: ignore[no-any-return]  # JSON is anything


def requests(n: int, **own: list[object]) -> dict[str, list[object]]:
    """Return the columns of n requests, one every 20 ms, with some of their own."""
    columns: dict[str, list[object]] = {
        "arrival": [0.02 * i for i in range(n)],
        "input": [60] * n,
        "output": [20] * n,
    }
    return columns | own


# -- groups ---------------------------------------------------------------------------------------------------


def test_groups_add_up_and_each_is_its_own_requests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    n = 90
    classes = [("critical", "batch", "")[i % 3] for i in range(n)]
    tenants = [("a", "b")[i % 9 == 0] for i in range(n)]
    trace = trace_of(tmp_path, requests(n, slo_class=classes, tenant_id=tenants))  # type: ignore[arg-type]  # columns
    found = replayed(tmp_path, trace, SERVER % "", capsys=capsys)
    by_column = found["groups"]["by_column"]  # type: ignore[index]  # JSON
    assert set(by_column) == {"slo_class", "tenant_id"}
    assert set(by_column["slo_class"]) == {"critical", "batch", "none"}
    for members in by_column.values():
        assert sum(each["num_requests"] for each in members.values()) == n
        assert sum(each["output_tokens"] for each in members.values()) == 20 * n
    assert [by_column["tenant_id"][name]["num_requests"] for name in "ab"] == [80, 10]
    assert found["groups"]["tenant_jain_fairness"] == pytest.approx(90**2 / (2 * (80**2 + 10**2)))  # type: ignore[index]  # JSON
    weighted = (
        sum(each["num_requests"] * each["e2e_us"]["mean"] for each in by_column["tenant_id"].values()) / n
    )
    assert weighted == pytest.approx(found["e2e_us"]["mean"])  # type: ignore[index]  # JSON
    text = replayed(tmp_path, trace, SERVER % "", capsys=capsys, as_json=False)["text"]
    assert "Jain's fairness of output tokens over tenants" in str(text)


def test_one_group_is_no_group(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = trace_of(tmp_path, requests(5, tenant_id=["a"] * 5))
    groups = replayed(tmp_path, trace, SERVER % "", capsys=capsys)["groups"]
    assert groups == {"by_column": {}, "tenant_jain_fairness": None, "sessions": None}


def test_jains_index_needs_something_to_share() -> None:
    assert jain_fairness(np.array([0, 0])) is None


# -- pathologies ----------------------------------------------------------------------------------------------

times = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 30), st.integers(0, 30), st.integers(0, 3)),
    min_size=1,
    max_size=25,
)


@given(times)
def test_overtaken_requests_are_those_that_a_slow_count_finds(drawn: list[tuple[int, int, int, int]]) -> None:
    queued, wait, _, urgency = (np.array(column, np.int64) for column in zip(*drawn, strict=True))
    scheduled = queued + wait
    slow = sum(
        any(
            urgency[j] > urgency[i] and queued[j] > queued[i] and scheduled[j] < scheduled[i]
            for j in range(len(queued))
        )
        for i in range(len(queued))
    )
    assert num_overtaken(queued, scheduled, urgency) == slow


@given(times, st.integers(1, 4))
def test_blocked_time_is_that_of_a_count_per_microsecond(
    drawn: list[tuple[int, int, int, int]], num_seats: int
) -> None:
    queued, wait, run, _ = (np.array(column, np.int64) for column in zip(*drawn, strict=True))
    scheduled, ended = queued + wait, queued + wait + run
    running = np.array([((scheduled <= t) & (t < ended)).sum() for t in range(120)])
    slow = [(running[q:s] < num_seats).sum() for q, s in zip(queued, scheduled, strict=True)]
    assert list(blocked_times(queued, scheduled, ended, num_seats=num_seats)) == slow


def names_of(found: dict[str, object]) -> list[str]:
    """Return the names of what was found."""
    return [each["name"] for each in found["pathologies"]]  # type: ignore[attr-defined]  # JSON


def test_a_light_even_run_has_nothing_to_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = trace_of(tmp_path, requests(60))
    found = replayed(tmp_path, trace, SERVER % "", "--instances", "2", capsys=capsys)
    assert names_of(found) == []


def test_the_wrong_order_inverts_priorities_and_the_right_one_starves_the_least_urgent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    n = 200
    classes: list[object] = [("background", "critical")[i % 2] for i in range(n)]
    trace = trace_of(tmp_path, requests(n, slo_class=classes))
    inverted = replayed(
        tmp_path, trace, SERVER % ", scheduling_policy: reverse-priority", "--instances", "1", capsys=capsys
    )
    assert "priority inversion" in names_of(inverted)
    kept = replayed(
        tmp_path, trace, SERVER % ", scheduling_policy: priority", "--instances", "1", capsys=capsys
    )
    assert "priority inversion" not in names_of(kept)
    assert "starvation" in names_of(kept)


def test_a_head_without_blocks_holds_up_those_behind_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    n = 40
    inputs: list[object] = [1900 if i % 4 == 0 else 40 for i in range(n)]
    small = SERVER.replace("num_gpu_blocks: 400", "num_gpu_blocks: 130").replace(
        "max_num_seqs: 4", "max_num_seqs: 64"
    )
    trace = trace_of(tmp_path, requests(n, input=inputs, output=[60] * n))
    found = replayed(tmp_path, trace, small % "", "--instances", "1", capsys=capsys)
    assert "head-of-line blocking" in names_of(found)
    roomy = small.replace("num_gpu_blocks: 130", "num_gpu_blocks: 9000").replace("512", "8192")
    assert names_of(replayed(tmp_path, trace, roomy % "", "--instances", "1", capsys=capsys)) == []


def test_a_router_that_piles_up_is_named_with_its_instance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = trace_of(tmp_path, requests(60))
    found = replayed(
        tmp_path, trace, SERVER % "", "--instances", "3", "--routing", "always-busiest", capsys=capsys
    )
    assert "imbalance" in names_of(found)
    stale = (
        SERVER + "cluster: {instances: 3, routing: {policy: least-loaded}, snapshot_interval_us: 2000000}\n"
    )
    text = replayed(tmp_path, trace, stale % "", capsys=capsys, as_json=False)["text"]
    assert isinstance(text, str)


# -- windows and other choices --------------------------------------------------------------------------------


def test_a_window_leaves_the_rest_out_of_the_instances_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = trace_of(tmp_path, requests(100))
    found = replayed(tmp_path, trace, SERVER % "", "--instances", "2", "--measure", "1s:2s", capsys=capsys)
    instances = found["instances"]
    assert sum(each["num_requests"] for each in instances) == 50  # type: ignore[attr-defined]  # JSON
    assert found["measured"]["num_requests"] == 50  # type: ignore[index]  # JSON


def test_other_choices_are_shown_in_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = trace_of(tmp_path, requests(40))
    options = ("--instances", "2", "--counterfactual", "3")
    text = str(replayed(tmp_path, trace, SERVER % "", *options, capsys=capsys, as_json=False)["text"])
    assert "instead of" in text
    assert len([line for line in text.splitlines() if line.startswith("at ")]) == 3


def test_decisions_into_no_folder_are_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = trace_of(tmp_path, requests(5))
    (tmp_path / "twin.yaml").write_text(SERVER % "")
    command = ["replay", str(trace), "--config", str(tmp_path / "twin.yaml"), "--instances", "2"]
    assert (
        vtwin.main(
            [*command, "--output", str(tmp_path / "out"), "--decisions", str(tmp_path / "no" / "d.jsonl")]
        )
        == 2
    )
    assert "expected a folder that exists" in capsys.readouterr().err
    assert not (tmp_path / "out.csv").exists()
