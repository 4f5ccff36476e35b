"""This module turns a Python function into machine code that runs without Numba. Only a first start does this.

Each kernel gets an entry. This is a C function that takes its arguments apart, calls the kernel and stores what it
returns. Its machine code is written as an object file, which linking.py loads. All this uses what Numba and llvmlite
offer to other code.
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
from numba.core.codegen import AOTCodeLibrary, JITCPUCodegen
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import AnnotateTypes, IRLegalization, NativeLowering, NoPythonBackend
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from mpijoin.flags import ALIGNED, C_ORDER, WRITEABLE

# Machine code must not call back into Python. It may call only these functions, which are all in the C library.
OUTSIDE = re.compile(r"llvm\.|mem(cpy|set|move)$|(log|log1p|exp|exp2|expm1|pow|rint|floor|ceil|sqrt|fabs)f?$")
WORD = ir.IntType(64)
# These are the formats of what a kernel returns. Everything else is a signed integer.
FORMATS = {types.float64: "d", types.uint64: "Q", types.boolean: "?7x"}

# Kernels allocate nothing, so they need no reference counts. Counting took two thirds of the time (one atomic operation
# per array). Kernels raise nothing either, not even when they divide.
OPTIONS = {"nogil": True, "_nrt": False, "error_model": "numpy"}
# Whatever a kernel calls is inlined, up to this size. It is no limit in practice.
INLINED_MAX = 1_000_000


class _Library(AOTCodeLibrary):
    """Intermediate code of a function, hardly optimised. Numba would optimise it alone, and again wherever it is
    inlined: a third of a compilation. Here only entries are (`_optimize`), with all that they call."""

    def _optimize_final_module(self) -> None:
        pass


class _Codegen(JITCPUCodegen):
    """Libraries of intermediate code, which are for this processor, but never become machine code."""

    _library_class = _Library

    def _add_module(self, module: Any) -> None:
        """Nothing here is executed."""


_codegen = _Codegen("mpijoin")


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):
    """Makes intermediate code of a function, which others link. Numba would also make machine code of each of them,
    though only that of the entries is ever used."""

    _name = "lowering_to_link"

    def run_pass(self, state: Any) -> bool:
        state.library = _codegen.create_library(state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        # Callers find the code by this, which has to be a built-in function of its own, and is never called.
        callee: Any = [].copy
        state.targetctx.insert_user_function(callee, state.cr.fndesc, [state.library])
        state.cr = state.cr._replace(cfunc=callee)
        return True


class _Pipeline(CompilerBase):
    def define_pipelines(self) -> list[PassManager]:
        passes = PassManager("kernel")
        for part in (DefaultPassBuilder.define_untyped_pipeline, DefaultPassBuilder.define_typed_pipeline):
            passes.passes.extend(part(self.state).passes)
        for one in (IRLegalization, AnnotateTypes, _Lowering, NoPythonBackend):
            passes.add_pass(one, one.__name__)
        passes.finalize()
        return [passes]


def dispatcher_of(function: Any) -> Any:
    """Returns the function as other kernels call it."""
    return _dispatcher(function, no_cfunc_wrapper=True)


def _dispatcher(function: Any, **options: bool) -> Any:
    return numba.njit(no_cpython_wrapper=True, pipeline_class=_Pipeline, **OPTIONS, **options)(function)


def compile_entry(name: str, dispatcher: Any, kinds: Sequence[Any]) -> tuple[str, bytes]:
    """Compiles a kernel for arguments of these kinds (compiled.py says what they are).

    Returns a format and an object file. The `struct` format describes what the kernel returns, with one word for each
    value, and in parentheses if it is a tuple. The object file has the C function
    `void name(int64 *words, int64 *out)`. Raises TypeError if the kernel raises, allocates or needs Python in some
    other way.
    """
    wanted = _types_of(kinds)
    dispatcher.compile(wanted)
    returned = next(one.return_type for one in dispatcher.nopython_signatures if one.args == wanted)
    pointers = types.CPointer(types.int64), types.CPointer(types.int64)
    entry = _dispatcher(_entry(dispatcher, types.Tuple(wanted)))
    entry.compile(types.void(*pointers))
    (compiled,) = entry.overloads.values()
    with global_compiler_lock:
        compiled.library.finalize()
    machine = _machine()
    module = llvm.parse_assembly(compiled.library.get_llvm_str())
    module.get_function(compiled.fndesc.llvm_cfunc_wrapper_name).name = name
    _optimize(module, name, machine)
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
    """Returns Numba's types of arguments of these kinds."""
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
    """Reads the arguments of a kernel from words. The word of a scalar is its value, and the word of an array is the
    address of its Python object."""

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
        """Builds an array from the fields that NumPy's C interface shows. After the head of the object come its data,
        the number of dimensions, and the addresses of the dimensions and of the strides."""
        builder, context = self._builder, self._context
        fields = builder.add(word, WORD(object.__basicsize__))
        data, dimensions, strides = (self._words_at(fields, 4)[index] for index in (0, 2, 3))
        shape = self._words_at(dimensions, wanted.ndim)
        item = context.get_abi_sizeof(context.get_data_type(wanted.dtype))
        steps = self._words_at(strides, wanted.ndim)
        # These strides are computed, so that the compiler knows that a loop over the last dimension has no gaps.
        if wanted.layout == "C":
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
    """Stores what a kernel returns, with one word for each value."""
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
    """Returns the compiler for this processor. Its code and its constants can lie anywhere. Between the two there may
    be a pool of more than 2 GiB, which addresses of 32 bits cannot span."""
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    host = llvm.get_host_cpu_name()
    return target.create_target_machine(cpu=host, features=features, opt=3, reloc="static", codemodel="large")


def _optimize(module: Any, name: str, machine: Any) -> None:
    """Makes one function of a module and of all that the function of this name calls, which is inlined."""
    for one in (*module.functions, *module.global_variables):
        if not one.is_declaration and one.name != name:
            one.linkage = "internal"
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = True
    # A function is optimised before it is inlined, and that only once. Numba's `forceinline` would inline it as it is,
    # and kernels that were large before they were optimised took up to a tenth longer.
    options.inlining_threshold = INLINED_MAX
    builder = llvm.create_pass_builder(machine, options)
    passes = builder.getModulePassManager()
    # All passes run twice. The second time they find loops in a shape that they can do more with.
    passes.add_loop_rotate_pass()
    passes.add_instruction_combine_pass()
    passes.add_jump_threading_pass()
    passes.run(module, builder)
    builder.getModulePassManager().run(module, builder)
