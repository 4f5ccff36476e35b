"""Machine instructions that plain loops do not reach, each with a plain twin for runs without the compiler."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

LINE_TAGS = 32  # tags of 16 bits in a cache line
LANES = 2 * LINE_TAGS  # tags compared at once: their results fill a 64-bit mask
PAIRS = 8  # pairs looked at together: their slot ids are a cache line each


def match_tags(tags, start, tag):
    """Bit i of the result is set iff tags[start + i] == tag, for i in 0..63. tags: uint16[], start: int64, tag: uint16."""
    mask = 0
    for lane in range(LANES):
        mask |= int(tags[start + lane] == tag) << lane
    return mask - (mask >> (LANES - 1) << LANES)  # as an int64


def keep_matches(words, mine, theirs, start, count, to, before, after):
    """Of the pairs start..start + count, moves those that match to `to` <= start and on; returns how many. count: 1 to 8.

    mine, theirs: int64[], slot ids, valid up to start + 8 · words: int64[], of a tuple words[slot id] is the key and
    words[slot id + 1] the time. A pair matches if its keys are equal and before <= their time - my time <= after.
    """
    kept = 0
    for i in range(start, start + count):
        a, b = mine[i], theirs[i]
        if words[a] == words[b] and before <= int(words[b + 1]) - int(words[a + 1]) <= after:
            mine[to + kept], theirs[to + kept] = a, b
            kept += 1
    return kept


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
def _keep_matches(typing_context, words, mine, theirs, start, count, to, before, after):
    def build(context, builder, signature, arguments):
        memory, *sides = (context.make_array(signature.args[i])(context, builder, arguments[i]).data for i in range(3))
        start, count, to, before, after = arguments[3:]
        i8, i64 = ir.IntType(8), ir.IntType(64)
        lanes, bits, pointers = ir.VectorType(i64, PAIRS), ir.VectorType(ir.IntType(1), PAIRS), ir.VectorType(i8.as_pointer(), PAIRS)

        def all_lanes(value):
            one = builder.insert_element(ir.Constant(lanes, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
            return builder.shuffle_vector(one, ir.Constant(lanes, ir.Undefined), ir.Constant(ir.VectorType(ir.IntType(32), PAIRS), None))

        def declared(name, result, *taken):
            return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, taken), name)

        gather = declared("llvm.masked.gather.v8i64.v8p0", lanes, pointers, ir.IntType(32), bits, lanes)
        everyone, nothing = ir.Constant(bits, [1] * PAIRS), ir.Constant(lanes, ir.Undefined)
        origin = all_lanes(builder.ptrtoint(memory, i64))

        def gathered(slot_ids, word):
            octets = builder.mul(slot_ids, ir.Constant(lanes, [8] * PAIRS))
            places = builder.add(builder.add(octets, origin), ir.Constant(lanes, [8 * word] * PAIRS))
            return builder.call(gather, [builder.inttoptr(places, pointers), ir.IntType(32)(8), everyone, nothing])

        pairs = [builder.load(builder.bitcast(builder.gep(side, [start]), lanes.as_pointer()), align=8) for side in sides]
        keys = [gathered(slots, 0) for slots in pairs]
        time, other = (gathered(slots, 1) for slots in pairs)
        later, none = builder.sub(other, time), ir.Constant(lanes, None)
        wrapped = builder.xor(builder.icmp_signed("<", later, none), builder.icmp_signed("<", other, time))
        match = builder.icmp_unsigned("==", *keys)
        match = builder.and_(match, builder.icmp_signed(">=", later, all_lanes(before)))
        match = builder.and_(match, builder.icmp_signed("<=", later, all_lanes(after)))
        match = builder.and_(match, builder.not_(wrapped))
        asked = builder.icmp_signed("<", ir.Constant(lanes, list(range(PAIRS))), all_lanes(count))
        match = builder.and_(match, asked)
        store = declared("llvm.masked.compressstore.v8i64", ir.VoidType(), lanes, i64.as_pointer(), bits)
        for slots, side in zip(pairs, sides):
            builder.call(store, [slots, builder.gep(side, [to]), match])
        total = declared("llvm.ctpop.i8", i8, i8)
        return builder.zext(builder.call(total, [builder.bitcast(match, i8)]), i64)

    return types.int64(words, mine, theirs, *[types.int64] * 5), build


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


@overload(keep_matches)
def _overload_keep_matches(words, mine, theirs, start, count, to, before, after):
    return lambda words, mine, theirs, start, count, to, before, after: _keep_matches(
        words, mine, theirs, start, count, to, before, after
    )


@overload(lowest_bit)
def _overload_lowest_bit(mask):
    return lambda mask: _lowest_bit(mask)


@overload(unsigned)
def _overload_unsigned(index):
    return lambda index: _unsigned(index)


@overload(prefetch)
def _overload_prefetch(array, index):
    return lambda array, index: _prefetch(array, index)
