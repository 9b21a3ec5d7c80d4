// Golomb code of the gaps between indices: decoder, several byte-aligned blocks at a time.
#include "golomb.h"

using namespace golomb;
using namespace index_codes;

namespace {

// What all blocks of a payload share.
struct Stream {
    const uint8_t* payload;
    int64_t fast_bits;  // an 8-byte load at a bit position below this stays inside the payload
    uint64_t most_quotient;
    uint64_t quick_quotient;  // up to which gaps stay below 2^32
    Code code;
};

// One block being decoded: bit positions count from the start of the payload.
struct Lane {
    int64_t position;
    int64_t end;
    uint64_t expected;  // one past the previous index
    uint64_t promised;  // what `expected` must be after the block, as the directory says; 0 for the last block
};

// The bits from position on, zeros from the end of the block on.
inline uint64_t careful_window(const uint8_t* payload, int64_t position, int64_t end) {
    uint64_t bits = 0;
    for (int64_t byte = position >> 3, shift = 0; byte < end >> 3 && shift < 64; ++byte, shift += 8) {
        bits |= static_cast<uint64_t>(payload[byte]) << shift;
    }
    return bits >> (position & 7);
}

// The next index where bits run out or a quotient is long. Returns OK, TRUNCATED or INDEX.
__attribute__((noinline)) int64_t next_careful(const Stream& stream, Lane& lane, uint64_t& index) {
    uint64_t quotient = 0, bits;
    while ((bits = careful_window(stream.payload, lane.position, lane.end)) == 0) {
        lane.position += WINDOW;
        quotient += WINDOW;
        if (lane.position >= lane.end) return TRUNCATED;
    }
    const int zeros = __builtin_ctzll(bits);
    quotient += static_cast<uint64_t>(zeros);
    // Also bounds the product below, so that hostile zeros cannot overflow it.
    if (quotient > stream.most_quotient) return INDEX;
    lane.position += zeros + 1;
    bits = careful_window(stream.payload, lane.position, lane.end);
    const uint64_t head = bits & stream.code.mask;
    const uint64_t longer = head >= stream.code.cut;
    const uint64_t tail = bits >> stream.code.width & 1;
    lane.position += static_cast<int64_t>(stream.code.width + longer);
    if (lane.position > lane.end) return TRUNCATED;
    index = lane.expected + quotient * stream.code.modulus + (longer ? 2 * head + tail - stream.code.cut : head);
    lane.expected = index + 1;
    return OK;
}

// The next index of a block. Overrunning the block or numel is left to `finish`: neither can touch foreign memory,
// since loads are bounded by the payload, and a block's indices, below 2^45, cannot wrap.
INLINE int64_t next(const Stream& stream, Lane& lane, uint32_t* out) {
    uint64_t index = 0;
    if (LIKELY(lane.position < stream.fast_bits)) {
        const uint64_t bits = load<uint64_t>(stream.payload + (lane.position >> 3)) >> (lane.position & 7);
        const uint64_t zeros = static_cast<uint64_t>(__builtin_ctzll(bits | uint64_t{1} << 63));
        if (LIKELY(zeros + 2 + stream.code.width <= WINDOW)) {
            const uint64_t binary = bits >> zeros >> 1;
            const uint64_t head = binary & stream.code.mask;
            const uint64_t longer = head >= stream.code.cut;
            const uint64_t tail = binary >> stream.code.width & 1;
            // The correction is masked, not branched on: which remainders are longer is random.
            const uint64_t remainder = head + ((head + tail - stream.code.cut) & (0 - longer));
            index = lane.expected + zeros * stream.code.modulus + remainder;
            lane.expected = index + 1;
            lane.position += static_cast<int64_t>(zeros + 1 + stream.code.width + longer);
            *out = static_cast<uint32_t>(index);
            return OK;
        }
    }
    const int64_t status = next_careful(stream, lane, index);
    *out = static_cast<uint32_t>(index);
    return status;
}

INLINE int64_t finish(const Stream& stream, const Lane& lane, uint64_t numel) {
    if (lane.position > lane.end) return TRUNCATED;
    if (lane.expected > numel) return INDEX;
    if (lane.promised != 0 && lane.expected != lane.promised) return DIRECTORY;
    if (lane.end - lane.position >= 8) return TRAILING;
    const int64_t used = lane.position & 7;
    return used && stream.payload[lane.position >> 3] >> used ? PADDING : OK;
}

constexpr int64_t TILE = 32;             // elements of a block that are read together
constexpr unsigned MOST_TILE_WIDTH = 29;  // with the bits on both sides, 32
constexpr unsigned MOST_PAIR_WIDTH = 20;  // up to which two elements mostly fit in a load

// What was read of one tile: the quotients, and the bits from the one on that ends each.
struct Tile {
    uint32_t zeros[TILE];
    uint32_t tails[TILE];
};

// Reads the next `Several` elements from one load, where they fit in it, and moves on. This is the chain in which each
// step waits for the one before; all that can wait is left to `compute`.
template <int Several>
INLINE bool read(const Stream& stream, Lane& lane, uint32_t* zeros, uint32_t* tails) {
    if (UNLIKELY(lane.position >= stream.fast_bits)) return false;
    uint64_t bits = load<uint64_t>(stream.payload + (lane.position >> 3)) >> (lane.position & 7);
    const uint64_t mask = stream.code.mask << 1 | 1, cut = stream.code.cut << 1 | 1;
    uint64_t used = 0;
    for (int i = 0; i < Several; ++i) {
        const uint64_t before = static_cast<uint64_t>(__builtin_ctzll(bits | uint64_t{1} << 63));
        bits >>= before;
        zeros[i] = static_cast<uint32_t>(before);
        tails[i] = static_cast<uint32_t>(bits);
        const uint64_t length = 1 + stream.code.width + ((bits & mask) >= cut);
        bits >>= length;
        used += before + length;
    }
    if (UNLIKELY(used > WINDOW)) return false;
    lane.position += static_cast<int64_t>(used);
    return true;
}

template <int Several>
INLINE bool read_group(const Stream& stream, Lane& lane, int64_t i, Tile& tile) {
    if (LIKELY(read<Several>(stream, lane, tile.zeros + i, tile.tails + i))) return true;
    if (Several == 1) return false;
    for (int j = 0; j < Several; ++j) {
        if (!read<1>(stream, lane, tile.zeros + i + j, tile.tails + i + j)) return false;
    }
    return true;
}

// The indices of a tile. Returns false, with nothing changed, where a gap may not fit in 32 bits.
INLINE bool compute(const Stream& stream, const Tile& tile, Lane& lane, uint32_t* out) {
    const uint32_t modulus = static_cast<uint32_t>(stream.code.modulus), cut = static_cast<uint32_t>(stream.code.cut);
    const uint32_t mask = static_cast<uint32_t>(stream.code.mask);
    uint32_t steps[TILE], longest = 0;
    for (int i = 0; i < TILE; ++i) {
        const uint32_t binary = tile.tails[i] >> 1, head = binary & mask;
        const uint32_t tail = binary >> stream.code.width & 1;
        const uint32_t remainder = head + (head >= cut ? head + tail - cut : 0);
        longest = std::max(longest, tile.zeros[i]);
        steps[i] = tile.zeros[i] * modulus + remainder + 1;
    }
    if (UNLIKELY(longest > stream.quick_quotient)) return false;
    uint64_t expected = lane.expected;
    for (int i = 0; i < TILE; ++i) {
        expected += steps[i];
        out[i] = static_cast<uint32_t>(expected - 1);
    }
    lane.expected = expected;
    return true;
}

INLINE int64_t decode_singly(const Stream& stream, Lane& lane, int64_t elements, uint32_t* out) {
    for (int64_t i = 0; i < elements; ++i) {
        const int64_t status = next(stream, lane, out + i);
        if (UNLIKELY(status != OK)) return status;
    }
    return OK;
}

template <int Count, int Several>
INLINE int64_t decode_blocks(const Stream& stream, Lane* lanes, int64_t elements, uint64_t numel, uint32_t* out) {
    const int64_t tiled = stream.code.width <= MOST_TILE_WIDTH ? elements / TILE * TILE : 0;
    for (int64_t first = 0; first < tiled; first += TILE) {
        Tile tiles[Count];
        int64_t starts[Count];
        bool whole[Count];
        for (int lane = 0; lane < Count; ++lane) {
            starts[lane] = lanes[lane].position;
            whole[lane] = true;
        }
        for (int64_t i = 0; i < TILE; i += Several) {
            for (int lane = 0; lane < Count; ++lane) {
                whole[lane] = whole[lane] && read_group<Several>(stream, lanes[lane], i, tiles[lane]);
            }
        }
        for (int lane = 0; lane < Count; ++lane) {
            uint32_t* to = out + lane * BLOCK + first;
            if (LIKELY(whole[lane] && compute(stream, tiles[lane], lanes[lane], to))) continue;
            lanes[lane].position = starts[lane];
            const int64_t status = decode_singly(stream, lanes[lane], TILE, to);
            if (status != OK) return status;
        }
    }
    for (int lane = 0; lane < Count; ++lane) {
        int64_t status = decode_singly(stream, lanes[lane], elements - tiled, out + lane * BLOCK + tiled);
        if (status == OK) status = finish(stream, lanes[lane], numel);
        if (status != OK) return status;
    }
    return OK;
}

// Walks the directory and hands out each block's place and first gap's origin, which `finish` checks afterwards.
struct Directory {
    const uint8_t* entry;
    const uint8_t* entries_end;
    int64_t position;  // bits, where the next block begins
    int64_t end;       // bits, end of the payload
    uint64_t expected = 0;

    INLINE bool open(Lane& lane) {
        lane = Lane{position, end, expected, 0};
        if (entry == entries_end) return true;
        lane.end = position + 8 * static_cast<int64_t>(load<uint32_t>(entry));
        lane.promised = uint64_t{load<uint32_t>(entry + 4)} + 1;
        entry += ENTRY_BYTES;
        position = lane.end;
        expected = lane.promised;
        return lane.end <= end;
    }
};

INLINE Stream stream_of(const uint8_t* payload, int64_t size, uint64_t numel, uint64_t modulus) {
    const uint64_t quick = std::max<uint64_t>(uint64_t{1} << 32, 2 * modulus) / modulus - 2;
    return Stream{payload, 8 * (size - 7), numel / modulus, quick, Code(modulus)};
}

// The last block has no entry, so that a group of full blocks is always followed by one more.
template <int Several>
INLINE int64_t decode_all(const Stream& stream, Directory directory, int64_t n, uint64_t numel, uint32_t* indices) {
    constexpr int64_t LANES = 4;
    for (int64_t i = 0; i < n;) {
        Lane lanes[LANES];
        const int64_t together = n - i > LANES * BLOCK ? LANES : 1;
        for (int64_t lane = 0; lane < together; ++lane) {
            if (!directory.open(lanes[lane])) return DIRECTORY;
        }
        const int64_t elements = std::min(BLOCK, n - i);
        const int64_t status = together == LANES
                                   ? decode_blocks<LANES, Several>(stream, lanes, elements, numel, indices + i)
                                   : decode_blocks<1, Several>(stream, lanes, elements, numel, indices + i);
        if (status != OK) return status;
        i += together * BLOCK;
    }
    return OK;
}

INLINE int64_t decode(int64_t n, const uint8_t* payload, int64_t size, int64_t numel, uint32_t* indices) {
    if (n == 0) return size == 0 ? OK : TRAILING;
    if (numel > MOST_ELEMENTS) return BAD_INDICES;
    const int64_t directory_bytes = ENTRY_BYTES * (blocks_of(n) - 1);
    if (size < MODULUS_BYTES + directory_bytes) return HEADER;
    const uint64_t modulus = load<uint32_t>(payload), limit = static_cast<uint64_t>(numel);
    if (modulus == 0) return MODULUS;
    const Stream stream = stream_of(payload, size, limit, modulus);
    const uint8_t* entries = payload + MODULUS_BYTES;
    const Directory directory{entries, entries + directory_bytes, 8 * (MODULUS_BYTES + directory_bytes), 8 * size};
    return stream.code.width <= MOST_PAIR_WIDTH ? decode_all<2>(stream, directory, n, limit, indices)
                                                : decode_all<1>(stream, directory, n, limit, indices);
}

}  // namespace

void install_golomb_decode(Tables& tables) {
    install<&Kernels::golomb_decode, decode>(tables);
    tables.avx512.golomb_decode = tables.avx2.golomb_decode;
}
