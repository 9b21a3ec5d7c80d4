// Elias-Fano code: the low bits of each index as they are, the high bits in unary.
#include "indices.h"

using namespace index_codes;

namespace {

constexpr unsigned MOST_WIDTH = 31;
constexpr int64_t WIDTH_BYTES = 1;

INLINE unsigned width_of(int64_t n, int64_t numel) {
    return 63 - static_cast<unsigned>(__builtin_clzll(static_cast<uint64_t>(numel / n)));
}

// `Together` low parts at a time: as many as fit in one window.
template <int Together>
INLINE void put_low(int64_t n, const uint32_t* indices, unsigned width, BitWriter& writer) {
    const uint32_t mask = static_cast<uint32_t>((uint64_t{1} << width) - 1);
    int64_t i = 0;
    for (; i + Together <= n; i += Together) {
        uint64_t bits = 0;
        for (int j = 0; j < Together; ++j) bits |= uint64_t{indices[i + j] & mask} << (static_cast<unsigned>(j) * width);
        writer.put(bits, Together * width);
    }
    for (; i < n; ++i) writer.put(indices[i] & mask, width);
}

INLINE int64_t encode(int64_t n, const uint32_t* indices, int64_t numel, int64_t size, uint8_t* out) {
    if (n == 0) return 0;
    if (!valid(n, indices, numel)) return BAD_INDICES;
    const unsigned width = width_of(n, numel);
    const int64_t low_bytes = bytes_of(n * width);
    if (size < WIDTH_BYTES + low_bytes + bytes_of(n + ((numel - 1) >> width)) + STORE_SLACK) return CAPACITY;
    out[0] = static_cast<uint8_t>(width);
    BitWriter writer{out + WIDTH_BYTES};
    if (4 * width <= WINDOW) {
        put_low<4>(n, indices, width, writer);
    } else if (2 * width <= WINDOW) {
        put_low<2>(n, indices, width, writer);
    } else {
        put_low<1>(n, indices, width, writer);
    }
    uint8_t* high = out + WIDTH_BYTES + low_bytes;
    const int64_t high_bytes = bytes_of(n + (indices[n - 1] >> width));
    BitSetter bits(high, high_bytes);
    for (int64_t i = 0; i < n; ++i) bits.set((indices[i] >> width) + static_cast<uint64_t>(i));
    bits.flush();
    return high + high_bytes - out;
}

// What the set bits of the unary part say: for each element its high bits, shifted to their place. Returns the position
// of the n-th set bit, or -1 where there are fewer. High bits that are too large wrap here and are found by `finish`.
INLINE int64_t high_bits(int64_t n, const uint8_t* payload, const uint8_t* end, unsigned width, uint32_t* indices) {
    int64_t found = 0;
    for (int64_t first = 0; payload + first / 8 < end; first += 64) {
        for (uint64_t word = load_word(payload + first / 8, end); word != 0; word &= word - 1) {
            const int64_t position = first + __builtin_ctzll(word);
            indices[found] = static_cast<uint32_t>(position - found) << width;
            if (++found == n) return position;
        }
    }
    return -1;
}

#if SPARSE_RING_X86
AVX512 int64_t high_bits_avx512(int64_t n, const uint8_t* payload, const uint8_t* end, unsigned width,
                                uint32_t* indices) {
    const __m512i shift = _mm512_set1_epi32(static_cast<int>(width));
    int64_t found = 0;
    for (int64_t first = 0; payload + first / 8 < end; first += 64) {
        uint64_t word = load_word(payload + first / 8, end);
        const int64_t after = found + __builtin_popcountll(word);
        for (unsigned part = 0; part < 64; part += LANES) {
            const __mmask16 mask = static_cast<__mmask16>(word >> part);
            const __m512i ranks = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(found)), lane_numbers());
            const __m512i high = _mm512_sub_epi32(positions(first + part, mask), ranks);
            store_lanes(indices, n, found, _mm512_maskz_sllv_epi32(0xFFFF, high, shift));
            found += __builtin_popcount(mask);
        }
        if (after >= n) {
            for (int64_t surplus = after - n; surplus > 0; --surplus) word &= ~(uint64_t{1} << (63 - __builtin_clzll(word)));
            return first + 63 - __builtin_clzll(word);
        }
    }
    return -1;
}
#endif

INLINE void add_low_bits(int64_t n, const uint8_t* low, const uint8_t* end, int64_t width, uint32_t* indices) {
    if (n == 0) return;
    const uint64_t mask = (uint64_t{1} << width) - 1;
    const int64_t safe = std::min(n, std::max<int64_t>(0, 8 * (end - low - 8) / width));
    for (int64_t i = 0, bit = 0; i < safe; ++i, bit += width) {
        indices[i] |= static_cast<uint32_t>(load<uint64_t>(low + (bit >> 3)) >> (bit & 7) & mask);
    }
    for (int64_t i = safe, bit = safe * width; i < n; ++i, bit += width) {
        indices[i] |= static_cast<uint32_t>(load_word(low + (bit >> 3), end) >> (bit & 7) & mask);
    }
}

// Adds the low bits and checks what was decoded.
INLINE int64_t finish(int64_t n, const uint8_t* payload, const uint8_t* end, int64_t numel, unsigned width,
                      int64_t last_position, const uint8_t* high, uint32_t* indices) {
    if (last_position < 0) return TRUNCATED;
    const uint8_t* last_byte = high + last_position / 8;
    if (*last_byte >> (last_position & 7) != 1) return PADDING;
    if (last_byte + 1 != end) return TRAILING;
    if (numel == 0 || last_position - (n - 1) > (numel - 1) >> width) return INDEX;
    const uint8_t* low = payload + WIDTH_BYTES;
    if ((n * width & 7) != 0 && high[-1] >> (n * width & 7) != 0) return PADDING;
    add_low_bits(width == 0 ? 0 : n, low, end, width, indices);
    if (!increasing(n, indices)) return ORDER;
    return int64_t{indices[n - 1]} < numel ? OK : INDEX;
}

template <auto HighBits>
INLINE int64_t decode_with(int64_t n, const uint8_t* payload, int64_t size, int64_t numel, uint32_t* indices) {
    if (n == 0) return size == 0 ? OK : TRAILING;
    if (numel > MOST_ELEMENTS) return BAD_INDICES;
    if (size < WIDTH_BYTES) return HEADER;
    const unsigned width = payload[0];
    if (width > MOST_WIDTH) return WIDTH;
    const int64_t low_bytes = bytes_of(n * width);
    if (size < WIDTH_BYTES + low_bytes) return TRUNCATED;
    const uint8_t *high = payload + WIDTH_BYTES + low_bytes, *end = payload + size;
    const int64_t last = HighBits(n, high, end, width, indices);
    return finish(n, payload, end, numel, width, last, high, indices);
}

INLINE int64_t decode(int64_t n, const uint8_t* payload, int64_t size, int64_t numel, uint32_t* indices) {
    return decode_with<high_bits>(n, payload, size, numel, indices);
}

#if SPARSE_RING_X86
AVX512 int64_t decode_avx512(int64_t n, const uint8_t* payload, int64_t size, int64_t numel, uint32_t* indices) {
    return decode_with<high_bits_avx512>(n, payload, size, numel, indices);
}
#endif

}  // namespace

void install_elias_fano(Tables& tables) {
    install<&Kernels::elias_fano_encode, encode>(tables);
    install<&Kernels::elias_fano_decode, decode>(tables);
#if SPARSE_RING_X86
    tables.avx512.elias_fano_decode = decode_avx512;
#endif
}
