// Products of a matrix with factors of few columns. A factor lies column after column.
//
// The order of sums is that of 16 floats at a time, whatever an instruction set's vectors hold, so that all give the same bits.
#include "common.h"

namespace {

constexpr int LANES = 16;
constexpr int64_t CHUNK = 2048;    // columns whose results stay in the near caches while all rows go by
constexpr int64_t NEAR_RANKS = 64;  // coefficients of a row that are brought together before they are used
constexpr int64_t FEW_RANKS = 2;    // for so many, single rows with aligned stores are faster than rows that share loads
constexpr int64_t AHEAD = 256;      // elements of the matrix that are asked for before they are needed

namespace plain {

// The vectors that every compiler has on every machine.
typedef float Four __attribute__((vector_size(16)));
struct Pack {
    Four a, b, c, d;
};
constexpr int RIGHT_ROWS = 1, RIGHT_RANKS = 2, LEFT_ROWS = 4, LEFT_RANKS = 2;
constexpr int OUTER_ROWS = 2, OUTER_PACKS = 1;

INLINE Pack load(const float* from) {
    Pack pack;
    std::memcpy(&pack, from, sizeof pack);
    return pack;
}
INLINE void store(float* to, Pack pack) { std::memcpy(to, &pack, sizeof pack); }
INLINE Pack load_some(const float* from, int64_t count) {
    float all[LANES] = {};
    for (int64_t i = 0; i < count; ++i) all[i] = from[i];
    return load(all);
}
INLINE void store_some(float* to, Pack pack, int64_t count) {
    float all[LANES];
    store(all, pack);
    for (int64_t i = 0; i < count; ++i) to[i] = all[i];
}
INLINE Pack splat(float x) {
    const Four four = {x, x, x, x};
    return {four, four, four, four};
}
INLINE Pack multiply(Pack x, Pack y) { return {x.a * y.a, x.b * y.b, x.c * y.c, x.d * y.d}; }
INLINE Pack subtract(Pack x, Pack y) { return {x.a - y.a, x.b - y.b, x.c - y.c, x.d - y.d}; }
INLINE Pack add_product(Pack sum, Pack x, Pack y) {
    return {sum.a + x.a * y.a, sum.b + x.b * y.b, sum.c + x.c * y.c, sum.d + x.d * y.d};
}

#define TARGET
#include "skinny_tiles.h"
#undef TARGET

}  // namespace plain

#if SPARSE_RING_X86
namespace halves {

struct Pack {
    __m256 low, high;
};
constexpr int RIGHT_ROWS = 1, RIGHT_RANKS = 4, LEFT_ROWS = 4, LEFT_RANKS = 2;
constexpr int OUTER_ROWS = 4, OUTER_PACKS = 1;

AVX2 INLINE Pack load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
AVX2 INLINE void store(float* to, Pack pack) {
    _mm256_storeu_ps(to, pack.low);
    _mm256_storeu_ps(to + 8, pack.high);
}
// The lanes from `first` on that are below the count.
AVX2 INLINE __m256i below(int64_t count, int first) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count) - first), lanes);
}
AVX2 INLINE Pack load_some(const float* from, int64_t count) {
    return {_mm256_maskload_ps(from, below(count, 0)), _mm256_maskload_ps(from + 8, below(count, 8))};
}
AVX2 INLINE void store_some(float* to, Pack pack, int64_t count) {
    _mm256_maskstore_ps(to, below(count, 0), pack.low);
    _mm256_maskstore_ps(to + 8, below(count, 8), pack.high);
}
AVX2 INLINE Pack splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
AVX2 INLINE Pack multiply(Pack x, Pack y) { return {_mm256_mul_ps(x.low, y.low), _mm256_mul_ps(x.high, y.high)}; }
AVX2 INLINE Pack subtract(Pack x, Pack y) { return {_mm256_sub_ps(x.low, y.low), _mm256_sub_ps(x.high, y.high)}; }
AVX2 INLINE Pack add_product(Pack sum, Pack x, Pack y) {
    return {_mm256_add_ps(sum.low, _mm256_mul_ps(x.low, y.low)),
            _mm256_add_ps(sum.high, _mm256_mul_ps(x.high, y.high))};
}

#define TARGET AVX2
#include "skinny_tiles.h"
#undef TARGET

}  // namespace halves

namespace whole {

struct Pack {
    __m512 all;
};
constexpr int RIGHT_ROWS = 4, RIGHT_RANKS = 4, LEFT_ROWS = 4, LEFT_RANKS = 4;
constexpr int OUTER_ROWS = 4, OUTER_PACKS = 4;

AVX512 INLINE Pack load(const float* from) { return {_mm512_loadu_ps(from)}; }
AVX512 INLINE void store(float* to, Pack pack) { _mm512_storeu_ps(to, pack.all); }
AVX512 INLINE __mmask16 below(int64_t count) { return static_cast<__mmask16>((1u << count) - 1); }
AVX512 INLINE Pack load_some(const float* from, int64_t count) { return {_mm512_maskz_loadu_ps(below(count), from)}; }
AVX512 INLINE void store_some(float* to, Pack pack, int64_t count) {
    _mm512_mask_storeu_ps(to, below(count), pack.all);
}
AVX512 INLINE Pack splat(float x) { return {_mm512_set1_ps(x)}; }
AVX512 INLINE Pack multiply(Pack x, Pack y) { return {_mm512_mul_ps(x.all, y.all)}; }
AVX512 INLINE Pack subtract(Pack x, Pack y) { return {_mm512_sub_ps(x.all, y.all)}; }
AVX512 INLINE Pack add_product(Pack sum, Pack x, Pack y) {
    return {_mm512_add_ps(sum.all, _mm512_mul_ps(x.all, y.all))};
}

#define TARGET AVX512
#include "skinny_tiles.h"
#undef TARGET

}  // namespace whole
#else
namespace halves = plain;
namespace whole = plain;
#endif

}  // namespace

void install_skinny(Tables& tables) {
    tables.scalar.skinny_right = plain::right;
    tables.avx2.skinny_right = halves::right;
    tables.avx512.skinny_right = whole::right;
    tables.scalar.skinny_left = plain::left;
    tables.avx2.skinny_left = halves::left;
    tables.avx512.skinny_left = whole::left;
    tables.scalar.skinny_outer = plain::outer;
    tables.avx2.skinny_outer = halves::outer;
    tables.avx512.skinny_outer = whole::outer;
}
