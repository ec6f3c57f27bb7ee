# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Solutions for part I
#
# Try first. A solution that you read before you struggled teaches little. Each is run against the same check as
# yours.

# %%
try:
    from lib import exercises
except ImportError:
    raise SystemExit(
        "`lib` is missing: run `pip install -e .` in a clone of this book"
    ) from None

import math

import numpy as np
import torch

from lib import evaluation, experiments, geometry, ledger
from lib.generators import logic, stream
from lib.training import train

# %% [markdown]
# ## Symbols in context
#
# **1. Forward chaining.** Cut the prompt at its special words, collect the rules in a dictionary, and walk.


# %%
def solve_by_walking(prompt):
    """The fact, the derived names in order, and T or F."""
    rules_text, rest = prompt.split(" FACT ")
    fact, query = rest.removesuffix(" ANS").split(" QUERY ")
    words = rules_text.split()
    goes_to = dict(zip(words[0::3], words[2::3], strict=True))
    path = [fact]
    while path[-1] in goes_to:
        path.append(goes_to[path[-1]])
    return " ".join(path + ["T" if query in path else "F"])


exercises.check_solve(solve_by_walking)

# %% [markdown]
# **2. More depth.** With depth 3, two names stand in the middle of each chain. Four names stand on both sides of the
# rules, and the lazy model picks one of them twice. Each pick is right one time in four; copying the query is right
# one time in two. So $\tfrac14 \cdot \tfrac14 \cdot \tfrac12 = \tfrac1{32}$, if it picks twice without looking.

# %%
n = 20_000
task = logic.LogicConfig(depth=3)
tokens = logic.sample(task, n, stream(0, "solution")).tokens
rules, answer = (
    tokens[:, : 6 * task.depth].view(n, -1, 3),
    tokens[:, -task.answer_length :],
)
left, right = rules[:, :, 0], rules[:, :, 2]
on_both = (right[:, :, None] == left[:, None, :]).any(dim=2).float()
picks = right.gather(
    1,
    torch.multinomial(
        on_both, 2, replacement=True, generator=stream(1, "solution")
    ),
)
lucky = (picks == answer[:, 1:3]).all(1) & (
    tokens[:, task.prompt_length - 2] == answer[:, 3]
)
assert abs(float(lucky.float().mean()) - 1 / 32) < 0.005
print(f"counted {float(lucky.float().mean()):.4f}, worked out {1 / 32:.4f}")

# %% [markdown]
# **3. A tempting pool.** On the False half nothing unseen has to be written, so it scores 1. On the True half it
# scores 0. Pooled: one half, for a model that cannot do what is asked.

# %% [markdown]
# ## A small transformer meets a stranger
#
# **1. What was written?** The order of the questions matters: the due name first, then the part of the vocabulary.


# %%
def kind_of_token(written, problem, due, task):
    """The kind of token that stands in the place of an unseen name."""
    if written == due:
        return "right"
    if written < task.seen.start:
        return "special"
    if written >= task.unseen.start:
        return "other_unseen"
    return "seen_here" if written in problem else "seen_elsewhere"


exercises.check_kind(kind_of_token)

# %% [markdown]
# **2. Which half first?** Copying the query is right on True problems only, so the True half comes first.

# %%
stored = ledger.arm("standard")
ahead = []
for seed, one in stored.groupby("seed"):
    when = [
        int(one[one[f"chain_seen_{half}"] >= 0.5]["step"].iloc[0])
        for half in ("true", "false")
    ]
    ahead.append(when[1] - when[0])
    print(
        f"seed {seed}: True half at step {when[0]}, False half at step {when[1]}"
    )
assert min(ahead) >= 0

# %% [markdown]
# **3. A fairer vote.** Take the argmax over the names of the problem only. This cell trains for a moment on the tiny
# preset, only to show the code; use your model from chapter 2.


# %%
def predict_among_names_of_the_problem(model, tokens, task):
    """The best token at each answer position among the tokens of the problem and T and F."""
    with torch.no_grad():
        logits = model(tokens[:, :-1], last=task.answer_length)
    allowed = torch.zeros(len(tokens), task.d_vocab, dtype=torch.bool)
    allowed.scatter_(1, tokens[:, : task.prompt_length], True)
    allowed[:, [logic.TRUE, logic.FALSE]] = True
    return logits.masked_fill(~allowed[:, None, :], -torch.inf).argmax(-1)


tiny = experiments.logic_run("tiny", steps=50)
model = train(tiny, "cpu").model
problems = logic.sample(
    tiny.task, 200, stream(2, "solution"), "query_unseen", True
).tokens
fair = evaluation.scores(
    predict_among_names_of_the_problem(model, problems, tiny.task), problems
)
plain = evaluation.scores(
    evaluation.predict(model, problems, tiny.task.answer_length), problems
)
assert fair["chain"] >= plain["chain"]

# %% [markdown]
# The fairer vote can only help, and the assertion says so. What remains of the failure then is confusion between names
# of the same problem. What went away was the competition of all the other trained rows.

# %% [markdown]
# ## Watching the collapse
#
# **1. Mean cosine without all pairs.** With unit rows $u_i$, the squared length of the sum is
# $\lvert\sum_i u_i\rvert^2 = n + \sum_{i \ne j} u_i \cdot u_j$. Solve for the second term, and divide by the number of
# its members, $n(n-1)$.


# %%
def mean_cosine_from_the_sum(x):
    """Mean cosine over all pairs of different rows."""
    unit = x.double() / x.double().norm(dim=1, keepdim=True)
    n = len(x)
    return float((unit.sum(0).square().sum() - n) / (n * (n - 1)))


exercises.check_mean_cosine(mean_cosine_from_the_sum)

# %% [markdown]
# **2. Cosine and share.** Let all rows have length $\ell$, and let $m$ be their mean. The individual parts obey
# $\tfrac1n \sum_i \lvert x_i - m\rvert^2 = \ell^2 - \lvert m\rvert^2$, so $s^2 = 1 - \lvert m\rvert^2 / \ell^2$. And by
# the first exercise the mean cosine is $(n \lvert m\rvert^2/\ell^2 - 1)/(n-1)$. Together
#
# $$\overline{\cos} = 1 - \frac{n}{n-1}\, s^2 .$$

# %%
x = torch.randn(50, 64, generator=stream(3, "solution")) + 0.7
x = x / x.norm(dim=1, keepdim=True)
closed = 1 - 50 / 49 * geometry.individual_share(x) ** 2
assert abs(closed - geometry.mean_cosine(x)) < 1e-6
print(f"closed form {closed:.6f}, measured {geometry.mean_cosine(x):.6f}")

# %% [markdown]
# **3. How long until 1 %?** Extrapolate the second half of the short runs, and ask the long ones.

# %%
short, long = ledger.arm("adamw_full"), ledger.long()
late = (
    short[short["step"] >= 1200]
    .groupby("step")["W_U_unseen_individual"]
    .median()
)
slope, height = np.polyfit(late.index, np.log(late), 1)
start = short[short["step"] == 0]["W_U_unseen_individual"].median()
for step in (2500, 5000, 10_000):
    seen = long[long["step"] == step]["W_U_unseen_individual"].median()
    line = np.exp(height + slope * step)
    print(
        f"step {step:6}: line {line / start:.3f} of the start, measured {seen / start:.3f}"
    )
print(
    f"the line reaches 1 % at step {(np.log(0.01 * start) - height) / slope:.0f}"
)

# %% [markdown]
# The line is a good guide only while the forces stay as they are. Decay alone gives a rate of $\eta\lambda$ a step. What
# comes on top changes as the model fits.

# %% [markdown]
# ## The collapse lemma
#
# **1. A forecast of steps.** Solve $(1-\eta\lambda)^t \le s$ for $t$. Both logarithms are negative.


# %%
def steps_until_at_most(share, lr, decay):
    """The smallest number of steps after which at most `share` of the distance is left."""
    return math.ceil(math.log(share) / math.log(1 - lr * decay))


exercises.check_steps_until(steps_until_at_most)

# %% [markdown]
# **2. With a bias.** Now $p_a - p_b = p_b\,(e^{d \cdot h + \beta} - 1)$, with $\beta$ the bias of $a$. Take one feature
# $h$ with $-\beta < d \cdot h < 0$. Then $p_a > p_b$ although $d\cdot h < 0$, so $c(h) < 0$: the gradient pushes $w_a$
# further to the side of $-h$, where it already lies.

# %%
h = torch.tensor([1.0, 0.0], dtype=torch.double)
W = torch.tensor([[-0.5, 0.0], [0.5, 0.0], [0.0, 0.0]], dtype=torch.double)
bias = torch.tensor([3.0, 0.0, 0.0], dtype=torch.double)
p = (W @ h + bias).softmax(0)
lr, decay = 0.1, 0.0
before = (W[0] - W[1]).norm()
after = (W[0] - lr * p[0] * h - (W[1] - lr * p[1] * h)).norm()
assert after > before and lr * (2 * decay + p[:2].max()) <= 2
print(
    f"p_a = {p[0]:.2f} > p_b = {p[1]:.2f}; distance {before:.3f} before, {after:.3f} after"
)

# %% [markdown]
# **3. Who contracts?** The logarithm of the distance is the sum of two parts: that of the bound, which is the decay's, and
# the rest, which is the work of $M$.

# %%
middle = ledger.lemma("sgd").groupby("step")[["distance", "bound"]].median()
work = np.log(middle["distance"] / middle["bound"])
for begin in (0, 500, 1000, 1500):
    parts = (
        work[begin + 500] - work[begin],
        np.log(middle["bound"][begin + 500] / middle["bound"][begin]),
    )
    print(
        f"steps {begin:4} to {begin + 500:4}: M {parts[0]:6.3f}, decay {parts[1]:6.3f}"
    )
assert work[500] < work[2000] - work[1500] < 0

# %% [markdown]
# Decay takes the same at each step. What $M$ takes is proportional to the probability wasted on the pair, which falls as
# the classifier learns. So $M$ works early.
