"""The decoder: the same numbers as Hugging Face's, named activations, the copy head, first weights."""

import dataclasses
import hashlib
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lib.models.copy_attention import CopyAttention
from lib.models.transformer import Transformer, TransformerConfig, initialise, rotary

SMALL = TransformerConfig(d_vocab=23, d_model=16, n_layers=2, n_heads=2, n_ctx=16)
each_tying = pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
each_copy = pytest.mark.parametrize("copy", [True, False], ids=["copy", "plain"])
each_positions = pytest.mark.parametrize("positions", ["rotary", "learned"])


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def fresh(seed=0, **changes):
    return initialise(Transformer(dataclasses.replace(SMALL, **changes)), seeded(seed)).eval()


def shaken(seed=0, **changes):
    """Fresh weights plus noise everywhere: biases and gains away from 0 and 1."""
    model, generator = fresh(seed, **changes), seeded(99)
    with torch.no_grad():
        for p in model.parameters():
            p += 0.2 * torch.randn(p.shape, generator=generator)
    return model


def some_tokens(batch=3, n=12, seed=1):
    return torch.randint(SMALL.d_vocab, (batch, n), generator=seeded(seed))


def huggingface(model):
    """A GPT-NeoX with full rotary, sequential residual and the weights of `model`."""
    transformers = pytest.importorskip("transformers")
    c = model.config
    twin = transformers.GPTNeoXForCausalLM(
        transformers.GPTNeoXConfig(
            vocab_size=c.d_vocab,
            hidden_size=c.d_model,
            num_hidden_layers=c.n_layers,
            num_attention_heads=c.n_heads,
            intermediate_size=4 * c.d_model,
            hidden_act="relu",
            rotary_pct=1.0,
            use_parallel_residual=False,
            layer_norm_eps=model.ln_final.eps,
            tie_word_embeddings=c.tied,
            attn_implementation="eager",
        )
    )
    assert twin.config.rope_parameters["partial_rotary_factor"] == 1.0
    weights = {"gpt_neox.embed_in.weight": model.W_E, "lm_head.weight": model.W_U}

    def put(name, module):
        weights[f"{name}.weight"], weights[f"{name}.bias"] = module.weight, module.bias

    put("gpt_neox.final_layer_norm", model.ln_final)
    for i, block in enumerate(model.blocks):
        at = f"gpt_neox.layers.{i}"
        put(f"{at}.input_layernorm", block.ln_1)
        put(f"{at}.post_attention_layernorm", block.ln_2)
        put(f"{at}.attention.dense", block.out)
        put(f"{at}.mlp.dense_h_to_4h", block.up)
        put(f"{at}.mlp.dense_4h_to_h", block.down)
        for kind in ("weight", "bias"):  # there, each head's query, key and value lie together
            qkv = [getattr(m, kind) for m in (block.query, block.key, block.value)]
            heads = torch.stack([x.unflatten(0, (c.n_heads, -1)) for x in qkv], dim=1)
            weights[f"{at}.attention.query_key_value.{kind}"] = heads.flatten(0, 2)
    twin.load_state_dict({name: value.detach().clone() for name, value in weights.items()})
    return twin.eval()


@each_tying
@pytest.mark.parametrize("n_layers", [1, 2, 3])
def test_the_same_logits_as_huggingface(n_layers, tied):
    model, tokens = shaken(n_layers=n_layers, tied=tied, d_model=32, n_heads=4), some_tokens()
    with torch.no_grad():
        ours, theirs = model(tokens), huggingface(model)(input_ids=tokens).logits
    assert ours.dtype == torch.float32
    assert float((ours - theirs).abs().max()) < 1e-5
    assert float(theirs.std()) > 0.1  # not equal because nothing happens


def test_the_same_residual_stream_as_huggingface():
    model, tokens = shaken(), some_tokens()
    with torch.no_grad():
        states = huggingface(model)(input_ids=tokens, output_hidden_states=True).hidden_states
        ours = model.run(tokens, ["blocks.0.resid_pre", "blocks.1.resid_pre", "final"])
    for a, b in zip(ours.values(), states, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


@each_positions
@each_copy
def test_every_named_activation_has_its_shape(copy, positions):
    model, tokens = fresh(copy=copy, positions=positions), some_tokens(batch=3, n=7)
    d, heads = SMALL.d_model, SMALL.n_heads
    shapes = {"embed": (3, 7, d), "final": (3, 7, d), "logits": (3, 7, SMALL.d_vocab)}
    for layer in range(SMALL.n_layers):
        shapes |= {
            f"blocks.{layer}.{at}": (3, 7, d) for at in ("resid_pre", "resid_mid", "resid_post")
        }
        shapes[f"blocks.{layer}.pattern"] = (3, heads, 7, 7)
    if copy:
        shapes |= {"copy.pattern": (3, 7, 7), "copy.out": (3, 7, d)}
    got = model.run(tokens)
    assert list(got) == model.activation_names()
    assert {name: tuple(value.shape) for name, value in got.items()} == shapes


@each_copy
def test_patterns_are_causal_distributions(copy):
    for name, value in fresh(copy=copy).run(some_tokens()).items():
        if name.endswith("pattern"):
            assert torch.equal(value, value.tril())
            torch.testing.assert_close(value.sum(-1), torch.ones(value.shape[:-1]))


def test_activations_come_in_the_order_asked():
    model, names = fresh(), ["logits", "embed", "blocks.1.pattern"]
    assert list(model.run(some_tokens(), names)) == names


def test_the_stream_is_a_sum():
    model, tokens = shaken(), some_tokens()
    got = model.run(tokens)
    assert torch.equal(got["embed"], model.W_E[tokens])
    assert torch.equal(got["blocks.0.resid_pre"], got["embed"])
    assert torch.equal(got["blocks.1.resid_pre"], got["blocks.0.resid_post"])
    block = model.blocks[0]
    mlp = block.down(torch.relu(block.up(block.ln_2(got["blocks.0.resid_mid"]))))
    torch.testing.assert_close(got["blocks.0.resid_post"] - got["blocks.0.resid_mid"], mlp)
    torch.testing.assert_close(got["logits"], got["final"] @ model.W_U.T)


@pytest.mark.parametrize(
    ("wrong", "near"),
    [("block.0.pattern", "blocks.0.pattern"), ("logit", "logits"), ("copy.out", "blocks.")],
)
def test_an_unknown_activation_names_near_ones(wrong, near):
    with pytest.raises(ValueError, match=f"unknown activation '{wrong}'; nearest: .*{near}"):
        fresh().run(some_tokens(), [wrong])


@each_positions
@each_copy
@pytest.mark.parametrize("last", [1, 3, 12])
def test_the_last_logits_are_the_tail_of_all(last, copy, positions):
    model, tokens = shaken(copy=copy, positions=positions), some_tokens(n=12)
    torch.testing.assert_close(model(tokens, last=last), model(tokens)[:, -last:])


@each_positions
@each_copy
def test_fused_and_explicit_attention_agree(copy, positions):
    model, tokens = shaken(copy=copy, positions=positions).double(), some_tokens()
    explicit = model.run(tokens, ["logits"])["logits"]
    torch.testing.assert_close(model(tokens), explicit, atol=1e-11, rtol=1e-11)


@each_positions
@each_copy
def test_the_future_does_not_change_the_past(copy, positions):
    model, tokens = shaken(copy=copy, positions=positions), some_tokens(n=10)
    other = tokens.clone()
    other[:, 6:] = (other[:, 6:] + 1) % SMALL.d_vocab
    before, after = model.run(tokens), model.run(other)
    for name in model.activation_names():
        axis = -2 if name.endswith("pattern") else 1
        a, b = (x[name].narrow(axis, 0, 6) for x in (before, after))
        torch.testing.assert_close(a, b, msg=name)
    assert not torch.allclose(before["logits"][:, 6:], after["logits"][:, 6:])


@pytest.mark.parametrize("positions", ["rotary", "learned"])
def test_order_matters(positions):
    """Without positions the last token would read the others as a set."""
    model, tokens = shaken(positions=positions), some_tokens(batch=1, n=6)
    swapped = tokens[:, [1, 0, 2, 3, 4, 5]]
    assert not torch.allclose(model(tokens)[:, -1], model(swapped)[:, -1], atol=1e-4)


def test_rotary_turns_pairs_by_position_times_frequency():
    x = torch.randn(1, 1, 5, 6, generator=seeded(), dtype=torch.float64)
    got = rotary(x, first=2)
    for t in range(5):
        for i in range(3):
            turn = complex(
                math.cos((2 + t) * 10_000 ** (-i / 3)), math.sin((2 + t) * 10_000 ** (-i / 3))
            )
            want = complex(x[0, 0, t, i], x[0, 0, t, i + 3]) * turn
            assert abs(complex(got[0, 0, t, i], got[0, 0, t, i + 3]) - want) < 1e-5


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
def test_rotary_products_depend_on_distance_only(i, j, shift):
    q, k = torch.randn(2, 1, 1, 1, 8, generator=seeded())
    near = (rotary(q, i) * rotary(k, j)).sum()
    far = (rotary(q, i + shift) * rotary(k, j + shift)).sum()
    torch.testing.assert_close(near, far, atol=1e-4, rtol=1e-4)


def test_copy_attention_equals_a_slow_loop():
    d, n = 6, 5
    head = CopyAttention(d).double()
    with torch.no_grad():
        head.gate.fill_(0.7)
    final, embed = torch.randn(2, 2, n, d, generator=seeded(), dtype=torch.float64)
    with torch.no_grad():
        causal = torch.ones(n, n, dtype=torch.bool).tril()
        out, pattern = head(final, embed, causal, n)
        tail = head(final, embed, causal, 2)
    torch.testing.assert_close(tail, (out[:, -2:], pattern[:, -2:]))
    for b in range(2):
        for t in range(n):
            query = head.query.weight.detach() @ final[b, t]
            weights = [
                math.exp(query @ head.key.weight.detach() @ final[b, s] / math.sqrt(d))
                for s in range(t + 1)
            ]
            want = sum(w * embed[b, s] for s, w in enumerate(weights)) / sum(weights)
            torch.testing.assert_close(out[b, t], 0.7 * want)
            assert float(pattern[b, t, t]) == pytest.approx(weights[t] / sum(weights))


def test_copy_output_is_added_before_the_unembedding():
    model, tokens = shaken(copy=True, tied=False), some_tokens()
    got = model.run(tokens)
    torch.testing.assert_close(got["logits"], (got["final"] + got["copy.out"]) @ model.W_U.T)
    torch.testing.assert_close(
        got["copy.out"], model.copy.gate * got["copy.pattern"] @ model.W_E[tokens]
    )


def test_a_closed_gate_is_no_copy_head():
    """The same weights elsewhere, and a gate of 0: the plain model's logits."""
    copying, plain, tokens = shaken(copy=True), shaken(copy=False), some_tokens()
    plain.load_state_dict({k: v for k, v in copying.state_dict().items() if "copy" not in k})
    with torch.no_grad():
        copying.copy.gate.zero_()
    torch.testing.assert_close(copying(tokens), plain(tokens))


def test_the_copy_head_is_absent_unless_asked_for():
    plain, copying = fresh(), fresh(copy=True)
    assert plain.copy is None
    assert not any("copy" in name for name in [*plain.state_dict(), *plain.activation_names()])
    assert copying.copy.gate.item() == 1.0
    extra = dict(copying.named_parameters()).keys() - dict(plain.named_parameters()).keys()
    assert extra == {"copy.query.weight", "copy.key.weight", "copy.gate"}


@each_tying
def test_tying_is_one_storage_listed_once(tied):
    model = fresh(tied=tied)
    assert (model.W_E.data_ptr() == model.W_U.data_ptr()) == tied
    assert len(model.embedding_parameters()) == (1 if tied else 2)
    pointers = [p.data_ptr() for p in model.parameters()]
    assert len(pointers) == len(set(pointers))
    assert {p.data_ptr() for p in model.embedding_parameters()} <= set(pointers)


def test_tying_outlives_a_move_and_a_load():
    model = fresh(tied=True).double()
    model.load_state_dict(fresh(seed=5, tied=True).double().state_dict())
    assert model.W_E is model.W_U


def sha(model):
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        digest.update(name.encode() + value.numpy().tobytes())
    return digest.hexdigest()


@each_tying
@each_copy
@each_positions
def test_one_seed_is_one_model(tied, copy, positions):
    changes = {"tied": tied, "copy": copy, "positions": positions}
    torch.manual_seed(1)
    once = sha(fresh(0, **changes))
    torch.manual_seed(2)
    torch.randn(7)
    assert once == sha(fresh(0, **changes))
    assert once != sha(fresh(1, **changes))


def test_first_weights_have_the_stated_spread():
    model = fresh(d_vocab=400, d_model=64, embed_std=0.05, tied=False, positions="learned")
    block = model.blocks[0]
    for weights, std in [
        (model.W_E, 0.05),
        (model.W_U, 0.05),
        (model.W_pos, 0.1),
        (block.query.weight, 64**-0.5),
        (block.up.weight, 64**-0.5),
        (block.down.weight, 256**-0.5),
    ]:
        assert weights.std().item() == pytest.approx(std, rel=0.1)
    assert not block.up.bias.any()
    assert torch.equal(model.ln_final.weight, torch.ones(64))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"d_model": 10, "n_heads": 4}, "even whole d_head"),
        ({"d_model": 12, "n_heads": 4}, "even whole d_head"),
        ({"n_layers": 0}, "at least 1"),
        ({"d_vocab": 0}, "at least 1"),
        ({"embed_std": 0.0}, "above 0"),
        ({"embed_std": math.nan}, "above 0"),
        ({"positions": "sinusoidal"}, "rotary, learned"),
        ({"n_heads": 0}, "n_heads"),
        ({"d_model": 0}, "d_model"),
        ({"positions": "learned", "n_ctx": 0}, "n_ctx"),
    ],
)
def test_impossible_sizes_say_what_is_wrong(settings, message):
    with pytest.raises(ValueError, match=message):
        Transformer(dataclasses.replace(SMALL, **settings))


def test_a_text_longer_than_the_learned_positions_is_refused():
    with pytest.raises(ValueError, match="n_ctx"):
        fresh(positions="learned")(some_tokens(n=SMALL.n_ctx + 1))


@each_copy
@pytest.mark.parametrize("last", [0, 13])
def test_asking_for_positions_that_are_not_there_is_refused(last, copy):
    with pytest.raises(ValueError, match="last"):
        fresh(copy=copy)(some_tokens(n=12), last=last)
