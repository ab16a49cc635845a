"""The options that verbs share."""

from __future__ import annotations

import logging
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from relayout.arguments import MOST_BYTES, OPSETS, is_symbol, whole
from relayout.errors import nearest

# How an option is declared, and how the text that it is given becomes a value.

F = TypeVar("F", bound=Callable[..., Any])
SECTION = "section"  # attribute of an option: the heading in `--help` that it stands under

MOST_DIGITS = 18  # of an extent: what 64 bits hold


def option_group(*options: Callable[[F], F], section: str = "") -> Callable[[F], F]:
    """Several options as one decorator; `--help` lists them in this order, under the heading of their section."""

    def decorate(function: F) -> F:
        before = len(getattr(function, "__click_params__", ()))
        for option in reversed(options):
            function = option(function)
        for parameter in getattr(function, "__click_params__", ())[before:] if section else ():
            setattr(parameter, SECTION, section)
        return function

    return decorate


def pairs_of(form: str) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], dict[str, str]]:
    """Return what reads texts of two parts, `NAME=N`, as `form` says."""

    def parse(_: click.Context, __: click.Parameter, items: tuple[str, ...]) -> dict[str, str]:
        pairs: dict[str, str] = {}
        for item in items:
            name, mark, rest = item.rpartition("=")
            if not mark or not name or not rest:
                raise click.BadParameter(f"{item!r} is not {form}")
            if pairs.setdefault(name, rest) != rest:
                raise click.BadParameter(f"{name!r} is given twice: {pairs[name]!r} and {rest!r}")
        return pairs

    return parse


def repeatable(
    flag: str,
    name: str,
    metavar: str,
    read: Callable[[click.Context, click.Parameter, tuple[str, ...]], Any],
    what: str,
) -> Callable[[F], F]:
    """Return an option that may be given several times; `read` makes one value of its texts."""
    return click.option(flag, name, multiple=True, metavar=metavar, callback=read, help=what)


def choice_option(name: str, values: Sequence[str], what: str) -> Callable[[F], F]:
    """Return an option that takes one of some words, in any case; the first where it is not given."""
    return click.option(name, type=Word(values), default=values[0], show_default=True, help=what)


def dimensions(context: click.Context, parameter: click.Parameter, items: tuple[str, ...]) -> dict[str, str]:
    """Read dimensions and what they become."""
    for item in items:
        if match := re.fullmatch(r"(.+):(-?\d+)", item):
            what = f"axis {match[2]} of input {match[1]!r}"
            raise click.BadParameter(f"{item!r} is not NAME=N: write {item}=N for {what}")
    return pairs_of("NAME=N")(context, parameter, items)


def sizes_by_name(context: click.Context, parameter: click.Parameter, items: tuple[str, ...]) -> dict[str, int]:
    """Read dynamic dimensions and the extents that bytes are counted at."""
    form = "NAME=N, such as height=640,width=640"
    sizes = {}
    for name, text in pairs_of(form)(context, parameter, tuple(",".join(items).split(",") if items else ())).items():
        if (size := _whole(text)) is None:
            raise click.BadParameter(f"{f'{name}={text}'!r} is not {form}: an extent is a whole number from 1 on")
        sizes[name] = size
    return sizes


def _whole(text: str) -> int | None:
    """Return the extent that a text says; None where it is none."""
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS and int(text) else None


def normalizations(
    context: click.Context, parameter: click.Parameter, items: tuple[str, ...]
) -> dict[str, tuple[list[float], list[float]]]:
    """Read the means and standard deviations of inputs."""
    form = "INPUT=MEAN:STD, such as image=127.5:127.5 or image=124,116,104:58,57,57"
    by_input = {}
    for name, text in pairs_of(form)(context, parameter, items).items():
        try:
            mean, std = ([float(number) for number in side.split(",")] for side in text.split(":"))
        except ValueError:
            raise click.BadParameter(f"{f'{name}={text}'!r} is not {form}") from None
        by_input[name] = (mean, std)
    return by_input


def comma_separated(_: click.Context, __: click.Parameter, items: tuple[str, ...]) -> list[str]:
    """Read lists of names with commas between."""
    return [name.strip() for item in items for name in item.split(",") if name.strip()]


# Values of options as the Python interface takes them.


def layout_pairs(layouts: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Tensor and its two layouts, of `SRC:DST`.

    Raises:
        click.BadParameter: it is not that.
    """
    for name, pair in layouts.items():
        source, mark, target = pair.partition(":")
        if not mark:
            raise click.BadParameter(f"{name}={pair} is not TENSOR=SRC:DST", param_hint="--layout")
        yield name, (source, target)


def python_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return options as the Python interface takes them."""
    if options.get("format") is None:
        options.pop("format", None)
    if not options.get("calibrate", True):
        del options["calibrate"]
    layouts = options.pop("layouts", None)
    if layouts is not None:
        options["layouts"] = dict(layout_pairs(layouts))
    dims = options.pop("dims", {})
    options["dims"] = {name: _extent(extent, name, "--dim") for name, extent in dims.items()}
    batch = options.pop("batch", None)
    if batch is not None:
        options["batch"] = _extent(batch, None, "--batch")
    return options | _wishes(options)


def _extent(text: str, dimension: str | None, option: str) -> int | str:
    """Return the number or name that a dimension, or the batch, gets.

    Raises:
        click.BadParameter: it is neither.
    """
    if is_symbol(text):
        return text
    if (size := _whole(text)) is None:
        before = "" if dimension is None else f"{dimension}="
        raise click.BadParameter(
            f"{before}{text}: an extent is a whole number from 1 on, of at most {MOST_DIGITS} digits; to leave it open"
            f" give a name: {option} {before}N",
            param_hint=option,
        )
    return size


def _wishes(options: dict[str, Any]) -> dict[str, Any]:
    """Return the layout requests of a file; an option beside it has precedence."""
    path, target, operators = (options.pop(name, None) for name in ("desired", "backend", "claimed_operators"))
    if operators is not None:
        if target is not None:
            raise click.BadParameter("--target says what is run, too: give one of the two", param_hint="--ops")
        target = f"ops:{operators}"
    desired: dict[str, Any] = {} if target is None else {"target": target}
    if path is not None:
        from relayout.targets import read_desired_layouts

        desired = read_desired_layouts(path) | desired
    return desired if options.get("to") is None else desired | {"to": options["to"]}


# Types of what is given on the command line: a target, a layout, a model's path.

PAGE = click.Path(dir_okay=False, path_type=Path)


class TargetName(click.ParamType[str]):
    """A target's name, or a file with one; completion offers both."""

    name = "target"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the targets whose names begin so, or files."""
        from relayout.targets import targets

        known = [
            CompletionItem(name, help=each.line) for name, each in targets().items() if name.startswith(incomplete)
        ]
        return known or [CompletionItem(incomplete, type="file")]


class WholeNumber(click.IntRange):
    """A whole number between bounds; what is none is answered with the bounds, in words."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            description = whole(int(self.min or 0), None if self.max is None else int(self.max)).expected
            self.fail(f"{value!r} is not {description}", param, ctx)


class Number(click.FloatRange):
    """A number between bounds; what is none is answered with the bounds, in words."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        try:
            number = super().convert(value, param, ctx)
        except click.BadParameter:
            number = math.nan
        if math.isnan(number):
            end = "on" if self.max is None else f"to {self.max:,g}"
            self.fail(f"{value!r} is not a number from {self.min or 0:g} {end}", param, ctx)
        return number


class Word(click.Choice[str]):
    """One of some words, in any case; what is none is answered with the nearest, or with all."""

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__(words, case_sensitive=False)

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """Return what is wrong."""
        return f"it takes no {str(value)!r}{nearest(str(value), self.choices)}"


class LayoutName(click.ParamType[str]):
    """A layout; completion offers the usual ones."""

    name = "layout"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the usual layouts that begin so."""
        return [CompletionItem(name) for name in ("NHWC", "NCHW", "NCHW16c", "NCHW8c") if name.startswith(incomplete)]


class _Model(click.Path):
    """A path. Whether it is a file is said by who reads or writes it, but of a `/` in the end, which a `Path` loses."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if str(value).endswith(("/", os.sep)) and not os.path.isdir(value):
            self.fail(f"{value} is the name of a directory, and there is none; give the name of a file", param, ctx)
        return super().convert(value, param, ctx)


MODEL = _Model(path_type=Path)


PIN = "--layout", "layouts", "TENSOR=SRC:DST", pairs_of("TENSOR=SRC:DST")
layouts = repeatable(*PIN, "Store a tensor in this layout: x=NHWC:NCHW (repeatable).")
counterparts = repeatable(*PIN, "An input or output that is SRC in FIRST is DST in SECOND: x=NHWC:NCHW (repeatable).")
dims = repeatable(
    "--dim",
    "dims",
    "NAME=N",
    dimensions,
    "Fix a dynamic dimension, batch=1, or say that it is another, unk__7=batch; open a fixed one, image:0=batch"
    " (repeatable).",
)
at = repeatable(
    "--at",
    "at",
    "NAME=N,…",
    sizes_by_name,
    "Count bytes, and choose layouts, at these extents of dynamic dimensions, height=640,width=640; the result"
    " stays open (repeatable).",
)
batch = click.option(
    "--batch",
    metavar="NUMBER|NAME",
    help="Change the first axis of all inputs, also a fixed one, to this number, or open it under this name.",
)
io = choice_option(
    "--io",
    ["keep", "convert", "NCHW", "NHWC"],
    "Inputs and outputs as in the source, in the order that costs nothing, or images in this layout.",
)
INTERFACE_TYPES = Word(["float32", "int8", "uint8", "int32"])
input_type = click.option(
    "--input-type",
    type=INTERFACE_TYPES,
    help="Element type of quantized inputs, or int32 for inputs of int64. Inputs that --normalize names can be uint8,"
    " too.",
)
output_type = click.option("--output-type", type=INTERFACE_TYPES, help="The same for outputs.")
normalize = repeatable(
    "--normalize",
    "normalize",
    "INPUT=MEAN:STD",
    normalizations,
    "Let the result normalize an input, image=127.5:127.5, or with a number for each channel,"
    " image=124,116,104:58,57,57 (repeatable).",
)
FORMATS = Word(["onnx", "tflite"])
output_format = click.option(
    "--format",
    type=FORMATS,
    help="Format of the result, where no suffix says it: with --out-dir, on standard output. [default: onnx]",
)
explained_format = click.option(
    "--format", type=FORMATS, help="Format of the result that is explained. [default: onnx]"
)
runtime = click.option(
    "--runtime",
    metavar="VERSION",
    help="The oldest TensorFlow Lite that must run a .tflite result, such as 2.14. Newer operators are replaced, or"
    " refused.",
)
quantize = click.option(
    "--quantize",
    type=Word(["int8", "int16x8", "dynamic", "float16"]),
    help="Quantize a .tflite result: all to 8 bits, activations to 16 and weights to 8, weights to 8, or weights to"
    " float16 (needs onnx-relayout[quantize]).",
)
calibrate = click.option(
    "--calibrate",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DATA",
    help="For --quantize int8 and int16x8: a folder, or files, of .npy, .npz or images as the source is fed them"
    " (repeatable).",
)
keep_float = repeatable(
    "--keep-float",
    "keep_float",
    "NAME,…",
    comma_separated,
    "For --quantize: operators or values that stay float; * stands for any characters (repeatable).",
)
float32 = click.option(
    "--float32",
    is_flag=True,
    help="Compute float64 and bfloat16 of an ONNX source in float32, inputs and outputs included.",
)
opset = click.option(
    "--opset",
    type=WholeNumber(*OPSETS),
    help="Opset of an ONNX result. [default: the least that a .tflite needs, from 18 on; that of an ONNX source]",
)
quant = choice_option("--quant", ["qdq", "float"], "A quantized .tflite as integers (QDQ), or as a float model.")
signature = click.option("--signature", metavar="NAME", help="Signature of a .tflite (default: the first).")
state = choice_option(
    "--state", ["zero", "io"], "Variables of a .tflite: their initial values in every run, or inputs and outputs."
)
custom_ops = repeatable(
    "--custom-op",
    "custom_ops",
    "NAME[=DOMAIN]",
    # "" where a text names no domain
    lambda context, parameter, items: {
        **dict.fromkeys((item for item in items if "=" not in item), ""),
        **pairs_of("NAME=DOMAIN")(context, parameter, tuple(item for item in items if "=" in item)),
    },
    "A custom operator: of a .tflite source it becomes a node of DOMAIN; in a .tflite result a node of DOMAIN, or"
    " of any, becomes CUSTOM (repeatable).",
)
time_limit = click.option(
    "--time-limit",
    type=Number(0),
    metavar="SECONDS",
    help="Stop the solver and report the gap. [default: limits of work, and no clock]",
)
per_transpose = click.option(
    "--per-transpose",
    type=WholeNumber(0, MOST_BYTES),
    metavar="BYTES",
    help="Price of each Transpose, besides its bytes: a large one leaves as few as possible. [default: 0, but"
    " no more of them than an ONNX source has, if its layouts stay]",
)
exchange = click.option(
    "--exchange", is_flag=True, help="Let a MatMul or Gemm run with its operands exchanged, where that saves bytes."
)
what_if = click.option("--what-if", is_flag=True, help="Also list the bytes that each single constraint costs.")
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
    help="Exit with 1 if more bytes than these stay transposed.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


def log_stages(_: click.Context, __: click.Parameter, verbose: bool) -> None:
    """Show on standard error what the library logs, with the milliseconds since the start."""
    if verbose:
        logging.basicConfig(format="%(relativeCreated)7.0f ms  %(message)s", stream=sys.stderr)
        logging.getLogger("relayout").setLevel(logging.INFO)


verbose = click.option(
    "-v",
    "--verbose",
    is_flag=True,
    expose_value=False,
    callback=log_stages,
    help="Log each stage, and list every Transpose with whole names.",
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
FILES = pairs_of("NAME=FILE.npy")
feeds = repeatable(
    "--input", "feeds", "NAME=FILE.npy", FILES, "An array to feed (repeatable; default: random, image-like for images)."
)
inputs = repeatable("--inputs", "inputs", "A,B", comma_separated, "Only the part of the graph from these values on.")
outputs = repeatable("--outputs", "outputs", "C,D", comma_separated, "Only the part of the graph up to these values.")
NAMES = pairs_of("OLD=NEW")
rename = repeatable(
    "--rename", "rename", "OLD=NEW", NAMES, "Give an input, output or interior value another name (repeatable)."
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
    help="The backend that runs the result, as `relayout targets` lists them, or a table in a file: npu.toml,"
    " file.py:NAME. By default any runtime; `none` chooses layouts and does nothing else.",
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
    "Keep the target's parts in one graph, or make each a function.",
)
parts = click.option(
    "--partition-dir",
    "--parts",
    "parts",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write a model for each part that the target or the host runs, and a manifest; TARGET is optional.",
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
operator_layouts = option_group(to, backend, claimed_operators, desired, inline, section="Layouts of operators")
aiming = option_group(backend, claimed_operators, section="Layouts of operators")
solving = option_group(per_transpose, exchange, time_limit, what_if, section="The solver")
views = option_group(html, model_explorer, section="To look at")
interface = option_group(io, layouts, input_type, output_type, normalize, float32)
conversion = option_group(runtime, interface, part, at, importing, operator_layouts, solving, views)
"""What `convert` does, and `explain` tells of."""
quantizing = option_group(quantize, calibrate, keep_float, section="Quantization")
splitting = option_group(regions, parts, section="What a target runs")
writing = option_group(annotate, plan_file, external_data, overwrite, section="What is written")
verifying = option_group(verify, feeds, seed, rtol, atol, section="Verification")
written = option_group(writing, verifying, max_bytes, as_json, quiet, verbose)
"""How a model is written, checked and reported."""
FOR_ONE = {"--plan": "plan_file", "--html": "html", "--model-explorer": "model_explorer", "--partition-dir": "parts"}
"""Options that name one place, and so are for one model -> their parameters."""
