"""Manifests of Kubernetes, compose files and values of Helm charts: which of their containers starts vLLM, and how.

A container is any mapping that has an image, a command or arguments, wherever it stands: Deployments, StatefulSets,
Pods, LeaderWorkerSets, KServe's services and compose's are read alike. What a chart says by keys of its own is put in
words of ``vllm serve`` first (``chart_values.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from lazy_dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from replay.twin.start.chart_values import CHART_KEYS, chart_words, plain_flags
from replay.twin.start.container_tags import ContainerName, read_container_name
from replay.twin.start.launches import SPEAKS_OF, Launch, launch_of_command, launches_in
from replay.twin.start.shell_words import shell_commands, substituted
from traces import ConfigError
from traces.strict.yaml_nodes import parse_yaml_documents, plain_value

MOST_VALUES: Final = 200_000
MOST_INSTANCES: Final = 10_000
_LOOKS: Final = re.compile(r"(?:---|%YAML|- |-$|[\w./\"'-]+\s*:(?:\s|$)|\{)")
_HERE: Final = re.compile(r"<<-?\s{0,3}['\"]?(\w{1,40})")
_FENCE: Final = "```"
MOST_VARIABLES: Final = 1_000
"""The most variables that a container may have."""
MOST_CONTAINERS: Final = 1_000
_NOT_SERVERS: Final = (
    "initContainers",
    "initContainer",
    "status",
    "metadata",
    "annotations",
    "routerSpec",
    "router",
)
_REPLICAS: Final = ("replicas", "replicaCount", "minReplicas", "scale")
_MODELS: Final = ("storageUri", "modelURL", "modelURI", "uri")
_JOINED: Final = re.compile(r"--[\w.-]+\s+\S")
_MODEL_ID: Final = re.compile(r"^--model_(?:id|dir)(?==|$)")
_ADDRESS: Final = re.compile(r"(--port|--host|--served-model-name)(=|$)")
INSTANCES: Final = "cluster.instances"
"""How the line on a manifest's replicas begins."""
EXPECTED: Final = "containers that start vllm serve, or the command line itself"


class Container(NamedTuple):
    """A container that was found: its name, what it starts."""

    name: str
    launch: Launch


@dataclass(frozen=True, slots=True)
class _Around:
    """What is said around a container: of how many, on how many GPUs, of which model, with which variables."""

    replicas: object = None
    gpus: int | None = None
    model: str | None = None
    name: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    parallel: tuple[str, ...] = ()
    group: object = None
    is_compose: bool = False

    def within(self, node: Mapping[str, object]) -> _Around:
        """Return what holds inside a mapping, too."""
        replicas = next((node[key] for key in _REPLICAS if key in node), self.replicas)
        metadata = node.get("metadata")
        named = metadata.get("name") if isinstance(metadata, dict) else node.get("name")
        is_group = "leaderTemplate" in node or "workerTemplate" in node
        return replace(
            self,
            replicas=_deployed(node, replicas),
            gpus=_gpus(node) or self.gpus,
            model=_model(node) or self.model,
            name="/".join(filter(None, (self.name, named if isinstance(named, str) else ""))),
            variables=_joined(self.variables, _variables(node)),
            parallel=_parallel(node) or self.parallel,
            group=node.get("size") if is_group else self.group,
            is_compose=self.is_compose or ("services" in node and "kind" not in node),
        )


def _joined(outer: Mapping[str, str], own: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables of a container and what is around it. Raises ConfigError for too many."""
    if len(own) > MOST_VARIABLES or len(outer) > MOST_VARIABLES:
        raise ConfigError(
            f"manifest: got more than {MOST_VARIABLES:,} variables, expected fewer in one container"
        )
    return {**outer, **own} if own else outer


def read_documents(text: str, *, file: str) -> list[object] | None:
    """Return the documents of a text of YAML or JSON, None where it is none. Raises ConfigError on a broken one."""
    text = _inner(text)
    if not _looks_so(text):
        return None
    try:
        roots = parse_yaml_documents(text, file=file, nodes=MOST_VALUES)
        return [plain_value(root, file=file) for root in roots]
    except ConfigError as error:
        if "{{" in text:
            raise ConfigError(
                "manifest: got a template of Helm ({{ … }}), expected what it comes to: helm template CHART -f "
                "values.yaml, or the values themselves"
            ) from error
        raise


def _inner(text: str) -> str:
    """Return a text without the fence of Markdown around it, or what a shell's ``<<EOF`` hands over."""
    lines = text.strip().splitlines()
    if len(lines) > 2 and lines[0].startswith(_FENCE) and lines[-1].strip() == _FENCE:
        return "\n".join(lines[1:-1])
    found = ((number, here) for number, line in enumerate(lines) if (here := _HERE.search(line)) is not None)
    number, here = next(found, (0, None))
    if here is None:
        return text
    end = next(
        (place for place in range(number + 1, len(lines)) if lines[place].strip() == here[1]), len(lines)
    )
    inner = "\n".join(lines[number + 1 : end])
    return inner if _looks_so(inner) else text


def _looks_so(text: str) -> bool:
    """Return whether the first line that says something is one of YAML or JSON, not one of a shell."""
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return _LOOKS.match(first) is not None


def launch_in(documents: list[object]) -> Launch:
    """Return the launch that a manifest's documents have. Raises ConfigError where no container starts vLLM."""
    each_of = (each for document in documents for each in _containers(document, _around(document)))
    found = list(islice(each_of, MOST_CONTAINERS))
    found = [each for each in found if each.launch.words or each.launch.model] or found
    if not found:
        launch = _in_a_text(documents, _variables_of(documents)) or plain_flags(documents)
        if launch is None:
            raise ConfigError(
                f"manifest: got {_kinds(documents)}, in which no vLLM is started, expected {EXPECTED}"
            )
        return launch
    first = found[0].launch
    alike = [each for each in found if _alike(each.launch, first)]
    others = list(dict.fromkeys(each.name or "one" for each in found if not _alike(each.launch, first)))
    instances = sum(each.launch.instances for each in alike)
    notes = list(first.notes)
    if others:
        named = ", ".join(map(_plain, others[:5])) + (" and others" if others[5:] else "")
        notes.append(
            f"{len(found)} containers start vLLM: {_plain(found[0].name)} is read, {named} not; each would be a pool "
            "of cluster.pools"
        )
    if instances > 1:
        notes.append(f"{INSTANCES}: {instances}, as many replicas as the manifest has")
    return replace(first, instances=instances, notes=tuple(notes))


def _around(document: object) -> _Around:
    """Return what a document's top says of the model: charts name it apart from the containers."""
    artifacts = document.get("modelArtifacts") if isinstance(document, dict) else None
    return _Around().within(artifacts) if isinstance(artifacts, dict) else _Around()


def _plain(name: str) -> str:
    return name if re.fullmatch(r"[\w./-]{1,60}", name) else "one"


def _alike(one: Launch, other: Launch) -> bool:
    """Return whether two containers run the same server: all but their addresses is equal."""
    return _without_address(one) == _without_address(other) and one.version == other.version


def _without_address(launch: Launch) -> list[str]:
    kept, skips = [], False
    for word in launch.words:
        found = _ADDRESS.match(word)
        if found is None and not skips:
            kept.append(word)
        skips = found is not None and not found[2]
    return kept


def _kinds(documents: list[object]) -> str:
    """Return what documents are, in words."""
    kinds = [str(each["kind"]) for each in documents if isinstance(each, dict) and "kind" in each]
    named = [kind for kind in dict.fromkeys(kinds) if re.fullmatch(r"\w{1,40}", kind)]
    return f"a manifest of kind {', '.join(named[:4])}" if named else "a manifest, or other YAML"


def _containers(node: object, around: _Around) -> Iterator[Container]:
    """Yield the containers below a node that start vLLM."""
    if isinstance(node, list):
        for item in node:
            yield from _containers(item, around)
    if not isinstance(node, dict) or node.get("create") is False or node.get("enabled") is False:
        return
    inner = around.within(node)
    launch = _launch(node, inner)
    if launch is not None:
        yield Container(inner.name, launch)
        return
    for key, item in node.items():
        is_shared = inner.is_compose and key.startswith("x-")  # what services take over by name
        if key not in _NOT_SERVERS and not is_shared:
            is_service = inner.is_compose and isinstance(item, dict)
            yield from _containers(item, replace(inner, name=key) if is_service else inner)


def _launch(node: Mapping[str, object], around: _Around) -> Launch | None:
    """Return what a mapping starts if it is a container of vLLM."""
    container = _container(node, around.variables)
    version = None if container is None else container.version
    if any(key in node for key in CHART_KEYS):
        words, told = chart_words(node)
        return _found(tuple(words), around, version=version, notes=(*told, *_told(container)))
    named = node.get("image")
    own = named.get("command") if isinstance(named, dict) else None
    if around.is_compose:
        first, second = node.get("entrypoint"), node.get("command")
    else:
        first, second = node.get("command", own), node.get("args")
    command, behind = _words(first, around), _words(second, around)
    if not command and not behind and container is None:
        return None
    known = dict(around.variables)
    inside = next(launches_in([[*command, *behind]], known), None)
    if inside is not None:
        notes = (*inside.notes, *(_told(container) if inside.version is None else ()))
        return _found(inside.words, around, version=inside.version or version, notes=notes)
    if not _are_flags(node, command, behind, container):
        return None
    behind = behind[1:] if behind[:1] == ["serve"] else behind
    if "modelFormat" in node:  # KServe's own server takes the model's name so, and the rest as vLLM does
        behind = [_MODEL_ID.sub("--model", word) for word in behind]
    more = shell_commands(known.get("VLLM_ADDITIONAL_ARGS", ""))
    return _found((*behind, *(more[0] if more else ())), around, version=version, notes=_told(container))


def _told(container: ContainerName | None) -> tuple[str, ...]:
    note = None if container is None else container.note()
    return () if note is None else (note,)


def _are_flags(
    node: Mapping[str, object], command: list[str], behind: list[str], container: ContainerName | None
) -> bool:
    """Return whether a container's arguments are those of ``vllm serve``: by its image, or by what is around it."""
    if command and not all(word.startswith("-") for word in command):
        return False
    if node.get("modelCommand") in ("vllmServe", "imageDefault") or "modelFormat" in node:
        return True
    if container is not None and (container.runs_vllm or "vllm" in container.name):
        return container.runs_vllm or any(word.startswith("--") for word in behind)
    is_vllm = any(
        re.match(r"--(model|max-model-len|max-num-seqs|tensor-parallel-size)\b", word) for word in behind
    )
    return is_vllm and container is None


def _found(words: tuple[str, ...], around: _Around, *, version: str | None, notes: tuple[str, ...]) -> Launch:
    """Return the launch of a container with what stands around it."""
    flags = {word.partition("=")[0] for word in words}
    if around.parallel and not flags & {"--tensor-parallel-size", "-tp", "--tensor_parallel_size"}:
        words = (*words, *around.parallel)
    instances, told = _instances(around.replicas)
    if isinstance(around.group, int) and around.group > 1:
        told = (
            *told,
            f"each replica is a group of {around.group} pods (leaderWorkerTemplate.size): one server of it is read",
        )
    return Launch(
        words=words,
        origin="a manifest",
        model=around.model,
        version=version,
        gpus=around.gpus,
        instances=instances,
        notes=(*notes, *told),
    )


def _instances(replicas: object) -> tuple[int, tuple[str, ...]]:
    if replicas is None or (isinstance(replicas, int) and not isinstance(replicas, bool) and replicas == 1):
        return 1, ()
    if isinstance(replicas, int) and not isinstance(replicas, bool) and 1 < replicas <= MOST_INSTANCES:
        return replicas, ()
    return 1, (f"replicas is no number from 1 to {MOST_INSTANCES:,}: one server is written",)


# -- pieces of a container ------------------------------------------------------------------------------------


def _container(node: Mapping[str, object], variables: Mapping[str, str]) -> ContainerName | None:
    """Return the image of a container, variables put in, also where a chart has its name and its tag apart."""
    said = node.get("image")
    if isinstance(said, dict):
        name, tag = said.get("repository", said.get("name")), said.get("tag")
    elif said is None and isinstance(node.get("repository"), str):
        name, tag = node["repository"], node.get("tag")
    else:
        name, tag = said, None
    if not isinstance(name, str) or not name:
        return None
    return read_container_name(substituted(name if tag is None else f"{name}:{tag}", variables))


def _words(said: object, around: _Around) -> list[str]:
    """Return the words of a command or of arguments, a list or a text, with the container's variables put in."""
    if isinstance(said, str):
        return [
            word
            for words in shell_commands(substituted(said, around.variables), around.variables)
            for word in words
        ]
    words = [substituted(_text(item), around.variables) for item in said] if isinstance(said, list) else []
    apart: list[str] = []
    for word in words:
        apart += (
            shell_commands(word, around.variables)[0] if _JOINED.match(word) and '"' not in word else [word]
        )
    return apart


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


def _variables(node: Mapping[str, object]) -> dict[str, str]:
    """Return a container's variables: a list of names and values, a mapping, or compose's list of ``NAME=value``."""
    said = node.get("env", node.get("environment"))
    if isinstance(said, dict):
        return {str(key): _text(value) for key, value in said.items() if not isinstance(value, dict | list)}
    found = {}
    for item in said if isinstance(said, list) else ():
        if isinstance(item, dict) and "value" in item:
            found[str(item.get("name"))] = _text(item["value"])
        elif isinstance(item, str) and "=" in item:
            name, _, value = item.partition("=")
            found[name] = value
    return {name: substituted(value, found) for name, value in found.items()}


def _deployed(node: Mapping[str, object], otherwise: object) -> object:
    deploy = node.get("deploy")
    return deploy.get("replicas", otherwise) if isinstance(deploy, dict) else otherwise


def _gpus(node: Mapping[str, object]) -> int | None:
    """Return how many GPUs a container's resources name, None where they name none."""
    asked: list[object] = [node.get("requestGPU")]
    resources = node.get("resources")
    for part in ("limits", "requests") if isinstance(resources, dict) else ():
        some = resources.get(part) if isinstance(resources, dict) else None
        asked += (
            [some[key] for key in some if str(key).endswith(".com/gpu")] if isinstance(some, dict) else []
        )
    asked += _devices(node.get("deploy"))
    counts = (int(str(each)) for each in asked if re.fullmatch(r"[0-9]{1,4}", str(each)))
    return next((count for count in counts if count), None)


def _devices(deploy: object) -> list[object]:
    """Return the counts of GPUs that a compose file reserves."""
    node = deploy
    for key in ("resources", "reservations", "devices"):
        node = node.get(key) if isinstance(node, dict) else None
    found: list[object] = []
    for device in node if isinstance(node, list) else ():
        if isinstance(device, dict):
            ids = device.get("device_ids")
            found.append(len(ids) if isinstance(ids, list) else device.get("count"))
    return found


def _model(node: Mapping[str, object]) -> str | None:
    """Return the model that a mapping names beside the command."""
    inner = node.get("model")
    places = (node, inner) if isinstance(inner, dict) else (node,)
    for place in places:
        for key in _MODELS:
            said = place.get(key)
            if isinstance(said, str) and (key != "uri" or "://" in said):
                return said.removeprefix("hf://")
    return None


def _parallel(node: Mapping[str, object]) -> tuple[str, ...]:
    """Return the flags for ``parallelism`` as llm-d and KServe have it."""
    said = node.get("parallelism")
    if not isinstance(said, dict):
        return ()
    flags = {
        "tensor": "--tensor-parallel-size",
        "pipeline": "--pipeline-parallel-size",
        "data": "--data-parallel-size",
    }
    return tuple(
        word
        for key, flag in flags.items()
        if isinstance(said.get(key), int) and said[key] > 1
        for word in (flag, str(said[key]))
    )


def _variables_of(documents: list[object]) -> dict[str, str]:
    """Return the variables that documents set at their top, as SkyPilot's ``envs``."""
    tops = [each for each in documents if isinstance(each, dict)]
    return {
        name: value
        for top in tops
        for name, value in _variables({"env": top.get("envs", top.get("env"))}).items()
    }


def _in_a_text(node: object, variables: Mapping[str, str]) -> Launch | None:
    """Return the first start of vLLM in any text of a document: a script in a ConfigMap."""
    if isinstance(node, str) and SPEAKS_OF.search(node):
        try:
            return replace(launch_of_command(node, variables), origin="a manifest")
        except ConfigError:
            return None
    items = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return next((found for item in items if (found := _in_a_text(item, variables)) is not None), None)
