# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Primer: the seven facts the book leans on
#
# - **You will be able to** write down the gradient of a softmax layer, say what a residual
#   stream, a causal mask and LayerNorm do, and tell weight decay from its look-alike.
# - **Needs** linear algebra, the chain rule, and PyTorch. The package of this book is not needed.
# - **Minutes** half an hour of reading. The cells are tiny; [How to use](how_to_use.ipynb) shows
#   what was measured.
# - **Memory** whatever it takes to import PyTorch.
#
# You can skip this page if the self-test at its end bores you. Each section states one fact,
# asks you to predict, and lets a cell of a few lines check it.
#
# Symbols follow the [notation page](notation.md). Where a fact has an author, the
# [references](references.md) name the source.

# %%
import torch
from torch.nn.functional import cross_entropy, layer_norm, one_hot

torch.set_default_dtype(torch.float64)  # so that "equal" can mean equal


def fresh(seed):
    return torch.Generator().manual_seed(seed)


# %% [markdown]
# ## 1. Softmax, and the gradient of one row
#
# A language model ends with a choice among `d_vocab` tokens. The last vector of the network is
# $h$. Each token $k$ owns one row $w_k$ of the unembedding $W_U$. Its *logit* is the inner product
# $w_k \cdot h$.
#
# Softmax turns logits into probabilities,
#
# $$p_k = \frac{e^{w_k \cdot h}}{\sum_j e^{w_j \cdot h}} .$$
#
# The loss is $-\log p$ of the right token, averaged over the data. Let $y_k$ be one if $k$ is the
# right token and zero otherwise. Differentiate, and almost everything cancels:
#
# $$\frac{\partial \text{loss}}{\partial w_k} = \mathbb{E}\big[(p_k - y_k)\, h\big] .$$
#
# Read it slowly, since much of part I follows from it. A right answer pulls its row towards
# $h$. Every other token pushes its own row away from $h$, in proportion to the probability it was
# given.
#
# **Predict.** In the cell below token 4 is never the right answer. Is the gradient of its row zero?

# %%
h = torch.randn(32, 6, generator=fresh(0))  # 32 examples of the last vector
W_U = torch.randn(
    5, 6, generator=fresh(1)
).requires_grad_()  # one row a token
labels = torch.arange(32) % 4  # tokens 0 to 3; token 4 never

p = (h @ W_U.T).softmax(dim=1)
cross_entropy(h @ W_U.T, labels).backward()
by_hand = (p - one_hot(labels, 5)).T @ h / 32

assert torch.allclose(W_U.grad, by_hand, rtol=0, atol=1e-12)
assert torch.allclose(
    W_U.grad[4], (p[:, 4:] * h).mean(dim=0), rtol=0, atol=1e-12
)
assert W_U.grad[4].norm() > 1e-3
print("autograd agrees with E[(p_k - y_k) h]: yes")
print("the row of the token that never occurs has gradient zero: no")

# %% [markdown]
# The row of a token that never occurs keeps only the first term: $\mathbb{E}[p_k\, h]$. It is pushed
# for ever, and pushed by nothing but its own probability.
#
# Now take two such tokens. Nothing in the data tells them apart. What their difference does is the
# subject of paper A's Lemma 4.1, and of [chapter 4](unseen/04_the_collapse_lemma.ipynb).

# %% [markdown]
# ## 2. The residual stream
#
# A decoder ([Vaswani et al. 2017](references.md)) keeps one vector of length `d_model` for each
# position. We call it the *residual stream*. It starts as the token's embedding.
#
# A layer never replaces the stream. It reads a normalised copy, computes, and *adds* what it found.
# Normalising before reading is called pre-LN, and it is what we use.
#
# So the stream is a sum of everything that was written to it: the embedding, the attention of every
# layer, the MLP of every layer. And as the unembedding is linear, the logits of a stream split into
# the same sum. (LayerNorm stands in between: once its scale is known, it too is linear.)
#
# **Predict.** If the token's own embedding is one term of the sum, how could a model copy a token it
# has never met?

# %%
embed, from_attention, from_mlp = torch.randn(3, 6, generator=fresh(2))
resid_mid = embed + from_attention
resid_post = resid_mid + from_mlp

rows = W_U.detach()
parts = [rows @ embed, rows @ from_attention, rows @ from_mlp]
assert torch.allclose(rows @ resid_post, sum(parts), rtol=0, atol=1e-12)
print(
    "logits of the stream = sum of the logits of what was written to it: yes"
)

# %% [markdown]
# A new token can be copied if some path carries its embedding to the end unharmed, and if the
# unembedding then tells it from its neighbours. Two conditions. The first part of the book is about
# how each of them fails.

# %% [markdown]
# ## 3. Attention, with a causal mask
#
# A head lets positions read from each other. Position $i$ asks with a query $q_i$. Position $j$
# answers with a key $k_j$ and offers a value $v_j$. The softmax of the scores
# $q_i \cdot k_j / \sqrt{d_\text{head}}$ over $j$ is the row $i$ of the `pattern`. The head's result
# is the average of the values under that row.
#
# The *causal mask* sets the score to $-\infty$ wherever $j > i$. A position sees itself and the past.
# Hence one pass can train every position at once, and none can peep at its answer.
#
# Where a token stands enters through the queries and keys: rotary embeddings turn them by an angle
# that grows with the position ([Su et al. 2021](references.md)).
#
# **Predict.** We change the last token only. Which outputs of the head change?

# %%
n, d_head = 4, 6
future = torch.ones(n, n, dtype=torch.bool).triu(1)


def attend(q, k, v):
    scores = (q @ k.T / d_head**0.5).masked_fill(future, float("-inf"))
    pattern = scores.softmax(dim=-1)  # [query, key]
    return pattern @ v, pattern


q, k, v = torch.randn(3, n, d_head, generator=fresh(3))
before, pattern = attend(q, k, v)
for changed in (q, k, v):
    changed[-1] += 1.0
after, _ = attend(q, k, v)

assert torch.equal(before[:-1], after[:-1]) and not torch.allclose(
    before[-1], after[-1]
)
assert torch.allclose(pattern.sum(dim=1), torch.ones(n))
assert (pattern.triu(1) == 0).all()
print(
    "outputs that changed:",
    [i for i in range(n) if not torch.equal(before[i], after[i])],
)

# %% [markdown]
# ## 4. LayerNorm, and what it bounds
#
# LayerNorm ([Ba et al. 2016](references.md)) subtracts a vector's mean, divides by its standard
# deviation, and multiplies each entry by a learned *gain*. (It may add a bias; take it to be zero
# here.)
#
# Before the gain, the mean square of the entries is one. So the length of the vector is
# $\sqrt{d_\text{model}}$, a hair less because of the small $\varepsilon$ in the division. Whatever
# came in, this comes out:
#
# $$\lVert h \rVert \le \sqrt{d_\text{model}} \cdot \max_i |\text{gain}_i| .$$
#
# Why care? The step of a row in section 1 is $h$ times a probability. A bound on $h$ is a bound on the
# step. Lemmas about training need it.
#
# **Predict.** We scale the input by a million. What happens to the length of the output?

# %%
gain = torch.tensor(
    [0.5, 1.0, 1.5, 2.0] * 4
)  # d_model = 16, so the bound is 4 x 2 = 8
x = torch.randn(1000, 16, generator=fresh(4))
for scale in (1e-2, 1.0, 1e6):
    plain = layer_norm(scale * x, (16,)).norm(dim=1)
    with_gain = layer_norm(scale * x, (16,), weight=gain).norm(dim=1)
    assert plain.max() <= 4 + 1e-9 and with_gain.max() <= 8 + 1e-9
    print(
        f"input x {scale:7g}: gain 1 within 4: yes, gain up to 2 within 8: yes"
    )
assert torch.allclose(
    layer_norm(1e6 * x, (16,)).norm(dim=1), torch.full((1000,), 4.0)
)

# %% [markdown]
# **A doubt to keep.** The gain is learned. It may grow while we train, and the bound grows with it.
# "LayerNorm keeps features bounded" is true at each step, with a bound that moves.

# %% [markdown]
# ## 5. Weight decay, twice
#
# *L2 regularisation* adds $\tfrac{\lambda}{2}\lVert w \rVert^2$ to the loss. The gradient then gains a
# term $\lambda w$. Under plain gradient descent with step size $\eta$ a weight that gets nothing from
# the data shrinks by the factor $1 - \eta\lambda$ at each step.
#
# *Decoupled decay* leaves the loss alone and multiplies the weight by $1 - \eta\lambda$ directly. This
# is the W in AdamW ([Loshchilov & Hutter 2019](references.md)).
#
# Under plain gradient descent the two are the same. Under Adam
# ([Kingma & Ba 2015](references.md)) they are not. Adam divides each entry of the gradient by a
# running estimate of that entry's own size, and the term $\lambda w$ is part of the gradient.
#
# **Predict.** A weight of 1 gets no gradient from the data. After 100 steps, under which of the three
# is it smallest?

# %%
lr, weight_decay, steps = 1e-3, 0.1, 100
optimisers = {
    "SGD, L2": torch.optim.SGD,
    "AdamW": torch.optim.AdamW,
    "Adam, L2": torch.optim.Adam,
}
left = {}
for name, optimiser in optimisers.items():
    w = torch.ones(1, requires_grad=True)
    step = optimiser([w], lr=lr, weight_decay=weight_decay)
    for _ in range(steps):
        w.grad = torch.zeros(1)  # the data say nothing
        step.step()
    left[name] = w.item()
    print(f"{name:9s} {left[name]:.3f}")

decayed = (1 - lr * weight_decay) ** steps
assert (
    abs(left["SGD, L2"] - decayed) < 1e-9
    and abs(left["AdamW"] - decayed) < 1e-9
)
assert abs(left["Adam, L2"] - (1 - lr * steps)) < 0.01

# %% [markdown]
# Adam with L2 walks towards zero at about $\eta$ a step, however small or large $\lambda$ is. The
# division has eaten $\lambda$.
#
# The moral: "with weight decay" is not yet a statement. Say which optimiser, and which decay.

# %% [markdown]
# ## 6. Adam does not see how small a gradient is
#
# The same division has a second effect. A row with a tiny gradient of steady direction moves as fast
# as a row with a large one: the step of each entry is $\eta$ times a ratio, and the ratio is about one.
# (The small $\varepsilon$ in the division sets the floor below which this stops.)
#
# Section 1 made rows of this kind. Tokens that never occur get the gradient $\mathbb{E}[p_k h]$. It is
# tiny. And the same features $h$ stand in it for all of them, so it points much the same way. How steady
# it is in real training is a question for an experiment. Here we assume it.
#
# **Predict.** Two unrelated rows get gradients that differ in size a hundred times but agree in
# direction. There is no decay. Does their cosine rise under SGD? Under Adam?

# %%
direction = torch.randn(64, generator=fresh(5))
start = torch.randn(2, 64, generator=fresh(6)) * 0.1
size = torch.tensor([[1e-4], [1e-6]])
cosine, moved = {}, {}
for name, optimiser in {
    "SGD": torch.optim.SGD,
    "Adam": torch.optim.Adam,
}.items():
    W = start.clone().requires_grad_()
    step = optimiser([W], lr=3e-3)
    for _ in range(200):
        W.grad = size * direction
        step.step()
    moved[name] = (W.detach() - start).norm(dim=1)
    cosine[name] = torch.cosine_similarity(*W.detach(), dim=0).item()
    alike = "yes" if moved[name][1] > 0.8 * moved[name][0] else "no"
    print(f"{name:4s} moved alike: {alike}")

cosine["start"] = torch.cosine_similarity(*start, dim=0).item()
assert abs(cosine["SGD"] - cosine["start"]) < 0.01
assert cosine["Adam"] > 0.9
for name in ("start", "SGD", "Adam"):
    print(f"cosine, {name:5s} {cosine[name]:+.2f}")

# %% [markdown]
# No decay, and yet the two rows end up nearly parallel. They did not forget what made them different.
# They were moved together until the common part outweighed it.
#
# So a cosine near one has two possible causes: the difference shrank, or the common part grew. The
# cosine cannot tell which. Keep that in mind for
# [chapter 3](unseen/03_watching_the_collapse.ipynb).

# %% [markdown]
# ## 7. Tying
#
# The input matrix $W_E$ and the output matrix $W_U$ have the same shape. Many models let them be one
# matrix ([Press & Wolf 2017](references.md)). That is *tying*, and it saves `d_vocab` times `d_model`
# parameters.
#
# It also couples two roles. The gradient of a tied row is the sum of two: one from being read, one
# from being a possible answer.
#
# **Predict.** Token 4 is never read and never the answer. Does its *input* vector change when tied?
# When untied?

# %%
for tied in (False, True):
    W_E = torch.randn(5, 6, generator=fresh(7)).requires_grad_()
    W_U = (
        W_E
        if tied
        else torch.randn(5, 6, generator=fresh(8)).requires_grad_()
    )
    cross_entropy(W_E[labels] @ W_U.T, (labels + 1) % 4).backward()
    matrices = len({matrix.data_ptr() for matrix in (W_E, W_U)})
    pushed = bool((W_E.grad[4] != 0).any())
    assert pushed is tied and matrices == (1 if tied else 2)
    name = "tied" if tied else "untied"
    print(f"{name:6s} matrices: {matrices}; row 4 gets a gradient: {pushed}")

# %% [markdown]
# Tied, the push that hits the row as a possible answer also moves what the model reads when the token
# at last appears. Untied, the input row is touched by nothing but weight decay.

# %% [markdown]
# ## Self-test
#
# Six questions. Answer aloud before you unfold.
#
# **1.** A token is never the right answer. Why does its row of $W_U$ still move under plain gradient
# descent, without decay?
#
# <details>
# <summary>Answer 1</summary>
#
# Its gradient is $\mathbb{E}[(p_k - y_k)h]$ with $y_k = 0$ throughout, so $\mathbb{E}[p_k h]$. A
# softmax probability is never exactly zero. The row is pushed away from the features.
#
# </details>
#
# **2.** The model is untied, and the token never stands in the input either. What moves its row of
# $W_E$?
#
# <details>
# <summary>Answer 2</summary>
#
# Not the data: the row is never read, so its gradient is exactly zero. Only decay. Under SGD with
# decay and under AdamW the row shrinks by $1 - \eta\lambda$ a step. Under Adam with L2 it walks towards
# zero at nearly constant speed.
#
# </details>
#
# **3.** You forget the causal mask and train on next-token prediction. What do you see?
#
# <details>
# <summary>Answer 3</summary>
#
# A loss that is too good. A position can attend to the token it should predict, so it learns to copy
# it from the future. At generation time there is no future, and the model fails.
#
# </details>
#
# **4.** `d_model` is 64, the gain is one everywhere, the bias zero. How long can an output of LayerNorm
# be?
#
# <details>
# <summary>Answer 4</summary>
#
# At most $\sqrt{64} = 8$. In fact almost exactly 8, unless the input's entries are all nearly equal:
# then $\varepsilon$ matters and the output is shorter.
#
# </details>
#
# **5.** Two weights get gradients of one steady sign, one a thousand times the other. Compare their
# steps under SGD and under Adam.
#
# <details>
# <summary>Answer 5</summary>
#
# Under SGD the steps differ a thousand times. Under Adam they are about equal, as long as both
# gradients are well above $\varepsilon$. Adam keeps the sign and throws away the size.
#
# </details>
#
# **6.** Somebody tells you that weight decay made the rows of unseen tokens collapse. What do you ask?
#
# <details>
# <summary>Answer 6</summary>
#
# Which matrix: input, output, or one tied matrix? Which optimiser, and is the decay in the gradient or
# decoupled? What happens with decay zero? And what is meant by collapse: did the difference between the
# rows shrink, or did a common part grow?
#
# </details>

# %% [markdown]
# ## What this page left out
#
# Several heads, biases, the bias correction in Adam's averages, momentum, learning-rate schedules. With
# momentum the factor of section 5 is another one; else none of them changes the seven facts. Some real models also squash their logits (a *softcap*) or give the
# unembedding a bias; then section 1 needs a correction, and the chapters that meet such models say so.
#
# **Next:** [the protocol](methods.md), or straight to
# [symbols in context](unseen/01_symbols_in_context.ipynb).
