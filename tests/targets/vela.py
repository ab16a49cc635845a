"""Where Vela is installed, tests ask it; elsewhere they are skipped."""

import pytest
from by_vela import PROGRAM, Judgement, judge

__all__ = ["PROGRAM", "Judgement", "judge", "needs_vela"]

needs_vela = pytest.mark.skipif(PROGRAM is None, reason="no vela: pip install '.[judges]'")
