"""From a Python function to machine code that runs without Numba: what a first start does, and no other.

Each kernel gets an entry: a C function that takes its arguments apart, calls the kernel and leaves what it returns. Its
machine code is written as an object file, for linking.py to load. All this is what Numba and llvmlite offer to others.
"""

from __future__ import annotations

import re
from typing import Any, Sequence

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from mpijoin.flags import ALIGNED, C_ORDER, WRITEABLE

# Machine code must not call back into Python: of what it may call, all is in the C library.
OUTSIDE = re.compile(r"llvm\.|mem(cpy|set|move)$|(log|log1p|exp|exp2|expm1|pow|rint|floor|ceil|sqrt|fabs)f?$")
WORD = ir.IntType(64)
FORMATS = {types.float64: "d", types.uint64: "Q", types.boolean: "?7x"}  # of what is returned; all else is signed

# Kernels allocate nothing, so they need no reference counts: counting cost two thirds of the time (an atomic per
# array). They raise nothing either, also not when they divide.
OPTIONS = {"nogil": True, "_nrt": False, "forceinline": True, "error_model": "numpy"}


def dispatcher_of(function: Any) -> Any:
    """The function as other kernels call it."""
    return numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **OPTIONS)(function)


def compile_entry(name: str, dispatcher: Any, kinds: Sequence[Any]) -> tuple[str, bytes]:
    """A kernel for arguments of these kinds (compiled.py says what they are).

    Returns what the kernel returns, as a `struct` format of a word each, in parentheses if that is a tuple; and an
    object file with the C function `void name(int64 *words, int64 *out)`.
    TypeError: it raises, allocates or needs Python in some other way.
    """
    wanted = _types_of(kinds)
    dispatcher.compile(wanted)
    returned = next(one.return_type for one in dispatcher.nopython_signatures if one.args == wanted)
    pointers = types.CPointer(types.int64), types.CPointer(types.int64)
    entry = numba.cfunc(types.void(*pointers), **OPTIONS)(_entry(dispatcher, types.Tuple(wanted)))
    machine = _machine()
    module = llvm.parse_assembly(entry.inspect_llvm())
    module.get_function(entry.native_name).name = name
    _drop_all_but(module, name, machine)
    for function in module.functions:
        if function.is_declaration and not OUTSIDE.match(function.name):
            raise TypeError(f"{name}: a kernel may neither raise nor allocate, this one needs {function.name}")
    return _format(returned), machine.emit_object(module)


def _format(returned: Any) -> str:
    if returned == types.none:
        return ""
    if isinstance(returned, types.BaseTuple):
        return f"({''.join(map(_format, returned.types))})"
    return FORMATS.get(types.unliteral(returned), "q")


def _types_of(kinds: Sequence[Any]) -> tuple[Any, ...]:
    """Numba's types of arguments."""
    return tuple(_type_of(kind) for kind in kinds)


def _type_of(kind: Any) -> Any:
    if isinstance(kind, str):
        return numba.from_dtype(np.dtype(kind))
    if isinstance(kind[0], str):
        dtype, dimensions, flags = kind
        layout, is_aligned = "C" if flags & C_ORDER else "A", bool(flags & ALIGNED)
        return types.Array(_type_of(dtype), dimensions, layout, readonly=not flags & WRITEABLE, aligned=is_aligned)
    members = _types_of(kind[1:])
    return types.BaseTuple.from_types(members, None if kind[0] is tuple else kind[0])


def _entry(dispatcher: Any, wanted: Any) -> Any:
    @intrinsic
    def arguments_in(typing_context, words):
        def build(context, builder, signature, arguments):
            return _Reader(context, builder, arguments[0]).value(wanted)

        return wanted(words), build

    @intrinsic
    def leave(typing_context, returned, out):
        def build(context, builder, signature, arguments):
            _leave(context, builder, signature.args[0], *arguments)
            return context.get_dummy_value()

        return types.void(returned, out), build

    def entry(words, out):
        leave(dispatcher(*arguments_in(words)), out)

    return entry


class _Reader:
    """Reads the arguments of a kernel from words: a scalar is one, an array the address of its Python object."""

    def __init__(self, context: Any, builder: Any, words: Any):
        self._context, self._builder, self._words, self._at = context, builder, words, 0

    def value(self, wanted: Any) -> Any:
        if isinstance(wanted, types.BaseTuple):
            return self._context.make_tuple(self._builder, wanted, [self.value(one) for one in wanted.types])
        word = self._builder.load(self._builder.gep(self._words, [WORD(self._at)]))
        self._at += 1
        if isinstance(wanted, types.Array):
            return self._array(wanted, word)
        return self._scalar(wanted, word)

    def _scalar(self, wanted: Any, word: Any) -> Any:
        if wanted == types.float64:
            return self._builder.bitcast(word, ir.DoubleType())
        value = self._context.get_value_type(wanted)
        return word if value == WORD else self._builder.trunc(word, value)

    def _array(self, wanted: Any, word: Any) -> Any:
        """From the fields that NumPy's C interface shows of an array: after the head of the object its data, number of
        dimensions, and addresses of dimensions and strides."""
        builder, context = self._builder, self._context
        fields = builder.add(word, WORD(object.__basicsize__))
        data, dimensions, strides = (self._words_at(fields, 4)[index] for index in (0, 2, 3))
        shape = self._words_at(dimensions, wanted.ndim)
        item = context.get_abi_sizeof(context.get_data_type(wanted.dtype))
        steps = self._words_at(strides, wanted.ndim)
        if wanted.layout == "C":  # computed, so that a loop over the last dimension is known to have no gaps
            steps = [WORD(item)]
            for length in shape[:0:-1]:
                steps.insert(0, builder.mul(steps[0], length))
        array = context.make_array(wanted)(context, builder)
        data = builder.inttoptr(data, context.get_data_type(wanted.dtype).as_pointer())
        shape, steps = cgutils.pack_array(builder, shape), cgutils.pack_array(builder, steps)
        populate_array(array, data, shape, steps, WORD(item), None)
        return array._getvalue()

    def _words_at(self, address: Any, count: int) -> list[Any]:
        pointer = self._builder.inttoptr(address, WORD.as_pointer())
        return [self._builder.load(self._builder.gep(pointer, [WORD(index)])) for index in range(count)]


def _leave(context: Any, builder: Any, returned: Any, value: Any, out: Any) -> None:
    """Stores what a kernel returns, a word each."""
    if returned == types.none:
        return
    members = [(returned, value)]
    if isinstance(returned, types.BaseTuple):
        members = [(one, builder.extract_value(value, index)) for index, one in enumerate(returned.types)]
    for index, (one, member) in enumerate(members):
        if one == types.float64:
            word = builder.bitcast(member, WORD)
        elif member.type == WORD:
            word = member
        else:
            word = builder.sext(member, WORD) if getattr(one, "signed", False) else builder.zext(member, WORD)
        builder.store(word, builder.gep(out, [WORD(index)]))


def _machine() -> Any:
    """What compiles for this processor, to code that can lie anywhere, its constants too: between the two there may be
    a pool of more than 2 GiB, over which addresses of 32 bits do not reach."""
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    host = llvm.get_host_cpu_name()
    return target.create_target_machine(cpu=host, features=features, opt=3, reloc="static", codemodel="large")


def _drop_all_but(module: Any, name: str, machine: Any) -> None:
    """Leaves of a module what the function of this name needs, which is all inlined in it by now."""
    for one in (*module.functions, *module.global_variables):
        if not one.is_declaration and one.name != name:
            one.linkage = "internal"
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1))
    passes = llvm.create_new_module_pass_manager()
    if hasattr(passes, "add_global_dead_code_eliminate_pass"):
        passes.add_global_dead_code_eliminate_pass()
    else:  # an older llvmlite has it only among others, and they take ten times as long
        passes = builder.getModulePassManager()
    passes.run(module, builder)
