// Values as halves of a power-of-two scale; conversion between float and half.
#include <algorithm>

#include "common.h"

namespace {

constexpr int BIAS_STEP = 127 - 15;  // between the exponents of float and half

// Rounds to nearest even; |value| < 65520, which the scale guarantees.
INLINE uint16_t half_of(float value) {
    const uint32_t sign = bits_of(value) >> 16 & 0x8000u;
    const uint32_t magnitude = bits_of(value) & MAGNITUDE;
    if (magnitude < 0x38800000u) {
        // Below the smallest normal half: adding 0.5, whose last place is the smallest half, rounds to multiples.
        return static_cast<uint16_t>(sign | (bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f)));
    }
    const uint32_t rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1u);
    return static_cast<uint16_t>(sign | (rounded - (uint32_t{BIAS_STEP} << 23)) >> 13);
}

INLINE float float_of_half(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
    const uint32_t magnitude = half & 0x7FFFu;
    if (magnitude >= 0x7C00u) return float_of(sign | INFINITE | magnitude << 13);
    if (magnitude < 0x0400u) return float_of(sign | bits_of(static_cast<float>(magnitude) * 0x1p-24f));
    return float_of(sign | ((magnitude << 13) + (uint32_t{BIAS_STEP} << 23)));
}

INLINE float scale_of(int64_t n, const float* values) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; ++i) largest = std::max(largest, bits_of(values[i]) & MAGNITUDE);
    if (largest == 0) return 1.0f;
    return float_of(std::max(largest & INFINITE, bits_of(0x1p-126f)));
}

INLINE void encode_rest(int64_t first, int64_t n, const float* values, float scale, Half* out, float* decoded) {
    for (int64_t i = first; i < n; ++i) {
        const uint16_t half = half_of(values[i] / scale);
        store<uint16_t>(out + i, half);
        decoded[i] = float_of_half(half) * scale;
    }
}

// Returns nonzero where a decoded value is not finite.
INLINE uint32_t decode_rest(int64_t first, int64_t n, const Half* payload, float scale, float* values) {
    uint32_t bad = 0;
    for (int64_t i = first; i < n; ++i) {
        values[i] = float_of_half(load<uint16_t>(payload + i)) * scale;
        bad |= (bits_of(values[i]) & INFINITE) == INFINITE;
    }
    return bad;
}

INLINE bool finite(float scale) { return (bits_of(scale) & INFINITE) != INFINITE; }

float encode(int64_t n, const float* values, Half* out, float* decoded) {
    const float scale = scale_of(n, values);
    encode_rest(0, n, values, scale, out, decoded);
    return scale;
}

int64_t decode(int64_t n, const Half* payload, float scale, float* values) {
    return finite(scale) && decode_rest(0, n, payload, scale, values) == 0 ? OK : NOT_FINITE;
}

// As half_of, for any value: what is too large becomes infinite, NaN stays NaN (quiet, its upper bits kept).
INLINE uint16_t any_half_of(float value) {
    const uint32_t sign = bits_of(value) >> 16 & 0x8000u, magnitude = bits_of(value) & MAGNITUDE;
    if (magnitude > INFINITE) return static_cast<uint16_t>(sign | 0x7E00u | (magnitude >> 13 & 0x3FFu));
    if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);
    return half_of(value);
}

INLINE float any_float_of(uint16_t half) {
    const bool nan = (half & 0x7FFFu) > 0x7C00u;
    return float_of(bits_of(float_of_half(half)) | (nan ? 0x00400000u : 0u));
}

void narrow(int64_t n, const float* x, Half* out) {
    for (int64_t i = 0; i < n; ++i) store<uint16_t>(out + i, any_half_of(x[i]));
}

void widen(int64_t n, const Half* x, float* out) {
    for (int64_t i = 0; i < n; ++i) out[i] = any_float_of(load<uint16_t>(x + i));
}

#if SPARSE_RING_X86
constexpr int LANES = 8;

AVX2 void narrow_avx2(int64_t n, const float* x, Half* out) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), halves);
    }
    narrow(n - i, x + i, out + i);
}

AVX2 void widen_avx2(int64_t n, const Half* x, float* out) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i));
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(halves));
    }
    widen(n - i, x + i, out + i);
}

AVX2 float encode_avx2(int64_t n, const float* values, Half* out, float* decoded) {
    const float scale = scale_of(n, values);
    const __m256 factor = _mm256_set1_ps(scale);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const __m256 scaled = _mm256_div_ps(_mm256_loadu_ps(values + i), factor);
        const __m128i halves = _mm256_cvtps_ph(scaled, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), halves);
        _mm256_storeu_ps(decoded + i, _mm256_mul_ps(_mm256_cvtph_ps(halves), factor));
    }
    encode_rest(i, n, values, scale, out, decoded);
    return scale;
}

AVX2 int64_t decode_avx2(int64_t n, const Half* payload, float scale, float* values) {
    if (!finite(scale)) return NOT_FINITE;
    const __m256 factor = _mm256_set1_ps(scale);
    const __m256i infinite = _mm256_set1_epi32(INFINITE);
    __m256i bad = _mm256_setzero_si256();
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(payload + i));
        const __m256 value = _mm256_mul_ps(_mm256_cvtph_ps(halves), factor);
        const __m256i exponent = _mm256_and_si256(_mm256_castps_si256(value), infinite);
        bad = _mm256_or_si256(bad, _mm256_cmpeq_epi32(exponent, infinite));
        _mm256_storeu_ps(values + i, value);
    }
    const uint32_t rest = decode_rest(i, n, payload, scale, values);
    return _mm256_testz_si256(bad, bad) && rest == 0 ? OK : NOT_FINITE;
}
#endif

}  // namespace

void install_float16(Tables& tables) {
    install<&Kernels::float16_encode, encode>(tables);
    install<&Kernels::float16_decode, decode>(tables);
    install<&Kernels::float32_to_float16, narrow>(tables);
    install<&Kernels::float16_to_float32, widen>(tables);
#if SPARSE_RING_X86
    tables.avx2.float16_encode = tables.avx512.float16_encode = encode_avx2;
    tables.avx2.float16_decode = tables.avx512.float16_decode = decode_avx2;
    tables.avx2.float32_to_float16 = tables.avx512.float32_to_float16 = narrow_avx2;
    tables.avx2.float16_to_float32 = tables.avx512.float16_to_float32 = widen_avx2;
#endif
}
