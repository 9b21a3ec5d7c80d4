// Golomb code of the gaps between indices: what encoder and decoder share.
#pragma once

#include "indices.h"

namespace golomb {

constexpr int64_t BLOCK = 4096;
constexpr int64_t MODULUS_BYTES = 4;
constexpr int64_t ENTRY_BYTES = 8;  // of the directory

// A Golomb parameter with what follows from it (truncated binary remainders).
struct Code {
    uint64_t modulus;
    uint64_t cut;   // remainders below it take `width` bits, the others one more
    uint64_t mask;  // of `width` bits
    unsigned width;

    Code() = default;
    INLINE explicit Code(uint64_t m) : modulus(m) {
        width = 63 - static_cast<unsigned>(__builtin_clzll(m));
        mask = (uint64_t{1} << width) - 1;
        cut = (uint64_t{2} << width) - m;
    }
};

INLINE int64_t blocks_of(int64_t n) { return (n + BLOCK - 1) / BLOCK; }

constexpr uint32_t MOST_QUICK = 0x7FFFFFFF;  // gaps that convert as signed numbers

// Quotients of gaps up to MOST_QUICK. Half a unit more keeps multiples of the divisor on the right side of the rounding.
struct Divider {
    double reciprocal;

    INLINE explicit Divider(uint64_t divisor) : reciprocal(1.0 / static_cast<double>(divisor)) {}

    INLINE uint32_t operator()(uint32_t gap) const {
        return static_cast<uint32_t>(static_cast<int32_t>((static_cast<int32_t>(gap) + 0.5) * reciprocal));
    }
};

// Joins neighbours, so that half as many puts are needed; `longest` says whether all of them still fit in one.
template <int Count>
INLINE void join(const uint64_t* bits, const uint32_t* lengths, uint64_t* joined, uint32_t* sums, uint32_t& longest) {
    longest = 0;
    for (int i = 0; i < Count; ++i) {
        joined[i] = bits[2 * i] | bits[2 * i + 1] << (lengths[2 * i] & 63);
        sums[i] = lengths[2 * i] + lengths[2 * i + 1];
        longest = std::max(longest, sums[i]);
    }
}

template <int Count>
INLINE void put_all(index_codes::BitWriter& writer, const uint64_t* bits, const uint32_t* lengths) {
    for (int i = 0; i < Count; ++i) writer.put(bits[i], lengths[i]);
}

// Writes the codes of a group of gaps, each of which fits in a window.
template <int Count>
INLINE void put_group(index_codes::BitWriter& writer, const uint64_t* bits, const uint32_t* lengths) {
    uint64_t pairs[Count / 2], fours[Count / 4];
    uint32_t pair_lengths[Count / 2], four_lengths[Count / 4], longest_pair, longest_four;
    join<Count / 2>(bits, lengths, pairs, pair_lengths, longest_pair);
    join<Count / 4>(pairs, pair_lengths, fours, four_lengths, longest_four);
    if (LIKELY(longest_four <= index_codes::WINDOW)) {
        put_all<Count / 4>(writer, fours, four_lengths);
    } else if (LIKELY(longest_pair <= index_codes::WINDOW)) {
        put_all<Count / 2>(writer, pairs, pair_lengths);
    } else {
        put_all<Count>(writer, bits, lengths);
    }
}

// The bits of a payload from position on, zeros from the end of the block on.
inline uint64_t careful_window(const uint8_t* payload, int64_t position, int64_t end) {
    uint64_t bits = 0;
    for (int64_t byte = position >> 3, shift = 0; byte < end >> 3 && shift < 64; ++byte, shift += 8) {
        bits |= static_cast<uint64_t>(payload[byte]) << shift;
    }
    return bits >> (position & 7);
}

// What is left of a block that was read up to position <= end: less than a byte, and zeros.
INLINE int64_t rest_of(const uint8_t* payload, int64_t position, int64_t end) {
    if (end - position >= 8) return TRAILING;
    const int64_t used = position & 7;
    return used && payload[position >> 3] >> used ? PADDING : OK;
}

}  // namespace golomb
