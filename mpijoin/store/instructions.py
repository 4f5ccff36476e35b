"""How Numba compiles the functions of simd.py. Each function here has its namesake there, which documents it."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from mpijoin.store.simd import CALL_FIRST, CALL_SIZE, CALLED, LANES


@intrinsic
def _match_tags(typing_context, tags, start, tag):
    def build(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        lanes = ir.VectorType(ir.IntType(16), LANES)
        pointer = builder.bitcast(builder.gep(array.data, [arguments[1]]), lanes.as_pointer())
        found = builder.load(pointer, align=2)
        one = builder.insert_element(ir.Constant(lanes, ir.Undefined), arguments[2], ir.Constant(ir.IntType(32), 0))
        broadcast = ir.Constant(ir.VectorType(ir.IntType(32), LANES), None)
        wanted = builder.shuffle_vector(one, ir.Constant(lanes, ir.Undefined), broadcast)
        return builder.bitcast(builder.icmp_unsigned("==", found, wanted), ir.IntType(LANES))

    return types.int64(tags, types.int64, types.uint16), build


@intrinsic
def _lowest_bit(typing_context, mask):
    def build(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64), build


@intrinsic
def _unsigned(typing_context, index):
    def build(context, builder, signature, arguments):
        return arguments[0]

    return types.uint64(types.int64), build


@intrinsic
def _call_entry(typing_context, words, at):
    def build(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        word = ir.IntType(64)
        call = builder.gep(data, [arguments[1]])
        first = builder.gep(call, [word(CALL_FIRST)])
        out = builder.gep(first, [builder.load(builder.gep(call, [word(CALL_SIZE)]))])
        entry = ir.FunctionType(ir.VoidType(), [word.as_pointer()] * 2).as_pointer()
        builder.call(builder.inttoptr(builder.load(builder.gep(call, [word(CALLED)])), entry), [first, out])
        return builder.load(out)

    return types.int64(words, types.int64), build


@intrinsic
def _prefetch(typing_context, array, index):
    def build(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        i32, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
        prefetch_type = ir.FunctionType(ir.VoidType(), [pointer, i32, i32, i32])
        function = cgutils.get_or_insert_function(builder.module, prefetch_type, "llvm.prefetch.p0")
        address = builder.bitcast(builder.gep(data, [arguments[1]]), pointer)
        # The three numbers say that the line is read, is kept in all levels of the cache, and holds data.
        builder.call(function, [address, i32(0), i32(3), i32(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), build


def match_tags(tags, start, tag):
    return _match_tags(tags, start, tag)


def lowest_bit(mask):
    return _lowest_bit(mask)


def unsigned(index):
    return _unsigned(index)


def call_entry(words, at):
    return _call_entry(words, at)


def prefetch(array, index):
    _prefetch(array, index)
