import time
from pathlib import Path

import pytest

import vtwin
from replay.twin.start.container_tags import read_container_name, version_of_package
from replay.twin.start.from_serve import named, start_from_serve, twin_text
from replay.twin.start.serve_flags import parse_serve
from replay.twin.start.shell_words import shell_commands
from replay.twin.start.what_starts import launch_of
from traces import ConfigError

SAID = "m --max-num-seqs 64"


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.12.0", "0.12.0"),
        ("vllm/vllm-openai:v0.11.2-x86_64", "0.11.2"),
        ("registry:5000/vllm/vllm-openai:v0.10.1", "0.10.1"),
        ("vllm/vllm-openai:v0.12.0@sha256:00ff", "0.12.0"),
        ("vllm/vllm-openai:v0.10.1.1", "0.10.1.1"),
        ("public.ecr.aws/deep-learning-containers/vllm:0.11.2-gpu-py312", "0.11.2"),
        ("rocm/vllm:rocm6.4.1_vllm_0.9.1_20250715", "0.9.1"),
        ("vllm/vllm-openai:latest", None),
        ("vllm/vllm-openai:nightly-0a1b2c", None),
        ("vllm/vllm-openai@sha256:00ff", None),
        ("registry:5000/vllm/vllm-openai", None),
        ("nvcr.io/nvidia/vllm:25.09-py3", None),
        ("lmcache/vllm-openai:v0.3.7", None),  # LMCache counts its own
        ("ghcr.io/llm-d/llm-d-cuda:v0.3.0", None),
        ("pytorch/pytorch:0.4.1", None),
    ],
)
def test_an_image_s_tag_says_the_version_or_nothing(image: str, version: str | None) -> None:
    found = read_container_name(image)
    assert found.version == version
    assert (found.note() is None) is (version is not None)


@pytest.mark.parametrize(
    ("command", "version"),
    [
        (f"docker run --gpus all -p 8000:8000 -e A=b --name vllm-openai vllm/vllm-openai:v0.12.0 {SAID}", "0.12.0"),
        (f"docker run --rm -it vllm/vllm-openai:v0.12.0-x86_64 --model {SAID}", "0.12.0"),
        (f"sudo podman run --tls-verify --device=x registry:5000/vllm/vllm-openai:v0.13.0 --model {SAID}", "0.13.0"),
        (f"docker run --entrypoint bash vllm/vllm-openai:v0.12.0 -c 'cd / && vllm serve {SAID}'", "0.12.0"),
        ("docker run -e M=m vllm/vllm-openai:v0.12.0 bash -c 'vllm serve $M --max-num-seqs 64'", "0.12.0"),
        (f"srun --container-image=vllm/vllm-openai:v0.12.0 bash -lc 'exec vllm serve {SAID} > log 2>&1'", "0.12.0"),
        (f"pip install vllm==0.12.0 && vllm serve {SAID}", "0.12.0"),
        (f"uvx vllm@0.12.0 serve {SAID}", "0.12.0"),
        (f"apptainer run docker://vllm/vllm-openai:v0.12.0 vllm serve {SAID}", "0.12.0"),
        (f"vllm serve {SAID}", None),
    ],
)  # fmt: skip
def test_the_version_is_found_where_the_command_has_it(command: str, version: str | None) -> None:
    served = parse_serve(command)
    assert (served.model, served.engine) == ("m", {"max_num_seqs": 64})
    assert served.version == version


def test_a_version_of_one_s_own_wins_and_a_tag_that_says_none_is_told() -> None:
    start = start_from_serve(f"docker run vllm/vllm-openai:v0.12.0 {SAID}")
    assert 'vllm_version: "0.12.0"\n' in twin_text(start)[0]
    text, notes = twin_text(named(start, vllm_version="0.13.0"))
    assert 'vllm_version: "0.13.0"\n' in text
    assert any(
        "0.13.0, as --vllm-version says; the command's image or package is 0.12.0" in each for each in notes
    )
    start = start_from_serve(f"docker run vllm/vllm-openai:nightly {SAID}")
    told = "vllm_version: the image's tag nightly is no release of vLLM; the rules of 0.32.0 are taken"
    assert any(note.startswith(told) for note in twin_text(start)[1])
    assert not any(told in note for note in twin_text(named(start, vllm_version="0.13.0"))[1])
    _, notes = twin_text(start_from_serve(f"docker run vllm/vllm-openai:v0.9.2 {SAID}"))
    assert "vllm_version 0.9.2 is not known (0.12 to 0.33): the rules of 0.32.0 are used" in notes


@pytest.mark.parametrize("word", ["vllm>=0.12", "vllm", "xvllm==0.12.0", "vllm==0.12.0x", "vllm==latest"])
def test_a_package_without_one_version_says_none(word: str) -> None:
    assert version_of_package(word) is None


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("a b 'c d' \"e $X\"", [["a", "b", "c d", "e 1"]]),
        ("X=2 a $X", [["X=2", "a", "1"]]),
        ("export X=2; a ${X} '$X' ${Y:-3} $Z", [["export", "X=2"], ["a", "2", "$X", "3", "$Z"]]),
        ("a 2>&1 | b > c && d < e & f", [["a"], ["b"], ["d"], ["f"]]),
        ("a --n 2 > log", [["a", "--n", "2"]]),
        ("a \\\n  --b # why\nc", [["a", "--b"], ["c"]]),
        ("vllm\n  --b 1\n  --c\n2\nd", [["vllm", "--b", "1", "--c", "2"], ["d"]]),
        ("set -e\nd", [["set", "-e"], ["d"]]),
        ("a b\\ c ''", [["a", "b c", ""]]),
        ("a $(date +%s) x", [["a", "$(date +%s)", "x"]]),
        ("a http://x#y", [["a", "http://x#y"]]),
    ],
)
def test_a_text_is_read_as_a_shell_reads_it(text: str, commands: list[list[str]]) -> None:
    assert shell_commands(text, {"X": "1"}) == commands


def test_variables_that_grow_without_end_are_refused() -> None:
    text = "A=xxxxxxxxxx;" + "".join(
        f"{b}=${a}${a}${a}${a}${a}${a};" for a, b in zip("ABCDEFGHIJ", "BCDEFGHIJK", strict=True)
    )
    with pytest.raises(ConfigError, match="grow without end"):
        shell_commands(text)


def test_a_script_is_read_from_its_file_and_a_missing_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "start.sh"
    script.write_text(
        "#!/bin/bash\nexport M=m\n# vllm serve other\nexec vllm serve $M \\\n  --max-num-seqs 64 2>&1\n"
    )
    assert parse_serve(str(script)).engine == {"max_num_seqs": 64}
    for name, message in (("absent.yaml", "no file of this name"), (".", "Is a directory")):
        assert vtwin.main(["config", "from-serve", str(tmp_path / name)]) == 2
        assert message in capsys.readouterr().err
    script.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="bytes that are not UTF-8"):
        launch_of(str(script))
    script.write_text(" " * (1 << 20) + "x")
    with pytest.raises(ConfigError, match="more than 1,048,576 bytes"):
        launch_of(str(script))


@pytest.mark.parametrize(
    "text", ["", "docker compose up", "vllm bench serve --model m", "echo vllm", "vllm-router x"]
)
def test_a_text_that_starts_no_vllm_is_never_a_twin(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main(["config", "from-serve", text]) == 2
    shown = capsys.readouterr()
    assert "in which no vLLM is started" in shown.err
    assert shown.out == ""


def test_the_first_of_several_commands_is_read_and_the_others_are_told() -> None:
    launch = launch_of(f"vllm serve {SAID} & vllm serve other --port 8001 &")
    assert launch.words == tuple(SAID.split())
    assert launch.notes == ("2 commands start vLLM: the first is read",)


MUCH = 1 << 18


@pytest.mark.parametrize(
    "text",
    [
        "<<a\n" * (MUCH // 4),
        "```\n" + "\n" * MUCH,
        "a" * MUCH,
        "a " * (MUCH // 2),
        "a\n" * (MUCH // 2),
        "${" * (MUCH // 2),
        "'a'" * (MUCH // 3),
        ">" * MUCH,
        "'entrypoints. '" * (MUCH // 16),
        "A=" + "x" * 1000 + ";echo " + "$A " * 10_000,
        "docker run " + "-e a=b " * 3000,
        "args: ['" + "$(B)" * 50_000 + "']\nenv: {B: '" + "x" * 50_000 + "'}\n",
        "x:\n" + "- {image: a/b, args: [--a, b]}\n" * 5000,
        "env: {" + ",".join(f"a{number}: b" for number in range(1001)) + "}\n",
    ],
    ids=range(14),
)
def test_a_text_that_someone_made_large_is_refused_soon(text: str) -> None:
    begin = time.process_time()
    with pytest.raises(ConfigError) as refused:
        launch_of(text)
    assert time.process_time() - begin < 5
    assert len(str(refused.value)) < 300
