"""Set before anything else is imported: shapes checked, no screen, no network."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"

import hypothesis
import jaxtyping
import matplotlib

# Every signature in `lib` is checked at run time, types and shapes; must come before `import lib`.
jaxtyping.install_import_hook("lib", "beartype.beartype")

# Not the environment variable: notebooks run under pytest keep their own, inline one.
matplotlib.use("Agg")

# The same examples on every machine; no deadline, since a busy core is no failure.
hypothesis.settings.register_profile("book", deadline=None, derandomize=True, max_examples=30)
hypothesis.settings.load_profile("book")
