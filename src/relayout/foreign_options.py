"""Options of other tools, and relayout's for the same: a habit is answered and not only refused."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from itertools import takewhile

FIRST_FILE = "the source is the first file: relayout convert model.onnx model.tflite"
DIMS = "--dim NAME=N for an open dimension, --dim INPUT:AXIS=N for a fixed one"
KEPT = "nothing, since --io keep is the default"
QUANTIZE = "--quantize int8 --calibrate DATA, or --quantize dynamic (docs/how-to/int8.md)"
NOT_A_VERB = "relayout convert MODEL OUT.tflite --quantize int8 --calibrate DATA (docs/how-to/int8.md)"
FLOAT16 = "--quantize float16, for a .tflite result (docs/how-to/int8.md)"
PIXELS = ", or with --normalize"  # the end of an answer that is true of uint8 alone
ELEMENT_TYPES = ("float32", "int8", "uint8")  # what --input-type and --output-type take
NO_TENSORFLOW = "none, since .tflite and .onnx are all that relayout writes"
NO_SUBSTITUTES = "nothing: operators become what LiteRT computes exactly"
NO_SIMPLIFIER = "nothing: no other tool runs"

TF2ONNX: Mapping[tuple[str, ...], str] = {
    ("--tflite",): "give the .tflite file first: relayout convert model.tflite model.onnx",
    ("--output",): "the result is the second file",
    ("--saved-model",): "convert the SavedModel to a .tflite with TensorFlow first",
    ("--graphdef",): "convert the graph to a .tflite with TensorFlow first",
    ("--keras",): "convert the Keras model to a .tflite with TensorFlow first",
    ("--inputs-as-nchw",): "--layout INPUT=NHWC:NCHW, or --io NCHW for all images",
    ("--outputs-as-nchw",): "--layout OUTPUT=NHWC:NCHW, or --io NCHW for all images",
    ("--rename-inputs", "--rename-outputs"): "--rename OLD=NEW",
    ("--dequantize",): "--quant float",
    ("--large-model",): "--external-data, which is the default above 2 GB",
    ("--custom-ops",): "--custom-op NAME=DOMAIN",
    ("--tag",): "it is for a SavedModel; a .tflite has --signature",
}
ONNX2TF: Mapping[tuple[str, ...], str] = {
    ("-i", "--input-onnx-file-path"): FIRST_FILE,
    ("--output-folder-path",): "the result is the second file, or --out-dir DIR for several sources",
    ("-osd", "--output-signaturedefs"): "nothing: the file has a signature with the names of the source",
    ("-coion", "--copy-onnx-input-output-names-to-tflite"): "nothing: names are always those of the source",
    ("-cotof", "--check-onnx-tf-outputs-elementwise-close-full"): "--verify",
    ("-coto", "--check-onnx-tf-outputs-elementwise-close"): "--verify",
    ("-kat", "--keep-shape-absolutely-input-names"): KEPT,
    ("-k", "--keep-ncw-or-nchw-or-ncdhw-input-names"): KEPT,
    ("-kt", "--keep-nwc-or-nhwc-or-ndhwc-input-names"): KEPT,
    ("-b", "--batch-size"): "--batch N, or --dim NAME=N with the name of the dimension",
    ("-ois", "--overwrite-input-shape"): DIMS,
    ("-inimc", "--input-names-to-interrupt-model-conversion"): "--inputs A",
    ("-onimc", "--output-names-to-interrupt-model-conversion"): "--outputs B",
    ("-oiqt", "--output-integer-quantized-tflite"): QUANTIZE,
    ("-odrqt", "--output-dynamic-range-quantized-tflite"): "--quantize dynamic (docs/how-to/int8.md)",
    ("-qt", "--quant-type"): QUANTIZE,
    ("-iqd", "--input-quant-dtype"): f"--input-type uint8, for a model that is quantized{PIXELS}",
    ("-oqd", "--output-quant-dtype"): "--output-type uint8, for a model that is quantized",
    ("-cind", "--custom-input-op-name-np-data-path"): "--verify --input NAME=FILE.npy to compare with your own data;"
    " --calibrate FILE.npy with --quantize int8 to calibrate with it",
    ("-oh5", "--output-h5"): NO_TENSORFLOW,
    ("-okv3", "--output-keras-v3"): NO_TENSORFLOW,
    ("-otfv1pb", "--output-tfv1-pb"): NO_TENSORFLOW,
    ("-prf", "--param-replacement-file"): "nothing: no operator needs a repair; --layout NAME=NCHW:NHWC pins a tensor",
    ("-agj", "--auto-generate-json"): "nothing: no operator needs a repair; --layout NAME=NCHW:NHWC pins a tensor",
    ("-nuo", "--not-use-onnxsim"): NO_SIMPLIFIER,
    ("-nuonag", "--not-use-opname-auto-generate"): NO_SIMPLIFIER,
    ("-rtpo", "--replace-to-pseudo-operators"): NO_SUBSTITUTES,
    ("-rari64d", "--replace-argmax-to-reducemax-and-indices-is-int64"): NO_SUBSTITUTES,
    ("-ebu", "--enable-batchmatmul-unfold"): NO_SUBSTITUTES,
    ("-eatfp16", "--enable-accumulation-type-float16"): "nothing: relayout writes no such hint into the file",
    ("-n", "--non-verbose"): "-q",
}
OTHERS: Mapping[tuple[str, ...], str] = {
    # tflite2onnx
    ("--explicit-layouts",): "--layout TENSOR=SRC:DST",
    # OpenVINO's ovc and Model Optimizer
    ("--input-layout",): "--layout INPUT=SRC:DST",
    ("--layout-transform",): "--layout TENSOR=SRC:DST",
    ("--input-shape",): DIMS,
    ("--mean-values", "--scale-values"): "--normalize INPUT=MEAN:STD",
    ("--reverse-input-channels",): "relayout does not reorder channels; do it where images are read",
    # onnxsim, onnxslim, onnxruntime
    ("--overwrite-input-shapes",): DIMS,
    ("--skip-optimization",): "nothing is fused by default; --target none chooses layouts and does nothing else",
    ("--model-check",): "--verify",
    ("--simplify", "--sim", "--onnxsim", "--onnxslim"): NO_SIMPLIFIER,
    ("--optimize", "-O"): "nothing: the fewest transposed bytes are the default; relayout optimize for ONNX to ONNX",
    ("--calibration-data", "--calib", "--representative-dataset"): "--calibrate DATA, with --quantize int8",
    ("--dynamic", "--dynamic-batch"): "--batch N leaves the batch open; --dim INPUT:AXIS=NAME another axis",
    ("--imgsz", "--img-size"): DIMS,
    ("--output-names",): "--outputs B",
    ("--input-names",): "--inputs A",
    # Of several, or of habit
    ("--int8",): QUANTIZE,
    ("--float16", "--fp16", "--half"): FLOAT16,
    ("--shape",): DIMS,
    ("--dtype", "--precision"): "--quantize float16, int8, dynamic or int16x8, for a .tflite result",
    ("--device", "--backend", "--accelerator-config"): "--target NAME, of those that `relayout targets` lists",
    ("--nchw",): "--io NCHW",
    ("--nhwc",): "--io NHWC",
    ("--tolerance",): "relayout verify has --rtol and --atol",
}
VERBS: Mapping[str, str] = {"quantize": NOT_A_VERB}  # a verb that relayout does not have -> what to do

COMMAND_LINE: Mapping[str, str] = {
    name: answer for rows in (TF2ONNX, ONNX2TF, OTHERS) for names, answer in rows.items() for name in names
}
"""Option of another tool, with `-` between its words -> what to write here. docs/migrate/ names the same options."""


def answers(
    words: Iterable[str],  # the command line behind the verb; words behind `--` are no options
    own: Container[str],  # the options that the verb has
) -> dict[str, str]:
    """Return the options of other tools among the words of a command line, with what to write in their place."""
    answered = {}
    typed = [*takewhile("--".__ne__, words)]
    for word, following in zip(typed, [*typed[1:], ""], strict=False):
        option, mark, value = word.partition("=")
        name = option.replace("_", "-")
        if name in COMMAND_LINE and option not in own:
            answered[option] = _of_type(COMMAND_LINE[name], value if mark else following)
    return answered


def _of_type(answer: str, value: str) -> str:
    """Return an answer that names an element type with the one that was typed."""
    if value not in ELEMENT_TYPES or "-type uint8" not in answer:
        return answer
    stated = answer.replace("-type uint8", f"-type {value}")
    return stated if value == "uint8" else stated.removesuffix(PIXELS)


COMMANDS: Mapping[str, str] = {  # verb that the Python interface does not have -> its line
    "bench": "bench FIRST SECOND",
    "check": "check PLAN MODEL",
    "diff": "diff FIRST SECOND",
    "info": "info MODEL",
    "reduce": "reduce SOURCE TARGET",
}
PYTHON: Mapping[str, str] = {  # argument of another tool's Python function -> what to do here
    "explicit_layouts": "write layouts={'x': ('NHWC', 'NCHW')}",
    "inputs_as_nchw": "write io='NCHW', or layouts={'x': ('NHWC', 'NCHW')}",
    "outputs_as_nchw": "write io='NCHW', or layouts={'y': ('NHWC', 'NCHW')}",
    "tflite_path": "the source is the first argument",
    "onnx_path": "save the result: relayout.convert(source).save('model.onnx')",
    "output": "save the result: relayout.convert(source).save('model.onnx')",
    "output_path": "save the result: relayout.convert(source).save('model.onnx')",
    "input_onnx_file_path": "the source is the first argument",
    "output_folder_path": "save the result: relayout.convert(source, format='tflite').save('model.tflite')",
    "dequantize": "write quant='float'",
    "batch_size": "write batch=N",
    "verify": "call relayout.verify(source, result)",
    "dynamic_axes": "write dims={'x:0': 'batch'}, or batch='N'",
    "input_names": "write inputs=[…] to cut the graph; names are always those of the source",
}
