"""Cases that are refused, since LiteRT has no operators that compute them."""

from __future__ import annotations

REFUSED: dict[str, str] = {
    "Attention-21-4x5x6_6x72_72_2x4x3x7x8-num_heads3-constants": "keys and values of an earlier run",
    "DFT-20-2x4x6x2_s_s--constants": "the axis of a transform is computed",
    "Inverse-21-2x3x6x4x4-": "inverses of more than three rows",
    "Pad-21-2x3x4x6_8-modeedge": "the amount of padding by edge is computed",
    "Pad-21-2x3x4x6_8-modewrap": "the amount of padding by wrap is computed",
    "Resize-13-2x6x9x8_8_4-modelinear_coordinate_transformation_modetf_crop_and_resize-constants": (
        "a region with as many places as the image"
    ),
    "LinearRegressor-21-4x3-targets2_post_transformPROBIT_coefficients[1.0,2.0,3.0,4.0,5.0,6.0]_intercepts[0.5,0.25]": (
        "no operators are known that compute it"
    ),
    "LinearClassifier-21-4x3-coefficients[1.0,2.0,3.0]_intercepts[0.5]_classlabels_ints[7,8]": (
        "no operators are known that compute it"
    ),
}
"""Case -> the reason for which it is refused."""
