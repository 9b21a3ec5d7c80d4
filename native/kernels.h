// The kernels as a C ABI: plain functions on raw pointers, collected in one table an instruction set.
//
// What each function computes is specified in sparse_ring/kernels/base.py; all tables give the same bits.
// The first argument is always the number of elements of work. Callers guarantee that arrays hold what the
// sizes say; contents (indices, payloads) are checked here. Nothing is allocated.
#pragma once

#include <cstdint>

// A 16-bit value of the wire. Its bytes may lie at any address, so it must not demand alignment.
struct Half {
    unsigned char byte[2];
};

// Negative results. Those up to CAPACITY blame the caller's arguments, the others a payload from another rank.
enum Status : int64_t {
    OK = 0,
    BAD_INDICES = -1,  // not strictly increasing, or not below numel
    CAPACITY = -2,     // the output is smaller than the bound of the code
    HEADER = -3,       // shorter than the fixed part and the directory
    MODULUS = -4,      // Golomb parameter 0
    DIRECTORY = -5,    // block lengths or last indices contradict the blocks
    TRUNCATED = -6,    // ends inside an element
    TRAILING = -7,     // bytes are left after the last element
    PADDING = -8,      // an unused bit is set
    INDEX = -9,        // an index is not below numel
    WIDTH = -10,       // a width above what the code allows
    NOT_FINITE = -11,  // a value or scale is NaN or infinite
    ORDER = -12,       // positions are not strictly increasing
    COUNT = -13,       // another number of positions than the frame says
    LEVELS = -14,      // the levels of values are negative or not finite
    DIGITS = -15,      // a byte holds no digits
    TABLE = -16,       // the number of a table of levels is unknown
};

struct Kernels {
    bool (*all_finite)(int64_t n, const float* x);

    // velocity may be null: plain accumulation.
    void (*accumulate)(int64_t n, const float* gradient, float* velocity, float* residual, float momentum,
                       bool nesterov);
    // indices and values hold capacity + 16 elements. Returns how many passed, or BAD_INDICES where n exceeds 2^32.
    int64_t (*accumulate_select)(int64_t n, const float* gradient, float* velocity, float* residual, float momentum,
                                 bool nesterov, float threshold, int64_t capacity, uint32_t* indices, float* values);
    int64_t (*select)(int64_t n, const float* x, float threshold, int64_t capacity, uint32_t* indices, float* values);
    // 1 <= keep <= 4096; indices and values hold what keep allows for n elements, + 16.
    int64_t (*select_chunks)(int64_t n, const float* x, int64_t keep, uint32_t* indices, float* values);
    // scratch holds n floats; 1 <= k <= n.
    float (*kth_magnitude)(int64_t n, const float* x, int64_t k, float* scratch);

    // n sent elements; velocity may be null; both state arrays hold numel. Nothing is written where an index is bad.
    int64_t (*update_residual)(int64_t n, const uint32_t* indices, const float* values, const float* decoded,
                               int64_t numel, float* residual, float* velocity);
    int64_t (*scatter_add)(int64_t n, const uint32_t* indices, const float* values, float scale, int64_t numel,
                           float* out);
    void (*add_scaled)(int64_t n, const float* values, float scale, float* out);
    double (*sum_magnitudes)(int64_t n, const float* values);

    // Encoders return the bytes written, decoders OK; size is the bytes of out or payload.
    int64_t (*golomb_encode)(int64_t n, const uint32_t* indices, int64_t numel, int64_t size, uint8_t* out);
    int64_t (*golomb_decode)(int64_t n, const uint8_t* payload, int64_t size, int64_t numel, uint32_t* indices);
    int64_t (*interpolative_encode)(int64_t n, const uint32_t* indices, int64_t numel, int64_t size, uint8_t* out);
    int64_t (*interpolative_decode)(int64_t n, const uint8_t* payload, int64_t size, int64_t numel,
                                      uint32_t* indices);
    int64_t (*bitpack_encode)(int64_t n, const uint32_t* indices, int64_t numel, int64_t size, uint8_t* out);
    int64_t (*bitpack_decode)(int64_t n, const uint8_t* payload, int64_t size, int64_t numel, uint32_t* indices);

    int64_t (*bitmap_encode)(int64_t n, const uint32_t* indices, int64_t numel, int64_t size, uint8_t* out);
    int64_t (*bitmap_decode)(int64_t n, const uint8_t* payload, int64_t size, int64_t numel, uint32_t* indices);
    int64_t (*elias_fano_encode)(int64_t n, const uint32_t* indices, int64_t numel, int64_t size, uint8_t* out);
    int64_t (*elias_fano_decode)(int64_t n, const uint8_t* payload, int64_t size, int64_t numel, uint32_t* indices);
    int64_t (*block16_encode)(int64_t n, const uint32_t* indices, int64_t numel, int64_t size, uint8_t* out);
    int64_t (*block16_decode)(int64_t n, const uint8_t* payload, int64_t size, int64_t numel, uint32_t* indices);

    // The bytes that the encoders would write for these indices, which are trusted to be strictly increasing.
    int64_t (*golomb_size)(int64_t n, const uint32_t* indices, int64_t numel);
    int64_t (*interpolative_size)(int64_t n, const uint32_t* indices, int64_t numel);
    int64_t (*bitpack_size)(int64_t n, const uint32_t* indices);
    int64_t (*block16_size)(int64_t n, const uint32_t* indices);

    float (*float16_encode)(int64_t n, const float* values, Half* out, float* decoded);
    int64_t (*float16_decode)(int64_t n, const Half* payload, float scale, float* values);
    float (*sign_encode)(int64_t n, const float* values, uint8_t* out, float* decoded);
    int64_t (*sign_decode)(int64_t n, const uint8_t* payload, float scale, float* values);
    float (*bfloat16_encode)(int64_t n, const float* values, Half* out, float* decoded);
    int64_t (*bfloat16_decode)(int64_t n, const Half* payload, float* values);
    // bits is 2, 3, 4 or 8; out and payload hold 4 + (n * bits + 7) / 8 bytes, or none for no values.
    float (*levels_encode)(int64_t n, const float* values, int64_t bits, uint8_t* out, float* decoded);
    int64_t (*levels_decode)(int64_t n, const uint8_t* payload, int64_t bits, float scale, float* values);
    // scheme is one of quantize.h; out and payload hold what Scheme.size says. The key's low word is its first.
    float (*quantize_encode)(int64_t n, const float* values, int64_t scheme, float scale, int64_t key, uint8_t* out,
                             float* decoded);
    int64_t (*quantize_decode)(int64_t n, const uint8_t* payload, int64_t scheme, float scale, float* values);
    void (*float32_to_bfloat16)(int64_t n, const float* x, Half* out);
    void (*bfloat16_to_float32)(int64_t n, const Half* x, float* out);
    void (*float32_to_float16)(int64_t n, const float* x, Half* out);
    void (*float16_to_float32)(int64_t n, const Half* x, float* out);

    // n is rows * columns. A matrix lies row after row, a factor column after column, rank >= 1 of them.
    void (*skinny_right)(int64_t n, const float* matrix, int64_t rows, int64_t columns, int64_t rank,
                         const float* factor, float* out);
    void (*skinny_left)(int64_t n, const float* matrix, int64_t rows, int64_t columns, int64_t rank,
                        const float* factor, float* out);
    void (*skinny_outer)(int64_t n, const float* left, const float* right, int64_t rows, int64_t columns, int64_t rank,
                         float* residual, float* out);
    void (*orthonormalise)(int64_t n, float* factor, int64_t rows, int64_t rank);
};

struct Tables {
    Kernels scalar, avx2, avx512;
};

const Kernels& scalar_kernels();
// These run only where their test says so; where the compiler targets another architecture than x86-64, all are the same.
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
bool avx2_supported();
bool avx512_supported();

// Each family puts its functions into all tables; a table takes a slower instruction set's where that was measured faster.
void install_accumulate(Tables& tables);
void install_select(Tables& tables);
void install_chunks(Tables& tables);
void install_kth(Tables& tables);
void install_residual(Tables& tables);
void install_reduce(Tables& tables);
void install_golomb_encode(Tables& tables);
void install_golomb_decode(Tables& tables);
void install_interpolative(Tables& tables);
void install_bitpack(Tables& tables);
void install_bitmap(Tables& tables);
void install_elias_fano(Tables& tables);
void install_block16(Tables& tables);
void install_float16(Tables& tables);
void install_bfloat16(Tables& tables);
void install_levels(Tables& tables);
void install_quantize_encode(Tables& tables);
void install_quantize_decode(Tables& tables);
void install_sign(Tables& tables);
void install_skinny(Tables& tables);
void install_orthonormalise(Tables& tables);
