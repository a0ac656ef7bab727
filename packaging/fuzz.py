#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs every fuzz target of a build folder on its committed corpus for a while, and stops at the first finding.

usage: fuzz.py BUILD_DIR SECONDS

New inputs go to BUILD_DIR/corpus; an input that breaks a target is kept there too, and named.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

build, seconds = Path(sys.argv[1]).resolve(), int(sys.argv[2])
corpus = Path(__file__).resolve().parents[1] / "cpp/fuzz/corpus"
targets = sorted(path for path in (build / "cpp/fuzz").glob("fuzz_*") if path.is_file())
if not targets:
    sys.exit(f"{build}/cpp/fuzz: no fuzz targets; expected a build with -DSAMPLEBLK_FUZZ=ON")
for number, target in enumerate(targets, start=1):
    name = target.name.removeprefix("fuzz_")
    # Views and exports begin with the inputs of what they read: trace_file_views with those of trace_file.
    seeds = [folder for folder in sorted(corpus.iterdir()) if name == folder.name or name.startswith(f"{folder.name}_")]
    found = build / "corpus" / name
    found.mkdir(parents=True, exist_ok=True)
    command = [target, f"-max_total_time={seconds}", "-rss_limit_mb=2048", f"-artifact_prefix={found}/", found]
    command += seeds
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        print(done.stderr[-6000:])
        sys.exit(f"{name}: libFuzzer ended with {done.returncode}; its input is in {found}")
    ended = [line for line in done.stderr.splitlines() if line.startswith("Done ")]
    print(f"[{number}/{len(targets)}] {name}: {''.join(ended)}", flush=True)
