"""Both loops of the benchmark are the same training; speed itself is not asserted."""

import pytest

from lib import bench


def test_both_loops_reach_the_same_loss():
    report = bench.bench_logic(names=(50,), steps=7)["names"]["50"]
    assert report["loss"] == pytest.approx(report["textbook_loss"], rel=1e-4)
    assert report["bound_ms"] > 0
