# SPDX-License-Identifier: MIT
"""The pytest plugin: loading it imports nothing heavy."""
