// The largest magnitudes of every chunk: candidates above a guess by the selection of this instruction set, the largest of
// these by bisection of their bits.
#include <algorithm>

#include "common.h"

namespace {

constexpr int64_t MOST_ELEMENTS = int64_t{1} << 32;  // indices are 32 bits wide
constexpr int64_t CHUNK = 4096;
constexpr int64_t SPARE = 16;
constexpr uint32_t SMALLEST = 0x00800000u;  // the smallest normal float32
constexpr int TOP_BIT = 30;                 // of a magnitude's bits, which order like the magnitudes

// The guess is the last chunk's border times a factor, which follows how many candidates that makes.
constexpr float FIRST_FACTOR = 0.8f, LEAST_FACTOR = 0.1f;
constexpr int64_t FEW = 64, MANY = 4;

// The largest bits that at least keep of n magnitudes reach.
INLINE int32_t bits_of_kth(int64_t n, const int32_t* magnitudes, int64_t keep) {
    int32_t reached = 0;
    for (int bit = TOP_BIT; bit >= 0; --bit) {
        const int32_t tried = reached | int32_t{1} << bit;
        int32_t count = 0;
        for (int64_t i = 0; i < n; ++i) count += magnitudes[i] >= tried;
        if (count >= keep) reached = tried;
    }
    return reached;
}

INLINE int64_t select_chunks(const Kernels& table, int64_t n, const float* x, int64_t keep, uint32_t* indices,
                             float* values) {
    if (n > MOST_ELEMENTS) return BAD_INDICES;
    uint32_t positions[CHUNK + SPARE];
    float found[CHUNK + SPARE];
    int32_t magnitudes[CHUNK];
    const float smallest = float_of(SMALLEST);
    float border = 0.0f, factor = FIRST_FACTOR;
    int64_t written = 0;
    for (int64_t first = 0; first < n; first += CHUNK) {
        const int64_t length = std::min(n - first, CHUNK);
        const int64_t wanted = std::max<int64_t>(1, (keep * length + CHUNK / 2) / CHUNK);
        const float guess = std::max(border * factor, smallest);
        int64_t count = table.select(length, x + first, guess, CHUNK, positions, found);
        if (count < wanted && guess > smallest) {
            factor = std::max(factor * factor, LEAST_FACTOR);
            count = table.select(length, x + first, smallest, CHUNK, positions, found);
        } else if (count > MANY * wanted + FEW) {
            factor = 0.5f * (factor + 1.0f);
        }
        int32_t limit = 0;
        int64_t ties = count;
        border = 0.0f;
        if (count >= wanted) {
            for (int64_t i = 0; i < count; ++i) magnitudes[i] = static_cast<int32_t>(bits_of(found[i]) & MAGNITUDE);
            limit = bits_of_kth(count, magnitudes, wanted);
            border = float_of(static_cast<uint32_t>(limit));
            ties = wanted;
            for (int64_t i = 0; i < count; ++i) ties -= magnitudes[i] > limit;
        }
        for (int64_t i = 0; i < count; ++i) {
            const int32_t magnitude = static_cast<int32_t>(bits_of(found[i]) & MAGNITUDE);
            // Written always and counted only where it is kept, into the spare elements past the last one.
            indices[written] = static_cast<uint32_t>(first) + positions[i];
            values[written] = found[i];
            const bool tie = magnitude == limit;
            written += magnitude > limit || (tie && ties > 0);
            ties -= tie;
        }
    }
    return written;
}

int64_t scalar(int64_t n, const float* x, int64_t keep, uint32_t* indices, float* values) {
    return select_chunks(scalar_kernels(), n, x, keep, indices, values);
}

AVX2 int64_t avx2(int64_t n, const float* x, int64_t keep, uint32_t* indices, float* values) {
    return select_chunks(avx2_kernels(), n, x, keep, indices, values);
}

AVX512 int64_t avx512(int64_t n, const float* x, int64_t keep, uint32_t* indices, float* values) {
    return select_chunks(avx512_kernels(), n, x, keep, indices, values);
}

}  // namespace

void install_chunks(Tables& tables) {
    tables.scalar.select_chunks = scalar;
    tables.avx2.select_chunks = avx2;
    tables.avx512.select_chunks = avx512;
}
