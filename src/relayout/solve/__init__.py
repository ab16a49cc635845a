"""The layout problem, its exact solvers, and the certificate with its independent checker. Knows no ONNX."""

from relayout.solve.certificate import (
    MOST_DEPTH,
    Branch,
    Certificate,
    CertificateError,
    Elimination,
    Leaf,
    Part,
    Price,
    Prices,
    Together,
    bound,
)
from relayout.solve.problem import Problem, Value, ValueEnd, transposed_orders
from relayout.solve.solver import Solution, components, solve

__all__ = [
    "MOST_DEPTH",
    "Branch",
    "Certificate",
    "CertificateError",
    "Elimination",
    "Leaf",
    "Part",
    "Price",
    "Prices",
    "Problem",
    "Solution",
    "Together",
    "Value",
    "ValueEnd",
    "bound",
    "components",
    "solve",
    "transposed_orders",
]
