# SPDX-License-Identifier: MIT
"""drgn types out of BTF (https://docs.kernel.org/bpf/btf.html), each made when it is first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import drgn

from sampleblk_lab.errors import FormatError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sampleblk_lab._native import core

# Kinds, as numbered in include/uapi/linux/btf.h.
_INT, _PTR, _ARRAY, _STRUCT, _UNION, _ENUM, _FWD, _TYPEDEF, _VOLATILE, _CONST, _RESTRICT = range(1, 12)
_FUNC, _FUNC_PROTO, _VAR, _DATASEC, _FLOAT, _DECL_TAG, _TYPE_TAG, _ENUM64 = range(12, 20)
_SIGNED, _BOOL = 1, 4
_QUALIFIERS = {
    _VOLATILE: drgn.Qualifiers.VOLATILE,
    _CONST: drgn.Qualifiers.CONST,
    _RESTRICT: drgn.Qualifiers.RESTRICT,
}
# Of types that are pointers to, arrays of or names of another one. The kernel's own limit is 32 (kernel/bpf/btf.c).
_DEEPEST = 64
_FOUND_BY = {
    drgn.TypeKind.INT: [_INT],
    drgn.TypeKind.BOOL: [_INT],
    drgn.TypeKind.FLOAT: [_FLOAT],
    drgn.TypeKind.STRUCT: [_STRUCT],
    drgn.TypeKind.UNION: [_UNION],
    drgn.TypeKind.ENUM: [_ENUM, _ENUM64],
    drgn.TypeKind.TYPEDEF: [_TYPEDEF],
}


def shape(type_: drgn.Type) -> tuple[Any, ...]:
    """What two types of one name must have in common to be one: a compiler may have described it more than once."""
    if type_.kind in (drgn.TypeKind.STRUCT, drgn.TypeKind.UNION):
        return (type_.size, *((member.name, member.bit_offset) for member in type_.members or ()))
    if type_.kind == drgn.TypeKind.ENUM:
        return tuple((one.name, one.value) for one in type_.enumerators or ())
    return ()


class BtfTypes:
    """The types of one BTF file as drgn's.

    Args:
        program: The program that they are of.
        btf: The file.
    """

    def __init__(self, program: drgn.Program, btf: core.Btf) -> None:
        self.program = program
        self.btf = btf
        self._made: dict[int, drgn.Type] = {}
        self._depth = 0

    def find(self, kinds: drgn.TypeKindSet, name: str) -> drgn.Type | None:
        """The type of that name and one of these kinds; None when there is none.

        Raises:
            InputError: There are several that are unlike each other, as those of several source files may be.
        """
        for kind in kinds:
            found = [
                made
                for number in _FOUND_BY.get(kind, ())
                for made in map(self.get, self.btf.find(name, number))
                if made.kind == kind
            ]
            if len({shape(made) for made in found}) > 1:
                raise InputError(f"{len(found)} types are named {name!r}", expected="a name of one type")
            if found:
                return found[0]
        return None

    def variable(self, name: str) -> drgn.Type | None:
        """The type of a global variable that BTF knows (per-CPU ones); None when it does not."""
        for identity in self.btf.find(name, _VAR):
            return self.get(int(self.btf.type(identity)["type"]))
        return None

    def constant(self, name: str) -> drgn.Object | None:
        """The constant of that name of any enumeration; None when there is none.

        Raises:
            InputError: Several enumerations have one, with different values.
        """
        found = self.btf.enumerations_of(name)
        if not found:
            return None
        values = {member[4] for one in found for member in self.btf.type(one)["members"] if member[0] == name}
        if len(values) > 1:
            shown = ", ".join(map(str, sorted(values)))
            raise InputError(f"{len(found)} enumerations have a {name!r}", expected=f"a constant of one value: {shown}")
        return drgn.Object(self.program, self.get(found[0]), values.pop())

    def get(self, identity: int) -> drgn.Type:
        """The type of that BTF id. Raises FormatError where it is one of itself, or not in the file."""
        made = self._made.get(identity)
        if made is None:
            if self._depth == _DEEPEST:
                raise FormatError(self.btf.source, 0, f"type {identity} to be one of other types than itself")
            self._depth += 1
            try:
                made = self._made[identity] = self._make(identity)
            finally:
                self._depth -= 1
        return made

    def _make(self, identity: int) -> drgn.Type:
        program = self.program
        if identity == 0:
            return program.void_type()
        btf = self.btf.type(identity)
        kind, name = btf["kind"], btf["name"]
        if kind == _INT:
            if btf["encoding"] & _BOOL:
                return program.bool_type(name, btf["size"])
            return program.int_type(name, btf["size"], bool(btf["encoding"] & _SIGNED))
        if kind == _FLOAT:
            return program.float_type(name, btf["size"])
        if kind == _PTR:
            return program.pointer_type(self.get(btf["type"]))
        if kind == _ARRAY:
            return program.array_type(self.get(btf["type"]), btf["count"])
        if kind in (_STRUCT, _UNION):
            make = program.struct_type if kind == _STRUCT else program.union_type
            return make(name or None, btf["size"], [self._member(member) for member in btf["members"]])
        if kind == _FWD:
            return (program.union_type if btf["flag"] else program.struct_type)(name)
        if kind in (_ENUM, _ENUM64):
            signed = bool(btf["flag"])
            compatible = program.int_type("int" if signed else "unsigned int", btf["size"], signed)
            values = [drgn.TypeEnumerator(member[0], member[4]) for member in btf["members"]]
            return program.enum_type(name or None, compatible, values)
        if kind == _TYPEDEF:
            return program.typedef_type(name, self.get(btf["type"]))
        if kind in _QUALIFIERS:
            inner = self.get(btf["type"])
            return inner.qualified(inner.qualifiers | _QUALIFIERS[kind])
        if kind == _FUNC_PROTO:
            # A last parameter without a type stands for "...".
            members = list(btf["members"])
            variadic = bool(members) and members[-1][1] == 0
            parameters = [
                drgn.TypeParameter(self._later(member[1]), member[0] or None)
                for member in (members[:-1] if variadic else members)
            ]
            return program.function_type(self.get(btf["type"]), parameters, variadic)
        # Functions, variables and tags stand for what they are of.
        return self.get(btf["type"])

    def _later(self, identity: int) -> Callable[[], drgn.Type]:
        return lambda: self.get(identity)

    def _member(self, member: tuple[str, int, int, int, int]) -> drgn.TypeMember:
        name, identity, bit_offset, bit_field_size, _ = member
        if not bit_field_size:
            return drgn.TypeMember(self._later(identity), name or None, bit_offset)

        def bit_field() -> Any:
            return drgn.Object(self.program, self.get(identity), bit_field_size=bit_field_size)

        return drgn.TypeMember(bit_field, name or None, bit_offset)
