"""Small models of TensorFlow's choice among boxes, which is left to the Flex delegate, and what it computes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from tflite_cases import cases
from tflite_cases_tensorflow import left
from tflite_writing import Net


def overlap(a: Any, b: Any) -> float:
    """The area that two boxes share, of that of both; corners in any order."""
    low, high = (f(np.stack([a, b])[:, :2], np.stack([a, b])[:, 2:]) for f in (np.minimum, np.maximum))
    areas = np.prod(high - low, axis=1)
    shared = np.prod(np.maximum(high.min(0) - low.max(0), 0))
    return float(shared / (areas.sum() - shared)) if (areas > 0).all() else 0.0


def combined(
    boxes: Any, scores: Any, each: int, total: int, limit: float, least: float, *, padded: bool, clipped: bool
) -> tuple[Any, ...]:
    images, count, classes = scores.shape
    total = min(total, each * classes) if padded else total
    picked, values, labels = (np.zeros((images, total, *rest), np.float32) for rest in ((4,), (), ()))
    meant = np.zeros(images, np.int32)
    for b in range(images):
        found: list[tuple[float, int, Any]] = []
        for c in range(classes):
            own, kept = boxes[b, :, min(c, boxes.shape[2] - 1)], list[int]()
            for i in sorted(range(count), key=lambda i, b=b, c=c: -scores[b, i, c]):  # type: ignore[misc]
                free = all(overlap(own[i], own[j]) <= limit for j in kept)
                if scores[b, i, c] > least and len(kept) < each and free:
                    kept.append(i)
            found += [(-scores[b, i, c], c, own[i]) for i in kept]
        found.sort(key=lambda row: row[:2])
        meant[b] = len(found[:total])
        for k, (value, c, box) in enumerate(found[:total]):
            picked[b, k], values[b, k], labels[b, k] = np.clip(box, 0, 1) if clipped else box, -value, c
    return picked, values, labels, meant


@cases("CUSTOM FlexCombinedNonMaxSuppression")
def flex_boxes() -> Iterator[Net]:
    for own, (each, total), (padded, clipped) in itertools.product(
        (False, True), ((2, 5), (9, 40), (3, 60)), ((False, True), (True, False))
    ):
        net = Net()
        limit, least = (0.1, 0.3) if clipped else (0.5, -1.0)
        boxes, scores = (
            net.input((2, 9, 4 if own else 1, 4), "float32", -0.2, 1.2),
            net.input((2, 9, 4), "float32", 0, 1),
        )
        numbers = [net.const(n, "int32") for n in (each, total)] + [net.const(n) for n in (limit, least)]
        found = min(total, each * 4) if padded else total
        outputs = [net.output((2, found, *rest)) for rest in ((4,), (), ())] + [net.output((2,), "int32")]
        flags = {"pad_per_class": padded, "clip_boxes": clipped}
        left(net, "CombinedNonMaxSuppression", [boxes, scores, *numbers], outputs, **flags)
        how = (each, total, np.float32(limit), np.float32(least)), {"padded": padded, "clipped": clipped}
        net.expected = lambda x, y, how=how: combined(x, y, *how[0], **how[1])
        yield net
