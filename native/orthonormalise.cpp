// Modified Gram-Schmidt on the columns of a skinny factor, which lie one after the other.
#include <cmath>
#include <limits>

#include "common.h"

namespace {

constexpr int LANES = 8;
constexpr double VANISHED = 0x1p-32;  // squared norm that rounding may have left of nothing

INLINE double dot(int64_t n, const float* x, const float* y) {
    double sum[LANES] = {};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int lane = 0; lane < LANES; ++lane) sum[lane] += static_cast<double>(x[i + lane]) * y[i + lane];
    }
    for (; i < n; ++i) sum[i % LANES] += static_cast<double>(x[i]) * y[i];
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

// Scales to norm 1. Returns the squared norm before, or 0 where it is not above the least and finite.
INLINE double scale(int64_t n, float* x, double least) {
    const double squares = dot(n, x, x);
    if (!(squares > least && squares < std::numeric_limits<double>::infinity())) return 0.0;
    const double factor = 1.0 / std::sqrt(squares);
    for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(x[i] * factor);
    return squares;
}

// Makes x orthonormal to the columns before it; returns whether anything of it is left.
INLINE bool make_orthonormal(int64_t n, int64_t before, const float* __restrict columns, float* __restrict x) {
    if (scale(n, x, 0.0) == 0.0) return false;
    for (int pass = 0;; ++pass) {
        for (int64_t d = 0; d < before; ++d) {
            const float* direction = columns + d * n;
            const double share = dot(n, direction, x);
            for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(x[i] - share * direction[i]);
        }
        const double squares = scale(n, x, VANISHED);
        if (squares == 0.0) return false;
        if (squares > 0.5 || pass == 1) return true;
    }
}

INLINE void renew(int64_t n, int64_t column, float* x) {
    for (int64_t i = 0; i < n; ++i) {
        uint32_t h = static_cast<uint32_t>(i + 1) * 0x9E3779B1u + static_cast<uint32_t>(column) * 0x7FEB352Du;
        h = (h ^ h >> 16) * 0x85EBCA6Bu;
        h = (h ^ h >> 13) * 0xC2B2AE35u;
        x[i] = static_cast<float>(static_cast<int32_t>(h ^ h >> 16));
    }
}

INLINE void orthonormalise(int64_t, float* factor, int64_t rows, int64_t rank) {
    for (int64_t c = 0; c < rank; ++c) {
        float* x = factor + c * rows;
        if (make_orthonormal(rows, c, factor, x)) continue;
        renew(rows, c, x);
        if (!make_orthonormal(rows, c, factor, x)) {
            for (int64_t i = 0; i < rows; ++i) x[i] = 0.0f;
        }
    }
}

}  // namespace

void install_orthonormalise(Tables& tables) {
    install<&Kernels::orthonormalise, orthonormalise>(tables);
}
