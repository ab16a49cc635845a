"""Run two models, undo the layouts that they declare, and compare them value by value."""

from relayout.verification.compare import Difference, Kind, Verdict
from relayout.verification.quantization import Loss, QuantizationLoss, quantization_loss
from relayout.verification.report import Fed, Row, VerifyReport
from relayout.verification.reproducing import Reproduction, refuse_reproduction, reproduce
from relayout.verification.verifying import verify

__all__ = [
    "Difference",
    "Fed",
    "Kind",
    "Loss",
    "QuantizationLoss",
    "Reproduction",
    "Row",
    "Verdict",
    "VerifyReport",
    "quantization_loss",
    "refuse_reproduction",
    "reproduce",
    "verify",
]
