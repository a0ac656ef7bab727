#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs clang-tidy over every C++ source of a build folder's compile_commands.json.

usage: tidy.py BUILD_DIR [JOBS] [PATTERN]
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

build = Path(sys.argv[1])
jobs = int(sys.argv[2]) if len(sys.argv) > 2 else 1
pattern = sys.argv[3] if len(sys.argv) > 3 else ""
tool = Path(sys.executable).with_name("clang-tidy")
files = sorted({entry["file"] for entry in json.loads((build / "compile_commands.json").read_text())})
files = [file for file in files if file.endswith(".cpp") and "/cpp/src/" in file and pattern in file]


def tidy(file: str) -> tuple[str, int, str]:
    """The file, clang-tidy's status and what it printed."""
    command = [str(tool), "-p", str(build), "--quiet", "--extra-arg=-Wno-unknown-warning-option", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return file, done.returncode, done.stdout


failed = 0
with ThreadPoolExecutor(jobs) as pool:
    for number, (file, status, output) in enumerate(pool.map(tidy, files), start=1):
        print(f"[{number}/{len(files)}] {file}", flush=True)
        if status != 0:
            failed += 1
            print(output, flush=True)
print(f"clang-tidy: {failed} of {len(files)} files have findings")
sys.exit(1 if failed else 0)
