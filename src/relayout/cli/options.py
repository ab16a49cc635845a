"""The options that verbs share."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import click

from relayout.arguments import MOST_BYTES, OPSETS
from relayout.cli.option_texts import (
    choice_option,
    comma_separated,
    custom_domains,
    dimensions,
    normalizations,
    option_group,
    pairs_by,
    sizes_by_name,
)
from relayout.cli.parameter_types import PAGE, LayoutName, Number, TargetName, WholeNumber

layouts = click.option(
    "--layout",
    "layouts",
    multiple=True,
    metavar="TENSOR=SRC:DST",
    callback=pairs_by("=", "TENSOR=SRC:DST"),
    help="Store a tensor in this layout: x=NHWC:NCHW (repeatable).",
)
counterparts = click.option(
    "--layout",
    "layouts",
    multiple=True,
    metavar="TENSOR=SRC:DST",
    callback=pairs_by("=", "TENSOR=SRC:DST"),
    help="An input or output that is SRC in FIRST is DST in SECOND: x=NHWC:NCHW (repeatable).",
)
dims = click.option(
    "--dim",
    "dims",
    multiple=True,
    metavar="NAME=N",
    callback=dimensions,
    help="Fix a dynamic dimension, batch=1, or say that it is another, unk__7=batch; open a fixed one, image:0=batch"
    " (repeatable).",
)
at = click.option(
    "--at",
    "at",
    multiple=True,
    metavar="NAME=N,…",
    callback=sizes_by_name,
    help="Count bytes, and choose layouts, at these extents of dynamic dimensions, height=640,width=640; the result"
    " stays open (repeatable).",
)
batch = click.option(
    "--batch",
    metavar="NUMBER|NAME",
    help="What the first axis of all inputs becomes, also where it is fixed: a number, or a name that leaves it open.",
)
io = choice_option(
    "--io",
    ["keep", "convert", "NCHW", "NHWC"],
    "Inputs and outputs as in the source, in the order that costs nothing, or images in this layout.",
)
INTERFACE_TYPES = click.Choice(["float32", "int8", "uint8", "int32"], case_sensitive=False)
input_type = click.option(
    "--input-type",
    type=INTERFACE_TYPES,
    help="Element type of quantized inputs, or int32 for inputs of int64. Inputs that --normalize names can be uint8,"
    " too.",
)
output_type = click.option("--output-type", type=INTERFACE_TYPES, help="The same for outputs.")
normalize = click.option(
    "--normalize",
    multiple=True,
    metavar="INPUT=MEAN:STD",
    callback=normalizations,
    help="Let the result normalize an input, image=127.5:127.5, or with a number for each channel,"
    " image=124,116,104:58,57,57 (repeatable).",
)
output_format = click.option(
    "--format",
    "format",
    type=click.Choice(["onnx", "tflite"], case_sensitive=False),
    help="Format of the result, where no suffix says it: with --out-dir, on standard output. [default: onnx]",
)
explained_format = click.option(
    "--format",
    "format",
    type=click.Choice(["onnx", "tflite"], case_sensitive=False),
    help="Format of the result that is explained. [default: onnx]",
)
runtime = click.option(
    "--runtime",
    metavar="VERSION",
    help="Of a .tflite result: the oldest TensorFlow Lite that has to run it, such as 2.14. What its kernels lack is"
    " written by others, or refused.",
)
quantize = click.option(
    "--quantize",
    type=click.Choice(["int8", "int16x8", "dynamic", "float16"], case_sensitive=False),
    help="Of a .tflite result: integers of 8 bits, of 16 with weights of 8, weights of 8 bits alone, or halves as"
    " weights (needs onnx-relayout[quantize]).",
)
calibrate = click.option(
    "--calibrate",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DATA",
    help="For --quantize int8 and int16x8: a folder, or files, of .npy, .npz or images as the source is fed them"
    " (repeatable).",
)
keep_float = click.option(
    "--keep-float",
    multiple=True,
    metavar="NAME,…",
    callback=comma_separated,
    help="For --quantize: operators or values that stay float; * stands for any characters (repeatable).",
)
opset = click.option(
    "--opset",
    type=WholeNumber(*OPSETS),
    help="Of an ONNX result. [default: the least that a .tflite needs, from 18 on; that of an ONNX source]",
)
quant = choice_option("--quant", ["qdq", "float"], "A quantized .tflite as integers (QDQ), or as a float model.")
signature = click.option("--signature", metavar="NAME", help="Which signature of a .tflite (default: the first).")
state = choice_option(
    "--state", ["zero", "io"], "Variables of a .tflite: their initial values in every run, or inputs and outputs."
)
custom_ops = click.option(
    "--custom-op",
    "custom_ops",
    multiple=True,
    metavar="NAME[=DOMAIN]",
    callback=custom_domains,
    help="A custom operator: of a .tflite source it becomes a node of DOMAIN; in a .tflite result a node of DOMAIN, or"
    " of any, becomes CUSTOM (repeatable).",
)
time_limit = click.option(
    "--time-limit",
    type=float,
    metavar="SECONDS",
    help="Stop the solver and report the gap. [default: limits of work, and no clock]",
)
per_transpose = click.option(
    "--per-transpose",
    type=WholeNumber(0, MOST_BYTES),
    metavar="BYTES",
    help="What each Transpose costs besides its bytes: with a large number there are as few as can be. [default: 0, but"
    " no more of them than an ONNX source has, where its layouts stay]",
)
exchange = click.option(
    "--exchange", is_flag=True, help="Let a MatMul or Gemm run with its operands exchanged, where that saves bytes."
)
what_if = click.option("--what-if", is_flag=True, help="Also list which single constraint costs how many bytes.")
plan_file = click.option(
    "--plan", "plan_file", type=click.Path(dir_okay=False, path_type=Path), help="Write choice and certificate as JSON."
)
html = click.option("--html", type=PAGE, help="Write the graph before and after as one page.")
model_explorer = click.option("--model-explorer", type=PAGE, help="Write every layout as Model Explorer's node data.")
annotate = click.option(
    "--annotate", is_flag=True, help="Put layouts into the metadata of nodes and values, where Netron shows them."
)
max_bytes = click.option(
    "--max-bytes",
    type=WholeNumber(0),
    metavar="BYTES",
    help="Exit with 1 where more bytes than these stay transposed.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


def _log(_: click.Context, __: click.Parameter, verbose: bool) -> None:
    """Show on standard error what the library logs, with the milliseconds since the start."""
    if verbose:
        logging.basicConfig(format="%(relativeCreated)7.0f ms  %(message)s", stream=sys.stderr)
        logging.getLogger("relayout").setLevel(logging.INFO)


verbose = click.option(
    "-v",
    "--verbose",
    is_flag=True,
    expose_value=False,
    callback=_log,
    help="Log each stage; give names whole and, in a report, every Transpose.",
)
quiet = click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
external_data = click.option(
    "--external-data", is_flag=True, default=None, help="Weights in OUT.data (above 2 GB always)."
)
overwrite = click.option(
    "--overwrite",
    is_flag=True,
    help="Allow the result to replace its source (convert: and new parts to replace earlier ones).",
)
feeds = click.option(
    "--input",
    "feeds",
    multiple=True,
    metavar="NAME=FILE.npy",
    callback=pairs_by("=", "NAME=FILE.npy"),
    help="What to feed (repeatable; default: random, image-like for images).",
)
inputs = click.option(
    "--inputs",
    multiple=True,
    metavar="A,B",
    callback=comma_separated,
    help="Only the part of the graph from these values on.",
)
outputs = click.option(
    "--outputs",
    multiple=True,
    metavar="C,D",
    callback=comma_separated,
    help="Only the part of the graph up to these values.",
)
rename = click.option(
    "--rename",
    multiple=True,
    metavar="OLD=NEW",
    callback=pairs_by("=", "OLD=NEW"),
    help="Give an input, output or interior value another name (repeatable).",
)
to = click.option(
    "--to",
    type=LayoutName(),
    metavar="LAYOUT",
    help="Layout of convolutions, pools and the like: NHWC, NCHW, NCHW16c; NHWC is NWC and NDHWC for other ranks.",
)
backend = click.option(
    "--target",
    "backend",
    type=TargetName(),
    metavar="NAME|FILE",
    help="What the result is for: layouts, operators and tuning of that backend, as `relayout targets` lists them; or a"
    " table in a file: npu.toml, file.py:NAME. By default any runtime; `none` chooses layouts and does nothing else.",
)
claimed_operators = click.option(
    "--ops",
    "claimed_operators",
    metavar="NAME,…",
    help="A target that runs these operators and no others: Conv,Relu (convert: in the layout of --to).",
)
desired = click.option(
    "--desired-layouts",
    "desired",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Layouts by operator and node, TOML or JSON.",
)
regions = choice_option(
    "--regions",
    ["flat", "functions"],
    "What the target runs stays in one graph, or becomes a function for each connected part.",
)
parts = click.option(
    "--partition-dir",
    "--parts",
    "parts",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="A model for each part that the target or the host runs, and a manifest; TARGET may be left out.",
)
inline = click.option(
    "--inline", is_flag=True, help="Write standard operators between Transposes instead of functions."
)
seed = click.option("--seed", type=WholeNumber(0), default=0, show_default=True, help="Seed of the random inputs.")
verify = click.option("--verify", is_flag=True, help="Run source and result and compare them value by value.")
rtol = click.option(
    "--rtol",
    type=Number(0),
    default=1e-5,
    show_default=True,
    help="Floats agree within ATOL + RTOL times the largest magnitude in the tensor.",
)
atol = click.option("--atol", type=Number(0), default=1e-6, show_default=True, help="As --rtol, but absolute.")
part = option_group(dims, batch, inputs, outputs, rename, section="Which part of the graph")
importing = option_group(opset, quant, signature, state, custom_ops, section="Reading a .tflite")
wishing = option_group(to, backend, claimed_operators, desired, inline, section="Layouts of operators")
aiming = option_group(backend, claimed_operators, section="Layouts of operators")
solving = option_group(per_transpose, exchange, time_limit, what_if, section="The solver")
views = option_group(html, model_explorer, section="To look at")
interface = option_group(io, layouts, input_type, output_type, normalize)
conversion = option_group(runtime, interface, part, at, importing, wishing, solving, views)
"""What `convert` does, and `explain` tells of."""
quantizing = option_group(quantize, calibrate, keep_float, section="Quantization")
splitting = option_group(regions, parts, section="What a target runs")
writing = option_group(annotate, plan_file, external_data, overwrite, section="What is written")
verifying = option_group(verify, feeds, seed, rtol, section="Verification")
written = option_group(writing, verifying, max_bytes, as_json, quiet, verbose)
"""How a model is written, checked and reported."""
FOR_ONE = {"--plan": "plan_file", "--html": "html", "--model-explorer": "model_explorer", "--partition-dir": "parts"}
"""Options that name one place, and so are for one model -> their parameters."""
