// Values as one sign bit each and their mean magnitude.
#include "common.h"

namespace {

constexpr uint32_t SIGN = 0x80000000u;

INLINE float scale_of(int64_t n, double sum) {
    return n == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(n));
}

// Encodes from a multiple of 8 on.
INLINE void encode_rest(int64_t first, int64_t n, const float* values, float scale, uint8_t* out, float* decoded) {
    for (int64_t i = first; i < n; i += 8) {
        unsigned byte = 0;
        for (int64_t j = i; j < n && j < i + 8; ++j) {
            const uint32_t sign = bits_of(values[j]) & SIGN;
            byte |= (sign >> 31) << (j - i);
            decoded[j] = float_of(bits_of(scale) ^ sign);
        }
        out[i >> 3] = static_cast<uint8_t>(byte);
    }
}

INLINE void decode_rest(int64_t first, int64_t n, const uint8_t* payload, float scale, float* values) {
    for (int64_t i = first; i < n; ++i) {
        values[i] = float_of(bits_of(scale) ^ static_cast<uint32_t>(payload[i >> 3] >> (i & 7) & 1) << 31);
    }
}

INLINE int64_t check(int64_t n, const uint8_t* payload, float scale) {
    if ((bits_of(scale) & INFINITE) == INFINITE) return NOT_FINITE;
    return (n & 7) != 0 && payload[n >> 3] >> (n & 7) != 0 ? PADDING : OK;
}

float encode(int64_t n, const float* values, uint8_t* out, float* decoded) {
    const float scale = scale_of(n, scalar_kernels().sum_magnitudes(n, values));
    encode_rest(0, n, values, scale, out, decoded);
    return scale;
}

int64_t decode(int64_t n, const uint8_t* payload, float scale, float* values) {
    const int64_t status = check(n, payload, scale);
    if (status == OK) decode_rest(0, n, payload, scale, values);
    return status;
}

#if SPARSE_RING_X86
AVX2 float encode_avx2(int64_t n, const float* values, uint8_t* out, float* decoded) {
    const float scale = scale_of(n, avx2_kernels().sum_magnitudes(n, values));
    const __m256 magnitude = _mm256_set1_ps(scale);
    const __m256 sign = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(SIGN)));
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 x = _mm256_loadu_ps(values + i);
        out[i >> 3] = static_cast<uint8_t>(_mm256_movemask_ps(x));
        _mm256_storeu_ps(decoded + i, _mm256_xor_ps(magnitude, _mm256_and_ps(x, sign)));
    }
    encode_rest(i, n, values, scale, out, decoded);
    return scale;
}

AVX2 int64_t decode_avx2(int64_t n, const uint8_t* payload, float scale, float* values) {
    const int64_t status = check(n, payload, scale);
    if (status != OK) return status;
    const __m256 magnitude = _mm256_set1_ps(scale);
    const __m256i sign = _mm256_set1_epi32(static_cast<int>(SIGN));
    const __m256i to_sign = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256i bits = _mm256_sllv_epi32(_mm256_set1_epi32(payload[i >> 3]), to_sign);
        const __m256 signs = _mm256_castsi256_ps(_mm256_and_si256(bits, sign));
        _mm256_storeu_ps(values + i, _mm256_xor_ps(magnitude, signs));
    }
    decode_rest(i, n, payload, scale, values);
    return OK;
}
#endif

}  // namespace

void install_sign(Tables& tables) {
    install<&Kernels::sign_encode, encode>(tables);
    install<&Kernels::sign_decode, decode>(tables);
#if SPARSE_RING_X86
    tables.avx2.sign_encode = tables.avx512.sign_encode = encode_avx2;
    tables.avx2.sign_decode = tables.avx512.sign_decode = decode_avx2;
#endif
}
