"""Options of other tools, and relayout's for the same: a habit is answered and not only refused."""

from __future__ import annotations

from collections.abc import Mapping

COMMAND_LINE: Mapping[str, str] = {
    # tf2onnx
    "--tflite": "give the .tflite file first: relayout convert model.tflite model.onnx",
    "--saved-model": "convert the SavedModel to a .tflite with TensorFlow first",
    "--graphdef": "convert the graph to a .tflite with TensorFlow first",
    "--keras": "convert the Keras model to a .tflite with TensorFlow first",
    "--inputs-as-nchw": "--layout INPUT=NHWC:NCHW, or --io NCHW for all images",
    "--outputs-as-nchw": "--layout OUTPUT=NHWC:NCHW, or --io NCHW for all images",
    "--dequantize": "--quant float",
    "--tag": "it is for a SavedModel; a .tflite has --signature",
    # tflite2onnx
    "--explicit-layouts": "--layout TENSOR=SRC:DST",
    # onnx2tf
    "--input-onnx-file-path": "the source is the first file",
    "--output-folder-path": "the result is the second file, or --out-dir DIR for several sources",
    "--keep-ncw-or-nchw-or-ncdhw-input-names": "--io keep, which is the default, or --layout INPUT=NCHW:NCHW",
    "--keep-nwc-or-nhwc-or-ndhwc-input-names": "--layout INPUT=NHWC:NHWC",
    "--keep-shape-absolutely-input-names": "--io keep, which is the default",
    "-kat": "--io keep, which is the default",
    "-kt": "--layout INPUT=NCHW:NCHW for one input; --io keep, which is the default, for all",
    "--batch-size": "--batch N",
    "--overwrite-input-shape": "--dim NAME=N for an open dimension, --dim INPUT:AXIS=N for a fixed one",
    "--output-integer-quantized-tflite": "quantize the ONNX model first, or the .tflite with ai-edge-quantizer",
    "--copy-onnx-input-output-names-to-tflite": "names are always those of the source",
    # OpenVINO's ovc and Model Optimizer
    "--input-layout": "--layout INPUT=SRC:DST",
    "--layout-transform": "--layout TENSOR=SRC:DST",
    "--input-shape": "--dim NAME=N for an open dimension, --dim INPUT:AXIS=N for a fixed one",
    "--mean-values": "--normalize INPUT=MEAN:STD",
    "--scale-values": "--normalize INPUT=MEAN:STD",
    "--reverse-input-channels": "relayout does not reorder channels; do it where images are read",
    # onnxsim, onnxslim, onnxruntime
    "--overwrite-input-shapes": "--dim NAME=N for an open dimension, --dim INPUT:AXIS=N for a fixed one",
    "--skip-optimization": "nothing is fused by default; --target none chooses layouts and does nothing else",
    "--model-check": "--verify",
}
"""Option of another tool -> what to write here."""

PYTHON: Mapping[str, str] = {
    "explicit_layouts": "write layouts={'x': ('NHWC', 'NCHW')}",
    "inputs_as_nchw": "write io='NCHW', or layouts={'x': ('NHWC', 'NCHW')}",
    "outputs_as_nchw": "write io='NCHW', or layouts={'y': ('NHWC', 'NCHW')}",
    "tflite_path": "the source is the first argument",
    "onnx_path": "save the result: relayout.convert(source).save('model.onnx')",
    "output_path": "save the result: relayout.convert(source).save('model.onnx')",
    "input_onnx_file_path": "the source is the first argument",
    "output_folder_path": "save the result: relayout.convert(source, format='tflite').save('model.tflite')",
    "dequantize": "write quant='float'",
    "batch_size": "write batch=N",
    "verify": "call relayout.verify(source, result)",
    "dynamic_axes": "write dims={'x:0': 'batch'}, or batch='N'",
    "input_names": "write inputs=[…] to cut the graph; names are always those of the source",
}
"""Argument of another tool's Python function -> what to do here."""
