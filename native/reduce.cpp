// Reductions of a whole array to one answer.
#include <algorithm>

#include "common.h"

namespace {

constexpr int64_t CHUNK = 4096;  // a bad element ends the search within this many more
constexpr int LANES = 8;         // of the fixed summation tree

INLINE bool all_finite(int64_t n, const float* x) {
    for (int64_t first = 0; first < n; first += CHUNK) {
        const int64_t last = std::min(n, first + CHUNK);
        uint32_t bad = 0;
        for (int64_t i = first; i < last; ++i) bad |= (bits_of(x[i]) & INFINITE) == INFINITE;
        if (bad) return false;
    }
    return true;
}

INLINE double fold(const double (&sum)[LANES]) {
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

INLINE void add_rest(int64_t first, int64_t n, const float* values, double (&sum)[LANES]) {
    for (int64_t i = first; i < n; ++i) sum[i % LANES] += float_of(bits_of(values[i]) & MAGNITUDE);
}

double sum_magnitudes(int64_t n, const float* values) {
    double sum[LANES] = {};
    add_rest(0, n, values, sum);
    return fold(sum);
}

#if SPARSE_RING_X86
AVX2 double sum_magnitudes_avx2(int64_t n, const float* values) {
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(MAGNITUDE));
    __m256d low = _mm256_setzero_pd(), high = _mm256_setzero_pd();
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const __m256 x = _mm256_and_ps(_mm256_loadu_ps(values + i), magnitude);
        low = _mm256_add_pd(low, _mm256_cvtps_pd(_mm256_castps256_ps128(x)));
        high = _mm256_add_pd(high, _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)));
    }
    double sum[LANES];
    _mm256_storeu_pd(sum, low);
    _mm256_storeu_pd(sum + 4, high);
    add_rest(i, n, values, sum);
    return fold(sum);
}
#endif

}  // namespace

void install_reduce(Kernels& scalar, Kernels& avx2) {
    scalar.all_finite = Both<all_finite>::scalar;
    avx2.all_finite = Both<all_finite>::avx2;
    scalar.sum_magnitudes = avx2.sum_magnitudes = sum_magnitudes;
#if SPARSE_RING_X86
    avx2.sum_magnitudes = sum_magnitudes_avx2;
#endif
}
