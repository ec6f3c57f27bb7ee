"""Part III's sweeps: what is compared differs in the policy alone, and rows are measured right."""

import dataclasses
import math

import pytest

from lib import bridge_sweeps, geometry
from lib.analogies import AnalogyRun, member_of, train_many
from lib.analogy_sweeps import AnalogyCell
from lib.configuration import describe
from lib.experiments import ARMS, logic_run
from lib.generators.analogy import AnalogyConfig
from lib.policies import Refresh, Reset

TASK = AnalogyConfig(entities=5, vocabulary=60, comp_ood=0.5, ana_ood=0.4)
TINY = AnalogyRun(task=TASK, d_model=16, batch=8, steps=8, eval_every=4)


def test_the_choice_uses_seeds_and_runs_that_are_not_reported():
    choice, confirmed = bridge_sweeps.choice_cells(), bridge_sweeps.refresh_cells()
    assert max(c.run.seed for c in choice) < 10 <= min(c.run.seed for c in confirmed)
    standard = describe(dataclasses.replace(logic_run(), seed=0))
    for cell in choice:
        differs = {k for k, v in describe(cell.run).items() if v != standard[k]}
        assert differs - {"seed"} == {"policy"} and isinstance(cell.run.policy, Refresh)
    tried = {(c.run.policy.every, c.run.policy.method) for c in choice}
    chosen = ARMS["refresh"][0]["policy"]
    assert (chosen.every, chosen.method) in tried


def test_policies_on_analogies_differ_in_the_policy_alone():
    exact = describe(AnalogyRun())
    changed = {
        cell.value: {k for k, v in describe(cell.run).items() if v != exact.get(k)}
        for cell in bridge_sweeps.cures_cells()
    }
    for arm in ("reset", "reset half", "freeze rows", "refresh"):
        assert changed[arm] == {"policy"}
    assert changed["freeze"] == {"frozen"} and not changed["learn"]


@pytest.mark.parametrize("policy", [None, Reset(every=4)])
def test_rows_of_names_are_measured_in_the_model_as_evaluated(policy):
    run = TINY if policy is None else dataclasses.replace(TINY, policy=policy)
    rows, _ = bridge_sweeps.run_cures(AnalogyCell("arm", "x", run, seeds=(10, 11, 12, 13, 14)))
    assert [(row["seed"], row["step"]) for row in rows] == [
        (seed, step) for seed in range(10, 15) for step in (0, 4, 8)
    ]
    one = dataclasses.replace(run, seed=14)
    W = train_many([one])[0].W_E[0].detach()
    member = member_of(one)
    x = W[member.unused]
    assert len(x) == 40
    assert rows[-1]["unused_cosine"] == pytest.approx(geometry.mean_cosine(x), abs=1e-3)
    assert rows[-1]["unused_share"] == pytest.approx(geometry.individual_share(x), abs=1e-3)
    used = W[member.world.relation.unique()]
    assert rows[-1]["used_norm"] == pytest.approx(float(used.norm(dim=1).mean()), abs=1e-3)


def test_without_unused_names_their_columns_are_empty():
    task = dataclasses.replace(TASK, vocabulary=TASK.n_relations)
    cell = AnalogyCell("arm", "x", dataclasses.replace(TINY, task=task), seeds=(10,))
    rows, _ = bridge_sweeps.run_cures(cell)
    assert all(math.isnan(row["unused_cosine"]) for row in rows)
    assert all(math.isfinite(row["used_cosine"]) for row in rows)
