# SPDX-License-Identifier: MIT
"""Crash states: what a crash may leave of a recorded workload, built, checked and reduced.

A workload runs once and is recorded (:func:`recording`, or dm-log-writes by anybody); its states are enumerated from
the log afterwards, as often as one likes, on any machine. docs/explanation/crash-states.md has the rules.
"""

from sampleblk_lab.crash import ace as ace
from sampleblk_lab.crash.checks import Check as Check
from sampleblk_lab.crash.checks import all_of as all_of
from sampleblk_lab.crash.checks import appended as appended
from sampleblk_lab.crash.checks import fio as fio
from sampleblk_lab.crash.checks import mounted as mounted
from sampleblk_lab.crash.checks import promised as promised
from sampleblk_lab.crash.checks import recovers as recovers
from sampleblk_lab.crash.checks import replaced as replaced
from sampleblk_lab.crash.checks import sqlite as sqlite
from sampleblk_lab.crash.explore import Exploration as Exploration
from sampleblk_lab.crash.explore import Failure as Failure
from sampleblk_lab.crash.log import Log as Log
from sampleblk_lab.crash.log import State as State
from sampleblk_lab.crash.model import Model as Model
from sampleblk_lab.crash.model import Prefix as Prefix
from sampleblk_lab.crash.model import Reorder as Reorder
from sampleblk_lab.crash.model import Sample as Sample
from sampleblk_lab.crash.model import Torn as Torn
from sampleblk_lab.crash.recording import recording as recording
from sampleblk_lab.crash.reproduce import unpack as unpack
from sampleblk_lab.crash.watch import Watched as Watched
from sampleblk_lab.crash.watch import as_watched as as_watched
from sampleblk_lab.crash.watch import watched as watched
