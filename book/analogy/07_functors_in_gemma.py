# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Functors in Gemma
#
# - **You will be able to** read a language model's residual stream layer by layer, tell a trend from its control, and
#   say which relations between words can be one direction at all.
# - **Needs** [Alignment](04_alignment.ipynb) and [Applying the functor](05_applying_the_functor.ipynb), and the extra
#   `models` (see [The unused tokens of Gemma](../unseen/09_the_unused_tokens_of_gemma.ipynb)).
# - **Minutes** thirty-five to read, two to run.
# - **Memory** 4 GB.

# %%
try:
    from lib import claims, functors, ledger, relations, results
except ImportError:
    raise SystemExit(
        "`lib` is missing: run `pip install -e .` in a clone of this book"
    ) from None

import pandas as pd
import torch

from lib import exercises
from lib.generators import prompts, stream
from lib.language_models import load
from lib.ledger import models
from lib.plotting import PALETTE, figure, say, show, style

style()
torch.set_num_threads(2)
