"""What models are fed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from relayout.errors import ReadError, RelayoutError
from relayout.layout.stored_as import Holds
from relayout.verification.feeds import EXTENTS, channel_axis, dynamic_shape, random_feed, user_feeds
from relayout.verification.side import ModelValue


def value(dtype: str | None, shape: tuple[int | None, ...] | None = None, **more: object) -> ModelValue:
    return ModelValue("x", None if dtype is None else np.dtype(dtype), shape, **more)


def feed(dtype: str, shape: tuple[int, ...], seed: int = 0, signed: bool = True, **more: object) -> np.ndarray:
    array = random_feed(value(dtype, shape, **more), shape, np.random.default_rng(seed), signed)
    assert array.dtype == dtype
    assert array.shape == shape
    return array


@pytest.mark.parametrize("shape", [(2, 24, 40, 3), (1, 3, 31, 33), (2, 17, 8, 1), (1, 64, 64, 4)])
def test_images_are_smooth_and_never_constant(shape: tuple[int, ...]) -> None:
    image = feed("float32", shape)
    spatial = (1, 2) if channel_axis(shape) == 3 else (2, 3)
    for axis in range(4):
        if shape[axis] > 1:
            assert np.diff(image, axis=axis).std() > 0.01, f"constant along {axis}"
    assert image.min() == -1
    assert image.max() == 1
    # Neighbours are alike: that is what sets an image apart from noise, whose differences are larger than itself.
    for axis in spatial:
        if shape[axis] >= 24:
            assert np.diff(image, axis=axis).std() < 0.7 * image.std()
    assert feed("float32", shape, signed=False).min() == 0
    for dtype in ("uint8", "int8"):
        bytes_ = feed(dtype, shape)
        assert (bytes_.min(), bytes_.max()) == (np.iinfo(dtype).min, np.iinfo(dtype).max)


def test_what_is_an_image() -> None:
    assert channel_axis((1, 8, 8, 3)) == 3
    assert channel_axis((1, 3, 8, 8)) == 1
    for shape in ((1, 7, 8, 3), (1, 8, 8, 5), (8, 8, 3), (1, 8, 8, 8, 3)):
        assert channel_axis(shape) is None


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "complex64", "int8", "uint8", "int16", "int32", "int64", "bool"]
)
def test_every_type_varies_and_follows_the_seed(dtype: str) -> None:
    array = feed(dtype, (5, 7))
    assert len(np.unique(array)) > 1
    np.testing.assert_array_equal(array, feed(dtype, (5, 7)))
    assert (array != feed(dtype, (5, 7), seed=1)).any()


def test_integers_stay_in_bounds() -> None:
    assert feed("int32", (1000,)).max() == 9
    assert feed("int64", (1000,), bound=4).max() == 3
    wide = feed("int16", (1000,), quantized=True)
    assert wide.max() > 10_000
    assert wide.min() < -10_000


def test_what_may_count_is_careful_when_it_is_asked() -> None:
    def careful(dtype: str, shape: tuple[int, ...], **more: object) -> np.ndarray:
        return random_feed(value(dtype, shape, **more), shape, np.random.default_rng(0), True, careful=True)

    assert not careful("int64", (100,), bound=4).any()
    assert set(careful("float32", (100,))) == set(range(10))
    assert careful("int16", (1000,), quantized=True).max() > 10_000
    assert careful("float32", (1, 8, 8, 3)).min() < 0


def test_texts_are_numbers() -> None:
    texts = feed("O", (4, 5))
    assert len({str(text) for text in texts.reshape(-1)}) > 3
    assert all(isinstance(text, str) and text == str(int(text)).zfill(len(text)) for text in texts.reshape(-1))


def test_nothing_is_made_up_of_an_unknown_type() -> None:
    for dtype in ("V2", None):
        with pytest.raises(RelayoutError, match="give an array"):
            random_feed(value(dtype), (1,), np.random.default_rng(0), True)


def test_dynamic_dimensions_get_sizes() -> None:
    sizes: dict[str, int] = {}
    assert dynamic_shape(value("float32", (None, None, None, 3)), sizes) == (2, 64, 64, 3)
    assert dynamic_shape(value("float32", (None, None, 5), symbols=("N", "L", "")), sizes) == (2, 16, 5)
    assert dynamic_shape(value("float32", (None, 4), symbols=("L", "")), sizes) == (16, 4)
    with pytest.raises(RelayoutError, match="does not say the shape"):
        dynamic_shape(value("float32"), sizes)


def test_dynamic_volumes_are_less_wide_than_images_and_fit_into_memory() -> None:
    volume = value("float32", (None, 1, None, None, None))
    assert dynamic_shape(volume, {}) == (2, 1, 32, 32, 32)
    assert dynamic_shape(volume, {}, EXTENTS[1]) == (2, 1, 64, 64, 64)
    assert dynamic_shape(value("float32", (1 << 20, 1 << 10)), {}) == (1 << 20, 1 << 10)  # what a model says, it wants
    with pytest.raises(RelayoutError, match="'x' would have 2 × 4096 × 65536 elements; give an array for it"):
        dynamic_shape(value("float32", (None, None, 1 << 16)), {}, EXTENTS[2])
    with pytest.raises(RelayoutError, match="'x' would have 4611686018427387904 × 4 elements"):
        dynamic_shape(value("float32", (1 << 62, 4)), {})


def test_arrays_are_taken_by_any_name(tmp_path: Path) -> None:
    inputs = [value("float32", (2, None), aliases=("tensor",), source_values=(Holds("held", (2, 3), (1, 0), (2, 3)),))]
    array = np.ones((2, 3))
    np.save(tmp_path / "a.npy", array)
    for name in ("x", "tensor", "held"):
        for given in (array, array.tolist(), tmp_path / "a.npy", str(tmp_path / "a.npy")):
            found = user_feeds({name: given}, inputs)
            assert found["x"].dtype == np.float32
            assert found["x"].flags.c_contiguous
    assert user_feeds(None, inputs) == {}
    assert user_feeds({"x": np.float32(3)}, [value("float32", ())])["x"].shape == ()


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"y": np.ones((2, 3))}, "no input is called 'y'; there is only 'x'"),
        ({"x": np.ones((3, 3))}, r"has the shape \[2, '\?'\]"),
        ({"x": np.ones(2)}, "has the shape"),
        ({"x": np.ones((2, 3), complex)}, "is float32, and the array given for it is complex128"),
    ],
)
def test_arrays_that_do_not_fit(inputs: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(RelayoutError, match=message):
        user_feeds(inputs, [value("float32", (2, None))])


def test_files_that_are_no_arrays(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(b"nothing")
    np.savez(tmp_path / "a.npz", a=np.ones(2))
    np.save(tmp_path / "o.npy", np.array([{}]), allow_pickle=True)
    said = {
        "a.npy": r"not a \.npy file at .*a\.npy; write one with numpy\.save$",
        "a.npz": r"an archive, not one array at .*a\.npz; write one with numpy\.save$",
        "o.npy": "Object arrays cannot be loaded",
        "none.npy": "does not exist",
    }
    for name, message in said.items():
        with pytest.raises(ReadError, match=message):
            user_feeds({"x": tmp_path / name}, [value("float32", (2,))])
