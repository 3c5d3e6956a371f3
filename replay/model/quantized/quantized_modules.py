"""Which weights of a model the names in its quantization mean: names of layers and modules, in each way that files use.

A file names what it keeps as it was, or what it quantizes how: ``model.layers.0.mlp.down_proj`` (that module), with a
``*``, as a regular expression behind ``re:``, or by a piece of its name (``self_attn``). A part of the model has one
precision: that of most of its weights, with the mean of all their bytes and the shares that are kept otherwise.
"""

from __future__ import annotations

import fnmatch
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from replay.model.config_json import ModelFields
from replay.model.layers.read_experts import moe_layers
from replay.model.shape import Attention, Experts, Precision
from traces import ConfigError

Parts = Mapping[str, Precision]
"""Precisions of the parts of a model: ``attention``, ``mlp`` and ``experts``."""
ATTENTION, MLP, EXPERTS = PARTS = ("attention", "mlp", "experts")

STATE_PRODUCTS = {
    **dict.fromkeys(("attn_pre_proj", "latent"), "state_in_proj"),
    **dict.fromkeys(("attn_post_proj", "latent_module"), "state_out_proj"),
}
"""What the products of attention stand for in layers of states."""
LATENT_MODULE = "latent_module"
"""Products of latent attention whose precision the tables of its module go by."""

_ATTENTION = ("self_attn", "attn", "attention", "linear_attn", "mixer")
_MLP = ("mlp", "feed_forward", "ffn", "mixer", "block_sparse_moe")
_SHARED = tuple(f"{name}.{shared}" for name in _MLP for shared in ("shared_expert", "shared_experts"))
_ROUTED = (
    "experts",
    *(f"experts.0.{name}" for name in ("gate_proj", "up_proj", "down_proj", "w1", "w2", "w3")),
)
"""Routed experts by their common name, and as one of them is named: all are taken to be kept alike."""
_PREFIXES = ("model.", "model.language_model.", "language_model.model.", "language_model.", "backbone.", "")
_IN_A_LAYER = re.compile(r"(?P<before>.*?)\blayers\.(?P<layer>\d+|\*)(?:\.(?P<rest>.+)|(?P<all>\*?))$")
_OF_THE_MODEL = re.compile(
    r"(?:(?:model|language_model|text_model|backbone|transformer|decoder|thinker|llm)\.)*$"
)
"""What stands before a layer of the model itself: others draft, or are of a tower."""
_NUMBERED = re.compile(r"\.\d+(?:\.|$)")
MOST_CHARACTERS, MOST_REPEATS = 500, 4
"""Of a regular expression in a file: checkpoints have two repeats, and no group repeated."""
_ONE_CHARACTER = re.compile(r"\\.|\[[^\]]*\]")
_REPEAT, _REPEATED_GROUP = re.compile(r"[*+]|\{\d*,\d*\}"), re.compile(r"\)[*+{]")
_FUSED = ("qkv_proj", "in_proj_qkv", "in_proj_qkvz", "in_proj")
_OUTPUTS = ("o_proj", "out_proj", "dense")
_LEAST = 0.005
"""A share of a part's weights below which they do not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A product of a layer. ``names``: its name behind that of the layer, as families spell it.

    ``product``: the operator that it is in or a part of, as tables of measured kernels have them.
    """

    part: str
    layer: int
    names: tuple[str, ...]
    weights: int
    product: str


def modules_of(
    layers: Sequence[Sequence[str]],
    attention: Attention,
    experts: Experts | None,
    *,
    hidden_size: int,
    dense_size: int,
    states: Collection[int] = (),
) -> list[Module]:
    """Return the products of all layers, with their weights. ``layers``: what each has (``contents_of``).

    ``dense_size``: of an MLP without experts. Layers of states are taken to have the products of attention;
    ``states``: their numbers, where they are known.
    """
    found = []
    shared_size = 0 if experts is None else experts.shared_size
    for layer, contents in enumerate(layers):
        if ATTENTION in contents:
            found += [
                Module(
                    part=ATTENTION,
                    layer=layer,
                    names=names,
                    weights=number,
                    product=STATE_PRODUCTS.get(product, product) if layer in states else product,
                )
                for product, names, number in _attention(attention, hidden_size)
            ]
        if MLP in contents:
            found += _mlp(layer, "mlp", _MLP, hidden_size * dense_size)
        if EXPERTS in contents and experts is not None:
            found += _mlp(layer, "shared", _SHARED, hidden_size * shared_size)
            weights = 3 * hidden_size * experts.num_experts * experts.intermediate_size
            routed = _spelled(_MLP, _ROUTED)
            found.append(Module(part=EXPERTS, layer=layer, names=routed, weights=weights, product="moe"))
    return found


def contents_of(
    text: ModelFields, numbers: tuple[int, int, int], *, only: Sequence[str]
) -> list[tuple[str, ...]]:
    """Return which parts of the model each layer has. ``only``: of layers that are one thing each, what.

    ``numbers``: of layers, of those with experts, of those with an MLP without.
    """
    num_layers, num_moe_layers, num_plain_mlps = numbers
    if only:
        parts = {"mamba": ATTENTION, "attention": ATTENTION, "mlp": MLP, "moe": EXPERTS}
        return [(parts[kind],) for kind in only]
    with_experts = moe_layers(text, num_layers=num_layers, number=num_moe_layers)
    has_both = num_moe_layers + num_plain_mlps > num_layers
    return [
        (
            ATTENTION,
            *((EXPERTS,) if layer in with_experts else ()),
            *((MLP,) if layer not in with_experts or has_both else ()),
        )
        for layer in range(num_layers)
    ]


def _mlp(layer: int, kind: str, inside: Sequence[str], weights: int) -> list[Module]:
    """Return the three products of an MLP, by its names in a layer."""
    products = (
        ("up", ("gate_proj", "gate_up_proj", "w1")),
        ("up", ("up_proj", "gate_up_proj", "w3")),
        ("down", ("down_proj", "w2")),
    )
    return [
        Module(
            part=MLP,
            layer=layer,
            names=_spelled(inside, names),
            weights=weights,
            product=f"{kind}_{product}_proj",
        )
        for product, names in products
    ]


def _attention(attention: Attention, hidden: int) -> list[tuple[str, tuple[str, ...], int]]:
    """Return one layer's products of attention: the operator, its names and weights."""
    queries, values = attention.num_heads * attention.head_dim, attention.num_heads * attention.v_head_dim
    if not attention.is_mla:
        kept = attention.num_kv_heads
        return [
            ("attn_pre_proj", _spelled(_ATTENTION, ("q_proj", *_FUSED)), hidden * queries),
            ("attn_pre_proj", _spelled(_ATTENTION, ("k_proj", *_FUSED)), hidden * kept * attention.head_dim),
            (
                "attn_pre_proj",
                _spelled(_ATTENTION, ("v_proj", *_FUSED)),
                hidden * kept * attention.v_head_dim,
            ),
            ("attn_post_proj", _spelled(_ATTENTION, _OUTPUTS), hidden * values),
        ]
    rank, latent, rotary = attention.q_lora_rank, attention.kv_lora_rank, attention.rope_head_dim
    brought_up = queries - attention.num_heads * rotary + values
    return [
        ("latent", _spelled(_ATTENTION, ("q_a_proj", "fused_qkv_a_proj")), hidden * rank),
        (LATENT_MODULE, _spelled(_ATTENTION, ("q_b_proj", "q_proj")), (rank or hidden) * queries),
        (
            "latent",
            _spelled(_ATTENTION, ("kv_a_proj_with_mqa", "fused_qkv_a_proj")),
            hidden * (latent + rotary),
        ),
        ("latent", _spelled(_ATTENTION, ("kv_b_proj",)), latent * brought_up),
        (LATENT_MODULE, _spelled(_ATTENTION, _OUTPUTS), hidden * values),
    ]


def _spelled(outer: Sequence[str], inner: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{first}.{second}" for first in outer for second in inner)


# -- names ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Name:
    """A name of a file, ready to be compared. ``layer``: None: of any; ``is_whole``: with all that is before it."""

    pattern: re.Pattern[str]
    layer: int | None
    is_whole: bool
    text: str

    def covers(self, module: Module) -> bool:
        """Return whether a module is meant."""
        if self.layer not in (None, module.layer):
            return False
        if self.is_whole:
            whole = (f"{before}layers.{module.layer}.{each}" for before in _PREFIXES for each in module.names)
            return any(self.pattern.match(each) for each in whole)
        return any(self.pattern.match(each) for each in module.names) or (
            module.part == EXPERTS and any(self.text.startswith(f"{each}.") for each in module.names)
        )


class Names:
    """Names of modules in a file, each with what it stands for, those of a layer found by the layer's number."""

    def __init__(self, named: Iterable[tuple[str, Precision]], *, where: str) -> None:
        """Take the names. Raises ConfigError on a regular expression that is none."""
        self._of_layer: dict[int | None, list[tuple[_Name, Precision]]] = defaultdict(list)
        for name, precision in named:
            found = _read_name(name, where=where)
            if found is not None:
                self._of_layer[found.layer].append((found, precision))

    def of(self, module: Module) -> Precision | None:
        """Return what the first name stands for that means a module; None where none does."""
        some = (*self._of_layer.get(module.layer, ()), *self._of_layer.get(None, ()))
        return next((precision for name, precision in some if name.covers(module)), None)


def _read_name(name: str, *, where: str) -> _Name | None:
    """Return a name ready to be compared, None for one of other layers. Raises ConfigError."""
    if name.startswith("re:"):
        return _Name(_expression(name, where=where), None, is_whole=True, text="")
    if name.startswith("*"):
        return _Name(re.compile(fnmatch.translate(name)), None, is_whole=True, text="")
    found = _IN_A_LAYER.match(name.rstrip("."))
    if found is None:
        piece = re.compile(rf"(?:.*\.)?{re.escape(name)}(?:\..*)?$")
        is_of_tower = EXPERTS not in name and _NUMBERED.search(
            name
        )  # its blocks: products here have no numbers
        return None if is_of_tower else _Name(piece, None, is_whole=False, text=name)
    if not _OF_THE_MODEL.match(found["before"]):
        return None
    rest, number = found["rest"] or "*", found["layer"]
    if found["all"] == "*" and number != "*":  # 1* stands for 1 and for 10 to 19
        below = fnmatch.translate(f"*layers.{number}*")
        return _Name(re.compile(below), None, is_whole=True, text="")
    below = fnmatch.translate(rest) if "*" in rest else rf"{re.escape(rest)}(?:\..*)?$"
    return _Name(re.compile(below), None if number == "*" else int(number), is_whole=False, text=rest)


def _expression(name: str, *, where: str) -> re.Pattern[str]:
    """Return the regular expression behind ``re:``. Raises ConfigError on none, and on one that may take for ever.

    A file may come from anybody: a repeated group, or many repeats, can take exponential time or nearly so.
    """
    plain = _ONE_CHARACTER.sub("x", name[3:])
    if (
        len(name) > MOST_CHARACTERS
        or len(_REPEAT.findall(plain)) > MOST_REPEATS
        or _REPEATED_GROUP.search(plain)
    ):
        raise ConfigError(
            f"{where}: got {name[:80]!r}, expected a regular expression of at most {MOST_CHARACTERS} characters, "
            f"{MOST_REPEATS} repeats and no repeated group"
        )
    try:
        return re.compile(name[3:])
    except re.error as error:
        raise ConfigError(f"{where}: got {name!r}, expected a regular expression ({error})") from error


# -- parts ----------------------------------------------------------------------------------------------------


def products_of(
    modules: Iterable[Module], kept_in: Callable[[Module], Precision]
) -> tuple[tuple[str, tuple[tuple[Precision, float], ...]], ...]:
    """Return each operator's precisions, the most of its weights first, with their shares of its weights."""
    weights: dict[str, dict[Precision, float]] = defaultdict(lambda: defaultdict(float))
    for module in modules:
        if module.weights:
            weights[module.product][kept_in(module)] += module.weights
    found = []
    for product, each in weights.items():
        total = sum(each.values())
        shares = sorted(((kept, number / total) for kept, number in each.items()), key=lambda pair: -pair[1])
        found.append((product, tuple(shares)))
    return tuple(found)


def parts_of(
    modules: Iterable[Module], kept_in: Callable[[Module], Precision], *, otherwise: Precision
) -> Parts:
    """Return each part's precision: its bytes the mean over its weights, all else of the most of them.

    ``otherwise``: of a part that the model has not.
    """
    shares: dict[str, dict[Precision, float]] = {part: defaultdict(float) for part in PARTS}
    for module in modules:
        shares[module.part][kept_in(module)] += module.weights
    return {part: _mean(found, otherwise=otherwise) for part, found in shares.items()}


def _mean(weights: Mapping[Precision, float], *, otherwise: Precision) -> Precision:
    total = sum(weights.values())
    counted = {each: number for each, number in weights.items() if number > _LEAST * total}
    if not counted:
        return next(iter(weights), otherwise)
    most = max(counted, key=lambda each: counted[each])
    if len(counted) == 1:
        return most
    total = sum(counted.values())
    mean = sum(each.bytes_per_weight * number for each, number in counted.items()) / total
    others = tuple(
        (each.name, each.matmul, number / total) for each, number in counted.items() if each != most
    )
    return replace(most, bytes_per_weight=mean, others=others)
