// Gaps between indices, packed in blocks of 128 with the width of the block's largest.
#include "indices.h"

using namespace index_codes;

namespace {

constexpr int64_t BLOCK = 128;
constexpr unsigned MOST_WIDTH = 32;

INLINE int64_t encode(int64_t n, const uint32_t* indices, int64_t numel, int64_t size, uint8_t* out) {
    if (n == 0) return 0;
    if (numel > MOST_ELEMENTS) return BAD_INDICES;
    if (size < (n + BLOCK - 1) / BLOCK + 4 * n + STORE_SLACK) return CAPACITY;
    uint8_t* next = out;
    uint64_t expected = 0;  // one past the previous index
    for (int64_t first = 0; first < n; first += BLOCK) {
        const int64_t count = std::min(BLOCK, n - first);
        uint32_t gaps[BLOCK], all = 0;
        for (int64_t i = 0; i < count; ++i) {
            const uint64_t index = indices[first + i];
            if (UNLIKELY(index < expected || index >= static_cast<uint64_t>(numel))) return BAD_INDICES;
            gaps[i] = static_cast<uint32_t>(index - expected);
            all |= gaps[i];
            expected = index + 1;
        }
        const unsigned width = all == 0 ? 0 : MOST_WIDTH - static_cast<unsigned>(__builtin_clz(all));
        *next++ = static_cast<uint8_t>(width);
        uint64_t pending = 0;
        unsigned filled = 0;
        for (int64_t i = 0; i < count; ++i) {
            pending |= uint64_t{gaps[i]} << filled;
            filled += width;
            store<uint64_t>(next, pending);
            next += filled >> 3;
            pending >>= filled & ~7u;
            filled &= 7;
        }
        next += filled != 0;
    }
    return next - out;
}

// Decodes one block, which holds its padded bits and 8 more readable bytes. Returns whether its padding is zero.
INLINE bool unpack(const uint8_t* bits, int64_t count, unsigned width, uint64_t& expected, uint32_t* indices) {
    const uint64_t mask = (uint64_t{1} << width) - 1;
    uint64_t position = 0, index = expected;
    for (int64_t i = 0; i < count; ++i, position += width) {
        index += load<uint64_t>(bits + (position >> 3)) >> (position & 7) & mask;
        indices[i] = static_cast<uint32_t>(index++);
    }
    expected = index;
    return (position & 7) == 0 || bits[position >> 3] >> (position & 7) == 0;
}

INLINE int64_t decode(int64_t n, const uint8_t* payload, int64_t size, int64_t numel, uint32_t* indices) {
    if (numel > MOST_ELEMENTS) return BAD_INDICES;
    const uint8_t* next = payload;
    const uint8_t* end = payload + size;
    uint64_t expected = 0;
    for (int64_t first = 0; first < n; first += BLOCK) {
        if (next == end) return TRUNCATED;
        const int64_t count = std::min(BLOCK, n - first);
        const unsigned width = *next++;
        if (width > MOST_WIDTH) return WIDTH;
        const int64_t bytes = (count * width + 7) / 8;
        if (end - next < bytes) return TRUNCATED;
        bool clean;
        if (LIKELY(end - next >= bytes + 8)) {
            clean = unpack(next, count, width, expected, indices + first);
        } else {
            uint8_t copy[BLOCK * MOST_WIDTH / 8 + 8] = {};  // loads must not leave the payload
            std::memcpy(copy, next, static_cast<size_t>(bytes));
            clean = unpack(copy, count, width, expected, indices + first);
        }
        if (!clean) return PADDING;
        // 64-bit sums of 32-bit gaps cannot wrap within a block, so the last index bounds the others.
        if (expected > static_cast<uint64_t>(numel)) return INDEX;
        next += bytes;
    }
    return next == end ? OK : TRAILING;
}

INLINE unsigned width_of(uint32_t largest) {
    return largest == 0 ? 0 : MOST_WIDTH - static_cast<unsigned>(__builtin_clz(largest));
}

INLINE int64_t size_of(int64_t n, const uint32_t* indices) {
    int64_t size = 0;
    for (int64_t first = 0; first < n; first += BLOCK) {
        const int64_t count = std::min(BLOCK, n - first);
        uint32_t all = first == 0 ? indices[0] : 0;
        for (int64_t i = std::max<int64_t>(first, 1); i < first + count; ++i) all |= indices[i] - indices[i - 1] - 1;
        size += 1 + bytes_of(count * width_of(all));
    }
    return size;
}

}  // namespace

void install_bitpack(Tables& tables) {
    install<&Kernels::bitpack_encode, encode>(tables);
    install<&Kernels::bitpack_decode, decode>(tables);
    install<&Kernels::bitpack_size, size_of>(tables);
}
