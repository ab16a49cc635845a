"""Small models with custom operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from flatbuffers import flexbuffers
from tflite_cases import cases, rng
from tflite_writing import Net, Scale

DETECTION = "CUSTOM TFLite_Detection_PostProcess"


def flexible(net: Net, options: dict[str, Any]) -> Net:
    """Give the last operator these options."""
    net.graph.operators[-1].customOptions = list(flexbuffers.Dumps(options))
    return net


def detection(
    *,
    boxes: int = 30,
    classes: int = 4,
    background: bool = True,
    most: int = 6,
    per_box: int = 1,
    regular: bool = False,
    per_class: int = 3,
    threshold: float = 0.3,
    overlap: float = 0.4,
    kind: str = "float32",
    wide: int = 4,
) -> Net:
    net, random = Net(), rng()
    columns = classes + background
    if kind == "float32":
        offsets, scores = net.input((1, boxes, wide)), net.input((1, boxes, columns), low=0, high=1)
    else:
        offsets = net.input((1, boxes, wide), kind, q=Scale(0.03, 120))
        scores = net.input((1, boxes, columns), kind, q=Scale(1 / 256, 0))
    where = np.concatenate([random.uniform(0.1, 0.9, (boxes, 2)), random.uniform(0.1, 0.5, (boxes, 2))], 1)
    # Where the offsets are integers, the kernel takes the anchors for integers too.
    anchors = net.const(where) if kind == "float32" else net.const(where * 200, kind, q=Scale(1 / 200, 0))
    rows = most * per_box
    results = [net.output(shape) for shape in ((1, rows, 4), (1, rows), (1, rows), (1,))]
    net.op(DETECTION, [offsets, scores, anchors], results)
    options = {
        "max_detections": most,
        "max_classes_per_detection": per_box,
        "detections_per_class": per_class,
        "use_regular_nms": regular,
        "nms_score_threshold": threshold,
        "nms_iou_threshold": overlap,
        "num_classes": classes,
        "y_scale": 10.0,
        "x_scale": 9.0,
        "h_scale": 5.0,
        "w_scale": 4.0,
    }
    return flexible(net, options)


@cases(DETECTION)
def detections() -> Iterator[Net]:
    """What the fast kernel does not fill it leaves as it was: here it fills all (see `test_tflite_custom`)."""
    for regular in (False, True):
        yield detection(regular=regular, most=3)
        yield detection(regular=regular, background=False, most=3)
        yield detection(regular=regular, threshold=0.0, overlap=0.9, most=12, per_class=5)
        yield detection(regular=regular, kind="uint8", boxes=12, most=3)
    yield detection(regular=True, threshold=0.93, overlap=0.2, most=12)
    yield detection(regular=True, threshold=1.5)
    yield detection(regular=True, classes=1, overlap=0.1, wide=6)
    yield detection(per_box=2, most=3)
    yield detection(per_box=4, background=False, overlap=0.7)
