"""The command line: readable help, nearest names, one line for a mistake."""

import json
import re
import shutil
from types import SimpleNamespace

import pytest

from lib import cli
from lib.experiments import logic_run
from lib.sweeps import sweep


def call(monkeypatch, capsys, *words):
    monkeypatch.setattr("sys.argv", ["lib", *words])
    code = 0
    try:
        cli.main()
    except SystemExit as stop:
        code = stop.code or 0
    said = capsys.readouterr()
    return code, re.sub(r"\x1b\[[0-9;]*m", "", said.out), said.err


def test_run_prints_a_table(monkeypatch, capsys):
    code, out, err = call(
        monkeypatch, capsys, "run", "logic", "--preset", "tiny", "--steps", "2", "--device", "cpu"
    )
    assert code == 0 and err == ""
    assert [line.split()[0] for line in out.splitlines()] == ["share", "step", "0", "2"]


def test_run_prints_losses_for_language_models(monkeypatch, capsys):
    rows = [
        {"step": s, "loss_validation": 5.0, "loss_test": 4.5, "W_U_unseen_cosine": 0.1}
        for s in (0, 1)
    ]
    monkeypatch.setattr(cli, "train", lambda *args: SimpleNamespace(history=rows))
    code, out, err = call(monkeypatch, capsys, "run", "logic", "--preset", "text")
    assert code == 0 and err == ""
    assert [line.split()[0] for line in out.splitlines()] == ["nats", "step", "0", "1"]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--arm", "coppy"], "nearest: copy"),
        (["--preset", "labtop"], "nearest: laptop"),
        (["--device", "tpu"], "use auto, cpu, cuda or mps"),
        (["--preset", "tiny", "--seed", "-1"], "seed"),
    ],
)
def test_a_mistake_is_one_line(monkeypatch, capsys, words, hint):
    code, out, err = call(monkeypatch, capsys, "run", "logic", *words)
    assert code == 2 and hint in err and len(err.splitlines()) == 1 and out == ""


def test_seed_zero_is_a_seed_like_any_other():
    assert logic_run("laptop", seed=0).seed == 0
    assert logic_run("laptop", seed=0) != logic_run("laptop", seed=1)


@pytest.mark.parametrize("shard", [(2, 2), (-1, 2)])
def test_impossible_shards_are_refused(shard):
    with pytest.raises(ValueError, match="shard"):
        sweep("logic", shard=shard)


def test_claims_as_json(monkeypatch, capsys):
    code, out, _ = call(monkeypatch, capsys, "claims", "--json")
    assert code == 0 and "A1" in json.loads(out)


def test_help_fits_a_person(monkeypatch, capsys):
    code, out, _ = call(monkeypatch, capsys, "run", "--help")
    assert code == 0 and "Train one model" in out and "--device" in out


# ---- rows of a language model ----


@pytest.fixture(scope="module")
def folder(save_model, tmp_path_factory):
    """A tied model: ten unused rows and that of `<b>` lie together, one row has no name."""
    words = ["<pad>", "<eos>", "<bos>", "<unk>", *(f"<unused{i}>" for i in range(10)), "<b>"]
    words += [f"word{i}" for i in range(40)]

    def rows(_, W):
        W[4:15] = W[20] + 0.1 * W[4:15]
        W[20] = W[21] + W[22]
        return W

    made = tmp_path_factory.mktemp("model")
    save_model(made, "gemma3", words, len(words) + 1, rows)
    return made


@pytest.mark.parametrize("suffix", [".html", ".json", None])
def test_diagnose_prints_and_writes(monkeypatch, capsys, tmp_path, folder, suffix):
    out = tmp_path / "new" / f"report{suffix}"
    words = ["diagnose", str(folder), *(["--out", str(out)] if suffix else [])]
    code, said, err = call(monkeypatch, capsys, *words)
    assert code == 0 and err == ""
    assert f"W_E of {folder}, 56 rows" in said and "14 '<b>'  score" in said
    assert said.endswith(f"written: {out}\n") == bool(suffix)
    if suffix == ".json":
        found = json.loads(out.read_text("utf-8"))["matrices"]["W_E"]
        assert found["collapsed"] and 14 in found["hidden"]
    if suffix == ".html":
        assert out.read_text("utf-8").startswith("<!doctype html>")
    assert out.exists() == bool(suffix)


def test_diagnose_takes_unused_tokens_and_a_length_of_the_list(monkeypatch, capsys, folder):
    words = ["diagnose", str(folder), "--unused", "<unused0>", "id:6-9", "--top", "3"]
    code, out, err = call(monkeypatch, capsys, *words)
    assert code == 0 and err == "" and out.count(", length ") == 3
    assert "tokens named by you" in out and "names like" not in out


def test_repair_writes_a_folder_that_diagnose_reads(monkeypatch, capsys, tmp_path, folder):
    out = tmp_path / "mended"
    words = ["repair", str(folder), "--tokens", "<unused0>", "<b>", "id:6-8", "--out", str(out)]
    code, said, err = call(monkeypatch, capsys, *words, "--method", "orthogonal", "--seed", "4")
    assert code == 0 and err == "" and len(said.splitlines()) == 2
    assert re.search(r"W_E: 5 rows, mean cosine 0\.9\d+ before, -?0\.[01]\d* after", said)
    record = json.loads((out / "repair.json").read_text("utf-8"))
    assert (record["method"], record["seed"], record["ids"]) == ("orthogonal", 4, [4, 6, 7, 8, 14])
    assert call(monkeypatch, capsys, "diagnose", str(out))[0] == 0
    code, said, err = call(monkeypatch, capsys, *words)
    assert code == 2 and said == "" and "written over a model" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["diagnose", "FOLDER", "--out", "report.pdf"], "ends in .html or .json"),
        (["diagnose", "FOLDER", "--unused", "nonsense"], "no token 'nonsense'"),
        (["diagnose", "FOLDER", "--unused", "id:7"], "no two rows"),
        (["diagnose", "./nowhere"], "no folder './nowhere'"),
        (["diagnose", "gemma"], "unknown model 'gemma'"),
        (["diagnose", "owner/no-such-model"], "HF_TOKEN"),
        (["repair", "FOLDER", "--tokens", "id:99", "--out", "OUT"], "ids run from 0 to 55"),
        (["repair", "FOLDER", "--tokens", "--out", "OUT"], "no tokens"),
        (["repair", "FOLDER", "--tokens", "<b>", "--out", "FOLDER"], "is there already"),
        (["repair", "FOLDER", "--tokens", "<b>", "--out", "OUT", "--seed", "-1"], "negative"),
    ],
)
def test_a_mistake_about_rows_is_one_line(monkeypatch, capsys, tmp_path, folder, words, hint):
    places = {"FOLDER": str(folder), "OUT": str(tmp_path / "out")}
    code, out, err = call(monkeypatch, capsys, *(places.get(word, word) for word in words))
    assert code == 2 and hint in err and len(err.splitlines()) == 1 and out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_one_line(monkeypatch, capsys, tmp_path, folder):
    broken = shutil.copytree(folder, tmp_path / "broken")
    with open(broken / "model.safetensors", "r+b") as file:
        file.truncate(1000)
    for words in (["diagnose", str(broken)], ["repair", str(broken), "--tokens", "<b>"]):
        more = ["--out", str(tmp_path / "out")] if words[0] == "repair" else []
        code, out, err = call(monkeypatch, capsys, *words, *more)
        assert code == 2 and err.startswith("error: ") and len(err.splitlines()) == 1 and out == ""
    assert list(tmp_path.iterdir()) == [broken]


def test_tune_prints_a_table_and_refuses_slips(monkeypatch, capsys):
    asked = []

    def run_tuning(config, device):
        asked.append((config, device))
        row = {"loss": float("nan"), "whole": 0.5, "names": 1.0, "last": 0.5}
        return [{"step": step, **row} for step in (0, 5)], {}

    monkeypatch.setattr(cli, "run_tuning", run_tuning)
    words = ("tune", "unused", "--treatment", "mean_cov", "--device", "cpu", "--seed", "3")
    code, out, err = call(monkeypatch, capsys, *words)
    assert code == 0 and err == ""
    assert [line.split()[0] for line in out.splitlines()] == ["held-out", "step", "0", "5"]
    ((config, device),) = asked
    assert (config.symbols, config.treatment, config.seed, device) == (
        *("unused", "mean_cov"),
        *(3, "cpu"),
    )
    code, out, err = call(monkeypatch, capsys, "tune", "unsued")
    assert code == 2 and err.startswith("error: unknown kind of symbols 'unsued'; nearest: unused")
    code, _, err = call(monkeypatch, capsys, "tune", "words", "--preset", "papre")
    assert code == 2 and "nearest: paper" in err
