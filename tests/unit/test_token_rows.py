"""Token rows of small models in folders: examined, mended into a new folder, reported."""

import json
import re
import shutil

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from lib import diagnosis, model_files, report, token_rows
from lib.token_rows import examine, ids_of, mend

UNUSED, ODD, ROWS = list(range(4, 16)), 40, 64  # ODD: "<b>", collapsed without such a name
WORDS = ["<pad>", "<eos>", "<bos>", "<unk>", *(f"<unused{i}>" for i in range(12))]
WORDS += [f"word{i}" for i in range(16, 60)]  # 4 rows more than names
WORDS[ODD] = "<b>"
BEYOND = [60, 61, 62, 63]
CHOSEN, IDS = ["<unused0>", "id:6-8", "<b>"], [4, 6, 7, 8, ODD]
BOTH = pytest.mark.parametrize("kind", ["gemma3", "llama"])
MATRICES = {"gemma3": ["W_E"], "llama": ["W_E", "W_U"]}


def ruined(name, W):
    """All rows of one length but for two; unused and beyond collapsed, and one with a name like others."""
    generator = torch.Generator().manual_seed(len(name) + (name == "W_U"))
    W = torch.randn(W.shape, generator=generator)
    rows = [*UNUSED, *BEYOND, ODD]
    W[rows] = W[0] + 0.2 * W[rows]
    W[0] = W[16] + W[17]
    W = W / W.norm(dim=1, keepdim=True)
    W[[4, 6]] *= torch.tensor([[0.1], [3.0]])
    return W


@pytest.fixture(scope="module")
def folders(save_model, tmp_path_factory):
    made = {kind: tmp_path_factory.mktemp(kind) for kind in MATRICES}
    for kind, folder in made.items():
        save_model(folder, kind, WORDS, ROWS, ruined)
    return made


@pytest.fixture
def gemma(folders):
    return folders["gemma3"]


def stored(folder):
    """Every tensor of a folder's safetensors files, by file and key."""
    return {f.name: load_file(f) for f in sorted(folder.glob("*.safetensors"))}


def differing(before, after):
    """(file, key) -> rows that are not the same bits."""
    assert {f: list(t) for f, t in before.items()} == {f: list(t) for f, t in after.items()}
    found = {}
    for file, tensors in before.items():
        for key, old in tensors.items():
            new = after[file][key]
            assert new.dtype == old.dtype and new.shape == old.shape
            if not torch.equal(old, new):
                found[file, key] = (old != new).any(dim=1).nonzero().flatten().tolist()
    return found


def read(folder):
    from transformers import AutoModelForCausalLM

    with model_files.quiet(model_files.package("transformers")):
        return AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)


# ---- examine ----


@BOTH
def test_planted_rows_of_a_model_are_found(folders, kind):
    found = examine(folders[kind])
    assert found.model == str(folders[kind]) and found.names[ODD] == "<b>"
    assert found.groups == {
        "names like <unused0>, ids 4 to 15": UNUSED,
        "rows beyond the tokenizer": BEYOND,
    }
    assert list(found.matrices) == MATRICES[kind]
    for one in found.matrices.values():
        assert one.collapsed and not one.short and one.hidden == [ODD] and len(one.score) == ROWS
    hf = read(folders[kind])
    ends = {"W_E": hf.get_input_embeddings(), "W_U": hf.get_output_embeddings()}
    for name, W in model_files.matrices(folders[kind]).items():
        assert torch.equal(W, ends[name].weight)
        again = diagnosis.diagnose(W, found.groups)
        assert torch.equal(again.score, found.matrices[name].score)


def test_what_a_person_names_replaces_what_names_say(gemma):
    found = examine(str(gemma), ["<unused3>", "id:60-63"])
    assert found.groups == {"tokens named by you": [7, *BEYOND]}
    assert set(found.matrices["W_E"].hidden) >= {*UNUSED, ODD} - {7}


def test_record_is_plain_json_with_the_hidden_in_full(gemma):
    record = examine(gemma).record(top=0)
    assert json.loads(json.dumps(record)) == record
    one = record["matrices"]["W_E"]
    assert one["hidden"] == [ODD] and one["worst"] == [] and one["rows"] == ROWS
    assert one["collapsed"] is True and one["zero"] == []
    assert one["spreads"]["rows beyond the tokenizer"]["rows"] == 4
    assert "no cause" in record["cannot_know"]


def test_model_without_names_that_say_so_asks_for_them(save_model, tmp_path):
    words = [w.replace("unused", "x") for w in WORDS]
    save_model(tmp_path, "gemma3", [*words, *"abcd"], ROWS, ruined)
    with pytest.raises(ValueError, match="--unused"):
        examine(tmp_path)
    found = examine(tmp_path, ["id:4-15"])
    assert set(found.matrices["W_E"].hidden) == {ODD, *BEYOND}


# ---- ids ----

VOCABULARY = {"a": 0, "<unused0>": 1, "id:7": 2, "far": 9}


def test_ids_come_by_name_number_or_range_each_once_in_order():
    assert ids_of(["id:3-5", "<unused0>", "id:4", "a", "id:0"], VOCABULARY, 8) == [0, 1, 3, 4, 5]
    assert ids_of(["id:7"], VOCABULARY, 8) == [7]  # not the token of that name
    assert ids_of([], VOCABULARY, 8) == []


@pytest.mark.parametrize(
    ("token", "says"),
    [
        ("b", "no token 'b': .* id:NUMBER"),
        ("id:8", "ids run from 0 to 7"),
        ("id:5-8", "ids run from 0 to 7"),
        ("id:5-3", "the lower one first"),
        ("id:-1", "no token 'id:-1'"),
        ("id:", "no token"),
        ("far", "'far' has id 9: .*0 to 7"),
    ],
)
def test_what_no_row_belongs_to_is_refused(token, says):
    with pytest.raises(ValueError, match=says) as caught:
        ids_of(["a", token], VOCABULARY, 8)
    assert "\n" not in str(caught.value)


# ---- mend ----


@BOTH
@pytest.mark.parametrize("method", ["mean_cov", "orthogonal"])
def test_only_chosen_rows_differ_in_what_transformers_reads(folders, tmp_path, kind, method):
    folder, out = folders[kind], tmp_path / "deep" / "out"
    untouched = {f.name: f.read_bytes() for f in folder.iterdir()}
    record = mend(folder, CHOSEN, method, out)
    assert {f.name: f.read_bytes() for f in folder.iterdir()} == untouched
    changed = differing(stored(folder), stored(out))
    assert len(changed) == len(MATRICES[kind]) and all(rows == IDS for rows in changed.values())
    same = set(untouched) - {"model.safetensors"}
    assert {f.name for f in out.iterdir()} == {*untouched, "repair.json"}
    assert all((out / name).read_bytes() == untouched[name] for name in same)
    assert list(out.parent.iterdir()) == [out]
    before, after = read(folder), read(out)
    others = [i for i in range(ROWS) if i not in IDS]
    for hf in (before, after):
        shared = hf.get_input_embeddings().weight is hf.get_output_embeddings().weight
        assert shared == (kind == "gemma3") == record["tied"]
    ends = {"embed_tokens": "W_E", "lm_head": "W_U"}
    for (name, old), new in zip(before.named_parameters(), after.parameters(), strict=True):
        which = [matrix for part, matrix in ends.items() if part in name]
        if not which:
            assert torch.equal(old, new), name
            continue
        assert torch.equal(old[others], new[others])
        lengths = torch.tensor([1.0, 3.0, 1, 1, 1])  # the first was too short to be read
        torch.testing.assert_close(new[IDS].norm(dim=1), lengths)
        matrix = record["matrices"][which[0]]
        assert matrix["mean_cosine_before"] > 0.8 and matrix["mean_cosine_after"] < 0.3
        pairs = torch.cosine_similarity(new[IDS][:, None], new[IDS], dim=-1)
        mean = float((pairs.detach().sum() - 5) / 20)
        assert matrix["mean_cosine_after"] == pytest.approx(mean, abs=1e-4)
    assert examine(out).matrices["W_E"].hidden == []


def test_record_says_what_was_done(gemma, tmp_path):
    record = mend(str(gemma), CHOSEN, "mean_diag", tmp_path / "out", seed=3)
    assert json.loads((tmp_path / "out" / "repair.json").read_text("utf-8")) == record
    versions = record.pop("versions")
    assert {"python", "torch", "numpy"} <= set(versions)
    matrix = record.pop("matrices")["W_E"]
    assert set(matrix) == {"used_rows", "mean_cosine_before", "mean_cosine_after"}
    assert matrix["used_rows"] == ROWS - len(UNUSED) - len(BEYOND) - 1
    assert record == {
        "model": str(gemma),
        "method": "mean_diag",
        "seed": 3,
        "ids": IDS,
        "tokens": ["<unused0>", "<unused2>", "<unused3>", "<unused4>", "<b>"],
        "tied": True,
    }


def test_rows_without_a_name_can_be_mended(gemma, tmp_path):
    record = mend(gemma, ["id:62", "<unused0>"], "mean_cov", tmp_path / "out")
    assert record["ids"] == [4, 62] and record["tokens"] == ["<unused0>"]
    one = mend(gemma, ["id:62"], "mean_cov", tmp_path / "one")
    assert one["matrices"]["W_E"]["mean_cosine_after"] is None


def test_seed_and_method_decide_the_rows(gemma, tmp_path):
    rows = {}
    for name, method, seed in (("a", "mean_cov", 0), ("b", "mean_cov", 0), ("c", "mean_cov", 1)):
        mend(gemma, CHOSEN, method, tmp_path / name, seed)
        rows[name] = model_files.matrices(tmp_path / name)["W_E"]
    assert torch.equal(rows["a"], rows["b"]) and not torch.equal(rows["a"], rows["c"])


def test_input_and_output_rows_of_an_untied_model_are_drawn_apart(folders, tmp_path):
    mend(folders["llama"], CHOSEN, "mean_cov", tmp_path / "out")
    W = model_files.matrices(tmp_path / "out")
    assert torch.cosine_similarity(W["W_E"][IDS], W["W_U"][IDS]).abs().mean() < 0.5


def test_used_rows_are_neither_known_found_nor_named(gemma):
    found = examine(gemma)
    left = [i for i in range(ROWS) if i not in {*UNUSED, *BEYOND, ODD, 20}]
    away = (*found.groups.values(), found.matrices["W_E"].hidden, [20])
    assert token_rows.used_rows(ROWS, *away) == left
    assert token_rows.used_rows(3) == [0, 1, 2]


def test_one_token_is_mended_where_nothing_is_known_to_be_unused(save_model, tmp_path):
    """A single row says nothing about where unused ones lie: all others are taken as used."""
    names = ["<pad>", "<eos>", "<bos>", "<unk>", *(f"w{i}" for i in range(60))]
    save_model(tmp_path / "in", "gemma3", names, len(names), lambda _, W: W)
    record = mend(tmp_path / "in", ["w7"], "mean_cov", tmp_path / "out")
    assert record["ids"] == [names.index("w7")]
    assert record["matrices"]["W_E"]["used_rows"] == len(names) - 1


@pytest.mark.parametrize("kind", ["gemma3", "llama"])
def test_sharded_checkpoints(save_model, tmp_path, kind):
    folder, out = tmp_path / "in", tmp_path / "out"
    save_model(folder, kind, WORDS, ROWS, ruined, max_shard_size="10KB")
    assert len(stored(folder)) > 2
    mend(folder, CHOSEN, "mean_cov", out)
    changed = differing(stored(folder), stored(out))
    assert len(changed) == len(MATRICES[kind]) and all(rows == IDS for rows in changed.values())
    assert (out / model_files.INDEX).read_bytes() == (folder / model_files.INDEX).read_bytes()
    W = read(out).get_output_embeddings().weight
    assert torch.equal(W, model_files.matrices(out)[MATRICES[kind][-1]])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_precision_of_the_file_stays(save_model, tmp_path, dtype):
    folder, out = tmp_path / "in", tmp_path / "out"
    save_model(folder, "gemma3", WORDS, ROWS, lambda n, W: ruined(n, W) / 3, dtype)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    key = "model.embed_tokens.weight"
    if dtype == torch.float64:
        tensors[key] += 1e-12  # what float32 could not hold
        save_file(tensors, file, {"format": "pt"})
    mend(folder, CHOSEN, "mean_cov", out)
    assert differing(stored(folder), stored(out)) == {("model.safetensors", key): IDS}
    assert {t.dtype for t in stored(out)["model.safetensors"].values()} == {dtype}
    with safe_open(file, "pt") as old, safe_open(out / "model.safetensors", "pt") as new:
        assert old.metadata() == new.metadata() == {"format": "pt"}
    assert examine(out).matrices["W_E"].hidden == []


def test_tied_matrix_that_is_stored_twice_stays_tied(gemma, tmp_path):
    folder, out = tmp_path / "in", tmp_path / "out"
    shutil.copytree(gemma, folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    record = mend(folder, CHOSEN, "mean_cov", out)
    assert record["tied"] and list(record["matrices"]) == ["W_E"]
    assert list(differing(stored(folder), stored(out)).values()) == [IDS, IDS]
    hf = read(out)
    assert hf.get_input_embeddings().weight is hf.get_output_embeddings().weight


def test_two_matrices_that_only_the_configuration_ties_are_refused(gemma, tmp_path):
    folder = tmp_path / "in"
    shutil.copytree(gemma, folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = 2 * tensors["model.embed_tokens.weight"]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match="the two matrices differ"):
        mend(folder, CHOSEN, "mean_cov", tmp_path / "out")


# ---- what must not happen ----


def test_nothing_is_written_over_a_folder(gemma, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    for write in (
        lambda: mend(gemma, CHOSEN, "mean_cov", out),
        lambda: model_files.rewrite(gemma, out, lambda _, W: W, {}),
        lambda: mend(gemma, CHOSEN, "mean_cov", gemma),
    ):
        with pytest.raises(FileExistsError, match="nothing is ever written over a model"):
            write()
    assert list(out.iterdir()) == [] and list(tmp_path.iterdir()) == [out]
    assert not (gemma / "repair.json").exists()


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_failed_run_leaves_nothing(gemma, tmp_path, monkeypatch, error):
    def fails(*_):
        raise error

    monkeypatch.setattr(model_files, "save_file", fails)
    with pytest.raises(type(error)):
        mend(gemma, CHOSEN, "mean_cov", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("tokens", "method", "says"),
    [
        ([], "mean_cov", "no tokens"),
        (["nonsense"], "mean_cov", "no token 'nonsense'"),
        (["id:64"], "mean_cov", "0 to 63"),
        (CHOSEN, "mean_covv", "nearest: mean_cov"),
        (["id:4-39"], "orthogonal", "36 orthogonal rows do not fit into 32"),
        (["id:0-63"], "mean_cov", "0 row"),
    ],
)
def test_what_cannot_be_mended_is_one_line_and_no_folder(gemma, tmp_path, tokens, method, says):
    with pytest.raises(ValueError, match=says) as caught:
        mend(gemma, tokens, method, tmp_path / "out")
    assert "\n" not in str(caught.value) and list(tmp_path.iterdir()) == []


def test_folder_without_safetensors_says_what_to_do(gemma, tmp_path):
    folder = tmp_path / "in"
    shutil.copytree(gemma, folder)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    for use in (
        lambda: examine(folder),
        lambda: mend(folder, CHOSEN, "mean_cov", tmp_path / "out"),
        lambda: model_files.rewrite(folder, tmp_path / "out", lambda _, W: W, {}),
    ):
        with pytest.raises(FileNotFoundError, match="no safetensors .* save_pretrained") as caught:
            use()
        assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == [folder]


# ---- report ----


@pytest.fixture(scope="module")
def blank(save_model, tmp_path_factory):
    """A model whose unused rows are all zero: nothing has a score."""
    folder = tmp_path_factory.mktemp("blank")
    rows = [*UNUSED, *BEYOND, ODD]

    def zero(_, W):
        return W.index_fill(0, torch.tensor([0, *rows]), 0.0)

    save_model(folder, "gemma3", WORDS, ROWS, zero)
    return folder


def test_text_says_what_was_found(folders):
    said = report.as_text(examine(folders["llama"]))
    for name in ("W_E", "W_U"):
        assert f"{name} of {folders['llama']}, 64 rows" in said
    assert said.count("unused lie together, apart from used ones. 1 other row is like them.") == 2
    assert said.count(f"{ODD} '<b>'  score 0.9") == 2
    assert token_rows.CANNOT_KNOW in said and "nan" not in said


def test_json_has_no_missing_numbers_but_null(gemma, blank):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    for folder in (gemma, blank):
        found = examine(folder)
        read_back = json.loads(report.as_json(found), parse_constant=refuse)
        assert read_back["matrices"]["W_E"]["hidden"] == found.matrices["W_E"].hidden
        assert read_back["model"] == str(folder)
    assert read_back["matrices"]["W_E"]["spreads"]["rows beyond the tokenizer"]["score"] is None


def test_zero_rows_are_called_zero(blank):
    found = examine(blank)
    assert found.matrices["W_E"].hidden == [0, ODD]
    said = report.judgement(found.matrices["W_E"])
    assert "lie together" in said and "direction" not in said and said.endswith("18 rows are zero.")
    assert report.as_html(found).count("<img") == 1


def test_page_stands_alone_and_shows_names_as_text(folders):
    from bs4 import BeautifulSoup

    for kind, folder in folders.items():
        text = report.as_html(examine(folder))
        assert "&lt;b&gt;" in text and "<b>" not in text
        page = BeautifulSoup(text, "html.parser")
        assert str(folder) in page.h1.text
        assert not page.find_all(["script", "link", "iframe"]) and "@import" not in text
        assert all(tag.name == "img" for tag in page.find_all(src=True))
        assert len(page.find_all("img")) == len(MATRICES[kind])
        assert all(i["src"].startswith("data:image/png;base64,") and i["alt"] for i in page("img"))
        assert not page.find_all(href=True) and not page.find_all(srcset=True)
        assert not re.search(r"url\(", text)
        cells = [[cell.text for cell in row("td")] for row in page("tr")]
        assert [c[:2] for c in cells if c and c[0] == str(ODD)] == [[str(ODD), "<b>"]] * len(
            MATRICES[kind]
        )


def test_name_of_the_model_is_text_too(gemma, tmp_path):
    folder = tmp_path / "<i>"
    folder.symlink_to(gemma)
    assert "<i>" not in report.as_html(examine(folder))


def test_top_cuts_the_list_only(gemma):
    found = examine(gemma, ["<unused3>", "id:60-63"])
    hidden = found.matrices["W_E"].hidden
    assert len(hidden) > 5
    record = json.loads(report.as_json(found, top=3))["matrices"]["W_E"]
    assert [row["id"] for row in record["worst"]] == hidden[:3] and record["hidden"] == hidden
    assert report.as_text(found, top=2).count(", length ") == 2
