"""Every command is a function: both tell the same document on small inputs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calibrate
import replay
import replay.twin
import traces
import vtwin
from calibrate import NamedTrace, Options, ProfileQuery
from replay.model import find_gpu, read_model_config
from tests.calibrate.fit.test_paired_runs import WRONG, observed
from tests.calibrate.fit.test_paired_runs import workload as of_pairs
from tests.calibrate.predictor import made_profiles
from tests.functions.commands_and_functions import ROWS
from tests.functions.small_questions import DRAWN, LENGTHS, LOAD, SLO
from traces.facts import say_json
from traces.workload import WorkloadOptions, trace_from_options

Case = Callable[[], tuple[str, Callable[[], object]]]
"""Returns a command line without ``vtwin``, and what a function says instead."""
COSTS = ("engine_cpu_s", "wall_s", "output", "output_bytes", "command", "created")
"""What a call cost, when and how it was called: nothing that is found."""


# -- the answers ----------------------------------------------------------------------------------------------


def demand(**more: Any) -> replay.FleetDemand:  # noqa: ANN401 - arguments of a function
    return replay.fleet_demand(Path("cdf.json"), SLO, "A100,H100", **more)


FLEET = f"--workload cdf.json --slo {SLO} --profile A100,H100"
BY_FORMULA = replay.FleetCheck(verify=False, num_requests=20_000)


def of_pools() -> tuple[str, Callable[[], object]]:
    words = f"fleet size pools.yaml --workload cdf.json --slo {SLO} --rate 100 --router random --no-verify"
    return words, lambda: replay.size_pools(
        "pools.yaml", Path("cdf.json"), 100.0, SLO, router="random", check=BY_FORMULA
    ).document()


def of_guided() -> tuple[str, Callable[[], object]]:
    plain = of_pairs()
    half = np.random.default_rng(6).random(len(plain)) < 0.5
    traces.write_trace(observed(plain, seed=11), "plain")
    traces.write_trace(observed(plain.with_columns(guided=half), seed=12), "guided")
    Path("wrong.yaml").write_text(replay.dump_config(WRONG))
    read = [traces.read_trace(each) for each in ("plain", "guided")]
    return (
        "calibrate guided guided plain --config wrong.yaml --report r",
        lambda: calibrate.fit_guided(*read, replay.load_config("wrong.yaml"), seed=42).document(),
    )


def of_host() -> tuple[str, Callable[[], object]]:
    for name, seed in (("sync", 21), ("async", 22)):
        traces.write_trace(observed(of_pairs(300), seed=seed), name)
    Path("wrong.yaml").write_text(replay.dump_config(WRONG))
    read = [traces.read_trace(each) for each in ("async", "sync")]
    return (
        "calibrate host sync async --config wrong.yaml --report r",
        lambda: calibrate.fit_host(*read, replay.load_config("wrong.yaml"), seed=42).document(),
    )


def of_models() -> tuple[str, Callable[[], object]]:
    read = calibrate.read_traces([Path("a")], None, [], [])
    return (
        "calibrate models a --config twin.yaml --models blackbox,roofline --report r",
        lambda: calibrate.score_models(
            ["blackbox", "roofline"], read, Path("twin.yaml"), options=Options()
        ).document(),
    )


def of_calibrate() -> tuple[str, Callable[[], object]]:
    read = calibrate.read_traces([Path("a")], Path("b"), [], [])
    assert isinstance(read.simulated, NamedTrace)
    found = calibrate.compare_with_simulated(read.observed[0], read.simulated, Options())
    return (
        "calibrate a --simulated b --report r",
        lambda: calibrate.write_report(found, "s", command="a script"),
    )


def of_training() -> tuple[str, Callable[[], object]]:
    made_profiles.vidur_folder(Path())
    made_profiles.config(Path())
    query = ProfileQuery(shape=read_model_config("config.json"), gpu="A100", tp=2)

    def trained() -> object:
        found = calibrate.train_step_tables([Path("a100")], query, find_gpu("A100"), names=["grid"])
        return {"schema_version": 1, **found.document()}

    return (
        "predictor train --profile a100 --model-config config.json --gpu A100 --tp 2 --output t.json --estimator grid "
        "--no-cache",
        trained,
    )


def of_gpus() -> tuple[str, Callable[[], object]]:
    load = WorkloadOptions(rate=2.0, num_requests=200, prompt_tokens=600, output_tokens=60, seed=1)
    asked = replay.GpuCompareOptions(model_config="Qwen/Qwen3-14B", gpus="H100,L4", seeds=1)
    return (
        f"model compare --model-config Qwen/Qwen3-14B --gpus H100,L4 --seeds 1 --rate 2 --num-requests 200 {LENGTHS} "
        "--seed 1",
        lambda: replay.compare_gpus(load, asked).document(),
    )


def of_rollouts() -> tuple[str, Callable[[], object]]:
    lengths = WorkloadOptions(prompt_tokens=600, output_tokens=60, seed=1)
    settings = replay.RolloutSettings(prompts=2, samples=2, batches=2)
    return (
        f"rollouts --config twin.yaml --batch 2 --samples 2 --batches 2 {LENGTHS} --seed 1",
        lambda: replay.run_rollouts(lengths, "twin.yaml", settings).document(),
    )


def of_sweep() -> tuple[str, Callable[[], object]]:
    return "sweep grid.yaml --output t.parquet", lambda: replay.find_front(
        "grid.yaml", replay.sweep("grid.yaml", jobs=1)
    ).document()


LONG = WorkloadOptions(num_requests=3000, prompt_tokens=600, output_tokens=60, seed=1)
SESSIONS = replace(LONG, num_requests=60, rounds=3)
DOCUMENTS: dict[str, Case] = {
    "run": lambda: (
        f"run --config twin.yaml {DRAWN}",
        lambda: replay.run(trace_from_options(LOAD), "twin.yaml").document(),
    ),
    "replay": lambda: (
        "replay load --config twin.yaml",
        lambda: replay.run(traces.read_trace("load"), "twin.yaml").document(),
    ),
    "capacity": lambda: (
        f"capacity --config twin.yaml --slo {SLO} --num-requests 3000 {LENGTHS} --seed 1 --seeds 1 --no-binding",
        lambda: replay.find_capacity(LONG, "twin.yaml", SLO, seeds=1, with_binding=False).document(),
    ),
    "capacity in sessions": lambda: (
        f"capacity --config twin.yaml --slo {SLO} --num-requests 60 --rounds 3 {LENGTHS} --seed 1 --sessions",
        lambda: replay.find_sessions(SESSIONS, "twin.yaml", SLO).document(),
    ),
    "tune": lambda: (
        f"tune --config twin.yaml --slo {SLO} --num-requests 3000 {LENGTHS} --seed 1 --seeds 1 --top 1 --set "
        "engine.max_num_seqs=16,64",
        lambda: replay.tune(
            LONG, "twin.yaml", SLO, settings=["engine.max_num_seqs=16,64"], keep=1, seeds=1
        ).document(),
    ),
    "sweep": of_sweep,
    "rollouts": of_rollouts,
    "compare": lambda: ("compare a b", lambda: calibrate.compare_files("a", "b").document()),
    "compare with a twin": lambda: (
        "compare a b --twin twin.yaml",
        lambda: calibrate.compare_files("a", "b", twin="twin.yaml").document(),
    ),
    "calibrate": of_calibrate,
    "calibrate guided": of_guided,
    "calibrate host": of_host,
    "calibrate models": of_models,
    "profiles list": lambda: ("profiles list .", lambda: replay.find_profiles([Path()]).document()),
    "profiles show": lambda: ("profiles show good.yaml", lambda: replay.read_profile("good.yaml").document()),
    "profiles check": lambda: (
        "profiles check good.yaml --rate 40 --flags '--max-num-seqs 9 --seed 3'",
        lambda: replay.check_profile(
            "good.yaml", rate_per_s=40, flags="--max-num-seqs 9 --seed 3"
        ).document(),
    ),
    "predictor list": lambda: (
        "predictor list",
        lambda: {
            "schema_version": 1,
            "tables": [each.document() for each in replay.twin.shipped_tables()],
        },
    ),
    "predictor train": of_training,
    "fleet size": lambda: (
        f"fleet size {FLEET} --rate 100 --split 1024 --context 2048 --availability 0.98 --no-verify",
        lambda: replay.size_fleet(
            demand(context=2048, availability=0.98), 100.0, split=1024, check=BY_FORMULA
        ).document(),
    ),
    "fleet size, simulated": lambda: (
        f"fleet size --workload cdf.json --slo {SLO} --profile twin.yaml --rate 8 --num-requests 1000",
        lambda: replay.plan_fleet("cdf.json", 8.0, SLO, "twin.yaml", num_requests=1000).document(),
    ),
    "fleet size --compare": lambda: (
        f"fleet size {FLEET} --rate 100,200",
        lambda: replay.compare_fleets(demand(), [100.0, 200.0]).document(),
    ),
    "fleet size --layout split": lambda: (
        f"fleet size {FLEET} --rate 100 --layout split --compress 1,1.5",
        lambda: replay.split_fleet(demand(), 100.0, factors=[1.0, 1.5]).document(),
    ),
    "fleet size --layout disagg": lambda: (
        f"fleet size {FLEET} --rate 100 --layout disagg --kv-bandwidth 50 --no-verify",
        lambda: replay.disaggregate_fleet(
            demand(), 100.0, links=replay.HandoffLinks(gb_per_s=50), check=BY_FORMULA
        ).document(),
    ),
    "fleet size --layout pools": of_pools,
    "fleet profile": lambda: (
        "fleet profile --from twin.yaml --workload cdf.json",
        lambda: replay.fleet_profile("twin.yaml", workload=Path("cdf.json")).document(),
    ),
    "fleet profile, computed": lambda: (
        "fleet profile --model Qwen/Qwen3-14B --gpu H100 --tp 2",
        lambda: replay.fleet_profile(model="Qwen/Qwen3-14B", gpu="H100", tp=2).document(),
    ),
    "fleet routers": lambda: (
        f"fleet routers {FLEET} --rate 100 --split 1024 --no-verify --num-requests 1000",
        lambda: replay.compare_routers(
            demand(), 100.0, split=1024, check=replay.FleetCheck(verify=False, num_requests=1000)
        ).document(),
    ),
    "fleet flex": lambda: (
        f"fleet flex {FLEET} --rate 100",
        lambda: replay.shed_power(demand(), 100.0).document(),
    ),
    "fleet reserve": lambda: (
        f"fleet reserve {FLEET} --diurnal 100:20 --burst-price 1.8x",
        lambda: replay.reserve_fleet(demand(), "100:20", "1.8x").document(),
    ),
    "model info": lambda: (
        "model info --model-config Qwen/Qwen3-14B --gpu H100 --tp 2",
        lambda: replay.model_card(
            replay.ModelInfoOptions(model_config="Qwen/Qwen3-14B", gpu="H100", tp=2)
        ).document(),
    ),
    "model compare": of_gpus,
    "trace check": lambda: ("trace check a", lambda: traces.check_recorded(Path("a")).document()),
    "trace info": lambda: ("trace info a", lambda: traces.describe_file("a").document()),
}


def named(case: str) -> str:
    """Return the command of a case."""
    return max((command for command in ROWS if case.startswith(command)), key=len)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("case", DOCUMENTS)
def test_the_function_s_document_is_what_the_command_prints(
    case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words, ask = DOCUMENTS[case]()
    capsys.readouterr()
    assert vtwin.main([*shlex.split(words), "--json"]) in (0, 1)
    printed = capsys.readouterr().out
    told: Any = ask()
    capsys.readouterr()
    say_json(told)
    assert found_in(capsys.readouterr().out) == found_in(printed)
    assert words.startswith(named(case))


def found_in(document: str) -> str:
    """Return a document, its keys in their order, without what the call cost."""
    told = json.loads(
        document, object_pairs_hook=lambda pairs: {key: each for key, each in pairs if key not in COSTS}
    )
    return json.dumps(told, indent=1)
