# SPDX-License-Identifier: MIT
"""The first experiment: "Linux Block Driver - 2", lab 1, done by one command instead of six tools."""
