// The fixed summation tree, for the kernels that need a sum on the way.
#pragma once

#include <algorithm>

#include "common.h"

constexpr int SUM_LANES = 8;

INLINE double sum_magnitudes_of(int64_t n, const float* values) {
    double sum[SUM_LANES] = {};
    int64_t i = 0;
    for (; i + SUM_LANES <= n; i += SUM_LANES) {
        for (int lane = 0; lane < SUM_LANES; ++lane) sum[lane] += float_of(bits_of(values[i + lane]) & MAGNITUDE);
    }
    for (; i < n; ++i) sum[i % SUM_LANES] += float_of(bits_of(values[i]) & MAGNITUDE);
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}
