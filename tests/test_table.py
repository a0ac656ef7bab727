# SPDX-License-Identifier: MIT
"""Tables: look-ups, text forms, and what numpy, Arrow and pandas get."""

import gc
import time
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import sampleblk_lab as lab
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


def test_a_cell_costs_the_same_however_many_words_its_column_has() -> None:
    words = [f"word {number}" for number in range(200_000)]
    column = Table.of({"word": [*words, None]})["word"]
    begin = time.perf_counter()
    assert [column[number] for number in range(0, len(words), 100)] == words[::100]
    assert time.perf_counter() - begin < 2
    assert column[-1] is None
    assert column[-2] == words[-1]


def test_a_key_that_names_several_rows_is_no_look_up() -> None:
    table = Table.of({"name": ["a", "b", "a"], "n": np.arange(3)}, key="name")
    assert table["n"]["b"] == 1
    with pytest.raises(KeyError, match=r"2 rows are named 'a'"):
        table["n"]["a"]
    with pytest.raises(KeyError, match=r"2 rows are named 'a'"):
        table.row("a")


def test_a_table_iterates_over_its_rows(table: Table) -> None:
    assert list(table) == list(table.rows())
    assert len(list(table)) == len(table)
    assert "calls" in table  # a column's name, as before
    assert "write" not in table


def test_a_column_goes_to_arrow_by_itself(table: Table) -> None:
    calls = pa.array(table["calls"])
    assert calls.type == pa.uint64()
    assert calls.to_pylist() == [84992, 332, 166]
    names = pa.array(table["syscall"])
    assert names.type == pa.dictionary(pa.int32(), pa.string())
    assert names.to_pylist() == ["write", "fadvise64", "close"]
    assert pa.chunked_array(table["usecs_per_call"]).to_pylist() == [2.5, 216.0, 2.0]
    assert pa.field(table["usecs_per_call"]).metadata == {b"unit": b"us"}
    # What nobody consumes is released, and what was consumed outlives the table.
    for _ in range(3):
        table["syscall"].__arrow_c_array__()
    del table
    gc.collect()
    assert calls.to_pylist() == [84992, 332, 166]


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


def test_text_has_a_line_for_each_row_whatever_is_in_a_cell() -> None:
    """Such as a traceback, or what somebody called a file: also one that a terminal would obey."""
    table = Table.of({"file": ["a\nb", "\x1b[2J", "plain"], "count": [1, 22, 3]}, metadata={"of": "\x1b[2J"})
    assert str(table.text()).splitlines() == [
        "file     count",
        "-------  -----",
        "a\\nb         1",
        "\\x1b[2J     22",
        "plain        3",
        "of: \\x1b[2J",
    ]
    assert "\x1b" not in table._repr_html_()


def test_text_shows_units_metadata_and_cuts_the_middle(table: Table) -> None:
    text = repr(table)
    assert "usecs_per_call [us]" in text
    assert "lost: 0" in text
    long = repr(Table.of({"n": np.arange(1000)}))
    assert "…" in long
    assert "(1000 rows)" in long
    assert long.count("\n") < 50
    # What a command prints has all of it.
    whole = Table.of({"n": np.arange(1000)}).text()
    assert "…" not in whole
    assert [int(line) for line in whole.splitlines()[2:-1]] == list(range(1000))
    assert whole.splitlines()[-1] == "(1000 rows)"
    assert table.text() == text


def test_html_escapes_what_it_shows() -> None:
    shown = Table.of({"name": ["<script>"], "<b>\n\x1b\udc80": [1]})._repr_html_()
    assert shown.isprintable()
    assert "&lt;b&gt;\\n\\x1b\\udc80</th>" in shown
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown


def test_lengths_and_types_are_checked() -> None:
    with pytest.raises(ValueError, match="'b' has 1 rows, column 'a' has 2"):
        Table.of({"a": np.zeros(2), "b": np.zeros(1)})
    with pytest.raises(TypeError, match="complex128"):
        Table.of({"a": np.zeros(2, dtype=complex)})
    for values in ("abc", b"abc", 5, np.float64(5)):
        with pytest.raises(TypeError, match=r"'a' is .*, not a sequence of values"):
            Table.of({"a": values})  # type: ignore[dict-item]
    for numbers, shown in ([2**64], 2**64), ([-(2**63) - 1], -(2**63) - 1), ([2**63, -1], -1):
        with pytest.raises(lab.InputError, match=f"'a' has {shown}"):
            Table.of({"a": numbers})
    with pytest.raises(lab.InputError, match=r"^a column is named 5 \(expected text\)$"):
        Table.of({5: [1]})  # type: ignore[dict-item]
    with pytest.raises(lab.InputError, match=r"^metadata\['lost'\] is 3 \(expected text\)$"):
        Table.of({"a": [1]}, metadata={"lost": 3})  # type: ignore[dict-item]
    with pytest.raises(lab.InputError, match=r"^units\['a'\] is None \(expected text\)$"):
        Table.of({"a": [1]}, units={"a": None})  # type: ignore[dict-item]


def test_head_sort_and_take_keep_units_key_and_metadata(table: Table) -> None:
    by_time = table.sort("usecs_per_call")
    assert by_time["syscall"].values.tolist() == ["close", "write", "fadvise64"]
    assert table.sort("usecs_per_call", descending=True).head(1).row("fadvise64")["calls"] == 332
    assert table.sort("syscall")["syscall"].values.tolist() == ["close", "fadvise64", "write"]
    assert table.take([-1, 0, 0])["calls"].values.tolist() == [166, 84992, 84992]
    assert table.take(table["calls"].codes > 200)["syscall"].values.tolist() == ["write", "fadvise64"]
    for made in (by_time, table.head(2), table.head(0), table.take([])):
        assert (made.columns, made.metadata, made.key) == (table.columns, table.metadata, table.key)
        assert [made[name].type for name in made.columns] == [table[name].type for name in table.columns]
        assert made["usecs_per_call"].unit == "us"
    assert [len(table.head(n)) for n in (-1, 0, 2, 99)] == [0, 0, 2, 3]
    with pytest.raises(IndexError, match="row 3 of 3"):
        table.take([3])
    with pytest.raises(IndexError, match="row 3 of 3"):
        table.take(np.array([2**64 - 1], dtype=np.uint64))
    with pytest.raises(IndexError, match="mask of 1 for 3"):
        table.take([True])
    with pytest.raises(TypeError, match="float64"):
        table.take(np.array([0.5]))
    with pytest.raises(KeyError, match="no column 'n'"):
        table.sort("n")


def test_sorting_is_stable_by_several_columns_and_missing_values_come_last() -> None:
    table = Table.of({"a": ["x", None, "x", "w"], "b": [1.0, 2.0, float("nan"), 3.0], "n": [0, 1, 2, 3]})
    assert table.sort("a")["n"].values.tolist() == [3, 0, 2, 1]
    assert table.sort("a", descending=True)["n"].values.tolist() == [0, 2, 3, 1]
    assert table.sort("b", descending=True)["n"].values.tolist() == [3, 1, 0, 2]
    assert table.sort("a", "b", descending=True)["n"].values.tolist() == [0, 2, 3, 1]
    wide = Table.of({"n": np.array([2**64 - 1, 0, 2**63], dtype=np.uint64)})
    assert wide.sort("n", descending=True)["n"].values.tolist() == [2**64 - 1, 2**63, 0]


def test_a_sorted_view_is_still_that_view() -> None:
    class Named(Table):
        def __repr__(self) -> str:
            return "named"

    assert repr(Named.of({"n": [2, 1]}).sort("n").head(1)) == "named"


def test_columns_are_typed_by_what_they_hold() -> None:
    made = Table.of(
        {"i": [1, -2], "w": [1, 2**64 - 1], "f": [1, 0.5], "h": [None, 2], "b": [True, False], "s": ["a", None]}
    )
    assert {name: made[name].type for name in made.columns} == {
        "i": "int64",
        "w": "uint64",
        "f": "float64",
        "h": "float64",
        "b": "uint8",
        "s": "string",
    }
    assert np.isnan(made["h"][0])
    assert made["s"].values.tolist() == ["a", None]
    assert Table.of({"n": []}, units={"n": "ns"})["n"].unit == "ns"
    with pytest.raises(TypeError, match="'n' has values of int, str"):
        Table.of({"n": [1, "a"]})
    with pytest.raises(lab.InputError, match=r"'n' has 'a\\ud800' \(expected text that UTF-8 has\)"):
        Table.of({"n": [None, "\udc80", "a\ud800"]})
    with pytest.raises(lab.InputError, match="no column 'm'"):
        Table.of({"n": [1]}, units={"m": "ns"})
    with pytest.raises(lab.InputError, match="no column 'm'"):
        Table.of({"n": [1]}, key="m")
    with pytest.raises(lab.InputError, match="a unit of 's'"):
        Table.of({"s": ["a"]}, units={"s": "ns"})


def test_rows_become_a_table_and_a_table_rows(table: Table) -> None:
    again = Table.from_rows(table, units={"usecs_per_call": "us"}, metadata=table.metadata, key="syscall")
    assert list(again) == list(table)
    assert repr(again) == repr(table)
    assert len(Table.from_rows([])) == 0
    with pytest.raises(lab.InputError, match="row 1 has 'a', 'c'"):
        Table.from_rows([{"a": 1, "b": 2}, {"a": 1, "c": 2}])


def test_pyarrow_and_pandas_bring_units_metadata_and_missing_values_back(table: Table) -> None:
    whole = Table.of({"s": ["a", None, "b"], "n": [1.5, None, 2.0]}, units={"n": "ns"}, metadata={"lost": "3"}, key="s")
    for one in (table, whole, table.head(0)):
        for made in (Table.from_arrow(pa.table(one), key=one.key), Table.from_pandas(one.to_pandas(), key=one.key)):
            assert repr(made) == repr(one)
            if len(one):
                assert [made[name].type for name in made.columns] == [one[name].type for name in one.columns]
    frame = table.to_pandas()
    assert frame.attrs == {"lost": "0", "units": {"usecs_per_call": "us"}}
    assert frame["calls"].sum() == 84992 + 332 + 166
    with pytest.raises(TypeError, match=r"'n': no column type for Arrow's list"):
        Table.from_arrow(pa.table({"n": [[1]]}))
    missing = [1, None], [True, None], pa.array([1.0, None]).dictionary_encode()
    for made in missing:
        assert repr(Table.from_arrow(pa.table({"n": made}))) == "  n\n---\n  1\nnan"
    assert Table.from_arrow(pa.table({"n": [True, False]}))["n"].type == Table.of({"n": [True, False]})["n"].type
    with pytest.raises(lab.InputError, match=f"'n' has {2**53 + 1} beside"):
        Table.from_arrow(pa.table({"n": [2**53 + 1, None]}))


def test_a_frame_s_index_and_each_of_its_columns_are_there() -> None:
    frame = pd.DataFrame({"size": [4, 8], "op": ["read", "write"]})
    assert Table.from_pandas(frame[frame["size"] > 4]).columns == ["size", "op"]
    sums = Table.from_pandas(frame.groupby("op").sum())
    assert list(sums) == [{"op": "read", "size": 4}, {"op": "write", "size": 8}]
    assert Table.from_pandas(frame[["size"]].describe())["index"].values.tolist()[:2] == ["count", "mean"]
    assert Table.from_pandas(pd.DataFrame({"n": pd.array([True, None], dtype="boolean")}))["n"][0] == 1
    with pytest.raises(lab.InputError, match="several columns are named '1'"):
        Table.from_pandas(pd.DataFrame([[1, 2]], columns=[1, "1"]))
    with pytest.raises(lab.InputError, match="several columns are named 'a'"):
        Table.from_arrow(pa.table([[1], [2]], names=["a", "a"]))


def test_polars_takes_a_table_and_gives_it_back(table: Table) -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame(table)
    assert frame.columns == table.columns
    assert frame["calls"].to_list() == table["calls"].values.tolist()
    assert frame["syscall"].to_list() == table["syscall"].values.tolist()
    assert pl.Series(table["calls"]).sum() == 84992 + 332 + 166
    slow = frame.filter(pl.col("usecs_per_call") > 100)
    assert Table.from_arrow(slow, key="syscall").row("fadvise64")["usecs_per_call"] == 216.0


def test_duckdb_queries_a_table_by_its_name(table: Table) -> None:
    duckdb = pytest.importorskip("duckdb")
    calls = table  # the name that the query uses
    found = duckdb.sql("select syscall, calls from calls where usecs_per_call < 100 order by calls desc").fetchall()
    assert found == [("write", 84992), ("close", 166)]
    made = Table.from_arrow(
        duckdb.sql("select syscall, sum(calls)::bigint as n from calls group by 1 order by 1").arrow()
    )
    assert made["n"].values.tolist() == [166, 332, 84992]
    assert len(calls) == 3


@pytest.mark.parametrize("beside", [None, 0.5, np.nan, np.float64(1)])
@pytest.mark.parametrize("number", [2**53 + 1, -(2**53) - 1, 2**64 - 1, np.uint64(2**63 + 2049)])
def test_no_column_loses_digits_of_a_number_beside_a_missing_one(number: int, beside: float | None) -> None:
    with pytest.raises(lab.InputError, match=f"'n' has {number} beside floats or missing values"):
        Table.of({"n": [number, beside]})
    with pytest.raises(lab.InputError, match=f"'n' has {number}"):
        Table.from_rows([{"n": beside}, {"n": number}])
    assert Table.of({"n": [2**53, 2**60, beside]})["n"][1] == 2**60


@pytest.mark.parametrize("dtype", ["Int64", "UInt64", "int64[pyarrow]"])
def test_a_frame_loses_no_digits_of_a_number_beside_a_missing_one(dtype: Any) -> None:
    with pytest.raises(lab.InputError, match=f"'n' has {2**53 + 1} beside"):
        Table.from_pandas(pd.DataFrame({"n": pd.array([2**53 + 1, None], dtype=dtype)}))
    for numbers, kind in (([5, None], "float64"), ([2**53 + 1, 5], dtype.partition("[")[0].lower())):
        column = Table.from_pandas(pd.DataFrame({"n": pd.array(numbers, dtype=dtype)}))["n"]
        assert (column.type, column[0]) == (kind, numbers[0])


def test_what_a_mask_hides_is_missing() -> None:
    hidden = np.ma.MaskedArray([1, 2, 3], mask=[False, True, False])
    assert np.isnan(Table.of({"n": hidden})["n"].values).tolist() == [False, True, False]
    assert Table.of({"n": np.ma.MaskedArray([1, 2], dtype=np.int8)})["n"].type == "int8"


def test_whole_numbers_beside_missing_ones_are_shown_to_the_last_digit() -> None:
    text = Table.of({"sector": [123456789, None, -7, 2**53, 1e18, 0.1234567]}).text()
    assert text.split()[2:] == ["123456789", "nan", "-7", "9007199254740992", "1e+18", "0.123457"]
