"""Is a relation between words one translation, e_t = e_s + f (paper B), in a language model?

In the embedding, in the stream at each depth, and in what is answered when f is added or a stream
exchanged. A pair's f is the mean of e_t - e_s over the pairs that share no word with it, so that
neither its own answer nor its own reverse is part of f. Pairs are of one relation. Rows come for at
most `n` of them, drawn by `generator` (on the CPU); directions come from all that are given. A depth
counts as in `streams`: 0 is the embedding, i what block i - 1 gives. Ranks are over the whole
vocabulary, from 1. Of an answer the first token counts: `p` is its probability, `said` the likeliest
token of all, `right` whether that is the answer's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Generator, Tensor

from lib.generators.prompts import WordPair, natural_prompt
from lib.language_models import LanguageModel, streams, tokens

Row = dict[str, float | int | str]
Pairs = Sequence[WordPair]
Two = Sequence[tuple[Hashable, Hashable]]  # sources and targets
Ints = Sequence[int]
What = Callable[[list[int], Tensor], Tensor]
DOSES = (0.0, 0.5, 1.0, 2.0, 4.0)
CHUNK = 2**14  # rows of the vocabulary that are held in float64 at a time
BATCH = 16  # prompts a pass
WORD, QUERY = "The word: ", " is to"


def mean_of_others(
    x: Float[Tensor, "*depth among d"], pairs: Two, among: Two | None = None
) -> Float[Tensor, "*depth pairs d"]:
    """For each pair the mean, in float64, over those `among` others that share no word with it.

    Raises ValueError for a pair that shares one with all of them.
    """
    free = torch.tensor([[{*p}.isdisjoint(q) for q in among or pairs] for p in pairs])
    if not free.any(dim=1).all():
        raise ValueError("a pair shares a word with all the others: give more pairs")
    weight = free.to(x.device, torch.double)
    return (weight / weight.sum(dim=1, keepdim=True)) @ x.double()


def shuffled(pairs: Two, generator: Generator) -> Int[Tensor, " pairs"]:
    """A random order of the targets in which no source gets its own target, or itself.

    Raises ValueError when none is found, as when more than half the pairs have one target.
    """
    order = _some(len(pairs), len(pairs), generator)
    for _ in range(1000):
        bad = [i for i, j in enumerate(order) if pairs[j][1] in pairs[i]]
        for i in bad:
            j = int(torch.randint(len(pairs), (), generator=generator))
            order[i], order[j] = order[j], order[i]
        if not bad:
            return torch.tensor(order)
    raise ValueError("no order of the targets leaves each source without its own: too few targets")


def _some(k: int, n: int, generator: Generator) -> list[int]:
    return torch.randperm(k, generator=generator)[:n].tolist()


def _words(pairs: Pairs) -> list[tuple[str, str]]:
    if len(names := {pair.relation for pair in pairs}) != 1:
        raise ValueError(f"pairs of {len(names)} relations: give those of one")
    return [(pair.source, pair.target) for pair in pairs]


def _as_long(x: Tensor, f: Tensor) -> Tensor:
    return F.normalize(x, dim=-1) * f.norm(dim=-1, keepdim=True)


def _noise(f: Tensor, generator: Generator) -> Tensor:
    return _as_long(torch.randn(f.shape, generator=generator).to(f), f)


@torch.no_grad()
def in_embedding(
    W: Float[Tensor, "d_vocab d_model"], pairs: Two, generator: Generator, n: int = 40
) -> list[Row]:
    """Is the row nearest to e_s + f by cosine, the source left out, the target [Mikolov et al. 2013]?

    `pairs` are token ids. `direction`: the mean difference; that of `shuffled` targets, which are then
    asked for; a random one as long; none, for what is near the source anyway [Linzen 2016].
    `parallelism` is the cosine of e_t - e_s with f, `length` |f| / |e_t - e_s|. Memory: 32 bytes x
    d_vocab x n, so 0.34 GB for 40 pairs and Gemma 3.
    """
    s, t = torch.tensor(pairs, device=W.device).T
    mixed, drawn = t[shuffled(pairs, generator).to(W.device)], _some(len(pairs), n, generator)
    tried = {}
    for name, due in (("mean difference", t), ("shuffled", mixed)):
        told = list(zip(s.tolist(), due.tolist()))
        tried[name] = due, mean_of_others(W[due].double() - W[s].double(), told)
    f = tried["mean difference"][1]
    tried |= {"random": (t, _noise(f, generator)), "none": (t, torch.zeros_like(f))}
    moved = torch.cat([F.normalize((W[s] + f)[drawn], dim=1) for _, f in tried.values()])
    found = torch.empty(len(moved), len(W), dtype=torch.double, device=W.device)
    for start in range(0, len(W), CHUNK):  # unit rows in float64, part by part
        part = F.normalize(W[start : start + CHUNK].double(), dim=1)
        found[:, start : start + CHUNK] = moved @ part.T
    rows: list[Row] = []
    for (name, (due, f)), part in zip(tried.items(), found.split(len(drawn))):
        for i, near in zip(drawn, part):
            near[s[i]] = -2.0
            d, nearest, own = W[due[i]].double() - W[s[i]].double(), near.argmax(), near[due[i]]
            row: Row = {"direction": name, "source": int(s[i]), "target": int(due[i])}
            row |= {"nearest": int(nearest), "right": int(nearest == due[i])}
            row |= {"rank": 1 + int((near > own).sum()), "length": float(f[i].norm() / d.norm())}
            parallel = float(F.cosine_similarity(d, f[i], dim=0))
            rows.append(row | {"parallelism": math.nan if name == "none" else parallel})
    return rows


def by_layer(model: LanguageModel, pairs: Pairs, generator: Generator, n: int = 40) -> list[Row]:
    """`parallelism` and `length` of the streams of words at each depth: means over pairs.

    Two rows a depth: the pairs as they are, and with `shuffled` targets.
    """
    words = _words(pairs)
    e_s, e_t = (word_streams(model, side).double() for side in zip(*words))
    order, drawn = shuffled(words, generator).tolist(), _some(len(words), n, generator)
    rows: list[Row] = []
    for name, at in (("mean difference", list(range(len(words)))), ("shuffled", order)):
        d = e_t[:, at] - e_s
        f = mean_of_others(d, [(s, words[j][1]) for (s, _), j in zip(words, at)])
        parallel = F.cosine_similarity(d, f, dim=-1)[:, drawn].mean(dim=1)
        length = (f.norm(dim=-1) / d.norm(dim=-1))[:, drawn].mean(dim=1)
        for depth, (one, other) in enumerate(zip(parallel.tolist(), length.tolist())):
            row: Row = {"relation": pairs[0].relation, "depth": depth, "direction": name}
            rows.append(row | {"parallelism": one, "length": other, "n": len(drawn)})
    return rows


def word_streams(model: LanguageModel, words: Sequence[str]) -> Float[Tensor, "depth words d"]:
    """The stream at the last token of "The word: France"."""
    prompts = [_ids(model, WORD + word) for word in words]
    return _streams_at(model, prompts, [len(ids) - 1 for ids in prompts])


def _streams_at(model: LanguageModel, prompts: list[list[int]], places: list[int]) -> Tensor:
    def read(part: list[int], ids: Tensor) -> Tensor:
        return streams(model, ids)[:, range(len(part)), [places[i] for i in part]].movedim(0, 1)

    return _in_batches(model, prompts, read).movedim(0, 1)


def _in_batches(model: LanguageModel, prompts: list[list[int]], what: What) -> Tensor:
    """`what` makes one row of each of some equally long prompts; returned for all, in their order."""
    found: dict[int, Tensor] = {}
    for length in {len(ids) for ids in prompts}:
        where = [i for i, ids in enumerate(prompts) if len(ids) == length]
        for part in (where[k : k + BATCH] for k in range(0, len(where), BATCH)):
            found |= zip(part, what(part, tokens(model, [prompts[i] for i in part])))
    return torch.stack([found[i] for i in range(len(prompts))])


def _ids(model: LanguageModel, text: str) -> list[int]:
    return tokens(model, text)[0].tolist()


class Asked(NamedTuple):
    ids: list[int]
    due: int  # first token of the answer
    place: int  # last token of the queried source


def ask(model: LanguageModel, text: str, answer: str, start: str) -> Asked:
    """`start` is the text up to the source. Raises ValueError when a token reaches over an end."""
    ids, full, head = (_ids(model, x) for x in (text, text + answer, start))
    if full[: len(ids)] != ids or ids[: len(head)] != head:
        raise ValueError(f"a token of {text + answer!r} reaches over {start!r} or {text!r}")
    return Asked(ids, full[len(ids)], len(head) - 1)


def _natural(model: LanguageModel, shown: Pairs, query: WordPair) -> Asked:
    text, answer = natural_prompt(shown, query)
    return ask(model, text, answer, text.removesuffix(QUERY))


def _others(pairs: Pairs, away: Pairs, k: int, generator: Generator) -> list[WordPair]:
    """At most `k` pairs that share no word with those `away`, in random order."""
    words = {word for pair in away for word in pair[1:]}
    free = [pair for pair in pairs if words.isdisjoint(pair[1:])]
    return [free[i] for i in _some(len(free), k, generator)]


class Edit(NamedTuple):
    """`vectors` are added to the stream at one place a prompt, or put in its stead."""

    depth: int
    places: Ints
    vectors: Float[Tensor, "prompts d"]
    add: bool = True


@torch.no_grad()
def answers(
    model: LanguageModel, asked: Sequence[Asked], edit: Edit | None = None
) -> Float[Tensor, "prompts d_vocab"]:
    """Last logits: 1 MB a prompt for Gemma 3. Raises ValueError for a depth that the model has not."""
    if edit is not None and not 0 <= edit.depth <= model.n_layers:
        raise ValueError(f"depth is {edit.depth}: set 0 <= depth <= {model.n_layers}")

    def read(part: list[int], ids: Tensor) -> Tensor:
        def change(x: Tensor, hook: object) -> Tensor:
            assert edit is not None
            x, at = x.clone(), (range(len(part)), [edit.places[i] for i in part])
            x[at] = edit.vectors[part].to(x) + (x[at] if edit.add else 0)
            return x

        depth = edit.depth if edit else 0
        name = f"blocks.{depth - 1}.hook_resid_post" if depth else "blocks.0.hook_resid_pre"
        hooks = [(name, change)] if edit else []
        last = torch.tensor([ids.shape[1] - 1], device=ids.device)
        return model.bridge.run_with_hooks(ids, fwd_hooks=hooks, logits_to_keep=last)[:, 0]

    return _in_batches(model, [one.ids for one in asked], read)


def _scores(
    model: LanguageModel, pairs: Pairs, asked: Sequence[Asked], logits: Tensor
) -> list[Row]:
    rows: list[Row] = []
    for pair, one, x in zip(pairs, asked, logits):
        row: Row = {"relation": pair.relation, "source": pair.source, "target": pair.target}
        row |= {"right": int(x.argmax() == one.due), "p": float(x.softmax(dim=0)[one.due])}
        row |= {"rank": 1 + int((x > x[one.due]).sum())}
        rows.append(row | {"said": model.tokenizer.decode(int(x.argmax()))})
    return rows


def few_shot(
    model: LanguageModel, pairs: Pairs, shown: int, generator: Generator, n: int = 40
) -> list[Row]:
    """The answer after `shown` pairs, drawn for each query from those that share no word with it.

    Raises ValueError when a query has fewer of them.
    """
    queries = [pairs[i] for i in _some(len(_words(pairs)), n, generator)]
    examples = [_others(pairs, [query], shown, generator) for query in queries]
    if short := [q.source for q, few in zip(queries, examples) if len(few) < shown]:
        raise ValueError(f"{short[0]} has fewer than {shown} other pairs: show fewer")
    asked = [_natural(model, few, query) for few, query in zip(examples, queries)]
    scores = _scores(model, queries, asked, answers(model, asked))
    return [{"shown": shown, **row} for row in scores]


def steering(
    model: LanguageModel, pairs: Pairs, other: Pairs, depths: Ints, generator: Generator, n: int = 8
) -> list[Row]:
    """In "The word: France. The word:" add `dose` x f at the source. Is its target said next?

    f is made of `word_streams` at that depth. `direction`: the mean difference, that of the relation
    `other`, and a random one, all as long. Dose 0 is the model as it is.
    """
    words, strange, drawn = _words(pairs), _words(other), _some(len(pairs), n, generator)
    (s, t), (u, v) = ([word_streams(model, x) for x in zip(*side)] for side in (words, strange))
    own = mean_of_others(t - s, words)[:, drawn]
    away = mean_of_others(v - u, words, strange)[:, drawn]
    queries = [pairs[i] for i in drawn]
    texts = [(WORD + pair.source, pair.target) for pair in queries]
    asked = [ask(model, f"{start}. {WORD.strip()}", f" {end}", start) for start, end in texts]
    rows: list[Row] = []
    for depth in depths:
        f = own[depth]
        directions = {"mean difference": f, "other relation": _as_long(away[depth], f)}
        for name, x in {**directions, "random": _noise(f, generator)}.items():
            for dose in DOSES:
                edit = Edit(depth, [one.place for one in asked], dose * x)
                for row in _scores(model, queries, asked, answers(model, asked, edit)):
                    rows.append({"depth": depth, "direction": name, "dose": dose, **row})
    return rows


def patching(
    model: LanguageModel, pairs: Pairs, shown: int, depths: Ints, generator: Generator, n: int = 12
) -> list[Row]:
    """Put into a few-shot prompt what the stream has when another source s' is asked for instead.

    `position`: the `source`'s last token; the `last` one; as control `shown`, the last shown source,
    which gets what s' has at its own place. Is the answer still F(s), `right`, or F(s'), `followed`?
    `both`: without exchange both prompts are answered right. All prompts show the same pairs; s' is
    the next query with as many tokens and another answer. Raises ValueError when there is none.
    """
    examples = _others(pairs, [], max(shown, 1), generator)
    queries = _others(pairs, examples, min(n, len(_words(pairs))), generator)
    asked = [_natural(model, examples, query) for query in queries]
    control = _natural(model, examples[:-1], examples[-1]).place
    due, size = [one.due for one in asked], [(len(one.ids), one.place) for one in asked]
    couples: list[tuple[int, int]] = []
    for i, pair in enumerate(queries):
        after = [j % len(queries) for j in range(i + 1, i + len(queries))]
        free = [j for j in after if size[j] == size[i] and due[j] != due[i]]
        free = [j for j in free if {*pair[1:]}.isdisjoint(queries[j][1:])]
        couples += [(i, free[0])] if free else []
    if not couples:
        raise ValueError("no two queries of one length have different answers: give more pairs")
    said, ids = answers(model, asked).argmax(dim=1), [one.ids for one in asked]
    source, last = [one.place for one in asked], [len(one) - 1 for one in ids]
    taken = {"source": (source, source), "last": (last, last)}
    taken["shown"] = [control] * len(asked), source
    here, there = map(list, zip(*couples))
    rows: list[Row] = []
    for position, (to, start) in taken.items():
        vectors = _streams_at(model, ids, start)
        for depth in depths:
            edit = Edit(depth, [to[i] for i in here], vectors[depth, there], add=False)
            new = answers(model, [asked[i] for i in here], edit).argmax(dim=1)
            for (i, j), answer in zip(couples, new.tolist()):
                row: Row = {"relation": queries[i].relation, "shown": len(examples)}
                row |= {"source": queries[i].source, "other": queries[j].source, "depth": depth}
                row |= {"position": position, "right": int(answer == due[i])}
                row |= {"followed": int(answer == due[j])}
                rows.append(row | {"both": int(said[i] == due[i] and said[j] == due[j])})
    return rows
