from pathlib import Path

import pytest

import vtwin
from replay.twin.config_read import load_config
from replay.twin.start.from_serve import start_from_serve, twin_text, twin_text_to_fit
from replay.twin.start.launches import Launch
from replay.twin.start.manifests import MOST_INSTANCES, _container, _instances
from replay.twin.start.what_starts import launch_of
from traces import ConfigError

DATA = Path(__file__).parent / "data"
FILES = sorted(DATA.glob("*"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_manifest_gives_the_same_twin_as_text_and_as_a_file(file: Path, tmp_path: Path) -> None:
    text, notes = twin_text(start_from_serve(file.read_text()))
    assert "  max_num_seqs: 64\n" in text
    assert (text, notes) == twin_text(start_from_serve(str(file)))
    assert "notToBeRepeated" not in text + "".join(notes)
    (tmp_path / "twin.yaml").write_text(text)
    assert load_config(tmp_path / "twin.yaml").engine.max_num_seqs == 64


@pytest.mark.parametrize(
    ("file", "model", "instances", "version", "gpus"),
    [
        ("deployment", "meta-llama/Llama-3.1-8B-Instruct", 1, "0.9.2", 1),
        ("stateful_set", "meta-llama/Llama-3.1-8B-Instruct", 3, "0.12.0", 2),
        ("leader_worker_set", "meta-llama/Meta-Llama-3.1-405B-Instruct", 2, "0.8.5", 8),
        ("compose", "meta-llama/Llama-3.1-8B-Instruct", 1, None, 1),
        ("compose_list", "Qwen/Qwen3-8B", 1, "0.10.1", None),
        ("kserve_huggingface", "meta-llama/meta-llama-3-8b-instruct", 2, None, 1),
        ("kserve_runtime", "oci://registry.redhat.io/rhelai1/granite", 1, None, None),
        ("llm_inference_service", "Qwen/Qwen2.5-7B-Instruct", 3, "0.12.0", 2),
        ("production_stack", "meta-llama/Llama-3.1-8B-Instruct", 2, "0.12.0", 1),
        ("llm_d", "Qwen/Qwen3-32B", 2, None, 2),
        ("list", "Qwen/Qwen3-8B", 1, None, None),
    ],
)
def test_what_stands_around_the_command_is_read_too(
    file: str, model: str, instances: int, version: str | None, gpus: int | None
) -> None:
    launch = launch_of(str(DATA / f"{file}.yaml"))
    assert (launch.instances, launch.version, launch.gpus) == (instances, version, gpus)
    assert start_from_serve(str(DATA / f"{file}.yaml")).model == model


def test_replicas_become_instances_and_gpus_are_held_against_the_command() -> None:
    text, notes = twin_text(start_from_serve((DATA / "stateful_set.yaml").read_text()))
    assert text.endswith("cluster:\n  instances: 3\n")
    assert "cluster.instances: 3, as many replicas as the manifest has" in notes
    assert any(note.startswith("the manifest gives each server 2 GPUs, its command uses 1") for note in notes)


def test_a_fit_is_of_one_server_and_replicas_of_several_engines_are_told() -> None:
    text = (DATA / "stateful_set.yaml").read_text()
    start = start_from_serve(text.replace("- --max-model-len=8192", "- --data-parallel-size=2"))
    fitted, notes = twin_text_to_fit(start, gpu=None)
    assert "\ncluster:\n" not in fitted
    assert not any(note.startswith("cluster.instances") for note in notes)
    whole, told = twin_text(start)
    assert "\ncluster:\n  instances: 6\n" in whole
    assert any("3 servers, data_parallel 2: cluster.instances 6" in note for note in told)


def test_two_servers_that_differ_are_told_and_two_alike_are_counted() -> None:
    two = (DATA / "two_pools.yaml").read_text()
    assert any("prefill/a is read, decode/a not" in note for note in launch_of(two).notes)
    alike = two.replace("=128", "=64")
    assert launch_of(alike).instances == 2


def test_a_chart_s_own_keys_are_flags_and_what_it_leaves_out_is_told() -> None:
    stack = (DATA / "production_stack.yaml").read_text()
    engine = start_from_serve(stack).engine
    assert (engine["max_model_len"], engine["enable_chunked_prefill"]) == (4096, False)
    without = stack.replace("      enablePrefixCaching: false\n", "")
    assert start_from_serve(without).engine["enable_prefix_caching"] is False
    assert any("enablePrefixCaching not given" in note for note in launch_of(without).notes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Service\nmetadata: {name: x}\n", "got a manifest of kind Service, in which no vLLM is started"),
        ("kind: RayService\nspec: {serveConfigV2: 'a: 1'}\n", "kind RayService"),
        ("engine: {max_num_seqs: 8}\n", "got a manifest, or other YAML, in which no vLLM is started"),
        ("kind: Deployment\nspec:\n  {{- if x }}\n  replicas: {{ .n }}\n", "got a template of Helm"),
        ("kind: Deployment\nspec: [a\n", "got text that does not parse"),
        ("a: &a [*a]\n", "got an alias to what it stands in"),
        ("---\na: " + "[" * 300, "nested more than 200 deep"),
        ("services:\n  a: {image: nginx, command: run}\n", "no vLLM is started"),
        ("a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
         "d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e]\n", "unfold"),
        ("kind: Pod\nspec: {containers: [{image: 'vllm/vllm-openai:v0.12.0', command: [sleep, inf]}]}\n", "no vLLM is"),
        ("a: 1\na: 2\n", "got the key twice"),
    ],
)  # fmt: skip
def test_yaml_that_starts_no_vllm_is_refused_in_one_line(
    text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vtwin.main(["config", "from-serve", text]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.out == ""
    assert len(shown.err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ("command: [vllm, serve]\n    args: [m, --max-num-seqs, 64]", ["m", "--max-num-seqs", "64"]),
        (
            "args: [--model=m, --enforce-eager, --seed, 1.5]",
            ["--model=m", "--enforce-eager", "--seed", "1.5"],
        ),
        ("args: ['--model m', '--max-num-seqs 64']", ["--model", "m", "--max-num-seqs", "64"]),
        ("args: --model m --max-num-seqs 64", ["--model", "m", "--max-num-seqs", "64"]),
        ("command: [bash, -c]\n    args: ['cd /x && exec vllm serve m 2>&1 | tee log']", ["m"]),
        (
            "command: [python3, -m, vllm.entrypoints.openai.api_server]\n    args: [--model, m]",
            ["--model", "m"],
        ),
        (
            "env: [{name: A, value: m}, {name: B, value: $(A)x}]\n    args: [--model, $(B), '${C:-1}', $(D)]",
            ["--model", "mx", "1", "$(D)"],
        ),
    ],
)
def test_a_container_s_words_are_those_that_kubernetes_would_give_it(node: str, words: list[str]) -> None:
    pod = f"kind: Pod\nspec:\n  containers:\n  - image: vllm/vllm-openai:v0.12.0\n    {node}\n"
    assert list(launch_of(pod).words) == words


def test_what_people_paste_around_a_manifest_is_left_out() -> None:
    pod = (DATA / "deployment.yaml").read_text()
    for pasted in (
        f"kubectl apply -f - <<'EOF'\n{pod}EOF\n",
        f"```yaml\n{pod}```\n",
        f"# mine\n\n---\n{pod}---\n",
    ):
        assert launch_of(pasted).words == launch_of(pod).words


def test_a_number_of_replicas_that_is_none_is_told() -> None:
    text = (DATA / "stateful_set.yaml").read_text().replace("replicas: 3", "replicas: many")
    launch: Launch = launch_of(text)
    assert launch.instances == 1
    assert any("replicas is no number" in note for note in launch.notes)


def test_a_manifest_is_read_in_time_that_grows_with_its_length_alone() -> None:
    pod = "- image: x\n  args: ['--a $(B)']\n  env: [{name: B, value: '" + "$(B)" * 10 + "'}]\n"
    with pytest.raises(ConfigError):
        launch_of(pod * 400)


def test_an_image_is_a_name_and_perhaps_a_tag_apart() -> None:
    for said in (5, "", None, {"tag": "v1"}, {"repository": ""}, ["a"]):
        assert _container({"image": said}, {}) is None
    for node in (
        {"image": "vllm/vllm-openai:v0.10.0"},
        {"image": {"repository": "vllm/vllm-openai", "tag": "v0.10.0"}},
        {"image": {"name": "vllm/vllm-openai", "tag": "v0.10.0"}},
        {"repository": "vllm/vllm-openai", "tag": "v0.10.0"},
    ):
        found = _container(node, {})
        assert found is not None
        assert (found.runs_vllm, found.version) == (True, "0.10.0")


def test_replicas_are_a_number_of_servers_or_one_is_written_and_that_is_said() -> None:
    assert [_instances(each) for each in (None, 1, 2, MOST_INSTANCES)] == [
        (1, ()), (1, ()), (2, ()), (MOST_INSTANCES, ())
    ]  # fmt: skip
    for wrong in (0, -1, True, "2", MOST_INSTANCES + 1):
        number, notes = _instances(wrong)
        assert number == 1
        assert notes[0].startswith("replicas is no number from 1 to")
