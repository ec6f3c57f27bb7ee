"""The repository itself: pairs of chapters, versions, environment, text files, commands."""

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import jupytext
import pytest
import yaml
from jupytext.compare import compare_notebooks
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CHAPTERS = [
    p
    for p in sorted((ROOT / "book").rglob("*.ipynb"))
    if not any(part[0] in "._" for part in p.relative_to(ROOT).parts)
]


def label(path):
    return path.relative_to(ROOT).as_posix()


def tracked():
    """Files that are, or are about to be, in git."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    out = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    paths = [ROOT / name for name in out.decode("utf-8").split("\0") if name]
    return [p for p in paths if p.is_file() and not p.is_symlink()]


def texts():
    """Tracked files without a NUL byte, as (path, bytes)."""
    pairs = [(p, p.read_bytes()) for p in tracked()]
    return [(p, data) for p, data in pairs if b"\0" not in data[:8192]]


# ---- chapters ----


def test_there_are_chapters():
    assert CHAPTERS, "no chapter has been executed: make execute"


@pytest.mark.parametrize("notebook", CHAPTERS, ids=label)
def test_pair_is_in_sync(notebook):
    """`jupytext --sync` would change neither file, whichever it takes for the newer one."""
    script = notebook.with_suffix(".py")
    nb = jupytext.read(notebook)
    assert jupytext.writes(nb, fmt="py:percent").rstrip() == script.read_text("utf-8").rstrip()
    compare_notebooks(jupytext.read(script, fmt="py:percent"), nb, fmt="py:percent")
    assert "jupytext_version" not in script.read_text("utf-8") + notebook.read_text("utf-8")


@pytest.mark.parametrize("notebook", CHAPTERS, ids=label)
def test_metadata_change_from_no_machine_to_another(notebook):
    nb = jupytext.read(notebook)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    assert nb.metadata.kernelspec == kernel
    assert nb.metadata.language_info == {"name": "python"}
    assert len({cell.id for cell in nb.cells}) == len(nb.cells)
    assert not any("execution" in cell.metadata for cell in nb.cells), "times are stored"


def test_every_chapter_source_has_its_notebook():
    sources = [p for p in tracked() if p.suffix == ".py" and p.is_relative_to(ROOT / "book")]
    sources = [p for p in sources if not any(q[0] == "_" for q in p.relative_to(ROOT).parts)]
    missing = [label(p) for p in sources if p.with_suffix(".ipynb") not in CHAPTERS]
    assert not missing, f"make execute CHAPTERS='{' '.join(missing)}'"


def test_build_does_not_read_an_environment_in_the_clone():
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    assert any(".venv" in pattern for pattern in config["exclude_patterns"])
    assert config["execute"]["execute_notebooks"] == "off"


# ---- versions ----


def requirements():
    groups = [
        PROJECT["project"]["dependencies"],
        *PROJECT["project"]["optional-dependencies"].values(),
    ]
    return [r for group in groups for r in map(Requirement, group) if r.name != "seeing-the-unseen"]


def pins():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


@pytest.mark.parametrize("requirement", requirements(), ids=lambda r: r.name)
def test_pin_lies_in_the_range(requirement):
    assert any(s.operator == "<" for s in requirement.specifier), "no upper bound"
    assert requirement.specifier.contains(pins()[canonicalize_name(requirement.name)])


def test_one_range_for_each_distribution():
    ranges = {}
    for requirement in requirements():
        name = canonicalize_name(requirement.name)
        ranges.setdefault(name, set()).add(str(requirement.specifier))
    assert {name: r for name, r in ranges.items() if len(r) > 1} == {}


def test_constraints_are_exact_sorted_and_bound_to_no_platform():
    names = list(pins())
    assert names == sorted(set(names)) == [canonicalize_name(n) for n in names]
    for name, version in pins().items():
        assert re.fullmatch(r"[0-9][0-9a-z.]*", version), f"{name}: {version}"
        assert not name.startswith(("nvidia-", "cuda-", "triton", "pywin", "appnope"))


def test_library_does_not_use_what_transformer_lens_has_dropped():
    sources = [p for p in tracked() if p.suffix == ".py" and p != Path(__file__).resolve()]
    users = [label(p) for p in sources if "HookedTransformer" in p.read_text(encoding="utf-8")]
    assert users == []


def test_conda_environment_names_nothing_twice():
    env = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    assert set(env) == {"name", "channels", "dependencies"}
    assert env["channels"] == ["conda-forge", "nodefaults"]
    *conda, pip = env["dependencies"]
    # Only Python and pip come from conda, so torch, numpy and matplotlib have one source.
    assert [re.split(r"[<>=]", spec)[0] for spec in conda] == ["python", "pip"]
    assert conda[0] == "python" + PROJECT["project"]["requires-python"]
    assert pip == {"pip": ["-c constraints.txt", "-e .[book,test]"]}


# ---- files ----


def test_text_files_are_utf8_with_plain_line_ends():
    for path, data in texts():
        data.decode("utf-8")
        assert b"\r" not in data, label(path)


def test_file_names_work_on_every_system():
    names = [label(p) for p in tracked()]
    assert [n for n in names if not re.fullmatch(r"[A-Za-z0-9._/-]+", n)] == []
    reserved = r"(^|/)(con|prn|aux|nul|com\d|lpt\d)(\.[^/]*)?(/|$)"
    assert [n for n in names if re.search(reserved, n, re.I) or n.endswith(".")] == []
    assert len({n.lower() for n in names}) == len(names), "names that differ in case only"


def opens_without_encoding(tree):
    """Lines that open a text file and leave its encoding to the system."""
    position = {"open": 3, "read_text": 0, "write_text": 1}  # of the argument `encoding`
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if name not in position or (name == "open" and isinstance(node.func, ast.Attribute)):
            continue
        binary = name == "open" and "b" in "".join(map(ast.unparse, node.args[1:2]))
        named = any(k.arg == "encoding" for k in node.keywords)
        if not (binary or named or len(node.args) > position[name]):
            yield node.lineno


def test_sources_say_utf8_when_they_open_a_file():
    found = []
    for path in tracked():
        if path.suffix == ".py":
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found += [f"{label(path)}:{line}" for line in opens_without_encoding(tree)]
    assert found == []


PRIVATE = re.compile(
    r"/(?:work|tmp|farm|root|home/\w+|Users/\w+)/"
    r"|pypi\.org|pythonhosted\.org|download\.pytorch\.org|registry\.npmjs|deb\.debian"
    r"|\bhf_[A-Za-z0-9]{20,}|\bgh[pousr]_[A-Za-z0-9]{30,}|\bAKIA[A-Z0-9]{16}|PRIVATE KEY-{5}"
    r"|(?:api|secret)[_-]?key *= *[\"'][A-Za-z0-9]{12,}"
)


def test_no_machine_path_registry_or_secret_is_tracked():
    found = []
    for path, data in texts():
        match = PRIVATE.search(data.decode("utf-8"))
        if match:
            found.append(f"{label(path)}: {match[0]}")
    assert found == []


def test_readme_names_only_targets_that_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.search(r"^\.PHONY: (.*)$", makefile, re.M)[1].split()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^\s*|`)make ([a-z-]+)", readme, re.M))
    assert named <= set(targets)
    assert {"book", "test"} <= named
