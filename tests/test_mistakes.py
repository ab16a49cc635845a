"""Mistakes that people make: each is one line that says what, where and what to do; nothing is written."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import relayout as package
from relayout.formats.recognition import foreign

sys.path.insert(0, str(Path(__file__).parent / "formats" / "tflite"))
from tflite_writing import Net

SOURCE = Path(package.__file__).parents[1]
MODELS = Path(__file__).parents[1] / "models"

NETWORK = """
<ir_version: 10, opset_import: ["" : 20]>
network (float[N, 3, 8, 6] x) => (float[N, 8, 6, 3] y)
{ a = Relu (x)
  y = Transpose <perm = [0, 2, 3, 1]> (a) }
"""


def custom(name: str = "MyOp") -> bytes:
    """A `.tflite` with an operator of somebody's own."""
    net = Net()
    x, y = net.input((2, 3), name="x"), net.output((2, 3), name="y")
    return net.op(f"CUSTOM {name}", [x], [y]).bytes()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with models, and with what is often taken for one."""
    shutil.copy(MODELS / "tinynet_float.tflite", tmp_path / "m.tflite")
    shutil.copy(MODELS / "tinynet_int8.tflite", tmp_path / "int8.tflite")
    onnx.save(onnx.parser.parse_model(NETWORK), tmp_path / "m.onnx")
    onnx.save(onnx.parser.parse_model(NETWORK.replace("float[N, 8", "int64[N, 8")), tmp_path / "types.onnx")
    shutil.copy(tmp_path / "m.onnx", tmp_path / "onnx.tflite")
    (tmp_path / "custom.tflite").write_bytes(custom())
    (tmp_path / "compiled.tflite").write_bytes(custom("edgetpu-custom-op"))
    (tmp_path / "empty.tflite").touch()
    (tmp_path / "cut.tflite").write_bytes((tmp_path / "m.tflite").read_bytes()[:20_000])
    (tmp_path / "notes.txt").write_text("not a model, but some notes about one\n" * 9)
    (tmp_path / "page.onnx").write_text("<!DOCTYPE html>\n<html><title>404</title></html>")
    (tmp_path / "lfs.tflite").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    (tmp_path / "text.onnx").write_text(NETWORK)
    (tmp_path / "m.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(99))
    (tmp_path / "graph.pb").write_bytes(b"\n\x12\n\x01x\x12\x0bPlaceholder*\0")
    (tmp_path / "m.safetensors").write_bytes((2).to_bytes(8, "little") + b'{"w": {}}' + bytes(9))
    with zipfile.ZipFile(tmp_path / "m.keras", "w") as archive:
        archive.writestr("metadata.json", b"{}")
    with zipfile.ZipFile(tmp_path / "m.pt", "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "saved_model.pb").write_bytes(b"\x08\x01\x12\x40" + bytes(64))
    (tmp_path / "plan.json").write_text("{}")
    (tmp_path / "wishes.toml").write_text("to = NHWC\n")
    (tmp_path / "number.json").write_text('{"to": 3}')
    (tmp_path / "list.toml").write_text("operators = ['Conv']\n")
    np.save(tmp_path / "x.npy", np.zeros((2, 24, 40, 3), np.float32))
    monkeypatch.chdir(tmp_path)
    return tmp_path


COMMANDS = [
    # What is given is no model.
    ("saved", "relayout: saved is TensorFlow's SavedModel; tf.lite.TFLiteConverter makes it a .tflite"),
    (".", "relayout: . is a directory; give a file"),
    ("nothing", "relayout: There is no command, and no file, 'nothing'. (see relayout --help)"),
    ("-", "relayout: standard input is not read: give a file (see relayout --help)"),
    (
        "--out-dir o m.tflite",
        "relayout: --out-dir is no option of relayout, but of relayout convert, relayout optimize",
    ),
    ("convert m.tflite m.tflite --out-dir o", "relayout: m.tflite is given twice; give it once"),
    (
        "convert m.tflite o.onnx --target none --partition-dir p",
        "parts are what a target runs, and `none` runs nothing",
    ),
    ("convert custom.tflite o.onnx --custom-op MyOp=vendor --verify", "(nothing was written; without --verify it is)"),
    ("reduce m.tflite s.tflite", "relayout: reduce writes ONNX: end s.tflite in .onnx"),
    ("convert saved o.onnx", "saved is TensorFlow's SavedModel"),
    ("convert saved/saved_model.pb o.onnx", "a SavedModel of TensorFlow at saved/saved_model.pb; export it"),
    ("convert empty.tflite o.onnx", "relayout: empty.tflite is empty"),
    ("convert notes.txt o.onnx", "not an ONNX model but text at notes.txt; give an .onnx or a .tflite file"),
    ("convert page.onnx o.onnx", "but an HTML page at page.onnx; the download went wrong"),
    ("convert lfs.tflite o.onnx", "but a pointer of Git LFS at lfs.tflite; run `git lfs pull`"),
    ("convert m.pt o.onnx", "but a file of PyTorch at m.pt; give the module to relayout.convert(module, args="),
    ("convert m.pt", "but a file of PyTorch at m.pt; give the module"),
    ("convert m.keras o.onnx", "but a ZIP archive without a .tflite (.keras files are such) at m.keras; export"),
    ("convert m.h5 o.onnx", "but an HDF5 file (.h5 files of Keras are such) at m.h5; export it"),
    ("convert graph.pb o.onnx", "but a graph of TensorFlow at graph.pb; export it"),
    ("convert m.safetensors o.onnx", "but a file of safetensors, which has weights and no graph at m.safetensors"),
    ("convert text.onnx o.onnx", "ONNX in its text form at text.onnx; onnx.parser.parse_model"),
    ("convert onnx.tflite o.onnx", "bytes 4 to 8 are not TFL3 (an ONNX model has the ending .onnx) at onnx.tflite"),
    ("convert m.tflite saved", "cannot write 'saved': it is a directory; give the name of a file"),
    ("convert m.tflite saved/", "cannot write 'saved': it is a directory; give the name of a file"),
    ("convert m.tflite none/", "none/ is the name of a directory, and there is none; give the name of a file"),
    ("optimize none/ o.onnx", "none/ is the name of a directory, and there is none"),
    ("convert - o.onnx", "standard input is not read: give a file"),
    ("verify m.tflite notes.txt", "but text at notes.txt"),
    ("verify lfs.tflite m.tflite", "a pointer of Git LFS at lfs.tflite"),
    ("diff m.tflite cut.tflite", "the file ends at byte 20000, and operator_codes points to byte "),
    ("reduce m.tflite s.onnx", "but a TensorFlow Lite model at m.tflite; `relayout convert` makes it ONNX"),
    ("check m.tflite plan.json", "m.tflite is no plan: it is not JSON; the plan comes first, then the model"),
    ("check plan.json m.tflite", "this is not a plan file at plan.json"),
    ("check nothing.json m.tflite", "nothing.json does not exist"),
    ("convert int.tflite o.onnx", "int.tflite does not exist; did you mean int8.tflite?"),
    ("convert z.tflite o.onnx", "z.tflite does not exist\n"),
    ("convert absent/m.tflite o.onnx", "absent/m.tflite does not exist\n"),
    (
        "convert custom.tflite o.onnx",
        "(first: 'y', operator 0 of subgraph 0); --custom-op MyOp=DOMAIN keeps a custom operator",
    ),
    # Options that would do nothing, or contradict each other.
    ("convert m.onnx o.onnx --opset 23", "the model is of opset 20, and is not raised: leave the option out"),
    ("convert m.onnx o.onnx --quant float", "--quant is for a .tflite source"),
    ("explain m.onnx --state io", "--state is for a .tflite source"),
    ("explain m.onnx --signature x", "--signature is for a .tflite source"),
    ("convert m.onnx o.onnx --custom-op a=b", "--custom-op is for a .tflite source"),
    ("convert m.tflite o.onnx --input image=x.npy", "--input, --seed, --rtol and --atol are for --verify"),
    ("convert m.tflite o.onnx --seed 3", "--input, --seed, --rtol and --atol are for --verify"),
    ("convert m.tflite o.onnx --atol 0.1", "--rtol and --atol are for --verify"),
    ("convert m.tflite o.onnx --jobs 2", "--jobs is for many models: give --out-dir"),
    ("convert m.tflite o.onnx --parts p", "give --target, too"),
    ("convert m.onnx o.tflit", "o.tflit ends in .tflit, which names no format: end it in .onnx or .tflite"),
    (
        "convert m.onnx saved_model",
        "saved_model has no suffix, which would name its format: end it in .onnx or",
    ),
    ("convert m.onnx -o o.onnx -o p.onnx", "-o was given twice: o.onnx, p.onnx; give it once"),
    ("reduce m.onnx -o o.onnx -o p.onnx", "-o was given twice: o.onnx, p.onnx; give it once"),
    ("convert m.onnx o.onnx --io NHWC --io=NCHW", "--io was given twice: NHWC, NCHW; give it once"),
    ("convert m.onnx o.onnx --batch 4 --batch N --batch 4", "--batch was given 3 times: 4, N, 4; give it once"),
    ("explain m.onnx --opset 17 --opset 20", "--opset was given twice: 17, 20"),
    ("optimize m.onnx o.onnx --target none --target litert", "--target was given twice: none, litert"),
    ("convert m.onnx -oo.onnx -qo p.onnx", "-o was given twice"),
    ("verify m.onnx m.onnx --rtol small", "--rtol': 'small' is not a number from 0 on"),
    ("verify m.onnx m.onnx --atol nan", "--atol': 'nan' is not a number from 0 on"),
    ("verify m.onnx m.onnx --rtol 1 --rtol 2", "--rtol was given twice: 1, 2"),
    ("convert m.tflite o.tflite --target tensorrt", "a .tflite needs LiteRT's: leave --target out; --custom-op NAME"),
    (
        "convert m.onnx o.tflite --custom-op Rellu",
        "--custom-op Rellu: the model has no operator of that name; did you mean 'Relu'?",
    ),
    (
        "convert m.tflite o.tflite --ops Conv --to NHWC",
        "the layouts are those of --ops, and a .tflite needs LiteRT's: leave --ops out; --custom-op NAME",
    ),
    ("convert m.tflite o.onnx --regions functions --target none", "give a target, too (none runs nothing)"),
    ("convert m.tflite o.tflite --target none", "the layouts are those of --target none, and a .tflite needs LiteRT's"),
    ("convert m.tflite int8.tflite --out-dir d --target xnnpack --parts p", "--partition-dir is for one model"),
    ("convert m.tflite o.onnx --regions functions", "give a target, too"),
    ("convert m.tflite o.onnx --html o.onnx", "the model and --html cannot both go into o.onnx"),
    ("convert m.tflite o.onnx --plan p --html ./p", "--plan and --html cannot both go into p"),
    ("explain m.tflite --html - --model-explorer -", "--html and --model-explorer cannot both go to standard output"),
    ("convert types.onnx o.onnx --rename x=z", "not valid ONNX: [ShapeInferenceError]"),
    ("reduce m.onnx", "give SOURCE and one TARGET"),
    ("reduce m.onnx s.onnx -o t.onnx", "give SOURCE and one TARGET"),
    ("reduce m.onnx - --external-data", "a model on standard output has no file to verify or to keep weights beside"),
    ("reduce m.onnx s.onnx --time-limit nan", "'nan' is not a number from 0 on"),
    ("m.tflite o.onnx", "`relayout convert m.tflite o.onnx` converts it"),
    ("m.onnx x5.tflite", "`relayout convert m.onnx x5.tflite` converts it"),
    ("m.tflite --verify", "at most; `relayout convert m.tflite OUT.onnx --verify` converts it"),
    ("m.tflite -o o.onnx", "`relayout convert m.tflite -o o.onnx` converts it"),
    ("m.tflite --nonsense convert", "`relayout convert m.tflite OUT.onnx` converts it"),
    (
        "convert m.onnx o.onnx --target npu.tml",
        "there is no target 'npu.tml': the name of a table's file ends in .toml",
    ),
    (
        "m.tflite --io convert",
        "a file alone is shown, with --json at most; `relayout explain m.tflite --io convert` shows what these options"
        " do, `relayout convert m.tflite OUT.onnx --io convert` converts it",
    ),
    # Values of options.
    ("convert m.tflite o.onnx --layout image=NHWC:NCWX", "NCWX is not a reordering of NHWC"),
    (
        "convert m.tflite o.onnx --layout image=NHWC:NCW",
        "--layout image=NHWC:NCW: NCW is not a reordering of NHWC: both",
    ),
    ("convert m.onnx o.onnx --layout z=NHWC:NCHW", "no tensor of that name; there are 'y', 'a', 'x'"),
    ("convert m.onnx o.onnx --dim n=1", "no dimension of that name; did you mean 'N'? (dynamic dimensions: N)"),
    ("convert m.onnx o.onnx --dim N=0", "N=0: an extent is a whole number from 1 on"),
    ("convert m.onnx o.onnx --dim N=-1", "N=-1: an extent is a whole number from 1 on"),
    (
        "convert m.onnx o.onnx --batch -1",
        "of at most 18 digits; to leave it open give a name: --batch N",
    ),
    ("convert m.onnx o.onnx --opset latest", "'latest' is not a whole number from 13 to 23"),
    ("convert m.onnx o.onnx --opset 99", "'99' is not a whole number from 13 to 23"),
    ("convert m.onnx o.onnx --max-bytes lots", "'lots' is not a whole number from 0 on"),
    ("convert m.onnx o.onnx --taget litert", "there is no option '--taget'; did you mean '--target'? (see"),
    ("convert m.onnx o.onnx --oi NHWC", "there is no option '--oi'; did you mean '--io'? (see"),
    ("convert m.onnx o.onnx --io NCWH", "it takes no 'NCWH'; did you mean 'NCHW'?"),
    ("bench m.onnx m.onnx --seconds abc", "'abc' is not a number from 0.01 to 86,400"),
    ("quantize m.onnx", "convert MODEL OUT.tflite --quantize int8 --calibrate DATA"),
    ("convert m.onnx o.onnx --int8", "(docs/how-to/int8.md)"),
    ("convert m.onnx o.tflite --output_quant_dtype int8", "Here: --output-type int8, for a model that is quantized"),
    ("convert m.onnx o.tflite -iqd=int8", "Here: --input-type int8, for a model that is quantized (see"),
    ("convert m.onnx o.tflite --nchw", "Here: --io NCHW"),
    ("verify m.onnx m.onnx --tolerance 3", "relayout verify has --rtol and --atol"),
    ("convert m.onnx o.onnx --batch 0", "give a name: --batch N"),
    ("convert m.onnx o.onnx --batch None", "give a name: --batch N"),
    ("convert m.onnx o.onnx --dim x:1=-1", "give a name: --dim x:1=N"),
    ("convert m.onnx o.onnx --dim x:1", "'x:1' is not NAME=N: write x:1=N for axis 1 of input 'x'"),
    ("convert m.onnx o.onnx --dim N=2*M", "N=2*M: an extent is a whole number from 1 on"),
    ("convert m.onnx o.onnx --dim N=M --dim M=2", "dimension N=M: M becomes 2; give N that, too"),
    ("convert m.tflite o.onnx --target XNNPAK", "there is no target 'XNNPAK'; did you mean 'xnnpack'?"),
    ("convert m.onnx o.tflite --simplify", "--simplify is another tool's option. Here: nothing: no other tool runs"),
    (
        "convert m.onnx o.tflite --quantize int8 --calibrate x.npy y.npy z.npy",
        "--calibrate takes one path each time: name a folder, or write it before each file",
    ),
    ("convert m.onnx o.onnx --fp16", "Here: --quantize float16, for a .tflite result"),
    ("convert m.tflite o.onnx --outputs pooling", "; the nearest are '"),
    (
        "convert m.tflite o.onnx --outputs softmax",
        "no tensor of that name; `relayout explain FILE --html map.html` shows all",
    ),
    (
        "convert m.tflite o.onnx --signature other",
        "there is no signature 'other' at m.tflite; there is only 'serving_default'",
    ),
    (
        "convert custom.tflite o.onnx --custom-op MyOp=v --signature other",
        "there is no signature 'other' at custom.tflite; the file has none",
    ),
    ("convert compiled.tflite o.onnx", "the file is compiled for an accelerator: give the .tflite that its compiler"),
    ("convert m.tflite o.onnx --target nothing", "there are 'arm-compute-library', "),
    ("convert m.tflite o.onnx --time-limit -1", "'-1' is not a number from 0 on"),
    ("convert m.tflite o.onnx --time-limit nan", "'nan' is not a number from 0 on"),
    ("convert m.tflite o.onnx --desired-layouts wishes.toml", "wishes.toml cannot be read as TOML: "),
    ("convert m.tflite o.onnx --desired-layouts number.json", "number.json: to is 3: it takes a name, such as 'NHWC'"),
    ("convert m.tflite o.onnx --desired-layouts list.toml", "list.toml: operators is ['Conv']: it takes a table of"),
    ("convert m.tflite o.onnx --desired-layouts m.tflite", "m.tflite is not text; desired layouts are TOML or JSON"),
    ("verify m.tflite m.tflite --input imag=x.npy", "no input is called 'imag'; did you mean 'image'?"),
    ("verify m.tflite m.tflite --input z=x.npy", "there are 'image', 'serving_default_image:0'"),
    ("verify m.tflite m.onnx", "would be fed [2, 24, 40, 3], and the second model wants [?, 3, 8, 6]"),
]


@pytest.mark.parametrize(("line", "said"), COMMANDS, ids=[line for line, _ in COMMANDS])
def test_a_mistake_on_the_command_line(relayout: Callable[..., Any], place: Path, line: str, said: str) -> None:
    before = sorted(place.rglob("*"))
    ran = relayout(*line.split())
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert ran.err.startswith("relayout: ")
    assert ran.err.count("\n") == 1
    assert sorted(place.rglob("*")) == before


def test_nothing_at_all_is_answered_with_the_help(relayout: Callable[..., Any], place: Path) -> None:
    ran = relayout()
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == relayout("--help").out
    assert ran.err.count("\n") > 20


CALLS: list[tuple[str, str]] = [
    ("convert(None)", "NoneType is no model; give a path, the bytes of a .tflite or of ONNX, a file that is open"),
    ("convert(42)", "an onnx.ModelProto, an onnx_ir.Model, or what torch.onnx.export(…, dynamo=True) returns"),
    (
        "convert(io.TextIOWrapper(io.BytesIO(b'\\xff\\xff')))",
        "the file is open as text; open it with mode 'rb', or give its path",
    ),
    (
        "convert((lambda file: file.seek(9) and file)(io.BytesIO(b'12345678')))",
        "the file was read to its end before; call .seek(0) on it, or give its path",
    ),
    (
        "convert(Pipe())",
        "the file has 0 bytes, too few for a model",
    ),
    (
        "convert('m.tflite').save('zz')",
        "it has no suffix, which would name its format: end it in .onnx",
    ),
    ("convert('m.tflite', format='tflite').save('zz')", "end it in .tflite"),
    ("convert(b'an ONNX model, or so')", "neither a .tflite nor a serialized ONNX model, or one"),
    ("convert([b'TFL3'])", "list is no model; give a path"),
    ("convert('saved')", "saved is TensorFlow's SavedModel"),
    ("convert('m.tflite', io='nchw')", "io='nchw': it takes 'keep' or 'convert'"),
    ("explain('m.tflite', io='nchw')", "io='nchw': it takes 'keep' or 'convert'"),
    ("convert('m.tflite', regions='all')", "regions='all': it takes 'flat' or 'functions'"),
    ("convert('m.tflite', quant='int8')", "quant='int8': it takes 'qdq' or 'float'"),
    ("convert('m.tflite', layouts={'image': 'NCHW'})", "it takes a dictionary such as {'x': ('NHWC', 'NCHW')}"),
    ("convert('m.tflite', layouts={'image': (0, 2, 3, 1)})", "such as {'x': ('NHWC', 'NCHW')}"),
    ("optimize('m.onnx', dims={'N': '1'})", "it takes a dictionary such as {'batch': 1, 'unk__7': 'length'}"),
    ("optimize('m.onnx', dims={'N': 1.5})", "of whole numbers"),
    ("optimize('m.onnx', dims={'N': True})", "of whole numbers"),
    (
        "convert('m.onnx', batch=-1)",
        "from 1 on, or a name, which leaves it open: 'N'",
    ),
    ("convert('m.onnx', batch='None')", "batch='None': it takes a whole number"),
    ("convert('m.onnx', dims={'x:1': -1})", "dimension x:1=-1: an extent is at least 1"),
    (
        "convert('m.tflite', dims={'batch': 1})",
        "dimension batch: the model has no dimension of that name (dynamic dimensions: none); --batch 1 (in Python"
        " batch=1) or --dim INPUT:AXIS=1 (dims={'INPUT:AXIS': 1}) opens one that is fixed",
    ),
    ("optimize('m.onnx', inputs='x')", "inputs='x': it takes a list of names, such as ['x']"),
    ("optimize('m.onnx', rename={'x': 3})", "rename={'x': 3}: it takes a dictionary such as {'old': 'new'}"),
    ("optimize('m.onnx', time_limit='5')", "time_limit='5': it takes seconds, a number from 0 on"),
    ("convert('m.tflite', target=['xnnpack'])", "it takes a target's name, or a Target"),
    ("convert('m.tflite', desired_layouts='NHWC')", "such as {'Conv': ['NHWC', 'OHWI']}"),
    ("convert('m.tflite', layout_for='NHWC')", "it takes a function"),
    ("convert('m.tflite', signature=3)", "signature=3: it takes a name"),
    ("verify('m.tflite', None)", "NoneType is no model"),
    ("verify('m.tflite', 'm.tflite', inputs=[np.zeros((2, 24, 40, 3))])", "such as {'x': array} or {'x': 'x.npy'}"),
    ("verify('m.tflite', 'm.tflite', runs=0)", "runs=0: it takes a whole number from 1 on"),
    ("verify('m.tflite', 'm.tflite', seed='a')", "seed='a': it takes a whole number from 0 on"),
    ("verify('m.tflite', 'm.tflite', rtol='1e-3')", "rtol='1e-3': it takes a number from 0 on"),
    ("verify('m.tflite', 'm.tflite', atol=-1)", "atol=-1: it takes a number from 0 on"),
    ("verify('m.tflite', 'm.tflite', rtol=np.nan)", "rtol=nan: it takes a number from 0 on"),
    ("verify('m.tflite', 'm.tflite', seed=None)", "seed=None: it takes a whole number from 0 on"),
    ("verify('m.tflite', 'm.tflite', tensors='no')", "tensors='no': it takes True or False"),
    ("convert('m.tflite', io=None)", "io=None: it takes 'keep' or 'convert'"),
    ("convert('m.tflite', inline='no')", "inline='no': it takes True or False"),
    ("convert('m.onnx', batch=np.zeros(3))", "it takes a whole number"),
    ("convert('m.onnx', io=np.zeros(3))", "it takes 'keep' or 'convert'"),
    ("convert('m.onnx', what_if=np.zeros(3))", "it takes True or False"),
    ("verify('m.tflite', 'm.tflite', runs=np.zeros(3))", "it takes a whole number from 1 on"),
    ("convert('m.onnx', what_if=Several())", "it takes True or False"),
    ("convert('m.onnx', batch=Several())", "it takes a whole number"),
    ("convert('m.tflite', opset='21')", "opset='21': it takes a whole number from 13 to 23"),
    ("optimize('m.onnx', what_if='no')", "what_if='no': it takes True or False"),
    ("convert('m.tflite').parts()", "parts are what a target runs"),
]


class Several:
    """An array that raises what PyTorch's raise, where it is asked whether it is true."""

    ndim = 1

    def __eq__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")

    __hash__ = object.__hash__
    __index__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__


class Pipe:
    """An empty file that knows no places."""

    def read(self) -> bytes:
        return b""

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        raise OSError(29, "Illegal seek")


class Failing(Mapping[str, Any]):
    """A mapping with a fault of its own, which is not taken for a wrong value."""

    def __getitem__(self, name: str) -> Any:
        raise ValueError("a fault of its own")

    def __iter__(self) -> Iterator[str]:
        return iter("x")

    def __len__(self) -> int:
        return 1


def test_a_fault_of_a_users_object_is_no_wrong_value(place: Path) -> None:
    with pytest.raises(ValueError, match="a fault of its own"):
        package.convert("m.tflite", layouts=Failing())  # type: ignore[arg-type]


@pytest.mark.parametrize(("call", "said"), CALLS, ids=[call for call, _ in CALLS])
def test_a_mistake_in_python(place: Path, call: str, said: str) -> None:
    with pytest.raises(package.RelayoutError) as raised:
        eval(f"relayout.{call}", {"relayout": package, "np": np, "io": io, "Several": Several, "Pipe": Pipe})
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_suffix_in_capitals_names_a_format(relayout: Callable[..., Any], place: Path) -> None:
    assert relayout("convert", "m.onnx", "o.TFLITE").code == 0
    assert (place / "o.TFLITE").read_bytes()[4:8] == b"TFL3"


def test_what_is_right_is_not_refused(place: Path) -> None:
    result = package.convert("m.tflite", io="keep", layouts={"image": ["NHWC", "NCHW"]}, time_limit=100, rename=None)
    assert package.verify("m.tflite", result, seed=np.int64(1), runs=1).ok  # a result stands for its model
    assert package.optimize("m.onnx", dims={"N": np.int32(2)}, inputs=("x",)).report.proved
    given = package.convert((place / "m.tflite").read_bytes())  # what tf.lite.TFLiteConverter returns
    assert given.proto == package.convert("m.tflite").proto
    assert package.verify("m.tflite", result, rtol=np.float32(1e-3), atol=0, tensors=np.bool_(False)).ok
    assert package.convert("m.tflite", target=None, inputs=[], dims={}).report.transposes == 1


def test_a_tflite_under_the_name_of_another_format_is_a_note(relayout: Callable[..., Any], place: Path) -> None:
    shutil.copy("m.tflite", "named.onnx")
    assert "note: named.onnx is a .tflite, whatever its name says" in relayout("convert", "named.onnx", "o.onnx").out
    assert "whatever its name says" not in relayout("convert", "m.tflite", "o.onnx").out


def test_a_view_goes_to_standard_output(relayout: Callable[..., Any], place: Path) -> None:
    ran = relayout("explain", "m.tflite", "--html", "-")
    assert ran.out.startswith("<!")
    assert "proved minimal" in ran.err
    ran = relayout("convert", "m.tflite", "o.onnx", "--model-explorer", "-", "-q")
    assert json.loads(ran.out)
    assert relayout("diff", "m.tflite", "o.onnx", "--html", "-").out.startswith("<!")
    assert not (place / "-").exists()


def test_a_model_without_shapes_says_so(relayout: Callable[..., Any], place: Path) -> None:
    model = onnx.parser.parse_model(NETWORK)
    for end in (*model.graph.input, *model.graph.output):
        end.type.tensor_type.ClearField("shape")
    onnx.save(model, place / "unknown.onnx")
    ran = relayout("explain", "unknown.onnx", "--json")
    assert json.loads(ran.out)["interface"][0]["shape"] == ["unknown"]
    assert "input   x     float  unknown" in relayout("unknown.onnx").out


@pytest.mark.parametrize(
    "line",
    ["convert m.tflite o.onnx --verify", "verify m.onnx m.onnx", "explain m.tflite --target onnxruntime-cpu-nchwc"],
)
def test_a_runtime_that_is_not_installed(place: Path, line: str) -> None:
    hidden = (
        "import sys; sys.modules.update(dict.fromkeys(('onnxruntime', 'ai_edge_litert')));"
        "from relayout import cli; cli.main()"
    )
    before = sorted(place.rglob("*"))
    ran = subprocess.run(
        [sys.executable, "-c", hidden, *line.split()],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(SOURCE)},
        timeout=300,
        check=False,
    )
    assert ran.returncode == 2
    project = tomllib.loads((MODELS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (extra,) = {"verify"} & project["optional-dependencies"].keys()
    assert f"pip install '{project['name']}[{extra}]'" in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert sorted(place.rglob("*")) == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is full")
@pytest.mark.parametrize("line", ["convert m.tflite o.onnx --json", "m.tflite --json", "nothing --json"])
def test_standard_output_that_cannot_be_written(place: Path, line: str) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "relayout", *line.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": str(SOURCE)},
            timeout=300,
            check=False,
        )
    assert ran.returncode == 2
    assert ran.stderr.startswith("relayout: ")
    assert ran.stderr.count("\n") == 1


def test_json_before_the_file_is_told_where_it_stands(place: Path, relayout) -> None:  # type: ignore[no-untyped-def]
    del place
    ran = relayout("--json", "m.tflite")
    assert ran.code == 2
    assert "relayout: --json stands behind the file, or behind the verb\n" in ran.err


def test_sound_models_are_not_taken_for_something_else() -> None:
    for path in sorted(MODELS.glob("*.tflite")):
        kind = foreign(path.read_bytes()[:64])
        assert kind is not None
        assert kind.what == "a TensorFlow Lite model"
    model = onnx.parser.parse_model(NETWORK)
    for name in ("", "relayout", "<html>", "PK"):
        model.producer_name = name
        assert foreign(model.SerializeToString()[:64]) is None


def test_what_explain_says_of_a_tflite_names_the_format_of_the_result(
    relayout: Callable[..., Any], place: Path
) -> None:
    assert relayout("explain", "m.tflite").out.splitlines()[-1].endswith("for a .tflite result add --format tflite.")
    assert "--format tflite" not in relayout("explain", "m.tflite", "--format", "tflite").out
    assert "--format tflite" not in relayout("explain", "m.onnx").out
