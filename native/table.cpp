// The tables of all kernels, and which of them this processor runs.
#include "common.h"

#if SPARSE_RING_X86
#include <cpuid.h>
#endif

namespace {

const Tables& tables() {
    static const Tables built = [] {
        Tables fresh{};
        install_accumulate(fresh);
        install_select(fresh);
        install_chunks(fresh);
        install_kth(fresh);
        install_residual(fresh);
        install_reduce(fresh);
        install_golomb_encode(fresh);
        install_golomb_decode(fresh);
        install_interpolative(fresh);
        install_bitpack(fresh);
        install_bitmap(fresh);
        install_elias_fano(fresh);
        install_block16(fresh);
        install_float16(fresh);
        install_bfloat16(fresh);
        install_levels(fresh);
        install_quantize_encode(fresh);
        install_quantize_decode(fresh);
        install_sign(fresh);
        install_skinny(fresh);
        install_orthonormalise(fresh);
        return fresh;
    }();
    return built;
}

}  // namespace

const Kernels& scalar_kernels() { return tables().scalar; }
const Kernels& avx2_kernels() { return tables().avx2; }
const Kernels& avx512_kernels() { return tables().avx512; }

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

bool avx512_supported() {
#if SPARSE_RING_X86
    return avx2_supported() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
    return false;
#endif
}
