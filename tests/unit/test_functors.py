"""Analogies in language models: every value against loops over what transformers gives."""

import math
import re
import string

import numpy as np
import pytest
import torch

from lib import bench, functors, geometry
from lib.generators.prompts import (
    RELATION_NAMES,
    WORDS,
    AnalogyPrompt,
    PromptConfig,
    analogy_prompts,
)
from lib.language_models import load
from tests.unit import tiny

KINDS = ["gemma2", "gemma3", "llama"]
SIGNS = [".", "-", " ", *string.digits]
SPOKEN = ["is", "to", *string.ascii_uppercase, *RELATION_NAMES, *WORDS]
IDS = {
    w: i for i, w in enumerate([*tiny.SPECIALS, *SIGNS, *SPOKEN, *(f" {word}" for word in SPOKEN)])
}
# as Gemma's: words have their space, " 7" is a space and a digit, " A-B" three tokens
CUT = r" (?=\d)|\d| ?[A-Za-z]+|[.-]"
CONFIGS = {
    "shown": PromptConfig(entities=3, shown=2),
    "words": PromptConfig(entities=4, shown=0, alphabet="words"),
    "digits": PromptConfig(entities=3, shown=1, alphabet="digits"),
    "shared": PromptConfig(entities=2, shown=1, shared=True),
}
ENERGIES = ("energy", "energy_raw", "energy_scaled", "energy_queried")


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """kind -> (model, the same as transformers has it)."""
    pytest.importorskip("transformer_lens")
    pairs = {}
    for kind in KINDS:
        folder = tmp_path_factory.mktemp(kind)
        hf = tiny.save(folder, kind, list(IDS), len(IDS), CUT, window=20)
        pairs[kind] = load(folder), hf
    return pairs


@pytest.fixture
def llama(loaded):
    return loaded["llama"][0]


def cut(text):
    return [IDS[piece] for piece in re.findall(CUT, text)]


def asked(prompt):
    """Ids as read, and the tokens compared, the answer's first."""
    rows = [cut(end) for end in (prompt.answer, *prompt.candidates)]
    shared = 2 if "-" in prompt.answer else int(prompt.answer[1:].isdigit())
    return [2, *cut(prompt.text), *rows[0][:shared]], [row[shared] for row in rows]


def mentions(text, entity):
    """Positions of each mention, from the words alone; the space before a digit is not the digit's."""
    found, n = [], 1
    for i, word in enumerate(text.split(" ")):
        ids = cut(f" {word}" if i else word)
        if word.rstrip(".") == entity:
            own = range(n + (ids[0] == IDS[" "]), n + len(ids) - word.endswith("."))
            found.append(list(own))
        n += len(ids)
    return found


@torch.no_grad()
def by_transformers(hf, kind, ids):
    """Streams (depth, tokens, d_model), logits of the last position (depth, d_vocab), attentions."""
    kept = []
    hook = hf.model.layers[-1].register_forward_hook(lambda module, i, out: kept.append(out))
    out = hf(torch.tensor([ids]), output_hidden_states=True, output_attentions=True)
    hook.remove()
    last = kept[0][0] if isinstance(kept[0], tuple) else kept[0]
    x = torch.stack([*(h[0] for h in out.hidden_states[:-1]), last[0]])
    logits = hf.lm_head(hf.model.norm(x[:, -1]))
    if kind == "gemma2":
        logits = tiny.SOFTCAP * torch.tanh(logits / tiny.SOFTCAP)
    torch.testing.assert_close(logits[-1], out.logits[0, -1])
    return x, logits, torch.stack(out.attentions)[:, 0]


def cosine(a, b):
    return float(a @ b / (a @ a).sqrt() / (b @ b).sqrt())


def unit(v):
    return v / (v @ v).sqrt()


def squared(a, b):
    return float((a - b) @ (a - b))


def pair_loops(s, t, query):
    """All measures of pairs of vectors, pair by pair."""
    n = len(s)
    size = sum(float(v @ v) for v in [*s, *t]) / (2 * n)
    same = [squared(unit(s[i]), unit(t[i])) for i in range(n)]
    raw = [squared(s[i], t[i]) for i in range(n)]
    found = {
        "energy": np.mean(same),
        "energy_raw": np.mean(raw),
        "energy_scaled": np.mean(raw) / size,
        "energy_queried": same[query],
    }
    shifted, other, cosines = [], [], {}
    for shift in range(n):
        f = [t[(i + shift) % n] - s[i] for i in range(n)]
        means = [sum(f[j] for j in range(n) if j != i) / (n - 1) for i in range(n)]
        cosines[shift] = np.mean([cosine(f[i], means[i]) for i in range(n)])
        if shift:
            shifted.append(
                np.mean([squared(unit(s[i]), unit(t[(i + shift) % n])) for i in range(n)])
            )
            other.append(np.mean([squared(s[i], t[(i + shift) % n]) for i in range(n)]))
    found["control"], found["control_raw"] = np.mean(shifted), np.mean(other)
    found["control_scaled"] = found["control_raw"] / size
    found["control_queried"] = np.mean(
        [squared(unit(s[query]), unit(t[j])) for j in range(n) if j != query]
    )
    found["parallelism"] = cosines.pop(0)
    found["parallelism_control"] = np.mean(list(cosines.values()))
    return found


def lens_loops(logits, compared, classes):
    logits = logits.double()
    answer, *wrong = compared
    p = np.exp(logits.numpy()) / np.exp(logits.numpy()).sum()
    return {
        "probability": p[answer],
        "log_probability": math.log(p[answer]),
        "rank": 1 + logits.argsort(descending=True).tolist().index(answer),
        "among": float(max(compared, key=lambda i: logits[i]) == answer),
        "among_answers": float(max(classes, key=lambda i: logits[i]) == answer),
    }


# ---- against transformers ----


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_value_against_loops_over_hidden_states(loaded, kind, config):
    model, hf = loaded[kind]
    prompts = analogy_prompts(config, 5, seeded())
    got = functors.read(model, prompts, batch=2, streams=True)
    classes = sorted({asked(prompt)[1][0] for prompt in prompts})
    for i, prompt in enumerate(prompts):
        ids, compared = asked(prompt)
        x, logits, attentions = by_transformers(hf, kind, ids)
        assert int(got.answers[i]) == compared[0]
        torch.testing.assert_close(got.streams[i], x[:, -1], atol=1e-4, rtol=1e-4)
        last = {
            e: mentions(prompt.text, e)[-1][-1]
            for pair in zip(prompt.sources, prompt.targets)
            for e in pair
        }
        for depth in range(4):
            s, t = (
                [x[depth, last[e]].double() for e in names]
                for names in (prompt.sources, prompt.targets)
            )
            expected = lens_loops(logits[depth], compared, classes)
            if depth or not config.shared:  # no direction: the same token at depth 0
                expected |= pair_loops(s, t, prompt.query)
            else:
                assert got.curves["energy"][i, 0] == got.curves["energy_raw"][i, 0] == 0
                assert got.curves["parallelism"][i, 0].isnan()
            for name, value in expected.items():
                assert float(got.curves[name][i, depth]) == pytest.approx(
                    value, rel=2e-4, abs=2e-5
                ), (name, depth)
        own, wanted = prompt.sources[prompt.query], prompt.targets[prompt.query]
        others = [e for e in prompt.targets if e != wanted]
        for name, entities in (("source", [own]), ("target", [wanted]), ("other", others)):
            for layer in range(3):
                for head in range(2):
                    weight = sum(
                        float(attentions[layer, head, -1, place])
                        for e in entities
                        for mention in mentions(prompt.text, e)
                        for place in mention
                    )
                    assert float(got.attention[name][i, layer, head]) == pytest.approx(
                        weight / len(entities), abs=1e-5
                    )


def test_entities_are_read_before_the_query(loaded):
    prompt = AnalogyPrompt(
        "A bafin B. C bafin D. A is to", " C", ("A", "B"), ("C", "D"), 0, (" D",)
    )
    ids, compared, wrong, sources, targets, query, attended = functors._prepare(
        loaded["llama"][0], prompt
    )
    assert (ids, compared, wrong, query) == (asked(prompt)[0], IDS[" C"], [IDS[" D"]], 0)
    assert (sources, targets) == ([9, 3], [5, 7])
    assert [[i for i, w in enumerate(row) if w] for row in attended] == [[1, 9], [5], [7]]


@pytest.mark.parametrize("kind", KINDS)
def test_batches_give_what_one_prompt_at_a_time_gives(loaded, kind):
    model, _ = loaded[kind]
    prompts = [p for c in CONFIGS.values() for p in analogy_prompts(c, 4, seeded())]
    prompts = prompts[::2] + prompts[1::2]
    together = functors.read(model, prompts, batch=3, streams=True)
    alone = functors.read(model, prompts, batch=1, streams=True)
    close = {"atol": 1e-5, "rtol": 1e-5, "equal_nan": True}
    assert together.curves.keys() == alone.curves.keys()
    for name, curve in alone.curves.items():
        torch.testing.assert_close(together.curves[name], curve, **close)
    for name, on in alone.attention.items():
        torch.testing.assert_close(together.attention[name], on, **close)
    torch.testing.assert_close(together.streams, alone.streams, **close)
    assert torch.equal(together.answers, alone.answers)
    assert functors.read(model, prompts[:1]).streams is None


# ---- pairs and logits by themselves ----


def test_energies_are_those_of_geometry():
    s, t = torch.randn(2, 3, 5, 8, generator=seeded())
    got = functors.pair_measures(s, t, torch.tensor([0, 4, 2]))
    edges = torch.tensor([[i, 5 + i] for i in range(5)])
    wrong = torch.tensor([[i, 5 + j] for i in range(5) for j in range(5) if i != j])
    for i in range(3):
        rows = torch.cat([s[i], t[i]])
        for name, normalised in (("", True), ("_raw", False)):
            energy = geometry.dirichlet_energy(rows, edges, normalised)
            control = geometry.dirichlet_energy(rows, wrong, normalised)
            assert float(got[f"energy{name}"][i]) == pytest.approx(energy)
            assert float(got[f"control{name}"][i]) == pytest.approx(control)


def test_one_translation_is_parallel_and_scale_does_not_count():
    s, f = torch.randn(4, 3, 8, generator=seeded()), torch.randn(8, generator=seeded(1))
    got = functors.pair_measures(s, s + f, torch.zeros(4, dtype=torch.long))
    torch.testing.assert_close(got["parallelism"], torch.ones(4).double(), atol=1e-6, rtol=0)
    assert got["parallelism_control"].max() < 0.9
    larger = functors.pair_measures(10 * s, 10 * (s + f), torch.zeros(4, dtype=torch.long))
    for name in ("energy", "energy_scaled", "control", "control_scaled", "parallelism_control"):
        torch.testing.assert_close(larger[name], got[name], atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(larger["energy_raw"], 100 * got["energy_raw"], atol=0, rtol=1e-5)


def test_tie_is_not_right():
    logits = torch.tensor([[0.0, 2.0, 2.0, 1.0]])
    got = functors.lens_measures(
        logits, torch.tensor([1]), torch.tensor([[2]]), torch.tensor([1, 3])
    )
    assert (got["rank"], got["among"], got["among_answers"]) == (1, 0, 1)


# ---- means, correlations, probe ----


def test_rows_are_means_and_attention_is_that_of_the_best_head(llama):
    prompts = analogy_prompts(CONFIGS["shown"], 4, seeded())
    got, rows = functors.read(llama, prompts), functors.by_layer(llama, prompts, batch=4)
    assert [row["depth"] for row in rows] == [0, 1, 2, 3]
    assert rows[0].keys() == {"depth", *got.curves, *(f"attention_{n}" for n in functors.ATTENDED)}
    for depth, row in enumerate(rows):
        for name, curve in got.curves.items():
            assert row[name] == pytest.approx(np.mean([float(v) for v in curve[:, depth]]))
        for name, on in got.attention.items():
            heads = [np.mean([float(on[i, depth - 1, h]) for i in range(4)]) for h in range(2)]
            value = row[f"attention_{name}"]
            assert value == pytest.approx(max(heads), abs=1e-6) if depth else math.isnan(value)


def test_correlations_are_those_of_numpy(llama):
    got = functors.read(llama, analogy_prompts(CONFIGS["shown"], 4, seeded()))
    found = functors.correlations(got)
    assert set(found) == {*ENERGIES, "control"}
    for name, values in found.items():
        assert values.shape == (4,)
        for i in range(4):
            pair = got.curves[name][i].numpy(), got.curves["probability"][i].numpy()
            assert float(values[i]) == pytest.approx(np.corrcoef(*pair)[0, 1], abs=1e-9)


def made_up(n=240, d=40, classes=5, noise=0.5):
    """Streams that are constant (depth 0), noise (1), noise and a direction a class (2)."""
    answers = torch.randint(classes, (n,), generator=seeded(3)) * 7 + 11
    x = noise * torch.randn(n, 3, d, generator=seeded(4))
    x[:, 2] += torch.randn(100, d, generator=seeded(5))[answers]
    x[:, 2, 0] += 1000 * torch.randn(n, generator=seeded(6))  # one coordinate is larger than all
    x[:, 0] = 3.3
    curves = {"among_answers": torch.rand(n, 3, generator=seeded(7)).round().double()}
    return functors.Readings(curves, {}, answers, x)


def test_probe_finds_a_planted_label_and_nothing_else():
    readings = made_up()
    rows = functors.probe(readings, seeded())
    assert rows == functors.probe(readings, seeded())
    assert [row["depth"] for row in rows] == [0, 1, 2]
    assert rows[2]["probe"] > 0.95
    for chance in (rows[0]["probe"], rows[1]["probe"], *(row["control"] for row in rows)):
        assert 0.05 < chance < 0.38  # 120 held-out prompts, 5 classes
    order = seeded()
    torch.randperm(240, generator=order)
    held = torch.randperm(240, generator=order)[120:]
    for depth, row in enumerate(rows):
        right = [float(readings.curves["among_answers"][i, depth]) for i in held]
        assert row["lens"] == pytest.approx(np.mean(right))


def test_probe_is_ridge_regression_with_explicit_leave_one_out():
    x = torch.randn(60, 30, generator=seeded()).double()
    score = x[:, :3] + 0.7 * torch.randn(60, 3, generator=seeded(1))
    labels, train = score.argmax(dim=1), torch.arange(60) < 30
    X, Y = x[train].numpy(), np.eye(3)[labels[train].numpy()]
    mean, sd = X.mean(0), X.std(0)
    X, T = (X - mean) / sd, (x[~train].numpy() - mean) / sd
    size = np.square(X).sum() / len(X)

    def fit(X, Y, ridge):
        A = np.c_[X, np.ones(len(X))]
        penalty = ridge * np.diag([1.0] * X.shape[1] + [0.0])
        return np.linalg.solve(A.T @ A + penalty, A.T @ Y)

    errors, rights = [], []
    for ridge in (size * r for r in functors.RIDGES):
        kept = [np.arange(30) != i for i in range(30)]
        left = [Y[i] - np.r_[X[i], 1] @ fit(X[k], Y[k], ridge) for i, k in enumerate(kept)]
        errors.append(np.square(left).mean())
        said = (np.c_[T, np.ones(30)] @ fit(X, Y, ridge)).argmax(1)
        rights.append(np.mean(said == labels[~train].numpy()))
    best = int(np.argmin(errors))
    assert 0 < best < len(rights) - 1 and rights.count(rights[best]) < len(rights)
    assert functors.ridge_accuracy(x, labels, train) == pytest.approx(rights[best])


# ---- refused ----


def test_what_cannot_be_read_is_refused(llama):
    prompts = analogy_prompts(CONFIGS["shown"], 3, seeded())
    with pytest.raises(ValueError, match="0 prompts"):
        functors.read(llama, [])
    with pytest.raises(ValueError, match="batches of 0"):
        functors.read(llama, prompts, batch=0)
    same = prompts[0]._replace(candidates=(prompts[0].answer,))
    longer = prompts[0]._replace(candidates=(f"{prompts[0].answer} is", " is"))
    for bad in (same, longer, prompts[0]._replace(candidates=())):
        with pytest.raises(ValueError, match="no one token tells it"):
            functors.read(llama, [bad])
    with pytest.raises(ValueError, match="streams=True"):
        functors.probe(functors.read(llama, prompts), seeded())
    with pytest.raises(ValueError, match="3 prompts"):
        functors.probe(functors.read(llama, prompts, streams=True), seeded())


def test_the_benchmark_reads_the_same_in_batches_and_one_at_a_time(llama):
    report = bench.bench_prompts(llama, n=5)
    assert report["difference"] < 1e-5
    assert min(report["prompts_per_s_16"], report["prompts_per_s_1"]) > 0
