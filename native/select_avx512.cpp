// Selection by threshold with AVX-512, alone and fused with the accumulation that precedes it.
#include "select.h"

#if SPARSE_RING_X86

using namespace selection;

namespace {

constexpr int LANES = 16;
constexpr int UNROLL = 4;
constexpr int STRIDE = LANES * UNROLL;

AVX512 INLINE __mmask16 passing(__m512 x, __m512 threshold) {
    return _mm512_cmp_ps_mask(_mm512_abs_ps(x), threshold, _CMP_GE_OQ);
}

// The vectors of one chunk in which a lane passes, as in select.cpp.
struct Hits {
    uint32_t entries[CHUNK / LANES];  // number of the vector << 16 | mask
    int64_t count;

    AVX512 INLINE void note(int64_t vector, __mmask16 mask) {
        entries[count] = static_cast<uint32_t>(vector) << LANES | mask;
        count += mask != 0;
    }

    // Compressed in a register and stored in full: compressing straight to memory is many times slower.
    AVX512 INLINE void emit_all(int64_t first, const float* x, Output& output) const {
        const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        for (int64_t i = 0; i < count; ++i) {
            const int64_t at = first + (entries[i] >> LANES) * LANES;
            const __mmask16 mask = static_cast<__mmask16>(entries[i]);
            const __m512i positions = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(at)), lanes);
            const int64_t to = output.position();
            _mm512_storeu_ps(output.values + to, _mm512_maskz_compress_ps(mask, _mm512_loadu_ps(x + at)));
            _mm512_storeu_si512(output.indices + to, _mm512_maskz_compress_epi32(mask, positions));
            output.count += __builtin_popcount(mask);
        }
    }
};

AVX512 int64_t select(int64_t n, const float* x, float threshold, int64_t capacity, uint32_t* indices, float* values) {
    if (n > MOST_ELEMENTS) return BAD_INDICES;
    Output output{indices, values, capacity, 0};
    const __m512 limit = _mm512_set1_ps(threshold);
    const int64_t whole = n / LANES * LANES;
    for (int64_t first = 0; first < whole; first += CHUNK) {
        Hits hits;
        hits.count = 0;
        const int64_t last = std::min(whole, first + CHUNK);
        for (int64_t i = first; i < last; i += LANES) {
            hits.note((i - first) / LANES, passing(_mm512_loadu_ps(x + i), limit));
        }
        hits.emit_all(first, x, output);
    }
    select_scalar(whole, n, x, threshold, output);
    return output.count;
}

template <bool HasVelocity, bool Nesterov>
AVX512 INLINE int64_t fused(int64_t n, const float* __restrict gradient, float* __restrict velocity,
                            float* __restrict residual, float momentum, float threshold, Output output) {
    const __m512 m = _mm512_set1_ps(momentum), limit = _mm512_set1_ps(threshold);
    const auto by_elements = [&](int64_t first, int64_t last) {
        scalar_kernels().accumulate(last - first, gradient + first, HasVelocity ? velocity + first : nullptr,
                                    residual + first, momentum, Nesterov);
        select_scalar(first, last, residual, threshold, output);
    };
    const int64_t head = before_alignment(residual, n, sizeof(__m512));
    const int64_t whole = head + (n - head) / STRIDE * STRIDE;
    by_elements(0, head);
    for (int64_t first = head; first < whole; first += CHUNK) {
        Hits hits;
        hits.count = 0;
        const int64_t last = std::min(whole, first + CHUNK);
        for (int64_t i = first; i < last; i += STRIDE) {
            for (int j = 0; j < UNROLL; ++j) {
                const int64_t at = i + j * LANES;
                const __m512 g = _mm512_loadu_ps(gradient + at);
                __m512 added = g;
                if (HasVelocity) {
                    const __m512 u = _mm512_add_ps(_mm512_mul_ps(m, _mm512_loadu_ps(velocity + at)), g);
                    _mm512_storeu_ps(velocity + at, u);
                    added = Nesterov ? _mm512_add_ps(_mm512_mul_ps(m, u), g) : u;
                }
                const __m512 sum = _mm512_add_ps(_mm512_loadu_ps(residual + at), added);
                _mm512_storeu_ps(residual + at, sum);
                hits.note((at - first) / LANES, passing(sum, limit));
            }
        }
        hits.emit_all(first, residual, output);
    }
    by_elements(whole, n);
    return output.count;
}

AVX512 int64_t accumulate_select(int64_t n, const float* gradient, float* velocity, float* residual, float momentum,
                                 bool nesterov, float threshold, int64_t capacity, uint32_t* indices, float* values) {
    if (n > MOST_ELEMENTS) return BAD_INDICES;
    const Output output{indices, values, capacity, 0};
    if (velocity == nullptr) return fused<false, false>(n, gradient, nullptr, residual, momentum, threshold, output);
    if (nesterov) return fused<true, true>(n, gradient, velocity, residual, momentum, threshold, output);
    return fused<true, false>(n, gradient, velocity, residual, momentum, threshold, output);
}

}  // namespace

void install_select_avx512(Kernels& avx512) {
    avx512.select = select;
    avx512.accumulate_select = accumulate_select;
}

#endif
