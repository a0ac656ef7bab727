# SPDX-License-Identifier: MIT
"""Tables: look-ups, text forms, and what numpy, Arrow and pandas get."""

import gc

import numpy as np
import pyarrow as pa
import pytest

from sampleblk_lab import Table


@pytest.fixture
def table() -> Table:
    return Table.of(
        {
            "syscall": ["write", "fadvise64", "close"],
            "calls": np.array([84992, 332, 166], dtype=np.uint64),
            "usecs_per_call": np.array([2.5, 216.0, 2.0]),
        },
        units={"usecs_per_call": "us"},
        metadata={"lost": "0"},
        key="syscall",
    )


def test_looks_up_by_key_row_and_slice(table: Table) -> None:
    assert table["calls"]["fadvise64"] == 332
    assert table["calls"][0] == 84992
    assert table["syscall"][-1] == "close"
    assert table["calls"][1:].tolist() == [332, 166]
    assert table.row("write") == {"syscall": "write", "calls": 84992, "usecs_per_call": 2.5}
    assert [row["calls"] for row in table.rows()] == [84992, 332, 166]


def test_a_missing_name_lists_those_there_are(table: Table) -> None:
    with pytest.raises(KeyError, match=r"no row 'fsync'.*'write', 'fadvise64', 'close'"):
        table["calls"]["fsync"]
    with pytest.raises(KeyError, match=r"no column 'errors'.*'syscall', 'calls'"):
        table["errors"]
    with pytest.raises(KeyError, match="no key column"):
        Table.of({"a": np.zeros(1)})["a"]["x"]


def test_numpy_sees_the_core_s_memory_read_only(table: Table) -> None:
    view = table["calls"].codes
    first = view.__array_interface__["data"][0]
    assert table["calls"].codes.__array_interface__["data"][0] == first
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1
    del table
    gc.collect()
    assert view.tolist() == [84992, 332, 166]  # the view keeps the memory alive


def test_arrow_takes_types_units_metadata_and_dictionaries(table: Table) -> None:
    arrow = pa.table(table)
    assert arrow.schema.field("calls").type == pa.uint64()
    assert arrow.schema.field("usecs_per_call").metadata == {b"unit": b"us"}
    assert arrow.schema.metadata == {b"lost": b"0"}
    assert arrow.column("syscall").to_pylist() == ["write", "fadvise64", "close"]
    assert pa.schema(table) == arrow.schema


def test_text_shows_units_metadata_and_cuts_the_middle(table: Table) -> None:
    text = repr(table)
    assert "usecs_per_call [us]" in text
    assert "lost: 0" in text
    long = repr(Table.of({"n": np.arange(1000)}))
    assert "…" in long
    assert "(1000 rows)" in long
    assert long.count("\n") < 50


def test_html_escapes_what_it_shows() -> None:
    shown = Table.of({"name": ["<script>"]})._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown


def test_lengths_and_types_are_checked() -> None:
    with pytest.raises(ValueError, match="'b' has 1 rows, column 'a' has 2"):
        Table.of({"a": np.zeros(2), "b": np.zeros(1)})
    with pytest.raises(TypeError, match="complex128"):
        Table.of({"a": np.zeros(2, dtype=complex)})
