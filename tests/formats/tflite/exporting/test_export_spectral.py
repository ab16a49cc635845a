"""Transforms of which ONNX Runtime computes something else than the standard says."""

from __future__ import annotations

import numpy as np
import pytest
from export_running import agrees

from small import build
from text_form import floats


@pytest.mark.parametrize("length", [None, 5, 7, 10, 11, 16])
@pytest.mark.parametrize("axis", [1, 2])
def test_half_a_spectrum_becomes_real_numbers_as_in_numpy(axis: int, length: int | None) -> None:
    constants = {"a": np.array(axis)} | ({} if length is None else {"l": np.array(length)})
    text = f"y = DFT<inverse=1, onesided=1>(x, {'' if length is None else 'l'}, a)"
    spectrum = floats(2, 6, 4, 2)
    wanted = np.fft.irfft(spectrum[..., 0] + 1j * spectrum[..., 1], length, axis)[..., None].astype(np.float32)
    agrees(build("float[2,6,4,2] x", text, constants, opset=20), {"x": spectrum}, expected=[wanted])
