"""Tables of a file, which runtimes fill in the first run. Operators give their handles when all graphs are complete."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import Draft, DraftOperator, DraftTensor

FIRST = 1 << 16
"""The number of the first table: LiteRT counts tables and resource variables together, and variables from 0 on."""


def write_tables(program: list[Draft]) -> None:
    """Fill the tables of a file, and give each graph the handles of those that it reads, in place.

    Args:
        program: the graphs of the file; what fills the tables becomes the last one.
    """
    numbers: dict[tuple[bytes, ...], int] = {}
    filling = Draft("fill_tables")
    for draft in program:
        read = [(handle, *draft.tables[handle]) for handle in _handles(draft)]
        for handle, keys, values in read:
            content = (_bytes(keys), _bytes(values))
            if content not in numbers:
                numbers[content] = FIRST + len(numbers)
                filled = filling.tensor(f"table_{len(numbers) - 1}", TensorType.RESOURCE, (1,))
                filling.operators.append(_table(filled, numbers[content], keys, values))
                filling.add("HASHTABLE_IMPORT", [filled, keys, values], [])
            handle.name = draft.unique(f"{handle.name}_{numbers[content] - FIRST}")
        draft.operators[:0] = [_table(handle, numbers[_bytes(k), _bytes(v)], k, v) for handle, k, v in read]
    if numbers:
        once = DraftOperator("CALL_ONCE", [], [], {"init_subgraph_index": len(program)})
        program[0].operators.insert(0, once)
        program.append(filling)


def _handles(draft: Draft) -> Iterable[DraftTensor]:
    """Return the handles of tables that the operators of a graph read, each once."""
    tensors = (tensor for operator in draft.operators for tensor in operator.inputs if tensor in draft.tables)
    return dict.fromkeys(tensor for tensor in tensors if tensor is not None)


def _table(handle: DraftTensor, number: int, keys: DraftTensor, values: DraftTensor) -> DraftOperator:
    said = {"table_id": number, "key_dtype": keys.type, "value_dtype": values.type}
    return DraftOperator("HASHTABLE", [], [handle], said)


def _bytes(tensor: DraftTensor) -> bytes:
    return np.asarray(tensor.data).tobytes()
