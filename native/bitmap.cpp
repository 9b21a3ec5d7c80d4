// One bit a position.
#include "indices.h"

using namespace index_codes;

namespace {

INLINE int64_t encode(int64_t n, const uint32_t* indices, int64_t numel, int64_t size, uint8_t* out) {
    if (n == 0) return 0;
    if (!valid(n, indices, numel)) return BAD_INDICES;
    const int64_t bytes = bytes_of(numel);
    if (size < bytes) return CAPACITY;
    BitSetter bits(out, bytes);
    for (int64_t i = 0; i < n; ++i) bits.set(indices[i]);
    bits.flush();
    return bytes;
}

INLINE int64_t check(int64_t n, const uint8_t* payload, int64_t size, int64_t numel) {
    if (numel > MOST_ELEMENTS) return BAD_INDICES;
    const int64_t bytes = n == 0 ? 0 : bytes_of(numel);
    if (size < bytes) return TRUNCATED;
    if (size > bytes) return TRAILING;
    if (n == 0) return OK;
    if ((numel & 7) != 0 && payload[size - 1] >> (numel & 7) != 0) return PADDING;
    int64_t count = 0;
    for (const uint8_t *next = payload, *end = payload + size; next < end; next += 8) {
        count += __builtin_popcountll(load_word(next, end));
    }
    return count == n ? OK : COUNT;
}

INLINE int64_t decode(int64_t n, const uint8_t* payload, int64_t size, int64_t numel, uint32_t* indices) {
    const int64_t status = check(n, payload, size, numel);
    if (status != OK) return status;
    const uint8_t* end = payload + size;
    int64_t found = 0;
    for (int64_t first = 0; first < 8 * size; first += 64) {
        for (uint64_t word = load_word(payload + first / 8, end); word != 0; word &= word - 1) {
            indices[found++] = static_cast<uint32_t>(first + __builtin_ctzll(word));
        }
    }
    return OK;
}

#if SPARSE_RING_X86
AVX512 int64_t decode_avx512(int64_t n, const uint8_t* payload, int64_t size, int64_t numel, uint32_t* indices) {
    const int64_t status = check(n, payload, size, numel);
    if (status != OK) return status;
    const uint8_t* end = payload + size;
    int64_t found = 0;
    for (int64_t first = 0; first < 8 * size; first += 64) {
        const uint64_t word = load_word(payload + first / 8, end);
        if (word == 0) continue;
        for (unsigned shift = 0; shift < 64; shift += LANES) {
            const __mmask16 mask = static_cast<__mmask16>(word >> shift);
            store_lanes(indices, n, found, positions(first + shift, mask));
            found += __builtin_popcount(mask);
        }
    }
    return OK;
}
#endif

}  // namespace

void install_bitmap(Tables& tables) {
    install<&Kernels::bitmap_encode, encode>(tables);
    install<&Kernels::bitmap_decode, decode>(tables);
#if SPARSE_RING_X86
    tables.avx512.bitmap_decode = decode_avx512;
#endif
}
