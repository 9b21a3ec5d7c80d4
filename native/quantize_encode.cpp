// Encodes whole gradients, element by element, into the digits of a few levels.
#include "quantize.h"
#include "reduce.h"

namespace {

// What a block's unit is.

struct Given {
    static INLINE Unit measure(int64_t, const float*, float given) { return {given, 0.0f}; }
};

struct Largest {
    static INLINE Unit measure(int64_t n, const float* values, float) {
        int32_t largest = 0;  // magnitudes have no sign bit, and older vectors compare signed integers only
        for (int64_t i = 0; i < n; ++i) {
            largest = std::max(largest, static_cast<int32_t>(bits_of(values[i]) & MAGNITUDE));
        }
        return {float_of(static_cast<uint32_t>(largest)), 0.0f};
    }
};

struct Norm {
    static INLINE Unit measure(int64_t n, const float* values, float) {
        return {static_cast<float>(std::min(std::sqrt(sum_of<Square>(n, values)), static_cast<double>(LARGEST))), 0.0f};
    }
};

// All ones where the value is below zero; a choice by comparison would become a branch, and a coin decides which.
INLINE uint32_t below_zero(float value) { return 0u - static_cast<uint32_t>(value < 0.0f); }

struct Means {
    struct AboveZero {
        static INLINE double of(float value) { return float_of(bits_of(value) & ~below_zero(value)); }
    };
    struct BelowZero {
        static INLINE double of(float value) { return float_of(bits_of(value) & below_zero(value) & MAGNITUDE); }
    };

    static INLINE float mean(double sum, int64_t n) {
        return n == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(n));
    }

    static INLINE Unit measure(int64_t n, const float* values, float) {
        int32_t negative = 0;
        for (int64_t i = 0; i < n; ++i) negative += values[i] < 0.0f;
        return {mean(sum_of<AboveZero>(n, values), n - negative), mean(sum_of<BelowZero>(n, values), negative)};
    }
};

// Chunks.

// Byte j takes the digits j, j + COLUMNS, j + 2 * COLUMNS, ...
template <class S>
INLINE void pack(const uint8_t* digits, uint8_t* out) {
    for (int64_t j = 0; j < COLUMNS; ++j) {
        uint8_t byte = digits[(S::PER_BYTE - 1) * COLUMNS + j];
        for (int i = S::PER_BYTE - 2; i >= 0; --i) {
            byte = static_cast<uint8_t>(byte * S::BASE + digits[i * COLUMNS + j]);
        }
        out[j] = byte;
    }
}

// The last chunk, whose rows of digits are shorter.
template <class S>
INLINE void pack_rest(const uint8_t* digits, int64_t columns, uint8_t* out) {
    uint8_t rows[S::CHUNK] = {}, bytes[COLUMNS];
    for (int i = 0; i < S::PER_BYTE; ++i) {
        std::memcpy(rows + i * COLUMNS, digits + i * columns, static_cast<size_t>(columns));
    }
    pack<S>(rows, bytes);
    std::memcpy(out, bytes, static_cast<size_t>(columns));
}

// A whole chunk, whose first value has `index` in the frame.
template <class S>
INLINE void encode_chunk(const float* values, Unit unit, float divisor, uint32_t index, Key key, uint8_t* digits,
                         float* decoded) {
    for (uint32_t i = 0; i < S::CHUNK; ++i) {
        const uint32_t word = S::RANDOM ? random_word(index + i, key) : 0;
        const uint32_t digit = S::digit(values[i], divisor, word);
        digits[i] = static_cast<uint8_t>(digit);
        decoded[i] = S::value(digit, unit);
    }
}

// The chunks of one block.
template <class S>
INLINE void encode_block(int64_t n, const float* values, Unit unit, int64_t index, Key key, uint8_t* out,
                         float* decoded) {
    uint8_t digits[S::CHUNK];
    const float divisor = S::divisor(unit);
    int64_t i = 0;
    for (; i + S::CHUNK <= n; i += S::CHUNK, out += COLUMNS) {
        encode_chunk<S>(values + i, unit, divisor, static_cast<uint32_t>(index + i), key, digits, decoded + i);
        pack<S>(digits, out);
    }
    if (i == n) return;
    float rest[S::CHUNK] = {}, rest_decoded[S::CHUNK];  // the digit of zero is zero
    const size_t bytes = static_cast<size_t>(n - i) * sizeof(float);
    std::memcpy(rest, values + i, bytes);
    encode_chunk<S>(rest, unit, divisor, static_cast<uint32_t>(index + i), key, digits, rest_decoded);
    std::memcpy(decoded + i, rest_decoded, bytes);
    pack_rest<S>(digits, columns_of<S>(n - i), out);
}

template <class S, class Measure>
INLINE float encode_with(int64_t n, const float* values, float given, Key key, uint8_t* out, float* decoded) {
    const Layout<S> layout(n);
    for (int64_t block = 0; block < layout.blocks; ++block) {
        const int64_t first = block * layout.block, count = std::min(layout.block, n - first);
        const Unit unit = Measure::measure(count, values + first, given);
        if (S::SCALES > 0) store<uint32_t>(out + 4 * S::SCALES * block, bits_of(unit.scale));
        if (S::SCALES > 1) store<uint32_t>(out + 4 * S::SCALES * block + 4, bits_of(unit.negative));
        uint8_t* digits = out + layout.digits + first / S::PER_BYTE;
        encode_block<S>(count, values + first, unit, first, key, digits, decoded + first);
    }
    return S::SCALES > 0 ? 1.0f : given;
}

// Which table, and its T, in one pass.
struct FourUnit {
    uint32_t table;
    float reach;
};

INLINE FourUnit four_unit(int64_t n, const float* values) {
    double sums[SUM_LANES] = {}, squares[SUM_LANES] = {};
    int32_t largest[SUM_LANES] = {}, above_zero[SUM_LANES] = {};
    int64_t i = 0;
    for (; i + SUM_LANES <= n; i += SUM_LANES) {
        for (int lane = 0; lane < SUM_LANES; ++lane) {
            const int32_t bits = static_cast<int32_t>(bits_of(values[i + lane]) & MAGNITUDE);
            sums[lane] += Magnitude::of(values[i + lane]);
            squares[lane] += Square::of(values[i + lane]);
            largest[lane] = std::max(largest[lane], bits);
            above_zero[lane] += bits > 0;
        }
    }
    for (; i < n; ++i) {
        const int64_t lane = i % SUM_LANES;
        const int32_t bits = static_cast<int32_t>(bits_of(values[i]) & MAGNITUDE);
        sums[lane] += Magnitude::of(values[i]);
        squares[lane] += Square::of(values[i]);
        largest[lane] = std::max(largest[lane], bits);
        above_zero[lane] += bits > 0;
    }
    int64_t count = 0;
    for (int lane = 0; lane < SUM_LANES; ++lane) count += above_zero[lane];
    if (count == 0) return {0, 0.0f};
    const double total = sum_of_lanes(sums), square = sum_of_lanes(squares);
    const double spread = static_cast<double>(count) * square;
    uint32_t table = 0;
    for (int t = 1; t < Geometric::TABLES; ++t) table += spread >= Geometric::from[t] * (total * total);
    const double reach = Geometric::reach[table] * std::sqrt(square / static_cast<double>(count));
    const float most = float_of(static_cast<uint32_t>(*std::max_element(largest, largest + SUM_LANES)));
    return {table, static_cast<float>(std::min(reach, static_cast<double>(most)))};
}

INLINE float encode_four(int64_t n, const float* values, Key key, uint8_t* out, float* decoded) {
    const FourUnit unit = four_unit(n, values);
    store<uint32_t>(out + 4, unit.table);
    if (unit.table == 0) return encode_with<Four<0>, Given>(n, values, unit.reach, key, out, decoded);
    if (unit.table == 1) return encode_with<Four<1>, Given>(n, values, unit.reach, key, out, decoded);
    return encode_with<Four<2>, Given>(n, values, unit.reach, key, out, decoded);
}

INLINE float encode(int64_t n, const float* values, int64_t scheme, float scale, int64_t both, uint8_t* out,
                    float* decoded) {
    const Key key{static_cast<uint32_t>(both), static_cast<uint32_t>(static_cast<uint64_t>(both) >> 32)};
    if (n == 0) return scheme == TERNARY || scheme == TWO2 ? scale : 1.0f;
    switch (scheme) {
        case BLOCK8: return encode_with<Block8, Largest>(n, values, scale, key, out, decoded);
        case TREE8: return encode_with<Tree8, Largest>(n, values, scale, key, out, decoded);
        case QSGD2: return encode_with<Qsgd2, Norm>(n, values, scale, key, out, decoded);
        case QSGD4: return encode_with<Qsgd4, Norm>(n, values, scale, key, out, decoded);
        case QSGD8: return encode_with<Qsgd8, Norm>(n, values, scale, key, out, decoded);
        case TERNARY: return encode_with<Ternary, Given>(n, values, scale, key, out, decoded);
        case FOUR4: return encode_four(n, values, key, out, decoded);
        case TWO2: return encode_with<Two2, Given>(n, values, scale, key, out, decoded);
        default: return encode_with<Side, Means>(n, values, scale, key, out, decoded);
    }
}

}  // namespace

void install_quantize_encode(Tables& tables) { install<&Kernels::quantize_encode, encode>(tables); }
