"""``cluster:`` of TWIN.yaml: what is read, what is refused, and the one table of its keys."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from replay.cluster.memory import check_memory
from replay.twin.config_read import load_config
from replay.twin.config_write import dump_config
from replay.twin.keys.cluster_keys import CLUSTER, cluster_keys
from replay.twin.keys.key import holders_of, names_under, said_of
from replay.twin.twin_config import TwinConfig, with_cluster
from sim import Blackbox, EngineConfig
from sim.cluster.cluster_config import ClusterConfig, Pool
from sim.cluster.gateway.admission import ADMISSION_POLICIES
from sim.cluster.infrastructure.infrastructure_config import Retries
from sim.cluster.routing.routing_policies import ROUTING_POLICIES
from traces.errors import ConfigError
from vtwin import main

SERVER = """\
engine: {max_num_seqs: 16, max_num_batched_tokens: 512, num_gpu_blocks: 300, max_model_len: 4096}
latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 5000, beta1: 20, beta2: 31}}
"""
POOLS = (
    "{name: a, instances: 2}, {name: b, engine: {max_num_seqs: 8}, latency: {coefficients: {beta0: 9000}}}"
)
SPLIT = "[{name: p, role: prefill}, {name: d, role: decode, instances: 2}]"


def load(tmp_path: Path, text: str) -> TwinConfig:
    path = tmp_path / "twin.yaml"
    path.write_text(SERVER + text)
    return load_config(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{replicas: 2}", "cluster.replicas: unknown key, did you mean cluster."),
        ("{instance: 2}", "cluster.instance: unknown key, did you mean cluster.instances? (FILE:3)"),
        ("{instances: 0}", "cluster.instances: got 0, expected an integer >= 1 (FILE:3)"),
        ("{instances: 1000000000}", "cluster.instances: got 1000000000, expected at most 100,000 (FILE:3)"),
        (
            "{instances: 2, pools: [{}]}",
            "cluster.instances: cannot be combined with pools",
        ),
        ("{pools: []}", "cluster.pools: got none, expected a list of at least one (FILE:3)"),
        (
            "{pools: [{nam: a}]}",
            "cluster.pools[0].nam: unknown key, did you mean cluster.pools[0].name? (FILE:3)",
        ),
        (
            "{pools: [{name: a}, {name: a}]}",
            "cluster.pools: got 'a' twice, expected different names (FILE:3)",
        ),
        (
            "{pools: [{engine: {max_num_seq: 3}}]}",
            "engine.max_num_seq: unknown key, did you mean engine.max_num_seqs? (FILE:3)",
        ),
        (
            "{pools: [{role: prefil}]}",
            'cluster.pools[0].role: got "prefil", expected one of shared, prefill, decode (FILE:3)',
        ),
        (
            "{pools: [{name: p, role: prefill}]}",
            "cluster.pools: got role prefill without decode, expected both or neither (FILE:3)",
        ),
        (
            "{disaggregation: {decider: always}}",
            "cluster.disaggregation: got it without prefill and decode pools, expected none (FILE:3)",
        ),
        (
            f"{{pools: {SPLIT}}}",
            "cluster.disaggregation: got nothing, expected kv_bytes_per_token, an integer, or a latency.model_config",
        ),
        (
            f"{{pools: {SPLIT}, disaggregation: {{kv_base_latency_us: 1}}}}",
            "cluster.disaggregation.kv_bytes_per_token: got nothing, expected kv_bytes_per_token, an integer",
        ),
        (
            f"{{pools: {SPLIT}, disaggregation: {{kv_bandwidth: 1}}}}",
            "cluster.disaggregation.kv_bandwidth: unknown key, did you mean "
            "cluster.disaggregation.kv_bandwidth_gbps? (FILE:3)",
        ),
        (
            f"{{pools: {SPLIT}, disaggregation: {{decider: maybe, kv_bytes_per_token: 9}}}}",
            "cluster.disaggregation.decider: got 'maybe', expected one of always, never, prefix-threshold (FILE:3)",
        ),
        (
            f"{{pools: {SPLIT}, disaggregation: {{kv_bandwidth_gbps: 0, kv_bytes_per_token: 9}}}}",
            "cluster.disaggregation.kv_bandwidth_gbps: got 0, expected a number > 0 (FILE:3)",
        ),
        (
            f"{{pools: {SPLIT}, disaggregation: {{prefill_routing: {{policy: robin}}, kv_bytes_per_token: 9}}}}",
            "cluster.disaggregation.prefill_routing.policy: got 'robin', expected one of round-robin",
        ),
        (
            "{autoscaler: {}}",
            "cluster.autoscaler.max_instances: got nothing, expected an integer >= 1 (FILE:3)",
        ),
        (
            "{routing: {policy: robin}}",
            "cluster.routing.policy: got 'robin', expected one of round-robin, random",
        ),
        (
            "{routing: random}",
            'cluster.routing: got "random", expected a mapping with a policy, {policy: round-robin} (FILE:3)',
        ),
        ("{routing: {}}", "cluster.routing.policy: got nothing, expected one of round-robin"),
        (
            "{routing: {policy: weighted, scorer: {}}}",
            "cluster.routing.scorer: unknown key, did you mean cluster.routing.scorers? (FILE:3)",
        ),
        (
            "{routing: {policy: random, owner: creator}}",
            "cluster.routing.owner: unknown with policy random, expected no setting (FILE:3)",
        ),
        (
            "{routing: {policy: weighted, scorers: {prefix: 1}}}",
            "cluster.routing.scorers: got 'prefix', expected one of prefix-affinity",
        ),
        (
            "{routing: {policy: 'no.py:f'}}",
            "cluster.routing.policy: got no.py:f (code of its own), expected --allow-code",
        ),
        (
            "{snapshot_interval_us: -1}",
            "cluster.snapshot_interval_us: got -1, expected an integer >= 0 (FILE:3)",
        ),
        (
            "{snapshot_interval_us: {queues: 1}}",
            "cluster.snapshot_interval_us.queues: unknown key, did you mean cluster.snapshot_interval_us.queue?",
        ),
        (
            "{snapshot_interval_us: {kv: -1}}",
            "cluster.snapshot_interval_us.kv: got -1, expected an integer >= 0 (FILE:3)",
        ),
        (
            "{admission: {policy: token-bucket, capacity: 10}}",
            "cluster.admission.refill_per_s: got nothing, expected it with policy token-bucket (FILE:3)",
        ),
        (
            "{latency: {routing_us: x}}",
            "cluster.latency.routing_us: got 'x', expected an integer >= 0 (FILE:3)",
        ),
        (
            "{flow_control: {order: lifo}}",
            "cluster.flow_control.order: got 'lifo', expected one of fifo, priority",
        ),
        (
            "{flow_control: {slo_targets_us: }}",
            "cluster.flow_control.slo_targets_us: got nothing, expected a mapping (FILE:3)",
        ),
        (
            "{autoscaler: {schedule: [{at: 1}]}}",
            "cluster.autoscaler.schedule[0].at: unknown key, did you mean cluster.autoscaler.schedule[0].at_us?",
        ),
        ("{slo_priorities: {gold: 1000}}", "cluster.slo_priorities.gold: got 1000, expected an integer in"),
    ],
)
def test_a_wrong_key_is_one_line_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, f"cluster: {text}\n")
    said = str(caught.value).replace(str(tmp_path / "twin.yaml"), "FILE")
    assert said.startswith(message)
    assert "\n" not in said
    assert said.endswith("(FILE:3)")


@pytest.mark.parametrize(
    "text",
    [
        "{instances: 4}",
        f"{{pools: [{POOLS}]}}",
        "{instances: 2, routing: {policy: weighted, scorers: {prefix-affinity: 3, queue-depth: 2}}}",
        "{instances: 2, routing: {policy: 'statistics:mean'}}",
        "{instances: 2, snapshot_interval_us: {queue: 5000}, latency: {admission_us: 3}, slo_priorities: {gold: 9}}",
        "{instances: 2, admission: {policy: tenant-budget, budgets: {a: 0.5}}, flow_control: {ttl_us: 100}}",
        "{instances: 2, lockstep: true, routing: {policy: vllm-dp}}",
    ],
)
def test_a_cluster_written_out_reads_as_the_same(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VTWIN_ALLOW_CODE", "1")
    config = load(tmp_path, f"cluster: {text}\n")
    (tmp_path / "again.yaml").write_text(dump_config(config))
    assert load_config(tmp_path / "again.yaml") == config


def test_a_pool_has_the_top_level_but_for_its_own_keys(tmp_path: Path) -> None:
    config = load(tmp_path, f"cluster: {{pools: [{POOLS}]}}\n")
    a, b = config.cluster.pools
    assert (config.engine, config.latency) == (a.engine, a.latency)
    assert (a.engine.max_num_seqs, b.engine.max_num_seqs) == (16, 8)
    assert b.engine.max_num_batched_tokens == 512
    assert (a.latency.beta0, b.latency.beta0, b.latency.beta1) == (5000, 9000, 20)  # type: ignore[attr-defined]


def test_options_take_the_place_of_the_file(tmp_path: Path) -> None:
    config = load(tmp_path, "cluster: {instances: 4, latency: {routing_us: 3}}\n")
    changed = with_cluster(config, instances=2, routing="power-of-two").cluster
    assert (changed.num_instances, changed.routing.name, changed.latency.routing_us) == (2, "power-of-two", 3)
    assert with_cluster(load(tmp_path, ""), instances=None, routing=None).is_plain_server
    one = with_cluster(load(tmp_path, ""), instances=1, routing=None)
    assert not one.is_plain_server
    assert one.cluster == load(tmp_path, "").cluster
    with pytest.raises(ConfigError, match="--routing: got 'best', expected one of round-robin"):
        with_cluster(config, instances=None, routing="best")
    pools = load(tmp_path, f"cluster: {{pools: [{POOLS}]}}\n")
    with pytest.raises(ConfigError, match="--instances: got a file with 2 pools"):
        with_cluster(pools, instances=2, routing=None)


def test_decisions_without_a_cluster_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "twin.yaml").write_text(SERVER)
    arguments = [
        "run",
        "--config",
        str(tmp_path / "twin.yaml"),
        "--output",
        str(tmp_path / "out"),
        "--rate",
        "1",
    ]
    assert main([*arguments, "--decisions", "d.jsonl"]) == 2
    assert "--decisions: got it without a cluster" in capsys.readouterr().err
    assert main([*arguments, "--instances", "2", "--decisions", "d.csv"]) == 2
    assert "--decisions: got d.csv, expected a name that ends in .jsonl" in capsys.readouterr().err


NOT_SAID = {
    "": {
        "compatibility",
        "seed",
        "engine",
        "prefill_routing",
        "name",
        "role",
    },  # of other sections, and of pools
    "routing": {"choose"},  # what `policy` names
    "pools": set[str](),
}


def test_every_setting_of_the_simulator_has_a_key() -> None:
    holders = {**holders_of(Pool), **holders_of(ClusterConfig), "": (ClusterConfig, Pool)}
    for path in ("", "pools", *{name.rpartition(".")[0] for name in CLUSTER} - {"", "pools"}):
        settings = {item.name for cls in holders[path] for item in fields(cls)} - NOT_SAID.get(path, set())
        known = set(names_under(path, CLUSTER)) - {"policy", "prefill_routing"}
        of_pool = {"hardware"} if path == "pools" else set()
        assert known == (settings | of_pool) - {"policy"}, path


def test_a_default_that_is_said_as_a_number_is_the_simulators() -> None:
    kinds = {key.path: key.kind for key in cluster_keys()}
    holders = {**holders_of(Pool), **holders_of(ClusterConfig), "": (ClusterConfig, Pool)}
    said = {name: said_of(saying).default for name, saying in CLUSTER.items()}
    numbers = {name: default for name, default in said.items() if default and default[0].isdecimal()}
    checked = {name for name in numbers if kinds[f"cluster.{name}"] == "number"}
    assert len(checked) == 7
    for name in checked:
        above, _, own = name.rpartition(".")
        field = next(item for cls in holders[above] for item in fields(cls) if item.name == own)
        assert float(numbers[name]) == field.default


def test_policies_and_bounds_of_the_table_are_the_simulators() -> None:
    table = {key.path: key for key in cluster_keys()}
    assert table["cluster.routing.policy"].choices == (*ROUTING_POLICIES, "module:attribute")
    assert table["cluster.admission.policy"].choices == tuple(ADMISSION_POLICIES)
    assert table["cluster.flow_control.order"].choices[0] == "priority"
    least = {
        name: table[f"cluster.{name}"].least for name in ("instances", "retries.max_attempts", "lockstep")
    }
    assert least == {"instances": 1, "retries.max_attempts": 2, "lockstep": 0}


@pytest.mark.parametrize(
    ("cluster", "complaint"),
    [
        (
            "{retries: {max_attempts: 1000000000}}",
            "cluster.retries.max_attempts: got 1000000000, expected 2 to 1,000",
        ),
        ("{routing: {policy: []}}", "cluster.routing.policy: got \\[\\], expected one of"),
        ("{routing: {policy: {a: 1}}}", "cluster.routing.policy: got {'a': 1}, expected one of"),
        ("{admission: {policy: 7}}", "cluster.admission.policy: got 7, expected one of"),
        (
            "{autoscaler: {policy: target, target: 1, interval_us: 1}}",
            "cluster.autoscaler.interval_us: got 1, expected 1,000 to",
        ),
        (
            "{autoscaler: {policy: schedule, schedule: [{at_us: 0, instances: 1}], repeat_us: 1}}",
            "cluster.autoscaler.repeat_us: got 1, expected 1,000 to",
        ),
        (
            "{pools: [{name: p, role: prefill}, {name: d, role: decode}], disaggregation: {kv_bandwidth_gbps: 1.0e-8}}",
            "cluster.disaggregation.kv_bandwidth_gbps: got 1.0e-8, expected 0.001 to",
        ),
        (
            "{pools: [{name: p, role: prefill}, {name: d, role: decode}], "
            "disaggregation: {kv_bytes_per_token: 1000000000000000}}",
            "cluster.disaggregation.kv_bytes_per_token: got 1000000000000000, expected 1 to 100,000,000",
        ),
        ("{instances: 2, failures: {mtbf_us: 1}}", "cluster.failures.mtbf_us: got 1, expected 1,000 to"),
    ],
)
def test_a_setting_that_would_run_for_ever_or_take_all_memory_is_refused(
    tmp_path: Path, cluster: str, complaint: str
) -> None:
    path = tmp_path / "twin.yaml"
    path.write_text(f"{SERVER}cluster: {cluster}\n")
    with pytest.raises(ConfigError, match=complaint):
        load_config(path)


def test_memory_is_asked_for_before_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = EngineConfig(num_gpu_blocks=1_000_000)
    pool = Pool(engine=engine, latency=Blackbox(), instances=500)
    cluster = ClusterConfig(pools=(pool,), retries=Retries(max_attempts=10))
    monkeypatch.setattr("traces.strict.free_memory.free_memory", lambda: 13 << 30)
    check_memory(cluster, num_requests=100_000)
    with pytest.raises(
        ConfigError, match="got 1,000,000 requests, each sent up to 10 times, and 500 instances, which"
    ):
        check_memory(cluster, num_requests=1_000_000)


@pytest.mark.parametrize("command", ["run", "capacity"])
def test_every_command_that_simulates_a_cluster_asks_for_its_memory(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "twin.yaml"
    path.write_text(SERVER)
    monkeypatch.setattr("traces.strict.free_memory.free_memory", lambda: 1 << 20)
    load = {"run": ["--rate", "5"], "capacity": ["--slo", "ttft_p99=1s"]}[command]
    lengths = ["--prompt-tokens", "20", "--output-tokens", "2", "--num-requests", "20"]
    assert main([command, "--config", str(path), "--instances", "90", *load, *lengths]) == 2
    assert "got 20 requests and 90 instances, which take about" in " ".join(capsys.readouterr().err.split())
