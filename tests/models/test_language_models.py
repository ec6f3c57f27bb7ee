"""Gemma 3 270M through `lib.language_models`: made once, read again, against transformers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lib.language_models import lens, load, positions, run, streams, tokens
from lib.model_files import CACHE, PACKAGED

pytestmark = pytest.mark.weights

PROMPT = "France is to Paris as Japan is to"
LOAD = """
import sys, time
from lib.language_models import load
from lib.model_files import package
for name in ("transformers", "transformer_lens.model_bridge"):
    package(name)
start = time.time()
load("gemma-3-270m", cache=sys.argv[1])
print(f"{time.time() - start:.1f} s")
try:
    import resource
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GB at most (Linux)")
except ImportError:
    pass
"""


def load_elsewhere(cache):
    """Load in a process of its own, which prints seconds (imports aside) and peak memory."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(cache)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Gemma terms of use") == 1
    assert "%|" not in done.stderr, "a progress bar"
    return " · ".join(done.stdout.splitlines()[1:])


@pytest.fixture(scope="module")
def cache():
    """The cache that chapters use too: made here if it is not there yet, since that takes a minute."""
    cache = Path(os.environ.get(CACHE) or Path.home() / ".cache" / "seeing-the-unseen")
    first = not (cache / PACKAGED["gemma-3-270m"][1]).is_dir()
    for which in ("first", "second")[not first :]:
        print(f"{which} load: {load_elsewhere(cache)}")
    return cache


@pytest.fixture(scope="module")
def model(cache):
    return load("gemma-3-270m", cache=cache)


def test_cache_holds_the_model_and_nothing_else(cache):
    folder = cache / PACKAGED["gemma-3-270m"][1]
    assert {p.suffix for p in folder.iterdir()} == {".json", ".safetensors"}


def test_sizes(model):
    assert model.W_E.shape == (262_144, 640)
    assert model.tied and model.n_layers == 18
    assert model.n_tokenizer == model.d_vocab == 262_144


def test_logits_lens_and_streams_are_those_of_transformers(model, cache):
    import transformers

    folder = cache / PACKAGED["gemma-3-270m"][1]
    hf = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    ids = tokens(model, PROMPT)
    with torch.no_grad():
        expected = hf(ids, output_hidden_states=True)
    got = run(model, ids, ["logits", "blocks.5.attn.hook_pattern"])
    torch.testing.assert_close(got["logits"], expected.logits, atol=1e-4, rtol=1e-4)
    ours = streams(model, ids)
    torch.testing.assert_close(lens(model, ours[-1]), expected.logits, atol=1e-4, rtol=1e-4)
    hidden = torch.stack(expected.hidden_states[:-1])
    torch.testing.assert_close(ours[:-1], hidden, atol=1e-2, rtol=1e-4)
    assert model.tokenizer.decode(expected.logits[0, -1].argmax()).strip() == "Tokyo"


def test_one_bos_and_golden_ids(model):
    """Ids and round trips of a tokenizer that was rebuilt from GGUF."""
    golden = {
        "Hello world": [9259, 1902],
        "a  b   c": [236746, 138, 236763, 139, 236755],
        "café naïve": [123125, 236859, 120362],
        "<unused5>x": [11, 236781],
        "<e1>a<e2>": [
            236820,
            236744,
            236770,
            236813,
            236746,
            236820,
            236744,
            236778,
            236813,
        ],
    }
    for text, ids in golden.items():
        expected = torch.tensor([[2, *ids]])
        for way in (text, f"<bos>{text}", [text], ids, torch.tensor(ids), expected):
            assert torch.equal(tokens(model, way), expected), text
        assert model.tokenizer.decode(ids) == text


@pytest.mark.parametrize("entity", ["Paris", "Japan", "France"])
def test_positions_decode(model, entity):
    (places,) = positions(model, PROMPT, entity)
    assert model.tokenizer.decode(tokens(model, PROMPT)[0, places]).strip() == entity
