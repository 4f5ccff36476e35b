"""Machine instructions that plain loops do not reach, each with a plain twin for runs without the compiler."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

LINE_TAGS = 32  # tags of 16 bits in a cache line
LANES = 2 * LINE_TAGS  # tags compared at once: their results fill a 64-bit mask


def match_tags(tags, start, tag):
    """Bit i of the result is set iff tags[start + i] == tag, for i in 0..63. tags: uint16[], start: int64, tag:
    uint16."""
    mask = 0
    for lane in range(LANES):
        mask |= int(tags[start + lane] == tag) << lane
    return mask - (mask >> (LANES - 1) << LANES)  # as an int64


def lowest_bit(mask):
    """Index of the lowest set bit of a mask; of 0 it is 64."""
    return (int(mask) & -int(mask)).bit_length() - 1 if mask else LANES


def unsigned(index):
    """An index known not to be negative, as a type for which no test for that is compiled."""
    return index


def prefetch(array, index):
    """Asks for the cache line of array[index] before it is needed; no effect on results, whatever the index."""


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
def _prefetch(typing_context, array, index):
    def build(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        i32, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
        prefetch_type = ir.FunctionType(ir.VoidType(), [pointer, i32, i32, i32])
        function = cgutils.get_or_insert_function(builder.module, prefetch_type, "llvm.prefetch.p0")
        address = builder.bitcast(builder.gep(data, [arguments[1]]), pointer)
        builder.call(function, [address, i32(0), i32(3), i32(1)])  # read, keep in all levels, data
        return context.get_dummy_value()

    return types.void(array, types.int64), build


@overload(match_tags)
def _overload_match_tags(tags, start, tag):
    return lambda tags, start, tag: _match_tags(tags, start, tag)


@overload(lowest_bit)
def _overload_lowest_bit(mask):
    return lambda mask: _lowest_bit(mask)


@overload(unsigned)
def _overload_unsigned(index):
    return lambda index: _unsigned(index)


@overload(prefetch)
def _overload_prefetch(array, index):
    return lambda array, index: _prefetch(array, index)
