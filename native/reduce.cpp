// Reductions of a whole array to one answer.
#include "reduce.h"

namespace {

constexpr int64_t CHUNK = 4096;  // a bad element ends the search within this many more

INLINE bool all_finite(int64_t n, const float* x) {
    for (int64_t first = 0; first < n; first += CHUNK) {
        const int64_t last = std::min(n, first + CHUNK);
        uint32_t bad = 0;
        for (int64_t i = first; i < last; ++i) bad |= (bits_of(x[i]) & INFINITE) == INFINITE;
        if (bad) return false;
    }
    return true;
}

INLINE double sum_magnitudes(int64_t n, const float* values) { return sum_magnitudes_of(n, values); }

}  // namespace

void install_reduce(Tables& tables) {
    install<&Kernels::all_finite, all_finite>(tables);
    install<&Kernels::sum_magnitudes, sum_magnitudes>(tables);
}
