"""What a model writes, scored against a slow loop and against free-running greedy decoding."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lib import evaluation, geometry
from lib.generators import logic
from lib.models.transformer import Transformer, TransformerConfig, initialise

TASK = logic.LogicConfig(2, 12, 8)
SIZES = TransformerConfig(d_vocab=TASK.d_vocab, d_model=8, n_layers=1, n_heads=2)
UNSEEN_SPLITS = ("query_unseen", "all_unseen")


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def problems(split="seen", n=40, seed=1, verdict=None):
    return logic.sample(TASK, n, seeded(seed), split, verdict).tokens


def model(seed=0, **changes):
    return initialise(Transformer(dataclasses.replace(SIZES, **changes)), seeded(seed)).eval()


class Forgetful(Transformer):
    """Writes the right next token while it is on the right path, except at some places; off the
    path it writes something that depends on all it has read."""

    def __init__(self, tokens, slips):
        super().__init__(SIZES)
        prompts = tokens[:, : TASK.prompt_length].tolist()
        self.right = {tuple(p): (t, s) for p, t, s in zip(prompts, tokens.tolist(), slips.tolist())}

    def forward(self, tokens, last=None):
        logits = torch.zeros(*tokens.shape, TASK.d_vocab)
        for b, text in enumerate(tokens.tolist()):
            whole, slips = self.right[tuple(text[: TASK.prompt_length])]
            for at in range(TASK.prompt_length - 1, len(text)):
                answered = at + 1 - TASK.prompt_length
                lost = text[: at + 1] != whole[: at + 1]
                if lost or slips[answered]:
                    token = (whole[at + 1] + 1 + sum(text[: at + 1]) % 7) % TASK.d_vocab
                else:
                    token = whole[at + 1]
                logits[b, at, token] = 1
        return logits if last is None else logits[:, -last:]


# Only plain values are drawn: checks of types in `lib` use `random`, which strategies must not.
cases = st.tuples(st.sampled_from(logic.SPLITS), st.integers(0, 500), st.floats(0, 1))


def noisy(split, seed, noise):
    """The right answers with some tokens replaced by any others."""
    tokens = problems(split, 20, seed)
    answer = tokens[:, TASK.prompt_length :]
    other = torch.randint(TASK.d_vocab, answer.shape, generator=seeded(seed))
    wrong = torch.rand(answer.shape, generator=seeded(seed + 1)) < noise
    return torch.where(wrong, other, answer), tokens


@given(cases)
def test_scores_equal_a_slow_loop(case):
    written, tokens = noisy(*case)
    count = {"chain": 0, "verdict": 0, "whole": 0}
    for got, text in zip(written.tolist(), tokens.tolist()):
        due = text[TASK.prompt_length :]
        count["chain"] += got[:-1] == due[:-1]
        count["verdict"] += got[-1] == due[-1]
        count["whole"] += got == due
    want = {name: number / len(tokens) for name, number in count.items()}
    assert evaluation.scores(written, tokens) == pytest.approx(want)


def slow_kind(got, due, text):
    if got == due:
        return "right"
    if got in TASK.unseen:
        return "other_unseen"
    if got in TASK.seen:
        return "seen_here" if got in text else "seen_elsewhere"
    return "special"


@given(cases)
def test_kinds_equal_a_slow_loop_and_add_up_to_1(case):
    written, tokens = noisy(*case)
    kinds = [
        slow_kind(got, due, text)
        for gots, text in zip(written.tolist(), tokens.tolist())
        for got, due in zip(gots, text[TASK.prompt_length :])
        if due in TASK.unseen
    ]
    if not kinds:
        with pytest.raises(ValueError, match="use a split with unseen names"):
            evaluation.kinds_written(written, tokens, TASK)
        return
    got = evaluation.kinds_written(written, tokens, TASK)
    assert got == pytest.approx({k: kinds.count(k) / len(kinds) for k in evaluation.KINDS})
    assert sum(got.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("token", "kind"),
    [(logic.TRUE, "special"), (logic.ANS, "special"), ("here", "seen_here"), ("due", "right")],
)
def test_each_kind_by_hand(token, kind):
    tokens = problems("query_unseen", n=1, verdict=True)
    answer = tokens[:, TASK.prompt_length :].clone()
    chosen = {"here": answer[0, 0], "due": answer[0, -2]}
    answer[0, -2] = chosen.get(token, token)
    got = evaluation.kinds_written(answer, tokens, TASK)
    assert got == {name: float(name == kind) for name in evaluation.KINDS}


def test_teacher_forcing_and_greedy_decoding_score_whole_answers_alike():
    tokens = problems(n=60)
    slips = torch.rand(len(tokens), TASK.answer_length, generator=seeded(3)) < 0.2
    forgetful = Forgetful(tokens, slips)
    forced = evaluation.predict(forgetful, tokens, TASK.answer_length)
    free = evaluation.greedy(forgetful, tokens, TASK.answer_length)
    answer = tokens[:, TASK.prompt_length :]
    expected = ~slips.any(1)
    assert 0.2 < expected.float().mean() < 0.8
    assert torch.equal((forced == answer).all(1), expected)
    assert torch.equal((free == answer).all(1), expected)
    assert not torch.equal(forced, free)  # after a slip they part
    whole = [evaluation.scores(written, tokens)["whole"] for written in (forced, free)]
    assert whole[0] == whole[1] == pytest.approx(float(expected.float().mean()))


def test_free_and_forced_first_tokens_are_one():
    tokens, untrained = problems(), model()
    with torch.no_grad():
        forced = evaluation.predict(untrained, tokens, TASK.answer_length)
    assert torch.equal(forced[:, 0], evaluation.greedy(untrained, tokens, TASK.answer_length)[:, 0])


def test_predict_is_the_argmax_of_the_full_logits():
    tokens, untrained = problems(), model()
    with torch.no_grad():
        full = untrained(tokens)[:, -TASK.answer_length - 1 : -1].argmax(-1)
        assert torch.equal(evaluation.predict(untrained, tokens, TASK.answer_length), full)


def test_greedy_reads_the_prompt_only():
    tokens, untrained = problems(), model()
    other = tokens.clone()
    other[:, TASK.prompt_length :] = logic.ARROW
    outs = [evaluation.greedy(untrained, x, TASK.answer_length) for x in (tokens, other)]
    assert torch.equal(*outs)


COLUMNS = [
    *(
        column
        for split in logic.SPLITS
        for half in ("true", "false")
        for column in (
            *(f"{measure}_{split}_{half}" for measure in ("chain", "verdict", "whole")),
            *(
                f"writes_{kind}_{split}"
                for kind in evaluation.KINDS
                if split in UNSEEN_SPLITS and half == "true"
            ),
        )
    ),
    *(
        f"{matrix}_{group}_{measure}"
        for matrix in ("W_E", "W_U")
        for group in ("seen", "unseen")
        for measure in ("cosine", "cosine_median", "norm", "individual", "effective_rank")
    ),
]


@pytest.mark.parametrize("n", [1, 30])
def test_the_columns_stay_the_same(n):
    row = evaluation.evaluate(model(), TASK, n, seeded())
    assert list(row) == COLUMNS
    assert all(type(value) is float and math.isfinite(value) for value in row.values())


def test_evaluation_is_deterministic_and_leaves_the_model_alone():
    subject = model()
    before = {n: p.detach().clone() for n, p in subject.named_parameters()}
    rows = [evaluation.evaluate(subject, TASK, 30, seeded()) for _ in range(2)]
    assert rows[0] == rows[1]
    assert all(torch.equal(before[n], p) and p.grad is None for n, p in subject.named_parameters())


@pytest.mark.parametrize("tied", [True, False])
def test_rows_of_both_matrices_are_measured_apart(tied):
    subject = Transformer(TransformerConfig(d_vocab=TASK.d_vocab, d_model=8, n_heads=2, tied=tied))
    initialise(subject, seeded())
    row = evaluation.row_geometry(subject, TASK)
    for matrix in ("W_E", "W_U"):
        for group, ids in (("seen", TASK.seen), ("unseen", TASK.unseen)):
            x = getattr(subject, matrix).detach()[ids.start : ids.stop]
            assert row[f"{matrix}_{group}_cosine"] == pytest.approx(geometry.mean_cosine(x))
            assert row[f"{matrix}_{group}_norm"] == pytest.approx(float(x.norm(dim=1).mean()))
    assert (row["W_E_unseen_cosine"] == row["W_U_unseen_cosine"]) == tied


PARTS = ("stream", "copy")
each_split = pytest.mark.parametrize("split", logic.SPLITS)
each_model = pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])


def attributed(subject, n=30):
    return evaluation.direct_parts(subject, TASK, n, seeded(5))


def directly(subject, split, n=30):
    """Logits of due names minus the mean logit, from the model's output: [problems, depth + 1]."""
    generator = seeded(5)
    for earlier in logic.SPLITS:  # the splits are drawn one after the other
        tokens = logic.sample(TASK, n, generator, earlier, True).tokens
        if earlier == split:
            break
    with torch.no_grad():
        logits = subject(tokens).double()
    added = torch.zeros(n, TASK.depth + 1, dtype=torch.double)
    for problem, text in enumerate(tokens.tolist()):
        for j in range(TASK.depth + 1):
            due = TASK.prompt_length + j
            written = logits[problem, due - 1]
            added[problem, j] = written[text[due]] - written.mean()
    return added


def due_mean(added, split):
    """Where only the query is unseen it stands last in the true chain."""
    return float((added[:, -1] if split == "query_unseen" else added).mean())


def loud(**changes):
    """A model whose copy head is not at its initial strength."""
    subject = model(copy=True, **changes)
    with torch.no_grad():
        subject.copy.gate.fill_(-1.7)
    return subject


@each_split
@each_model
def test_direct_parts_add_up_to_the_centred_logit(split, tied):
    row = attributed(loud(tied=tied))
    want = due_mean(directly(loud(tied=tied), split), split)
    assert sum(row[f"direct_{part}_{split}"] for part in PARTS) == pytest.approx(want, abs=1e-5)
    assert all(abs(row[f"direct_{part}_{split}"]) > 1e-3 for part in PARTS)


@each_split
@each_model
def test_the_copy_part_is_what_goes_missing_without_the_head(split, tied):
    subject, silent = loud(tied=tied), loud(tied=tied)
    with torch.no_grad():
        silent.copy.gate.zero_()
    lost = directly(subject, split) - directly(silent, split)
    row = attributed(subject)
    assert row[f"direct_copy_{split}"] == pytest.approx(due_mean(lost, split), abs=1e-5)
    assert attributed(silent)[f"direct_copy_{split}"] == 0
    assert attributed(silent)[f"direct_stream_{split}"] == row[f"direct_stream_{split}"]


@each_split
def test_without_a_copy_head_all_is_the_stream(split):
    row = attributed(model())
    assert row[f"direct_copy_{split}"] == 0
    want = due_mean(directly(model(), split), split)
    assert row[f"direct_stream_{split}"] == pytest.approx(want, abs=1e-5)


def test_only_the_query_counts_where_only_it_is_unseen():
    added = directly(model(), "query_unseen")
    got = attributed(model())["direct_stream_query_unseen"]
    assert got == pytest.approx(float(added[:, -1].mean()), abs=1e-5)
    assert abs(got - float(added.mean())) > 1e-3
    assert abs(got - float(added[:, :-1].mean())) > 1e-3


def test_a_logit_added_to_every_token_is_no_credit():
    """A vector added to all rows of W_U moves all logits alike."""
    subject = loud(tied=False)
    before = attributed(subject)
    with torch.no_grad():
        subject.W_U += torch.randn(8, generator=seeded())
    assert attributed(subject) == pytest.approx(before, abs=1e-5)


@pytest.mark.parametrize("copy", [True, False])
def test_attribution_is_deterministic_and_leaves_the_model_alone(copy):
    subject = model(copy=copy)
    before = {n: p.detach().clone() for n, p in subject.named_parameters()}
    first, second = attributed(subject), attributed(subject)
    assert first == second
    assert list(first) == [f"direct_{part}_{split}" for split in logic.SPLITS for part in PARTS]
    assert all(type(value) is float and math.isfinite(value) for value in first.values())
    assert all(torch.equal(before[n], p) and p.grad is None for n, p in subject.named_parameters())
