// What the index codes share: limits, the order of indices, and the positions of set bits.
#pragma once

#include <algorithm>

#include "common.h"

namespace index_codes {

constexpr int64_t MOST_ELEMENTS = 0xFFFFFFFF;
constexpr int64_t STORE_SLACK = 16;  // of every bound, for stores past the end
constexpr uint64_t WINDOW = 56;      // bits that an 8-byte load at any bit position holds

// Whether n >= 1 indices are strictly increasing; without an early end, so that it takes a few instructions a vector.
INLINE bool increasing(int64_t n, const uint32_t* indices) {
    uint32_t bad = 0;
    for (int64_t i = 1; i < n; ++i) bad |= indices[i] <= indices[i - 1];
    return bad == 0;
}

INLINE bool valid(int64_t n, const uint32_t* indices, int64_t numel) {
    return numel <= MOST_ELEMENTS && int64_t{indices[n - 1]} < numel && increasing(n, indices);
}

// Bytes that hold so many bits.
INLINE int64_t bytes_of(int64_t bits) { return (bits + 7) / 8; }

// Eight bytes at `next`, zeros from `end` on.
INLINE uint64_t load_word(const uint8_t* next, const uint8_t* end) {
    if (LIKELY(end - next >= 8)) return load<uint64_t>(next);
    uint8_t copy[8] = {};
    std::memcpy(copy, next, static_cast<size_t>(end - next));
    return load<uint64_t>(copy);
}

// Appends bits, lowest first, with stores that reach up to 8 bytes past what was written.
struct BitWriter {
    uint8_t* next;
    uint64_t pending = 0;
    unsigned filled = 0;  // bits pending, below 8 between calls

    INLINE void put(uint64_t bits, unsigned length) {  // length <= WINDOW
        pending |= bits << filled;
        filled += length;
        store<uint64_t>(next, pending);
        next += filled >> 3;
        pending >>= filled & ~7u;
        filled &= 7;
    }

    INLINE void align() {
        next += filled != 0;
        pending = filled = 0;
    }
};

// Sets bits at increasing positions of cleared bytes, a word at a time.
class BitSetter {
public:
    INLINE BitSetter(uint8_t* bytes, int64_t size) : bytes_(bytes), size_(size) {
        std::memset(bytes, 0, static_cast<size_t>(size));
    }

    INLINE void set(uint64_t position) {
        const int64_t number = static_cast<int64_t>(position >> 6);
        if (UNLIKELY(number != number_)) {
            flush();
            number_ = number;
        }
        word_ |= uint64_t{1} << (position & 63);
    }

    INLINE void flush() {
        uint8_t word[8];
        store<uint64_t>(word, word_);
        std::memcpy(bytes_ + 8 * number_, word, static_cast<size_t>(std::min<int64_t>(8, size_ - 8 * number_)));
        word_ = 0;
    }

private:
    uint8_t* bytes_;
    int64_t size_, number_ = 0;
    uint64_t word_ = 0;
};

#if SPARSE_RING_X86
constexpr unsigned LANES = 16;

AVX512 INLINE __m512i lane_numbers() {
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

// The positions of the set bits of one mask, which begins at position `first`, in the lowest lanes.
AVX512 INLINE __m512i positions(int64_t first, __mmask16 mask) {
    return _mm512_maskz_compress_epi32(
        mask, _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(first)), lane_numbers()));
}

// Stores all lanes at `at`, or as many as there is room for below n.
AVX512 INLINE void store_lanes(uint32_t* out, int64_t n, int64_t at, __m512i lanes) {
    if (LIKELY(n - at >= LANES)) {
        _mm512_storeu_si512(out + at, lanes);
    } else if (at < n) {
        _mm512_mask_storeu_epi32(out + at, static_cast<__mmask16>((1u << (n - at)) - 1), lanes);
    }
}
#endif

}  // namespace index_codes
