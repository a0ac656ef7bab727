# SPDX-License-Identifier: MIT
"""Typed tables: what every recording, log and view is handed out as.

A :class:`Table` holds columns of the C++ core. Numbers are seen by numpy without a copy; pandas, polars, pyarrow and
duckdb take the whole table through the Arrow PyCapsule interface (``__arrow_c_stream__``).
"""

from __future__ import annotations

import copy
import html
import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np

from sampleblk_lab._native import core
from sampleblk_lab.errors import InputError
from sampleblk_lab.texts import counted, notes, readable

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

    def _ranks(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """What sorts the rows, as signed numbers, and which are missing."""
        categories = self._column.categories
        codes = self._column.values
        if categories is None:
            _, ranks = np.unique(codes, return_inverse=True)
            missing = np.isnan(codes) if codes.dtype.kind == "f" else np.zeros(len(codes), dtype=bool)
            return ranks.astype(np.int64), missing
        # The last place is that of code -1, a missing string.
        place = np.zeros(len(categories) + 1, dtype=np.int64)
        place[sorted(range(len(categories)), key=categories.__getitem__)] = np.arange(len(categories))
        return place[codes], codes < 0

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
            KeyError: The table has no key column, no row of that key, or several.
        """
        if isinstance(index, slice):
            picked: NDArray[Any] = self.values[index]
            return picked
        if isinstance(index, str):
            index = self._row_of(index)
        code = self._column.values[index].item()
        if self._column.type != "string":
            value: Value = code
            return value
        return self._column.category(code) if code >= 0 else None

    def _row_of(self, key: str) -> int:
        if self._keys is None or self._keys.categories is None:
            raise KeyError(f"{key!r}: this table has no key column to look rows up by")
        categories = self._keys.categories
        code = categories.index(key) if key in categories else -2
        rows = np.flatnonzero(self._keys.values == code)
        if len(rows) == 0:
            raise KeyError(f"no row {key!r}; there are {', '.join(map(repr, categories)) or 'none'}")
        if len(rows) > 1:
            raise KeyError(f"{len(rows)} rows are named {key!r}: pick one by its number, or filter rows()")
        return int(rows[0])

    def __arrow_c_schema__(self) -> object:
        return self._column.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        return self._column.__arrow_c_array__(requested_schema)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._column.__arrow_c_stream__(requested_schema)

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
        columns: Mapping[str, NDArray[Any] | Sequence[str | None] | Sequence[float]],
        *,
        units: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> Self:
        """A table from columns.

        Args:
            columns: Name to values, every one of the same length: a numpy array, whose type the column gets; strings,
                None where one is missing; ints (int64, or uint64 where they need it); floats, NaN where one is missing;
                bools, which beside a missing one are the floats 0 and 1.
            units: Name to unit, of columns of numbers.
            metadata: What must travel with the table, such as loss counts.
            key: The string column whose values name the rows.

        Raises:
            InputError: A unit or the key is of a column that is missing; a unit of strings; a whole number that no
                float holds, in a column that has missing numbers or floats.
            TypeError: Values of several kinds in one column.
            ValueError: Columns of different lengths.
        """
        units = units or {}
        for name in columns:
            if not isinstance(name, str):
                raise InputError(f"a column is named {name!r}", expected="text")
        for what, texts in (("units", units), ("metadata", metadata or {})):
            for name, text in texts.items():
                if not (isinstance(name, str) and isinstance(text, str)):
                    raise InputError(f"{what}[{name!r}] is {text!r}", expected="text")
        for name in [*units, *([] if key is None else [key])]:
            if name not in columns:
                raise InputError(f"no column {name!r}", expected=", ".join(map(repr, columns)))
        built = [_column(name, values, units.get(name, "")) for name, values in columns.items()]
        for column in built:
            if column.categories is not None and column.name in units:
                raise InputError(f"a unit of {column.name!r}, a column of strings", expected="a column of numbers")
        return cls(core.Table(built, dict(metadata or {})), key)

    @classmethod
    def from_rows(
        cls,
        rows: Iterable[Mapping[str, Value]],
        *,
        units: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> Self:
        """A table from rows, such as those of ``csv.DictReader`` or of another table.

        Args:
            rows: Each a mapping of the same names; None is a missing string, or NaN among numbers.
            units: See :meth:`of`.
            metadata: See :meth:`of`.
            key: See :meth:`of`.

        Raises:
            InputError: A row has other names than the first; or as of :meth:`of`.
        """
        found = list(rows)
        names = list(found[0]) if found else []
        for number, row in enumerate(found):
            if set(row) != set(names):
                raise InputError(f"row {number} has {', '.join(map(repr, row))}", expected=", ".join(map(repr, names)))
        columns: dict[str, Any] = {name: [row[name] for row in found] for name in names}
        return cls.of(columns, units=units, metadata=metadata, key=key)

    @classmethod
    def from_arrow(cls, data: Any, *, key: str | None = None) -> Self:
        """A table from whatever has Arrow's ``__arrow_c_stream__``: pyarrow, polars, pandas, duckdb. Needs pyarrow.

        Units come from the fields' metadata ``unit``, where there are any.

        Args:
            data: The other library's table.
            key: The string column whose values name the rows.

        Raises:
            InputError: Two columns of one name; a whole number that no float holds, beside missing ones.
            TypeError: A column is of a type that a table has not, such as a list, or a date.
        """
        import pyarrow as pa  # type: ignore[import-untyped]

        arrow = pa.table(data)
        _check_names(arrow.column_names)
        units = {}
        columns: dict[str, Any] = {}
        for field, chunks in zip(arrow.schema, arrow.columns, strict=True):
            kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            words = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
            if words or pa.types.is_boolean(kind) or (pa.types.is_integer(kind) and chunks.null_count):
                columns[field.name] = chunks.to_pylist()
            elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
                # Of a dictionary, a missing one would be the number of another.
                columns[field.name] = chunks.cast(kind).to_numpy()
            else:
                raise TypeError(f"column {field.name!r}: no column type for Arrow's {field.type}")
            if unit := (field.metadata or {}).get(b"unit", b"").decode():
                units[field.name] = unit
        # What other libraries keep for themselves, such as pandas, is of no use in a table.
        kept = {k.decode(): v.decode() for k, v in (arrow.schema.metadata or {}).items() if k != b"pandas"}
        return cls.of(columns, units=units, metadata=kept, key=key)

    @classmethod
    def from_pandas(cls, frame: pd.DataFrame, *, key: str | None = None) -> Self:
        """A table from a DataFrame; units and metadata come from its ``attrs``, where :meth:`to_pandas` puts them.

        An index is a column, as by ``reset_index()``, but for one of whole numbers without a name.

        Raises:
            InputError: Two columns of one name; a whole number that no float holds, beside missing ones.
            TypeError: A column is of a type that a table has not.
        """
        index = frame.index
        kinds = [index.get_level_values(level).dtype.kind for level in range(index.nlevels)]
        told = [level for level, name in enumerate(index.names) if name is not None or kinds[level] not in "iu"]
        if told:
            frame = frame.reset_index(level=told)
        names = [str(name) for name in frame.columns]
        _check_names(names)
        columns: dict[str, Any] = {}
        for number, name in enumerate(names):
            series = frame.iloc[:, number]
            words = series.dtype == object or series.dtype.name in ("category", "str", "string", "boolean")
            # pandas would make floats of whole numbers beside a missing one, whatever becomes of them.
            words = words or (not isinstance(series.dtype, np.dtype) and bool(series.isna().any()))
            columns[name] = series.astype(object).where(series.notna(), None).tolist() if words else series.to_numpy()
        attributes = dict(frame.attrs)
        units = {name: unit for name, unit in attributes.pop("units", {}).items() if name in columns}
        return cls.of(columns, units=units, metadata={str(k): str(v) for k, v in attributes.items()}, key=key)

    def take(self, rows: Sequence[int] | NDArray[Any]) -> Self:
        """A table of these rows, by their numbers or as a mask of bools, in this order.

        Its class, units, key and metadata stay: loss counts are those of the whole.

        Raises:
            IndexError: There is no such row.
        """
        wanted = np.asarray(rows)
        if wanted.dtype == bool:
            if len(wanted) != len(self):
                raise IndexError(f"a mask of {len(wanted)} for {len(self)} rows")
            wanted = np.flatnonzero(wanted)
        elif wanted.size and wanted.dtype.kind not in "iu":
            raise TypeError(f"rows are picked by numbers or bools, not {wanted.dtype}")
        if wanted.dtype.kind == "u":  # the largest would be negative, which is a row from the end
            wanted = np.minimum(wanted, len(self))
        wanted = wanted.astype(np.int64)
        wanted = np.where(wanted < 0, wanted + len(self), wanted)
        return self._with(core.Table([column.take(wanted) for column in self._table.columns], self.metadata))

    def _with(self, table: core.Table) -> Self:
        """The same kind of table around other rows."""
        made = copy.copy(self)
        made._table = table  # noqa: SLF001
        return made

    def head(self, rows: int = 10) -> Self:
        """The first rows."""
        return self.take(np.arange(min(max(rows, 0), len(self))))

    def sort(self, *names: str, descending: bool = False) -> Self:
        """The rows in the order of these columns, the first counting most; equals keep their order.

        Missing values come last either way.

        Args:
            names: Columns; strings are in alphabetical order.
            descending: The largest first.
        """
        if not names:
            raise InputError("sort() without a column", expected=", ".join(map(repr, self.columns)))
        order = np.arange(len(self))
        for name in reversed(names):
            ranks, missing = self[name]._ranks()  # noqa: SLF001
            ranks = -ranks if descending else ranks
            order = order[np.lexsort((ranks[order], missing[order]))]
        return self.take(order)

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

    def __iter__(self) -> Iterator[dict[str, Value]]:
        """Over the rows, of which there are ``len(table)``; ``table.columns`` has the columns' names."""
        return self.rows()

    def row(self, key: str) -> dict[str, Value]:
        """The row whose key is `key`. Raises KeyError when there is none, or several."""
        return {name: self[name][key] for name in self.columns}

    def to_pandas(self) -> pd.DataFrame:
        """The table as a pandas DataFrame, strings as categoricals. Needs pandas.

        Its ``attrs`` have the metadata, and as ``"units"`` the unit of each column that has one.
        """
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
        if units := {name: self[name].unit for name in self.columns if self[name].unit}:
            frame.attrs["units"] = units
        return frame

    def __arrow_c_schema__(self) -> object:
        return self._table.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)

    def _cells(self, most: int) -> tuple[list[str], list[list[str]], list[bool]]:
        """Heads, at most so many rows and which columns are numbers; a row of "…" stands for those cut out."""
        total = len(self)
        numbers: list[int] = list(range(total))
        cut = total > most
        if cut:
            half = most // 2
            numbers = [*range(half), *range(total - half, total)]
        columns = [self[name] for name in self.columns]
        rows = [[_shown(column[number]) for column in columns] for number in numbers]
        if cut:
            rows.insert(most // 2, ["…"] * len(columns))
        heads = [readable(f"{column.name} [{column.unit}]" if column.unit else column.name) for column in columns]
        return heads, rows, [column.categories is None for column in columns]

    def __repr__(self) -> str:
        return self._aligned(_REPR_ROWS)

    def text(self) -> str:
        """All of it, a line for each row; the repr cuts the middle out of a long one."""
        return self._aligned(len(self))

    def _aligned(self, most: int) -> str:
        heads, rows, numeric = self._cells(most)
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
        text.extend(self._notes())
        return "\n".join(text)

    def _notes(self) -> list[str]:
        return notes(self.metadata)

    def _repr_html_(self) -> str:
        heads, rows, numeric = self._cells(_REPR_ROWS)

        def cells(tag: str, texts: list[str]) -> str:
            return "".join(
                f'<{tag} style="text-align:{"right" if number else "left"}">{html.escape(text)}</{tag}>'
                for text, number in zip(texts, numeric, strict=True)
            )

        body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
        below = "".join(f"<br>{html.escape(note)}" for note in self._notes())
        return (
            f'<table class="sblk-table"><thead><tr>{cells("th", heads)}</tr></thead><tbody>{body}</tbody></table>'
            f"<small>{counted(len(self), 'row')}{below}</small>"
        )


def _check_names(names: Sequence[str]) -> None:
    """Raises InputError for columns of which one would be lost."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"several columns are named {', '.join(map(repr, twice))}", expected="a name for each column")


def _column(name: str, values: Any, unit: str) -> core.Column:
    """A core column from what :meth:`Table.of` takes."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        values = values.tolist()  # what is masked is None there, and in the array whatever lies under the mask
    if isinstance(values, np.ndarray) and values.dtype.kind not in "OU":
        return core.Column(name, values, unit)
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise TypeError(f"column {name!r} is {values!r}, not a sequence of values")
    listed: list[Any] = list(values)
    kinds = {type(value) for value in listed if value is not None}
    if all(issubclass(kind, str) for kind in kinds):
        if unit and not listed:  # a column of no rows with a unit is one of numbers
            return core.Column(name, np.zeros(0), unit)
        try:
            return core.Column.of_strings(name, listed)
        except TypeError:  # half of a surrogate pair, which is of no file's name, and of no text in UTF-8
            bad = next(
                value for value in listed if value is not None and re.search("[\ud800-\udc7f\udd00-\udfff]", value)
            )
            raise InputError(f"column {name!r} has {bad!r}", expected="text that UTF-8 has") from None
    if all(issubclass(kind, (bool, np.bool_)) for kind in kinds):
        if None in listed:
            return core.Column(name, np.array([np.nan if v is None else float(v) for v in listed]), unit)
        return core.Column(name, np.array(listed, dtype=bool), unit)
    whole = all(issubclass(kind, (int, np.integer)) and not issubclass(kind, bool) for kind in kinds)
    if whole and None not in listed:
        wide = np.uint64 if max(listed) > np.iinfo(np.int64).max else np.int64
        for value in (min(listed), max(listed)):
            if not np.iinfo(wide).min <= value <= np.iinfo(wide).max:
                raise InputError(f"column {name!r} has {value}", expected="numbers of int64, or of uint64")
        return core.Column(name, np.array(listed, dtype=wide), unit)
    if all(issubclass(kind, (int, float, np.number)) and not issubclass(kind, bool) for kind in kinds):
        for value in listed:
            # Compared exactly: an address or a time stamp would be another one.
            if isinstance(value, (int, np.integer)) and int(value) != float(value):
                raise InputError(
                    f"column {name!r} has {value} beside floats or missing values",
                    expected=f"numbers that a float holds, such as whole ones up to {2**53}",
                )
        return core.Column(name, np.array([np.nan if v is None else v for v in listed], dtype=np.float64), unit)
    kinds_text = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise TypeError(f"column {name!r} has values of {kinds_text}; a column holds strings, or numbers")


def _shown(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        # Whole numbers to the last digit: they are sectors, times or bytes, beside missing ones.
        return f"{value:.0f}" if value.is_integer() and abs(value) <= 2**53 else f"{value:.6g}"
    return readable(str(value))  # a traceback, or a file's name, is in one line of one width
