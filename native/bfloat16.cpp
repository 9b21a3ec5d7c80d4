// Conversion between float and bfloat16, its upper half; values of the wire as bfloat16.
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

constexpr uint16_t LARGEST = 0x7F7F;  // the largest finite bfloat16

INLINE float encode(int64_t n, const float* __restrict values, Half* __restrict out, float* __restrict decoded) {
    for (int64_t i = 0; i < n; ++i) {
        const uint32_t bits = bits_of(values[i]), sign = bits >> 16 & 0x8000u;
        const uint32_t rounded = ((bits & MAGNITUDE) + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
        // What would round to infinity stays finite: the rest goes to the residual.
        const uint32_t half = sign | (rounded > LARGEST ? LARGEST : rounded);
        store<uint16_t>(out + i, static_cast<uint16_t>(half));
        decoded[i] = float_of(half << 16);
    }
    return 1.0f;
}

INLINE int64_t decode(int64_t n, const Half* __restrict payload, float* __restrict values) {
    uint32_t bad = 0;
    for (int64_t i = 0; i < n; ++i) {
        const uint32_t half = load<uint16_t>(payload + i);
        bad |= (half & 0x7FFFu) > LARGEST;
        values[i] = float_of(half << 16);
    }
    return bad == 0 ? OK : NOT_FINITE;
}

}  // namespace

void install_bfloat16(Tables& tables) {
    install<&Kernels::float32_to_bfloat16, narrow>(tables);
    install<&Kernels::bfloat16_to_float32, widen>(tables);
    install<&Kernels::bfloat16_encode, encode>(tables);
    install<&Kernels::bfloat16_decode, decode>(tables);
}
