"""What is left when a run is killed, interrupted, or cannot write: the input as it was, and no half a result."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import relayout as package
from relayout.formats.onnx.reading import read
from relayout.formats.tflite.container.loading import MOST_READ
from relayout.reports.report import operators

SOURCE = Path(package.__file__).parents[1]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
KILOBYTES = 30_000

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="signals and limits of POSIX")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Transpose to fold away, and weights that take a while to write."""
    count = KILOBYTES * 256 // 4
    proto = parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[1,3,8,8] x, float[{count}] v) => (float[1,3,8,8] y, float[{count}] z) {{
          a = Transpose<perm = [0, 2, 3, 1]>(x)  b = Relu(a)  y = Transpose<perm = [0, 3, 1, 2]>(b)
          v0 = Add(v, w0)  v1 = Add(v0, w1)  v2 = Add(v1, w2)  z = Add(v2, w3) }}"""
    )
    for index in range(4):
        proto.graph.initializer.append(numpy_helper.from_array(np.full(count, index, np.float32), f"w{index}"))
    path = tmp_path_factory.mktemp("faults") / "m.onnx"
    onnx.save(proto, path)
    return path


@pytest.fixture
def source(model: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of the model, which is the same afterwards."""
    (tmp_path / "in").mkdir()
    path = Path(shutil.copy(model, tmp_path / "in"))
    before = digest(path)
    yield path
    assert digest(path) == before
    assert [each.name for each in path.parent.iterdir()] == ["m.onnx"]


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def start(*arguments: object, before: Callable[[], object] | None = None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "relayout", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        preexec_fn=before,
    )


def finished(*arguments: object, before: Callable[[], None] | None = None) -> tuple[int, str]:
    process = start(*arguments, before=before)
    _, err = process.communicate(timeout=120)
    return process.returncode, err.decode()


def whole(path: Path) -> bool:
    """Whether the result is complete."""
    return operators(read(path)) == {"Add": 4, "Relu": 1} and path.stat().st_size > 3 * 256 * KILOBYTES


def until(process: subprocess.Popen[bytes], reached: Callable[[], bool]) -> bool:
    """Wait until the process has come so far; False if it has ended before that was seen."""
    while process.poll() is None:
        if reached():
            return True
        time.sleep(0.001)
    return False


def opened(process: subprocess.Popen[bytes], path: Path) -> bool:
    """Whether the process reads the file now."""
    with contextlib.suppress(OSError):
        return any(os.path.samefile(each, path) for each in Path(f"/proc/{process.pid}/fd").iterdir())
    return False


def writes(folder: Path) -> bool:
    """Whether somebody writes there now."""
    return any(folder.glob(".*.tmp"))


def killed(source: Path, runs: int, tmp_path: Path) -> None:
    """Kill runs at random moments, half of them while they write."""
    out = tmp_path / "out"
    out.mkdir()
    target = out / "r.onnx"
    rng = random.Random(0)
    began = time.monotonic()
    assert finished("optimize", source, target, "-q") == (0, "")
    longest, reference = time.monotonic() - began, digest(target)
    ended = {"new": 0, "old": 0, "staged": 0}
    for run in range(runs):
        target.write_bytes(b"old")
        process = start("optimize", source, "-o", target, "-q")
        if run % 2:
            until(process, lambda: writes(out))
            time.sleep(rng.random() * 0.05)
        else:
            time.sleep(rng.random() * longest)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        found = digest(target)
        assert found == reference or target.read_bytes() == b"old"
        ended["new" if found == reference else "old"] += 1
        # Nobody cleans up after SIGKILL; what stays is named as what it is, and is not in the way.
        left = [path for path in out.iterdir() if path != target]
        assert all(path.name.startswith(".r.onnx.") and path.suffix == ".tmp" for path in left)
        ended["staged"] += bool(left)
        for path in left:
            path.unlink()
    assert ended["old"]
    assert ended["staged"]


KILLED = """
import os, signal, sys
from pathlib import Path

def counted(name):
    call = getattr(os, name)
    def counting(*arguments, **options):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **options)
    setattr(os, name, counting)

left = [int(sys.argv[1])]
for name in ("replace", "unlink", "fsync", "open"):
    counted(name)
import relayout
result = relayout.optimize(sys.argv[2])
left[0] = int(sys.argv[1])
result.save(sys.argv[3], external_data=True)
"""
"""Ends itself before the n-th of the calls that change what lies in a directory."""


def pair(directory: Path, factor: float) -> onnx.ModelProto:
    """A model whose weights, in a file of their own, are so many."""
    proto = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[4,600] x) => (float[4,600] y) { a = Mul(x, w) b = Transpose<perm = [1, 0]>(a)
          c = Transpose<perm = [1, 0]>(b) y = Add(c, w) }"""
    )
    proto.graph.initializer.append(numpy_helper.from_array(np.full((4, 600), factor, np.float32), "w"))
    directory.mkdir(exist_ok=True)
    onnx.save(proto, directory / "r.onnx", save_as_external_data=True, location="r.onnx.data", size_threshold=0)
    return onnx.load(directory / "r.onnx")


def held(path: Path) -> float:
    """What the weights of a whole model with its data are, read by two readers: 1 of the old, 2 of the new one."""
    model = onnx.load(path)
    (weights,) = (numpy_helper.to_array(tensor) for tensor in model.graph.initializer)
    assert (weights[0, 0] == 1) == any(node.op_type == "Transpose" for node in model.graph.node)
    ours = read(path).graph.initializers["w"].const_value
    assert ours is not None
    assert np.array_equal(ours.numpy(), weights)
    assert len(np.unique(weights)) == 1
    return float(weights[0, 0])


@pytest.mark.slow
def test_killed_between_a_model_and_its_data(tmp_path: Path) -> None:
    """Wherever it ends, the model that is there has its own data."""
    onnx.save(pair(tmp_path / "new", 2.0), tmp_path / "in.onnx")
    seen = []
    for call in range(1, 40):
        out = tmp_path / f"out{call}"
        pair(out, 1.0)
        command = [sys.executable, "-c", KILLED, str(call), str(tmp_path / "in.onnx"), str(out / "r.onnx")]
        code = subprocess.run(command, env=ENVIRONMENT, capture_output=True).returncode
        seen.append(held(out / "r.onnx"))
        assert code in (0, -signal.SIGKILL)
        if not code:
            assert sorted(path.name for path in out.iterdir()) == ["r.onnx", "r.onnx.data"]
            break
    assert code == 0
    # The old model first, then the new one: before the end, in which nothing is left to be done.
    assert seen == sorted(seen)
    assert seen.count(1.0) > 4
    assert seen.count(2.0) > 4


def killed_pairs(runs: int, tmp_path: Path) -> None:
    rng = random.Random(0)
    onnx.save(pair(tmp_path / "new", 2.0), tmp_path / "in.onnx")
    out = tmp_path / "out"
    seen = set()
    for run in range(runs):
        shutil.rmtree(out, ignore_errors=True)
        pair(out, 1.0)
        process = start("optimize", tmp_path / "in.onnx", out / "r.onnx", "--external-data", "-q")
        until(process, lambda: writes(out))
        time.sleep(rng.random() * 0.02 * (run % 4))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        seen.add(held(out / "r.onnx"))
        left = {path.name for path in out.iterdir()} - {"r.onnx", "r.onnx.data"}
        assert all(name.startswith((".r.onnx.", "r.onnx.")) and name.endswith((".tmp", ".data")) for name in left)
    assert seen == {1.0, 2.0}


@pytest.mark.slow
def test_pairs_killed_at_random_moments(tmp_path: Path) -> None:
    killed_pairs(200, tmp_path)


@pytest.mark.slow
def test_killed_now_and_then(source: Path, tmp_path: Path) -> None:
    killed(source, 6, tmp_path)


@pytest.mark.slow
def test_killed_at_random_moments(source: Path, tmp_path: Path) -> None:
    killed(source, 200, tmp_path)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="what a process has open is seen in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("writing", [False, True])
def test_interrupted(source: Path, tmp_path: Path, writing: bool, number: signal.Signals) -> None:
    out = tmp_path / "out"
    out.mkdir()
    # A shell starts what is to run in the background with SIGINT ignored; then nothing would be interrupted.
    process = start("optimize", source, out / "r.onnx", "-q", before=lambda: signal.signal(number, signal.SIG_DFL))
    assert until(process, lambda: writes(out) if writing else opened(process, source))
    began = time.monotonic()
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert time.monotonic() - began < 10  # a second or two, on a machine with nothing else to do
    assert b"Traceback" not in err
    if process.returncode:  # else it had written everything already
        assert process.returncode == 128 + number
        assert list(out.iterdir()) == []
    else:
        assert whole(out / "r.onnx")


def limit_files() -> None:
    """No file above 20 MB: writing more fails as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20 << 20, 20 << 20))


@pytest.mark.parametrize("options", [(), ("--external-data",)])
@pytest.mark.parametrize("old", [None, b"old"])
def test_no_room_for_the_result(source: Path, tmp_path: Path, options: tuple[str, ...], old: bytes | None) -> None:
    out = tmp_path / "out"
    out.mkdir()
    target = out / "r.onnx"
    if old:
        target.write_bytes(old)
    code, err = finished("optimize", source, "-o", target, *options, before=limit_files)
    assert (code, err.count("\n")) == (2, 1)
    assert "cannot write" in err
    assert [path.name for path in out.iterdir()] == (["r.onnx"] if old else [])
    assert not old or target.read_bytes() == old


@pytest.mark.slow
def test_a_full_disk(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(out)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a file system of a known size needs root and the right to mount")
    try:
        code, err = finished("optimize", source, out / "r.onnx")
        assert (code, "No space left on device" in err) == (2, True)
        assert list(out.iterdir()) == []
    finally:
        subprocess.run(["umount", str(out)], check=True)


def test_places_that_cannot_be_written(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "file").write_bytes(b"x")
    (out / "folder").mkdir()
    for target in (out / "none" / "r.onnx", out / "file" / "r.onnx", out / "folder", Path("/dev/full")):
        code, err = finished("optimize", source, target)
        assert (code, "Traceback" in err) == (2, False), err
    assert sorted(path.name for path in out.iterdir()) == ["file", "folder"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or not os.geteuid(), reason="root may write everywhere")
@pytest.mark.parametrize("options", [[], ["--verify"]])
def test_a_directory_without_permission(source: Path, tmp_path: Path, options: list[str]) -> None:
    out = tmp_path / "out"
    out.mkdir(mode=0o500)
    code, err = finished("optimize", source, out / "r.onnx", *options)
    assert (code, err) == (2, f"relayout: cannot write '{out / 'r.onnx'}': Permission denied\n")
    assert list(out.iterdir()) == []


def test_a_source_cut_short_while_it_is_read(model: Path, tmp_path: Path) -> None:
    """Somebody truncates the model after its checks and before its weights are written."""
    source = Path(shutil.copy(model, tmp_path))
    result = package.optimize(source)
    assert result.untouched is None
    os.truncate(source, source.stat().st_size // 2)
    with pytest.raises(package.RelayoutError, match=r"could be read|written to since it was opened"):
        result.save(tmp_path / "r.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def over(path: Path, data: bytes) -> None:
    """Write bytes over the file's last ones, as a download that starts again does; its length stays."""
    with path.open("r+b") as file:
        file.seek(-len(data), os.SEEK_END)
        file.write(data)


def test_a_source_written_over_while_it_is_read(model: Path, tmp_path: Path) -> None:
    """Weights of another model that has the same length: nothing but the time of writing tells."""
    for form in ("onnx", "external"):
        (tmp_path / form).mkdir()
        source = tmp_path / form / "m.onnx"
        onnx.save(onnx.load(model), source, save_as_external_data=form == "external", location="data", size_threshold=0)
        result = package.optimize(source)
        data = source.with_name("data") if form == "external" else source
        over(data, b"\1\2\3\4")
        message = rf"written to since it was opened at .*{data.name}; read it again"
        with pytest.raises(package.RelayoutError, match=message):
            result.save(tmp_path / "r.onnx")
    source = tmp_path / "m.tflite"
    large(source)
    result = package.convert(source)
    over(source, b"\1\2\3\4")
    with pytest.raises(package.RelayoutError, match=r"written to since it was opened at .*m\.tflite"):
        result.save(tmp_path / "r.onnx")
    assert not (tmp_path / "r.onnx").exists()


def test_a_source_replaced_or_written_over_by_its_result(model: Path, tmp_path: Path) -> None:
    """Another file of that name is not the one that was read."""
    source = Path(shutil.copy(model, tmp_path))
    result = package.optimize(source)
    (tmp_path / "other").write_bytes(b"another file")
    os.replace(tmp_path / "other", source)
    result.save(tmp_path / "r.onnx")
    package.optimize(shutil.copy(model, tmp_path)).save(source, overwrite=True)
    assert source.read_bytes() == (tmp_path / "r.onnx").read_bytes()


def large(path: Path) -> None:
    """A `.tflite` that is not read into memory at once: 300 MB of weights, zeros."""
    sys.path.insert(0, str(Path(__file__).parent / "formats" / "tflite"))
    from tflite_writing import chain, laid_out

    net, outside = chain(18, 2048)
    data, offsets = laid_out(net, outside, 2048 * 2048 * 4)
    path.write_bytes(data)
    os.truncate(path, offsets[-1] + 2048 * 2048 * 4)
    assert path.stat().st_size > MOST_READ


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="what a process has open is seen in /proc")
@pytest.mark.parametrize("moment", ["read", "written"])
@pytest.mark.parametrize("form", ["onnx", "external", "tflite"])
def test_cut_short_from_the_command_line(model: Path, tmp_path: Path, form: str, moment: str) -> None:
    """The process is stopped at the moment, the file cut, and the process goes on: one line, and nothing written."""
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    source = data = tmp_path / "in" / f"m.{'tflite' if form == 'tflite' else 'onnx'}"
    if form == "tflite":
        large(source)
    elif form == "onnx":
        shutil.copy(model, source)
    else:
        onnx.save(onnx.load(model), source, save_as_external_data=True, location="data")
        data = source.with_name("data")
    process = start("convert", source, tmp_path / "out" / "r.onnx", "-q")
    assert until(process, lambda: opened(process, data) if moment == "read" else writes(tmp_path / "out"))
    process.send_signal(signal.SIGSTOP)
    os.truncate(data, 1000)
    process.send_signal(signal.SIGCONT)
    _, err = process.communicate(timeout=120)
    assert (process.returncode, err.count(b"\n")) == (2, 1), err
    # It may have been open only to see what it is, or how long: whoever looks next finds it short.
    known = (b"could be read", b"has been written to", b"cut short", b"a damaged one", b"is incomplete")
    assert any(said in err for said in known), err
    assert list((tmp_path / "out").iterdir()) == []
    assert data.stat().st_size == 1000


FINALIZED = """
import signal, sys, time, weakref
from relayout.cli.entry import _told_to_end
number = int(sys.argv[1])
signal.signal(number, _told_to_end)
class Held: pass
held = Held()
weakref.finalize(held, signal.raise_signal, number)
try:
    del held
    time.sleep(9)
except (SystemExit, KeyboardInterrupt) as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("number", "said"), [(signal.SIGTERM, "SystemExit 143"), (signal.SIGINT, "KeyboardInterrupt ")]
)
@pytest.mark.sampled(every=2)
def test_an_interruption_while_a_file_is_closed_is_not_lost(number: signal.Signals, said: str) -> None:
    command = [sys.executable, "-c", FINALIZED, str(int(number))]
    ran = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=True)
    assert (ran.stdout, ran.stderr) == (f"{said}\n", "")


READING = """
import sys
from pathlib import Path
import relayout
from relayout.formats.tflite.container import loading
source, target, rounds, loading.MOST_READ = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
answers = {"written": 0, "refused": 0}
for number in range(100 * rounds):
    if number >= rounds and all(answers.values()):
        break
    try:
        relayout.convert(source).save(target)
        answers["written"] += 1
    except relayout.RelayoutError:
        answers["refused"] += 1
print(answers)
"""


def cut_again_and_again(source: Path, data: Path, target: Path, rounds: int, most: int) -> dict[str, int]:
    """Convert in one process what another cuts short and makes whole again, for longer each time."""
    content, rng, longest = data.read_bytes(), random.Random(0), 0.04
    command = [sys.executable, "-c", READING, str(source), str(target), str(rounds), str(most)]
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with data.open("r+b", buffering=0) as file:
        while process.poll() is None:
            cut = rng.randrange(len(content))
            file.truncate(cut)
            time.sleep(rng.random() * 0.02)
            file.seek(cut)
            file.write(content[cut:])
            time.sleep(rng.random() * longest)
            longest *= 1.02
    out, err = process.communicate()
    assert process.returncode == 0, (process.returncode, err[-2000:])
    return dict(ast.literal_eval(out))


@pytest.mark.parametrize("rounds", [25, pytest.param(400, marks=pytest.mark.slow)])
@pytest.mark.parametrize("form", ["onnx", "external", "tflite", "tflite in pieces"])
def test_cut_short_while_it_is_read(model: Path, tmp_path: Path, form: str, rounds: int) -> None:
    """An error or a result, and never the end of the process, as a page of a mapping would be."""
    source = data = tmp_path / f"m.{'tflite' if form.startswith('tflite') else 'onnx'}"
    if form.startswith("tflite"):
        shutil.copy(Path(__file__).parents[1] / "models" / "tinynet_float.tflite", source)
    else:
        small = onnx.load(model)
        for tensor in small.graph.initializer:
            array = numpy_helper.to_array(tensor)[: 1 << 19]
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
        for value in (small.graph.input[1], small.graph.output[1]):
            value.type.tensor_type.shape.dim[0].dim_value = 1 << 19
        onnx.save(small, source, save_as_external_data=form == "external", location="data")
        data = tmp_path / "data" if form == "external" else source
    most = 0 if form == "tflite in pieces" else MOST_READ
    found = cut_again_and_again(source, data, tmp_path / "r.onnx", rounds, most)
    assert found["written"]
    assert found["refused"]


def test_a_data_file_replaced_while_it_is_read(model: Path, tmp_path: Path) -> None:
    """Between check and use another file takes the name: what was checked is what is read."""
    proto = onnx.load(model)
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="data")
    expected = onnx.load(model).graph.initializer[1].raw_data
    result = package.optimize(tmp_path / "m.onnx")
    (tmp_path / "secret").write_bytes(bytes([7]) * (tmp_path / "data").stat().st_size)
    (tmp_path / "data").unlink()
    (tmp_path / "data").symlink_to("secret")
    result.save(tmp_path / "r.onnx")
    assert onnx.load(tmp_path / "r.onnx").graph.initializer[1].raw_data == expected
