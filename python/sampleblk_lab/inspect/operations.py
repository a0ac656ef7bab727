# SPDX-License-Identifier: MIT
"""Operation tables (``struct file_operations`` and its like) with the names of their functions."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import drgn

from sampleblk_lab.errors import InputError
from sampleblk_lab.inspect.kernel import kernel, names, only_place, symbol_name

if TYPE_CHECKING:
    from collections.abc import Iterator


class Operations:
    """A table of functions by operation.

    Args:
        name: The table's own name, such as ``ext4_file_operations``.
        kind: Its type, such as ``struct file_operations``.
        functions: Operation to function, of those that are set.
    """

    def __init__(self, name: str, kind: str, functions: dict[str, str]) -> None:
        self.name = name
        self.kind = kind
        self.functions = functions

    def __getitem__(self, operation: str) -> str:
        """The function of that operation. Raises KeyError when it is not set."""
        return self.functions[operation]

    def __iter__(self) -> Iterator[str]:
        return iter(self.functions)

    def __len__(self) -> int:
        return len(self.functions)

    def __repr__(self) -> str:
        width = max(map(len, self.functions), default=0)
        lines = [f"{self.kind} {self.name} = {{"]
        lines += [f"    .{operation:{width}} = {function}," for operation, function in self.functions.items()]
        return "\n".join([*lines, "}"])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(k)}</td><td>{html.escape(v)}</td></tr>" for k, v in self.functions.items()
        )
        return f"<table><caption>{html.escape(self.kind)} {html.escape(self.name)}</caption>{rows}</table>"


def operations(table: str | drgn.Object, kind: str | None = None) -> Operations:
    """The functions of an operation table.

    Args:
        table: A pointer to one (``file.f_op``), or a table's name (``"ext4_file_operations"``), which needs `kind`.
        kind: Its type, such as ``"struct file_operations"``.

    Raises:
        InputError: No such name, several places of that name, or a name without its type.
    """
    program = kernel()
    if isinstance(table, str):
        address = only_place(names(), table, "table")
        if kind is None:
            raise InputError(f"the type of {table!r} is not known", expected="kind='struct …'")
        table = drgn.Object(program, kind, address=address)
    elif table.type_.kind == drgn.TypeKind.POINTER:
        table = table[0]
    functions = {}
    for member in table.type_.members:
        if member.name is None or _plain(member.type).kind != drgn.TypeKind.POINTER:
            continue
        value = getattr(table, member.name).value_()
        if value != 0 and _plain(_plain(member.type).type).kind == drgn.TypeKind.FUNCTION:
            functions[member.name] = symbol_name(value)
    address = table.address_
    name = symbol_name(address) if address is not None else "?"
    return Operations(name, table.type_.type_name().removeprefix("const "), functions)


def _plain(kind: drgn.Type) -> drgn.Type:
    """Without its typedefs."""
    while kind.kind == drgn.TypeKind.TYPEDEF:
        kind = kind.type
    return kind
