"""The operators of a `.tflite` that a target takes which takes a file as a whole or not at all."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from relayout.formats.tflite.exporting.file_forms import RefusedOperator
from relayout.partition.claims import OperatorClaims
from relayout.terminal import ShortNames, count_of

MOST_PLACES = 3
"""Tensors that a line names."""
LONG_INTEGERS = "Tensor type(INT64) is not supported"
REMEDY_OF_LONG_INTEGERS = "--input-type int32, --output-type int32 make inputs and outputs of int64 such of int32"


class FileClaims(NamedTuple):
    """The operators of a file that a target takes.

    Args:
        target: its name.
        claimed: operators that it takes.
        total: operators of the file.
        claimed_parts: 1 if it takes the file.
        parts: 1.
        operators: the same by builtin, those that it does not take first.
        borders: none; as for targets that take parts.
        places: "builtin: reason" -> the first results of such operators.
    """

    target: str
    claimed: int
    total: int
    claimed_parts: int
    parts: int
    operators: tuple[OperatorClaims, ...]
    borders: dict[str, int]
    places: dict[str, list[str]]

    def lines(self, more: int) -> Iterator[str]:
        """Return what a report says.

        Args:
            more: Transposes of the result beyond those of the source.
        """
        if self.claimed == self.total:
            yield f"{self.target} takes all {count_of(self.total, 'operator')}: the whole network"
            return
        yield (
            f"{self.target} takes a network as a whole or not at all, and does not take"
            f" {self.total - self.claimed} of {count_of(self.total, 'operator')}"
        )
        short = ShortNames(tensor for tensors in self.places.values() for tensor in tensors)
        for row in self.operators:
            for reason, count in row.reasons.items():
                tensors = self.places[f"{row.operator}: {reason}"]
                named = ", ".join([*map(short, tensors[:MOST_PLACES]), *(["…"] if len(tensors) > MOST_PLACES else [])])
                cure = f"; {REMEDY_OF_LONG_INTEGERS}" if reason == LONG_INTEGERS and row.operator == "CAST" else ""
                yield f"not on {self.target}: {count} of {row.total} {row.operator}, at {named}: {reason}{cure}"


def file_claims(target: str, counts: Mapping[str, int], refused: Sequence[RefusedOperator]) -> FileClaims:
    """Return what a target takes of a file.

    Args:
        target: its name.
        counts: builtin -> how many operators of the file are one.
        refused: those that the target does not take.
    """
    reasons = Counter((each.name, each.reason) for each in refused)
    places: dict[str, list[str]] = {}
    for each in refused:
        places.setdefault(f"{each.name}: {each.reason}", []).append(each.tensor)
    rows = []
    for name, total in counts.items():
        own = {reason: count for (builtin, reason), count in reasons.items() if builtin == name}
        rows.append(OperatorClaims(name, total - sum(own.values()), total, own))
    rows.sort(key=lambda row: (row.claimed - row.total, row.operator))
    total = sum(counts.values())
    return FileClaims(target, total - len(refused), total, int(not refused), 1, tuple(rows), {}, places)
