// What the kernel files share: dispatch by target attribute, bit casts, little-endian loads and stores.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels.h"

#if defined(__x86_64__)
#define SPARSE_RING_X86 1
#include <immintrin.h>
// Never fma: a fused multiply-add would change the bits. (AVX-512 brings its own, which -ffp-contract=off keeps unused.)
#define AVX2 __attribute__((target("avx2,f16c,bmi,bmi2,popcnt,lzcnt")))
#define AVX512_SETS "avx2,f16c,bmi,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512dq,avx512vl"
#if defined(__clang__)
#define AVX512 __attribute__((target(AVX512_SETS)))
#else
#define AVX512 __attribute__((target(AVX512_SETS ",prefer-vector-width=512")))
#endif
#else
#define SPARSE_RING_X86 0
#define AVX2
#define AVX512
#endif

#define INLINE inline __attribute__((always_inline))
#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

// One body compiled for each table. The body is inlined into each, and so takes that function's instruction set.
template <auto Body>
struct Each;

template <class Result, class... Arguments, Result (*Body)(Arguments...)>
struct Each<Body> {
    static Result scalar(Arguments... arguments) { return Body(arguments...); }
    AVX2 static Result avx2(Arguments... arguments) { return Body(arguments...); }
    AVX512 static Result avx512(Arguments... arguments) { return Body(arguments...); }
};

template <auto Member, auto Body>
void install(Tables& tables) {
    tables.scalar.*Member = Each<Body>::scalar;
    tables.avx2.*Member = Each<Body>::avx2;
    tables.avx512.*Member = Each<Body>::avx512;
}

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

// How many of n elements come before the first that is aligned for vectors of so many bytes. Large NumPy arrays begin 16
// bytes past such a boundary, and stores that straddle cache lines slow a pass over memory down to two thirds.
INLINE int64_t before_alignment(const float* address, int64_t n, uintptr_t vector_bytes = 32) {
    const uintptr_t elements = -reinterpret_cast<uintptr_t>(address) % vector_bytes / sizeof(float);
    return static_cast<int64_t>(elements) < n ? static_cast<int64_t>(elements) : n;
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
