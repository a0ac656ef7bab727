# SPDX-License-Identifier: MIT
"""What some of Debian's kernels are built without."""

from __future__ import annotations

import pytest

from sampleblk_lab.recording import preflight

_table = preflight()
_works = dict(zip(_table["feature"].values, _table["works"].codes.tolist(), strict=True))

#: Debian's 5.10 has neither CONFIG_HIST_TRIGGERS nor CONFIG_SYNTH_EVENTS.
needs_histograms = pytest.mark.skipif(not _works.get("histograms"), reason="this kernel keeps no histograms")
