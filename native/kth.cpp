// The k-th largest magnitude by radix selection: two passes over the input instead of nth_element's many.
#include "common.h"

namespace {

constexpr int COPIES = 4;  // neighbours often share a bucket; separate counters keep them from waiting on each other
constexpr int DIGITS = 1 << 11;

// Magnitudes order like their 31 bits, read here as digits of 11, 11 and 9 bits.
struct Digit {
    int shift;
    uint32_t mask;
};
constexpr Digit FIRST{20, 0x7FF}, SECOND{9, 0x7FF}, THIRD{0, 0x1FF};

// Finds the digit that the k-th largest has, and lowers k to its place among the elements with that digit.
INLINE uint32_t digit_of_kth(int64_t n, const float* x, Digit digit, int64_t& k) {
    uint32_t counts[COPIES][DIGITS] = {};
    for (int64_t i = 0; i < n; ++i) {
        ++counts[i % COPIES][(bits_of(x[i]) & MAGNITUDE) >> digit.shift & digit.mask];
    }
    for (uint32_t value = digit.mask;; --value) {
        int64_t count = 0;
        for (int copy = 0; copy < COPIES; ++copy) count += counts[copy][value];
        if (count >= k || value == 0) return value;
        k -= count;
    }
}

// Copies the elements with this digit to the front of out (which may be x itself); returns how many.
INLINE int64_t keep(int64_t n, const float* x, Digit digit, uint32_t wanted, float* out) {
    int64_t kept = 0;
    for (int64_t i = 0; i < n; ++i) {
        const float value = x[i];
        out[kept] = value;
        kept += ((bits_of(value) & MAGNITUDE) >> digit.shift & digit.mask) == wanted;
    }
    return kept;
}

INLINE float kth_magnitude(int64_t n, const float* x, int64_t k, float* scratch) {
    const uint32_t first = digit_of_kth(n, x, FIRST, k);
    int64_t left = keep(n, x, FIRST, first, scratch);
    const uint32_t second = digit_of_kth(left, scratch, SECOND, k);
    left = keep(left, scratch, SECOND, second, scratch);
    const uint32_t third = digit_of_kth(left, scratch, THIRD, k);
    return float_of(first << FIRST.shift | second << SECOND.shift | third);
}

}  // namespace

void install_kth(Tables& tables) {
    install<&Kernels::kth_magnitude, kth_magnitude>(tables);
}
