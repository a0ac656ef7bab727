# SPDX-License-Identifier: MIT
"""The guest's side of :meth:`VM.call`: it reads the call from standard input and writes the outcome.

The outcome goes to what was standard output, which the function sees as standard error: what it prints cannot be
mistaken for the outcome. Few imports: each takes long in an emulated guest.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import traceback

from sampleblk_lab import by_value

# Before the outcome, so that the end of a process without one is told from it.
MAGIC = b"sampleblk call 1\n"


def outcome_of(work: bytes) -> tuple[bytes | None, bytes | None, str | None]:
    """The value, pickled; or the exception, pickled where it can be, and its traceback."""
    try:
        path, load = pickle.loads(work)
        sys.path[:] = path
        function, args, keywords = pickle.loads(load)
        return by_value.dumps(function(*args, **keywords)), None, None
    except BaseException as error:
        # Not our own frame, nor those of pickling.
        trace = error.__traceback__.tb_next if error.__traceback__ is not None else None
        text = "".join(traceback.format_exception(type(error), error, trace))
        try:
            sent = by_value.dumps(error)
            pickle.loads(sent)
        except Exception:
            return None, None, text
        return None, sent, text


def main() -> None:
    """The guest's side."""
    out = os.dup(1)
    os.dup2(2, 1)
    process = os.getpid()
    outcome = outcome_of(sys.stdin.buffer.read())
    if os.getpid() != process:
        sys.exit(outcome[2])  # a fork that the function has let return: the value is that of its parent
    # The function may have closed it, or put None in its place: the outcome is known all the same.
    with contextlib.suppress(AttributeError, ValueError, OSError):
        sys.stdout.flush()
    with os.fdopen(out, "wb") as stream:
        stream.write(MAGIC + pickle.dumps(outcome))


if __name__ == "__main__":
    main()
