# SPDX-License-Identifier: MIT
"""Typed tables: what every recording, log and view is handed out as.

A :class:`Table` holds columns of the C++ core. Numbers are seen by numpy without a copy; pandas, polars, pyarrow and
duckdb take the whole table through the Arrow PyCapsule interface (``__arrow_c_stream__``).
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from sampleblk_lab._native import core

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

Value = int | float | str | None

# Rows that a repr shows before it cuts the middle out.
_REPR_ROWS = 40


class Column:
    """One typed column of a table.

    Args:
        column: The core's column.
        keys: The table's key column, which makes ``column["write"]`` a look-up by row name.
    """

    def __init__(self, column: core.Column, keys: core.Column | None = None) -> None:
        self._column = column
        self._keys = keys

    @property
    def name(self) -> str:
        """The column's name."""
        return self._column.name

    @property
    def unit(self) -> str:
        """The unit of its values, such as ``"ns"`` or ``"bytes"``; empty when they have none."""
        return self._column.unit

    @property
    def type(self) -> str:
        """``"uint64"``, ``"float64"``, … as numpy names them, or ``"string"``."""
        return self._column.type

    @property
    def codes(self) -> NDArray[Any]:
        """The stored numbers, shape ``(rows,)``, read-only and without a copy; for strings, their int32 codes."""
        return self._column.values

    @property
    def categories(self) -> list[str] | None:
        """The distinct strings that the codes count from 0, or None for numbers."""
        return self._column.categories

    @property
    def values(self) -> NDArray[Any]:
        """The values, shape ``(rows,)``: the numbers themselves, or an object array of str (None where missing)."""
        categories = self._column.categories
        if categories is None:
            return self._column.values
        # Code -1, a missing string, picks the last entry.
        words: NDArray[Any] = np.array([*categories, None], dtype=object)[self._column.values]
        return words

    def __len__(self) -> int:
        return len(self._column)

    def __iter__(self) -> Iterator[Value]:
        return iter(self.values.tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype=dtype, copy=True if copy else None)

    @overload
    def __getitem__(self, index: int | str) -> Value: ...
    @overload
    def __getitem__(self, index: slice) -> NDArray[Any]: ...
    def __getitem__(self, index: int | str | slice) -> Value | NDArray[Any]:
        """A value by row number, values by slice, or a value by the row's key.

        Raises:
            KeyError: The table has no key column, or no row of that key.
        """
        if isinstance(index, slice):
            picked: NDArray[Any] = self.values[index]
            return picked
        if isinstance(index, str):
            index = self._row_of(index)
        code = self._column.values[index].item()
        categories = self._column.categories
        if categories is None:
            value: Value = code
            return value
        return categories[code] if code >= 0 else None

    def _row_of(self, key: str) -> int:
        if self._keys is None or self._keys.categories is None:
            raise KeyError(f"{key!r}: this table has no key column to look rows up by")
        categories = self._keys.categories
        code = categories.index(key) if key in categories else -2
        rows = np.flatnonzero(self._keys.values == code)
        if len(rows) == 0:
            raise KeyError(f"no row {key!r}; there are {', '.join(map(repr, categories)) or 'none'}")
        return int(rows[0])

    def __repr__(self) -> str:
        unit = f" [{self.unit}]" if self.unit else ""
        return f"<Column {self.name}{unit}: {len(self)} x {self.type}>"


class Table:
    """Named columns of one length.

    Args:
        table: The core's table.
        key: The string column whose values name the rows, if one does.
    """

    def __init__(self, table: core.Table, key: str | None = None) -> None:
        self._table = table
        self._key = key

    @classmethod
    def of(
        cls,
        columns: Mapping[str, NDArray[Any] | Sequence[str]],
        *,
        units: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> Table:
        """A table from numpy arrays and lists of strings.

        Args:
            columns: Name to values; every one of the same length.
            units: Name to unit.
            metadata: What must travel with the table, such as loss counts.
            key: The string column whose values name the rows.
        """
        units = units or {}
        built = [
            core.Column(name, values, units.get(name, ""))
            if isinstance(values, np.ndarray)
            else core.Column.of_strings(name, list(values))
            for name, values in columns.items()
        ]
        return cls(core.Table(built, dict(metadata or {})), key)

    @property
    def columns(self) -> list[str]:
        """The column names, in order."""
        return [column.name for column in self._table.columns]

    @property
    def metadata(self) -> dict[str, str]:
        """What travels with the table, such as loss counts."""
        return self._table.metadata

    @property
    def key(self) -> str | None:
        """The column whose values name the rows, if one does."""
        return self._key

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def __getitem__(self, name: str) -> Column:
        """The column of that name.

        Raises:
            KeyError: There is none; the message lists those there are.
        """
        if name not in self.columns:
            raise KeyError(f"no column {name!r}; there are {', '.join(map(repr, self.columns))}")
        keys = self._table.column(self._key) if self._key is not None else None
        return Column(self._table.column(name), keys)

    def rows(self) -> Iterator[dict[str, Value]]:
        """Each row as a dict, for small tables and for tests."""
        names = self.columns
        for values in zip(*(self[name] for name in names), strict=True):
            yield dict(zip(names, values, strict=True))

    def row(self, key: str) -> dict[str, Value]:
        """The row whose key is `key`. Raises KeyError when there is none."""
        return {name: self[name][key] for name in self.columns}

    def to_pandas(self) -> pd.DataFrame:
        """The table as a pandas DataFrame, strings as categoricals. Needs pandas."""
        import pandas as pd

        data: dict[str, Any] = {}
        for name in self.columns:
            column = self[name]
            if column.categories is None:
                data[name] = column.codes
            else:
                data[name] = pd.Categorical.from_codes(column.codes, categories=pd.Index(column.categories))
        frame = pd.DataFrame(data)
        frame.attrs.update(self.metadata)
        return frame

    def __arrow_c_schema__(self) -> object:
        return self._table.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)

    def _cells(self) -> tuple[list[str], list[list[str]], list[bool]]:
        """Heads, shown rows and which columns are numbers; a row of "…" stands for those cut out."""
        total = len(self)
        numbers: list[int] = list(range(total))
        cut = total > _REPR_ROWS
        if cut:
            half = _REPR_ROWS // 2
            numbers = [*range(half), *range(total - half, total)]
        columns = [self[name] for name in self.columns]
        rows = [[_shown(column[number]) for column in columns] for number in numbers]
        if cut:
            rows.insert(_REPR_ROWS // 2, ["…"] * len(columns))
        heads = [f"{column.name} [{column.unit}]" if column.unit else column.name for column in columns]
        return heads, rows, [column.categories is None for column in columns]

    def __repr__(self) -> str:
        heads, rows, numeric = self._cells()
        widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]

        def line(cells: list[str]) -> str:
            aligned = (
                cell.rjust(width) if number else cell.ljust(width)
                for cell, width, number in zip(cells, widths, numeric, strict=True)
            )
            return "  ".join(aligned).rstrip()

        text = [line(heads), "  ".join("-" * width for width in widths), *map(line, rows)]
        if len(self) > _REPR_ROWS:
            text.append(f"({len(self)} rows)")
        text.extend(f"{name}: {value}" for name, value in self.metadata.items())
        return "\n".join(text)

    def _repr_html_(self) -> str:
        heads, rows, numeric = self._cells()

        def cells(tag: str, texts: list[str]) -> str:
            return "".join(
                f'<{tag} style="text-align:{"right" if number else "left"}">{html.escape(text)}</{tag}>'
                for text, number in zip(texts, numeric, strict=True)
            )

        body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
        notes = "".join(f"<br>{html.escape(f'{name}: {value}')}" for name, value in self.metadata.items())
        return (
            f'<table class="sblk-table"><thead><tr>{cells("th", heads)}</tr></thead><tbody>{body}</tbody></table>'
            f"<small>{len(self)} rows{notes}</small>"
        )


def _shown(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)
