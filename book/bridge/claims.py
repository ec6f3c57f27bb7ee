# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The claims ledger
#
# Every claim of the two papers, in our words, with the verdict that our own runs allow. No verdict here is typed:
# a function reads the stored results and returns it. What a verdict means is said on [the page on
# methods](../methods.md).
#
# A claim without a run says *not tested*. It is a plan, not a judgement.

# %%
try:
    from lib import claims, ledger
except ImportError:
    raise SystemExit(
        "`lib` is missing: run `pip install -e .` in a clone of this book"
    ) from None

from lib.plotting import say

# %%
counts = dict.fromkeys(claims.VERDICTS, 0)
for claim in ledger.LEDGER:
    counts[claims.verdict(claim)[0]] += 1
assert not claims.stale(ledger.LEDGER), (
    "a stored verdict no longer follows from the results"
)
say(
    f"{len(ledger.LEDGER)} claims: "
    + ", ".join(f"{n} {said}" for said, n in counts.items())
    + "."
)

# %% [markdown]
# ## All claims

# %%
say(claims.markdown(ledger.LEDGER))

# %% [markdown]
# ## The evidence
#
# For each tested claim: its sub-claims, as registered before the sweep; how many seeds show the effect, with a 95 %
# Wilson interval; and the effect's median and range over seeds.


# %%
def shown(source, first, last):
    """Judged claims of a source, numbers from first to last, and what their verdicts follow from."""
    return say(
        "\n\n".join(
            f"### {claim.id}: {claims.verdict(claim)[0]}\n\n{claim.statement}.\n\n{claims.evidence(claim)}"
            for claim in ledger.LEDGER
            if claim.subclaims
            and claim.source == source
            and first <= int(claim.id[1:]) <= last
        )
    )


shown("A", 1, 5)

# %%
shown("A", 6, 9)

# %%
shown("A", 10, 15)

# %%
shown("B", 1, 5)

# %%
shown("B", 6, 11)

# %%
shown("B", 12, 18)

# %% [markdown]
# Claims of our own have a C. They were registered in the same way, but for those that sum up earlier runs ([methods](../methods.md)).

# %%
shown("ours", 1, 4)

# %%
shown("ours", 5, 11)

# %%
shown("ours", 12, 14)

# %% [markdown]
# ## Check it yourself
#
# `python -m lib claims` computes all verdicts anew and fails when a stored one no longer follows. Delete a file under
# `book/results/`, run `make results`, and it is made again, in the time that the manifest names.
