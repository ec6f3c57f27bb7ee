"""Run chapters and store their outputs: `python tools/execute.py [book/unseen/01_name.py ...]`.

The .py of a pair is the source. What is written depends on the chapter alone: no times, versions or
random ids, so that running twice changes nothing.
"""

import argparse
import hashlib
import json
import os
import sys
import time
import tomllib
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["jupytext"]
MEASURED = ROOT / "book" / "results" / "chapters.json"
METADATA = {
    # `jupytext --sync` wants these in the .ipynb; there from the start, it has nothing to change.
    "jupytext": {k: v for k, v in SETTINGS.items() if k.endswith("_filter")},
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def chapters() -> list[Path]:
    """Every paired source of the book; names that start with . or _ are not chapters."""
    found = sorted((ROOT / "book").rglob("*.py"))
    return [p for p in found if not any(q[0] in "._" for q in p.relative_to(ROOT).parts)]


def stable_ids(nb: nbformat.NotebookNode) -> None:
    """Name each cell after its text: editing one cell leaves the others' names alone."""
    seen: dict[str, int] = {}
    for cell in nb.cells:
        digest = hashlib.sha256(cell.source.encode()).hexdigest()[:8]
        seen[digest] = seen.get(digest, 0) + 1
        cell.id = digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"


def write(path: Path, text: str) -> None:
    path.write_text(text.rstrip("\n") + "\n", encoding="utf-8", newline="\n")


# The kernel's own peak; ru_maxrss counts bytes on macOS and kilobytes elsewhere.
PEAK = """import resource as _r, sys as _s
print(_r.getrusage(_r.RUSAGE_SELF).ru_maxrss / (1e6 if _s.platform == "darwin" else 1e3))"""


def execute(source: Path, timeout: float) -> tuple[float, float]:
    """Run one chapter in its own folder and write its .ipynb.

    Returns the seconds of the slowest cell and the peak memory in MB.
    """
    nb = jupytext.read(source, fmt="py:percent")
    stable_ids(nb)
    nb.metadata = nbformat.from_dict(METADATA)
    write(source, jupytext.writes(nb, fmt="py:percent"))  # as `jupytext --sync` would write it
    started, slowest = 0.0, 0.0

    def on_start(**_: object) -> None:
        nonlocal started
        started = time.perf_counter()

    def on_end(**_: object) -> None:
        nonlocal slowest
        slowest = max(slowest, time.perf_counter() - started)

    nb.cells.append(nbformat.v4.new_code_cell(PEAK))
    NotebookClient(
        nb,
        timeout=timeout,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        extra_arguments=["--IPKernelApp.log_level=40"],  # errors only
        on_cell_execute=on_start,
        on_cell_executed=on_end,
        resources={"metadata": {"path": str(source.parent)}},
    ).execute()
    peak = float(nb.cells.pop().outputs[0].text)
    nb.metadata = nbformat.from_dict(METADATA)  # the kernel has added its version
    write(source.with_suffix(".ipynb"), nbformat.writes(nb, version=4))
    return slowest, peak


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("chapters", nargs="*", type=Path, help="sources; all if none is named")
    parser.add_argument("--timeout", type=float, default=180, help="seconds for one cell")
    parser.add_argument("--measure", action="store_true", help="note minutes and memory")
    args = parser.parse_args()
    too_slow, measured = 0, {}
    sources = [c.resolve().with_suffix(".py") for c in args.chapters] or chapters()
    if missing := [s for s in sources if not s.exists()]:
        names = ", ".join(c.relative_to(ROOT).as_posix() for c in chapters())
        sys.exit(f"error: no chapter {missing[0].name} there; the chapters are {names}")
    for source in sources:
        begin = time.perf_counter()
        try:
            slowest, peak = execute(source, args.timeout)
        except (CellExecutionError, CellTimeoutError) as error:
            sys.exit(
                f"error: {source.relative_to(ROOT)} stopped and keeps its old outputs\n{error}"
            )
        late = slowest > args.timeout / 3
        too_slow += late
        note = ": over a third of the time-out" if late else ""
        seconds = time.perf_counter() - begin
        name = source.relative_to(ROOT / "book").with_suffix("").as_posix()
        measured[name] = {
            "minutes": round(seconds / 60, 1),
            "memory_mb": round(peak),
            "slowest_cell_s": round(slowest, 1),
            "device": f"CPU, threads: {os.environ.get('OMP_NUM_THREADS', os.cpu_count())}",
        }
        print(f"{name}  {seconds:.0f} s, {peak:.0f} MB, slowest cell {slowest:.0f} s{note}")
    if args.measure:
        record = json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.exists() else {}
        text = json.dumps(record | measured, indent=1, sort_keys=True)
        write(MEASURED, text)
    return 1 if too_slow else 0


if __name__ == "__main__":
    sys.exit(main())
