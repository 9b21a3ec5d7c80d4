// Selection by threshold, alone and fused with the accumulation that precedes it.
#include "select.h"

using namespace selection;

namespace {

int64_t select(int64_t n, const float* x, float threshold, int64_t capacity, uint32_t* indices, float* values) {
    if (n > MOST_ELEMENTS) return BAD_INDICES;
    Output output{indices, values, capacity, 0};
    select_scalar(0, n, x, threshold, output);
    return output.count;
}

int64_t accumulate_select(int64_t n, const float* gradient, float* velocity, float* residual, float momentum,
                          bool nesterov, float threshold, int64_t capacity, uint32_t* indices, float* values) {
    if (n > MOST_ELEMENTS) return BAD_INDICES;
    Output output{indices, values, capacity, 0};
    for (int64_t first = 0; first < n; first += CHUNK) {
        const int64_t last = std::min(n, first + CHUNK);
        float* chunk_velocity = velocity == nullptr ? nullptr : velocity + first;
        scalar_kernels().accumulate(last - first, gradient + first, chunk_velocity, residual + first, momentum,
                                    nesterov);
        select_scalar(first, last, residual, threshold, output);
    }
    return output.count;
}

#if SPARSE_RING_X86

constexpr int LANES = 8;
constexpr int UNROLL = 4;
constexpr int STRIDE = LANES * UNROLL;

// For each mask of 8 lanes: the numbers of the lanes that pass, in order, one a byte.
struct LaneTable {
    uint64_t lanes[256];

    constexpr LaneTable() : lanes() {
        for (int mask = 0; mask < 256; ++mask) {
            int passed = 0;
            for (int lane = 0; lane < LANES; ++lane) {
                if (mask >> lane & 1) lanes[mask] |= static_cast<uint64_t>(lane) << (8 * passed++);
            }
        }
    }
};
constexpr LaneTable LANE_TABLE;

// Full stores: compressing straight to memory is many times slower, and the spare elements make room for the rest.
AVX2 INLINE void emit(int64_t first, __m256 x, unsigned mask, Output& output) {
    const __m256i lanes = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(LANE_TABLE.lanes[mask])));
    const __m256i positions = _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(first)), lanes);
    const int64_t to = output.position();
    _mm256_storeu_ps(output.values + to, _mm256_permutevar8x32_ps(x, lanes));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(output.indices + to), positions);
    output.count += __builtin_popcount(mask);
}

AVX2 INLINE __m256 passing(__m256 x, __m256 threshold) {
    const __m256 magnitude = _mm256_and_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(MAGNITUDE)));
    return _mm256_cmp_ps(magnitude, threshold, _CMP_GE_OQ);
}

// The vectors of one chunk in which a lane passes. Collected without a branch, which random hits would mispredict and
// so stall the stream of loads; the loop over them afterwards is short.
struct Hits {
    uint16_t entries[CHUNK / LANES];  // number of the vector << 8 | mask
    int64_t count;

    AVX2 INLINE void note(int64_t vector, __m256 pass) {
        const unsigned mask = static_cast<unsigned>(_mm256_movemask_ps(pass));
        entries[count] = static_cast<uint16_t>(static_cast<unsigned>(vector) << 8 | mask);
        count += mask != 0;
    }

    AVX2 INLINE void emit_all(int64_t first, const float* x, Output& output) const {
        for (int64_t i = 0; i < count; ++i) {
            const int64_t at = first + (entries[i] >> 8) * LANES;
            emit(at, _mm256_loadu_ps(x + at), entries[i] & 0xFFu, output);
        }
    }
};
static_assert(CHUNK / LANES <= 256, "the number of a vector takes 8 bits");

AVX2 int64_t select_avx2(int64_t n, const float* x, float threshold, int64_t capacity, uint32_t* indices,
                         float* values) {
    if (n > MOST_ELEMENTS) return BAD_INDICES;
    Output output{indices, values, capacity, 0};
    const __m256 limit = _mm256_set1_ps(threshold);
    const int64_t whole = n / LANES * LANES;
    for (int64_t first = 0; first < whole; first += CHUNK) {
        Hits hits;
        hits.count = 0;
        const int64_t last = std::min(whole, first + CHUNK);
        for (int64_t i = first; i < last; i += LANES) {
            hits.note((i - first) / LANES, passing(_mm256_loadu_ps(x + i), limit));
        }
        hits.emit_all(first, x, output);
    }
    select_scalar(whole, n, x, threshold, output);
    return output.count;
}

template <bool HasVelocity, bool Nesterov>
AVX2 INLINE int64_t fused(int64_t n, const float* __restrict gradient, float* __restrict velocity,
                          float* __restrict residual, float momentum, float threshold, Output output) {
    const __m256 m = _mm256_set1_ps(momentum), limit = _mm256_set1_ps(threshold);
    const auto by_elements = [&](int64_t first, int64_t last) {
        scalar_kernels().accumulate(last - first, gradient + first, HasVelocity ? velocity + first : nullptr,
                                    residual + first, momentum, Nesterov);
        select_scalar(first, last, residual, threshold, output);
    };
    const int64_t head = before_alignment(residual, n);
    const int64_t whole = head + (n - head) / STRIDE * STRIDE;
    by_elements(0, head);
    for (int64_t first = head; first < whole; first += CHUNK) {
        Hits hits;
        hits.count = 0;
        const int64_t last = std::min(whole, first + CHUNK);
        for (int64_t i = first; i < last; i += STRIDE) {
            __m256 sum[UNROLL];
            for (int j = 0; j < UNROLL; ++j) {
                const int64_t at = i + j * LANES;
                const __m256 g = _mm256_loadu_ps(gradient + at);
                __m256 added = g;
                if (HasVelocity) {
                    const __m256 u = _mm256_add_ps(_mm256_mul_ps(m, _mm256_loadu_ps(velocity + at)), g);
                    _mm256_storeu_ps(velocity + at, u);
                    added = Nesterov ? _mm256_add_ps(_mm256_mul_ps(m, u), g) : u;
                }
                sum[j] = _mm256_add_ps(_mm256_loadu_ps(residual + at), added);
                _mm256_storeu_ps(residual + at, sum[j]);
            }
            for (int j = 0; j < UNROLL; ++j) hits.note((i - first) / LANES + j, passing(sum[j], limit));
        }
        hits.emit_all(first, residual, output);
    }
    by_elements(whole, n);
    return output.count;
}

AVX2 int64_t accumulate_select_avx2(int64_t n, const float* gradient, float* velocity, float* residual, float momentum,
                                    bool nesterov, float threshold, int64_t capacity, uint32_t* indices,
                                    float* values) {
    if (n > MOST_ELEMENTS) return BAD_INDICES;
    const Output output{indices, values, capacity, 0};
    if (velocity == nullptr) return fused<false, false>(n, gradient, nullptr, residual, momentum, threshold, output);
    if (nesterov) return fused<true, true>(n, gradient, velocity, residual, momentum, threshold, output);
    return fused<true, false>(n, gradient, velocity, residual, momentum, threshold, output);
}

#endif

}  // namespace

void install_select(Tables& tables) {
    tables.scalar.select = tables.avx2.select = tables.avx512.select = select;
    tables.scalar.accumulate_select = tables.avx2.accumulate_select = tables.avx512.accumulate_select = accumulate_select;
#if SPARSE_RING_X86
    tables.avx2.select = select_avx2;
    tables.avx2.accumulate_select = accumulate_select_avx2;
    install_select_avx512(tables.avx512);
#endif
}
