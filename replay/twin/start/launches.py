"""What starts a server, as people have it: a command line, a script, ``docker run``, a manifest, or a file of these.

Nothing is run, and no file is read but the one that is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from lazy_dataclasses import dataclass
from typing import Final

from replay.twin.start.container_tags import ContainerName, read_container_name, version_of_package
from replay.twin.start.shell_words import shell_commands
from traces import ConfigError

SERVE: Final = re.compile(r"(?:^|/)vllm(?:\[[\w,-]*\])?(?:@[\w.]+)?$")
API_SERVER: Final = re.compile(
    r"vllm\.entrypoints(?:\.openai)?\.api_server$|(?:^|/)entrypoints/openai/api_server(?:\.py)?$"
)
CLI: Final = "vllm.entrypoints.cli.main"
SPEAKS_OF: Final = re.compile(r"\bvllm(?:@[\w.]+)?\s+serve\b|\bentrypoints[./]")
_RUNNERS: Final = ("docker", "podman", "nerdctl", "finch")
_SWITCHES: Final = (
    "-d --detach --rm -i --interactive -t --tty -it -ti -dit -itd -td -di --privileged --init --read-only -P "
    "--publish-all --no-healthcheck --oom-kill-disable --sig-proxy --replace --rmi --no-hosts --env-host --http-proxy "
    "--tls-verify --passwd --read-only-tmpfs --disable-content-trust -q --quiet --use-api-socket"
)
"""Options of ``docker run`` and ``podman run`` that take no value; all others do."""
DEEPEST: Final = 4
"""A shell in a shell in a shell."""
EXPECTED: Final = "vllm serve MODEL --flags …, docker run IMAGE …, a manifest, or a file of these"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a server is started. ``words``: those of ``vllm serve``, behind it.

    ``model``: named beside the command. ``version``: of vLLM, as the image's tag or a package has it. ``gpus``: that a
    server is given; None: not said. ``instances``: servers of this kind. ``notes``: to tell.
    """

    words: tuple[str, ...]
    origin: str = "a vllm serve command line"
    model: str | None = None
    version: str | None = None
    gpus: int | None = None
    instances: int = 1
    notes: tuple[str, ...] = ()


def launch_of_command(text: str, variables: Mapping[str, str] | None = None) -> Launch:
    """Return the first start of vLLM in a text of shell commands. Raises ConfigError where there is none."""
    known = dict(variables or {})
    found = list(launches_in(shell_commands(text, known), known))
    if not found:
        first_word = _first_word(text)
        got = f'"{first_word} …"' if first_word else "a text"
        raise ConfigError(f"command: got {got}, in which no vLLM is started, expected {EXPECTED}")
    first, *others = found
    if not others:
        return first
    note = f"{len(found)} commands start vLLM: the first is read"
    return Launch(words=first.words, version=first.version, notes=(*first.notes, note))


def _first_word(text: str) -> str:
    """Return the first word of a text if it is a plain one: others may have a key."""
    words = [word for word in text[:200].split() if "=" not in word]
    return words[0] if words and re.fullmatch(r"[\w./-]{1,40}", words[0]) else ""


def launches_in(
    commands: Sequence[Sequence[str]], variables: Mapping[str, str], *, depth: int = 0
) -> Iterator[Launch]:
    """Yield the starts of vLLM among commands, those in a shell's text included. ``depth``: shells around them."""
    package: str | None = None
    for words in commands:
        package = next(filter(None, map(version_of_package, words)), package)
        found = _launch_in_words(words, variables, depth=depth)
        if found is not None:
            yield _with_version(found, _container_name(words), package)


def _with_version(launch: Launch, container: ContainerName | None, package: str | None) -> Launch:
    """Return a launch with the version that its image or its package says; one from within keeps its own."""
    note = None if container is None or launch.version or package else container.note()
    return Launch(
        words=launch.words,
        version=launch.version or package or (None if container is None else container.version),
        notes=(*launch.notes, *(() if note is None else (note,))),
    )


def _launch_in_words(words: Sequence[str], variables: Mapping[str, str], *, depth: int) -> Launch | None:
    """Return what one command starts: vLLM's own words, a shell with them, or a container that has vLLM."""
    container_at, _ = _container(words)
    for place, word in enumerate(words):
        if SERVE.search(word) and words[place + 1 : place + 2] == ["serve"] and place != container_at:
            return Launch(words=tuple(words[place + 2 :]), version=version_of_package(word))
        if word == CLI and words[place + 1 : place + 2] == ["serve"]:
            return Launch(words=tuple(words[place + 2 :]))
        if API_SERVER.search(word):
            return Launch(words=tuple(words[place + 1 :]))
        if depth < DEEPEST and any(map(str.isspace, word)) and SPEAKS_OF.search(word):
            known = {**variables, **_container(words)[1]}
            within = next(launches_in(shell_commands(word, known), known, depth=depth + 1), None)
            if within is not None:
                return within
    if container_at is None or not read_container_name(_named(words[container_at])).runs_vllm:
        return None
    behind = list(words[container_at + 1 :])
    return Launch(words=tuple(behind[1:] if behind[:1] == ["serve"] else behind))


def _container_name(words: Sequence[str]) -> ContainerName | None:
    """Return the image that a command runs, None where it names none."""
    place, _ = _container(words)
    if place is not None:
        return read_container_name(_named(words[place]))
    return None


def _named(word: str) -> str:
    """Return the image that a word names, as ``--container-image=IMAGE`` or ``docker://IMAGE`` does, too."""
    option, equals, value = word.partition("=")
    return (value if equals and option.startswith("-") else word).removeprefix("docker://")


def _container(words: Sequence[str]) -> tuple[int | None, dict[str, str]]:
    """Return the place of the image in a command, None without one, and the variables that its options set."""
    runner = next((place for place, word in enumerate(words) if word.rpartition("/")[2] in _RUNNERS), None)
    start = None if runner is None else _behind_run(words, runner)
    if start is None:
        return _container_anywhere(words), {}
    variables: dict[str, str] = {}
    place = start
    while place < len(words) and words[place].startswith("-"):
        option, equals, value = words[place].partition("=")
        place += 1
        if not equals and option not in _SWITCHES.split():
            value = words[place] if place < len(words) else ""
            place += 1
        if option in ("-e", "--env") and "=" in value:
            name, _, text = value.partition("=")
            variables[name] = text
    return (place if place < len(words) else None), variables


def _behind_run(words: Sequence[str], runner: int) -> int | None:
    near = words[runner + 1 : runner + 6]
    return next((runner + 2 + place for place, word in enumerate(near) if word in ("run", "create")), None)


def _container_anywhere(words: Sequence[str]) -> int | None:
    """Return the place of a word that names an image of vLLM with its registry or tag."""
    for place, word in enumerate(words):
        named = _named(word)
        is_path = named.startswith(("/", ".", "-")) or "://" in named
        container = None if is_path or "vllm" not in named else read_container_name(named)
        if (
            container is not None
            and container.runs_vllm
            and (container.tag or container.name.endswith("/vllm-openai"))
        ):
            return place
        if SERVE.search(word) or API_SERVER.search(word):
            return None
    return None
