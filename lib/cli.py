"""The command line: `python -m lib run | tune | sweep | bench | diagnose | repair | claims | results`."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from safetensors import SafetensorError

from lib import claims as judging
from lib import fine_tuning, report, token_rows
from lib import results as store
from lib.bench import bench_analogy, bench_logic, bench_prompts
from lib.configuration import nearest
from lib.experiments import logic_run
from lib.generators.text import TextConfig
from lib.ledger import LEDGER
from lib.model_sweeps import run_tuning
from lib.repair import DRAWS
from lib.sweeps import SWEEPS, sweep
from lib.training import pick_device, train

app = tyro.extras.SubcommandApp()
MENDABLE = (ValueError, OSError, ImportError, FloatingPointError, SafetensorError)


@app.command(name="run")
def run(
    task: tyro.conf.Positional[Literal["logic"]],
    preset: str = "laptop",
    arm: str = "standard",
    seed: int | None = None,
    steps: int | None = None,
    device: str = "auto",
    checkpoint: Path | None = None,
) -> None:
    """Train one model and print what it can do.

    Args:
        task: The task to train on; a preset may change it.
        preset: Task and sizes: laptop (two minutes on one core), tiny (seconds, too short to learn),
            horn (rules with two premises), text (language modelling), workstation and paper (for a GPU).
        arm: What is compared: standard, copy, freeze, reset, freeze+copy, reset+copy, reset_half,
            reset_half+copy, standard_slow, copy_slow, untied, adamw_full, adamw_no_decay, adam_l2,
            sgd or untied_adam_l2.
        seed: Seed of weights and data; the preset's own is 0.
        steps: Training steps; the preset says how many by default.
        device: auto, cpu, cuda or mps.
        checkpoint: A .safetensors file to save to every 100 steps and to resume from.
    """
    asked: dict[str, Any] = {"seed": seed, "steps": steps}
    config = logic_run(preset, arm, **{k: v for k, v in asked.items() if v is not None})
    history = train(config, device, checkpoint).history
    if isinstance(config.task, TextConfig):
        print("nats a token on unseen files\nstep  validation   test  cosine of reserved W_U rows")
        for row in history:
            print(
                f"{row['step']:4.0f} {row['loss_validation']:11.3f} {row['loss_test']:6.3f} "
                f"{row['W_U_unseen_cosine']:28.2f}"
            )
        return
    print(
        "share of whole answers right; True and False problems together, but query unseen True only"
    )
    print("step   loss   seen  query unseen  all unseen  cosine of unseen W_U rows")
    for row in history:
        seen, all_unseen = (
            (row[f"whole_{split}_true"] + row[f"whole_{split}_false"]) / 2
            for split in ("seen", "all_unseen")
        )
        loss = f"{row['loss']:6.3f}" if row["step"] else "     -"
        print(
            f"{row['step']:4.0f} {loss} {seen:6.2f} {row['whole_query_unseen_true']:13.2f} "
            f"{all_unseen:11.2f} {row['W_U_unseen_cosine']:26.2f}"
        )


@app.command(name="sweep")
def run_sweep(
    name: tyro.conf.Positional[str | None] = None,
    all: bool = False,
    device: str = "cpu",
    shard: str = "0/1",
) -> None:
    """Run what is missing of a stored experiment (or of all); what is stored is not run again.

    Args:
        name: The experiment.
        all: Every experiment.
        device: auto, cpu, cuda or mps.
        shard: i/n: only every n-th run, from number i on; start one process a shard.
    """
    if all == (name is not None):
        raise ValueError(f"name one sweep ({', '.join(SWEEPS)}) or say --all")
    try:
        index, count = (int(part) for part in shard.split("/"))
    except ValueError:
        raise ValueError(f"shard {shard!r}: write i/n, for example 0/2") from None
    for each in SWEEPS if name is None else [nearest("sweep", name, SWEEPS)]:
        print(f"{each}: {sweep(each, device, (index, count))} runs stored")


@app.command(name="claims")
def claims(json_: Annotated[bool, tyro.conf.arg(name="json")] = False, write: bool = False) -> None:
    """Print every claim's verdict; exit 1 if a stored verdict no longer follows from the results.

    Args:
        json_: Print JSON for programs.
        write: Store the verdicts and renew the README's table.
    """
    if write:
        judging.write(LEDGER)
    if json_:
        print(json.dumps(judging.all_verdicts(LEDGER), indent=1))
    else:
        for claim, (said, outcomes) in [(claim, judging.verdict(claim)) for claim in LEDGER]:
            print(f"{claim.id:4} {said:28} {claim.statement}")
            for o in outcomes:
                mark = {True: "passes", False: "fails", None: "cannot be judged"}[o.passes]
                print(
                    f"     {o.id} {mark}: {o.k} of {o.n} seeds reach {o.smallest:g}, "
                    f"median {o.median:.3g}: {o.measure}"
                )
    if old := judging.stale(LEDGER):
        print(f"stored verdicts no longer follow: {', '.join(old)}", file=sys.stderr)
        sys.exit(1)


@app.command(name="results")
def results() -> None:
    """List what is stored, after checking every file against its hash."""
    for name in store.verify():
        runs = store.manifest().get("runs", {}).get(Path(name).stem, {})
        minutes = sum(run["seconds"] for run in runs.values()) / 60
        print(
            f"{name}: {len(runs)} runs, {minutes:.0f} minutes"
            if runs
            else f"{name}: tensors of a run"
        )


@app.command(name="bench")
def bench(
    what: tyro.conf.Positional[Literal["logic", "analogy", "prompts"]],
    json_: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> None:
    """Measure speed on one thread, beside a textbook loop and the arithmetic bound.

    Args:
        what: A toy task, or prompts of a real model (one at a time and sixteen at a time).
        json_: Print JSON for programs.
    """
    benches = {"logic": bench_logic, "analogy": bench_analogy, "prompts": bench_prompts}
    report = benches[what]()  # type: ignore[operator]
    if json_:
        print(json.dumps(report, indent=1))
        return
    if what == "prompts":
        one, many = report["prompts_per_s_1"], report["prompts_per_s_16"]
        print(
            f"loaded in {report['load_s']:.1f} s; every layer kept, energies within {report['difference']:.0e}"
        )
        print(
            f"one at a time {one:.2f} prompts/s, sixteen {many:.2f}: {many / one:.1f} times faster"
        )
        return
    print(f"large matrix product: {report['gemm_gflops']:.0f} GFLOP/s")
    if what == "logic":
        for batch, speed in report["problems_per_s"].items():
            print(f"generator, {batch} at a time: {speed:,.0f} problems/s")
        for n_seen, row in report["names"].items():
            print(
                f"{n_seen:>5} names: {row['ours_ms']:.1f} ms a step, textbook {row['textbook_ms']:.1f} ms, "
                f"{row['times_faster']:.1f} times faster at loss {row['loss']:.4f} and {row['textbook_loss']:.4f}; "
                f"arithmetic bound {row['bound_ms']:.1f} ms ({row['share_of_bound']:.0%} of our time)"
            )
        return
    plain = report["textbook"]
    print(f"textbook loop: {plain['steps_per_s']:.0f} steps/s, loss {plain['loss']:.4f}")
    for softmax, part in report["softmax"].items():
        print(
            f"{softmax}: bound {part['bound_model_steps_per_s']:.0f} model-steps/s; "
            f"an evaluation costs {part['evaluation_ms_a_member']:.0f} ms a member"
        )
        for n, row in part["members"].items():
            print(
                f"{n:>5} at once: {row['model_steps_per_s']:.0f} model-steps/s, {row['times_faster']:.1f} times "
                f"the textbook, {row['share_of_bound']:.0%} of the bound, loss {row['loss']:.4f}"
            )


@app.command(name="tune")
def tune(
    symbols: tyro.conf.Positional[str] = "unused",
    treatment: str = "none",
    preset: str = "laptop",
    model: str = "gemma-3-270m",
    seed: int = 0,
    device: str = "auto",
) -> None:
    """Fine-tune a language model on logic problems over some of its tokens, or on analogies, and print
    what it can do.

    Args:
        symbols: letters, words, random, late, unused, unused_high or hidden.
        treatment: What is done to their rows before: none, mean_cov, mean_diag, orthogonal, fresh,
            stretched, swapped or resized.
        preset: laptop (minutes on one core), paper (batches of 256, for a GPU) or analogy (made-up
            analogies in words, for a GPU; symbols do not matter).
        model: gemma-3-270m, smollm2-135m, a folder with a Hugging Face model, or owner/model.
        seed: Seed of symbols, rows and problems.
        device: auto, cpu, cuda or mps.
    """
    asked = dataclasses.replace(
        fine_tuning.PRESETS[nearest("preset", preset, fine_tuning.PRESETS)],
        symbols=symbols,
        treatment=treatment,
        model=model,
        seed=seed,
    )
    print("held-out problems, shares right\nstep   loss  whole  names  verdict")
    for row in run_tuning(asked, str(pick_device(device)))[0]:
        print(
            f"{row['step']:4} {row['loss']:6.3f} {row['whole']:6.2f} {row['names']:6.2f} {row['last']:8.2f}"
        )


@app.command(name="diagnose")
def diagnose(
    model: tyro.conf.Positional[str],
    out: Path | None = None,
    unused: Sequence[str] = (),
    top: int = 40,
) -> None:
    """Find rows of a model's (un)embedding that have collapsed, also where no name gives them away.

    Args:
        model: gemma-3-270m, smollm2-135m, a folder with a Hugging Face model, or owner/model.
        out: Write a report here as well: .html to read, .json for programs.
        unused: Tokens known to be unused, if the tokenizer's names do not say so: names, id:7 or id:7-99.
        top: How many of the rows found to list.
    """
    if out is not None and out.suffix not in (".html", ".json"):
        raise ValueError(f"--out {out}: the name ends in .html or .json")
    found = token_rows.examine(model, unused)
    print(report.as_text(found, min(top, 10)))
    if out is not None:
        text = report.as_html(found, top) if out.suffix == ".html" else report.as_json(found, top)
        store.write_atomically(out, text.encode())
        print(f"written: {out}")


@app.command(name="repair")
def repair(
    model: tyro.conf.Positional[str],
    tokens: Sequence[str],
    out: Path,
    method: Literal[tuple(DRAWS)] = "mean_cov",  # type: ignore[valid-type]
    seed: int = 0,
) -> None:
    """Give tokens usable rows, drawn like those of used tokens, and write the model to a new folder.

    Args:
        model: gemma-3-270m, smollm2-135m, a folder with a Hugging Face model, or owner/model.
        tokens: Which: names as the tokenizer writes them, id:7 or id:7-99.
        out: The new folder; from_pretrained reads it, and repair.json in it says what was changed.
        method: mean_cov (mean and covariance of used rows), mean_diag (variances only) or orthogonal.
        seed: Seed of the draw.
    """
    record = token_rows.mend(model, tokens, method, out, seed)
    for name, matrix in record["matrices"].items():
        before, after = (matrix[f"mean_cosine_{when}"] for when in ("before", "after"))
        print(f"{name}: {len(record['ids'])} rows, mean cosine {before} before, {after} after")
    print(f"written: {out}")


def main() -> None:
    """Errors that a person can mend are one line, not a traceback."""
    try:
        app.cli(prog="python -m lib", description=__doc__)
    except BrokenPipeError:  # the reader of a pipe has seen enough
        sys.stdout = open(os.devnull, "w", encoding="utf-8")
    except (*MENDABLE, store.DamagedResults) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
