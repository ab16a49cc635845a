"""Small ONNX models with what the format has besides plain nodes: the seeds that no converter writes."""

from __future__ import annotations

import numpy as np
import onnx
import ort_files
from onnx import TensorProto, helper, numpy_helper, parser

DATA = bytes(range(256))
"""What the file `data` beside the models holds."""

_TEXTS = {
    "if": """<ir_version: 10, opset_import: ["" : 21]>
        g (float[1,3,4,5] x, bool c) => (float[1,4,5,3] y) {
          t = Transpose<perm = [0, 2, 3, 1]>(x)
          y = If<then_branch = a () => (float[1,4,5,3] p) { p = Relu(t) },
                 else_branch = b () => (float[1,4,5,3] q) {
                   r = Transpose<perm = [0, 3, 1, 2]>(t) s = Abs(r) q = Transpose<perm = [0, 2, 3, 1]>(s) }>(c) }""",
    "loop": """<ir_version: 10, opset_import: ["" : 21]>
        g (float[2,3] x, int64 n, bool go) => (float[a,b] last, float[k,2,3] all) {
          last, all = Loop<body = step (int64 i, bool c, float[2,3] s) => (bool d, float[2,3] o, float[2,3] e) {
            d = Identity(c) o = Add(s, x) e = Neg(o) }>(n, go, x) }""",
    "scan": """<ir_version: 10, opset_import: ["" : 21]>
        g (float[2,3] state, float[6,2,3] xs) => (float[2,3] last, float[6,2,3] ys) {
          last, ys = Scan<num_scan_inputs = 1,
                          body = step (float[2,3] s, float[2,3] x) => (float[2,3] o, float[2,3] y) {
            o = Add(s, x) y = Identity(o) }>(state, xs) }""",
    "functions": """<ir_version: 10, opset_import: ["" : 21, "mine" : 1]>
        g (float[1,3,4,5] x) => (float[1,3,4,5] y) { y = mine.outer<scale : float = 2.0>(x) }
        <domain: "mine", opset_import: ["" : 21, "mine" : 1]>
        outer <scale> (a) => (d) { b = mine.inner(a) c = Constant<value_float : float = @scale>() d = Mul(b, c) }
        <domain: "mine", opset_import: ["" : 21]>
        inner (a) => (c) { b = Transpose<perm = [0, 2, 3, 1]>(a) r = Relu(b) c = Transpose<perm = [0, 3, 1, 2]>(r) }""",
    "shapes": """<ir_version: 10, opset_import: ["" : 21]>
        g (float[batch,3,h,w] x) => (float[m,k] y) {
          s = Shape(x) i = Constant<value_ints = [0, 2, 3]>() p = Gather<axis = 0>(s, i)
          a = Constant<value_ints = [1]>() n = Slice(s, z, a) q = ReduceProd<keepdims = 1>(p)
          t = Concat<axis = 0>(q, th) u = Transpose<perm = [0, 2, 3, 1]>(x) y = Reshape(u, t) }""",
    "quantized": """<ir_version: 10, opset_import: ["" : 21]>
        g (float[1,4,5,3] x) => (float[1,4,5,3] y) {
          t = Transpose<perm = [0, 3, 1, 2]>(x) q = QuantizeLinear(t, sc, zp) d = DequantizeLinear(q, sc, zp)
          w = DequantizeLinear<axis = 0>(wq, ws, wz) c = Conv(d, w) r = QuantizeLinear(c, sc, zp)
          e = DequantizeLinear(r, sc, zp) y = Transpose<perm = [0, 2, 3, 1]>(e) }""",
    "others": """<ir_version: 10, opset_import: ["" : 21]>
        g (seq(float[2,3]) s, optional(float[2]) o, string[2] words) => (float[n,3] y, bool b, string[2] w) {
          y = ConcatFromSequence<axis = 0>(s) b = OptionalHasElement(o) w = Identity(words) }""",
    "folded": """<ir_version: 10, opset_import: ["" : 21]>
        g (float[2,3] x) => (float[p,q] y) {
          shape = Constant<value_ints = [2, 3]>() c = ConstantOfShape<value = float[1] {1.5}>(shape)
          e = Expand(c, shape) reps = Constant<value_ints = [1, 2]>() t = Tile(e, reps)
          k = Concat<axis = 1>(x, x) y = Add(t, k) }""",
}


def models() -> dict[str, bytes]:
    """Name -> bytes of each model."""
    made = {name: parser.parse_model(text) for name, text in _TEXTS.items()}
    add = made["quantized"].graph.initializer.append
    add(numpy_helper.from_array(np.array(0.5, np.float32), "sc"))
    add(numpy_helper.from_array(np.array(3, np.int8), "zp"))
    add(numpy_helper.from_array(np.arange(9, dtype=np.int8).reshape(3, 3, 1, 1), "wq"))
    add(numpy_helper.from_array(np.array([0.5, 0.25, 1], np.float32), "ws"))
    add(numpy_helper.from_array(np.zeros(3, np.int8), "wz"))
    made["shapes"].graph.initializer.append(numpy_helper.from_array(np.array([0], np.int64), "z"))
    made["shapes"].graph.initializer.append(numpy_helper.from_array(np.array([3], np.int64), "th"))
    made["external"] = _external()
    made["kinds"] = _kinds()
    made["sparse"] = _sparse()
    return {f"{name}.onnx": model.SerializeToString() for name, model in sorted(made.items())}


def ort_models() -> dict[str, bytes]:
    """Name -> bytes of those that ONNX Runtime loads, in its own format."""
    made = {name: onnx.ModelProto.FromString(data) for name, data in models().items()}
    texts = ("if", "loop", "functions", "quantized", "folded")
    return {f"{name}.ort": ort_files.saved(made[f"{name}.onnx"], "none") for name in texts}


def _external() -> onnx.ModelProto:
    """Weights in the file `data`, in the main graph and in a branch."""
    text = """<ir_version: 10, opset_import: ["" : 21]>
        g (float[4,4] x, bool c) => (float[4,4] y) {
          z = Add(x, w)
          y = If<then_branch = a () => (float[4,4] p) { p = Mul(z, w) },
                 else_branch = b () => (float[4,4] q) { q = Add(z, v) }>(c) }"""
    model = parser.parse_model(text)
    for graph, name, offset in ((model.graph, "w", 0), (model.graph.node[1].attribute[1].g, "v", 64)):
        tensor = graph.initializer.add(name=name, data_type=TensorProto.FLOAT, dims=(4, 4))
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "data"), ("offset", str(offset)), ("length", "64")):
            tensor.external_data.add(key=key, value=value)
    return model


def _kinds() -> onnx.ModelProto:
    """A tensor of each element type, raw and typed; notes, annotations, and what training leaves."""
    kinds = {name: kind for name, kind in TensorProto.DataType.items() if name != "UNDEFINED"}
    tensors = []
    for name, kind in kinds.items():
        words = [b"one", b"two"] if name == "STRING" else [0, 1]
        tensors.append(helper.make_tensor(name, kind, [2], words))
        if name != "STRING":
            tensors.append(numpy_helper.from_array(numpy_helper.to_array(tensors[-1]), f"{name}_RAW"))
    nodes = [helper.make_node("Identity", [tensor.name], [f"{tensor.name}_out"]) for tensor in tensors]
    outputs = [helper.make_tensor_value_info(f"{t.name}_out", t.data_type, [2]) for t in tensors]
    model = helper.make_model(
        helper.make_graph(nodes, "kinds", [], outputs, tensors), opset_imports=[helper.make_opsetid("", 23)]
    )
    model.metadata_props.add(key="k", value="v")
    model.graph.quantization_annotation.add(tensor_name="FLOAT_out").quant_parameter_tensor_names.add(
        key="SCALE_TENSOR", value="FLOAT"
    )
    model.training_info.add().initialization.node.add(op_type="Identity", input=["FLOAT"], output=["i"])
    return model


def _sparse() -> onnx.ModelProto:
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.ones(2, np.float32), "values"),
        numpy_helper.from_array(np.array([1, 3], np.int64), "indices"),
        [2, 2],
    )
    node = helper.make_node("Constant", [], ["y"], sparse_value=sparse)
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 2])
    return helper.make_model(helper.make_graph([node], "sparse", [], [output]))


def with_axes() -> dict[str, bytes]:
    """Name -> bytes of models of one node: each version of each operator that has axes as an attribute, by rank."""
    return {
        f"{schema.domain or 'onnx'}-{schema.name}-{schema.since_version}-{rank}.onnx": made.SerializeToString()
        for schema in onnx.defs.get_all_schemas_with_history()
        if any("ax" in name or "dim" in name or name == "perm" for name in schema.attributes)
        for rank in range(5)
        if (made := _of_axes(schema, rank)) is not None
    }


def _of_axes(schema: onnx.defs.OpSchema, rank: int) -> onnx.ModelProto | None:
    """A model of one node whose inputs have one rank, with all attributes that are integers."""
    node = onnx.NodeProto(op_type=schema.name, domain=schema.domain)
    for name, attribute in sorted(schema.attributes.items()):
        kind = str(attribute.type).rpartition(".")[2]
        if kind in ("INT", "INTS"):
            node.attribute.append(
                helper.make_attribute(name, 1 if kind == "INT" else [1] * rank, attr_type=kind_of(kind))
            )
        elif attribute.required:
            return None
    count = max(schema.min_input, min(schema.max_input, 2))
    graph = onnx.GraphProto(name="g", node=[node])
    for slot in range(count):
        types = schema.inputs[min(slot, len(schema.inputs) - 1)].types
        kind = TensorProto.FLOAT if "tensor(float)" in types else TensorProto.INT64
        if not any(each.startswith("tensor(") for each in types):
            return None
        graph.node[0].input.append(f"i{slot}")
        if kind == TensorProto.INT64 and slot:
            graph.initializer.append(numpy_helper.from_array(np.arange(1, dtype=np.int64), f"i{slot}"))
        else:
            graph.input.append(helper.make_tensor_value_info(f"i{slot}", kind, [2, 3, 4, 5, 6][:rank]))
    graph.node[0].output.extend(f"o{slot}" for slot in range(max(1, schema.min_output)))
    graph.node.append(helper.make_node("Transpose", ["o0"], ["y"]))
    graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    opsets = [helper.make_opsetid(schema.domain, schema.since_version)]
    opsets += [helper.make_opsetid("", 21)] if schema.domain else []
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def kind_of(name: str) -> int:
    """The number of a type of attributes."""
    return int(onnx.AttributeProto.AttributeType.Value(name))
