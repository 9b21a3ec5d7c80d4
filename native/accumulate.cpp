// Momentum correction: add a gradient into velocity and residual.
#include "common.h"

namespace {

template <bool HasVelocity, bool Nesterov>
INLINE void run(int64_t first, int64_t last, const float* __restrict gradient, float* __restrict velocity,
                float* __restrict residual, float momentum) {
    for (int64_t i = first; i < last; ++i) {
        float added = gradient[i];
        if (HasVelocity) {
            velocity[i] = momentum * velocity[i] + gradient[i];
            added = Nesterov ? momentum * velocity[i] + gradient[i] : velocity[i];
        }
        residual[i] = residual[i] + added;
    }
}

template <bool HasVelocity, bool Nesterov>
INLINE void run_aligned(int64_t n, const float* gradient, float* velocity, float* residual, float momentum) {
    const int64_t head = before_alignment(residual, n);
    run<HasVelocity, Nesterov>(0, head, gradient, velocity, residual, momentum);
    run<HasVelocity, Nesterov>(head, n, gradient, velocity, residual, momentum);
}

INLINE void accumulate(int64_t n, const float* gradient, float* velocity, float* residual, float momentum,
                       bool nesterov) {
    if (velocity == nullptr) return run_aligned<false, false>(n, gradient, nullptr, residual, momentum);
    if (nesterov) return run_aligned<true, true>(n, gradient, velocity, residual, momentum);
    run_aligned<true, false>(n, gradient, velocity, residual, momentum);
}

}  // namespace

void install_accumulate(Tables& tables) {
    install<&Kernels::accumulate, accumulate>(tables);
}
