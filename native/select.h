// What all instruction sets' selections share: where selected elements go, and the tail.
#pragma once

#include <algorithm>

#include "common.h"

namespace selection {

constexpr int64_t MOST_ELEMENTS = int64_t{1} << 32;  // indices are 32 bits wide
constexpr int64_t CHUNK = 1024;                      // stays in the first-level cache between two passes

// Where selected elements go. Past the capacity the position stops in the spare elements, and only the count grows.
struct Output {
    uint32_t* indices;
    float* values;
    int64_t capacity;
    int64_t count;

    INLINE int64_t position() const { return std::min(count, capacity); }
};

INLINE void select_scalar(int64_t first, int64_t last, const float* x, float threshold, Output& output) {
    for (int64_t i = first; i < last; ++i) {
        const float value = x[i];
        // Written always and counted only where it passes: a branch would be mispredicted at every hit.
        output.indices[output.position()] = static_cast<uint32_t>(i);
        output.values[output.position()] = value;
        output.count += float_of(bits_of(value) & MAGNITUDE) >= threshold;
    }
}

}  // namespace selection

#if SPARSE_RING_X86
void install_select_avx512(Kernels& avx512);
#endif
