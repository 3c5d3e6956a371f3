"""How many engines answer behind one address, by the labels of its metrics."""

from __future__ import annotations

import pytest

from observe.server.engines_behind import engines_behind
from observe.server.prometheus_text import parse_metrics
from observe.server.server_metrics import learn_from_metrics
from traces import ServerInfo


def lines(label: str, *names: str, metric: str = "vllm:num_requests_running", more: str = "") -> str:
    return "".join(f'{metric}{{{label}="{name}"{more}}} 1\n' for name in names)


@pytest.mark.parametrize("label", ["server", "pod", "pod_name", "instance", "worker", "backend"])
def test_a_label_with_several_values_tells_servers_apart(label: str) -> None:
    found = engines_behind(parse_metrics(lines(label, "a", "b", "c")), model="m")
    assert (found.label, found.servers, found.ranks) == (label, ("a", "b", "c"), 1)


def test_one_server_is_one_whatever_its_labels() -> None:
    for text in (
        "",
        lines("server", "a"),
        lines("pod", "a") * 3,
        lines("instance", "a", "b", metric="go_goroutines"),
    ):
        assert engines_behind(parse_metrics(text), model="m").servers == ()


def test_a_server_that_does_not_answer_is_not_counted() -> None:
    text = lines("server", "a", "b", "c") + 'vllm:healthy_pods_total{server="b"} 0\n'
    assert engines_behind(parse_metrics(text), model="m").servers == ("a", "c")


def test_servers_of_another_model_are_not_counted() -> None:
    text = lines("server", "a", "b", more=',model_name="m"') + lines(
        "server", "c", more=',model_name="other"'
    )
    assert engines_behind(parse_metrics(text), model="m").servers == ("a", "b")


def test_ranks_are_counted_by_server() -> None:
    ranks = lines("engine", "0", "1")
    info = learn_from_metrics(ServerInfo(model="m"), parse_metrics(ranks))
    assert (info.data_parallel, info.num_instances, info.num_engines) == (2, None, 2)
    both = lines("engine", "0", "1", more=',server="a"') + lines("engine", "0", "1", more=',server="b"')
    info = learn_from_metrics(ServerInfo(model="m"), parse_metrics(both))
    assert (info.data_parallel, info.num_instances, info.num_engines) == (2, 2, 4)
    assert info.sources["num_instances"] == "/metrics label server"
