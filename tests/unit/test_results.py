"""The store: runs once, loads afterwards, never half, never another's, never overwritten unseen."""

import dataclasses
import datetime
import hashlib
import importlib.metadata
import json
import subprocess
import sys
import threading
import time

import pandas as pd
import pytest
import torch

from lib import results, training
from lib.generators import logic
from lib.models.transformer import TransformerConfig
from lib.policies import Freeze, FreezeRows, Learn, Reset


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = 0
    lr: float = 0.1


@dataclasses.dataclass(frozen=True)
class Other:
    seed: int = 0
    lr: float = 0.1


def run(config):
    rows = [{"step": s, "loss": config.lr / (s + 3), "arm": "plain"} for s in range(3)]
    return rows, {"W": torch.full((2, 3), float(config.seed))}


def no_tensors(config):
    return run(config)[0], {}


def never(config):
    raise AssertionError("it ran although it was stored")


def failing(config):
    raise FloatingPointError("loss is nan")


def files(store):
    """Everything in the store but the lock, by name."""
    return {p.name: p.read_bytes() for p in store.iterdir() if p.name != ".lock"}


@pytest.fixture
def store(tmp_path):
    """A store with one run in it."""
    root = tmp_path / "results"
    results.load_or_run("toy", Config(), run, store=root)
    return root


NAME = f"toy-{results.config_hash(Config())}.safetensors"


def test_it_runs_once_and_loads_afterwards(tmp_path):
    first = results.load_or_run("toy", Config(), run, store=tmp_path)
    again = results.load_or_run("toy", Config(), never, store=tmp_path)
    pd.testing.assert_frame_equal(first, again)
    assert list(first.columns) == ["config", "step", "loss", "arm"]
    assert first["step"].tolist() == [0, 1, 2]
    assert first["loss"].tolist() == pytest.approx([0.1 / 3, 0.1 / 4, 0.1 / 5], rel=1e-5)


def test_seeds_stand_side_by_side(store):
    results.load_or_run("toy", Config(seed=1), run, store=store)
    table = results.table("toy", store)
    assert table["config"].value_counts().tolist() == [3, 3]
    for seed in (0, 1):
        key = results.config_hash(Config(seed))
        assert results.tensors("toy", key, store)["W"].unique().tolist() == [seed]
    assert len(results.load_or_run("toy", Config(seed=1), never, store=store)) == 3


def test_experiments_do_not_mix(store):
    results.load_or_run("more", Config(), lambda c: ([{"x": 1}], {}), store=store)
    assert list(results.table("more", store).columns) == ["config", "x"]
    assert len(results.table("toy", store)) == 3
    assert results.verify(store) == sorted(["more.csv", "toy.csv", NAME])


TASK = logic.LogicConfig(1, 8, 4)
RUN = training.RunConfig(
    task=TASK, model=TransformerConfig(d_vocab=TASK.d_vocab, d_model=8, n_heads=2)
)
CHANGES = {
    "policy": Reset(),
    "optimiser": "sgd",
    "lr": 0.5,
    "embed_lr_scale": 0.5,
    "weight_decay": 0.5,
    "batch": 5,
    "steps": 5,
    "eval_every": 5,
    "eval_problems": 5,
    "seed": 5,
    "precision": "bfloat16",
    "compiled": True,
    "model": dataclasses.replace(RUN.model, n_layers=3),
}


@pytest.mark.parametrize("field", CHANGES)
def test_the_key_changes_with_each_field(field):
    other = dataclasses.replace(RUN, **{field: CHANGES[field]})
    assert results.config_hash(other) != results.config_hash(RUN)


def test_every_field_of_a_run_has_been_changed():
    assert CHANGES.keys() | {"task"} == {f.name for f in dataclasses.fields(training.RunConfig)}


@pytest.mark.parametrize("field", ["tied", "copy", "positions", "embed_std", "d_model", "n_ctx"])
def test_the_key_changes_with_each_field_of_the_model(field):
    value = {"positions": "learned", "embed_std": 0.5, "d_model": 16, "n_ctx": 99}
    flipped = value.get(field, not getattr(RUN.model, field))
    other = dataclasses.replace(RUN, model=dataclasses.replace(RUN.model, **{field: flipped}))
    assert results.config_hash(other) != results.config_hash(RUN)


def test_classes_with_the_same_fields_have_different_keys():
    assert results.config_hash(Config()) != results.config_hash(Other())
    policies = [Learn(), Freeze(), Reset(), Reset(every=5), Reset(until=9), FreezeRows((1,))]
    keys = {results.config_hash(dataclasses.replace(RUN, policy=p)) for p in policies}
    assert len(keys) == len(policies)


def test_the_key_does_not_depend_on_order_or_sequence_type():
    assert results.config_hash({"a": 1, "b": [1, 2]}) == results.config_hash({"b": (1, 2), "a": 1})
    assert results.config_hash(FreezeRows(range(2))) == results.config_hash(FreezeRows([0, 1]))


def test_the_key_is_the_sha256_of_sorted_json():
    text = '{"lr": 0.1, "name": "Adserà", "seed": 0}'
    key = hashlib.sha256(text.encode()).hexdigest()[:12]
    assert results.config_hash({"seed": 0, "name": "Adserà", "lr": 0.1}) == key


def test_a_run_that_fails_leaves_the_store_as_it_was(store):
    before = files(store)
    with pytest.raises(FloatingPointError, match="loss is nan"):
        results.load_or_run("toy", Config(seed=1), failing, store=store)
    assert files(store) == before


class Killed(BaseException):
    """Nothing in the library may catch this, as nothing can catch a kill."""


def killed_at(monkeypatch, call, moment):
    """Let the write number `call` die, before or after the file is in place."""
    real, calls = results.write_atomically, []

    def write(path, data):
        calls.append(path.name)
        if len(calls) == call and moment == "before":
            raise Killed
        real(path, data)
        if len(calls) == call:
            raise Killed

    monkeypatch.setattr(results, "write_atomically", write)


at_any_write = pytest.mark.parametrize("call", range(1, 7))
at_any_moment = pytest.mark.parametrize("moment", ["before", "after"])


@at_any_write
@at_any_moment
def test_killed_between_the_writes_the_store_is_old_or_new(store, monkeypatch, call, moment):
    old = results.table("toy", store)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        killed_at(patch, call, moment)
        results.load_or_run("toy", Config(seed=1), run, store=store)
    left = results.table("toy", store)
    pd.testing.assert_frame_equal(left[:3], old)
    assert len(left) in (3, 6)
    results.load_or_run("toy", Config(seed=1), run, store=store)
    assert len(results.table("toy", store)) == 6
    assert len(results.verify(store)) == 3


@at_any_write
@at_any_moment
def test_killed_during_the_first_run_it_runs_again(tmp_path, monkeypatch, call, moment):
    with monkeypatch.context() as patch, pytest.raises(Killed):
        killed_at(patch, call, moment)
        results.load_or_run("toy", Config(), run, store=tmp_path)
    assert len(results.load_or_run("toy", Config(), run, store=tmp_path)) == 3
    assert results.verify(tmp_path) == sorted(["toy.csv", NAME])


@pytest.mark.parametrize("second", range(1, 4))
@pytest.mark.parametrize("first", range(1, 4))
@at_any_moment
def test_killed_twice_nothing_is_damaged(store, monkeypatch, first, second, moment):
    for seed, call in ((1, first), (2, second)):
        with monkeypatch.context() as patch, pytest.raises(Killed):
            killed_at(patch, call, moment)
            results.load_or_run("toy", Config(seed), no_tensors, store=store)
    for seed in (0, 1, 2):
        assert len(results.load_or_run("toy", Config(seed), no_tensors, store=store)) == 3


@at_any_write
def test_after_a_kill_the_whole_store_verifies(tmp_path, monkeypatch, call):
    with monkeypatch.context() as patch, pytest.raises(Killed):
        killed_at(patch, call, "before")
        results.load_or_run("toy", Config(), run, store=tmp_path)
    results.verify(tmp_path)


def cut(path):
    path.write_bytes(path.read_bytes()[:-7])


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def empty(path):
    path.write_bytes(b"")


def remove(path):
    path.unlink()


def crlf(path):
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))


@pytest.mark.parametrize("harm", [cut, flip, empty, crlf])
@pytest.mark.parametrize("seed", [0, 1], ids=["stored", "new"])
def test_a_damaged_table_is_refused_by_name_and_kept(store, harm, seed):
    harm(store / "toy.csv")
    before = files(store)
    with pytest.raises(results.DamagedResults, match="toy.csv"):
        results.load_or_run("toy", Config(seed), run, store=store)
    with pytest.raises(results.DamagedResults, match="toy.csv"):
        results.table("toy", store)
    with pytest.raises(results.DamagedResults, match="toy.csv"):
        results.verify(store)
    assert files(store) == before


def test_a_deleted_table_is_made_anew_and_its_old_runs_are_forgotten(store):
    results.load_or_run("toy", Config(1), run, store=store)
    (store / "toy.csv").unlink()
    with pytest.raises(FileNotFoundError, match="sweep toy"):
        results.table("toy", store)
    with pytest.raises(results.DamagedResults, match="toy.csv is missing"):
        results.verify(store)
    results.load_or_run("toy", Config(2), run, store=store)
    assert list(results.manifest(store)["runs"]["toy"]) == [results.config_hash(Config(2))]
    assert len(results.table("toy", store)) == 3


@pytest.mark.parametrize("harm", [cut, flip, empty, remove])
def test_damaged_tensors_are_refused_by_name(store, harm):
    harm(store / NAME)
    before = files(store)
    with pytest.raises(results.DamagedResults, match=NAME):
        results.tensors("toy", results.config_hash(Config()), store)
    with pytest.raises(results.DamagedResults, match=NAME):
        results.verify(store)
    assert files(store) == before


@pytest.mark.parametrize("harm", [cut, empty])
@pytest.mark.parametrize("seed", [0, 1], ids=["stored", "new"])
def test_a_damaged_manifest_is_refused_by_name_and_kept(store, harm, seed):
    harm(store / "MANIFEST.json")
    before = files(store)
    with pytest.raises(results.DamagedResults, match="MANIFEST.json"):
        results.load_or_run("toy", Config(seed), run, store=store)
    assert files(store) == before


def test_a_table_without_its_manifest_is_refused(store):
    remove(store / "MANIFEST.json")
    with pytest.raises(results.DamagedResults, match="toy.csv is not in MANIFEST.json"):
        results.load_or_run("toy", Config(), run, store=store)


def test_a_table_that_is_not_listed_is_refused_and_kept(store):
    (store / "extra.csv").write_text("config,x\nabc,1\n", encoding="utf-8")
    before = files(store)
    with pytest.raises(results.DamagedResults, match="extra.csv is not in MANIFEST.json"):
        results.load_or_run("extra", Config(), run, store=store)
    assert files(store) == before


@pytest.mark.parametrize(
    "rows",
    [
        [{"step": 0, "loss": 1.0}],
        [{"step": 0, "loss": 1.0, "arm": "x", "more": 2}],
        [{"loss": 1.0, "step": 0, "arm": "x"}],
        [{"step": 0, "loss": 1.0, "arm": "x"}, {"step": 0}],
    ],
    ids=["fewer", "more", "reordered", "uneven"],
)
def test_other_columns_are_refused(store, rows):
    before = files(store)
    with pytest.raises(ValueError, match="toy: the new rows have other columns"):
        results.load_or_run("toy", Config(seed=1), lambda config: (rows, {}), store=store)
    assert files(store) == before


def test_a_run_without_rows_is_refused_with_a_message(tmp_path):
    with pytest.raises(ValueError, match="toy.*no rows"):
        results.load_or_run("toy", Config(), lambda config: ([], {}), store=tmp_path)
    assert "toy.csv" not in files(tmp_path)


def test_what_was_never_run_names_the_command(tmp_path):
    with pytest.raises(FileNotFoundError, match="python -m lib sweep toy"):
        results.table("toy", tmp_path)
    assert results.load("toy", tmp_path, missing_ok=True) is None


def test_an_unknown_key_of_tensors_names_the_file(store):
    with pytest.raises(results.DamagedResults, match="toy-000000000000.safetensors"):
        results.tensors("toy", "000000000000", store)


def test_writers_in_threads_lose_nothing(tmp_path):
    failed = []

    def write(seeds):
        try:
            for seed in seeds:
                results.load_or_run("toy", Config(seed), run, store=tmp_path)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(range(i, 18, 3),)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    table = results.table("toy", tmp_path)
    assert table["config"].value_counts().tolist() == [3] * 18
    assert len(results.verify(tmp_path)) == 19


WRITER = """
import sys
from pathlib import Path
from lib import results
for seed in range(0, 40, 2):
    run = lambda config: ([{"seed": config["seed"]}], {})
    results.load_or_run("toy", {"seed": seed}, run, store=Path(sys.argv[1]))
"""


def test_writers_in_processes_lose_nothing(tmp_path):
    other = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)])
    while not (tmp_path / "toy.csv").exists() and other.poll() is None:
        time.sleep(0.001)
    for seed in range(1, 40, 2):
        rows = [{"seed": seed}]
        results.load_or_run("toy", {"seed": seed}, lambda c, rows=rows: (rows, {}), store=tmp_path)
    assert other.wait(timeout=60) == 0
    assert sorted(results.table("toy", tmp_path)["seed"]) == list(range(40))
    assert results.verify(tmp_path) == ["toy.csv"]


def test_reading_while_another_writes_is_no_damage(store, monkeypatch):
    """Another process finishes its write just after this one has read the manifest."""
    real, once = results._manifest, []

    def then_another_writes(root):
        record = real(root)
        if not once:
            once.append(True)
            results.load_or_run("toy", Config(seed=1), no_tensors, store=root)
        return record

    monkeypatch.setattr(results, "_manifest", then_another_writes)
    assert len(results.table("toy", store)) in (3, 6)


def test_floats_are_stored_short(tmp_path):
    values = {"a": 1 / 3, "b": 1e-12 / 3, "c": float("nan"), "d": 0.5, "e": 7, "f": True}
    frame = results.load_or_run("toy", Config(), lambda c: ([values], {}), store=tmp_path)
    line = (tmp_path / "toy.csv").read_text(encoding="utf-8").splitlines()[1]
    assert line.split(",", 1)[1] == "0.333333,3.33333e-13,nan,0.5,7,True"
    assert frame["a"][0] == pytest.approx(1 / 3, rel=1e-5)
    assert frame["c"].isna().all()


def test_a_text_that_looks_like_nothing_stays_a_text(tmp_path):
    rows = [{"arm": name} for name in ("None", "NA", "null", "copy, reset", 'a "b"', "Adserà")]
    frame = results.load_or_run("toy", Config(), lambda c: (rows, {}), store=tmp_path)
    assert frame["arm"].tolist() == [row["arm"] for row in rows]


def test_provenance_is_complete(store):
    key = results.config_hash(Config())
    record = results.manifest(store)["runs"]["toy"][key]
    assert record["config"] == {"kind": "Config", "seed": 0, "lr": 0.1}
    assert record.keys() == {
        *("config", "versions", "device", "processor", "threads", "seconds", "date")
    }
    always = {"torch", "numpy", "sympy", "tokenizers", "seeing-the-unseen", "python"}
    real_models = {"transformers", "transformer-lens"}  # another test may have imported them
    assert always <= record["versions"].keys() <= always | real_models
    assert record["device"] == "cpu"
    assert record["threads"] == torch.get_num_threads()
    assert record["seconds"] >= 0
    datetime.date.fromisoformat(record["date"])


def test_packages_of_real_models_are_named_where_they_were_imported(monkeypatch):
    for module in results.IF_IMPORTED:
        monkeypatch.delitem(sys.modules, module, raising=False)
    assert "transformers" not in results.versions()
    monkeypatch.setitem(sys.modules, "transformers", sys)
    found = results.versions()
    assert found["transformers"] == importlib.metadata.version("transformers")
    assert "transformer-lens" not in found


def test_the_store_holds_no_path_and_no_rest(store, tmp_path):
    found = files(store)
    assert found.keys() == {"toy.csv", "MANIFEST.json", NAME}
    for data in found.values():
        assert str(tmp_path).encode() not in data
        assert b"/" not in data.replace(b"Adser", b"")


def test_files_are_text_with_plain_line_ends(store):
    for name in ("toy.csv", "MANIFEST.json"):
        data = (store / name).read_bytes()
        data.decode("utf-8")
        assert b"\r" not in data and data.endswith(b"\n")
    json.loads((store / "MANIFEST.json").read_text(encoding="utf-8"))


def test_storing_the_same_rows_twice_gives_the_same_table(tmp_path):
    tables = []
    for name in ("a", "b"):
        for seed in (0, 1):
            results.load_or_run("toy", Config(seed), run, store=tmp_path / name)
        tables.append((tmp_path / name / "toy.csv").read_bytes())
    assert tables[0] == tables[1]
