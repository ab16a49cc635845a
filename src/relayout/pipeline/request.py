"""A user's request, as frozen records: how a source is read, which layouts, how long to solve, what to write."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from relayout import arguments
from relayout.arguments import ArgumentKind, check, one_of
from relayout.errors import ReadError, nearest
from relayout.formats.in_memory import AnySource
from relayout.layout import Dim
from relayout.light_dataclass import dataclass
from relayout.lowering.interface_types import TYPES, Numbers, numbers_by_input
from relayout.pipeline.names import IMAGE_LAYOUTS
from relayout.quantization.request import QUANTIZED, QuantizationRequest
from relayout.targets import DesiredLayouts

if TYPE_CHECKING:
    from relayout.targets import Target

Source = AnySource  # a path, bytes of a model, an open binary file, or an ONNX model in memory
Regions = Literal["flat", "functions"]
Io = Literal["keep", "convert", "NCHW", "NHWC"]
State = Literal["zero", "io"]
Quant = Literal["qdq", "float"]
Format = Literal["onnx", "tflite"]
DESIRED_LAYOUTS = arguments.mapping("{'Conv': ['NHWC', 'OHWI']}", lambda value: True)  # `targets` checks the layouts


def _is_target(value: Any) -> bool:
    from relayout.targets import Target

    return isinstance(value, str | Target)


OPTIONS = {  # the options of `convert`, each with the values that it takes
    "format": one_of("onnx", "tflite"),
    "io": one_of("keep", "convert", *IMAGE_LAYOUTS),
    "layouts": arguments.LAYOUTS,
    "input_type": one_of(*TYPES),
    "output_type": one_of(*TYPES),
    "normalize": arguments.NUMBERS,
    "dims": arguments.EXTENTS,
    "batch": arguments.EXTENT,
    "at": arguments.SIZES,
    "quant": one_of("qdq", "float"),
    "float32": arguments.FLAG,
    "opset": arguments.whole(*arguments.OPSETS),
    "signature": arguments.TEXT,
    "state": one_of("zero", "io"),
    "custom_ops": arguments.NAMED,
    "runtime": arguments.TEXT,
    "parts": arguments.FLAG,
    "quantize": one_of(*QUANTIZED),
    "keep_float": arguments.NAMES,
    "to": arguments.TEXT,
    "target": ArgumentKind("a target's name, or a Target", _is_target),
    "desired_layouts": DESIRED_LAYOUTS,
    "node_layouts": DESIRED_LAYOUTS,
    "layout_for": arguments.FUNCTION,
    "regions": one_of("flat", "functions"),
    "inputs": arguments.NAMES,
    "outputs": arguments.NAMES,
    "rename": arguments.NAMED,
    "per_transpose": arguments.BYTES,
    "exchange": arguments.FLAG,
    "time_limit": arguments.SECONDS,
    "inline": arguments.FLAG,
    "what_if": arguments.FLAG,
    "annotate": arguments.FLAG,
}
PLAN_PRICES = dict.fromkeys(("per_transpose", "per_scattered"), arguments.whole(0))
"""The prices in a plan file, which may be larger than an option: the no-regression step finds them."""
NO_PRICES: dict[str, Any] = {"per_transpose": 0, "per_scattered": 0, "exchange": False, "at": {}}
"""Options that a plan file of an earlier release may lack -> what they are then."""
PLAN_OPTIONS = ("format", "io", "layouts", "input_type", "output_type", "normalize", "dims", "read", "wishes")
"""The other options of a plan file."""
RETIRED = ("fast", "widen", "saturates")
"""Options of reading in plans of earlier releases, which the target decides now."""


class ImportOptions(NamedTuple):
    """The options with which a source is read."""

    opset: int | None = None  # of an ONNX result; None for the least that a `.tflite` needs, and that of an ONNX source
    quant: Quant = "qdq"  # `qdq` keeps the integers of a quantized `.tflite`, `float` does not
    signature: str | None = None  # the key of a `.tflite`'s signature; None for its first
    # `zero` starts each run from a `.tflite`'s initial states, `io` makes them inputs and outputs
    state: State = "zero"
    custom_ops: Mapping[str, str] = {}  # custom operator of a `.tflite` -> the domain of its node
    inputs: Sequence[str] = ()  # where the part of the graph begins, by name; empty for the whole graph
    outputs: Sequence[str] = ()  # where it ends
    # dynamic dimension -> its extent, or the name of a dimension of the same extent; `input:axis` -> name or number of
    # a fixed one that is opened
    dims: Mapping[str, Dim] = {}
    batch: Dim | None = None  # the name or number of the first axis of all inputs; None leaves it
    float32: bool = False  # whether float64 and bfloat16 of an ONNX source are read as float32

    @property
    def is_part(self) -> bool:
        """True if only a part of the graph is read."""
        return bool(self.inputs or self.outputs)

    def tflite_options(self) -> list[str]:
        """Return the options, as on the command line, that only a `.tflite` source has and that are not at rest."""
        names = ("quant", "signature", "state", "custom_ops")
        usual = ImportOptions()
        changed = [name for name in names if getattr(self, name) != getattr(usual, name)]
        return [f"--{name.replace('_', '-').removesuffix('s')}" for name in changed]


@dataclass(frozen=True)
class LayoutRequest:
    """The layouts that are asked for."""

    io: Io = "keep"  # what becomes of the interface: `keep`, `convert`, or a layout for each image
    # tensor -> (its layout in the source, its layout in the result): pins
    layouts: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    desired: DesiredLayouts = field(default_factory=DesiredLayouts)  # layouts of operators, and the target
    input_type: str | None = None  # element type of quantized inputs; None leaves it
    output_type: str | None = None  # the same of outputs
    # input -> (means, standard deviations) that the result applies itself
    normalize: Mapping[str, Numbers] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return True if the user asks for more than the fewest transposed bytes."""
        types = self.input_type or self.output_type
        others = bool(self.layouts) or bool(self.desired) or bool(self.normalize)
        return self.io != "keep" or others or types is not None


class SolverOptions(NamedTuple):
    """The solver's objective and time limit."""

    # bytes that each Transpose costs besides those that it moves; None for the target's price
    per_transpose: int | None = None
    # extra bytes for each byte of a Transpose that copies single elements; None likewise
    per_scattered: int | None = None
    exchange: bool = False  # whether a MatMul may run with its operands exchanged
    time_limit: float | None = None  # seconds; None for a limit that grows with the graph
    what_if: bool = False  # whether the cost of each single constraint is found, too
    at: Mapping[str, int] = {}  # dynamic dimension -> the extent that bytes are counted with; any other counts as 1


class OutputOptions(NamedTuple):
    """The options with which a result is written."""

    inline: bool = False  # whether operators in other layouts are standard operators between Transposes, not functions
    regions: Regions = "flat"  # `functions` makes each part that the target runs one function
    rename: Mapping[str, str] = {}  # name in the source -> name in the result
    annotate: bool = False  # whether every value's layout is put into its metadata
    custom_ops: Mapping[str, str] = {}  # operators that become CUSTOM ones in a `.tflite` -> their domain; "" for any
    parts: bool = False  # whether a `.tflite` result is written as parts
    runtime: str = ""  # the oldest runtime that has to run a `.tflite` result; empty: any
    quantization: QuantizationRequest | None = None  # how a `.tflite` result is quantized; None: not at all

    @property
    def weight_bytes(self) -> int:
        """Bytes of an element of large weights in memory."""
        return 1 if self.quantization is not None and self.quantization.kind == "dynamic" else 4


@dataclass(frozen=True)
class Request:
    """The request for a plan: all that its check needs to build the problem again."""

    imports: ImportOptions = field(default_factory=ImportOptions)  # how the source is read
    layout: LayoutRequest = field(default_factory=LayoutRequest)  # which layouts are asked for
    solver: SolverOptions = field(default_factory=SolverOptions)  # objective and time limit
    format: Format = "onnx"  # of the result, for which the model is prepared: `onnx` or `tflite`

    @property
    def target(self) -> "Target | None":
        """The target of the result, if it has one."""
        return self.layout.desired.target

    @property
    def per_transpose(self) -> int:
        """Bytes that each Transpose costs besides those that it moves: asked for, or the target's."""
        return _first(self.solver.per_transpose, self.target.per_transpose if self.target else 0)

    @property
    def per_scattered(self) -> int:
        """Bytes that each byte costs besides that is taken element by element: asked for, or the target's."""
        return _first(self.solver.per_scattered, self.target.per_scattered if self.target else 0)

    def to_json(
        self,
        per_transpose: int,  # the price that the plan was found with
        per_scattered: int,  # the same of what is taken element by element
    ) -> dict[str, Any]:
        """Return the options of a plan file: JSON types, once a problem has been built."""
        reading = self.imports._asdict()
        dims = {
            name: extent if isinstance(extent, str) else int(extent) for name, extent in reading.pop("dims").items()
        }
        del reading["batch"]  # by now its axes are among `dims`
        reading |= {side: list(reading[side]) for side in ("inputs", "outputs")}
        return {
            "format": self.format,
            "io": self.layout.io,
            "layouts": dict(self.layout.layouts),
            "input_type": self.layout.input_type,
            "output_type": self.layout.output_type,
            "normalize": {name: [list(each) for each in pair] for name, pair in self.layout.normalize.items()},
            "dims": dims,
            "per_transpose": per_transpose,
            "per_scattered": per_scattered,
            "exchange": bool(self.solver.exchange),
            **({"at": {name: int(extent) for name, extent in self.solver.at.items()}} if self.solver.at else {}),
            "read": reading | {"opset": None if self.imports.opset is None else int(self.imports.opset)},
            "wishes": self.layout.desired.to_json(),
        }

    @staticmethod
    def of_json(options: Mapping[str, Any]) -> "Request":
        """Return the request of a plan file's options.

        Raises:
            RelayoutError: a value is none that the option takes.
            KeyError, TypeError, ValueError, AttributeError, IndexError: the options are not whole.
        """
        options = {**NO_PRICES, **options}
        if unknown := [name for name in options if name not in PLAN_OPTIONS and name not in NO_PRICES]:
            raise ReadError(f"there is no option {unknown[0]!r} of a plan{nearest(unknown[0], PLAN_OPTIONS)}")
        check({**options, **options["read"], **options["wishes"]}, {**OPTIONS, **PLAN_PRICES}, NO_PRICES)
        reading = {name: value for name, value in options["read"].items() if name not in RETIRED}
        pairs = {str(name): (str(pair[0]), str(pair[1])) for name, pair in options["layouts"].items()}
        return Request(
            ImportOptions(**reading, dims=dict(options["dims"])),
            LayoutRequest(
                options["io"],
                pairs,
                DesiredLayouts.of(**options["wishes"]),
                options.get("input_type"),
                options.get("output_type"),
                numbers_by_input(options.get("normalize")),
            ),
            SolverOptions(**{name: options[name] for name in NO_PRICES}),
            options.get("format", "onnx"),
        )


def _first(stated: int | None, otherwise: int) -> int:
    return int(otherwise if stated is None else stated)
