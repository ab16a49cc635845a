"""One signature of a .tflite in LiteRT, of a subgraph that is not the first: the interpreter shows its ends alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from relayout.errors import ReadError, RelayoutError
from relayout.formats.tflite.container.loading import load
from relayout.formats.tflite.container.writer import to_bytes
from relayout.formats.tflite.importing.importer import cut
from relayout.formats.tflite.provenance import Provenance
from relayout.verification.litert import LiteRTSide
from relayout.verification.litert_runtime import DEFAULT, OPTIMIZED, LiteRTFile, is_quantized, value_arguments
from relayout.verification.side import (
    Array,
    DeclaredPart,
    Feeds,
    ModelValue,
    Precision,
    RunError,
    Runner,
    Source,
    precision_of_types,
)


class SignatureSide(LiteRTFile):
    """A .tflite model, from a path or its bytes, run by one of its signatures.

    Raises:
        ReadError: there is no such signature.
    """

    def __init__(self, source: Source, signature: str) -> None:
        super().__init__(source, lambda _: Provenance())
        self._signature = signature
        whole = self.interpreter(OPTIMIZED)
        called = self.called(whole)
        self.interiors, self.initial = [], {}
        self.inputs = self._ends(called.get_input_details())
        self.outputs = self._ends(called.get_output_details())
        tensors = [each for k in range(whole.num_subgraphs()) for each in whole.get_tensor_details(k)]
        self._types = [each["dtype"] for each in tensors]
        # It does not tell the operators either: quantized weights count as those of a hybrid one.
        self.rounds = any(map(is_quantized, tensors))
        self.levels = 255 if self.rounds else 0

    @cached_property
    def precision(self) -> Precision:
        """Quantized where any tensor is."""
        return Precision.QUANTIZED if self.rounds else precision_of_types(self._types)

    def runner(
        self,
        interiors: Sequence[str] = (),
        reference: bool = False,
        moved: Mapping[str, int] | None = None,
    ) -> Runner:
        """An interpreter; there are no `interiors`. The reference kernels are not tried, which may end the process."""
        return _Called(self, OPTIMIZED if reference else DEFAULT)

    def called(self, interpreter: Any) -> Any:
        """Return the interpreter's function for the signature."""
        try:
            return interpreter.get_signature_runner(self._signature)
        except ValueError:
            raise ReadError(f"there is no signature {self._signature!r}", where=self.label) from None

    def _ends(self, details: dict[str, dict[str, Any]]) -> list[ModelValue]:
        """Return a value for each tensor, by its first name; the others, and the tensor's own, are aliases."""
        names: dict[int, list[str]] = {}
        tensors = {int(each["index"]): each for each in details.values()}
        for name, each in details.items():
            names.setdefault(int(each["index"]), []).append(name)
        return [_value(tensors[index], *called) for index, called in names.items()]


def _value(details: dict[str, Any], name: str, *aliases: str) -> ModelValue:
    dtype = np.dtype(details["dtype"])
    return ModelValue(name=name, dtype=dtype, aliases=(*aliases, str(details["name"])), **value_arguments(details))


class _Called:
    """A signature that is run once for the same feeds, however often it is asked, and from the initial state."""

    def __init__(self, side: SignatureSide, kernels: str) -> None:
        self._side, self._kernels = side, kernels
        self._fed: Feeds | None = None

    def run(self, feeds: Feeds, names: Sequence[str]) -> dict[str, Array]:
        """Return the outputs of these names."""
        if feeds is not self._fed:
            self._fed = None
            interpreter = self._side.interpreter(self._kernels)  # one of its own: variables keep state
            called = self._side.called(interpreter)
            try:
                self._outputs = called(**feeds)
            except (ValueError, RuntimeError) as error:
                raise RunError("LiteRT", self._side.label, error) from None
            self._fed = feeds
        return {name: np.asarray(self._outputs[name]) for name in names if name in self._outputs}


# The part of a `.tflite` that another model was cut from, where LiteRT cannot load the whole: it has no kernel for
# what the cut leaves out.


def part_side(
    source: Source,  # the model, whose first subgraph or signature was cut
    part: DeclaredPart,  # what the other model declares
    error: ReadError,  # why LiteRT does not load the whole
) -> LiteRTSide:
    """Return the side of the part of a model that ends in some values.

    Raises:
        ReadError: `error`, if the part cannot be had or is not loaded either.
    """
    try:
        model = load(source if isinstance(source, bytes) else Path(str(source)))
        signature = model.signatures[0] if model.signatures else None
        index = signature.subgraph if signature else 0
        subgraph = cut(model, index, signature, (), part.outputs)
        side = LiteRTSide(to_bytes(model._replace(subgraphs=(subgraph,), signatures=())))
    except RelayoutError:
        raise error from None
    side.label = "the given bytes" if isinstance(source, bytes) else str(source)
    side.notes.append(f"the source ran as the result was cut, since of the whole {error.what}")
    return side
