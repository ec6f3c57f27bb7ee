"""Both loops of the benchmark are the same training; speed itself is not asserted."""

import dataclasses

import pytest
from torch.utils.flop_counter import FlopCounterMode

from lib import bench
from lib.analogies import AnalogyRun, member_of
from lib.ensemble import build
from lib.generators import stream


def test_both_loops_reach_the_same_loss():
    report = bench.bench_logic(names=(50,), steps=7)["names"]["50"]
    assert report["loss"] == pytest.approx(report["textbook_loss"], rel=1e-4)
    assert report["bound_ms"] > 0


def test_the_textbook_analogy_loop_is_the_same_training():
    part = bench.bench_analogy(members=(2,), steps=6)
    exact = part["softmax"]["exact"]["members"]["2"]
    assert exact["loss"] == pytest.approx(part["textbook"]["loss"], rel=1e-4)
    assert exact["model_steps_per_s"] > 0


def test_multiply_adds_of_an_analogy_step_are_counted_right():
    """Forward products of one plain step by torch's own counter, times three."""
    run = dataclasses.replace(AnalogyRun(stand_ins=64), batch=8)
    models = build(run.model, [stream(0, "weights")])
    prompts = member_of(run).pool[:8, :-1].clamp(min=0)[None]
    with FlopCounterMode(display=False) as counter:
        models.logits(prompts)
    assert bench.analogy_flops(run) == pytest.approx(3 * counter.get_total_flops(), rel=0.02)
