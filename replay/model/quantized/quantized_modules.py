"""Which weights of a model the names in its quantization mean: names of layers and modules, in each way that files use.

A file names what it keeps as it was, or what it quantizes how: ``model.layers.0.mlp.down_proj`` (that module), with a
``*``, as a regular expression behind ``re:``, or by a piece of its name (``self_attn``). A part of the model has one
precision: that of most of its weights, with the mean of all their bytes and the shares that are kept otherwise.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from lazy_dataclasses import dataclass, replace

from replay.model.config_json import ModelFields
from replay.model.layers.read_experts import moe_layers
from replay.model.quantized.expression_parser import (
    NotRead,
    Tree,
    parse_expression,
    parse_glob,
    without_negations,
)
from replay.model.quantized.linear_matcher import Effort, Matcher, matcher_of
from replay.model.shape import Attention, Experts, Precision
from traces import ConfigError, quoted

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
MOST_CHARACTERS = 2_000
"""The longest name or expression that a file may have."""
MOST_NAMES = 10_000
DEEPEST = 10
"""Pieces of a module's name behind its layer: three or four."""
MOST_EFFORT = 20_000_000
"""Characters and places that all expressions of a list may look at together: a checkpoint's take a tenth of it."""
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
    rank, latent, rotary = attention.q_latent_rank, attention.kv_latent_rank, attention.rope_head_dim
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
    """A name of a file, ready to be compared with the names of modules behind that of their layer.

    ``layer``: None: any. ``is_plain``: no glob; ``is_piece``: any piece of a name is meant by it.
    """

    fits: Callable[[str], bool]
    layer: int | None
    text: str
    is_plain: bool = True
    is_piece: bool = False

    def covers(self, module: Module) -> bool:
        """Return whether a module is meant. Raises NotRead where that takes too long."""
        if self.layer not in (None, module.layer):
            return False
        return any(self.fits(each) for each in module.names) or (
            module.part == EXPERTS and any(self.text.startswith(f"{each}.") for each in module.names)
        )


@dataclass(slots=True)
class _Expressions:
    """Expressions that stand for the same, for whole names of modules: one matcher has them all."""

    trees: list[Tree]
    effort: Effort
    matcher: Matcher | None = None

    def covers(self, module: Module) -> bool:
        """Return whether a module is meant. Raises NotRead where that takes too long."""
        if self.matcher is None:
            self.matcher = matcher_of(self.trees, effort=self.effort)
        middle = f"layers.{module.layer}"
        return any(self.matcher.fits_any(_PREFIXES, middle, f".{each}") for each in module.names)


@dataclass(slots=True)
class _Negation:
    """An expression that says what must not follow: it means a module if no spelling of the name is ruled out by that.

    A module is spelled in several ways here, and one that has not what is ruled out is always among them.
    """

    fits: Matcher
    fits_without: Matcher

    def covers(self, module: Module) -> bool:
        """Return whether a module is meant. Raises NotRead where that takes too long."""
        middle, found = f"layers.{module.layer}", False
        for each in module.names:
            for prefix in _PREFIXES:
                if self.fits_without.fits_any((prefix,), middle, f".{each}"):
                    found = True
                    if not self.fits.fits_any((prefix,), middle, f".{each}"):
                        return False
        return found


class _PlainNames:
    """Names of any layer without an expression: each with its number, found by the pieces of a module's name."""

    def __init__(self) -> None:
        self._pieces: dict[str, int] = {}
        self._beginnings: dict[str, int] = {}
        self._inside: dict[str, int] = {}

    def add(self, name: str, number: int, *, is_piece: bool) -> None:
        """Take a name: a piece of a module's name (``is_piece``), or its beginning."""
        (self._pieces if is_piece else self._beginnings).setdefault(name, number)
        parts = name.split(".")
        for length in range(1, min(len(parts), DEEPEST)):
            self._inside.setdefault(".".join(parts[:length]), number)

    def first(self, module: Module) -> int | None:
        """Return the lowest number of the names that mean a module, None without one."""
        if not (self._pieces or self._beginnings):  # most files name nothing, and the search is long
            return None
        found = [number for each in module.names for number in self._found(each)]
        if module.part == EXPERTS:  # a name of something inside of them stands for them
            found += [self._inside[each] for each in module.names if each in self._inside]
        return min(found, default=None)

    def _found(self, name: str) -> Iterator[int]:
        parts = name.split(".")
        for begin in range(len(parts)):
            for end in range(begin + 1, len(parts) + 1):
                run = ".".join(parts[begin:end])
                if run in self._pieces:
                    yield self._pieces[run]
                if begin == 0 and run in self._beginnings:
                    yield self._beginnings[run]


class Names:
    """Names of modules in a file, each with what it stands for, those of a layer found by the layer's number."""

    def __init__(self, named: Iterable[tuple[str, Precision]], *, where: str) -> None:
        """Take the names. Raises ConfigError on an expression that is not read, and on more than ``MOST_NAMES``."""
        self._of_layer: dict[int, list[tuple[_Name, Precision]]] = defaultdict(list)
        self._plain = _PlainNames()
        self._matched: list[tuple[int, _Name | _Expressions | _Negation]] = []
        self._precisions: list[Precision] = []
        self._where = where
        self._effort = Effort(MOST_EFFORT)
        listed = dict.fromkeys(named)
        if len(listed) > MOST_NAMES:
            raise ConfigError(f"{where}: got {len(listed):,} names, expected at most {MOST_NAMES:,}")
        for name, precision in listed:
            found = _read_name(name, where=where, effort=self._effort)
            if isinstance(found, _Name) and found.layer is not None:
                self._of_layer[found.layer].append((found, precision))
            elif found is not None:
                try:
                    self._add(found, precision)
                except NotRead as error:
                    raise ConfigError(
                        f"{where}: got {error}, expected names, or fewer expressions"
                    ) from error

    def _add(self, found: _Name | Tree, precision: Precision) -> None:
        """Take a name of any layer; an expression goes to the one before it where both stand for the same."""
        number = len(self._precisions)
        last = self._matched[-1] if self._matched else None
        if isinstance(found, _Name):
            if found.is_plain:
                self._plain.add(found.text, number, is_piece=found.is_piece)
            else:
                self._matched.append((number, found))
        elif (usual := without_negations(found)) != found:
            fits, fits_without = (matcher_of([each], effort=self._effort) for each in (found, usual))
            self._matched.append((number, _Negation(fits, fits_without)))
        elif (
            last is not None and isinstance(last[1], _Expressions) and self._is_one_since(last[0], precision)
        ):
            last[1].trees.append(found)
        else:
            self._matched.append((number, _Expressions([found], self._effort)))
        self._precisions.append(precision)

    def _is_one_since(self, number: int, precision: Precision) -> bool:
        """Return whether all names from a number on stand for one precision."""
        return all(each == precision for each in self._precisions[number:])

    def of(self, module: Module) -> Precision | None:
        """Return what the first name stands for that means a module; None where none does. Raises ConfigError."""
        plain = self._plain.first(module)
        try:
            for name, precision in self._of_layer.get(module.layer, ()):
                if name.covers(module):
                    return precision
            before = [each for each in self._matched if plain is None or each[0] < plain]
            matched = next((number for number, each in before if each.covers(module)), None)
        except NotRead as error:
            raise ConfigError(f"{self._where}: got {error}, expected names, or fewer expressions") from error
        first = plain if matched is None else matched
        return None if first is None else self._precisions[first]


def _read_name(name: str, *, where: str, effort: Effort) -> _Name | Tree | None:
    """Return a name ready to be compared, or its expression, None for one of other layers. Raises ConfigError."""
    if len(name) > MOST_CHARACTERS:
        raise ConfigError(
            f"{where}: got a name of {len(name):,} characters, expected at most {MOST_CHARACTERS:,}"
        )
    if name.startswith("re:"):
        return _expression(name[3:], where=where)
    if name.startswith("*"):
        return parse_glob(name)
    found = _IN_A_LAYER.match(name.rstrip("."))
    if found is None:
        is_of_tower = EXPERTS not in name and _NUMBERED.search(
            name
        )  # its blocks: products here have no numbers
        return None if is_of_tower else _Name(_is_any, None, text=name, is_piece=True)
    if not _OF_THE_MODEL.match(found["before"]):
        return None
    rest, number = found["rest"] or "*", found["layer"]
    if found["all"] == "*" and number != "*":  # 1* stands for 1 and for 10 to 19
        return parse_glob(f"*layers.{number}*")
    fits: Callable[[str], bool] = partial(_is_at_or_below, rest)
    if rest == "*":
        fits = _is_any
    elif "*" in rest:
        fits = _glob(rest, where=where, effort=effort)
    return _Name(fits, None if number == "*" else int(number), text=rest, is_plain="*" not in rest)


def _is_any(text: str) -> bool:
    return bool(text)


def _is_at_or_below(name: str, text: str) -> bool:
    return text == name or text.startswith(f"{name}.")


def _glob(name: str, *, where: str, effort: Effort) -> Callable[[str], bool]:
    try:
        return matcher_of([parse_glob(name)], effort=effort).match
    except NotRead as error:
        raise ConfigError(f"{where}: got {error}, expected shorter names") from error


def _expression(text: str, *, where: str) -> Tree:
    """Return the expression behind ``re:``. Raises ConfigError on one that is not read."""
    try:
        return parse_expression(text)
    except NotRead as error:
        raise ConfigError(
            f"{where}: got {quoted(f're:{text}')}, expected a regular expression of a form that is read ({error})"
        ) from error


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
