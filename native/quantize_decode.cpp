// Decodes whole gradients from the digits of a few levels; scales, padding and digits are checked before they are used.
#include "quantize.h"

namespace {

INLINE bool bad_scale(float scale) { return bits_of(scale) >= INFINITE; }  // the sign bit included

template <class S>
INLINE Unit unit_of(const uint8_t* payload, int64_t block, float scale) {
    if (S::SCALES == 0) return {scale, 0.0f};
    const uint8_t* scales = payload + 4 * S::SCALES * block;
    return {float_of(load<uint32_t>(scales)), S::SCALES > 1 ? float_of(load<uint32_t>(scales + 4)) : 0.0f};
}

template <class S>
INLINE void values_of(int64_t n, const uint8_t* digits, Unit unit, float* values) {
    for (int64_t i = 0; i < n; ++i) values[i] = S::value(digits[i], unit);
}

template <class S>
INLINE void unpack(const uint8_t* next, uint8_t* digits) {
    for (int64_t j = 0; j < COLUMNS; ++j) {
        uint8_t byte = next[j];
        for (int i = 0; i < S::PER_BYTE; ++i) {
            // byte / 3 as a product: exact for all 256.
            const uint8_t rest = static_cast<uint8_t>(S::BASE == 3 ? byte * 171u >> 9 : byte / S::BASE);
            digits[i * COLUMNS + j] = static_cast<uint8_t>(byte - rest * S::BASE);
            byte = rest;
        }
    }
}

// The last chunk, whose rows of digits are shorter.
template <class S>
INLINE void unpack_rest(const uint8_t* next, int64_t columns, uint8_t* digits) {
    uint8_t padded[COLUMNS] = {}, rows[S::CHUNK];
    std::memcpy(padded, next, static_cast<size_t>(columns));
    unpack<S>(padded, rows);
    for (int i = 0; i < S::PER_BYTE; ++i) {
        std::memcpy(digits + i * columns, rows + i * COLUMNS, static_cast<size_t>(columns));
    }
}

template <class S>
INLINE int64_t decode_block(int64_t n, const uint8_t* next, Unit unit, float* values) {
    uint8_t digits[S::CHUNK];
    int64_t i = 0;
    for (; i + S::CHUNK <= n; i += S::CHUNK, next += COLUMNS) {
        unpack<S>(next, digits);
        values_of<S>(S::CHUNK, digits, unit, values + i);
    }
    if (i == n) return OK;
    const int64_t columns = columns_of<S>(n - i);
    unpack_rest<S>(next, columns, digits);
    for (int64_t j = n - i; j < columns * S::PER_BYTE; ++j) {
        if (digits[j] != 0) return PADDING;
    }
    values_of<S>(n - i, digits, unit, values + i);
    return OK;
}

template <class S>
INLINE int64_t decode_with(int64_t n, const uint8_t* payload, float scale, float* values) {
    const Layout<S> layout(n);
    const uint8_t* digits = payload + layout.digits;
    if (S::BASE == 3) {
        uint8_t bad = 0;
        for (int64_t i = 0; i < columns_of<S>(n); ++i) bad |= digits[i] > 242;
        if (bad) return DIGITS;
    }
    for (int64_t block = 0; block < layout.blocks; ++block) {
        const int64_t first = block * layout.block, count = std::min(layout.block, n - first);
        const Unit unit = unit_of<S>(payload, block, scale);
        if (bad_scale(unit.scale) || bad_scale(unit.negative)) return LEVELS;
        const int64_t status = decode_block<S>(count, digits + first / S::PER_BYTE, unit, values + first);
        if (status != OK) return status;
    }
    return OK;
}

INLINE int64_t decode_four(int64_t n, const uint8_t* payload, float* values) {
    const uint32_t table = load<uint32_t>(payload + 4);
    if (table == 0) return decode_with<Four<0>>(n, payload, 0.0f, values);
    if (table == 1) return decode_with<Four<1>>(n, payload, 0.0f, values);
    if (table == 2) return decode_with<Four<2>>(n, payload, 0.0f, values);
    return TABLE;
}

INLINE int64_t decode(int64_t n, const uint8_t* payload, int64_t scheme, float scale, float* values) {
    if (n == 0) return (scheme == TERNARY || scheme == TWO2) && bad_scale(scale) ? LEVELS : OK;
    switch (scheme) {
        case BLOCK8: return decode_with<Block8>(n, payload, scale, values);
        case TREE8: return decode_with<Tree8>(n, payload, scale, values);
        case QSGD2: return decode_with<Qsgd2>(n, payload, scale, values);
        case QSGD4: return decode_with<Qsgd4>(n, payload, scale, values);
        case QSGD8: return decode_with<Qsgd8>(n, payload, scale, values);
        case TERNARY: return decode_with<Ternary>(n, payload, scale, values);
        case FOUR4: return decode_four(n, payload, values);
        case TWO2: return decode_with<Two2>(n, payload, scale, values);
        default: return decode_with<Side>(n, payload, scale, values);
    }
}

}  // namespace

void install_quantize_decode(Tables& tables) { install<&Kernels::quantize_decode, decode>(tables); }
