"""Operators that are evaluated in advance, and those whose extents follow from the operands'."""

from __future__ import annotations

from relayout.formats.onnx.shape_vectors import MOVES

_NAMES = """
    Add And Ceil ConstantOfShape Div Equal Expand Floor Greater Less Max Min Mod Mul Neg Not Or Pow Range Reciprocal
    ReduceMax ReduceMin ReduceProd ReduceSum ScatterND Split Sub Where
"""
SHAPE_ARITHMETIC = frozenset(MOVES) | frozenset(_NAMES.split())
"""Operators that exporters compute shapes and axes with; others are not evaluated from constants alone."""
_NAMES = """
    Abs ArgMax ArgMin Clip Cos CumSum Exp EyeLike GatherElements GatherND GreaterOrEqual IsNaN LessOrEqual Log OneHot
    Pad ReduceMean Round ScatterElements Sign Sin Sqrt Tile Trilu Xor
"""
FROM_EXTENTS = SHAPE_ARITHMETIC | frozenset(_NAMES.split())
"""Operators that are evaluated where extents, and not constants alone, are what they start from."""
STARTS = frozenset(("ConstantOfShape", "Range", "Shape", "Size"))
"""Where values begin that follow from extents: masks, positions. Weights are not folded here."""
WINDOWS = frozenset(("AveragePool", "Conv", "ConvInteger", "LpPool", "MaxPool"))
"""Operators that slide a window over the last axes of their first operand."""
_NAMES = """
    Add And BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul Or
    Pow PRelu Sub Sum Where Xor
"""
BROADCASTING = frozenset(_NAMES.split())
"""Operators whose operands broadcast against each other."""
_NAMES = """
    ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare
"""
REDUCING = frozenset(_NAMES.split())
"""Operators that reduce axes, which an operand may name."""
CUTTING = frozenset(("Split",))
"""Operators whose results have extents that follow by one rule."""
JOINING = frozenset(("Concat",))
"""Operators whose operands may be known one by one: of the others the length is enough."""
PRODUCTS = frozenset(("Div", "Mul"))
"""Arithmetic that is done with symbols, too."""
