# SPDX-License-Identifier: MIT
"""What an exploration of crash states found: as a page, and as a notebook shows it."""

from __future__ import annotations

import base64
import html
from typing import TYPE_CHECKING, Any

from sampleblk_lab.report.page import Page
from sampleblk_lab.table import Table
from sampleblk_lab.texts import count_text, readable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sampleblk_lab.crash.explore import Exploration, Failure

# With a picture each; of the others there is a line.
_ON_A_PAGE = 20
_IN_A_NOTEBOOK = 4
_LINES = 1000
# Characters of what a check said.
_MESSAGE = 20_000
_LINE = 200
_KEPT = "\n\t"


def crash_page(found: Exploration, saved: Sequence[str] = ()) -> Page:
    """The page of an exploration.

    Args:
        found: The exploration.
        saved: The folders to which its failures were saved, in their order.
    """
    log = found.log
    page = Page("What a crash leaves", readable(str(log.path)) if log is not None else "")
    page.add_facts("Summary", _facts(found))
    if not found.failures:
        none = "No failure." if found.checked else "Nothing was checked."
        page.add_text("Failures", none, readable(found.text().splitlines()[0]))
    for number, failure in enumerate(found.failures[:_ON_A_PAGE], start=1):
        _failure(page, failure, f"Failure {number}", saved[number - 1] if number <= len(saved) else "")
    rest = found.failures[_ON_A_PAGE:]
    if rest:
        columns = {
            "state": [readable(repr(failure.reduced).strip("<>"))[:_LINE] for failure in rest[:_LINES]],
            "error": [_first_line(failure) for failure in rest[:_LINES]],
        }
        note = f"{len(rest)} more, without pictures." + (f" The first {_LINES}." if len(rest) > _LINES else "")
        page.add_table("More failures", Table.of(columns), note)
    return page


def _facts(found: Exploration) -> dict[str, object]:
    facts: dict[str, object] = {"failed": len(found.failures)}
    if found.log is not None:
        log = found.log
        facts["log"] = readable(
            f"{log.path} ({log.native.format}), {len(log):,} writes, {log.native.flushes:,} flushes"
        )
        facts["before it"] = readable(str(log.base)) if log.base is not None else "zeros"
        facts["disk"] = f"{log.size_bytes:,} bytes"
        ignored = [name for name, believed in (("flushes", log.flush), ("FUA", log.fua)) if not believed]
        if ignored:
            facts["not believed"] = " and ".join(ignored)
    if found.model is not None:
        facts["model"] = repr(found.model)
    if found.check is not None:
        facts["check"] = readable(_name(found.check))[:_LINE]
    total = "" if found.total == float("inf") else f" of {count_text(found.total, ',')}"
    facts["states"] = f"{found.states:,}{total} looked at"
    rate = f", {found.checked / found.elapsed_s:,.1f} per second" if found.elapsed_s else ""
    facts["checked"] = f"{found.checked:,} with contents of their own, in {found.elapsed_s:,.1f} s{rate}"
    facts["complete"] = "yes, these were all there are" if found.complete else "no"
    if found.interrupted:
        facts["interrupted"] = "by Ctrl-C"
    if found.lost:
        facts["ended early"] = readable(found.lost)
    return facts


def _name(check: Any) -> str:
    """The check as its user wrote it, as far as that is known."""
    if hasattr(check, "keywords") and hasattr(check, "arguments"):
        arguments = [_value(value) for value in check.arguments]
        arguments += [f"{name}={_value(value)}" for name, value in check.keywords.items()]
        return f"{check.name}({', '.join(arguments)})"
    return _value(check)


def _value(value: Any) -> str:
    return str(value.__qualname__) if callable(value) and hasattr(value, "__qualname__") else repr(value)


def _first_line(failure: Failure) -> str:
    message = next(iter(str(failure.error).strip().splitlines()), "")
    return readable(f"{type(failure.error).__name__}: {message}")[:_LINE]


def _failure(page: Page, failure: Failure, heading: str, saved: str) -> None:
    state = failure.reduced
    page.add_picture(heading, state.picture(), state.picture(dark=True), _first_line(failure))
    marks = f"Marks that were set: {', '.join(map(repr, state.marks[-20:]))}." if state.marks else "No mark was set."
    if len(failure.missing):
        note = f"As few as the failure takes. {marks}"
        page.add_table(f"{heading}: missing writes", failure.missing_table(), readable(note))
    else:
        page.add_text(f"{heading}: missing writes", "none: all that was submitted is there", readable(marks))
    if stacks := failure.stacks():
        page.add_text(f"{heading}: submitted by", readable(stacks[:_MESSAGE], _KEPT))
    said = f"{type(failure.error).__name__}: {failure.error}"[:_MESSAGE]
    page.add_text(f"{heading}: what the check said", readable(said, _KEPT))
    page.add_text(f"{heading}: reproduce it", readable(_program(failure, saved), _KEPT))


def _program(failure: Failure, saved: str) -> str:
    state, log = failure.reduced, failure.reduced.log
    base = str(log.base) if log.base is not None else "zeros"
    options = [f"base={base!r}", f"size_bytes={log.size_bytes}"]
    options += [f"{name}=False" for name, believed in (("flush", log.flush), ("fua", log.fua)) if not believed]
    lines = [failure.command(saved), ""] if saved else []
    lines += [
        "import sampleblk_lab as lab",
        "",
        f"log = lab.crash.Log({str(log.path)!r}, {', '.join(options)})",
        f"state = log.state({state.submitted}, lost={state.lost}, torn={state.torn})",
        'log.write(state, "failed.img")  # its image',
        f"log.check(state, check)  # check is {_name(failure.check)[:_LINE]}",
    ]
    return "\n".join(lines)


# --- in a notebook


def failure_bundle(failure: Failure) -> dict[str, str]:
    """A failure by MIME type."""
    picture = failure.reduced.picture()
    return {"text/html": _html(failure), "image/svg+xml": picture, "text/plain": readable(failure.text(), _KEPT)}


def exploration_bundle(found: Exploration) -> dict[str, str]:
    """An exploration by MIME type, with the pictures of its first failures."""
    text = readable(found.text(), _KEPT)
    ended = "ended early" if found.lost and found.checked else "nothing was checked"
    verdict = "passed" if found.ok else "failed" if found.failures else ended
    parts = [f"<p><b>{verdict}</b>: {html.escape(readable(found.text().splitlines()[0]))}</p>"]
    parts += [_html(failure) for failure in found.failures[:_IN_A_NOTEBOOK]]
    if more := len(found.failures) - _IN_A_NOTEBOOK:
        parts += [f"<p>{more} more failures</p>"] * (more > 0)
    bundle = {"text/html": "".join(parts), "text/plain": text}
    if found.failures:
        bundle["image/svg+xml"] = found.failures[0].reduced.picture()
    return bundle


def _html(failure: Failure) -> str:
    """The head line, the picture, the missing writes; it needs no style."""
    light, dark = (base64.b64encode(failure.reduced.picture(dark=dark).encode()).decode() for dark in (False, True))
    state = readable(repr(failure.reduced).strip("<>"))[:_LINE]
    # Where a sanitizer drops <picture>, the image in it stays.
    return (
        f"<p><b>{html.escape(state)}</b>: {html.escape(_first_line(failure))}</p>"
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="data:image/svg+xml;base64,{dark}">'
        f'<img src="data:image/svg+xml;base64,{light}" alt="{html.escape(state)}"></picture>'
        f"{failure.missing_table()._repr_html_() if failure.missing else '<p>Nothing is missing.</p>'}"
    )
