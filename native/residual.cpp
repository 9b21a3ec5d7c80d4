// Sparse and dense updates of state and sums.
#include "common.h"

namespace {

constexpr int64_t AHEAD = 24;  // elements whose cache lines are asked for before they are needed

INLINE bool in_bounds(int64_t n, const uint32_t* indices, int64_t numel) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; ++i) largest = indices[i] > largest ? indices[i] : largest;
    return n == 0 || static_cast<int64_t>(largest) < numel;
}

INLINE int64_t update_residual(int64_t n, const uint32_t* indices, const float* values, const float* decoded,
                               int64_t numel, float* residual, float* velocity) {
    if (!in_bounds(n, indices, numel)) return BAD_INDICES;
    for (int64_t i = 0; i < n; ++i) {
        if (i + AHEAD < n) {
            __builtin_prefetch(residual + indices[i + AHEAD], 1);
            if (velocity != nullptr) __builtin_prefetch(velocity + indices[i + AHEAD], 1);
        }
        residual[indices[i]] = values[i] - decoded[i];
        if (velocity != nullptr) velocity[indices[i]] = 0.0f;
    }
    return OK;
}

INLINE int64_t scatter_add(int64_t n, const uint32_t* indices, const float* values, float scale, int64_t numel,
                           float* out) {
    if (!in_bounds(n, indices, numel)) return BAD_INDICES;
    for (int64_t i = 0; i < n; ++i) {
        if (i + AHEAD < n) __builtin_prefetch(out + indices[i + AHEAD], 1);
        out[indices[i]] += values[i] * scale;
    }
    return OK;
}

INLINE void add_scaled(int64_t n, const float* __restrict values, float scale, float* __restrict out) {
    const int64_t head = before_alignment(out, n);
    for (int64_t i = 0; i < head; ++i) out[i] += values[i] * scale;
    for (int64_t i = head; i < n; ++i) out[i] += values[i] * scale;
}

}  // namespace

void install_residual(Tables& tables) {
    install<&Kernels::update_residual, update_residual>(tables);
    install<&Kernels::scatter_add, scatter_add>(tables);
    install<&Kernels::add_scaled, add_scaled>(tables);
}
