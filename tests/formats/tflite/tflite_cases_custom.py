"""Small models with custom operators."""

from __future__ import annotations

import itertools
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


def spectrogram(window: int, stride: int, channels: int = 1, squared: bool = True, samples: int = 1000) -> Net:
    net, length = Net(), 1 << (window - 1).bit_length()
    y = net.output((channels, (samples - window) // stride + 1 if samples >= window else 0, length // 2 + 1))
    net.op("CUSTOM AudioSpectrogram", [net.input((samples, channels), low=-1, high=1)], [y])
    return flexible(net, {"window_size": window, "stride": stride, "magnitude_squared": squared})


def cepstrum(rate: int, computed: bool, frequencies: int = 257, **options: int) -> Net:
    net = Net()
    x = net.input((2, 7, frequencies), low=0.1, high=9)
    given = net.input((1,), "int32", rate, rate + 1) if computed else net.const([rate], "int32")
    named = {"upper_frequency_limit": 4000, "lower_frequency_limit": 20, "filterbank_channel_count": 40}
    named |= {"dct_coefficient_count": 13, **options}
    return flexible(net.op("CUSTOM Mfcc", [x, given], [net.output((2, 7, named["dct_coefficient_count"]))]), named)


@cases("CUSTOM AudioSpectrogram")
def spectrograms() -> Iterator[Net]:
    yield spectrogram(480, 160)
    yield spectrogram(256, 100, 2, squared=False)
    yield spectrogram(50, 64, 3)


@cases("CUSTOM Mfcc")
def cepstra() -> Iterator[Net]:
    for computed, rate in itertools.product((False, True), (7969, 7968, 4000)):
        yield cepstrum(rate, computed)  # below twice the upper limit, or nearly, there are zeros
    for computed in (False, True):
        yield cepstrum(16000, computed)
        yield cepstrum(
            44100, computed, upper_frequency_limit=8000, lower_frequency_limit=100, filterbank_channel_count=26
        )
        yield cepstrum(7900, computed)  # half of it is no 4000 Hz: zeros
        yield cepstrum(8000, computed, upper_frequency_limit=3999, lower_frequency_limit=0, dct_coefficient_count=40)
