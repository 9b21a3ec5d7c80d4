// The fixed summation tree, for the kernels that need a sum on the way.
#pragma once

#include <algorithm>

#include "common.h"

constexpr int SUM_LANES = 8;

// What is summed of a value.
struct Magnitude {
    static INLINE double of(float value) { return float_of(bits_of(value) & MAGNITUDE); }
};
struct Square {
    static INLINE double of(float value) { return static_cast<double>(value) * value; }
};

INLINE double sum_of_lanes(const double* sum) {
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

template <class Term>
INLINE double sum_of(int64_t n, const float* values) {
    double sum[SUM_LANES] = {};
    int64_t i = 0;
    for (; i + SUM_LANES <= n; i += SUM_LANES) {
        for (int lane = 0; lane < SUM_LANES; ++lane) sum[lane] += Term::of(values[i + lane]);
    }
    for (; i < n; ++i) sum[i % SUM_LANES] += Term::of(values[i]);
    return sum_of_lanes(sum);
}

INLINE double sum_magnitudes_of(int64_t n, const float* values) { return sum_of<Magnitude>(n, values); }
