"""Each check takes the right answer, names the likely mistake of a wrong one, and waits for a stub."""

import itertools
import math

import numpy as np
import pytest
import torch

from lib import exercises, geometry
from lib.analogies import first_hit, sustained
from lib.experiments import logic_run
from lib.generators import stream
from lib.generators.logic import solve
from lib.models.transformer import Transformer, initialise
from lib.policies import Reset
from lib.training import make_optimiser


def chain_without_fact(prompt):
    return " ".join(solve(prompt).split()[1:])


def one_step_only(prompt):
    words = solve(prompt).split()
    return " ".join([*words[:2], words[-1]])


def verdict_flipped(prompt):
    words = solve(prompt).split()
    return " ".join([*words[:-1], "F" if words[-1] == "T" else "T"])


def breaks(prompt):
    return {}[prompt]


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (chain_without_fact, "fact itself is missing"),
        (one_step_only, "stops too early"),
        (verdict_flipped, "the verdict is not"),
        (breaks, "KeyError"),
        (lambda prompt: None, "returns nothing"),
    ],
)
def test_solve_rejects(answer, hint):
    said = exercises.check_solve(answer)
    assert said.startswith("Not yet") and hint in said


def test_solve_accepts():
    assert exercises.check_solve(solve).startswith("Right")


def kind(written, problem, due, task, here="seen_here", first="right"):
    if written == due:
        return first
    if written < task.seen.start:
        return "special"
    if written >= task.unseen.start:
        return "other_unseen"
    return here if written in problem else "seen_elsewhere"


def test_kind():
    assert exercises.check_kind(kind).startswith("Right")
    for wrong, hint in (
        (lambda *a: kind(*a, here="seen_elsewhere"), "seen_here"),
        (lambda *a: kind(*a, first="other_unseen"), "due name itself"),
        (lambda *a: None, "returns nothing"),
    ):
        said = exercises.check_kind(wrong)
        assert said.startswith("Not yet") and hint in said


def with_diagonal(x):
    unit = x / x.norm(dim=1, keepdim=True)
    return (unit @ unit.T).mean()


def not_normalised(x):
    gram = x @ x.T
    return (gram.sum() - gram.trace()) / (len(x) * (len(x) - 1))


def absolute(x):
    unit = x / x.norm(dim=1, keepdim=True)
    return ((unit @ unit.T).abs().sum() - len(x)) / (len(x) * (len(x) - 1))


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (with_diagonal, "diagonal"),
        (not_normalised, "length first"),
        (absolute, "sign"),
        (lambda x: None, "returns nothing"),
        (lambda x: 0.123, "Two equal rows"),
    ],
)
def test_mean_cosine_rejects(answer, hint):
    said = exercises.check_mean_cosine(answer)
    assert said.startswith("Not yet") and hint in said


def test_mean_cosine_accepts():
    assert exercises.check_mean_cosine(geometry.mean_cosine).startswith("Right")


def steps_until(share, lr, decay):
    return math.ceil(math.log(share) / math.log(1 - lr * decay))


def test_steps_until():
    assert exercises.check_steps_until(steps_until).startswith("Right")
    for wrong, hint in (
        (lambda *a: steps_until(*a) - 1, "Round up"),
        (lambda *a: steps_until(*a) + 1, "One step fewer"),
        (lambda share, lr, decay: steps_until(share, lr, 1.0), "factor of one step"),
        (lambda *a: None, "returns nothing"),
    ):
        said = exercises.check_steps_until(wrong)
        assert said.startswith("Not yet") and hint in said


def copy_logits(pattern, tokens, W, gate):
    return gate * (pattern @ W[tokens]) @ W.T


def share_of_attention(pattern, tokens, W, gate):
    return gate * torch.zeros(len(W)).index_add(0, tokens, pattern)


def own_square_only(pattern, tokens, W, gate):
    return share_of_attention(pattern, tokens, W, gate) * W.square().sum(1)


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (lambda p, t, W, g: copy_logits(p, t, W, 1.0), "gate is missing"),
        (lambda p, t, W, g: g * (p @ W[t]), "W_U still has to read it"),
        (share_of_attention, "attention is not a logit"),
        (own_square_only, "not orthogonal"),
        (lambda p, t, W, g: g * W[t[p.argmax()]] @ W.T, "looks at most"),
        (lambda p, t, W, g: g * W[t].sum(0) @ W.T, "Weight the embeddings"),
        (lambda p, t, W, g: torch.zeros(3), "9 logits"),
        (lambda p, t, W, g: torch.zeros(len(W)), "off by"),
        (lambda p, t, W, g: W[100], "IndexError"),
        (lambda p, t, W, g: None, "returns nothing"),
    ],
)
def test_copy_logits_rejects(answer, hint):
    said = exercises.check_copy_logits(answer)
    assert said.startswith("Not yet") and hint in said


def test_copy_logits_accepts():
    assert exercises.check_copy_logits(copy_logits).startswith("Right")


def draws_by(factor, mean=True):
    """A function that draws rows z @ factor(covariance) plus the mean."""

    def draw(x, n, generator):
        z = torch.randn(n, x.shape[1], generator=generator)
        return z @ factor(torch.cov(x.T)) + x.mean(dim=0) * mean

    return draw


def cholesky(cov):
    return torch.linalg.cholesky(cov).T


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (draws_by(lambda cov: cov.diag().sqrt().diag()), "more than its diagonal"),
        (draws_by(lambda cov: cholesky(cov).T), "wrong side"),
        (draws_by(lambda cov: cov), "square root"),
        (draws_by(lambda cov: torch.eye(3)), "not mixed"),
        (draws_by(cholesky, mean=False), "the mean is off"),
        (lambda x, n, generator: x[torch.randint(len(x), (n,), generator=generator)], "repeat"),
        (lambda x, n, generator: x[:n], "shape"),
        (lambda x, n, generator: None, "returns nothing"),
    ],
)
def test_draws_rejects(answer, hint):
    said = exercises.check_draws(answer)
    assert said.startswith("Not yet") and hint in said


def test_draws_accepts_either_square_root():
    def symmetric(cov):
        values, vectors = torch.linalg.eigh(cov)
        return vectors @ values.sqrt().diag() @ vectors.T

    for factor in (cholesky, symmetric):
        assert exercises.check_draws(draws_by(factor)).startswith("Right")


def perplexity(losses, tokens):
    return math.exp(sum(loss * n for loss, n in zip(losses, tokens)) / sum(tokens))


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (lambda losses, tokens: math.log(perplexity(losses, tokens)), "that is the loss"),
        (lambda losses, tokens: perplexity(losses, [1] * len(losses)), "long file counts more"),
        (
            lambda losses, tokens: math.log(
                perplexity([math.exp(loss) for loss in losses], tokens)
            ),
            "not the perplexities",
        ),
        (lambda losses, tokens: sum(map(math.exp, losses)) / 3, "exponential comes last"),
        (lambda losses, tokens: 2 ** math.log(perplexity(losses, tokens)), "bits to 2"),
        (lambda losses, tokens: math.exp(1.9), "two files with loss 0.5"),
        (lambda losses, tokens: 1.0, "One file alone"),
        (lambda losses, tokens: None, "returns nothing"),
    ],
)
def test_perplexity_rejects(answer, hint):
    said = exercises.check_perplexity(answer)
    assert said.startswith("Not yet") and hint in said


def test_perplexity_accepts():
    assert exercises.check_perplexity(perplexity).startswith("Right")


def rows_met(names, steps, every, until):
    draws = 1 + sum(
        step % every == 0 and (until is None or step <= until) for step in range(1, steps)
    )
    return names * draws


def test_rows_met():
    assert exercises.check_rows_met(rows_met).startswith("Right")
    for wrong, hint in (
        (lambda n, steps, every, until: n * ((steps - 1) // every), "first draw counts"),
        (lambda n, steps, every, until: n * (steps // every), "first draw counts"),
        (lambda n, steps, every, until: n * (1 + steps // every), "last step is steps - 1"),
        (lambda n, steps, every, until: rows_met(n, steps, every, None), "nothing is redrawn"),
        (
            lambda n, steps, every, until: rows_met(n, steps, every, until and until - 1),
            "step `until` itself",
        ),
        (lambda n, *rest: rows_met(1, *rest), "number of draws"),
        (lambda *a: 12345, "count"),
        (lambda *a: None, "returns nothing"),
    ):
        said = exercises.check_rows_met(wrong)
        assert said.startswith("Not yet") and hint in said, said


def test_rows_met_agrees_with_the_policy():
    config = logic_run("tiny", policy=Reset(every=3, until=7))
    model = initialise(Transformer(config.model), stream(0, "weights"))
    optimizer, draws = make_optimiser(config, model), {tuple(model.W_E[0].tolist())}
    for step in range(12):
        config.policy.before_step(model, optimizer, step, 0)
        draws.add(tuple(model.W_E[0].tolist()))
    assert rows_met(1, 12, 3, 7) == len(draws) == 3


def carries_over(relation, F, pairs=itertools.permutations):
    return all(relation[F[a], F[b]] == relation[a, b] for a, b in pairs(F, 2))


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (lambda relation, F: True, "exchanged"),
        (lambda relation, F: False, "keeps every relation"),
        (lambda *a: carries_over(*a, pairs=itertools.combinations), "two directions"),
        (lambda *a: carries_over(*a, pairs=lambda F, _: itertools.pairwise(F)), "two directions"),
        (
            lambda relation, F: carries_over(
                relation, F, pairs=lambda F, _: [(b, a) for a, b in itertools.combinations(F, 2)]
            ),
            "Every pair",
        ),
        (
            lambda relation, F: all(relation[F[a], F[b]] == relation[a, b] for a in F for b in F),
            "leave a = b out",
        ),
        (lambda relation, F: None, "returns nothing"),
    ],
)
def test_carries_over_rejects(answer, hint):
    said = exercises.check_carries_over(answer)
    assert said.startswith("Not yet") and hint in said


def test_carries_over_knows_a_turned_circle():
    worlds = []

    def only_one(relation, F):
        """Takes the first map that fits in a world for the only one."""
        fits = carries_over(relation, F)
        world = frozenset(relation.items())
        if fits:
            worlds.append((world, F))
        return fits and next(first for seen, first in worlds if seen == world) == F

    assert "turns a circle" in exercises.check_carries_over(only_one)


def test_carries_over_accepts():
    assert exercises.check_carries_over(carries_over).startswith("Right")


def test_sustained():
    def strictly(steps, scores):
        return sustained(steps, [s if s != 0.9 else 0.0 for s in scores])

    def place(steps, scores):
        return sustained(range(len(steps)), scores)

    def last_rise(steps, scores):
        below = [t for t, v in zip(steps, scores) if v < 0.9]
        return next((t for t in steps if t > max(below)), None)

    assert exercises.check_sustained(sustained).startswith("Right")
    for wrong, hint in (
        (first_hit, "first hit"),
        (strictly, "exactly 0.9"),
        (place, "not its place"),
        (last_rise, "ValueError"),
        (lambda steps, scores: sustained(steps, [*scores[:-1], 1.0]), "ends below"),
        (lambda steps, scores: None, "returns nothing"),
    ):
        said = exercises.check_sustained(wrong)
        assert said.startswith("Not yet") and hint in said


def test_direction():
    def mean_of(W, known, left_out, divide=None):
        kept = [(s, t) for s, t in known if s != left_out]
        total = torch.stack([W[t] - W[s] for s, t in kept]).sum(0)
        return total / (divide(known, kept) if divide else len(kept))

    def everyone(W, known, left_out):
        return mean_of(W, known, None)

    assert exercises.check_direction(mean_of).startswith("Right")
    for wrong, hint in (
        (everyone, "left out"),
        (lambda W, known, out: -mean_of(W, known, out), "from targets to sources"),
        (lambda W, known, out: mean_of(W, known, out, lambda a, k: 1), "the sum"),
        (lambda W, known, out: mean_of(W, known, out, lambda a, k: len(a)), "still counted"),
        (lambda W, known, out: W[known[0][0]], "by hand"),
        (lambda W, known, out: W, "one vector"),
        (lambda W, known, out: None, "returns nothing"),
        (lambda W, known, out: W[99], "IndexError"),
    ):
        said = exercises.check_direction(wrong)
        assert said.startswith("Not yet") and hint in said


def lead(A, B, unit=True, off=True, power=2, scale=1.0):
    if unit:
        A, B = (x / x.norm(dim=1, keepdim=True) for x in (A, B))
    energy = (A[:, None] - B[None]).norm(dim=2) ** power
    near = energy.diagonal().mean()
    n = len(A)
    far = (energy.sum() - n * near) / (n * n - n) if off else energy.mean()
    return scale * (far - near)


def one_neighbour(A, B):
    A, B = (x / x.norm(dim=1, keepdim=True) for x in (A, B))
    return ((A - B.roll(-1, 0)).square() - (A - B).square()).sum(1).mean()


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (lambda A, B: lead(A, B, scale=-1.0), "the sign is turned"),
        (lambda A, B: lead(A, B, off=False), "Leave the diagonal out"),
        (lambda A, B: lead(A, B, unit=False), "length one"),
        (lambda A, B: lead(A, B, unit=False, off=False), "leave i = j out"),
        (lambda A, B: lead(A, B, scale=0.5), "cosines alone"),
        (lambda A, B: lead(A, B, scale=-0.5), "a cosine is large"),
        (lambda A, B: lead(A, B, power=1), "square the distances"),
        (one_neighbour, "Take all of them"),
        (lambda A, B: lead(A, B, scale=3.0), "instead of"),
        (lambda A, B: torch.nn.functional.normalize(A) @ B[:3], "RuntimeError"),
        (lambda A, B: None, "returns nothing"),
    ],
)
def test_lead_rejects(answer, hint):
    said = exercises.check_lead(answer)
    assert said.startswith("Not yet") and hint in said, said


def test_lead_accepts():
    assert exercises.check_lead(lead).startswith("Right")


def test_lead_asks_for_rows_that_are_all_alike():
    """A constant fitted to the first rows does not pass."""
    right = []

    def first_answer(A, B):
        right.append(lead(A, B))
        return right[0]

    assert "no pair leads" in exercises.check_lead(first_answer)


def test_ends():
    def right(facts, r2):
        return {b for _, r, b in facts if r == r2}

    def one_category(facts, r2):
        return set(list(right(facts, r2))[:1])

    assert exercises.check_ends(right).startswith("Right")
    for wrong, hint in (
        (lambda facts, r2: {a for a, r, _ in facts if r == r2}, "first entities"),
        (lambda facts, r2: {b for _, _, b in facts}, "whatever the relation"),
        (one_category, "both categories"),
        (lambda facts, r2: {0}, "by hand"),
        (lambda facts, r2: None, "returns nothing"),
        (lambda facts, r2: facts[999], "IndexError"),
    ):
        said = exercises.check_ends(wrong)
        assert said.startswith("Not yet") and hint in said, said


def test_best_share():
    def shares(first, second, maps, diagonal=False):
        n = len(first)
        off = torch.ones(n, n, dtype=torch.bool) if diagonal else ~torch.eye(n, dtype=torch.bool)
        return [float(((second[p][:, p] == first) & off).sum() / off.sum()) for p in maps]

    assert exercises.check_best_share(lambda a, b, m: max(shares(a, b, m))).startswith("Right")
    for wrong, hint in (
        (lambda a, b, m: max(shares(a, b, m, diagonal=True)), "no relation"),
        (lambda a, b, m: max(shares(a, b, m)) * 12, "number of pairs"),
        (lambda a, b, m: sum(shares(a, b, m)) / len(m), "best of all maps"),
        (lambda a, b, m: 7.0, "by hand"),
        (lambda a, b, m: None, "returns nothing"),
    ):
        said = exercises.check_best_share(wrong)
        assert said.startswith("Not yet") and hint in said, said


def scores_of_known(W, known, length=True, out=True, leave=True, again=True):
    """By loops, in numpy."""
    W = W.double().numpy()
    unit = [row / np.linalg.norm(row) for row in W] if length else list(W)
    rest = [i for i in range(len(W)) if i not in known or not leave]
    centre = sum(unit[i] for i in rest) / len(rest)
    rows = [unit[i] - centre for i in known]
    if again:
        rows = [row / np.linalg.norm(row) for row in rows]
    scores = []
    for i, row in enumerate(rows):
        direction = sum(other for j, other in enumerate(rows) if i != j or not out)
        scores.append(row @ direction / np.linalg.norm(direction) / np.linalg.norm(row))
    return torch.tensor(scores)


def test_scores_of_known():
    assert exercises.check_scores_of_known(scores_of_known).startswith("Right")
    for wrong, hint in (
        (lambda W, known: scores_of_known(W, known, out=False), "witness for itself"),
        (lambda W, known: scores_of_known(W, known, length=False), "length one first"),
        (lambda W, known: scores_of_known(W, known, leave=False), "Leave the known ones out"),
        (lambda W, known: scores_of_known(W, known, again=False), "in order"),
        (lambda W, known: scores_of_known(W, known)[:1], "1 scores for 4 rows"),
        (lambda *a: None, "returns nothing"),
        (lambda *a: "no", "Not yet"),
    ):
        said = exercises.check_scores_of_known(wrong)
        assert said.startswith("Not yet") and hint in said and "_Scores" not in said, said


def can_be_translation(pairs):
    """Union by offsets: every word has a place on a line, and no two share one."""
    place = {}
    for s, t in pairs:
        for word in (s, t):
            place.setdefault(word, (word, 0))
        (root_s, at_s), (root_t, at_t) = place[s], place[t]
        if root_s == root_t:
            if at_t - at_s != 1:
                return False
            continue
        move = at_s + 1 - at_t
        place = {
            w: (root_s, a + move) if root == root_t else (root, a) for w, (root, a) in place.items()
        }
    return len(set(place.values())) == len(place)


def test_can_be_translation():
    assert exercises.check_can_be_translation(can_be_translation).startswith("Right")
    one_to_one = lambda pairs: len(set(map(len, (pairs, dict(pairs), {t for _, t in pairs})))) == 1  # noqa: E731
    for wrong, hint in (
        (lambda pairs: True, "2 f"),
        (lambda pairs: False, "is possible"),
        (one_to_one, "2 f"),
        (lambda pairs: one_to_one(pairs) and not {(t, s) for s, t in pairs} & {*pairs}, "3 f"),
        (lambda pairs: not {s for s, _ in pairs} & {t for _, t in pairs}, "two sources"),
        (lambda pairs: None, "returns nothing"),
    ):
        said = exercises.check_can_be_translation(wrong)
        assert said.startswith("Not yet") and hint in said, said


def test_mass_of_names():
    right = lambda logits, names: float(logits.softmax(1)[:, names].sum(1).mean())  # noqa: E731
    assert exercises.check_mass_of_names(right).startswith("Right")
    for wrong, hint in (
        (lambda logits, names: float(logits.softmax(1)[:, names].mean()), "mean over names"),
        (lambda logits, names: float(logits.softmax(1)[:, names].sum()), "sum over prompts"),
        (lambda logits, names: float(logits.softmax(0)[:, names].sum(1).mean()), "over prompts"),
        (
            lambda logits, names: float(logits[:, names].softmax(1).sum(1).mean()),
            "these names only",
        ),
        (lambda logits, names: len(names) / logits.shape[1], "instead of"),
        (lambda logits, names: None, "returns nothing"),
    ):
        said = exercises.check_mass_of_names(wrong)
        assert said.startswith("Not yet") and hint in said, said


def test_rows_to_refresh():
    used = lambda batches: set(torch.cat(batches).flatten().tolist())  # noqa: E731
    every = lambda d_vocab: set(range(d_vocab))  # noqa: E731
    right = lambda batches, d_vocab: every(d_vocab) - used(batches)  # noqa: E731
    assert exercises.check_rows_to_refresh(right).startswith("Right")
    for wrong, hint in (
        (lambda batches, d_vocab: used(batches), "in use"),
        (lambda batches, d_vocab: every(d_vocab) - used(batches[-1:]), "last batch"),
        (lambda batches, d_vocab: every(max(used(batches))) - used(batches), "largest token"),
        (lambda batches, d_vocab: every(d_vocab), "by hand"),
        (lambda batches, d_vocab: None, "returns nothing"),
    ):
        said = exercises.check_rows_to_refresh(wrong)
        assert said.startswith("Not yet") and hint in said, said
