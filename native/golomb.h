// Golomb code of the gaps between indices: what encoder and decoder share.
#pragma once

#include "indices.h"

namespace golomb {

constexpr int64_t BLOCK = 4096;
constexpr int64_t MODULUS_BYTES = 4;
constexpr int64_t ENTRY_BYTES = 8;  // of the directory

// A Golomb parameter with what follows from it (truncated binary remainders).
struct Code {
    uint64_t modulus;
    uint64_t cut;   // remainders below it take `width` bits, the others one more
    uint64_t mask;  // of `width` bits
    unsigned width;

    INLINE explicit Code(uint64_t m) : modulus(m) {
        width = 63 - static_cast<unsigned>(__builtin_clzll(m));
        mask = (uint64_t{1} << width) - 1;
        cut = (uint64_t{2} << width) - m;
    }
};

INLINE int64_t blocks_of(int64_t n) { return (n + BLOCK - 1) / BLOCK; }

}  // namespace golomb
