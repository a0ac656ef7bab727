# SPDX-License-Identifier: MIT
"""What users read is the plain English of the trade: phrases that made a reader stop do not come back."""

import re
from pathlib import Path

from support import tracked

ROOT = Path(__file__).parent.parent

PHRASES = re.compile(
    r"\bby turns\b|known well enough|\bmend(s|ed|ing)?\b|\bdear\b|gives? the word|\bnudges?\b|\bthat (are|is) none\b"
    r"|\bso often\b|gone with it|\b(is|are|was|were) not there\b|\bpatience\b|\ba row a job\b|\bone a CPU\b"
    r"|(?<!there )\b(is|are) no (director(y|ies)|files?|folders?|keys?|maps?|parameters?|results?|values?|ELF)\b",
    re.IGNORECASE,
)


def found(text: str) -> list[str]:
    return [match[0] for match in PHRASES.finditer(text)]


def test_the_phrases_are_found() -> None:
    text = "run by turns, and mended; /x is no directory, there is no file, which\nis not there\n"
    assert found(text) == ["by turns", "mended", "is no directory", "is not there"]


def test_no_text_has_them() -> None:
    places = ["README.md", "CONTRIBUTING.md", "docs", "notebooks", "python", "cpp", "module"]
    kinds = {".py", ".md", ".ipynb", ".cpp", ".hpp", ".c", ".h"}
    files = [ROOT / name for name in tracked(ROOT, *places) if Path(name).suffix in kinds]
    assert len(files) > 500
    said = {}
    for path in files:
        lines = path.read_text().splitlines()
        said.update({f"{path.relative_to(ROOT)}:{at}": found(line) for at, line in enumerate(lines, 1) if found(line)})
    assert said == {}
