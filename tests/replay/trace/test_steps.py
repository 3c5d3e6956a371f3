"""From a trace on disk to the steps on disk: what vLLM's own scheduler was recorded to do, line for line."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pytest
import yaml

import vtwin

RECORDINGS = Path(__file__).parents[2] / "conformance" / "recordings"
CASES = ("07_kv_pressure_cache", "11_full_hit", "12_priority", "13_max_model_len", "15_prompt_over_kv")
NOT_ENGINE = ("policy", "note", "beta0", "beta1", "beta2")


def write_trace_of(case: Path, stem: Path) -> None:
    """Write a recording's requests as a TraceV2 table."""
    rows = [json.loads(line) for line in (case / "trace.jsonl").read_text().splitlines()]
    stem.with_suffix(".yaml").write_text("trace_version: 3\ntime_unit: us\ntool: vtwin\n")
    with stem.with_suffix(".csv").open("w", newline="") as file:
        writer = csv.writer(file)
        names = ("request_id", "arrival_time_us", "input_tokens", "output_tokens")
        writer.writerow([*names, "prefix_group", "prefix_length", "vllm_priority"])
        for number, row in enumerate(rows):
            prefix = row.get("prefix_len") or 0
            lengths = (row["prompt_len"] - prefix, row["output_len"])
            group = row.get("prefix_group")
            writer.writerow(
                [
                    number,
                    row["arrival_us"],
                    *lengths,
                    "" if group is None else group,
                    prefix,
                    row.get("priority", 0),
                ]
            )


def write_config_of(case: Path, path: Path, *, asynchronous: bool) -> None:
    """Write a recording's configuration as TWIN.yaml."""
    recorded = json.loads((case / "config.json").read_text())
    engine = {name: value for name, value in recorded.items() if name not in NOT_ENGINE}
    engine |= {"scheduling_policy": recorded.get("policy", "fcfs"), "async_scheduling": asynchronous}
    zero = dict.fromkeys(("alpha0", "alpha1", "alpha2"), 0)
    coefficients = zero | {name: recorded[name] for name in ("beta0", "beta1", "beta2")}
    path.write_text(
        yaml.safe_dump({"engine": engine, "latency": {"model": "blackbox", "coefficients": coefficients}})
    )


@pytest.mark.parametrize("folder", ["", "async"])
@pytest.mark.parametrize("name", CASES)
def test_the_steps_of_a_replay_are_those_of_vllms_scheduler(tmp_path: Path, name: str, folder: str) -> None:
    case = RECORDINGS / name
    recorded = case / folder / "steps.jsonl.gz"
    if not recorded.exists():
        pytest.skip(f"{name} was not recorded with async scheduling")
    write_trace_of(case, tmp_path / "trace")
    write_config_of(case, tmp_path / "twin.yaml", asynchronous=bool(folder))
    stem, config, steps = (str(tmp_path / part) for part in ("trace", "twin.yaml", "steps.jsonl"))
    output = str(tmp_path / "simulated")
    assert vtwin.main(["replay", stem, "--config", config, "--output", output, "--steps", steps]) == 0

    def without_blocks(line: str | bytes) -> dict[str, object]:
        return {
            key: value for key, value in json.loads(line).items() if key not in ("block_ids", "free_queue")
        }

    with gzip.open(recorded) as lines:
        expected = [without_blocks(line) for line in lines]
    assert [without_blocks(line) for line in Path(steps).read_text().splitlines()] == expected
    simulated, outcomes = (
        [
            row["status"].replace("finished:length", "ok")
            for row in csv.DictReader(path.read_text().splitlines())
        ]
        for path in (tmp_path / "simulated.csv", case / folder / "requests.csv")
    )
    assert simulated == outcomes
