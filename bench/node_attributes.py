"""Values of attributes of ONNX's operators."""

from __future__ import annotations

from collections.abc import Mapping

AUTO_PADS = ["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]
TEXTS: Mapping[str, list[str]] = {
    "auto_pad": AUTO_PADS,
    "coordinate_transformation_mode": [
        *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"),
        *("tf_crop_and_resize", "output_half_pixel"),
    ],
    "nearest_mode": ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"],
    "keep_aspect_ratio_policy": ["stretch", "not_larger", "not_smaller"],
    "padding_mode": ["zeros", "border", "reflection"],
    "direction": ["forward", "reverse", "bidirectional", "LEFT", "RIGHT"],
    "approximate": ["none", "tanh"],
    "mode": [
        *("constant", "reflect", "edge", "wrap", "nearest", "linear", "cubic", "bilinear", "bicubic", "avg", "max"),
        *("DCR", "CRD"),
    ],
}
"""Attribute -> its texts, of all operators together."""
FLAGS = frozenset(
    [
        *("keepdims", "ceil_mode", "count_include_pad", "select_last_index", "exclusive", "reverse", "align_corners"),
        *("largest", "sorted", "noop_with_empty_axes", "antialias", "exclude_outside", "onesided", "inverse"),
        *("transA", "transB", "linear_before_reset", "input_forget", "fmod", "upper", "is_causal", "detect_negative"),
        *("detect_positive", "center_point_box", "storage_order", "allowzero", "interleaved", "periodic", "layout"),
        *("training_mode", "batch_axis", "time_axis"),
    ]
)
"""Attributes that are 0 or 1."""
NUMBERS = [0.0, 0.5, 1.0, 1.5, 2.0, -0.75, 3.0]
