# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Categories and functors
#
# - **You will be able to** say what a functor is in a world of four entities, find it by hand and by program, and
#   tell which held-out facts follow from which training facts, and by what reasoning.
# - **Needs** the [notation](../notation.md); no training, no GPU.
# - **Minutes** twenty-five to read, a few seconds to run.
# - **Memory** under 1 GB.

# %%
try:
    from lib import exercises
except ImportError:
    raise SystemExit(
        "`lib` is missing: run `pip install -e .` in a clone of this book"
    ) from None

import itertools
import math
from collections import Counter, defaultdict

import torch

from lib.generators import analogy, stream
from lib.plotting import figure, say, show, style

style()

# %% [markdown]
# ## The sun and the nucleus
#
# An atom is like the solar system. We say so although an electron is nothing like a planet. What is alike is *who is
# to whom*: the planet goes round the sun, the electron goes round the nucleus. The sun is heavier than the planet,
# the nucleus is heavier than the electron. Put nucleus for sun and electron for planet, and each sentence stays true.
#
# So an analogy is a map from things to things that keeps the relations between them. The things may change
# entirely. Part I asked whether a model can reason with names that it never met. This part asks whether it can see
# that two sets of names, which never occur together, play the same game.
#
# Paper B {cite}`minegishi2026analogy` makes a small task of this, and borrows a word from mathematics for the map:
# a *functor*.

# %% [markdown]
# ## Objects, arrows, functors
#
# A *category* has objects, and arrows between them. Arrows that meet can be joined: from $a \to b$ and $b \to c$
# comes one path $a \to c$. Each object also has an empty path that stays where it is.
#
# A *functor* maps one category into another: objects to objects, arrows to arrows. An arrow from $a$ to $b$ becomes
# an arrow from $F(a)$ to $F(b)$, and a path of two arrows becomes the path of their images. What was joined stays
# joined.
#
# In our world the objects are **entities**. Every ordered pair of different entities is joined by one arrow, and the
# arrow carries a name: the **relation** $r(a, b)$. The functor $F$ goes from the first category, E1, to the second,
# E2. It is one-to-one, and it keeps the names of the arrows:
#
# $$r(F(a), F(b)) = r(a, b) \quad\text{for all } a \ne b .$$
#
# The names matter. If arrows had none, every pair of entities would be joined alike, and *every* one-to-one map
# would keep everything. Nothing would be said. (A graph theorist would call our $F$ an isomorphism of two graphs
# with named arrows. We keep the paper's word.)

# %% [markdown]
# ## A tiny world
#
# Four entities in each category, and relation names from a list of twenty. Here each pair of E1 has a relation of its
# own.

# %%
config = analogy.AnalogyConfig(entities=4, vocabulary=20, ana_ood=1 / 2)
world = analogy.draw(config, stream(0, "chapter"))
n = config.entities

spelled = {}
for i in range(n):
    spelled[int(world.entity[0, i])] = f"a{i}"
    spelled[int(world.entity[1, i])] = f"b{i}"
spelled[int(world.functor[0])] = "f"
for name in config.names:
    spelled[name] = f"r{name - config.names.start}"


def decode(tokens):
    """Token ids as names."""
    return " ".join(spelled[token] for token in tokens.tolist())


for category, ids in zip(("E1", "E2"), world.entity, strict=True):
    print(
        category,
        ", ".join(f"{decode(i[None])} is token {int(i)}" for i in ids),
    )
print(f"functor: f is token {int(world.functor[0])}")
print(
    f"relation names: tokens {config.names.start} to {config.names.stop - 1}, "
    f"of which {config.n_relations} occur"
)

# %% [markdown]
# The names `a0`, `b0` are for us. We gave them so that $F(a_i) = b_i$. A model sees token ids only. The ids of both
# categories are shuffled together, so an id tells nothing: neither the category nor the partner.
#
# :::{admonition} Predict before you run
# :class: predict
# Four entities can be mapped to four others, one-to-one, in 24 ways. How many of these keep all relations?
# And how many would, if E1 were a circle and $r(a, b)$ said only how many places $b$ lies after $a$?
# :::

# %% [markdown]
# ## Three tables
#
# A category is a table: row $a$, column $b$, entry $r(a, b)$. The left table is E1. The other two are both E2. In the
# middle its entities stand in the order that $F$ gives them. On the right they stand in the order of their token
# ids, which is how one would find them.

# %% tags=["hide-input"]
by_id = world.entity[1].argsort()
panels = [
    ("E1", world.entity[0], world.relation[0]),
    ("E2, in the order of F", world.entity[1], world.relation[1]),
    (
        "E2, by token id",
        world.entity[1][by_id],
        world.relation[1][by_id][:, by_id],
    ),
]
fig, axes = figure("wide", cols=3, aspect=1.05)
for ax, (title, ids, table) in zip(axes, panels, strict=True):
    known = table.float() - config.names.start
    known.fill_diagonal_(float("nan"))
    ax.imshow(known, vmin=0, vmax=config.vocabulary - 1)
    for i, j in itertools.product(range(n), repeat=2):
        if i != j:
            ax.text(
                j,
                i,
                decode(table[i, j][None]),
                ha="center",
                va="center",
                color="black" if known[i, j] > 9 else "white",
            )
    names = decode(ids).split()
    ax.set_xticks(range(n), names)
    ax.set_yticks(range(n), names)
    ax.set_title(title)
    ax.grid(False)
first = [decode(row[row >= 0]) for row in world.relation[0]]
scrambled = [decode(row[row >= 0]) for row in panels[2][2]]
show(
    fig,
    "Three tables of relations, rows without their diagonal. E1: "
    + "; ".join(first)
    + ". E2 in the order of F: the same. E2 by token id: "
    + "; ".join(scrambled)
    + ".",
    "The analogy is there in both tables of E2. Only in the middle one can you see it.",
)

# %%
assert torch.equal(world.relation[0], world.relation[1])
assert not torch.equal(panels[2][2], world.relation[0])
say(
    f"Left and middle agree in all {config.n_pairs} entries. The functor is the order that makes them agree."
)

# %% [markdown]
# ## Find the functor
#
# With four entities we can try all orders. Keep those in which the table of E2 equals that of E1. We do it for our
# world, and for a world on a circle, where the same few relations occur again and again.

# %%
on_a_circle = analogy.AnalogyConfig(
    entities=4, vocabulary=20, short_cut=False
)
circle = analogy.draw(on_a_circle, stream(1, "chapter"))


def orders_that_agree(world):
    """All orders of E2 in which its table of relations is that of E1."""
    first, second = world.relation[:2]
    found = []
    for order in itertools.permutations(range(len(first))):
        p = torch.tensor(order)
        if torch.equal(second[p][:, p], first):
            found.append(order)
    return found


for title, one in (("own relations", world), ("circle", circle)):
    print(f"{title}: {len(orders_that_agree(one))} of 24 orders agree")
    for order in orders_that_agree(one):
        print(
            "   ", ", ".join(f"F(a{i}) = b{j}" for i, j in enumerate(order))
        )

# %%
assert orders_that_agree(world) == [(0, 1, 2, 3)]
assert len(orders_that_agree(circle)) == 4
say(
    "Where each pair has a relation of its own, the relations alone fix the functor. On a circle they do not: "
    f"it can be turned, and {len(orders_that_agree(circle))} maps keep everything. There, only a known analogy says which one is meant."
)

# %% [markdown]
# ## Three kinds of facts
#
# A model never sees a table. It sees facts, one at a time. A fact is a short prompt with one right answer.
#
# | kind | prompt | answer | in words |
# |---|---|---|---|
# | atomic | `a r1` | `b` | follow the arrow named `r1` from `a` |
# | compositional | `a r1 r2` | `c` | follow two arrows |
# | analogical | `a f` | `F(a)` | go over to the partner |
#
# Atomic and compositional facts come from both categories. The functor is *one* token, `f`. No fact says what it
# means.

# %%
kinds = {
    "atomic": (world.atomic, None),
    "compositional": world.compositional,
    "analogical": world.analogical,
}
for kind, (trained, held_out) in kinds.items():
    for title, facts in (("to train on", trained), ("held out", held_out)):
        if facts is not None:
            shown = "   ".join(
                f"{decode(fact[:-1])} → {decode(fact[-1:])}"
                for fact in facts[:4]
            )
            print(f"{kind:14}{title:12}{len(facts):4}:  {shown} ...")
print("the first atomic fact in token ids:", world.atomic[0].tolist())

# %% [markdown]
# All atomic facts are for training. Of the compositions only one in ten is; the others are held out. Of the
# analogies half are held out here. In code and tables the trained ones are called `id`, in distribution, and the
# held-out ones `ood`, out of distribution.

# %% [markdown]
# ## What follows from what
#
# A test on held-out facts is fair only if they can be known. So let us derive them, from training facts alone.
#
# **A composition** follows from two atomic facts. Go one step, then the other.

# %%
step = {(a, r): b for a, r, b in world.atomic.tolist()}


def words(*tokens):
    return decode(torch.tensor(tokens))


for a, r1, r2, _ in world.compositional.ood[:3].tolist():
    b = step[a, r1]
    print(
        f"{words(a, r1)} → {words(b)},  {words(b, r2)} → {words(step[b, r2])}"
        f"   so   {words(a, r1, r2)} → {words(step[b, r2])}"
    )
right = [
    step[step[a, r1], r2] == c
    for a, r1, r2, c in world.compositional.ood.tolist()
]
assert all(right)
say(
    f"All {len(right)} held-out compositions follow from atomic facts in two steps."
)

# %% [markdown]
# **An analogy** is another matter. Take a known one: some $s$ goes to $t$. We look for the partner of another entity
# $a$. See how $s$ is related to $a$, and follow the arrow of the same name from $t$.


# %%
arrow = {(a, b): r for a, r, b in world.atomic.tolist()}
known = {a: b for a, f, b in world.analogical.id.tolist()}
told = []
for a, f, partner in world.analogical.ood.tolist():
    for s, t in known.items():
        r = arrow[s, a]
        told.append(step[t, r] == partner)
        print(
            f"{words(s, f)} → {words(t)},  {words(s, r)} → {words(a)},  "
            f"{words(t, r)} → {words(step[t, r])}   so perhaps   "
            f"{words(a, f)} → {words(step[t, r])}"
        )

# %%
assert all(told)
say(
    f"All {len(told)} guesses are right: each held-out analogy follows from any known one and two atomic facts. The word *perhaps* stays."
)

# %% [markdown]
# The word stays because no training fact says that `f` keeps relations. A learner that stores each fact in a drawer
# of its own makes no mistake in training, and knows nothing about the held-out ones. To answer them it must have
# noticed that two tables agree, and must bet that the agreement goes on.
#
# A composition needs a guess as well: that a prompt of three tokens means two steps. The trained compositions show
# this guess at work, many times over. And once it is made, the answer is forced by facts that share an entity, $b$.
# With analogies the same amount of good will does not suffice. Grant that `f` sends E1 one-to-one to E2. The partners
# that are still free can be given out in any order, and every training fact stays true. Only the agreement of
# relations picks one order.

# %% [markdown]
# ## The world of the next chapters
#
# From now on there are fifteen entities in each category. The list of relation names has ten thousand entries. Most
# of them never occur in any fact.

# %%
large = analogy.AnalogyConfig()
big = analogy.draw(large, stream(0, "chapter"))
m = large.entities
counts = {
    "atomic": (len(big.atomic), 0, 2 * m * (m - 1)),
    "compositional": (
        len(big.compositional.id),
        len(big.compositional.ood),
        2 * m * (m - 1) * (m - 2),
    ),
    "analogical": (len(big.analogical.id), len(big.analogical.ood), m),
}
formulas = ("2n(n - 1)", "2n(n - 1)(n - 2)", "n")
print(f"{'kind':15}{'formula':>18}{'all':>7}{'train':>7}{'held out':>10}")
for (kind, (train, held, total)), formula in zip(
    counts.items(), formulas, strict=True
):
    assert train + held == total
    print(f"{kind:15}{formula:>18}{total:7}{train:7}{held:10}")

# %%
pool = sum(train for train, _, _ in counts.values())
analogies = counts["analogical"][0]
assert analogies / pool < 0.02
say(
    f"Of {pool} training facts {analogies} are analogies: about one in {pool / analogies:.0f}. And only "
    f"{large.n_relations} of {large.vocabulary:,} relation names occur; the other {large.vocabulary - large.n_relations:,} are "
    "what part I called unseen tokens. "
    f"The {counts['analogical'][1]} partners that are held out could be given out in {math.factorial(counts['analogical'][1])} ways."
)

# %% [markdown]
# ## A short cut
#
# A composition asks for two steps. Can the answer be had with fewer? Hide a part of the prompt, and count the
# answers that remain possible.


# %%
def answers_left(facts, shown):
    """The most answers that fit what is shown, and the share right of the best guess."""
    fitting = defaultdict(Counter)
    for fact in facts.tolist():
        fitting[tuple(fact[i] for i in shown)][fact[-1]] += 1
    best = sum(max(counter.values()) for counter in fitting.values())
    return max(map(len, fitting.values())), best / len(facts)


parts = ("a", "r1", "r2")
without = analogy.draw(
    analogy.AnalogyConfig(short_cut=False), stream(0, "chapter")
)
left = {}
print(f"{'':16}{'own relations':>24}{'circle':>24}")
print(f"{'shown':16}{'answers':>14}{'best':>10}{'answers':>14}{'best':>10}")
for k in range(4):
    for shown in itertools.combinations(range(3), k):
        line = f"{' '.join(parts[i] for i in shown) or 'nothing':16}"
        for title, one in (("own", big), ("circle", without)):
            facts = torch.cat(one.compositional)
            left[title, shown] = answers_left(facts, shown)
            line += "{:14}{:10.2f}".format(*left[title, shown])
        print(line)

# %%
r2, source_and_r2 = (2,), (0, 2)
assert left["own", r2][0] == 2 and left["own", source_and_r2][0] == 1
assert all(left["circle", two][0] > 10 for two in ((0, 1), (0, 2), (1, 2)))
say(
    f"Where each pair has a relation of its own, the last relation alone leaves {left['own', r2][0]} answers, $c$ and $F(c)$. "
    "The source says in which category, and that is all it is needed for. The first relation may be thrown away. "
    f"On the circle any two of the three tokens leave {min(left['circle', two][0] for two in ((0, 1), (0, 2), (1, 2)))} answers or more."
)

# %% [markdown]
# So a model can score full marks on held-out compositions without composing anything. It needs two associations: from
# the last relation to the two entities where such an arrow ends, and from the source to its category. Both can be read
# off the facts one by one.
#
# That matters when we read claims about *phases* of learning. If held-out compositions come right soon after the
# facts are memorised, the reason may be the short cut. It also has a second effect. Both arrows of one name end at
# $c$ and at $F(c)$, and nowhere else. To use the last relation well, a model is invited to put these two close
# together. And that is the analogy.
#
# The world on the circle takes the short cut away. It changes two more things: relation names are few, and $F$ is
# fixed only by known analogies. A difference in results between the two worlds may come from any of the three. The
# circle also brings an arithmetic of its own: two steps of 3 and 4 places make one of 7.

# %%
pairs_ending = defaultdict(set)
for _, r, b in big.atomic.tolist():
    pairs_ending[r].add(b)
partner = dict(zip(*big.entity.tolist(), strict=True))
for ends in pairs_ending.values():
    first, *rest = sorted(ends, key=lambda e: e not in partner)
    assert rest == [partner[first]]
say(
    f"Counted: each of the {len(pairs_ending)} relations that occur ends at one entity of E1, and at its partner, and nowhere else."
)

# %% [markdown]
# ## Doubts
#
# *Is this analogy?* People see analogies between things they know, with relations that overlap only partly. Here
# relations agree perfectly, and every pair has one. The task keeps one aspect, and we should not hear more in the
# word.
#
# *Is it a category?* Barely. Our objects and named arrows make one if paths count as arrows. Nothing deep about
# categories is used. What the word adds is the reminder that the map must keep *all* arrows, and with them all paths.
#
# *Does the order of learning have to be memorise, compose, transfer?* Nothing on this page says so. An analogy needs
# only facts of two tokens. The next chapter trains models and looks.

# %% [markdown]
# ## Summary
#
# - An analogy is a map that keeps relations: $r(F(a), F(b)) = r(a, b)$.
# - Where each pair has its own relation, the relations alone fix the map. On a circle they leave $n$ maps.
# - A held-out composition follows from two atomic facts. A held-out analogy follows from one known analogy and two
#   atomic facts, and only if one bets that agreement goes on.
# - In the standard world compositions have a short cut: the last relation and the category of the source suffice.
# - Known analogies are rare: about one training fact in a hundred.

# %% [markdown]
# ## What would change our mind
#
# This page makes no claim about models, so only counting can refute it. Draw other worlds and count again: change the
# seed in `stream(0, "chapter")`. If you find a prompt of the circle that two tokens answer, or a held-out fact that
# does not follow, the generator is wrong. Whether the short cut *matters* is a question for runs: train in both
# worlds and compare.

# %% [markdown]
# ## Exercises
#
# **1. Is it a functor?** (easy, 10 minutes). `relation` is a dictionary from ordered pairs of different entities, of
# both categories, to relations. `F` is a dictionary from the entities of E1 to those of E2, one-to-one. Say whether
# `F` carries the relations over.


# %%
def my_carries_over(relation, F):
    """True if r(F(a), F(b)) = r(a, b) for all pairs of different entities, else False."""


exercises.check_carries_over(my_carries_over)

# %% [markdown]
# **2. How many must be known?** (medium, 15 minutes). On a circle of five entities, five maps keep the relations.
# Suppose that $k$ analogies are known. How many of the maps agree with them, for $k = 0, 1, 2$? What does this say
# about a model that was shown ten analogies of fifteen, and fails on the other five?
#
# **3. A bad copy** (hard, 25 minutes). Draw worlds of five entities with `noise=0.2`, so that some relations of E2
# differ. Does any of the 120 maps keep everything? Which one keeps the most, and how far behind is the second?
#
# Worked solutions stand on [their own page](../solutions/analogy_solutions.ipynb).

# %% [markdown]
# ## Next
#
# [Three phases](02_three_phases.ipynb) trains eight models on such worlds and watches the three kinds of facts come
# right.
