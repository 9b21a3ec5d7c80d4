// Conversion between float and bfloat16, its upper half.
#include "common.h"

namespace {

INLINE void narrow(int64_t n, const float* __restrict x, Half* __restrict out) {
    for (int64_t i = 0; i < n; ++i) {
        const uint32_t bits = bits_of(x[i]);
        const uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
        const uint32_t quiet = (bits >> 16 & 0x8000u) | 0x7FC0u;
        store<uint16_t>(out + i, static_cast<uint16_t>((bits & MAGNITUDE) > INFINITE ? quiet : rounded));
    }
}

INLINE void widen(int64_t n, const Half* __restrict x, float* __restrict out) {
    for (int64_t i = 0; i < n; ++i) out[i] = float_of(static_cast<uint32_t>(load<uint16_t>(x + i)) << 16);
}

}  // namespace

void install_bfloat16(Kernels& scalar, Kernels& avx2) {
    scalar.float32_to_bfloat16 = Both<narrow>::scalar;
    avx2.float32_to_bfloat16 = Both<narrow>::avx2;
    scalar.bfloat16_to_float32 = Both<widen>::scalar;
    avx2.bfloat16_to_float32 = Both<widen>::avx2;
}
