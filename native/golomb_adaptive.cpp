// Golomb code whose parameter follows the gaps: encoder, decoder, and the size that the encoder would write.
#include "golomb.h"

using namespace golomb;
using namespace index_codes;

namespace {

constexpr int64_t GROUP = 8;                    // gaps with one parameter
constexpr unsigned DECAY = 2;                   // of what was seen, 2^-DECAY is forgotten at each group
constexpr uint64_t WEIGHT = GROUP << DECAY;     // gaps whose sum is estimated
constexpr uint64_t LIMIT = 12;                  // quotients from this on are written otherwise
constexpr uint64_t CLAMP = 8;                   // a gap counts as this many times the parameter at most
constexpr uint64_t MOST_FAST = MOST_QUICK / 32;  // parameters for which quotients below LIMIT are computed exactly
static_assert(BLOCK % GROUP == 0, "a group lies in one block");
static_assert(LIMIT < 32 && LIMIT + 33 <= WINDOW, "any element fits in a window");

// What the next gaps are taken to be.
struct Estimate {
    uint64_t sum;  // of WEIGHT gaps

    Estimate() = default;
    // From the sum of n gaps.
    INLINE Estimate(uint64_t span, int64_t n) : sum(span * WEIGHT / static_cast<uint64_t>(n)) {}

    INLINE uint64_t modulus() const { return std::max<uint64_t>(1, ((sum * 45426 >> 16) + WEIGHT / 2) / WEIGHT); }
    INLINE void learn(uint64_t gaps) { sum = sum - (sum >> DECAY) + gaps; }
};

// Bits of a gap that is written as it is.
INLINE unsigned raw_bits_of(int64_t numel) { return 64 - static_cast<unsigned>(__builtin_clzll(numel)); }

struct Group {
    uint64_t bits[GROUP];
    uint32_t lengths[GROUP];
};

// Codes the gaps of a group; returns the sum of what they count as. Fast: the parameter is at most MOST_FAST.
template <bool Fast>
INLINE uint64_t code_group(const uint32_t* gaps, uint64_t parameter, unsigned raw_bits, Group& group) {
    const Code code(parameter);
    const Divider divide(parameter);
    const uint32_t modulus = static_cast<uint32_t>(parameter), cut = static_cast<uint32_t>(code.cut);
    const uint64_t most = CLAMP * parameter;
    uint64_t sum = 0;
    for (int64_t i = 0; i < GROUP; ++i) {
        const uint32_t gap = gaps[i];
        const uint32_t quotient = Fast ? divide(std::min(gap, MOST_QUICK)) : gap / modulus;
        const uint32_t remainder = gap - quotient * modulus;
        const uint32_t longer = remainder >= cut, shifted = remainder + cut;
        // Corrections are masked, not branched on: which remainders are longer is random.
        const uint32_t rotated = shifted >> 1 | (shifted & 1) << code.width;
        const uint32_t binary = remainder + ((rotated - remainder) & (0 - longer));
        const bool raw = quotient >= LIMIT;
        const uint64_t bits = (uint64_t{1} | uint64_t{binary} << 1) << (quotient & 31);
        group.bits[i] = raw ? uint64_t{gap} << LIMIT : bits;
        group.lengths[i] = raw ? static_cast<uint32_t>(LIMIT) + raw_bits : quotient + 1 + code.width + longer;
        sum += std::min<uint64_t>(gap, most);
    }
    return sum;
}

// Calls put(group, count) for all groups of a block of n >= 1 indices, of which `expected` is the least possible. The gaps
// are estimated from the block's end: its last index, or for the last block what is left of numel.
template <class Put>
INLINE void each_group(int64_t n, const uint32_t* indices, uint64_t expected, uint64_t end, unsigned raw_bits, Put put) {
    Estimate estimate(end - expected - static_cast<uint64_t>(n), n);
    uint32_t previous = static_cast<uint32_t>(expected) - 1;  // wraps where there is none
    for (int64_t first = 0; first < n; first += GROUP) {
        const int64_t count = std::min(GROUP, n - first);
        uint32_t gaps[GROUP] = {};
        gaps[0] = indices[first] - previous - 1;
        for (int64_t i = 1; i < count; ++i) gaps[i] = indices[first + i] - indices[first + i - 1] - 1;
        previous = indices[first + count - 1];
        Group group;
        const uint64_t modulus = estimate.modulus();
        estimate.learn(LIKELY(modulus <= MOST_FAST) ? code_group<true>(gaps, modulus, raw_bits, group)
                                                    : code_group<false>(gaps, modulus, raw_bits, group));
        put(group, count);
    }
}

INLINE int64_t encode(int64_t n, const uint32_t* indices, int64_t numel, int64_t size, uint8_t* out) {
    if (n == 0) return 0;
    if (!valid(n, indices, numel)) return BAD_INDICES;
    const int64_t blocks = blocks_of(n), directory_bytes = ENTRY_BYTES * (blocks - 1);
    const unsigned raw_bits = raw_bits_of(numel);
    const int64_t most_bits = n * static_cast<int64_t>(LIMIT + 1 + raw_bits);
    if (size < directory_bytes + most_bits / 8 + blocks + STORE_SLACK) return CAPACITY;

    uint8_t* entry = out;
    BitWriter writer{out + directory_bytes};
    uint64_t expected = 0;
    for (int64_t first = 0; first < n; first += BLOCK) {
        const uint8_t* start = writer.next;
        const int64_t count = std::min(BLOCK, n - first);
        const bool last_block = first + count == n;
        const uint64_t end = last_block ? static_cast<uint64_t>(numel) : uint64_t{indices[first + count - 1]} + 1;
        each_group(count, indices + first, expected, end, raw_bits, [&](const Group& group, int64_t elements) __attribute__((always_inline)) {
            if (LIKELY(elements == GROUP)) {
                put_group<GROUP>(writer, group.bits, group.lengths);
            } else {
                for (int64_t i = 0; i < elements; ++i) writer.put(group.bits[i], group.lengths[i]);
            }
        });
        writer.align();
        if (last_block) break;
        store<uint32_t>(entry, static_cast<uint32_t>(writer.next - start));
        store<uint32_t>(entry + 4, static_cast<uint32_t>(end - 1));
        entry += ENTRY_BYTES;
        expected = end;
    }
    return writer.next - out;
}

INLINE int64_t size_of(int64_t n, const uint32_t* indices, int64_t numel) {
    if (n == 0) return 0;
    if (numel > MOST_ELEMENTS || n > numel || int64_t{indices[n - 1]} >= numel) return BAD_INDICES;
    const unsigned raw_bits = raw_bits_of(numel);
    int64_t size = ENTRY_BYTES * (blocks_of(n) - 1);
    uint64_t expected = 0;
    for (int64_t first = 0; first < n; first += BLOCK) {
        const int64_t count = std::min(BLOCK, n - first);
        const bool last_block = first + count == n;
        const uint64_t end = last_block ? static_cast<uint64_t>(numel) : uint64_t{indices[first + count - 1]} + 1;
        if (end < expected + static_cast<uint64_t>(count)) return BAD_INDICES;
        uint64_t bits = 0;
        each_group(count, indices + first, expected, end, raw_bits, [&](const Group& group, int64_t elements) __attribute__((always_inline)) {
            for (int64_t i = 0; i < elements; ++i) bits += group.lengths[i];
        });
        size += bytes_of(static_cast<int64_t>(bits));
        expected = end;
    }
    return size;
}

// What all blocks of a payload share.
struct Stream {
    const uint8_t* payload;
    int64_t fast_bits;  // an 8-byte load at a bit position below this stays inside the payload
    unsigned raw_bits;
    uint64_t raw_mask;
    uint64_t numel;
};

// One block being decoded: bit positions count from the start of the payload.
struct Lane {
    int64_t position;
    int64_t end;
    uint64_t expected;  // one past the previous index
    uint64_t block_end;  // what `expected` becomes at the block's end, as the directory says; numel for the last block
    bool last;
    Estimate estimate;
};

// The next index of a group. Overrunning the block is left to `finish`, since loads are bounded by the payload.
INLINE void next(const Stream& stream, Lane& lane, const Code& code, uint64_t& sum, uint32_t* out) {
    const uint64_t bits = LIKELY(lane.position < stream.fast_bits)
                              ? load<uint64_t>(stream.payload + (lane.position >> 3)) >> (lane.position & 7)
                              : careful_window(stream.payload, lane.position, lane.end);
    const uint64_t zeros = static_cast<uint64_t>(__builtin_ctzll(bits | uint64_t{1} << 63));
    const uint64_t binary = bits >> zeros >> 1, head = binary & code.mask;
    const uint64_t longer = head >= code.cut, tail = binary >> code.width & 1;
    uint64_t gap = zeros * code.modulus + head + ((head + tail - code.cut) & (0 - longer));
    uint64_t length = zeros + 1 + code.width + longer;
    if (UNLIKELY(zeros >= LIMIT)) {
        gap = bits >> LIMIT & stream.raw_mask;
        length = LIMIT + stream.raw_bits;
    }
    lane.position += static_cast<int64_t>(length);
    sum += std::min(gap, CLAMP * code.modulus);
    lane.expected += gap + 1;
    *out = static_cast<uint32_t>(lane.expected - 1);
}

INLINE int64_t finish(const Stream& stream, const Lane& lane) {
    if (lane.position > lane.end) return TRUNCATED;
    if (!lane.last && lane.expected != lane.block_end) return DIRECTORY;
    return rest_of(stream.payload, lane.position, lane.end);
}

// Decodes blocks of the same number of elements side by side: each waits for its own loads only.
template <int Count>
INLINE int64_t decode_blocks(const Stream& stream, Lane* lanes, int64_t elements, uint32_t* out) {
    const auto group = [&](int64_t first, int64_t count) __attribute__((always_inline)) {
        Code codes[Count];
        uint64_t sums[Count] = {};
        for (int lane = 0; lane < Count; ++lane) codes[lane] = Code(lanes[lane].estimate.modulus());
        for (int64_t i = 0; i < count; ++i) {
            for (int lane = 0; lane < Count; ++lane) {
                next(stream, lanes[lane], codes[lane], sums[lane], out + lane * BLOCK + first + i);
            }
        }
        bool inside = true;
        for (int lane = 0; lane < Count; ++lane) {
            lanes[lane].estimate.learn(sums[lane]);
            inside = inside && lanes[lane].expected <= stream.numel;  // which also bounds the next parameter
        }
        return inside;
    };
    const int64_t whole = elements / GROUP * GROUP;
    for (int64_t first = 0; first < whole; first += GROUP) {
        if (UNLIKELY(!group(first, GROUP))) return INDEX;
    }
    if (whole < elements && !group(whole, elements - whole)) return INDEX;
    for (int lane = 0; lane < Count; ++lane) {
        const int64_t status = finish(stream, lanes[lane]);
        if (status != OK) return status;
    }
    return OK;
}

// Walks the directory and hands out each block's place and estimate, which `finish` checks afterwards.
struct Directory {
    const uint8_t* entry;
    const uint8_t* entries_end;
    int64_t position;  // bits, where the next block begins
    int64_t end;       // bits, end of the payload
    uint64_t numel;
    uint64_t expected = 0;

    INLINE int64_t open(Lane& lane, int64_t elements) {
        const bool last = entry == entries_end;
        const int64_t lane_end = last ? end : position + 8 * static_cast<int64_t>(load<uint32_t>(entry));
        const uint64_t block_end = last ? numel : uint64_t{load<uint32_t>(entry + 4)} + 1;
        if (lane_end > end) return DIRECTORY;
        if (block_end < expected + static_cast<uint64_t>(elements)) return last ? INDEX : DIRECTORY;
        const uint64_t span = block_end - expected - static_cast<uint64_t>(elements);
        lane = Lane{position, lane_end, expected, block_end, last, Estimate(span, elements)};
        if (!last) entry += ENTRY_BYTES;
        position = lane_end;
        expected = block_end;
        return OK;
    }
};

// The last block has no entry, so that a group of full blocks is always followed by one more.
INLINE int64_t decode(int64_t n, const uint8_t* payload, int64_t size, int64_t numel, uint32_t* indices) {
    if (n == 0) return size == 0 ? OK : TRAILING;
    if (numel > MOST_ELEMENTS) return BAD_INDICES;
    if (n > numel) return INDEX;
    const int64_t directory_bytes = ENTRY_BYTES * (blocks_of(n) - 1);
    if (size < directory_bytes) return HEADER;
    const unsigned raw_bits = raw_bits_of(numel);
    const uint64_t limit = static_cast<uint64_t>(numel);
    const Stream stream{payload, 8 * (size - 7), raw_bits, (uint64_t{1} << raw_bits) - 1, limit};
    Directory directory{payload, payload + directory_bytes, 8 * directory_bytes, 8 * size, limit};
    constexpr int64_t LANES = 4;
    for (int64_t i = 0; i < n;) {
        const int64_t together = n - i > LANES * BLOCK ? LANES : 1, elements = std::min(BLOCK, n - i);
        Lane lanes[LANES];
        for (int64_t lane = 0; lane < together; ++lane) {
            const int64_t status = directory.open(lanes[lane], elements);
            if (status != OK) return status;
        }
        const int64_t status = together == LANES ? decode_blocks<LANES>(stream, lanes, elements, indices + i)
                                                 : decode_blocks<1>(stream, lanes, elements, indices + i);
        if (status != OK) return status;
        i += together * BLOCK;
    }
    return OK;
}

}  // namespace

void install_golomb_adaptive(Tables& tables) {
    install<&Kernels::golomb_adaptive_encode, encode>(tables);
    install<&Kernels::golomb_adaptive_decode, decode>(tables);
    install<&Kernels::golomb_adaptive_size, size_of>(tables);
}
