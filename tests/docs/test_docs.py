# SPDX-License-Identifier: MIT
"""The documentation builds without a warning, tells what is so, and each of its Python blocks runs."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)

sys.path.insert(0, str(ROOT / "docs/_ext"))


def _blocks(page: Path) -> list[str]:
    return _BLOCK.findall(page.read_text())


# Pages of the rooms whose own tests, in tests/vm, run their blocks.
ELSEWHERE = {"abi", "faults", "journal", "power-cuts", "profile", "profiling", "trace", "tracing", "workload"}
WITH_CODE = [page for page in PAGES if _blocks(page) and page.stem not in ELSEWHERE]


def test_builds_with_warnings_as_errors(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    done = subprocess.run(
        [*command, "-d", str(tmp_path / "trees"), str(ROOT / "docs"), str(tmp_path / "html")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    uapi = (tmp_path / "html/reference/uapi.html").read_text()
    assert "struct sampleblk_rule" in uapi
    commands = (tmp_path / "html/reference/commands.html").read_text()
    assert "sampleblk-lab compare" in commands


@pytest.mark.full
@pytest.mark.in_vm
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_each_python_block_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    imports = "import sampleblk_lab as lab\n"
    for number, code in enumerate(_blocks(page)):
        if "def test_" in code:
            path = tmp_path / f"test_block_{number}.py"
            path.write_text(imports + code)
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(path)]
            done = subprocess.run([*command, "--rootdir", str(tmp_path)], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout
            assert " passed" in done.stdout
        else:
            exec(compile(code, f"{page.name}:block {number}", "exec"), names)


def test_python_blocks_are_found() -> None:
    assert {page.stem for page in WITH_CODE} >= {"README", "first-experiment", "faults-in-tests", "measure-and-compare"}


def _without_comments(text: str, language: str) -> list[str]:
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [code for block in blocks for line in block.splitlines() if (code := line.partition("#")[0].rstrip())]


def test_the_translations_show_the_same_commands_and_code() -> None:
    texts = [(ROOT / name).read_text() for name in ("README.md", "README.zh.md")]
    for language in ("sh", "python"):
        english, chinese = (_without_comments(text, language) for text in texts)
        assert len(english) > 5
        assert chinese == english
    notebooks = [
        json.loads((ROOT / f"notebooks/{name}.ipynb").read_text()) for name in ("1-first-light", "1-first-light.zh")
    ]
    english, chinese = (["".join(c["source"]) for c in n["cells"] if c["cell_type"] == "code"] for n in notebooks)
    assert len(english) > 5
    assert chinese == english


def test_the_header_is_read_whole() -> None:
    import uapi

    header = uapi.HEADER.read_text()
    made = uapi.structs(header)
    assert [struct.name for struct in made] == re.findall(r"^struct (\w+) \{", header, re.MULTILINE)
    assert all(struct.fields for struct in made)
    config = made[0]
    assert config.fields[0] == ("__u32", "index", "SAMPLEBLK_INDEX_ANY or 1 … SAMPLEBLK_MAX_DEVICES")
    calls = uapi.ioctls(header)
    assert len(calls) == len(re.findall(r"^#define SAMPLEBLK_IOC_\w+ _IO", header, re.MULTILINE))
    assert {struct for *_, struct in calls} <= {struct.name for struct in made}


def test_a_line_that_is_no_field_is_named() -> None:
    import uapi

    with pytest.raises(ValueError, match="struct odd: cannot read"):
        uapi.structs("struct odd {\n\tint (*call)(void);\n};\n")


def test_options_of_the_plugin_are_documented() -> None:
    plugin = (ROOT / "python/sampleblk_lab/pytest_plugin/__init__.py").read_text()
    page = (ROOT / "docs/reference/pytest.md").read_text()
    options = set(re.findall(r'"(--sblk-[a-z-]+)",', plugin))
    assert len(options) > 8
    assert {option for option in options if option not in page} == set()
