// The tables of all kernels, and whether this processor runs them.
#include "common.h"

#if SPARSE_RING_X86
#include <cpuid.h>
#endif

namespace {

struct Tables {
    Kernels scalar{}, avx2{};

    Tables() {
        install_accumulate(scalar, avx2);
        install_select(scalar, avx2);
        install_kth(scalar, avx2);
        install_residual(scalar, avx2);
        install_reduce(scalar, avx2);
        install_golomb(scalar, avx2);
        install_bitpack(scalar, avx2);
        install_float16(scalar, avx2);
        install_sign(scalar, avx2);
        install_bfloat16(scalar, avx2);
    }
};

const Tables& tables() {
    static const Tables built;
    return built;
}

}  // namespace

const Kernels& scalar_kernels() { return tables().scalar; }
const Kernels& avx2_kernels() { return tables().avx2; }

bool avx2_supported() {
#if SPARSE_RING_X86
    // f16c and lzcnt are asked of cpuid itself: some compilers' __builtin_cpu_supports doesn't know these names.
    unsigned a, b, c, d;
    const bool f16c = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
    const bool lzcnt = __get_cpuid(0x80000001u, &a, &b, &c, &d) && (c & bit_ABM);
    __builtin_cpu_init();
    return f16c && lzcnt && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
#else
    return false;
#endif
}
