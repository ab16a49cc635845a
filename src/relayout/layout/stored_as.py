"""What a stored value holds: which value of the source, and how to get it back. Written into the model's metadata.

stored = source.reshape(factors).transpose(perm).reshape(stored's shape)

A result of a result tells of the values of both sources. Where both have one name for it, in two layouts, the last of
that name is the older's.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from json.encoder import encode_basestring_ascii
from math import prod
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayout.errors import LayoutError
from relayout.layout import perm as perms

SIGNATURE_KEY = "tflite.signature"  # metadata of a model that was a `.tflite`: the key of its signature
DEFAULT_SIGNATURE = "serving_default"  # the key where no other is said
TENSOR = "relayout.tensor"  # metadata of a value whose name is not that of its counterpart in the source: that name
SIGNATURE = "relayout.signature"
"""Metadata of a model that was made of a subgraph of a `.tflite` that is not the first: the signature's key."""
INTERFACE = "relayout.interface"
"""Metadata of a model whose inputs or outputs are stored in another order than the source's: name -> both, as JSON."""
CUT = "relayout.cut"
"""Metadata of a model that is a part of its source: the source's names of its inputs and outputs, as JSON."""
INITIAL = "relayout.initial"
"""Metadata of an input that is state from run to run: what it begins with, as JSON, in the source's order of axes."""
STEPS_OFF = "relayout.steps_off"
"""Metadata of a model: quantized values of its source -> the steps by which it says that they may be off, as JSON."""
MOST_STEPS_OFF = 16  # steps that a file may announce of a value: more excuse nothing
MOST_FACTORS, MOST_WAYS = 12, 64
"""Of a value several of whose factors are dynamic; and ways to part them into dimensions that are looked at."""
STATED = "relayout.stated"  # in the `meta` of an output, in memory only: the shape that its file states
BATCH_FIRST = "relayout.batch_first"
"""In the `meta` of a recurrent node, in memory only: whoever runs it takes both values of its attribute `layout`."""
RENAMED = "relayout.renamed"  # in the `meta` of an input or output, in memory only: the user has given it its name
ELEMENT_BITS = "relayout.element_bits"
"""In the `meta` of a value, in memory only: the bits of an element in the result, where that has another type."""
CLAIMED = "relayout.claimed"
"""In the `meta` of a value, in memory only: the shape that its file states, where that does not follow from inputs."""


@dataclass(frozen=True)
class Holds:
    """One value of the source that a stored value holds."""

    name: str  # the source's name
    factors: tuple[int, ...]  # extents of the source's factors, major to minor; -1 for one dynamic factor
    perm: tuple[int, ...]  # the stored order: `stored[i] = source[perm[i]]`, over factors
    shape: tuple[int, ...]  # the source's shape; -1 for a dynamic dimension
    # how many factors each dimension of that shape has; empty where that follows from the extents
    axes: tuple[int, ...] = ()
    # the number of factors of each stored axis; empty if the axes are in the order of the source
    stored_axes: tuple[int, ...] = ()

    KEY: ClassVar[str] = "relayout.holds"

    @staticmethod
    def as_is(name: str, shape: Iterable[object]) -> "Holds":
        """Return a value of the source as it lies there; what is no integer in its shape is a dynamic dimension."""
        extents = tuple(extent if isinstance(extent, int) else -1 for extent in shape)
        return Holds(name, extents, tuple(range(len(extents))), extents)

    def to_json(self) -> dict[str, object]:
        """Return the value as JSON has it."""
        return {"name": self.name, **_fields(*self.layout)}

    @property
    def layout(self) -> "tuple[_Extents, ...]":
        """All but the name."""
        return self.factors, self.perm, self.shape, self.axes, self.stored_axes

    @staticmethod
    def dump(source_values: "Iterable[Holds]") -> str:
        """Return the metadata's text: a JSON list."""
        items = [f'{{"name":{encode_basestring_ascii(item.name)},{_text(*item.layout)}}}' for item in source_values]
        return f"[{','.join(items)}]"

    @staticmethod
    def of(metadata: Mapping[str, str]) -> "list[Holds]":
        """Return the source's values that a value holds, by its metadata; none where others wrote that."""
        try:
            return Holds.load(metadata[Holds.KEY]) if Holds.KEY in metadata else []
        except LayoutError:
            return []

    @staticmethod
    def note(metadata: MutableMapping[str, str], source_values: "Sequence[Holds]") -> None:
        """Say in a value's metadata which of the source's values it holds."""
        metadata.pop(Holds.KEY, None)
        if source_values:
            metadata[Holds.KEY] = Holds.dump(source_values)

    @staticmethod
    def load(text: str) -> "list[Holds]":
        """Read the metadata's text.

        Raises:
            LayoutError: it is not such a list.
        """
        try:
            items = json.loads(text)
            if not isinstance(items, list):
                raise TypeError("not a list")
            source_values = [
                Holds(
                    str(i["name"]),
                    tuple(map(int, i["factors"])),
                    perms.validated(i["perm"]),
                    tuple(map(int, i["shape"])),
                    tuple(map(int, i.get("axes", ()))),
                    tuple(map(int, i.get("stored_axes", ()))),
                )
                for i in items
            ]
            if any(len(item.factors) != len(item.perm) for item in source_values):
                raise ValueError("a perm of other factors")
            return source_values
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise LayoutError(f"metadata {Holds.KEY!r} is not readable: {text[:80]!r}") from error


_Extents = tuple[int, ...]


def _fields(
    factors: _Extents, perm: _Extents, shape: _Extents, axes: _Extents, stored_axes: _Extents
) -> dict[str, _Extents]:
    """Return all but the name, as JSON has it."""
    where_open = {"axes": axes, "stored_axes": stored_axes}
    return {"factors": factors, "perm": perm, "shape": shape} | {key: each for key, each in where_open.items() if each}


@lru_cache(4096)
def _text(*layout: _Extents) -> str:
    """Return the text of all but the name: thousands of values of a model lie alike."""
    return json.dumps(_fields(*layout), separators=(",", ":"))[1:-1]


def relay(array: NDArray[np.generic], holds: Holds, stored: Sequence[int] | None = None) -> NDArray[np.generic]:
    """Store the source's array as `holds` says; `stored` is the stored shape (default: one dimension a factor)."""
    result = array.reshape(_filled(holds.factors, array.size)).transpose(holds.perm)
    return result if stored is None else result.reshape(_filled(tuple(stored), array.size))


def restore(array: NDArray[np.generic], holds: Holds) -> NDArray[np.generic]:
    """Return the source's array from the stored one: the inverse of `relay`."""
    factors = _filled(holds.factors, array.size)
    by_factor = array.reshape(perms.permute(holds.perm, factors))
    return by_factor.transpose(perms.inverse(holds.perm)).reshape(_filled(holds.shape, array.size))


def resolved(holds: Holds, shape: Sequence[int]) -> "Holds":
    """With an extent for each of several dynamic factors, from the shape that the source's value has in a run.

    As it is where at most one is dynamic, or where the shape does not tell. Open factors that stay side by side are
    one: of an image whose axes are one dimension nothing tells its height.

    >>> resolved(Holds("x", (-1, 4, -1), (1, 0, 2), (1, -1, -1)), (1, 12, 5)).factors
    (3, 4, 5)
    >>> resolved(Holds("x", (-1, 2, 4, -1, -1), (0, 3, 4, 1, 2), (-1, 2, 4, -1)), (1, 2, 4, 12)).factors
    (1, 2, 4, 12)
    >>> resolved(Holds("x", (-1, 2, -1, 2), (2, 0, 1, 3), (-1, -1, 2), (2, 1, 1)), (12, 8, 2)).factors
    (6, 2, 8, 2)
    """
    if holds.factors.count(-1) < 2 or len(shape) != len(holds.shape):
        return holds
    holds = replace(holds, factors=_filled_axes(holds.factors, holds.axes, shape))
    if -1 not in holds.factors:
        return replace(holds, shape=tuple(shape))
    for known in (holds, _joined(holds)):
        factors = fill_factors(known.factors, shape, holds.shape)
        if factors is not None:
            return replace(known, factors=factors, shape=tuple(shape))
    fits = all(stated in (-1, extent) for stated, extent in zip(holds.shape, shape, strict=True))
    return _with_one_open(replace(holds, shape=tuple(shape)) if fits else holds)


def resolved_as_stored(holds: Holds, stored: Sequence[int]) -> "Holds":
    """Return `holds` with its open factors from the shape in which the value is stored in a run.

    >>> resolved_as_stored(Holds("x", (-1, -1, -1, 2), (0, 3, 1, 2), (-1, 2)), (5, 2, 12)).factors
    (5, 12, 2)
    >>> windows = Holds("x", (-1, -1, -1, 4, 4), (0, 1, 3, 2, 4), (-1, 4, 4), (3, 1, 1), (1, 2, 2))
    >>> resolved_as_stored(windows, (2, 16, 8)).factors
    (2, 4, 2, 4, 4)
    """
    if holds.factors.count(-1) < 2:
        return holds
    by_axis = _filled_axes(perms.permute(holds.perm, holds.factors), holds.stored_axes, stored)
    holds = replace(holds, factors=perms.permute(perms.inverse(holds.perm), by_axis))
    if -1 not in holds.factors:
        return replace(holds, shape=fill_factors(holds.shape, holds.factors) or holds.shape)
    for known in (holds, _joined(holds)):
        stored_factors = fill_factors(perms.permute(known.perm, known.factors), stored)
        if stored_factors is not None:
            factors = perms.permute(perms.inverse(known.perm), stored_factors)
            return replace(known, factors=factors, shape=fill_factors(known.shape, factors) or known.shape)
    return _with_one_open(holds)


def _filled_axes(factors: Sequence[int], axes: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """Return an extent for each factor that is the only open one of its axis, where it is said which these are."""
    if len(axes) != len(shape) or sum(axes) != len(factors) or min(axes, default=0) < 0:
        return tuple(factors)
    filled: list[int] = []
    for count, extent in zip(axes, shape, strict=True):
        group = factors[len(filled) : len(filled) + count]
        known = prod(factor for factor in group if factor != -1)
        if known < 1 or extent % known:
            return tuple(factors)
        filled += [extent // known if factor == -1 and group.count(-1) == 1 else factor for factor in group]
    return tuple(filled)


def _with_one_open(holds: Holds) -> "Holds":
    """With one open factor for several, whose extent follows from the number of elements, where they can be joined."""
    joined = _joined(holds)
    return joined if joined.factors.count(-1) == 1 else holds


def _joined(holds: Holds) -> "Holds":
    """Return `holds` with one factor for open ones that are side by side, in order, in the source and where it is
    stored.

    A run may be longer than one dimension of the source: such factors are no part of a shape, and nothing is found.
    """
    runs: list[list[int]] = []
    for factor in holds.perm:
        if runs and runs[-1][-1] == factor - 1 and holds.factors[factor] == holds.factors[factor - 1] == -1:
            runs[-1].append(factor)
        else:
            runs.append([factor])
    order = sorted(runs)
    factors = tuple(holds.factors[run[0]] for run in order)
    return replace(holds, factors=factors, perm=tuple(order.index(run) for run in runs), axes=(), stored_axes=())


def fill_factors(
    factors: Sequence[int],  # extents, major to minor
    shape: Sequence[int],  # of an array
    # the same shape with -1 for the dimensions that have one open factor, where that is known
    stated: Sequence[int] | None = None,
) -> tuple[int, ...] | None:
    """Factors, the open ones (-1) filled in, such that each dimension of a shape has some of them, in order.

    `(-1, 1024, -1)` of 2 × 1024 × 6 × 1 are `(2, 1024, 6)`.

    Returns:
        The only way; None where there is none, or several give other extents.
    """
    if len(factors) > MOST_FACTORS:
        return None
    ways = set(islice(_ways(tuple(factors), tuple(shape), None if stated is None else tuple(stated)), MOST_WAYS))
    way = ways.pop() if len(ways) == 1 else None
    return None if way is None or -1 in way else way


def _ways(
    factors: tuple[int, ...], shape: tuple[int, ...], stated: tuple[int, ...] | None
) -> Iterator[tuple[int, ...]]:
    if not shape:
        if not factors:
            yield ()
        return
    for count in range(len(factors) + 1):
        group = factors[:count]
        known = prod(factor for factor in group if factor != -1)
        dynamic = group.count(-1)
        as_stated = stated is None or dynamic == (stated[0] == -1)
        if not as_stated or known < 1 or shape[0] % known or (known != shape[0] and not dynamic):
            continue
        missing = shape[0] // known if dynamic == 1 else -1  # of several in one dimension none is known
        for rest in _ways(factors[count:], shape[1:], None if stated is None else stated[1:]):
            yield (*(missing if factor == -1 else factor for factor in group), *rest)


def _filled(shape: Sequence[int], size: int) -> tuple[int, ...]:
    """Return a shape with its one -1 replaced, also for arrays without elements."""
    known = int(np.prod([extent for extent in shape if extent != -1], dtype=np.int64))
    return tuple(size // max(known, 1) if extent == -1 else extent for extent in shape)


def steps_off(text: str) -> dict[str, int]:
    """Return what a file says of values that may be some steps off; nothing of what is not as it is written here."""
    try:
        steps_by_name = json.loads(text)
        return {
            str(name): steps
            for name, steps in steps_by_name.items()
            if type(steps) is int and 0 < steps <= MOST_STEPS_OFF
        }
    except (ValueError, AttributeError, RecursionError):
        return {}


# The batch that was opened in a model, as its metadata says it: `verify` runs the source batch after batch.

OPENED_BATCH = "relayout.batch"
"""Metadata of a model whose batch was opened, or got another extent: see `OpenedBatch`, as JSON."""


class OpenedBatch(NamedTuple):
    """A batch that was opened: whatever lies along it is computed by itself."""

    inputs: Mapping[str, int]  # input of the source -> the axis that is the batch
    # output of the source -> the axis that holds the batch, and how many runs of it
    outputs: Mapping[str, tuple[int, int]]

    def dump(self) -> str:
        """Return it as JSON; equal batches give equal texts."""
        outputs = {name: list(place) for name, place in self.outputs.items()}
        return json.dumps({"inputs": dict(self.inputs), "outputs": outputs}, ensure_ascii=False)

    @classmethod
    def load(cls, text: str | None) -> "OpenedBatch | None":
        """Return what a model's metadata says; None where it says nothing, or nothing that can be read."""
        try:
            data = json.loads(text or "")
            inputs = {str(name): _natural(axis) for name, axis in data["inputs"].items()}
            outputs = {str(name): (_natural(axis), _natural(runs)) for name, (axis, runs) in data["outputs"].items()}
            return cls(inputs, outputs)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None


def _natural(number: object) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 1 << 31:
        raise ValueError("no natural number")
    return number
