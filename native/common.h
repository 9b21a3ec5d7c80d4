// What the kernel files share: dispatch by target attribute, bit casts, little-endian loads and stores.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels.h"

#if defined(__x86_64__)
#define SPARSE_RING_X86 1
#include <immintrin.h>
// Never fma: a fused multiply-add would change the bits.
#define AVX2 __attribute__((target("avx2,f16c,bmi,bmi2,popcnt,lzcnt")))
#else
#define SPARSE_RING_X86 0
#define AVX2
#endif

#define INLINE inline __attribute__((always_inline))
#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

// One body compiled for both tables. The body is inlined into each, and so takes that function's instruction set.
template <auto Body>
struct Both;

template <class Result, class... Arguments, Result (*Body)(Arguments...)>
struct Both<Body> {
    static Result scalar(Arguments... arguments) { return Body(arguments...); }
    AVX2 static Result avx2(Arguments... arguments) { return Body(arguments...); }
};

INLINE uint32_t bits_of(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

INLINE float float_of(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// How many of n elements come before the first that is aligned for 32-byte vectors. Large NumPy arrays begin 16 bytes
// past such a boundary, and stores that straddle cache lines slow a pass over memory down to two thirds.
INLINE int64_t before_alignment(const float* address, int64_t n) {
    const int64_t elements = static_cast<int64_t>(-(reinterpret_cast<uintptr_t>(address) / sizeof(float)) & 7);
    return elements < n ? elements : n;
}

constexpr uint32_t MAGNITUDE = 0x7FFFFFFFu;
constexpr uint32_t INFINITE = 0x7F800000u;  // also the mask of the exponent

template <class T>
INLINE T little_endian(T value) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    if (sizeof(T) == 8) return static_cast<T>(__builtin_bswap64(value));
    if (sizeof(T) == 4) return static_cast<T>(__builtin_bswap32(static_cast<uint32_t>(value)));
    return static_cast<T>(__builtin_bswap16(static_cast<uint16_t>(value)));
#else
    return value;
#endif
}

template <class T>
INLINE T load(const void* address) {
    T value;
    std::memcpy(&value, address, sizeof value);
    return little_endian(value);
}

template <class T>
INLINE void store(void* address, T value) {
    value = little_endian(value);
    std::memcpy(address, &value, sizeof value);
}
