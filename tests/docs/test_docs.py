# SPDX-License-Identifier: MIT
"""The documentation builds without a warning, tells what is so, and each of its Python blocks runs."""

import json
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from sampleblk_lab.pytest_plugin import fixtures, internals, options

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)

sys.path.insert(0, str(ROOT / "docs/_ext"))


def _blocks(page: Path) -> list[str]:
    return _BLOCK.findall(page.read_text())


# Pages of the rooms whose own tests, in tests/vm, tests/crash, tests/suites and tests/sweeps, run their blocks.
ELSEWHERE = {
    *("ext4-fast-commit", "faults", "journal", "peer-suites", "power-cuts", "profiling", "sweeps", "tracing"),
    *("ext4-fast-commit-replay", "older-kernels", "protection-information", "zoned-devices"),
}
ALL_WITH_CODE = [page for page in PAGES if _blocks(page)]
WITH_CODE = [page for page in ALL_WITH_CODE if page.stem not in ELSEWHERE]


def _programs(page: Path) -> list[str]:
    """A page's code as a reader runs it: each test is a file of its own, the other blocks are one program."""
    blocks = _blocks(page)
    tests = [code for code in blocks if "def test_" in code]
    others = [code for code in blocks if "def test_" not in code]
    return [*tests, *(["\n".join(others)] if others else [])]


@pytest.mark.parametrize("page", ALL_WITH_CODE, ids=lambda page: page.stem)
def test_each_python_block_has_the_names_that_it_uses(page: Path) -> None:
    for code in _programs(page):
        command = ["ruff", "check", "--isolated", "--select", "E9,F821,F822,F823", "--output-format", "concise", "-"]
        done = subprocess.run([sys.executable, "-m", *command], input=code, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{code}"


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
    # Each notebook is a page, with its outputs; and what it drew is in the gallery, with a link to where.
    import gallery

    notebooks = sorted((ROOT / "notebooks").glob("*.ipynb"))
    assert [page.stem for page in sorted((tmp_path / "html/notebooks").glob("*.html"))] == [n.stem for n in notebooks]
    assert "usecs_per_call" in (tmp_path / "html/notebooks/1-first-light.html").read_text()
    page = (tmp_path / "html/gallery.html").read_text()
    links = re.findall(r'<li><a href="(notebooks/[^"#]+)#([^"]+)"><img src="(_images/[^"]+)"', page)
    assert len(links) == len(gallery.pictures()) >= len(notebooks) // 2
    assert not [picture for picture in gallery.pictures() if "`" in picture.title + picture.heading]
    for target, anchor, image in links:
        assert f'id="{anchor}"' in (tmp_path / "html" / target).read_text()
        assert (tmp_path / "html" / image).stat().st_size > 1000


def test_the_home_page_has_four_doors_and_each_page_is_behind_one() -> None:
    text = (ROOT / "docs/index.md").read_text()
    doors = re.findall(r"^::::\{container\} door\n(.*)$", text, re.MULTILINE)
    assert doors == ["Learn", "Do", "Look up", "Understand"]
    assert re.findall(r"^:caption: (.*)$", text, re.MULTILINE) == doors


@pytest.mark.full
@pytest.mark.in_vm
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_each_python_block_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for number, code in enumerate(_blocks(page)):
        if "def test_" in code:
            path = tmp_path / f"test_block_{number}.py"
            path.write_text(code)
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


def test_the_five_tasks_have_ten_lines_each() -> None:
    blocks = _blocks(ROOT / "docs/how-to/five-tasks.md")
    assert len(blocks) == 5
    for code in blocks:
        assert len([line for line in code.splitlines() if line.strip()]) <= 10, code


def test_the_workflows_are_yaml_and_call_what_there_is() -> None:
    import yaml

    page = (ROOT / "docs/how-to/in-ci.md").read_text()
    github, gitlab = (
        yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    )
    steps = [step["run"] for step in github["jobs"]["experiments"]["steps"] if "run" in step]
    assert steps == gitlab["experiments"]["script"]
    assert any(step.startswith("make build") for step in steps)
    [run] = [step for step in steps if "pytest" in step]
    parser = mock.Mock()
    options.add(parser)
    known = {call.args[0] for call in parser.getgroup().addoption.mock_calls} | {"--junit-xml"}
    assert {word.partition("=")[0] for word in run.split() if word.startswith("--")} <= known


def test_commands_and_options_of_the_tables_exist() -> None:
    from sampleblk_lab.cli.main import COMMANDS

    parser = mock.Mock()
    options.add(parser)
    known = {call.args[0] for call in parser.getgroup().addoption.mock_calls}
    for name in ("README.md", "docs/how-to/troubleshooting.md", "docs/how-to/coming-from.md", "docs/how-to/in-ci.md"):
        text = (ROOT / name).read_text()
        assert set(re.findall(r"--sblk-[a-z-]+", text)) <= known, name
        assert set(re.findall(r"sampleblk-lab ([a-z]+)\b(?!,)", text)) <= {*COMMANDS}, name
        import sampleblk_lab as lab

        for path in set(re.findall(r"`lab\.([A-Za-z_.]+)", text)):
            found: object = lab
            for part in path.split("."):
                found = getattr(found, part)


def test_the_readme_picture_is_of_the_stored_recording() -> None:
    sys.path.insert(0, str(ROOT / "packaging"))
    import readme_picture

    for theme in ("light", "dark"):
        stored = (ROOT / f"docs/images/flame-{theme}.svg").read_text()
        assert stored == readme_picture.draw(dark=theme == "dark")
        assert "<script" not in stored
        assert "<style" not in stored
    assert "sampleblk_queue_rqs" in stored


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
    page = (ROOT / "docs/reference/pytest.md").read_text()
    parser = mock.Mock()
    options.add(parser)
    names = [call.args[0] for call in parser.getgroup().addoption.mock_calls]
    names += [call.args[0] for call in parser.addini.mock_calls]
    assert len(names) > 15
    assert [name for name in names if not re.search(rf"`{name}\b", page)] == []


def test_the_fixtures_of_the_plugin_are_documented() -> None:
    page = (ROOT / "docs/reference/pytest.md").read_text()
    listed = re.search(r":members: (.*)", page)
    assert listed is not None
    public = {name for name in internals.fixtures_in(fixtures) if not name.startswith("_")}
    assert set(listed[1].split(", ")) == public
    assert public >= fixtures.GUEST_FIXTURES
