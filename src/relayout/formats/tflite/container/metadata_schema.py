"""The schema of `TFLITE_METADATA` as rows, as `schema.py` has the model's: what a model says of itself to people."""

from __future__ import annotations

from relayout.formats.flatbuffer import Schema, rows

IDENTIFIER = b"M001"

_TABLES = {
    "ModelMetadata": (
        "name:string description:string version:string subgraph_metadata:[SubGraphMetadata] author:string "
        "license:string associated_files:[AssociatedFile] min_parser_version:string"
    ),
    "SubGraphMetadata": (
        "name:string description:string input_tensor_metadata:[TensorMetadata] "
        "output_tensor_metadata:[TensorMetadata] associated_files:[AssociatedFile] input_process_units:[ProcessUnit] "
        "output_process_units:[ProcessUnit] input_tensor_groups:[TensorGroup] output_tensor_groups:[TensorGroup] "
        "custom_metadata:[CustomMetadata]"
    ),
    "TensorMetadata": (
        "name:string description:string dimension_names:[string] content:Content process_units:[ProcessUnit] "
        "stats:Stats associated_files:[AssociatedFile]"
    ),
    "TensorGroup": "name:string tensor_names:[string]",
    "AssociatedFile": "name:string description:string type:AssociatedFileType locale:string version:string",
    "Content": "content_properties_type:uint8 content_properties:ContentProperties range:ValueRange",
    "ValueRange": "min:int32 max:int32",
    "FeatureProperties": "",
    "ImageProperties": "color_space:ColorSpaceType default_size:ImageSize",
    "ImageSize": "width:uint32 height:uint32",
    "BoundingBoxProperties": "index:[uint32] type:BoundingBoxType coordinate_type:CoordinateType",
    "AudioProperties": "sample_rate:uint32 channels:uint32",
    "Stats": "max:[float32] min:[float32]",
    "ProcessUnit": "options_type:uint8 options:ProcessUnitOptions",
    "NormalizationOptions": "mean:[float32] std:[float32]",
    "ScoreCalibrationOptions": "score_transformation:ScoreTransformationType default_score:float32",
    "ScoreThresholdingOptions": "global_score_threshold:float32",
    "BertTokenizerOptions": "vocab_file:[AssociatedFile]",
    "SentencePieceTokenizerOptions": "sentencePiece_model:[AssociatedFile] vocab_file:[AssociatedFile]",
    "RegexTokenizerOptions": "delim_regex_pattern:string vocab_file:[AssociatedFile]",
    "CustomMetadata": "name:string data:[uint8]",
}

_NAMES = {
    "AssociatedFileType": (
        "UNKNOWN DESCRIPTIONS TENSOR_AXIS_LABELS TENSOR_VALUE_LABELS TENSOR_AXIS_SCORE_CALIBRATION VOCABULARY "
        "SCANN_INDEX_FILE"
    ),
    "BoundingBoxType": "UNKNOWN BOUNDARIES UPPER_LEFT CENTER",
    "ColorSpaceType": "UNKNOWN RGB GRAYSCALE",
    "CoordinateType": "RATIO PIXEL",
    "ScoreTransformationType": "IDENTITY LOG INVERSE_LOGISTIC",
}

ENUMS = {name: text.split() for name, text in _NAMES.items()}
"""Names behind the numbers."""

SCHEMA = Schema(
    tables={name: rows(text) for name, text in _TABLES.items()},
    unions={
        "ContentProperties": (
            "NONE",
            "FeatureProperties",
            "ImageProperties",
            "BoundingBoxProperties",
            "AudioProperties",
        ),
        "ProcessUnitOptions": (
            "NONE",
            "NormalizationOptions",
            "ScoreCalibrationOptions",
            "ScoreThresholdingOptions",
            "BertTokenizerOptions",
            "SentencePieceTokenizerOptions",
            "RegexTokenizerOptions",
        ),
    },
    enums=dict.fromkeys(ENUMS, "int8"),
)
