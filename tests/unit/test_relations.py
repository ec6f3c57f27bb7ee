"""Relations as translations: planted ones, loops beside them, and edits by hooks of transformers."""

import importlib.util
import math

import pytest
import torch
import torch.nn.functional as F

from lib import relations
from lib.generators.prompts import WordPair
from lib.language_models import load, streams, tokens
from lib.relations import Edit, answers, by_layer, few_shot, in_embedding, patching, steering
from tests.unit import tiny

needs_lens = pytest.mark.skipif(
    importlib.util.find_spec("transformer_lens") is None, reason="needs the extra `models`"
)
PAIRS = [(i, 20 + i) for i in range(12)]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def planted(noise=0.3, d=32):
    """60 rows of which 12 have another, one translation away."""
    generator = seeded(1)
    W = torch.randn(60, d, generator=generator)
    f = 4 * torch.randn(d, generator=generator)
    s, t = zip(*PAIRS)
    W[list(t)] = W[list(s)] + f + noise * torch.randn(12, d, generator=generator)
    return W


def by(rows, **wanted):
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def mean(rows, key):
    return sum(row[key] for row in rows) / len(rows)


# ---- vectors ----


def test_planted_translation_is_found_and_no_control_finds_it():
    rows = in_embedding(planted(), PAIRS, seeded())
    own, mixed, noise, none = (
        by(rows, direction=name) for name in ("mean difference", "shuffled", "random", "none")
    )
    assert len(own) == len(mixed) == len(noise) == len(none) == 12
    assert mean(own, "right") == 1 and mean(own, "rank") == 1
    assert mean(mixed, "right") == 0
    assert mean(noise, "right") <= 0.25 and mean(none, "right") <= 0.25
    assert mean(own, "parallelism") > 0.99 > 0.97 > mean(mixed, "parallelism")
    assert abs(mean(noise, "parallelism")) < 0.2
    assert all(math.isnan(row["parallelism"]) and row["length"] == 0 for row in none)
    for a, b in zip(own, noise):
        assert a["source"] == b["source"] and a["length"] == pytest.approx(b["length"])
    assert all((row["source"], row["target"]) not in PAIRS for row in mixed)


@pytest.mark.parametrize("chunk", [7, 60, 2**14])
def test_nearest_rank_and_parallelism_by_loops(monkeypatch, chunk):
    monkeypatch.setattr(relations, "CHUNK", chunk)
    W = planted(noise=1.5)
    rows = by(in_embedding(W, PAIRS, seeded(), n=7), direction="mean difference")
    assert len({row["source"] for row in rows}) == 7
    assert 0 < mean(rows, "right") < 1, "make it neither too hard nor too easy"
    x = W.double()
    for row in rows:
        s, t = row["source"], row["target"]
        total, count = torch.zeros(32, dtype=torch.double), 0
        for a, b in PAIRS:
            if a != s:
                total, count = total + x[b] - x[a], count + 1
        f = total / count
        moved, cosine = x[s] + f, {}
        for i in range(60):
            if i != s:
                cosine[i] = float(moved @ x[i] / moved.norm() / x[i].norm())
        order = sorted(cosine, key=cosine.get, reverse=True)
        assert (row["nearest"], row["rank"]) == (order[0], 1 + order.index(t))
        assert row["right"] == (order[0] == t)
        d = x[t] - x[s]
        assert row["parallelism"] == pytest.approx(float(d @ f / d.norm() / f.norm()))
        assert row["length"] == pytest.approx(float(f.norm() / d.norm()))


def test_own_inverse_has_no_mean_difference():
    there = [(i, 6 + i) for i in range(6)]
    both = there + [(t, s) for s, t in there]
    W = torch.randn(30, 16, generator=seeded())
    W[6:12] = W[:6] + 3  # as parallel as can be, one way
    rows = by(in_embedding(W, there, seeded()), direction="mean difference")
    assert mean(rows, "right") == 1 and mean(rows, "parallelism") == pytest.approx(1)
    rows = in_embedding(W, both, seeded())
    for row in by(rows, direction="mean difference"):
        assert row["length"] < 1e-6
        assert abs(row["parallelism"]) < 1e-6
    same = [by(rows, direction=name) for name in ("mean difference", "none")]
    assert [row["nearest"] for row in same[0]] == [row["nearest"] for row in same[1]]


def test_own_target_is_never_part_of_the_direction():
    pairs = [(0, 4), (1, 4), (2, 5), (3, 5)]
    x = torch.eye(6)[[t for _, t in pairs]]
    got = relations.mean_of_others(x, pairs)
    assert got.tolist() == torch.eye(6)[[5, 5, 4, 4]].tolist()
    other = relations.mean_of_others(x[None], [(5, 9)], pairs)
    assert other.tolist() == [torch.eye(6)[[4]].tolist()]
    for bad in ([(0, 1)], [(0, 1), (1, 2)], [(0, 2), (1, 2)]):
        with pytest.raises(ValueError, match="shares a word with all the others"):
            relations.mean_of_others(torch.zeros(len(bad), 3), bad)


def test_shuffled_targets_are_nobodys_own():
    several = [(i, 20 + i // 4) for i in range(12)]
    inverse = [(0, 1), (1, 0), (2, 3), (3, 2), (4, 5), (5, 4)]
    for pairs in (PAIRS, several, inverse):
        orders = [relations.shuffled(pairs, seeded(seed)).tolist() for seed in range(20)]
        assert all(sorted(order) == list(range(len(pairs))) for order in orders)
        assert all(pairs[j][1] not in pairs[i] for order in orders for i, j in enumerate(order))
        assert len({tuple(order) for order in orders}) > 10
        assert orders[3] == relations.shuffled(pairs, seeded(3)).tolist()
    with pytest.raises(ValueError, match="too few targets"):
        relations.shuffled([(0, 5), (1, 5), (2, 5), (3, 6)], seeded())


# ---- answers of a tiny model ----

SOURCES = "Paris Rome Oslo Cairo Lima Bern Delhi Tokyo".split()
TARGETS = "red green blue white black brown pink gray".split()
CAPITAL = [WordPair("a", *pair) for pair in zip(SOURCES, TARGETS)]
# a relation of other words; one source has two tokens
OTHER = [WordPair("b", *p) for p in (("cat", "cats"), ("dog", "dogs"), ("sea lion", "lions"))]


@pytest.fixture(scope="module", params=["gemma2", "gemma3"])
def model(request, tmp_path_factory):
    pytest.importorskip("transformer_lens")
    names = [*tiny.SPECIALS, *"The word : . is to sea lion".split()]
    names += [*SOURCES, *TARGETS, "cat", "cats", "dog", "dogs", "lions"]
    where = tmp_path_factory.mktemp(request.param)
    tiny.save(where, request.param, names, len(names) + 3)
    return load(where)


def by_hand(model, text, depth, place, change):
    """Last logits of transformers, the stream at a depth and place changed by a hook of its own."""
    hf = model.bridge.original_model
    layers = hf.model.layers
    inner = [getattr(layer, "_original_component", layer) for layer in layers]

    def before(module, args, kwargs):
        x = (args[0] if args else kwargs.pop("hidden_states")).clone()
        x[:, place] = change(x[:, place])
        return (x, *args[1:]), kwargs

    def after(module, args, output):
        x = output[0] if isinstance(output, tuple) else output
        x = x.clone()
        x[:, place] = change(x[:, place])
        return (x, *output[1:]) if isinstance(output, tuple) else x

    if depth == 0:
        handle = inner[0].register_forward_pre_hook(before, with_kwargs=True)
    else:
        handle = inner[depth - 1].register_forward_hook(after)
    try:
        with torch.no_grad():
            return hf(tokens(model, text)).logits[0, -1]
    finally:
        handle.remove()


@needs_lens
@pytest.mark.parametrize("add", [True, False])
@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_edit_is_that_of_transformers(model, depth, add):
    texts = [
        "The word: Paris. The word:",
        "The word: sea lion. The word:",
        "The word: Rome. The word:",
    ]
    starts = ["The word: Paris", "The word: sea lion", "The word: Rome"]
    asked = [relations.ask(model, a, " red", b) for a, b in zip(texts, starts)]
    assert [one.place for one in asked] == [4, 5, 4]
    assert [model.tokenizer.decode(one.due) for one in asked] == ["red"] * 3
    for places in ([one.place for one in asked], [len(one.ids) - 1 for one in asked]):
        vectors = torch.randn(3, 16, generator=seeded())
        got = answers(model, asked, Edit(depth, places, vectors, add))
        plain = answers(model, asked)
        for text, place, v, x, old in zip(texts, places, vectors, got, plain):
            wanted = by_hand(model, text, depth, place, lambda y, v=v: y + v if add else v[None])
            torch.testing.assert_close(x, wanted, atol=1e-5, rtol=1e-5)
            dead = depth == model.n_layers and place < len(tokens(model, text)[0]) - 1
            assert torch.allclose(x, old, atol=1e-4) == dead
    assert not any(hook.fwd_hooks for hook in model.bridge.hook_dict.values())


@needs_lens
def test_depth_that_is_not_there_is_refused(model):
    asked = [relations.ask(model, "The word: Paris", " red", "The word")]
    for depth in (-1, 4):
        with pytest.raises(ValueError, match="set 0 <= depth <= 3"):
            answers(model, asked, Edit(depth, [0], torch.zeros(1, 16)))
    with pytest.raises(ValueError, match="reaches over"):
        relations.ask(model, "Paris is to", " red", "Rome")


@needs_lens
def test_streams_of_words_and_their_parallelism_by_loops(model):
    words = ["sea lion", *SOURCES]
    got = relations.word_streams(model, words)
    assert got.shape == (4, 9, 16)
    for i, word in enumerate(words):
        expected = streams(model, tokens(model, f"The word: {word}"))[:, 0, -1]
        torch.testing.assert_close(got[:, i], expected, atol=1e-5, rtol=1e-5)
    rows = by_layer(model, CAPITAL, seeded())
    assert len(rows) == 8 and {row["n"] for row in rows} == {8}
    x = [relations.word_streams(model, side).double() for side in (SOURCES, TARGETS)]
    for depth in range(4):
        d = x[1][depth] - x[0][depth]
        each = [(d.sum(0) - d[i]) / 7 for i in range(8)]
        (row,) = by(rows, depth=depth, direction="mean difference")
        cosine = [float(F.cosine_similarity(a, b, dim=0)) for a, b in zip(d, each)]
        assert row["parallelism"] == pytest.approx(sum(cosine) / 8)
        assert row["length"] == pytest.approx(
            sum(float(a.norm() / b.norm()) for a, b in zip(each, d)) / 8
        )
    pairs = [(model.tokenizer.vocab[p.source], model.tokenizer.vocab[p.target]) for p in CAPITAL]
    rows = by(by_layer(model, CAPITAL, seeded(), n=3), depth=0)
    bare = in_embedding(model.W_E, pairs, seeded(), n=3)  # the same draws
    for name in ("mean difference", "shuffled"):
        (row,) = by(rows, direction=name)
        assert row["parallelism"] == pytest.approx(
            mean(by(bare, direction=name), "parallelism"), abs=1e-5
        )


@needs_lens
def test_few_shot_is_scored_as_transformers_would(model, monkeypatch):
    seen = []
    ask = relations.ask
    monkeypatch.setattr(relations, "ask", lambda m, *texts: (seen.append(texts), ask(m, *texts))[1])
    rows = few_shot(model, CAPITAL, 2, seeded(), n=5)
    assert len(rows) == len({row["source"] for row in rows}) == 5
    image = dict(zip(SOURCES, TARGETS))
    for row, (text, answer, start) in zip(rows, seen, strict=True):
        *examples, query = text.split(". ")
        assert query == f"{row['source']} is to" and start == text.removesuffix(" is to")
        assert answer == f" {image[row['source']]}" and row["target"] == image[row["source"]]
        assert len(examples) == row["shown"] == 2
        for example in examples:
            source, target = example.split(" is to ")
            assert image[source] == target and source != row["source"]
        with torch.no_grad():
            logits = model.bridge.original_model(tokens(model, text)).logits[0, -1].double()
        p, due = logits.softmax(0), model.tokenizer.vocab[row["target"]]
        assert row["p"] == pytest.approx(float(p[due]), rel=1e-4)
        assert row["rank"] == 1 + sum(q > float(p[due]) + 1e-9 for q in p.tolist())
        assert row["said"] == model.tokenizer.decode(int(p.argmax()))
        assert row["right"] == (int(p.argmax()) == due)
    assert few_shot(model, CAPITAL, 2, seeded(), n=5) == rows


@needs_lens
def test_steering_adds_the_mean_difference_of_the_others(model):
    rows = steering(model, CAPITAL, OTHER, [1, 3], seeded(), n=3)
    assert len(rows) == 2 * 3 * len(relations.DOSES) * 3
    plain = {row["source"]: row["p"] for row in by(rows, depth=1, dose=0, direction="random")}
    assert len(plain) == 3
    for (
        row
    ) in rows:  # dose 0 changes nothing, and neither does the last depth, where no one looks back
        same = row["p"] == pytest.approx(plain[row["source"]], abs=1e-6)
        assert same == (row["dose"] == 0 or row["depth"] == 3)
    x = [relations.word_streams(model, words)[1] for words in (SOURCES, TARGETS)]
    d = (x[1] - x[0]).double()
    other = [relations.word_streams(model, words)[1] for words in zip(*(p[1:] for p in OTHER))]
    away = (other[1] - other[0]).double().mean(0)
    for row in by(rows, depth=1):
        i = SOURCES.index(row["source"])
        f = torch.stack([d[j] for j in range(8) if j != i]).mean(0)
        if row["direction"] == "other relation":
            f = away / away.norm() * f.norm()
        elif row["direction"] == "random":
            continue
        text = f"The word: {row['source']}. The word:"
        move = (row["dose"] * f).float()
        logits = by_hand(model, text, 1, 4, lambda y, move=move: y + move)
        due = model.tokenizer.vocab[row["target"]]
        assert row["p"] == pytest.approx(float(logits.softmax(0)[due]), rel=1e-4)
        assert row["said"] == model.tokenizer.decode(int(logits.argmax()))


@needs_lens
def test_patching_takes_over_what_the_other_prompt_has(model):
    pairs = [*CAPITAL, WordPair("a", "sea lion", "dogs")]
    rows = patching(model, pairs, 2, [0, 1, 3], seeded(), n=9)
    assert len(rows) == 3 * 3 * 6 or len(rows) == 3 * 3 * 7
    assert {row["shown"] for row in rows} == {2}
    assert "sea lion" not in {row["source"] for row in rows}, "no other source has two tokens"
    assert all(row["source"] != row["other"] for row in rows)
    # all of the last stream, and the whole source in the embedding: the other prompt's answer
    plain = {}
    for depth, position in ((3, "last"), (0, "source")):
        for row in by(rows, depth=depth, position=position):
            plain.setdefault(row["source"], row["right"])
            if row["both"]:
                assert (row["right"], row["followed"]) == (0, 1)
    # where no later position looks back, an exchange does nothing
    for position in ("source", "shown"):
        for row in by(rows, depth=3, position=position):
            assert row["right"] >= row["both"]


@needs_lens
def test_patched_logits_are_those_of_the_other_prompt(model, monkeypatch):
    """Right and followed of a random model are mostly 0: so look at the logits themselves."""
    calls = []
    original = relations.answers

    def keep(model, asked, edit=None):
        calls.append((asked, edit, original(model, asked, edit)))
        return calls[-1][2]

    monkeypatch.setattr(relations, "answers", keep)
    rows = patching(model, CAPITAL, 2, [0, 2, 3], seeded(), n=6)
    (asked, none, plain), *edits = calls
    assert none is None and len(asked) == 6 and len(edits) == 9
    said = [model.tokenizer.decode(one.ids[one.place]) for one in asked]
    assert [row["source"] for row in rows[:6]] == said
    partner = [said.index(row["other"]) for row in rows[:6]]
    position = [p for p in ("source", "last", "shown") for _ in range(3)]
    for (_, edit, got), where in zip(edits, position, strict=True):
        own, other = plain, plain[partner]
        if (edit.depth, where) in ((3, "last"), (0, "source")):
            torch.testing.assert_close(got, other, atol=1e-5, rtol=1e-5)
        elif edit.depth == 3 or (edit.depth, where) == (0, "last"):  # all have the same "to"
            torch.testing.assert_close(got, own, atol=1e-5, rtol=1e-5)
        else:
            assert (got - own).abs().amax(dim=1).min() > 1e-4
            assert (got - other).abs().amax(dim=1).min() > 1e-4
        ids = [one.ids[place] for one, place in zip(asked, edit.places)]
        names = [model.tokenizer.decode(i) for i in ids]
        if where == "shown":  # the last shown source, the same in all prompts
            assert len(set(names)) == 1 and names[0] in SOURCES and names[0] not in said
        else:
            assert names == (said if where == "source" else ["to"] * 6)
    for row, answer in zip(rows, torch.cat([c[2].argmax(1) for c in edits]).tolist(), strict=True):
        due = [TARGETS[SOURCES.index(row[key])] for key in ("source", "other")]
        assert [row["right"], row["followed"]] == [
            int(model.tokenizer.vocab[word] == answer) for word in due
        ]


@needs_lens
def test_pairs_that_cannot_do_are_refused(model):
    for call in (
        lambda: by_layer(model, [*CAPITAL, *OTHER], seeded()),
        lambda: few_shot(model, [*CAPITAL, *OTHER], 1, seeded()),
        lambda: steering(model, CAPITAL, [*CAPITAL, *OTHER], [0], seeded()),
        lambda: patching(model, [*CAPITAL, *OTHER], 1, [0], seeded()),
    ):
        with pytest.raises(ValueError, match="2 relations"):
            call()
    with pytest.raises(ValueError, match="shares a word with all the others"):
        steering(model, CAPITAL, CAPITAL[:1], [0], seeded())
    with pytest.raises(ValueError, match="fewer than 8 other pairs"):
        few_shot(model, CAPITAL, 8, seeded())
    with pytest.raises(ValueError, match="no two queries"):
        patching(model, CAPITAL, 2, [0], seeded(), n=1)
